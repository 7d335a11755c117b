"""Putting a run's parts together: from names and options to a runner that is ready to go."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from asa.core.clock import SystemClock
from asa.core.errors import InvalidInput, RunNotFound
from asa.core.event import RunStarted, RunState
from asa.core.job import Capabilities, QueueRegime
from asa.core.ports import Backend, Clock, Executor, RunContext, Sharing, Strategy, VirtualBackend
from asa.core.registry import BACKENDS, EXECUTORS, STRATEGIES, is_pooled
from asa.core.stage import StageSpec
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.pool.callers import WatchCalls, WatchThread
from asa.pool.watch import JobWatch
from asa.security.files import write_private
from asa.workflows.graph import Graph
from asa.workflows.inbox import Inbox
from asa.workflows.learned import Learned
from asa.workflows.payload import Payloads, pack, unpack
from asa.workflows.plan import Plan
from asa.workflows.runner import Log, Runner, TaskMaker, WaitBook

POOLS = ("shared", "per-stage")
_NAMED = "shared:"

VIRTUAL = "virtual"
"""What the log calls the executor of runs in virtual time."""


@dataclass(frozen=True)
class Settings:
    """What a run was started with; kept in the run's directory (0600), so that it can be resumed.

    Parameters
    ----------
    result
        The workflow.
    name
        What it is called.
    backend, strategy, executor
        Specs or objects; None for the default of the site.
    pool
        ``"shared"``, ``"per-stage"``, or ``"shared:NAME"`` for a pool that several runs share.
    workdir
        Directory that tasks run in.
    orphan_grace_s
        How long allocations outlive their driver [s].
    sys_path
        The driver's import path.
    """

    result: Any
    name: str
    backend: Any = "local"
    strategy: Any = None
    executor: Any = None
    pool: str = "shared"
    workdir: str = "."
    orphan_grace_s: float = 60.0
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def __post_init__(self) -> None:
        name = self.pool_name
        if self.pool not in POOLS and (name is None or not re.fullmatch(r"\w[\w.-]{0,63}", name, re.ASCII)):
            raise InvalidInput(
                f"pool must be one of {', '.join(POOLS)}, or shared:NAME with a name of letters, digits, '.', '_' and "
                f"'-', not {self.pool!r}"
            )

    @property
    def pool_name(self) -> str | None:
        """Of the pool that several runs share; None without one."""
        return self.pool.removeprefix(_NAMED) if self.pool.startswith(_NAMED) else None


def save_settings(directory: RunDirectory, settings: Settings) -> None:
    """Keep `settings` in the run's directory."""
    write_private(directory.settings, pack(settings, settings.sys_path))


def load_settings(directory: RunDirectory) -> Settings:
    """What `save_settings` kept.

    Raises
    ------
    RunNotFound
        When the run's driver died before it had kept anything.
    """
    try:
        kept = directory.settings.read_bytes()
    except FileNotFoundError as error:
        raise RunNotFound(
            f"run {directory.name} never began, its driver died too early: run the workflow again"
        ) from error
    settings: Settings = unpack(kept)
    return settings


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
class Assembly:
    """A runner, and all that is let go of with it."""

    runner: Runner
    virtual: bool
    _held: contextlib.ExitStack

    def start_executor(self) -> None:
        """Begin to listen for nodes. On real clocks the first job may be on its way already."""
        self.runner.executor.start(self.runner.context, self.runner.inbox.post)

    def close(self) -> None:
        """Let go of everything, what was made last first."""
        self._held.close()


def assemble(directory: RunDirectory, graph: Graph, settings: Settings) -> Assembly:
    """All parts of a run, new or resumed, which is this process's from now on.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or an argument cannot travel.
    StateError
        When another driver is at it.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(directory.lock())
        backend: Backend = BACKENDS.create(settings.backend, directory=directory.backend, clock=SystemClock())
        if not isinstance(backend, VirtualBackend):  # one in virtual time may be another run's until it is entered
            held.callback(backend.close)
        plan = make_plan(settings, backend.capabilities())
        graph.check(plan.site)
        chosen, executor = _executor(directory, graph, settings, backend)
        if settings.pool_name:
            _check_shared(settings, chosen, executor, plan.strategy)
        timing = Timing.of(backend, held)
        learned = Learned(directory.state / "learned.db", plan.strategy.estimator, plan.site)
        held.callback(learned.close)
        log = EventLog(directory.events)
        held.callback(log.close)
        payloads = Payloads(graph, directory.functions, directory.values, log.value)
        if log.last:
            _take_over(plan, log, virtual=chosen == VIRTUAL)
        else:
            payloads.save()
            save_settings(directory, settings)
            stages = graph.specs(plan.site, learned.run_time(settings.name))
            start = started(plan, settings, stages, run=directory.name, executor=chosen, at=timing.clock.now())
            log.append([start])
            plan.on(start)
            # Not of a resumed run, whose stages seem to have run while nobody drove them.
            held.callback(learned.learn_run_times, plan, settings.name)
        runner = wire(
            held,
            backend,
            timing,
            plan,
            executor=executor,
            payloads=payloads,
            log=log,
            waits=learned,
            context=_context(directory, settings, plan.site),
            outputs=str(directory.jobs),
        )
        return Assembly(runner, chosen == VIRTUAL, held.pop_all())


def _take_over(plan: Plan, log: EventLog, *, virtual: bool) -> None:
    """Fold what earlier drivers logged."""
    for _, event in log.read():
        plan.on(event)
    if virtual and plan.outcome is not RunState.SUCCEEDED:
        raise InvalidInput(
            f"run {plan.run} was in virtual time, and its queue ended with its driver: it cannot be resumed. Run the "
            "workflow again; the same seed gives the same queue"
        )


def wire(
    held: contextlib.ExitStack,
    backend: Backend,
    timing: Timing,
    plan: Plan,
    *,
    executor: Executor,
    payloads: TaskMaker,
    log: Log,
    waits: WaitBook,
    context: RunContext,
    outputs: str,
) -> Runner:
    """The runner of these parts, and a watch over its jobs, which ends with `held`, as the executor does."""
    inbox = Inbox()
    looks = plan.site.regime is not QueueRegime.IMMEDIATE and is_pooled(plan.strategy.estimator)
    watch = JobWatch(backend, timing.clock, inbox.post, timing.watcher.wake, looks=looks)
    timing.listen(watch.hurry)
    held.callback(timing.watcher.close)
    timing.watcher.start(watch)
    held.callback(executor.close)
    return Runner(plan, payloads, executor, watch, log, waits, timing.clock, context, outputs, inbox)


def started(
    plan: Plan, settings: Settings, stages: tuple[StageSpec, ...], *, run: str, executor: Any, at: float
) -> RunStarted:
    """The first event of a run."""
    site = plan.site
    return RunStarted(
        at=at,
        run=run,
        workflow=settings.name,
        stages=stages,
        backend=_spec(settings.backend),
        strategy=_spec(_chosen_strategy(settings, site)),
        executor=_spec(executor),
        pool=settings.pool if plan.shared else "per-stage",
        site=site.site,
        partition=site.partition,
        regime=site.regime,
        arrays=site.arrays,
        parks=site.parks,
    )


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


def _executor(directory: RunDirectory, graph: Graph, settings: Settings, backend: Backend) -> tuple[Any, Executor]:
    """What the log calls the executor, and the executor: a backend in virtual time brings its own."""
    if not isinstance(backend, VirtualBackend):
        default = default_executor(backend.capabilities(), settings.pool_name)
        chosen = default if settings.executor is None else settings.executor
        return chosen, EXECUTORS.create(chosen)
    from asa.workflows.virtual_work import Calls, Times, check_known

    if settings.executor is not None:
        raise InvalidInput(
            f"executor {_spec(settings.executor)!r} runs tasks in real time, in which no simulated job ever starts: a "
            "simulated backend brings an executor of its own, so leave executor= out"
        )
    times = Times.of(graph, backend.times, directory.state)
    if not backend.compute:
        check_known(graph, times)
    return VIRTUAL, backend.executor(Calls(times, directory.values, settings.workdir, compute=backend.compute))


def _check_shared(settings: Settings, chosen: Any, executor: Executor, strategy: Strategy) -> None:
    """Whether a run of this kind can be in a pool with others."""
    if chosen == VIRTUAL:
        problem, remedy = "a run in virtual time is alone", "say pool='shared'"
    elif not isinstance(executor, Sharing):
        problem = f"runs share nodes through agents, and executor {_spec(chosen)!r} has none"
        remedy = "leave executor= out, or say executor='mesos'"
    elif strategy.own_pools:
        problem = "the strategy keeps the tasks of each stage in the stage's own allocation"
        remedy = "choose another one"
    else:
        return
    raise InvalidInput(f"pool={settings.pool!r} cannot be used: {problem}; {remedy}")


def restore_plan(settings: Settings, log: EventLog) -> Plan:
    """The plan of a run as its log tells it, for looking at; the site is not asked."""
    start = log.latest(RunStarted)
    site = Capabilities(site="")
    if isinstance(start, RunStarted):
        site = Capabilities(start.site, start.partition, start.regime, arrays=start.arrays, parks=start.parks)
    plan = make_plan(settings, site)
    _take_over(plan, log, virtual=False)
    return plan


def make_plan(settings: Settings, site: Capabilities) -> Plan:
    """A plan with the strategy asked for, or the site's default: ASA where there is a queue, else one allocation."""
    strategy: Strategy = STRATEGIES.create(_chosen_strategy(settings, site))
    shared = settings.pool != "per-stage" and not strategy.own_pools
    return Plan(strategy, site, shared=shared, borrows=settings.pool_name is not None)


def _chosen_strategy(settings: Settings, site: Capabilities) -> Any:
    default = "big-job" if site.regime is QueueRegime.IMMEDIATE else "asa"
    return default if settings.strategy is None else settings.strategy


def default_executor(site: Capabilities, pool: str | None = None) -> str:
    """The site's default: `mesos` where there is a queue, with dask's workers if dask is installed, else `local`.

    Runs share the pool of this name through agents, on this machine, too.
    """
    if site.regime is QueueRegime.IMMEDIATE and pool is None:
        return "local"  # starts at once
    return "mesos" if find_spec("distributed") is None else "mesos:tasks=dask"


def _spec(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
