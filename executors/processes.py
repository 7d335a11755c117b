"""Ending processes for certain: by session, so that what they have started ends with them; and waiting for signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asa.log.proc import Stat

log = logging.getLogger(__name__)

_PATIENCE_S = 8.0
GENTLE_S = 5.0
_GENTLE = frozenset({"srun", "mpirun", "mpiexec", "prterun", "orted", "prted", "hydra_pmi_proxy"})
"""Programs that are asked first: killed, they would leave ranks elsewhere, or files."""


def kill_sessions(sessions: AbstractSet[int]) -> None:
    """Kill every process of these sessions, also those that are being forked meanwhile.

    Returns when none is left, or after a few seconds when one is stuck in the kernel. What launches ranks is given some
    of them to end these.
    """
    if sessions:
        _kill(lambda: _members(sessions))


def kill_children() -> None:
    """Kill every child of this process, like `kill_sessions`; and theirs, if it has become their parent by `adopt`."""
    _kill(children)


def _kill(find: Callable[[], Mapping[int, str]]) -> None:
    began = time.monotonic()
    asked: set[int] = set()
    while (found := find()) and time.monotonic() < began + _PATIENCE_S:
        gentle = _GENTLE if time.monotonic() < began + GENTLE_S else frozenset()
        log.debug("end processes %s", found)
        for pid, name in found.items():
            with suppress(ProcessLookupError):
                if name not in gentle:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in asked:
                    os.kill(pid, signal.SIGTERM)
                    asked.add(pid)
        time.sleep(0.001)


def kill_bearers(value: str) -> None:
    """Kill every process of ours that has an environment variable of this value, like `kill_sessions`."""
    log.debug("end processes with %s in their environment", value)
    word, began = f"={value}\0".encode(), time.monotonic()
    while (bearers := _bearers(word)) and time.monotonic() < began + _PATIENCE_S:
        for pid in bearers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _bearers(word: bytes) -> list[int]:
    from asa.log import proc  # here and below: a supervisor joins sooner without it

    return [pid for pid in proc.pids() if word in (proc.environment(pid) or b"")]


def _members(sessions: AbstractSet[int]) -> dict[int, str]:
    """Process number -> name of the program."""
    from asa.log import proc

    # a child that was forked just now may not have made its session yet
    return {pid: found.name for pid, found in proc.living() if found.session in sessions or pid in sessions}


def descendants(pid: int) -> list[Stat]:
    """All living processes that a process has started, or these."""
    return [*_below(pid).values()]


def _below(pid: int) -> dict[int, Stat]:
    from asa.log import proc

    found, left = dict(proc.living()), [pid]
    below: dict[int, Stat] = {}
    while left:
        parent = left.pop()
        new = {each: stat for each, stat in found.items() if stat.parent == parent and each not in below}
        below |= new
        left += new
    return below


def children() -> dict[int, str]:
    """Children of this process that have not ended: process number -> name of the program."""
    from asa.log import proc

    return {pid: found.name for pid, found in proc.living() if found.parent == os.getpid()}


_CHILDREN_MOST = 1 << 12


def children_of(pid: int | str) -> set[int]:
    """Children of a process, or of ``"self"``; raises `OSError` when it is gone, or the kernel has no such files."""
    found: set[int] = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        found.update(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _CHILDREN_MOST)
    finally:
        os.close(file)


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def taken(pid: int) -> tuple[int, float]:
    """What a process and all that it has started have in memory now [bytes], and the processor time of these, and of
    children that they have waited for [s]; 0 for what is gone.

    Where there are several, the memory that they share is split among those that share it, as far as the kernel says
    so: all the workers of a pool that was forked have the same pages.
    """
    from asa.log import proc

    found = _tree(pid)
    times = [each for pid in found if (each := proc.stat(pid)) is not None]
    ticks = sum(each.user + each.system + each.children_user + each.children_system for each in times)
    return sum(_memory(each, len(found) > 1) for each in found), _TICK_S * ticks


def _tree(pid: int) -> dict[int, None]:
    """A process, and all that it has started."""
    left, found = [pid], dict.fromkeys([pid])
    try:
        while left:
            new = children_of(left.pop()).difference(found)
            left += new
            found |= dict.fromkeys(new)
    except OSError:  # it is gone, or a kernel without such files
        found |= dict.fromkeys(_below(pid))
    return found


def waited_s(pid: int) -> float:
    """For how long the threads of a process, and of all that it has started, have waited for a processor, as far as the
    kernel says so [s]; 0 for what is gone."""
    waited = 0
    for each in _tree(pid):
        with suppress(OSError, IndexError):
            for thread in os.listdir(f"/proc/{each}/task"):
                waited += int(_read(f"/proc/{each}/task/{thread}/schedstat").split()[1])
    return waited / 1e9


def give_way() -> None:
    """Run only on cores that no process outside this session wants, and end first when memory runs out: for good, as
    far as the system has that."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # where each session has a share of its own, a priority counts within it only
    for path, value in (("/proc/self/autogroup", "19"), ("/proc/self/oom_score_adj", "1000")):
        with suppress(OSError), open(path, "w") as file:
            file.write(value)


def _memory(pid: int, shared: bool) -> int:
    with suppress(OSError, ValueError, IndexError):
        if shared:
            line = next(line for line in _read(f"/proc/{pid}/smaps_rollup").splitlines() if line.startswith(b"Pss:"))
            return 1024 * int(line.split()[1])
    with suppress(OSError, ValueError, IndexError):
        return _PAGE * int(_read(f"/proc/{pid}/statm").split()[1])
    return 0


_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> None:
    """Become the parent of all that descends from this process and whose own parent has ended, daemons included.

    References
    ----------
    PR_SET_CHILD_SUBREAPER(2const).

    Raises
    ------
    OSError
        When the system cannot do that: Linux before 3.4.
    """
    import ctypes  # here: a supervisor joins sooner without it

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot become the parent of daemons that it has started")


def detach(keep: AbstractSet[int]) -> None:
    """In a forked child: let go of every descriptor but these.

    They are pointed at the null device rather than closed: objects inherited from the parent may yet close their
    numbers, which by then would belong to other processes.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep and int(name) != null:
            try:
                os.fstat(int(name))  # the one that listed the directory is closed by now
            except OSError:
                continue
            try:
                os.dup2(null, int(name), inheritable=int(name) <= 2)
            except OSError:  # above the limit: no file that is opened later gets this number
                os.close(int(name))


class SessionGuard:
    """A process that ends sessions when its parent dies without having done so, even by SIGKILL.

    It sleeps on a pipe whose other end only the parent holds. It forks from the parent, so it costs little memory; its
    own session keeps it out of signals meant for the parent's.
    """

    def __init__(self) -> None:
        self._sessions: set[int] = set()
        self._fork()

    def guard(self, session: int) -> None:
        self._sessions.add(session)
        self._say(b"+%d\n" % session)

    def forget(self, session: int) -> None:
        """This session has ended; its number may come to belong to others."""
        self._sessions.discard(session)
        self._say(b"-%d\n" % session)

    def reap(self) -> None:
        """Some child has ended: if it is this one, which was killed, another takes its place."""
        if os.waitpid(self.pid, os.WNOHANG)[0]:
            log.warning("the session guard was killed; another takes its place")
            os.close(self._pipe)
            self._fork()
            for session in self._sessions:
                self._say(b"+%d\n" % session)

    def close(self) -> None:
        """End the guard, and what it still guards."""
        os.close(self._pipe)
        os.waitpid(self.pid, 0)

    def _fork(self) -> None:
        inner, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _watch(inner)
        os.close(inner)

    def _say(self, line: bytes) -> None:
        with suppress(BrokenPipeError):  # it was killed: `reap` makes another
            os.write(self._pipe, line)


def _watch(pipe: int) -> None:
    sessions: set[int] = set()
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        detach({pipe})
        with open(pipe, "rb") as lines:
            for line in lines:
                (sessions.add if line[:1] == b"+" else sessions.discard)(int(line[1:]))
        kill_sessions(sessions)
    finally:
        os._exit(0)


@contextmanager
def wakeup(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[socket.socket]:
    """A socket with something to read once one of these signals has come, whose handler `handler` is meanwhile.

    In the main thread only, and one at a time: Python has one descriptor that signals wake.
    """
    inner, outer = socket.socketpair()
    for end in (inner, outer):
        end.setblocking(False)
    signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield inner
    finally:
        signal.set_wakeup_fd(-1)
        for number, handled in before.items():
            signal.signal(number, handled)
        inner.close()
        outer.close()
