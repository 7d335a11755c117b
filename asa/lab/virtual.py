"""Whole runs in virtual time and in memory: for studies, which need hundreds of them.

The plan, the runner, the job watch and the simulated queue are those of ``asa.run(..., backend="sim:...")``; what is
left out is whatever touches the disk: functions are not called, values are None, and the log is a list.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.core.context import Context, Geometry, geometry_of
from asa.core.errors import InvalidInput
from asa.core.event import VIRTUAL, Event
from asa.core.job import JobRequest, Options, Resources, queue_name
from asa.core.ports import Estimator, RunContext, Strategy, VirtualBackend
from asa.core.queues import QueueTerms
from asa.core.registry import ESTIMATORS, is_pooled
from asa.workflows.assemble import Timing, chosen_strategy, first_event, make_plan, make_runner
from asa.workflows.graph import make_graph
from asa.workflows.learned import WaitBook
from asa.workflows.settings import POOLS, Settings
from asa.workflows.virtual_work import Outlines, Times, check_known


def run_virtual(
    workflow: Any,
    backend: VirtualBackend,
    strategy: str | Strategy = "asa",
    *,
    waits: WaitBook | None = None,
    pool: str = "shared",
    run_time: Callable[[str, float], float] = lambda _stage, walltime_s: walltime_s,
    name: str = "run",
    terms: QueueTerms | None = None,
) -> list[Event]:
    """Run a workflow on a simulated queue, from now on until its last job has ended.

    Parameters
    ----------
    workflow
        What calling stages returned, or the `Graph` of it. Every stage declares its run time (``run_time=``), unless
        the queue has those of an earlier run (``times=``); every number of tasks is known from the start.
    backend
        The queue. Its time goes on; to begin at the same moment again, give each run a ``copy()``.
    waits
        What has been learned about the queue; goes on learning. By default nothing: a fresh `MemoryWaits`.
    pool
        ``"shared"`` or ``"per-stage"``; strategies that need pools of their own have them anyway.
    run_time
        What strategies expect of a stage: run time [s] from its name and wall time [s].
    name
        Of the run; its jobs are called ``name.0``, ``name.1`` ...
    terms
        Prices and risks of the queues that jobs may go to.

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
    >>> from asa.lab.backend.simulated import Simulated
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
    graph = make_graph(workflow)
    settings = Settings(graph.result, name, backend, strategy, pool=pool)
    plan, log = make_plan(settings, backend.capabilities()), MemoryLog()
    graph.check(plan.site)
    times = Times.of(graph, backend.times)
    check_known(graph, times)
    outlines = Outlines(graph, times)
    with contextlib.ExitStack() as held:
        timing = Timing.of(backend, held)
        stages = graph.specs(plan.site, run_time)
        start = first_event(
            settings,
            plan.site,
            stages,
            run=name,
            strategy=chosen_strategy(settings, plan.site),
            executor=VIRTUAL,
            shared=plan.shared,
            at=timing.clock.now(),
        )
        log.append([start])
        plan.on(start)
        runner = make_runner(
            held,
            backend,
            timing,
            plan,
            estimator=plan.strategy.estimator,
            executor=backend.executor(outlines),
            payloads=outlines,
            log=log,
            waits=MemoryWaits(plan.strategy.estimator) if waits is None else waits,
            context=RunContext(name, Path(), ".", ()),
            outputs=".",
            terms=terms,
        )
        runner.start_executor()
        runner.run()
    return log.events


class MemoryLog:
    """A run's events, forgotten with the object."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        self.events += events


class MemoryWaits:
    """What estimators learned about one queue, in memory: the runner's `WaitBook`.

    Examples
    --------
    >>> waits = MemoryWaits("last")
    >>> waits.learn(JobRequest("job", Resources(cores=28), 3600.0, argv=()), 120.0)
    >>> waits.predict(Resources(cores=28), 1800.0), waits.predict(Resources(cores=56), 1800.0)
    ([120.0], [0.0])
    """

    def __init__(self, estimator: str = "fixed-share", seed: int = 0) -> None:
        self._spec, self._seed = estimator, seed
        self._estimators: dict[Geometry | str, Estimator] = {}
        self._jobs: dict[Geometry, int] = {}
        self.pooled = is_pooled(estimator)

    def predict(
        self,
        resources: Resources,
        walltime_s: float,
        context: Context | None = None,
        quantiles: Sequence[float | None] = (None,),
    ) -> list[float]:
        estimator = self.of(resources, walltime_s)
        return [float(estimator.predict(context, quantile)) for quantile in quantiles]

    def learn(
        self, job: JobRequest, wait_s: float, predicted_s: float | None = None, context: Context | None = None
    ) -> None:
        there = replace(job.resources, options=job.options)
        self.of(there, job.walltime_s).learn(wait_s, predicted_s, context)
        geometry = _geometry(there, job.walltime_s)
        self._jobs[geometry] = self._jobs.get(geometry, 0) + 1

    def known(self, resources: Resources, walltime_s: float) -> int:
        return self._jobs.get(_geometry(resources, walltime_s), 0)

    def survival(self, options: Options) -> tuple[int, float]:
        """Nothing of earlier runs."""
        return 0, 0.0

    def of(self, resources: Resources, walltime_s: float) -> Estimator:
        """The estimator for jobs of this size: one for each geometry, or one for all where it is pooled."""
        geometry = queue_name(resources.options) if self.pooled else _geometry(resources, walltime_s)
        if geometry not in self._estimators:
            self._estimators[geometry] = ESTIMATORS.create(self._spec, seed=self._seed)
        return self._estimators[geometry]

    def copy(self) -> MemoryWaits:
        """The same knowledge, free to learn something else."""
        return copy.deepcopy(self)


def _geometry(resources: Resources, walltime_s: float) -> Geometry:
    return geometry_of("simulated", queue_name(resources.options), resources.cores, walltime_s)
