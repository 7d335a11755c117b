"""The worker pool of the `dask` executor: a dask worker for each core of one node, for one driver's scheduler."""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import pickle
import selectors
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asa.core.task import OUTPUT_LIMIT, ending
from asa.log.gpus import usable
from asa.log.messages import notify
from asa.security.files import write_private
from executors import node
from executors.dask.messages import (
    SOCKET,
    OrdersReturned,
    RecallOrders,
    RetireWorker,
    SchedulerAddress,
    TaskBegun,
    WorkerGone,
    WorkerHello,
    WorkerPlace,
    WorkerReady,
)
from executors.host import HOST
from executors.output import OutputFile
from executors.processes import SessionGuard, kill_sessions
from executors.wire import (
    CERTIFICATES,
    LARGEST,
    Channel,
    Hello,
    Leaving,
    OrderOutcome,
    RunOrders,
    TaskOrder,
    TaskReport,
    UnixListener,
    Welcome,
)
from executors.worker import environment as worker_environment
from executors.worker_pool import WorkerProcess

log = logging.getLogger(__name__)

_PREFIX = "asa-dask-"


class ScratchDirectory:
    """Makes a directory of our own (0700) on the node's disk, and removes those left by pools that were killed.

    It is locked while it is in use; the kernel unlocks it when its pool's process ends, in whatever way.

    Parameters
    ----------
    parent
        Where to make it; by default as `executors.node.scratch` says.

    Raises
    ------
    OSError
        When it cannot be made, or its file system has no locks.
    """

    def __init__(self, parent: str | None = None) -> None:
        parent = parent or node.scratch(os.environ)
        for left in Path(parent).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # it is another user's, or in use, or gone
                held = _lock(left)
                try:
                    shutil.rmtree(left)
                finally:
                    os.close(held)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                self._held = _lock(self.path)
            except (BlockingIOError, FileNotFoundError):  # another pool is about to remove it, or has done so
                continue
            except OSError:
                self.path.rmdir()
                raise
            if self.path.is_dir():
                return
            os.close(self._held)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{path} is not ours")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_FAILED_STARTS_MOST = 3
_WORKER = "executors.dask.library"


@dataclass(eq=False)
class _DaskProcess:
    """A dask worker: its process, and the line on which it reports."""

    name: str
    process: WorkerProcess
    order: TaskOrder
    line: Channel | None = None
    ready: bool = False
    begun: dict[int, TaskBegun] = field(default_factory=dict)  # more than one if a task waits for tasks of its own
    ended: str = ""  # why it is a dask worker no longer, although the process lives


class DaskWorkerPool:
    """Keeps a dask worker alive for each core of a node.

    Each is a process of its own, forked from this one after dask was imported once; see `executors.dask.library`.

    Parameters
    ----------
    hello, welcome
        The node, and the driver's options.
    selector
        Where the pool registers what it waits for; the data of each registration is a function to call.
    report
        Takes what is to be sent to the driver.

    Raises
    ------
    RuntimeError
        When dask is not installed on this node.
    """

    def __init__(
        self,
        hello: Hello,
        welcome: Welcome,
        selector: selectors.BaseSelector,
        report: Callable[[TaskReport | WorkerGone | Leaving], None],
    ) -> None:
        self._hello, self._welcome, self._selector, self._report = hello, welcome, selector, report
        self._scheduler: SchedulerAddress | None = None
        self._workers: dict[int, _DaskProcess] = {}
        self._lines: dict[Channel, _DaskProcess | None] = {}
        self._count = self._failed_starts = 0
        self._outcomes: list[OrderOutcome] = []
        self._returned: list[int] = []
        self._gone: list[str] = []
        self._outputs: list[OutputFile] = []  # of workers that have ended: the next ones go on with them
        self._gpus = usable(hello.gpus, os.environ)
        self._threads = worker_environment(1, None)
        serve = self._import()
        self._guard = SessionGuard()
        self._scratch = ScratchDirectory()
        self._function = self._scratch.path / "serve.pkl"
        write_private(self._function, pickle.dumps(serve))
        self._listener = UnixListener(self._scratch.path, SOCKET)
        selector.register(self._listener, selectors.EVENT_READ, lambda mask: self._answer())

    def accept(self, orders: list[Any]) -> None:
        """Messages about the workers; orders themselves travel through dask."""
        for message in orders:
            if isinstance(message, SchedulerAddress):
                self._scheduler = message
            elif isinstance(message, RecallOrders | RetireWorker):
                for worker in [worker for worker in self._workers.values() if worker.name == message.worker]:
                    if isinstance(message, RetireWorker):
                        kill_sessions({worker.process.pid})
                    elif worker.line:
                        _say(worker.line, message)

    def advance(self) -> float | None:
        if self._outcomes or self._returned:
            self._report(TaskReport(self._outcomes, self._returned))
            self._outcomes, self._returned = [], []
        for name in self._gone:
            self._report(WorkerGone(name))
        self._gone.clear()
        while self._scheduler and len(self._workers) < self._hello.cores:
            self._start_worker(self._scheduler)
        return None

    def reap(self) -> None:
        for pid in list(self._workers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._worker_ended(self._workers[pid], os.waitstatus_to_exitcode(status))
        self._guard.reap()

    def close(self) -> None:
        kill_sessions(set(self._workers))
        for pid in list(self._workers):
            os.waitpid(pid, os.WNOHANG)  # it is dead, or stuck in the kernel
            self._forget(self._workers[pid])
        for output in self._outputs:
            output.close()
        for line in list(self._lines):
            self._close_line(line)
        self._guard.close()
        self._selector.unregister(self._listener)
        self._listener.close()
        self._scratch.close()

    # -------------------------------------------------------------- workers

    def _import(self) -> Callable[..., None]:
        """Load dask here and once: a hundred workers that each load it would keep a shared file system busy."""
        os.environ.update(self._threads)  # NumPy, which comes with it, looks at them once
        try:
            serve: Callable[..., None] = importlib.import_module(_WORKER).serve
        except ImportError as error:
            self._give_up(f"dask cannot be imported on {self._hello.node}: {error}. pip install asa-hpc[dask]")
            raise
        finally:
            for name in self._threads:
                del os.environ[name]
        gc.freeze()  # what is loaded stays: neither to be copied into every worker, nor looked through at the end
        return serve

    def _start_worker(self, scheduler: SchedulerAddress) -> None:
        self._count += 1
        name, one = f"{scheduler.prefix}:{self._count}", (1, (), False)
        place = WorkerPlace(
            scheduler,
            os.path.join(os.path.dirname(self._welcome.values), CERTIFICATES),
            self._welcome.values,
            str(self._scratch.path),
            tuple(self._threads),
            self._gpus,
            self._welcome.options.get("output_limit", OUTPUT_LIMIT),
        )
        call = pickle.dumps(((name, place), {}))
        order = TaskOrder(0, "dask worker", self._count, str(self._function), call, (), 1, 0, 0, 1)
        output = self._outputs.pop() if self._outputs else HOST.open_output(self._hello, self._welcome)
        process = WorkerProcess(one, 1, False, self._welcome, output)
        log.debug("forked dask worker %s as process %d", name, process.pid)
        self._guard.guard(process.pid)
        worker = self._workers[process.pid] = _DaskProcess(name, process, order)
        process.watch(self._selector, lambda mask: self._end(worker, mask))
        process.give(RunOrders([order]))

    def _end(self, worker: _DaskProcess, mask: int) -> None:
        """The process is a dask worker no longer, so it ends."""
        for message in worker.process.serve(mask):
            worker.ended = message.outcomes[0].error
            notify(f"dask worker {worker.name} has ended: {worker.ended}")
            kill_sessions({worker.process.pid})

    def _worker_ended(self, worker: _DaskProcess, code: int) -> None:
        """A worker has ended: report what ran in it, and that it is gone."""
        log.log(logging.WARNING if code else logging.DEBUG, "dask worker %s %s", worker.name, ending(code))
        self._end(worker, selectors.EVENT_READ)
        kill_sessions({worker.process.pid})
        if worker.line:
            self._listen(worker.line)  # what it sent before it ended
        for begun in worker.begun.values():
            order = worker.order._replace(ticket=begun.ticket)
            outcome = worker.process.death(order, code, begun.started, begun.printed)
            if worker.ended:
                outcome = outcome._replace(error=f"its dask worker has ended: {worker.ended}", infrastructure=True)
            self._outcomes.append(outcome)
        self._gone.append(worker.name)
        self._forget(worker)
        self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if self._failed_starts >= _FAILED_STARTS_MOST * self._hello.cores:
            self._give_up(f"dask workers do not start on {self._hello.node}: {worker.ended or f'exit code {code}'}")

    def _forget(self, worker: _DaskProcess) -> None:
        worker.process.close()
        self._outputs.append(worker.process.output)
        del self._workers[worker.process.pid]
        self._guard.forget(worker.process.pid)

    def _give_up(self, reason: str) -> None:
        """End the job on this node, and say why."""
        self._report(Leaving(reason))
        raise RuntimeError(reason)

    # ---------------------------------------------------------------- lines

    def _answer(self) -> None:
        if (line := self._listener.accept()) is not None:
            line.largest = LARGEST  # of our own user, from a directory that no other can enter
            self._lines[line] = None
            self._selector.register(line, selectors.EVENT_READ, lambda mask: self._listen(line))

    def _listen(self, line: Channel) -> None:
        """All that a worker has said so far."""
        try:
            while line in self._lines and (messages := line.receive()):
                for message in messages:
                    self._receive(line, message)
        except OSError:
            self._close_line(line)

    def _receive(self, line: Channel, message: Any) -> None:
        worker = self._lines[line]
        if isinstance(message, WorkerHello):
            for worker in self._workers.values():
                if worker.name == message.worker:
                    worker.line, self._lines[line] = line, worker
        elif worker is None:
            return
        elif isinstance(message, TaskBegun):
            worker.begun[message.ticket] = message
        elif isinstance(message, OrderOutcome):
            worker.begun.pop(message.ticket, None)
            self._outcomes.append(message)
        elif isinstance(message, OrdersReturned):
            self._returned += message.tickets
        elif isinstance(message, WorkerReady):
            worker.ready = True

    def _close_line(self, line: Channel) -> None:
        if line in self._lines:
            del self._lines[line]
            self._selector.unregister(line)
            line.close()


def _say(line: Channel, message: object) -> None:
    with suppress(OSError):  # it has just died; the signal of that comes next
        line.send(message)
