"""What is known of a job, and of the queue it goes into, when it would be submitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from asa.allocations.watch import JobWatch
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.registry import Registry
from asa.core.run import Pool
from asa.core.view import QueueView

PLANNERS = Registry("planner of queues", group="asa.planners")
"""Functions of a queue, cores and a wall time [s] that return the wait [s] which a batch system would plan."""


class Contexts:
    """Contexts of jobs, by their size.

    Parameters
    ----------
    pool
        The run's own jobs.
    watch
        Looks at the queue, where anybody wants to know.
    """

    def __init__(self, pool: Pool, watch: JobWatch) -> None:
        self._pool, self._watch = pool, watch
        self._look: QueueView | None = None
        self._planned: dict[tuple[int, float], float] = {}  # what is expected by this look, by size [s]

    def of(self, resources: Resources, walltime_s: float, now: float) -> Context:
        """What is known of a job of this size that would be submitted now."""
        own = [held for held in self._pool.held.values() if held.handle]
        queued = [held for held in own if held.started is None]
        alike = [held for held in queued if not held.gated and held.request.resources == resources]
        context = Context(
            now,
            resources.cores,
            walltime_s,
            pending_s=max([0.0, *(now - held.handle.submitted for held in alike if held.handle)]),
            own_queued=len(queued),
            own_cores=sum(held.request.resources.cores for held in own if held.started is not None),
        )
        if (queue := self._watch.seen()) is None:
            return context
        expected = self._planned_s(queue, resources.cores, walltime_s)
        work = sum(held.request.resources.cores * held.request.walltime_s for held in queued)
        context = replace(
            context,
            planned_s=expected if math.isfinite(expected) else None,
            own_backlog_s=work / queue.capacity.cores,
        )
        return context.looked(queue)

    def _planned_s(self, queue: QueueView, cores: int, walltime_s: float) -> float:
        """The wait that the batch system expects [s]: all of the queue is planned, but once a look and size."""
        if queue is not self._look:
            self._look, self._planned = queue, {}
        if (cores, walltime_s) not in self._planned:
            self._planned[cores, walltime_s] = self._plan(queue, cores, walltime_s)
        return self._planned[cores, walltime_s]

    @cached_property
    def _plan(self) -> Callable[[QueueView, int, float], float]:
        """What plans a queue, from the laboratory; without that, nothing is expected."""
        try:
            plan: Callable[[QueueView, int, float], float] = PLANNERS.load("conservative")
        except InvalidInput:
            return lambda _queue, _cores, _walltime_s: math.inf
        return plan
