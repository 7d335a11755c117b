"""What every run stands on, of a workflow or of calls: a batch system and its time, an executor, a log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from asa.allocations.callers import WatchCalls, WatchThread
from asa.allocations.watch import JobWatch
from asa.core.clock import SystemClock
from asa.core.errors import InvalidInput
from asa.core.event import VERSION, RunStarted
from asa.core.job import Capabilities, QueueRegime
from asa.core.ports import Backend, Clock, Executor, RunContext, Sharing, VirtualBackend
from asa.core.registry import BACKENDS, EXECUTORS, is_pooled
from asa.core.stage import StageSpec
from asa.log.events import EventLog
from asa.log.messages import log_to_file
from asa.log.rundir import RunDirectory
from asa.workflows.graph import Graph
from asa.workflows.inbox import Inbox
from asa.workflows.learned import Learned
from asa.workflows.runner import Decider, Log, Runner, TaskMaker, WaitBook
from asa.workflows.settings import Settings, save_settings

VIRTUAL = "virtual"
"""What the log calls the executor of runs in virtual time."""


@dataclass(frozen=True)
class Timing:
    """What differs between real and virtual time.

    Parameters
    ----------
    clock
        Time.
    watcher
        Calls the job watch.
    listen
        Takes what is to be called when something has happened to a job; real batch systems have to be asked.
    """

    clock: Clock
    watcher: WatchThread | WatchCalls
    listen: Callable[[Callable[[], None]], None] = lambda _call: None

    @classmethod
    def of(cls, backend: Backend, held: contextlib.ExitStack) -> Timing:
        """The backend's own time, which is this run's until `held` is closed, and the backend with it; or real time."""
        if isinstance(backend, VirtualBackend):
            virtual = backend.enter()
            held.callback(backend.close)
            return cls(virtual, WatchCalls(virtual), backend.listen)
        clock = SystemClock()
        return cls(clock, WatchThread(clock))


@dataclass(frozen=True)
class Ground:
    """All that a runner works with, but for what decides and what makes tasks; see `open_ground`.

    Parameters
    ----------
    directory, settings
        The run's.
    site, backend
        Where jobs go.
    estimator
        Spec of what learns the waits there.
    chosen, executor
        What the log calls the executor, and the executor.
    timing
        Real or virtual time.
    learned
        What earlier runs have learned about the site.
    log
        The run's, empty when it is new.
    """

    directory: RunDirectory
    settings: Settings
    site: Capabilities
    backend: Backend
    estimator: str
    chosen: Any
    executor: Executor
    timing: Timing
    learned: Learned
    log: EventLog

    @property
    def virtual(self) -> bool:
        """Whether the run is in virtual time."""
        return isinstance(self.backend, VirtualBackend)

    def begin(self, stages: tuple[StageSpec, ...], strategy: Any, *, shared: bool = True) -> RunStarted:
        """Keep the settings, and log the first event of a new run."""
        save_settings(self.directory, self.settings)
        start = started(
            self.settings,
            self.site,
            stages,
            run=self.directory.name,
            strategy=strategy,
            executor=self.chosen,
            shared=shared,
            at=self.timing.clock.now(),
        )
        self.log.append([start])
        return start

    def wire(
        self,
        held: contextlib.ExitStack,
        plan: Decider,
        payloads: TaskMaker,
        *,
        log: Log | None = None,
        clock: Clock | None = None,
    ) -> Runner:
        """The runner, as `wire` makes it; `log` and `clock` may stand in for the run's own."""
        runner = wire(
            held,
            self.backend,
            self.timing if clock is None else replace(self.timing, clock=clock),
            plan,
            looks=looks_at_queue(self.site, self.estimator),
            executor=self.executor,
            payloads=payloads,
            log=self.log if log is None else log,
            waits=self.learned,
            context=_context(self.directory, self.settings, self.site),
            outputs=str(self.directory.jobs),
        )
        self.learned.report(runner.inbox.post, runner.clock)
        return runner


def open_backend(held: contextlib.ExitStack, directory: RunDirectory, settings: Settings) -> Backend:
    """Where a run's jobs go. Until `held` is closed the run is this process's.

    Raises
    ------
    InvalidInput
        When it has an option that cannot be used, or there is none of the name.
    StateError
        When another driver is at the run.
    """
    held.enter_context(directory.lock())
    held.enter_context(log_to_file(directory.log))
    backend: Backend = BACKENDS.create(settings.backend, directory=directory.backend, clock=SystemClock())
    if not isinstance(backend, VirtualBackend):  # one in virtual time may be another run's until it is entered
        held.callback(backend.close)
    return backend


def open_ground(
    held: contextlib.ExitStack,
    directory: RunDirectory,
    settings: Settings,
    graph: Graph,
    *,
    backend: Backend,
    estimator: str,
) -> Ground:
    """What a run stands on until `held` is closed.

    Parameters
    ----------
    graph
        Of stages that are to fit the site.
    backend
        As `open_backend` has it.
    estimator
        Spec of what learns the waits.

    Raises
    ------
    InvalidInput
        When a stage does not fit the site, or there is no such executor, or none that can be used there.
    """
    site = backend.capabilities()
    graph.check(site)
    chosen, executor = _executor(directory, settings, graph, backend)
    timing = Timing.of(backend, held)
    learned = held.enter_context(contextlib.closing(Learned(directory.state / "learned.db", estimator, site)))
    log = held.enter_context(EventLog(directory.events))
    return Ground(directory, settings, site, backend, estimator, chosen, executor, timing, learned, log)


def looks_at_queue(site: Capabilities, estimator: str) -> bool:
    """Whether the queue is to be looked at, for an estimator of this spec."""
    return site.regime is not QueueRegime.IMMEDIATE and is_pooled(estimator)


def wire(
    held: contextlib.ExitStack,
    backend: Backend,
    timing: Timing,
    plan: Decider,
    *,
    looks: bool,
    executor: Executor,
    payloads: TaskMaker,
    log: Log,
    waits: WaitBook,
    context: RunContext,
    outputs: str,
) -> Runner:
    """The runner of these parts, and a watch over its jobs, which ends with `held`, as the executor does."""
    inbox = Inbox()
    watch = JobWatch(backend, timing.clock, inbox.post, timing.watcher.wake, looks=looks)
    timing.listen(watch.hurry)
    held.callback(timing.watcher.close)
    timing.watcher.start(watch)
    held.callback(executor.close)
    return Runner(plan, payloads, executor, watch, log, waits, timing.clock, context, outputs, inbox)


def started(
    settings: Settings,
    site: Capabilities,
    stages: tuple[StageSpec, ...],
    *,
    run: str,
    strategy: Any,
    executor: Any,
    shared: bool,
    at: float,
) -> RunStarted:
    """The first event of a run."""
    return RunStarted(
        at=at,
        run=run,
        workflow=settings.name,
        stages=stages,
        backend=_spec(settings.backend),
        strategy=_spec(strategy),
        executor=_spec(executor),
        pool=settings.pool if shared else "per-stage",
        site=site.site,
        partition=site.partition,
        regime=site.regime,
        arrays=site.arrays,
        parks=site.parks,
        version=VERSION,
    )


def default_executor(site: Capabilities, pool: str | None = None) -> str:
    """The site's default: `mesos` where there is a queue or a named pool, else `local`, which starts at once."""
    return "local" if site.regime is QueueRegime.IMMEDIATE and pool is None else "mesos"


def _executor(directory: RunDirectory, settings: Settings, graph: Graph, backend: Backend) -> tuple[Any, Executor]:
    """What the log calls the executor, and the executor: a backend in virtual time brings its own."""
    if isinstance(backend, VirtualBackend):
        return VIRTUAL, _virtual_executor(directory, settings, graph, backend)
    chosen = settings.executor
    if chosen is None:
        chosen = default_executor(backend.capabilities(), settings.pool_name)
    executor: Executor = EXECUTORS.create(chosen)
    if settings.pool_name and not isinstance(executor, Sharing):
        problem = f"runs share nodes through agents, and executor {_spec(chosen)!r} has none"
        raise settings.unshareable(problem, "leave executor= out, or say executor='mesos'")
    return chosen, executor


def _virtual_executor(directory: RunDirectory, settings: Settings, graph: Graph, backend: VirtualBackend) -> Executor:
    from asa.workflows.virtual_work import Calls, Times, check_known

    if settings.pool_name:
        raise settings.unshareable("a run in virtual time is alone", "say pool='shared'")
    if settings.executor is not None:
        raise InvalidInput(
            f"executor {_spec(settings.executor)!r} runs tasks in real time, in which no simulated job ever starts: a "
            "simulated backend brings an executor of its own, so leave executor= out"
        )
    times = Times.of(graph, backend.times, directory.state)
    if not backend.compute:
        check_known(graph, times)
    return backend.executor(Calls(times, directory.values, settings.workdir, compute=backend.compute))


def _context(directory: RunDirectory, settings: Settings, site: Capabilities) -> RunContext:
    return RunContext(
        run=directory.name,
        directory=directory.path,
        workdir=settings.workdir,
        sys_path=settings.sys_path,
        orphan_grace_s=settings.orphan_grace_s,
        local=site.regime is QueueRegime.IMMEDIATE,
        pool=directory.state / "pools" / settings.pool_name if settings.pool_name else None,
    )


def _spec(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
