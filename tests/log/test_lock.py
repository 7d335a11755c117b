import json
import os
import subprocess
import sys

import pytest

from asa.core.errors import StateError
from asa.log.lock import DriverLock, Holder

HOLD = (
    "import sys; from pathlib import Path; from asa.log.lock import DriverLock\n"
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


def test_the_holder_is_told_while_it_holds(path):
    assert DriverLock(path).holder() is None
    with DriverLock(path) as lock:
        assert lock.holder() == Holder.this()
        assert lock.holder().pid == os.getpid()
    assert DriverLock(path).holder() is None


def test_another_process_is_kept_out_and_told_whom_to_stop(path, other):
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
        "import os, sys, time; from pathlib import Path; from asa.log.lock import DriverLock\n"
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

    monkeypatch.setattr("asa.log.lock.write_private", full)
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


def test_a_file_system_without_locks_is_told(path, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with pytest.raises(StateError, match=r"cannot lock .*driver\.lock: No locks available"), DriverLock(path):
        pass
