"""Event logs, and the database below them."""

import binascii
import dataclasses
import enum
import multiprocessing
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import types
import typing
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import StateError
from asa.core.event import (
    TOGETHER_MOST,
    Event,
    NodeJoined,
    RunEnded,
    RunState,
    StageExpanded,
    StageLookedUp,
    TaskDone,
    TaskResult,
    TasksDone,
)
from asa.core.job import Resources
from asa.core.stage import StageSpec
from asa.core.task import SOURCES
from asa.log import database
from asa.log.database import Database, LearnedStore, is_local, mount_of, parse_mounts
from asa.log.events import EventLog

SCHEMA = ("CREATE TABLE t (a INTEGER)", "CREATE TABLE u (b TEXT)")


def test_made_with_its_tables_private_and_without_leftovers(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 3)
    assert opened.rows("SELECT name FROM sqlite_master ORDER BY name") == [("t",), ("u",)]
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    opened.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_umask_does_not_open_the_file(tmp_path):
    before = os.umask(0)
    try:
        Database(tmp_path / "x.db", SCHEMA, 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("local", "journal", "synchronous"), [(True, "wal", 1), (False, "delete", 2)])
def test_journal_depends_on_the_file_system(tmp_path, monkeypatch, local, journal, synchronous):
    monkeypatch.setattr(database, "is_local", lambda path: local)
    opened = Database(tmp_path / "x.db", SCHEMA, 1)
    assert opened.rows("PRAGMA journal_mode") == [(journal,)]
    assert opened.rows("PRAGMA synchronous") == [(synchronous,)]


def test_a_file_that_moved_to_a_shared_file_system_loses_its_write_ahead_log(tmp_path, monkeypatch):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    monkeypatch.setattr(database, "is_local", lambda path: False)
    assert Database(tmp_path / "x.db", SCHEMA, 1).rows("PRAGMA journal_mode") == [("delete",)]


def test_a_transaction_that_raises_writes_nothing(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 1)

    def fail_halfway():
        with opened.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert opened.rows("SELECT * FROM t") == []
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    assert opened.rows("SELECT * FROM t WHERE a = ?", 2) == [(2,)]


def test_a_locked_file_says_so(tmp_path):
    first = Database(tmp_path / "x.db", SCHEMA, 1)
    second = Database(tmp_path / "x.db", SCHEMA, 1, busy_s=0.01)
    with first.transaction(), pytest.raises(StateError, match="keeps it locked"), second.transaction():
        pass


@pytest.mark.parametrize(("found", "age"), [(2, "a newer version"), (0, "an older version")])
def test_another_version_is_refused(tmp_path, found, age):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute(f"PRAGMA user_version = {found}")
    connection.close()
    with pytest.raises(StateError, match=rf"x\.db has format {found}.* reads 1: {age}"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_something_else_is_refused(tmp_path):
    (tmp_path / "x.db").write_bytes(b"no database at all\n" * 100)
    (tmp_path / "x.db").chmod(0o600)
    with pytest.raises(StateError, match=r"x\.db: it is no database of ASA"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_damage_is_named(tmp_path):
    opened = Database(tmp_path / "x.db", SCHEMA, 1)
    with opened.transaction() as connection:
        connection.executemany("INSERT INTO u VALUES (?)", [("text" * 100,)] * 500)
    opened.close()
    content = bytearray((tmp_path / "x.db").read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StateError, match="it is damaged"):
        Database(tmp_path / "x.db", SCHEMA, 1).rows("SELECT * FROM u")


def test_open_to_others_and_links_are_refused(tmp_path):
    Database(tmp_path / "x.db", SCHEMA, 1).close()
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    with pytest.raises(StateError, match="symbolic link"):
        Database(tmp_path / "link.db", SCHEMA, 1)
    (tmp_path / "dangling.db").symlink_to(tmp_path / "absent.db")
    with pytest.raises(StateError, match="symbolic link"):
        Database(tmp_path / "dangling.db", SCHEMA, 1)
    (tmp_path / "x.db").chmod(0o640)
    with pytest.raises(StateError, match="open to other users"):
        Database(tmp_path / "x.db", SCHEMA, 1)


def test_a_database_in_a_read_only_directory(ordinary_user):
    opened = Database(ordinary_user / "x.db", SCHEMA, 1)
    opened.close()
    ordinary_user.chmod(0o500)
    with pytest.raises(StateError, match=r"cannot write .*new\.db: Permission denied.*ASA_STATE_DIR"):
        Database(ordinary_user / "new.db", SCHEMA, 1)
    with pytest.raises(StateError, match=r"x\.db: it cannot be (opened|written): check the permissions"):
        Database(ordinary_user / "x.db", SCHEMA, 1)


def test_absent_directory(tmp_path):
    with pytest.raises(StateError, match=r"cannot write .*x\.db: No such file"):
        Database(tmp_path / "absent" / "x.db", SCHEMA, 1)


def insert(path, barrier):
    barrier.wait()
    opened = Database(path, SCHEMA, 1)
    with opened.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")


def test_many_processes_make_the_same_file(tmp_path):
    context = multiprocessing.get_context("fork")
    for attempt in range(5):
        path, barrier = tmp_path / f"{attempt}.db", context.Barrier(4)
        processes = [context.Process(target=insert, args=(path, barrier)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
        assert Database(path, SCHEMA, 1).rows("SELECT count(*) FROM t") == [(4,)]


CLUSTER = """\
21 1 8:2 / / rw,relatime shared:1 - xfs /dev/sda2 rw,attr2
22 21 0:20 / /proc rw,nosuid shared:5 - proc proc rw
30 21 0:40 / /home rw shared:12 - nfs4 server:/export/home rw,vers=4.2
31 30 0:41 / /home/ann/scratch rw - lustre mds@tcp:/scratch rw
32 21 0:42 / /tmp rw shared:7 master:2 - tmpfs tmpfs rw
33 21 0:43 / /mnt/with\\040space rw - fuse.sshfs host:/ rw
34 21 0:44 / /new rw - never-heard-of it rw
35 21 8:3 / /hidden/below rw - ext4 /dev/sda3 rw
36 21 0:45 / /hidden rw - gpfs gpfs0 rw
37 32 0:46 / /tmp rw - beegfs beegfs_nodev rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "xfs"),
        ("/var/lib", "xfs"),
        ("/homes", "xfs"),
        ("/home/ann", "nfs4"),
        ("/home/ann/scratch/runs", "lustre"),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/new/x", "never-heard-of"),
        ("/hidden/below/x", "gpfs"),  # the ext4 below was covered by a later mount
        ("/tmp/x", "beegfs"),  # mounted over the tmpfs
    ],
)
def test_the_mount_that_a_path_is_on(path, kind):
    assert mount_of(PurePosixPath(path), parse_mounts(CLUSTER)).kind == kind


def test_in_a_changed_root_only_what_is_listed_is_known():
    mounts = parse_mounts("40 21 8:3 / /data rw - ext4 /dev/sda3 rw\n")
    assert mount_of(PurePosixPath("/data/x"), mounts).kind == "ext4"
    assert mount_of(PurePosixPath("/etc"), mounts) is None


def test_a_root_that_is_its_own_parent():
    mounts = parse_mounts("1 1 0:2 / / rw - rootfs rootfs rw\n21 1 8:2 / / rw - ext4 /dev/sda2 rw\n")
    assert mount_of(PurePosixPath("/x"), mounts).kind == "ext4"


@pytest.mark.parametrize(("path", "local"), [("/var", True), ("/home/ann", False), ("/new/x", False)])
def test_only_known_kinds_are_local(monkeypatch, path, local):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: CLUSTER)
    assert is_local(Path(path)) is local


def test_without_a_list_of_mounts_nothing_is_local(monkeypatch, tmp_path):
    def absent(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert is_local(tmp_path) is False


def test_links_are_followed(monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to("/proc/self")
    assert database.is_local(tmp_path / "link" / "fd") is False
    assert database.is_local(Path("/proc")) is False


@pytest.fixture
def store(tmp_path):
    return LearnedStore(tmp_path / "learned.db")


def count(record):
    return {"n": (record or {}).get("n", 0) + 1}


def test_records_are_made_changed_and_dropped(store):
    assert store.get("a") is None
    assert store.update("a", count) == {"n": 1}
    assert store.update("a", count) == {"n": 2}
    assert store.get("a") == {"n": 2}
    assert store.update("a", lambda record: None) is None
    assert store.get("a") is None and store.keys() == []


def test_a_change_may_be_made_in_place(store):
    store.update("a", count)

    def add(record):
        record["m"] = [1.5, None, "é"]
        return record

    store.update("a", add)
    assert store.get("a") == {"n": 1, "m": [1.5, None, "é"]}


def test_a_change_that_raises_changes_nothing_and_teaches_nothing(store):
    def broken(record):
        raise ZeroDivisionError

    for attempt in (lambda: store.update("a", broken), lambda: store.learn_once("a", "job-1", broken)):
        with pytest.raises(ZeroDivisionError):
            attempt()
    assert store.get("a") is None
    assert store.learn_once("a", "job-1", count)


def test_keys_by_prefix_taken_literally(store):
    for key in ("waits b", "waits a", "runtime a", "waits%x", "w"):
        store.update(key, count)
    assert store.keys("waits ") == ["waits a", "waits b"]
    assert store.keys("waits%") == ["waits%x"]
    assert len(store.keys()) == 5


def test_a_token_teaches_a_key_once(store):
    assert store.learn_once("a", "job-1", count)
    assert not store.learn_once("a", "job-1", count)
    assert store.learn_once("a", "job-2", count)
    assert store.learn_once("b", "job-1", count)
    assert (store.get("a"), store.get("b")) == ({"n": 2}, {"n": 1})


def test_it_outlives_its_process(store, tmp_path):
    store.learn_once("a", "job-1", count)
    store.close()
    again = LearnedStore(tmp_path / "learned.db")
    assert again.get("a") == {"n": 1}
    assert not again.learn_once("a", "job-1", count)


def count_slowly(record):
    time.sleep(0.0005)  # long enough for the other process to come between
    return count(record)


def hammer(path, barrier, news):
    store = LearnedStore(path)
    barrier.wait()
    first = 0
    for job in range(200):
        first += store.learn_once("a", f"job-{job}", count_slowly)
        store.update("b", count_slowly)
    news.put(first)


def test_processes_lose_no_change_and_learn_each_job_once(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, news = context.Barrier(2), context.Queue()
    path = tmp_path / "learned.db"
    processes = [context.Process(target=hammer, args=(path, barrier, news)) for _ in range(2)]
    for process in processes:
        process.start()
    first = [news.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    store = LearnedStore(path)
    assert sum(first) == 200
    assert (store.get("a"), store.get("b")) == ({"n": 200}, {"n": 400})


TEXT = st.text(max_size=8)
TIME = st.floats(allow_nan=False, width=64)
RESOURCES = st.builds(
    lambda nodes, each, memory, gpus: Resources(nodes * each, nodes, memory, gpus),
    st.integers(1, 4),
    st.integers(1, 64),
    st.none() | st.integers(1, 2**40),
    st.integers(0, 8),
)
STAGE = st.builds(
    lambda resources, **rest: StageSpec(resources=resources, task=resources, **rest),
    resources=RESOURCES,
    name=TEXT,
    walltime_s=TIME,
    run_time_s=TIME,
    predecessors=st.tuples(TEXT, TEXT),
    retries=st.integers(0, 9),
    width=st.none() | st.integers(0, 10**6),
)


def values_of(hint):
    """Values of a type as event classes annotate their fields."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    known = {Resources: RESOURCES, StageSpec: STAGE, str: TEXT, float: TIME, int: st.integers(-(2**63), 2**63 - 1)}
    known |= {bool: st.booleans(), bytes: st.binary(max_size=8), types.NoneType: st.none()}
    if hint in known:
        return known[hint]
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    hints = typing.get_type_hints(hint)
    if hint is TaskResult:
        return st.builds(TaskResult, TEXT, st.integers(0, 9), st.binary(max_size=8), st.none())
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})


TOOK = st.fixed_dictionaries(
    {},
    optional={
        "cpu_s": TIME,
        "peak": st.integers(0, 2**50),
        "given": st.integers(0, 2**50),
        "source": st.sampled_from(SOURCES),
    },
)
TOGETHER = st.lists(st.tuples(st.integers(0, 9), TOOK), min_size=2, max_size=5).map(
    lambda tasks: [done(task, **took) for task, took in tasks]
)
EVENTS = st.lists(
    st.one_of(*map(values_of, Event.kinds.values())).map(lambda event: [event]) | TOGETHER, max_size=8
).map(lambda groups: [event for group in groups for event in group])


def done(index, value=b"v", stage="s", **more):
    return TaskDone(at=2.0, stage=stage, index=index, allocation="a", node="n", started=1.0, value=value, **more)


def without_result(event):
    if isinstance(event, StageLookedUp):
        return dataclasses.replace(event, found=())
    return dataclasses.replace(event, value=None, path=None) if isinstance(event, TaskDone) else event


@pytest.fixture
def log(tmp_path):
    with EventLog(tmp_path / "events.db") as opened:
        yield opened


@pytest.mark.parametrize("kind", Event.kinds.values(), ids=Event.kinds)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_kind_of_event_comes_back(tmp_path_factory, kind, data):
    event = data.draw(values_of(kind))
    with EventLog(tmp_path_factory.mktemp("log") / "events.db") as log:
        log.append([event])
        assert list(log.read()) == [(1, without_result(event))]
        if event.result is not None:
            assert log.value(event.stage, event.index) == (event.path if event.value is None else event.value)


def test_what_calls_returned_is_not_kept_where_their_futures_have_it(tmp_path):
    with EventLog(tmp_path / "events.db", results=False) as log:
        log.append([done(0), done(1, None, path="values/1")])
        assert log.last == 2 and [*log.all_values("s")] == []


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, max_size=4), st.integers(0, 10))
def test_batches_are_read_in_order_from_anywhere(tmp_path_factory, batches, after):
    with EventLog(tmp_path_factory.mktemp("log") / "events.db") as log:
        for batch in batches:
            log.append(batch)
        expected = list(enumerate((without_result(event) for batch in batches for event in batch), start=1))
        assert list(log.read(after)) == expected[after:]
        assert log.last == len(expected)


def test_tasks_that_returned_together_are_one_row_each_event_of_which_has_its_number(log, tmp_path):
    tasks = [done(index) for index in range(TOGETHER_MOST + 7)]
    log.append([StageExpanded(1.0, "s", 3), *tasks, done(0, stage="t")])
    log.append(tasks[:2])
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection:
        rows = connection.execute("SELECT seq, kind FROM events ORDER BY seq").fetchall()
    last = TOGETHER_MOST + 8
    expected = [(1, "StageExpanded"), (TOGETHER_MOST + 1, "TasksDone"), (last, "TasksDone"), (last + 1, "TaskDone")]
    assert rows == [*expected, (last + 3, "TasksDone")]
    assert [number for number, _ in log.read(5)] == list(range(6, last + 4))
    assert log.last == last + 3 and log.latest(TaskDone) == without_result(tasks[1])
    assert log.latest(StageExpanded) == StageExpanded(1.0, "s", 3)
    assert sum(map(len, (item for _, item in log.packed() if isinstance(item, TasksDone)))) == len(tasks) + 2


def test_what_was_written_is_there_when_opened_again(tmp_path):
    with EventLog(tmp_path / "events.db") as log:
        log.append([StageExpanded(1.0, "s", 3), done(0, b"zero")])
    with EventLog(tmp_path / "events.db") as log:
        log.append([RunEnded(3.0, RunState.SUCCEEDED)])
        assert [number for number, _ in log.read()] == [1, 2, 3]
        assert log.value("s", 0) == b"zero"


def test_values_in_order_and_only_when_all_are_there(log):
    log.append([done(2, b"two"), done(0, b"zero"), done(1, None, path="values/1"), done(0, b"other", stage="t")])
    assert log.values("s", 0, 3) == [b"zero", "values/1", b"two"]
    assert log.values("s", 1, 1) == []
    for asked in (lambda: log.value("s", 3), lambda: log.values("s", 1, 4), lambda: log.value("u", 0)):
        with pytest.raises(KeyError):
            asked()


def test_the_first_result_of_a_task_stands(log):
    log.append([done(0, b"first")])
    log.append([done(0, b"second")])
    assert log.value("s", 0) == b"first"
    assert log.last == 2


def test_reading_goes_on_while_others_append(log):
    log.append([StageExpanded(0.0, "s", number) for number in range(1500)])
    reader = log.read()
    assert next(reader)[0] == 1
    log.append([StageExpanded(0.0, "s", 1500)])
    assert sum(1 for _ in reader) == 1500


def test_threads_append_whole_batches(log):
    def write(stage):
        for _ in range(50):
            log.append([StageExpanded(0.0, stage, number) for number in range(4)])

    threads = [threading.Thread(target=write, args=(stage,)) for stage in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = [event for _, event in log.read()]
    batches = [events[first : first + 4] for first in range(0, 400, 4)]
    assert all([event.width for event in batch] == [0, 1, 2, 3] for batch in batches)
    assert all(len({event.stage for event in batch}) == 1 for batch in batches)


def test_a_kind_that_is_not_known_is_named(log, tmp_path):
    log.append([NodeJoined(0.0, "a", "n", 4)])
    connection = sqlite3.connect(tmp_path / "events.db")
    for seq, kind, fields in ((2, "NodeExploded", "{}"), (3, "NodeJoined", '{"cores":')):
        crc = binascii.crc32(f"{seq} {kind} {fields}".encode())
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (seq, kind, fields, crc))
    connection.commit()
    connection.close()
    with pytest.raises(StateError, match=r"events\.db: event 2 \(NodeExploded\) cannot be read .*another version"):
        list(log.read())
    with pytest.raises(StateError, match=r"event 3 \(NodeJoined\) cannot be read"):
        list(log.read(2))


def test_another_version_of_the_log_is_refused(tmp_path):
    EventLog(tmp_path / "events.db").close()
    connection = sqlite3.connect(tmp_path / "events.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateError, match=r"has format 99, .*newer"):
        EventLog(tmp_path / "events.db")


def test_read_only_directory(ordinary_user):
    with EventLog(ordinary_user / "events.db") as log:
        log.append([done(0)])
    ordinary_user.chmod(0o500)
    with pytest.raises(StateError, match=r"events\.db: it cannot be (opened|written): check the permissions"):
        EventLog(ordinary_user / "events.db").append([done(1)])
    ordinary_user.chmod(0o700)
    with EventLog(ordinary_user / "events.db") as log:
        assert log.last == 1


WRITER = """
import itertools, sys
from pathlib import Path
from asa.core.errors import StateError
from asa.core.event import TaskDone
from asa.log.events import EventLog

path, stage, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = EventLog(path)
print("ready", flush=True)
for batch in itertools.count():
    tasks = range(batch * 100, batch * 100 + 100)
    try:
        log.append([TaskDone(2.0, stage, task, "a", "n", 1.0, bytes(size)) for task in tasks])
    except StateError as error:
        print(error, flush=True)
        break
"""


def count_whole_batches(path, stage):
    """Batches of 100 events that `WRITER` left; fails when one of them is not whole."""
    with EventLog(path) as log:
        events = [event for _, event in log.read() if event.stage == stage]
        assert [event.index for event in events] == list(range(len(events)))
        assert len(log.values(stage, 0, len(events))) == len(events)
        with pytest.raises(KeyError):
            log.value(stage, len(events))
    assert len(events) % 100 == 0
    return len(events) // 100


def test_a_killed_writer_leaves_whole_batches(tmp_path):
    path, batches = tmp_path / "events.db", 0
    for stage, delay_s in zip("abcdef", (0.01, 0.02, 0.03, 0.045, 0.06, 0.08), strict=True):
        command = [sys.executable, "-c", WRITER, path, stage, "2000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
        batches += count_whole_batches(path, stage)
    assert batches > 0


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))


def test_a_file_that_must_not_grow_keeps_whole_batches(tmp_path):
    command = [sys.executable, "-c", WRITER, tmp_path / "events.db", "s", "1000"]
    written = subprocess.run(
        command, preexec_fn=limit_file_size, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "events.db: the disk" in written and str(tmp_path) in written
    assert count_whole_batches(tmp_path / "events.db", "s") > 0


@pytest.mark.root
def test_a_full_disk_keeps_whole_batches_and_recovers(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", disk], capture_output=True, check=False
    )
    if os.geteuid() != 0 or mounted.returncode:
        pytest.skip(f"cannot mount a file system: {mounted.stderr.decode().strip()}")
    try:
        command = [sys.executable, "-c", WRITER, disk / "events.db", "s", "1000"]
        written = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert "events.db: the disk is full: free some space" in written
        before = count_whole_batches(disk / "events.db", "s")
        assert before > 0
        with EventLog(disk / "events.db") as log:
            filler = disk / "filler"
            with pytest.raises(OSError, match="No space left"):
                filler.write_bytes(bytes(2**20))
            with pytest.raises(StateError, match="the disk is full"):
                log.append([done(index, bytes(1000), stage="t") for index in range(100)])
            assert log.last == before * 100
            subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
            log.append([done(index, bytes(1000), stage="t") for index in range(100)])
            assert log.last == before * 100 + 100
    finally:
        subprocess.run(["umount", disk], check=True)
