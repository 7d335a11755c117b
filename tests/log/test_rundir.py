import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, RunNotFound, StateError
from asa.log.rundir import DriverLock, Holder, RunDirectory, list_runs, state_directory


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


def test_a_run_that_somebody_removed_meanwhile_has_no_time(tmp_path):
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


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("mon", "beginning of several runs: montage-1, montage-2"),
        ("montge-1", "did you mean montage-1 or montage-2"),
        ("xyz", "there are 3 runs, none with a name like it: `asa runs` lists them"),
    ],
)
def test_what_is_not_found_is_explained(tmp_path, asked, message):
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
