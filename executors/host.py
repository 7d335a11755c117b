"""What drivers, supervisors and their worker pools ask of the machine they run on, all in one place.

`Host` is a real one. Tests of the whole system put a simulated one in its place, with a clock, a network and processes
of its own; everything that uses a `Host` is the same in both.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from executors import wire

if TYPE_CHECKING:
    from asa.core.clock import Joinable
    from asa.core.ports import RunContext
    from executors.output import OutputFile
    from executors.processes import SessionGuard
    from executors.wire import Channel, ChannelListener, Hello, Welcome
    from executors.worker import SlotBoard


class Bell:
    """Rung from any thread; a selector sees it."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def hush(self) -> None:
        """It has been heard."""
        os.eventfd_read(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class ScratchDisk:
    """A directory on the node's own disk, in which each task has one; what killed supervisors have left is removed.

    Whose supervisor lives holds a lock on it.
    """

    def __init__(self, base: str) -> None:
        import fcntl  # here: a node joins sooner without these
        import tempfile

        prefix = f"asa-scratch-{os.geteuid()}-"
        for entry in os.scandir(base):
            if entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_mtime < time.time() - _SETTLED_S:
                with suppress(OSError):  # it is held, or another has just removed it
                    descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        self._remove(entry.path)
                    finally:
                        os.close(descriptor)
        self.path = tempfile.mkdtemp(prefix=prefix, dir=base)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._count, self._free = 0, list[str]()

    def new(self) -> str:
        """The path of a directory for the tasks of a worker; it is not there yet."""
        if self._free:
            return self._free.pop()
        self._count += 1
        return os.path.join(self.path, str(self._count))

    def remove(self, path: str) -> None:
        """A worker is gone: what it has left goes, too."""
        if os.path.isdir(path):
            self._remove(path)
        self._free.append(path)

    def close(self) -> None:
        self._remove(self.path)
        os.close(self._lock)

    @staticmethod
    def _remove(path: str) -> None:
        import shutil

        shutil.rmtree(path, ignore_errors=True)


_SETTLED_S = 60.0


class Host:
    """The machine that this process runs on.

    Attributes
    ----------
    weigh_s
        Time between two looks at what tasks take [s].
    """

    weigh_s = 1.0

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def environ(self) -> Mapping[str, str]:
        return os.environ

    # ------------------------------------------------------- time, threads, what to wait for

    def time(self) -> float:
        """What the machine's clock shows [s since the epoch]."""
        return time.time()

    def monotonic(self) -> float:
        """A time that never jumps [s]."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Until it is set, or `timeout` [s] are over; whether it is."""
        return event.wait(timeout)

    def start(self, call: Callable[[], None], name: str) -> Joinable:
        """Run it in a thread, which ends with the process."""
        from asa.core.clock import start_thread  # a supervisor, which has no threads, joins sooner without it

        return start_thread(call, name)

    def thread_id(self) -> int:
        """A number that no other thread of this process has now."""
        return threading.get_ident()

    def selector(self) -> selectors.BaseSelector:
        return selectors.DefaultSelector()

    def bell(self) -> Bell:
        return Bell()

    # ------------------------------------------------------- connections

    def listen(self, context: RunContext) -> ChannelListener:
        """Where a run's supervisors connect; raises as `executors.wire.listen` does."""
        return wire.listen(context)

    def connect(self, directory: str, newest: int = 0) -> Channel:
        """A channel to a run's driver; raises as `executors.wire.connect` does."""
        return wire.connect(directory, newest)

    def newest_driver(self, directory: str) -> int:
        """The generation of a run's newest driver; 0 where that cannot be seen."""
        return wire.newest_driver(directory)

    # ------------------------------------------------------- processes

    def signals(self, numbers: Iterable[int]) -> AbstractContextManager[socket.socket]:
        """A socket on which the numbers of these signals arrive, a byte each; for one main thread at a time."""
        from executors.processes import wakeup

        return wakeup(numbers, lambda _number, _frame: None)

    def socketpair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair()

    def open_output(self, hello: Hello, welcome: Welcome) -> OutputFile:
        """A file for what a worker of this node is to print."""
        from asa.core.task import OUTPUT_LIMIT
        from executors.output import OutputFile

        directory = welcome.options.get("output_directory", os.path.dirname(welcome.values))
        limit = welcome.options.get("output_limit", OUTPUT_LIMIT)
        return OutputFile.create(directory, hello.allocation, hello.node, limit)

    def scratch(self) -> ScratchDisk | None:
        """A place for what tasks write on the node's own disk; None where there is none."""
        from executors.node import scratch

        try:
            return ScratchDisk(scratch(self.environ))
        except OSError:  # the disk is full: it is said to tasks that ask
            return None

    def start_worker(
        self, link: socket.socket, output: OutputFile, board: SlotBoard, welcome: Welcome, variables: dict[str, str]
    ) -> int:
        """Fork a worker, with this end of a socket pair; its process number. See `executors.worker.run_worker`."""
        from executors import worker

        pid = os.fork()
        if pid == 0:
            worker.run_worker(link, output, board, welcome, variables)
        return pid

    def ended(self, pid: int) -> tuple[int, int] | None:
        """Of a child that has ended, the exit code, negative for a signal, and the most memory that it has had [bytes];
        None while it has not ended. Told once."""
        found, status, usage = os.wait4(pid, os.WNOHANG)
        return (os.waitstatus_to_exitcode(status), 1024 * usage.ru_maxrss) if found else None

    def taken(self, pid: int) -> tuple[int, float]:
        """What a child, and all that it has started, have in memory now [bytes], and their processor time [s]."""
        from executors.processes import taken

        return taken(pid)

    def waited_s(self, pid: int) -> float:
        """How long a child, and all that it has started, have waited for a processor [s]."""
        from executors.processes import waited_s

        return waited_s(pid)

    def ended_child(self) -> int | None:
        """The number of a child that has ended and was not asked about, or None."""
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return found.si_pid if found else None

    def reap(self, pid: int) -> None:
        """Nobody asks about this child that has ended."""
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

    def adopt(self) -> None:
        """Processes whose parents end become children of this one."""
        from executors.processes import adopt

        adopt()

    def kill_children(self) -> None:
        """End all children, those that were adopted included."""
        from executors.processes import kill_children

        kill_children()

    def kill_sessions(self, sessions: AbstractSet[int]) -> None:
        from executors.processes import kill_sessions

        kill_sessions(sessions)

    def kill_tree(self, pid: int) -> None:
        """End a session, and the sessions of all that descends from its leader."""
        from executors.processes import descendants, kill_sessions

        kill_sessions({pid, *(found.session for found in descendants(pid))})

    def session_guard(self) -> SessionGuard:
        from executors.processes import SessionGuard

        return SessionGuard()

    def worker_pool(self, name: str) -> Callable[..., Any]:
        """The class of this name, ``module:Class``."""
        import importlib

        module, _, attribute = name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return found


HOST = Host()
