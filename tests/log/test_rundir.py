"""A run's directory, the values in it, processes, and messages."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import asa
from asa.core.errors import InvalidInput, RunNotFound, StateError
from asa.core.task import Input
from asa.log import proc
from asa.log.messages import LOGGERS, VARIABLE, log_to_file, log_to_terminal, logged_in
from asa.log.rundir import DriverLock, Holder, RunDirectory, list_runs, state_directory
from asa.log.values import INLINE_MOST, check_file, dump, fill, keep, load
from tests.waiting import until


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ASA_STATE_DIR": "{}/own", "XDG_STATE_HOME": "{}/xdg", "HOME": "{}"}, "own"),
        ({"XDG_STATE_HOME": "{}/xdg", "HOME": "{}"}, "xdg/asa"),
        ({"XDG_STATE_HOME": "relative", "HOME": "{}"}, ".local/state/asa"),
        ({"ASA_STATE_DIR": "", "HOME": "{}"}, ".local/state/asa"),
    ],
)
def test_where_the_state_is(tmp_path, environ, expected):
    found = state_directory({key: value.format(tmp_path) for key, value in environ.items()})
    assert found == tmp_path / expected
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_relative_state_directory_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", "state")
    assert state_directory() == tmp_path / "state"


def test_a_state_directory_open_to_others_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(StateError, match="chmod 700"):
        state_directory({"ASA_STATE_DIR": str(tmp_path / "open")})


def test_a_read_only_state_directory(ordinary_user):
    ordinary_user.chmod(0o500)
    with pytest.raises(StateError, match=r"cannot make the directory .*/runs: Permission denied"):
        RunDirectory.create(ordinary_user, "montage-1")


def test_a_directory_of_runs_that_cannot_be_written(ordinary_user):
    (ordinary_user / "runs").mkdir(0o700)
    (ordinary_user / "runs").chmod(0o500)
    with pytest.raises(StateError, match=r"cannot make the directory .*/runs/montage-1: Permission denied"):
        RunDirectory.create(ordinary_user, "montage-1")
    (ordinary_user / "runs").chmod(0o700)


def test_a_run_that_was_removed_meanwhile_has_no_time(tmp_path):
    run = RunDirectory.create(tmp_path, "montage-1")
    assert run.submitted > 0
    shutil.rmtree(run.path)
    assert run.submitted == 0


def test_a_new_run_has_private_directories(tmp_path):
    run = RunDirectory.create(tmp_path, "montage-1")
    directories = [run.path, run.functions, run.values, run.jobs, run.tls]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    assert run.name == "montage-1"
    assert run.events.parent == run.path
    with run.lock() as lock:
        assert lock.holder() is not None


def test_a_name_is_given_once(tmp_path):
    RunDirectory.create(tmp_path, "montage-1")
    with pytest.raises(StateError, match=r"'montage-1' .* already"):
        RunDirectory.create(tmp_path, "montage-1")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "-a", "a" * 101, "a\n"])
def test_names_that_no_directory_should_have(tmp_path, name):
    with pytest.raises(InvalidInput, match="run name"):
        RunDirectory.create(tmp_path, name)
    with pytest.raises(RunNotFound):
        RunDirectory.open(tmp_path, name)


def test_open_by_name_or_by_its_beginning(tmp_path):
    made = [RunDirectory.create(tmp_path, name) for name in ("blast-7f", "montage", "montage-2")]
    assert list_runs(tmp_path) == made
    assert RunDirectory.open(tmp_path, "b") == made[0]
    assert RunDirectory.open(tmp_path, "montage") == made[1]
    assert RunDirectory.open(tmp_path, "montage-") == made[2]


def test_of_several_that_begin_alike_the_newest_is_meant_and_that_is_said(tmp_path, capsys):
    for place, name in enumerate(("montage-9", "blast-1", "montage-1", "montage-5", "montage-0", "montage-2")):
        os.utime(RunDirectory.create(tmp_path, name).path, (place, place))
    meant = {"mon": "montage-2", "@last": "montage-2", "@last~1": "montage-0", "@last~5": "montage-9", "bl": "blast-1"}
    assert {asked: RunDirectory.open(tmp_path, asked).name for asked in meant} == meant
    said = "asa: 'mon' fits 5 runs: the newest is meant, montage-2, not montage-0, montage-5, montage-1 and 1 more\n"
    assert capsys.readouterr().err == said
    for asked in ("@last~6", "@last~", "@lost"):
        with pytest.raises(RunNotFound, match="no run '@l"):
            RunDirectory.open(tmp_path, asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("montge-1", "did you mean montage-1 or montage-2"),
        ("xyz", "there are 3 runs, none with a name like it: `asa runs` lists them"),
    ],
)
def test_a_run_that_is_not_found_is_explained(tmp_path, asked, message):
    for name in ("blast-7f", "montage-1", "montage-2"):
        RunDirectory.create(tmp_path, name)
    with pytest.raises(RunNotFound, match=message):
        RunDirectory.open(tmp_path, asked)


def test_runs_are_listed_in_the_order_in_which_they_were_submitted(tmp_path):
    for place, name in enumerate(("zebra", "ant", "mole")):
        run = RunDirectory.create(tmp_path, name)
        run.settings.touch()
        os.utime(run.settings, (1000.0 * place, 1000.0 * place))
    assert [run.name for run in list_runs(tmp_path)] == ["zebra", "ant", "mole"]


def test_no_runs_at_all(tmp_path):
    assert list_runs(tmp_path) == []
    with pytest.raises(RunNotFound, match="there are none yet: start one with asa run"):
        RunDirectory.open(tmp_path, "x")


def test_a_run_open_to_others_is_refused(tmp_path):
    RunDirectory.create(tmp_path, "montage-1").path.chmod(0o711)
    with pytest.raises(StateError, match="open to other users"):
        RunDirectory.open(tmp_path, "montage-1")


def test_runs_that_cannot_be_listed(tmp_path):
    Path(tmp_path / "runs").write_text("a file")
    with pytest.raises(StateError, match="cannot list"):
        list_runs(tmp_path)


HOLD = (
    "import sys; from pathlib import Path; from asa.log.rundir import DriverLock\n"
    "with DriverLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "montage-1").mkdir(mode=0o700)
    return tmp_path / "montage-1" / "driver.lock"


@pytest.fixture
def other(path):
    """Another process that drives the run until its standard input is closed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    with process:
        yield process
        if process.poll() is None:
            process.stdin.close()


def test_the_holder_is_known_while_it_holds(path):
    assert DriverLock(path).holder() is None
    with DriverLock(path) as lock:
        assert lock.holder() == Holder.this()
        assert lock.holder().pid == os.getpid()
    assert DriverLock(path).holder() is None


def test_another_process_is_refused_with_the_holder_to_stop(path, other):
    lock = DriverLock(path)
    assert lock.holder().pid == other.pid
    message = rf"run montage-1 is being driven already, by process {other.pid} on "
    with pytest.raises(StateError, match=message), lock:
        pass
    assert lock.holder().pid == other.pid


def test_free_again_after_the_holder_let_go(path, other):
    other.stdin.close()
    assert other.wait(10) == 0
    with DriverLock(path) as lock:
        assert lock.holder() == Holder.this()


def test_free_again_after_the_holder_was_killed(path, other):
    other.kill()
    other.wait(10)
    assert DriverLock(path).holder() is None
    with DriverLock(path) as lock:
        assert lock.holder() == Holder.this()


def test_one_process_drives_a_run_once(path):
    with DriverLock(path) as lock:
        with pytest.raises(StateError, match=f"process {os.getpid()}"), DriverLock(path):
            pass
        refused = subprocess.run([sys.executable, "-c", HOLD, path], stdin=subprocess.DEVNULL, capture_output=True)
        assert refused.returncode == 1, "the refused attempt must not have let go of the lock"
        assert b"being driven already" in refused.stderr
        assert lock.holder() == Holder.this()


def test_a_child_does_not_keep_the_lock(path):
    script = (
        "import os, sys, time; from pathlib import Path; from asa.log.rundir import DriverLock\n"
        "lock = DriverLock(Path(sys.argv[1])).__enter__()\n"
        "if child := os.fork():\n    print(child, flush=True); os._exit(0)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        child = int(process.stdout.readline())
        process.wait(10)
        os.kill(child, 0)
        with DriverLock(path) as lock:
            assert lock.holder() == Holder.this()
        process.stdin.close()


def test_a_note_that_cannot_be_read_is_no_obstacle(path):
    path.with_name("driver.lock.holder").write_text("{")
    with DriverLock(path):
        note = json.loads(path.with_name("driver.lock.holder").read_text())
    assert note["pid"] == os.getpid()


def test_a_later_process_with_the_same_pid_is_not_mistaken(path):
    this = Holder.this()
    path.with_name("driver.lock.holder").write_text(
        json.dumps({"pid": this.pid, "host": this.host, "born": this.born - 1})
    )
    with DriverLock(path) as lock:
        assert lock.holder() == this


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(StateError, match=r"cannot lock .*absent"), DriverLock(tmp_path / "absent" / "driver.lock"):
        pass


def test_when_the_note_cannot_be_written_the_lock_is_not_held(path, monkeypatch):
    def full(*_, **__):
        raise StateError("full")

    monkeypatch.setattr("asa.log.rundir.write_private", full)
    with pytest.raises(StateError, match="full"), DriverLock(path):
        pass
    assert DriverLock(path).holder() is None
    assert subprocess.run([sys.executable, "-c", HOLD, path], stdin=subprocess.DEVNULL, check=False).returncode == 0


def test_a_lock_that_leads_elsewhere_is_not_followed(path):
    path.symlink_to("elsewhere")
    with pytest.raises(StateError, match=r"cannot look at .*driver\.lock"):
        DriverLock(path).holder()
    with pytest.raises(StateError, match=r"cannot lock .*driver\.lock"), DriverLock(path):
        pass
    assert not path.with_name("elsewhere").exists()


def test_a_file_system_without_locks_is_an_error(path, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with pytest.raises(StateError, match=r"cannot lock .*driver\.lock: No locks available"), DriverLock(path):
        pass


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.5, 2j, "text", b"bytes", Path("b"), [1, {2}], Pair(1, 2), Input(3)),
        *([1, (2, {3})], {"a": Path("b")}, {("k", 1): {}}, list(range(2000)), [[threading.Thread]], {"x": len}),
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    loaded = load(dump(value))
    assert loaded == value and type(loaded) is type(value)


def test_functions_go_by_value() -> None:
    offset = 5
    assert load(dump([lambda x: x + offset]))[0](1) == 6


def test_a_short_result_stays_in_memory_and_a_long_one_is_a_private_file(tmp_path: Path) -> None:
    short = b"x" * (INLINE_MOST - 100)
    assert keep(short, tmp_path, "s", 0) == dump(short) and not [*tmp_path.iterdir()]
    long = b"x" * INLINE_MOST
    kept = keep(long, tmp_path, "odd/../name of a stage", 5)
    assert isinstance(kept, str)
    assert Path(kept).parent == tmp_path and Path(kept).name.startswith("odd_.._name_of_a_stage-5-")
    assert stat.S_IMODE(Path(kept).stat().st_mode) == 0o600
    assert load(kept) == b"x" * INLINE_MOST
    assert keep(long, tmp_path, "s", 5) != keep(long, tmp_path, "s", 5), "two attempts do not meet"


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda size: [0.5] * (size // 9), lambda size: [bytes(size), "x"]])
def test_a_long_result_is_there_once_while_it_is_kept(tmp_path: Path, kind: Callable[[int], object]) -> None:
    size = 8_000_000
    long = kind(size)
    tracemalloc.start()
    try:
        kept = keep(long, tmp_path, "s", 0)
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()
    check_file(str(kept))
    assert load(kept) == long and Path(str(kept)).stat().st_size >= size


def test_a_result_that_cannot_be_pickled_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        keep([bytes(2 * INLINE_MOST), threading.Lock()], tmp_path, "s", 0)
    assert [*tmp_path.iterdir()] == []


def test_inputs_take_their_places() -> None:
    inputs = tuple(map(dump, (10, 11, 12)))
    assert fill([Input(0), Pair({"k": Input(2)}, 0)], inputs) == [10, Pair({"k": 12}, 0)]
    assert fill(Input(1, 2), inputs) == [11, 12]
    assert fill(Input(1, 0), inputs) == []


def test_an_input_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "three"
    file.write_bytes(pickle.dumps(3))
    assert fill((Input(0),), (str(file),)) == (3,)


def test_an_input_in_several_places_is_one_object() -> None:
    first, second = fill([Input(0), Input(0)], (dump([1]),))
    assert first == [1] and first is second


NOBODY = 4_194_305  # beyond the largest process number


def test_what_a_process_is() -> None:
    me = proc.stat(os.getpid())
    assert me is not None and not me.ended
    assert (me.parent, me.session) == (os.getppid(), os.getsid(0))
    assert me.name == Path("/proc/self/comm").read_text().strip() and me.resident > 0
    assert proc.stat(NOBODY) is None and proc.environment(NOBODY) is None


def test_a_zombie_is_not_among_the_live_processes() -> None:
    with subprocess.Popen(["sleep", "1000"], env={"ONE": "1", "TWO": "2"}) as child:
        until(lambda: proc.environment(child.pid) == b"ONE=1\0TWO=2\0", "its program is loaded")
        assert child.pid in dict(proc.living())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        found = proc.stat(child.pid)
        assert found is not None and found.ended
        assert child.pid in proc.pids() and child.pid not in dict(proc.living())


def test_processes_that_are_not_ours_to_see_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1, /proc lists those of other users, but tells nothing of them."""

    really = os.open

    def hidden(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).startswith("/proc/1/"):
            raise PermissionError(1, "Operation not permitted", path)
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", hidden)
    assert proc.stat(1) is None
    assert os.getpid() in dict(proc.living())


def test_a_run_keeps_the_messages_of_all_packages_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "asa.log"
    with log_to_file(path):
        for name in LOGGERS:
            logging.getLogger(f"{name}.part").info("at work in %s", name)
        logging.getLogger("asa.part").debug("too much")
        logging.getLogger("somebody.else").error("not ours")
    logging.getLogger("asa.part").error("after its end")
    lines = path.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [f"INFO    {name}.part: at work in {name}" for name in LOGGERS]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with log_to_file(path):
        logging.getLogger("asa").warning("a second driver")
    assert len(path.read_text().splitlines()) == 4


def test_loggers_are_as_before_once_no_log_is_open(tmp_path: Path) -> None:
    before = [(list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in LOGGERS]
    with log_to_file(tmp_path / "a"), log_to_file(tmp_path / "b"):
        assert logging.getLogger("asa.part").isEnabledFor(logging.INFO)
    assert [(list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in LOGGERS] == before


def test_a_program_that_handles_our_messages_itself_loses_none_and_keeps_its_level(tmp_path: Path) -> None:
    logger, own = logging.getLogger("asa"), logging.NullHandler()
    logger.addHandler(own)  # of no level
    try:
        with log_to_file(tmp_path / "a"):
            logging.getLogger("asa.part").info("kept")
        assert logger.level == logging.NOTSET
        logger.setLevel(logging.ERROR)
        with log_to_file(tmp_path / "b"), log_to_file(tmp_path / "c"):
            logging.getLogger("asa.part").info("kept")
        assert logger.level == logging.ERROR
    finally:
        logger.removeHandler(own)
        logger.setLevel(logging.NOTSET)
    assert ["kept" in (tmp_path / name).read_text() for name in "abc"] == [True] * 3


def test_runs_side_by_side_in_one_program_keep_logs_of_their_own(tmp_path: Path) -> None:
    @asa.stage
    def one() -> int:
        return 1

    runs = [asa.submit(one(), name=name, backend="local:cores=1", state=tmp_path) for name in ("first", "second")]
    with log_to_file(tmp_path / "log"), logged_in(tmp_path / "log"):
        logging.getLogger("asa.part").info("of neither")
    assert all(run.wait(60) and run.result() == 1 for run in runs)
    for run, other in zip(runs, reversed(runs), strict=True):
        log = run.directory.log.read_text()
        assert f"{run.name}.0" in log and other.name not in log and "of neither" not in log


@pytest.mark.parametrize("way", ["environment", "terminal"])
def test_more_is_kept_where_more_is_asked_for(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "environment":
        monkeypatch.setenv(VARIABLE, "debug")
        with log_to_file(tmp_path / "log"):
            logging.getLogger("asa.part").debug("every step")
    else:
        with log_to_terminal("debug"), log_to_file(tmp_path / "log"):
            logging.getLogger("asa.part").debug("every step")
        assert "DEBUG   asa.part: every step" in capsys.readouterr().err
    assert "every step" in (tmp_path / "log").read_text()


def test_a_level_that_there_is_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "loud")
    with pytest.raises(InvalidInput, match="ASA_LOG_LEVEL 'loud': one of debug, info, warning, error expected"):
        log_to_file(tmp_path / "log").__enter__()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_ends_the_log_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_file(Path("/dev/full")):
        for _ in range(3):
            logging.getLogger("asa.part").error("lost")
    printed = capsys.readouterr().err
    assert "asa: the log /dev/full ends here: [Errno 28]" in printed
    assert "Traceback" not in printed


def test_a_run_logs_what_it_does(tmp_path: Path) -> None:
    @asa.stage
    def double(number: int) -> int:
        return 2 * number

    run = asa.run(double.map([1, 2]), state=tmp_path)
    assert run.wait() is not None
    assert "INFO" in run.directory.log.read_text()
