"""Whole runs in virtual time and in memory: for studies, which need hundreds of them.

The plan, the runner, the job watch and the simulated queue are those of ``asa.run(..., backend="sim:...")``; what is
left out is whatever touches the disk: functions are not called, values are None, and the log is a list. The signature
that studies build on::

    run_virtual(
        workflow: Any | Graph,           # what calling stages returned, or its graph
        backend: Simulated,              # one's own copy of a queue: queue.copy()
        strategy: str | Strategy,        # "big-job", "per-stage", "asa", "asa-naive:grace_s=60" ...
        *,
        waits: WaitBook | None = None,   # what was learned; see `MemoryWaits`; goes on learning
        pool: str = "shared",            # or "per-stage"
        run_time: Callable[[str, float], float] = the wall time,  # (stage, walltime_s) -> what strategies expect [s]
        name: str = "run",
    ) -> list[Event]                     # for asa.metrics.workflow.summarise, asa.report ...
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asa.backends.simulated_ports import Outcome, VirtualBackend
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.event import Event, RunStarted
from asa.core.geometry import Geometry, geometry_of
from asa.core.job import Resources
from asa.core.ports import Estimator, RunContext, Strategy
from asa.core.registry import ESTIMATORS, STRATEGIES, is_pooled
from asa.core.task import Task, Value
from asa.pool.watch import JobWatch, WatchCalls
from asa.workflows.assemble import POOLS, VIRTUAL
from asa.workflows.graph import Graph, make_graph
from asa.workflows.plan import Plan
from asa.workflows.runner import Inbox, Runner, WaitBook
from asa.workflows.stage import Node, replace_nodes
from asa.workflows.virtual_work import Times, check_known

_NOTHING = Value(b"")


def run_virtual(
    workflow: Any,
    backend: VirtualBackend,
    strategy: str | Strategy = "asa",
    *,
    waits: WaitBook | None = None,
    pool: str = "shared",
    run_time: Callable[[str, float], float] = lambda _stage, walltime_s: walltime_s,
    name: str = "run",
) -> list[Event]:
    """Run a workflow on a simulated queue, from now on until its last job has ended.

    Parameters
    ----------
    workflow
        What calling stages returned, or the `Graph` of it. Every stage declares its run time (``run_time=``), unless
        the queue has those of an earlier run (``times=``); every number of tasks is known from the start.
    backend
        The queue. Its time goes on; to begin at the same moment again, give each run a ``copy()``.
    strategy
        When jobs are asked for.
    waits
        What has been learned about the queue; goes on learning. By default nothing: a fresh `MemoryWaits`.
    pool
        ``"shared"`` or ``"per-stage"``; strategies that need pools of their own have them anyway.
    run_time
        What strategies expect of a stage: run time [s] from its name and wall time [s].
    name
        Of the run; its jobs are called ``name.0``, ``name.1`` ...

    Returns
    -------
    list
        All events of the run, from `RunStarted` to the last `JobEnded`. A run that failed says so in its `RunEnded`.

    Raises
    ------
    InvalidInput
        When a stage's run time or number of tasks is not known, or it does not fit the machine.

    Examples
    --------
    >>> from asa.backends.simulated import Simulated
    >>> from asa.metrics.workflow import summarise
    >>> from asa.workflows.stage import stage
    >>> @stage(cores=8, walltime="1h", run_time="10m")
    ... def project(image): ...
    >>> events = run_virtual(project.map(range(16)), Simulated(nodes=2, cores=8), "per-stage")
    >>> summarise(events).makespan_s
    1200.0
    """
    if pool not in POOLS:
        raise InvalidInput(f"pool must be one of {', '.join(POOLS)}, not {pool!r}")
    graph = workflow if isinstance(workflow, Graph) else make_graph(workflow)
    chosen: Strategy = STRATEGIES.create(strategy)
    site = backend.capabilities()
    graph.check(site)
    outlines = Outlines(graph, Times.of(graph, backend.times))
    log = MemoryLog()
    clock = backend.enter()
    watcher = WatchCalls(clock)
    try:
        pool = "per-stage" if chosen.own_pools else pool
        specs = graph.specs(site, run_time)
        spec = strategy if isinstance(strategy, str) else repr(strategy)
        started = RunStarted(
            clock.now(),
            name,
            name,
            specs,
            repr(backend),
            spec,
            VIRTUAL,
            pool,
            site.site,
            site.partition,
            site.regime,
            site.arrays,
            site.parks,
        )
        plan = Plan(chosen, site, shared=pool == "shared")
        plan.on(started)
        log.append([started])
        inbox = Inbox()
        watch = JobWatch(backend, clock, inbox.post, watcher.wake, looks=is_pooled(chosen.estimator))
        backend.listen(watch.hurry)
        watcher.start(watch)
        executor = backend.executor(outlines)
        context = RunContext(name, Path(), ".", ())
        executor.start(context, inbox.post)
        book = MemoryWaits(chosen.estimator) if waits is None else waits
        Runner(plan, outlines, executor, watch, log, book, clock, context, ".", inbox).run()
        executor.close()
    finally:
        watcher.close()
        backend.close()
    return log.events


class MemoryLog:
    """A run's events, forgotten with the object."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        """Keep these."""
        self.events += events


class MemoryWaits:
    """What estimators learned about one queue, in memory: the runner's `WaitBook`.

    Parameters
    ----------
    estimator
        Spec of what learns, one for each geometry.
    seed
        Of estimators that sample.

    Examples
    --------
    >>> waits = MemoryWaits("last")
    >>> waits.learn(Resources(cores=28), 3600.0, "job", 120.0, None)
    >>> waits.predict(Resources(cores=28), 1800.0), waits.predict(Resources(cores=56), 1800.0)
    (120.0, 0.0)
    """

    def __init__(self, estimator: str = "fixed-share", seed: int = 0) -> None:
        self._spec, self._seed = estimator, seed
        self._estimators: dict[Geometry | None, Estimator] = {}
        self.pooled = is_pooled(estimator)

    def predict(
        self,
        resources: Resources,
        walltime_s: float,
        context: Context | None = None,
        quantile: float | None = None,
    ) -> float:
        """Expected wait [s] of a job of this size."""
        return float(self.of(resources, walltime_s).predict(context, quantile))

    def learn(
        self,
        resources: Resources,
        walltime_s: float,
        token: str,
        wait_s: float,
        predicted_s: float | None,
        context: Context | None = None,
    ) -> None:
        """A job of this size waited `wait_s` [s]."""
        self.of(resources, walltime_s).learn(wait_s, predicted_s, context)

    def of(self, resources: Resources, walltime_s: float) -> Estimator:
        """The estimator for jobs of this size: one for each geometry, or one for all where it is pooled."""
        geometry = None if self.pooled else geometry_of("simulated", "", resources.cores, walltime_s)
        if geometry not in self._estimators:
            self._estimators[geometry] = ESTIMATORS.create(self._spec, seed=self._seed)
        return self._estimators[geometry]

    def copy(self) -> MemoryWaits:
        """The same knowledge, free to learn something else."""
        return copy.deepcopy(self)


class Outlines:
    """Tasks without content, and how long they take: what the runner launches, and the work that the executor does.

    Raises
    ------
    InvalidInput
        When a stage's run time, or its number of tasks, would only be known from a call.
    """

    def __init__(self, graph: Graph, times: Times) -> None:
        check_known(graph, times)
        self._graph, self._times = graph, times

    def width(self, name: str) -> int:
        """Number of tasks of a stage."""
        width = self._graph.width(name)
        assert width is not None, "was checked"
        return width

    def task(self, name: str, index: int, resources: Resources | None = None) -> Task:
        """A task that only says what it needs."""
        needs = self._graph.nodes[name].stage.needs.task if resources is None else resources
        return Task(name, index, "", _NOTHING, (), needs)

    def seconds(self, task: Task) -> float | None:
        """Its run time [s]."""
        return self._times.seconds(task.stage, task.index, lambda: self._arguments(task))

    def call(self, task: Task) -> Outcome:
        """Nothing is called."""
        return Outcome(0.0, _NOTHING)

    def _arguments(self, task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it would be called with, as far as it is known: None for other stages' results."""
        node = self._graph.nodes[task.stage]
        args = node.args
        if node.mapped:
            args = tuple(None if isinstance(column, Node) else column[task.index] for column in node.args)
        known: tuple[tuple[Any, ...], dict[str, Any]] = replace_nodes((args, node.kwargs), lambda _node: None)
        return known
