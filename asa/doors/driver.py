"""The thread that drives calls: all that a run has but a workflow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from asa.core.clock import SystemClock
from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import RunStarted
from asa.core.job import Capabilities, QueueRegime
from asa.core.ports import Backend, Executor, RunContext, VirtualBackend
from asa.core.registry import BACKENDS, EXECUTORS
from asa.core.stage import StageSpec
from asa.doors.book import CallBook
from asa.doors.call import call
from asa.doors.desk import Desk, Ledger, PatientClock
from asa.doors.elastic import Elastic, Limits
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.pool.watch import JobWatch
from asa.workflows.assemble import VIRTUAL, Settings, Timing, default_executor, save_settings
from asa.workflows.graph import make_graph
from asa.workflows.inbox import Inbox
from asa.workflows.learned import Learned
from asa.workflows.runner import Runner
from asa.workflows.stage import Stage, make_needs
from asa.workflows.virtual_work import Calls, Times

if TYPE_CHECKING:
    from asa.workflows.plan import Plan

_ESTIMATOR = "fixed-share"
_MOST = 8


class Driver:
    """Drives the calls of one executor on a thread of its own, from now on until `close`.

    Parameters
    ----------
    directory
        A run's directory, new.
    settings
        Where jobs go, and how calls run there.
    limits
        How far allocations follow calls; without a ``maximum``, one allocation where there is no queue, else eight.
    needs
        Size of an allocation and of a call, as `asa.stage` takes it; ``cores`` is a whole node unless given.

    Raises
    ------
    InvalidInput
        When an option cannot be used.
    """

    def __init__(
        self, directory: RunDirectory, settings: Settings, limits: dict[str, Any], needs: dict[str, Any]
    ) -> None:
        self.over = threading.Event()
        self._accepts, self._lock = True, threading.Lock()
        self._error: BaseException | None = None
        self.book = CallBook(settings.name, directory)
        with contextlib.ExitStack() as held:
            held.enter_context(directory.lock())
            self._runner, self.spec = self._assemble(held, directory, settings, limits, needs)
            self._held = held.pop_all()
        self._thread = threading.Thread(target=self._drive, name=f"asa-{directory.name}", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        """One more call.

        Raises
        ------
        RuntimeError
            After `close`, or when the driver has ended by itself.
        """
        with self._lock:
            if not self._accepts:
                why = f": {self._error}" if self._error else ""
                raise RuntimeError(f"cannot schedule new futures after shutdown{why}")
            future = self.book.add(function, args, kwargs, self._ring)
        self._ring()
        return future

    def close(self, *, cancel: bool = False) -> None:
        """No more calls will come; `cancel` those that were not given to an allocation. Returns at once."""
        with self._lock:
            self._accepts = False
        if cancel:
            self.book.cancel_all()
        self._desk.closing = True
        self._ring()

    def cancel(self, reason: str) -> None:
        """Give all allocations back, with whatever runs in them. Returns at once."""
        self._runner.cancel(reason)

    def _ring(self) -> None:
        self._runner.inbox.post(())

    def _drive(self) -> None:
        try:
            self._runner.executor.start(self._runner.context, self._runner.inbox.post)
            self._runner.run()
            self._error = RunFailed(self._elastic.broken or "the executor was shut down", stage=self.spec.name)
        except BaseException as error:
            self._error = error
        finally:
            with self._lock:
                self._accepts = False
            try:
                self.book.fail_all(cast("BaseException", self._error))
                self._held.close()
            finally:
                self.over.set()

    def _assemble(
        self,
        held: contextlib.ExitStack,
        directory: RunDirectory,
        settings: Settings,
        limits: dict[str, Any],
        needs: dict[str, Any],
    ) -> tuple[Runner, StageSpec]:
        backend: Backend = BACKENDS.create(settings.backend, directory=directory.backend, clock=SystemClock())
        virtual = isinstance(backend, VirtualBackend)
        if not virtual:
            held.callback(backend.close)
        site = backend.capabilities()
        spec, run_time = _size(settings.name, site, needs)
        teaches = site.regime is not QueueRegime.IMMEDIATE
        if limits.get("maximum") is None:
            limits = limits | {"maximum": max(limits.get("minimum", 0), _MOST if teaches else 1)}
        self.limits, self.local = Limits(**limits), not teaches
        self._elastic = Elastic(spec, self.limits, directory.name, teaches=teaches)
        self._desk = desk = Desk(self._elastic, self.book)
        work = Calls(Times({} if run_time is None else {spec.name: run_time}), directory.values, settings.workdir)
        chosen, executor = _executor(settings, backend, site, work)
        timing = Timing.of(backend, held)
        log = EventLog(directory.events)
        held.callback(log.close)
        learned = Learned(directory.state / "learned.db", _ESTIMATOR, site)
        held.callback(learned.close)
        save_settings(directory, settings)
        log.append([_started(directory.name, settings, site, spec, executor=chosen, at=timing.clock.now())])
        inbox = Inbox()
        watch = JobWatch(backend, timing.clock, inbox.post, timing.watcher.wake)
        timing.listen(watch.hurry)
        held.callback(timing.watcher.close)
        timing.watcher.start(watch)
        held.callback(executor.close)
        clock = PatientClock(timing.clock, desk) if virtual else timing.clock
        context = _context(directory, settings, local=not teaches)
        plan = cast("Plan", desk)  # the runner asks no more of it than a desk has
        runner = Runner(
            plan, self.book, executor, watch, Ledger(log), learned, clock, context, str(directory.jobs), inbox
        )
        return runner, spec


def _context(directory: RunDirectory, settings: Settings, *, local: bool) -> RunContext:
    return RunContext(
        run=directory.name,
        directory=directory.path,
        workdir=settings.workdir,
        sys_path=settings.sys_path,
        orphan_grace_s=settings.orphan_grace_s,
        local=local,
    )


def _size(name: str, site: Capabilities, needs: dict[str, Any]) -> tuple[StageSpec, Any]:
    """The size of an allocation and of a call there, and how long a call takes in virtual time, if that is told."""
    if needs.keys() & {"launcher", "retries"}:
        raise InvalidInput("calls have neither a launcher nor retries: use @asa.stage for those")
    if not needs.keys() & {"cores", "nodes"} and site.cores_per_node:
        task = needs.get("task_cores") or 1
        needs = needs | {"cores": max(site.cores_per_node // task, 1) * task}
    stage = Stage(call, make_needs(name, **needs), name)
    graph = make_graph(stage(None, (), {}))
    graph.check(site)
    (spec,) = graph.specs(site)
    return replace(spec, width=None), stage.needs.run_time


def _executor(settings: Settings, backend: Backend, site: Capabilities, work: Calls) -> tuple[Any, Executor]:
    """What the log calls the executor, and the executor."""
    if isinstance(backend, VirtualBackend):
        if settings.executor is not None:
            raise InvalidInput("a simulated backend brings an executor of its own: leave executor= out")
        return VIRTUAL, backend.executor(work)
    chosen = default_executor(site) if settings.executor is None else settings.executor
    return chosen, EXECUTORS.create(chosen)


def _started(
    run: str, settings: Settings, site: Capabilities, spec: StageSpec, *, executor: Any, at: float
) -> RunStarted:
    return RunStarted(
        at=at,
        run=run,
        workflow=settings.name,
        stages=(spec,),
        backend=str(settings.backend),
        strategy="elastic",
        executor=str(executor),
        pool=settings.pool,
        site=site.site,
        partition=site.partition,
        regime=site.regime,
        arrays=site.arrays,
        parks=site.parks,
    )
