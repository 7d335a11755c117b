"""A worker process as its supervisor sees it."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from asa.core.task import ending
from executors import node, worker
from executors.processes import kill_sessions
from executors.wire import LARGEST, Channel, Ended, Order, Outcome, Run, Welcome

_KEPT_MOST = 1 << 20
_PIECE = 1 << 16


class Member:
    """Forks a worker.

    Parameters
    ----------
    shape
        Cores of the tasks it is for, and its GPUs; None for a worker that takes any, in threads.
    slots
        How many tasks it runs at once.
    gpus
        Whether the node was given GPUs to share out.
    welcome
        Where tasks run.
    """

    def __init__(self, shape: tuple[int, tuple[str, ...]] | None, slots: int, gpus: bool, welcome: Welcome) -> None:
        self.shape, self.board = shape, worker.Board(slots)
        environment = {} if shape is None else worker.environment(shape[0], shape[1] if gpus else None)
        ours, theirs = socket.socketpair()
        self._stderr, self._relayed = _nameless_file(), 0
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            worker.main(theirs, self._stderr, self.board, welcome, environment)
        theirs.close()
        self.channel = Channel(ours)
        self.channel.largest = LARGEST
        self._selector: selectors.BaseSelector | None = None

    def watch(self, selector: selectors.BaseSelector, hear: Callable[[int], None]) -> None:
        """Have `hear` called by the selector's user when there is something to `serve`."""
        self._selector = selector
        selector.register(self.channel, selectors.EVENT_READ, hear)

    def give(self, run: Run) -> None:
        """Have a slot run these orders."""
        self.board.begin(run.slot, 0, time.time(), self._relayed)
        self.board.permit(run.slot, len(run.orders) - 1)
        assert self._selector, "a member is watched as soon as it is made"
        with suppress(OSError):  # it has just died; the signal of that comes next
            self.channel.send(run)
        self.channel.watch(self._selector)

    def serve(self, mask: int) -> list[Ended]:
        """What the worker has told, now that its channel can be read or written."""
        found: list[Ended] = []
        if self._selector is None:
            return found  # closed since the selector saw it
        try:
            if mask & selectors.EVENT_WRITE:
                self.channel.flush()
                self.channel.watch(self._selector)
            if mask & selectors.EVENT_READ:
                found = self.channel.receive()
        except OSError:
            kill_sessions({self.pid})  # dead already, or a task has closed what it does not own: no use any more
        if found:
            self.relay()
        return found

    def relay(self) -> None:
        """Pass what is new on its standard error on to ours, which is the job's output."""
        size = os.fstat(self._stderr).st_size
        while self._relayed < size:
            piece = os.pread(self._stderr, min(_PIECE, size - self._relayed), self._relayed)
            if not piece:
                break
            self._relayed += len(piece)
            with suppress(OSError):  # a full disk under the job's output must not end the job
                os.write(2, piece)

    def shorten(self) -> None:
        """Empty the file of its standard error if that has grown long; only while it runs nothing."""
        if self._relayed > _KEPT_MOST:
            self.relay()
            os.ftruncate(self._stderr, 0)
            self._relayed = 0

    def death(self, order: Order, code: int, started: float, stderr: int) -> Outcome:
        """What becomes of the order that a worker died in."""
        outside = code == -signal.SIGTERM
        error = f"the worker process {ending(code)}"
        if code == -signal.SIGKILL:
            error += ", perhaps because the node's memory ran out"
        return Outcome(
            order.ticket, started, time.time(), None, error,
            stderr=worker.tail(self._stderr, stderr), infrastructure=outside,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of what we hold of it."""
        if self._selector:
            self._selector.unregister(self.channel)
            self._selector = None
        self.channel.close()
        self.board.close()
        os.close(self._stderr)


def _nameless_file() -> int:
    """A file on the node's own disk that only we and our children can reach, and that nobody has to remove."""
    name = os.path.join(node.scratch(os.environ), f".asa-{os.urandom(16).hex()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600)
    os.unlink(name)
    return descriptor
