"""Putting a run's parts together: from names and options to a runner that is ready to go."""

from __future__ import annotations

import contextlib
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import cloudpickle

from asa.backends.simulated_ports import VirtualBackend
from asa.core.clock import SystemClock
from asa.core.errors import InvalidInput, Unpicklable
from asa.core.event import RunStarted, RunState
from asa.core.job import Capabilities, QueueRegime
from asa.core.ports import Backend, Clock, Executor, RunContext, Sharing, Strategy
from asa.core.registry import BACKENDS, EXECUTORS, STRATEGIES, is_pooled
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.pool.watch import JobWatch, WatchCalls, WatchThread
from asa.security.files import write_private
from asa.workflows.graph import Graph
from asa.workflows.learned import Learned
from asa.workflows.payload import Payloads
from asa.workflows.plan import Plan
from asa.workflows.runner import Inbox, Runner

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
    try:
        data = cloudpickle.dumps(settings)
    except Exception as error:  # pickling runs foreign code, which may raise anything
        raise Unpicklable(
            f"the workflow cannot be stored, so it could not be resumed: {type(error).__name__}: {error}. "
            "Some stage has an argument that cannot travel (an open file, lock, socket ...): pass a path instead"
        ) from error
    write_private(directory.settings, pickle.dumps((settings.sys_path, data)))


def load_settings(directory: RunDirectory) -> Settings:
    """What `save_settings` kept. The import path comes first, so that the user's own modules are found again."""
    path, data = pickle.loads(directory.settings.read_bytes())
    sys.path += [entry for entry in path if entry not in sys.path]
    settings: Settings = pickle.loads(data)
    return settings


@dataclass
class Assembly:
    """A runner and what has to be started and ended with it."""

    runner: Runner
    executor: Executor
    context: RunContext
    inbox: Inbox
    _closers: list[Callable[[], None]] = field(default_factory=list)
    virtual: bool = False

    def start_executor(self) -> None:
        """Begin to listen for nodes. On real clocks the first job may be on its way already."""
        self.executor.start(self.context, self.inbox.post)

    def on_close(self, call: Callable[[], None]) -> None:
        """Call this last when the run is over."""
        self._closers.append(call)

    def close(self) -> None:
        """Let go of everything."""
        self.executor.close()
        for call in self._closers:
            call()


def assemble(directory: RunDirectory, graph: Graph, settings: Settings) -> Assembly:
    """All parts of a run, new or resumed.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or an argument cannot travel.
    """
    with contextlib.ExitStack() as undo:
        backend: Backend = BACKENDS.create(settings.backend, directory=directory.backend, clock=SystemClock())
        undo.callback(backend.close)
        assembly = _assemble(directory, graph, settings, backend)
        undo.pop_all()
    return assembly


def _assemble(directory: RunDirectory, graph: Graph, settings: Settings, backend: Backend) -> Assembly:
    site = backend.capabilities()
    graph.check(site)
    strategy = make_strategy(settings, site)
    virtual = isinstance(backend, VirtualBackend)
    if isinstance(backend, VirtualBackend):
        chosen, executor = VIRTUAL, _virtual_executor(directory, graph, settings, backend)
    else:
        chosen = default_executor(site, settings.pool_name) if settings.executor is None else settings.executor
        executor = EXECUTORS.create(chosen)
    if settings.pool_name:
        _check_shared(settings, chosen, executor, strategy)
    clock: Clock
    watcher: WatchThread | WatchCalls
    if isinstance(backend, VirtualBackend):
        clock = backend.enter()
        watcher = WatchCalls(clock)
    else:
        clock = SystemClock()
        watcher = WatchThread(clock)
    learned = Learned(directory.state / "learned.db", strategy.estimator, site)
    log = EventLog(directory.events)
    pool = "per-stage" if strategy.own_pools else settings.pool
    plan = Plan(strategy, site, shared=pool != "per-stage", borrows=settings.pool_name is not None)
    payloads = Payloads(graph, directory.functions, directory.values, log.value)
    if fresh := log.last == 0:
        payloads.save()
        save_settings(directory, settings)
        started = RunStarted(
            at=clock.now(),
            run=directory.name,
            workflow=settings.name,
            stages=graph.specs(site, learned.run_time(settings.name)),
            backend=_spec(settings.backend),
            strategy=_spec(_chosen_strategy(settings, site)),
            executor=_spec(chosen),
            pool=pool,
            site=site.site,
            partition=site.partition,
            regime=site.regime,
            arrays=site.arrays,
            parks=site.parks,
        )
        log.append([started])
    for _, event in log.read():
        plan.on(event)
    if virtual and not fresh and plan.outcome is not RunState.SUCCEEDED:
        raise InvalidInput(
            f"run {directory.name} was in virtual time, and its queue ended with its driver: it cannot be resumed. Run "
            "the workflow again; the same seed gives the same queue"
        )
    inbox = Inbox()
    looks = site.regime is not QueueRegime.IMMEDIATE and is_pooled(strategy.estimator)
    watch = JobWatch(backend, clock, inbox.post, watcher.wake, looks=looks)
    context = RunContext(
        run=directory.name,
        directory=directory.path,
        workdir=settings.workdir,
        sys_path=settings.sys_path,
        orphan_grace_s=settings.orphan_grace_s,
        local=site.regime is QueueRegime.IMMEDIATE,
        pool=directory.state / "pools" / settings.pool_name if settings.pool_name else None,
    )
    runner = Runner(plan, payloads, executor, watch, log, learned, clock, context, str(directory.jobs), inbox)
    closers = [watcher.close, backend.close, log.close]
    if fresh:  # a resumed run's stages seem to have run while nobody drove them
        closers.insert(0, lambda: learned.learn_run_times(plan, settings.name))
    if isinstance(backend, VirtualBackend):
        backend.listen(watch.hurry)
    watcher.start(watch)
    return Assembly(runner, executor, context, inbox, closers, virtual)


def _virtual_executor(directory: RunDirectory, graph: Graph, settings: Settings, backend: VirtualBackend) -> Executor:
    """The executor that a backend in virtual time brings, with this workflow's tasks."""
    from asa.workflows.virtual_work import Calls, Times, check_known

    if settings.executor is not None:
        raise InvalidInput(
            f"executor {_spec(settings.executor)!r} runs tasks in real time, in which no simulated job ever starts: a "
            "simulated backend brings an executor of its own, so leave executor= out"
        )
    times = Times.of(graph, backend.times, directory.state)
    if not backend.compute:
        check_known(graph, times)
    return backend.executor(Calls(times, directory.values, settings.workdir, compute=backend.compute))


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
    plan = Plan(make_strategy(settings, site), site)
    for _, event in log.read():
        plan.on(event)
    return plan


def make_strategy(settings: Settings, site: Capabilities) -> Strategy:
    """The strategy asked for, or the site's default: ASA where there is a queue, one allocation where there is none."""
    strategy: Strategy = STRATEGIES.create(_chosen_strategy(settings, site))
    return strategy


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
