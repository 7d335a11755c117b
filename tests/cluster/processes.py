"""Processes by number and start time: start them, know whether they still run, end them within a bound."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL = 0.01  # [s]


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the start time tells it from a later one that got the same number.

    Parameters
    ----------
    pid
        Its number.
    started
        Its start [clock ticks since boot].
    """

    pid: int
    started: int

    @property
    def running(self) -> bool:
        """Whether it still runs. A zombie does not: its parent may collect it much later."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return _start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def find(pid: int) -> Process | None:
    """The process that has this number now, or None."""
    started = _start_time(pid)
    return None if started is None else Process(pid, started)


def spawn(argv: Sequence[str], *, output: Path, env: Mapping[str, str]) -> Process:
    """Start a program in a session of its own, its output appended to a file that only the owner can read.

    Raises
    ------
    OSError
        If the program cannot be executed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=files, setsid=True)
    # A child that has ended at once is a zombie by now; 0 is nobody's start time, so it counts as ended.
    return find(pid) or Process(pid, 0)


def with_environment(wanted: Callable[[Mapping[str, str]], bool]) -> list[Process]:
    """Processes whose initial environment is as wanted, this one and its ancestors excepted."""
    spared = _ancestors()
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) not in spared and wanted(_environment(entry)):
            process = find(int(entry.name))
            if process is not None:
                found.append(process)
    return found


def end(processes: Iterable[Process], *, grace: float, timeout: float = 5.0) -> None:
    """Ask processes to end, all at once, and kill those that have not after a grace period.

    Parameters
    ----------
    grace
        Time to end by themselves [s]; 0 kills at once.
    timeout
        Time to vanish once killed [s].

    Raises
    ------
    TimeoutError
        If one survives even that; it names the processes.
    """
    asked = list(processes)

    def ended() -> bool:
        return not any(process.running for process in asked)

    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, timeout)):
        if patience > 0:
            for process in asked:
                process.signal(number)
            if wait_until(ended, patience):
                return
    left = [process.pid for process in asked if process.running]
    raise TimeoutError(f"processes {left} survived SIGKILL for {timeout} s")


def wait_until(condition: Callable[[], bool], timeout: float, poll: float = _POLL) -> bool:
    """Wait until a condition, looked at every `poll` [s], holds; False if it does not within `timeout` [s]."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll)
    return True


def _stat(pid: int) -> list[str]:
    # The command name may contain blanks and parentheses; the fields after it begin behind the last ")".
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _start_time(pid: int) -> int | None:
    fields = _stat(pid)
    if not fields:
        return None
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # When several threads end, the first may be a zombie before the last has closed their files and ports.
    return None if state in "ZX" and threads <= 1 else started


def _ancestors() -> set[int]:
    pid, seen = os.getpid(), set[int]()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return seen


def _environment(entry: Path) -> dict[str, str]:
    try:
        text = (entry / "environ").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return dict(item.partition("=")[::2] for item in text.split("\0") if "=" in item)
