from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from asa.testing.executors import PATIENCE_S, is_gone, wait_for
from executors import processes
from executors.processes import SessionGuard, kill_bearers, kill_sessions, taken, waited_s, wakeup
from executors.remote import LauncherDaemons
from tests.waiting import until


def family() -> subprocess.Popen[bytes]:
    """A process in a session of its own, with a child in another process group of that session."""
    script = "set -m; sleep 1000 & echo started; wait"
    process = subprocess.Popen(["bash", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def test_a_session_ends_with_all_its_process_groups() -> None:
    with family() as process:
        (child,) = psutil.Process(process.pid).children()
        kill_sessions({process.pid})
        assert is_gone(child.pid)
        assert process.wait() == -signal.SIGKILL


def test_a_child_that_has_not_made_its_session_yet() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        kill_sessions({process.pid})
        assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_those_with_a_variable_end_wherever_they_are() -> None:
    def start(value: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "1000"], env={"OURS": value}, start_new_session=True)

    with start("a") as one, start("a") as two, start("ab") as other:
        kill_bearers("a")
        assert [one.wait(PATIENCE_S), two.wait(PATIENCE_S)] == [-signal.SIGKILL] * 2
        assert other.poll() is None
        kill_bearers("ab")


def test_other_sessions_go_on() -> None:
    with family() as one, family() as other:
        kill_sessions({one.pid})
        assert other.poll() is None
        kill_sessions({other.pid})


def test_a_warden_ends_what_it_guards_even_when_its_parent_is_killed(tmp_path: Path) -> None:
    with family() as guarded, family() as dismissed:
        script = f"""
import os, threading
from pathlib import Path
from executors.processes import SessionGuard
warden = SessionGuard()
warden.guard({guarded.pid})
warden.guard({dismissed.pid})
warden.forget({dismissed.pid})
Path({str(tmp_path / "new")!r}).write_text(str(warden.pid))
os.rename({str(tmp_path / "new")!r}, {str(tmp_path / "warden")!r})
threading.Event().wait()
"""
        with subprocess.Popen([sys.executable, "-c", script]) as parent:
            warden = wait_for(tmp_path / "warden")
            parent.kill()
        assert guarded.wait() == -signal.SIGKILL
        assert is_gone(warden)
        assert dismissed.poll() is None
        kill_sessions({dismissed.pid})


def test_a_warden_that_was_killed_is_replaced_and_guards_on() -> None:
    with family() as guarded:
        warden = SessionGuard()
        warden.guard(guarded.pid)
        first = warden.pid
        os.kill(first, signal.SIGKILL)

        def is_replaced() -> bool:
            warden.guard(guarded.pid)  # which sends nothing
            warden.reap()
            return warden.pid != first

        until(is_replaced)
        warden.close()
        assert guarded.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "trap", "code", "said"),
    [("orted", "echo asked; exit 3", 3, b"asked\n"), ("srun", "echo asked; exit 3", 3, b"asked\n"),
     ("srun", "", -signal.SIGKILL, b"")],
)  # fmt: skip
def test_a_launcher_is_asked_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, trap: str, code: int, said: bytes
) -> None:
    if not trap:
        monkeypatch.setattr(processes, "GENTLE_S", 0.05)
    script = tmp_path / program
    script.write_text(f"#!/bin/bash\ntrap '{trap}' TERM\necho ready\nwhile :; do sleep 0.01; done\n")
    script.chmod(0o700)
    with subprocess.Popen([script], start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        kill_sessions({process.pid})
        assert process.stdout.read() == said
        assert process.wait(PATIENCE_S) == code


def test_a_warden_ends_with_its_owner() -> None:
    warden = SessionGuard()
    warden.close()
    assert is_gone(warden.pid)


def test_a_signal_is_read_and_afterwards_all_is_as_before() -> None:
    before, heard = signal.getsignal(signal.SIGUSR1), list[int]()
    with wakeup([signal.SIGUSR1], lambda number, frame: heard.append(number)) as signals:
        with pytest.raises(BlockingIOError):
            signals.recv(10)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.recv(10) == bytes([signal.SIGUSR1]) and heard == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert signals.fileno() == -1


def test_it_ends_with_what_was_raised_in_it() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyError), wakeup([signal.SIGUSR1], lambda number, frame: None):
        raise KeyError
    assert signal.getsignal(signal.SIGUSR1) is before and signal.set_wakeup_fd(-1) == -1


Ended = list[tuple[int, int]]


@pytest.fixture
def ended() -> Ended:
    """What was reported."""
    return []


@pytest.fixture
def daemons(ended: Ended) -> Iterator[LauncherDaemons[int]]:
    daemons = LauncherDaemons[int](lambda *end: ended.append(end))
    yield daemons
    daemons.close()


def until_ended(daemons: LauncherDaemons[int], ended: Ended) -> tuple[int, int]:
    def has_ended() -> bool:
        daemons.reap()
        return bool(ended)

    until(has_ended)
    return ended.pop()


def lingering(file: Path) -> str:
    """A command that never ends, nor does its child, whose process number it leaves."""
    return f"sleep 1000 & echo $! >{file}.new; mv {file}.new {file}; wait"


def test_a_command_is_run_by_a_shell_and_its_end_is_reported(
    daemons: LauncherDaemons[int], ended: Ended, tmp_path: Path
) -> None:
    daemons.start(5, f'A=$B; export A; printenv A >"{tmp_path}/a"; exit 3', {**os.environ, "B": "two words"})
    assert until_ended(daemons, ended) == (5, 3)
    assert (tmp_path / "a").read_text() == "two words\n"


def test_variables_of_the_node_stay_as_they_are(
    daemons: LauncherDaemons[int], ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "here")
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    daemons.start(1, f'env >"{tmp_path}/env"', {"PATH": os.environ["PATH"]})
    until_ended(daemons, ended)
    names = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert names["SLURMD_NODENAME"] == "here"
    assert not names.keys() & {"SLURM_PROCID", "OMP_NUM_THREADS"}, "of the supervisor's step; what the launcher lacks"


def test_one_that_cannot_be_started(daemons: LauncherDaemons[int], ended: Ended) -> None:
    daemons.start(1, "true", {"LONG": "x" * (1 << 22)})
    assert ended == [(1, 127)]


def test_one_is_ended_with_all_that_it_has_started(daemons: LauncherDaemons[int], ended: Ended, tmp_path: Path) -> None:
    for number in (1, 2):
        daemons.start(number, lingering(tmp_path / str(number)), dict(os.environ))
    first, second = (wait_for(tmp_path / str(number)) for number in (1, 2))
    daemons.stop(1)
    assert ended == [(1, -9)]
    assert is_gone(first) and Path(f"/proc/{second}").exists()
    daemons.stop(1)
    assert len(ended) == 1, "it has ended"


def test_what_a_daemon_leaves_ends_with_it(daemons: LauncherDaemons[int], ended: Ended, tmp_path: Path) -> None:
    daemons.start(1, lingering(tmp_path / "pid").removesuffix("wait"), dict(os.environ))
    assert until_ended(daemons, ended) == (1, 0)
    assert is_gone(wait_for(tmp_path / "pid"))


def test_all_end_with_their_supervisor_even_when_it_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, threading
from executors.remote import LauncherDaemons
LauncherDaemons(print).start(1, {lingering(tmp_path / "pid")!r}, dict(os.environ))
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", script]) as supervisor:
        child = wait_for(tmp_path / "pid")
        supervisor.kill()
    assert is_gone(child)


def test_processor_time_counts_what_was_started_and_has_ended() -> None:
    spin = "sum(range(20_000_000))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        assert taken(child.pid)[1] > 0.05
        assert waited_s(child.pid) >= 0.0
        child.communicate(b"\n")
    assert (taken(child.pid)[1], waited_s(child.pid)) == (0.0, 0.0)
