"""A worker process: forked by the supervisor, runs one order at a time in each of its slots, and reports.

It holds its own end of one socket pair and none of the supervisor's descriptors, above all not the connection to the
driver. It has a session of its own, so that whatever a task starts can be ended with it.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field

from asa.core.task import TAIL
from executors.call import Caller
from executors.processes import detach
from executors.wire import Ended, Order, Outcome, Run, Welcome, frame, read

_FLUSH_S = 0.002
_PLACE = struct.Struct("qdq")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class Board:
    """Memory that a worker and its supervisor share: what each slot is doing, and how much of its run it may begin.

    A slot takes one permit before each order after the first. The supervisor can take permits back; the kernel sees to
    it that each is had once, so what a slot has not begun can be moved to another worker without asking.
    """

    slots: int
    page: mmap.mmap = field(init=False)
    permits: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.page = mmap.mmap(-1, self.slots * _PLACE.size)
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.permits = [os.eventfd(0, flags) for _ in range(self.slots)]

    def begin(self, slot: int, position: int, started: float, stderr: int) -> None:
        """The slot begins this order of its run, with so much on standard error before it."""
        _PLACE.pack_into(self.page, slot * _PLACE.size, position, started, stderr)

    def doing(self, slot: int) -> tuple[int, float, int]:
        """What the slot last began: position in its run, when, and how much was on standard error."""
        position, started, stderr = _PLACE.unpack_from(self.page, slot * _PLACE.size)
        return position, started, stderr

    def permit(self, slot: int, count: int) -> None:
        """Let the slot begin `count` orders more."""
        if count:
            os.eventfd_write(self.permits[slot], count)

    def take(self, slot: int) -> bool:
        """Take one permit, if there is one."""
        try:
            os.eventfd_read(self.permits[slot])
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let go of memory and descriptors."""
        self.page.close()
        for descriptor in self.permits:
            os.close(descriptor)


def main(link: socket.socket, stderr: int, board: Board, welcome: Welcome, environment: dict[str, str]) -> None:
    """The life of a worker, from just after the fork; never returns.

    Parameters
    ----------
    link
        Its end of the socket pair.
    stderr
        File that takes its standard error.
    board
        Shared with the supervisor; its number of slots is the number of threads.
    welcome
        Where tasks run.
    environment
        What to set for this worker.
    """
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stderr, 2)
        detach({1, 2, link.fileno(), *board.permits})
        faulthandler.enable(all_threads=False)  # says on standard error where a segmentation fault happened
        os.environ.update(environment)
        sys.path[:] = [*welcome.sys_path, *(path for path in sys.path if path not in welcome.sys_path)]
        os.chdir(welcome.workdir)
        link.setblocking(True)
        _Worker(link, board, Caller(welcome.values)).serve()
        code = 0
    except BaseException as error:  # nothing may unwind into the supervisor's code
        print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def environment(cores: int, gpus: tuple[str, ...] | None) -> dict[str, str]:
    """Variables that keep a worker's libraries to its share of the node.

    Parameters
    ----------
    cores
        Threads that numeric libraries may use, unless the user's own environment says otherwise.
    gpus
        The worker's GPUs; None where the node was given none to share out.
    """
    variables = {name: str(cores) for name in _THREADS if name not in os.environ}
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return variables


class _Worker:
    def __init__(self, link: socket.socket, board: Board, caller: Caller) -> None:
        self._link, self._board, self._caller = link, board, caller
        self._sending = threading.Lock()

    def serve(self) -> None:
        """Run what comes until the supervisor closes its end."""
        threads = [queue.SimpleQueue[list[Order]]() for _ in range(self._board.slots)]
        if len(threads) > 1:
            for slot, orders in enumerate(threads):
                threading.Thread(target=self._serve_slot, args=(slot, orders), daemon=True).start()
        with self._link.makefile("rb") as stream:
            while (message := read(stream)) is not None:
                assert isinstance(message, Run)
                if len(threads) > 1:
                    threads[message.slot].put(message.orders)
                else:  # in the main thread, where a task may set signal handlers
                    self._run(0, message.orders)

    def _serve_slot(self, slot: int, orders: queue.SimpleQueue[list[Order]]) -> None:
        while True:
            self._run(slot, orders.get())

    def _run(self, slot: int, orders: list[Order]) -> None:
        outcomes: list[Outcome] = []
        sent = time.monotonic()
        for position, order in enumerate(orders):
            if position and not self._board.take(slot):
                break
            if outcomes and time.monotonic() - sent > _FLUSH_S:
                self._send(Ended(slot, outcomes, free=False))
                outcomes, sent = [], time.monotonic()
            size = os.fstat(2).st_size
            self._board.begin(slot, position, time.time(), size)
            outcome = self._caller.run(order)
            sys.stdout.flush()
            sys.stderr.flush()
            if outcome.value is None:
                outcome = outcome._replace(stderr=tail(2, size))
            outcomes.append(outcome)
        self._send(Ended(slot, outcomes, free=True))

    def _send(self, message: Ended) -> None:
        data = frame(message)
        with self._sending:
            self._link.sendall(data)


def tail(descriptor: int, start: int) -> str:
    """The last part of what a file holds from `start` on."""
    size = os.fstat(descriptor).st_size
    first = max(start, size - TAIL)
    return os.pread(descriptor, size - first, first).decode(errors="replace")
