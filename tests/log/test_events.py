import dataclasses
import enum
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import StateError
from asa.core.event import Event, NodeJoined, RunEnded, RunState, StageExpanded, TaskDone
from asa.core.job import Resources
from asa.core.stage import StageSpec
from asa.log.events import EventLog

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
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})


EVENTS = st.lists(st.one_of(*map(values_of, Event.kinds.values())), max_size=8)


def done(index, value=b"v", stage="s", **more):
    return TaskDone(at=2.0, stage=stage, index=index, allocation="a", node="n", started=1.0, value=value, **more)


def without_value(event):
    return dataclasses.replace(event, value=None) if isinstance(event, TaskDone) else event


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
        assert list(log.read()) == [(1, without_value(event))]
        if isinstance(event, TaskDone) and (event.value is not None or event.path is not None):
            assert log.value(event.stage, event.index) == (event.path if event.value is None else event.value)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, max_size=4), st.integers(0, 10))
def test_batches_are_read_in_order_from_anywhere(tmp_path_factory, batches, after):
    with EventLog(tmp_path_factory.mktemp("log") / "events.db") as log:
        for batch in batches:
            log.append(batch)
        expected = list(enumerate((without_value(event) for batch in batches for event in batch), start=1))
        assert list(log.read(after)) == expected[after:]
        assert log.last == len(expected)


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
    connection.execute("INSERT INTO events (kind, fields) VALUES ('NodeExploded', '{}')")
    connection.execute("INSERT INTO events (kind, fields) VALUES ('NodeJoined', '{\"cores\":')")
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
