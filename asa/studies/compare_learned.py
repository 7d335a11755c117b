"""What estimators know when runs begin, where they learn from jobs of all sizes together and see the queue."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from asa.core.context import Context
from asa.core.job import Resources
from asa.core.ports import Estimator
from asa.core.registry import is_pooled
from asa.core.schedule import Schedule
from asa.core.workload import Floats
from asa.studies.probes import Kind
from asa.studies.queue_seen import QueueLog
from asa.studies.scene import Scene
from asa.workflows.virtual import MemoryWaits


class Seen(NamedTuple):
    """A probe: when it was submitted and how long it waited [s], and what its user could see of the queue."""

    submitted: float
    wait_s: float
    context: Context


def learned(scene: Scene, estimator: str, seed: int) -> MemoryWaits:
    """What an estimator has learned from the probes that had started when runs begin.

    Estimators that are kept for each geometry learn waits alone (`Scene.learned`); pooled ones learn those of all kinds
    in the order of their starts, with the counters of the queue at their submission, which a run tells them too.
    """
    if not is_pooled(estimator):
        return scene.learned(estimator, seed)
    waits = MemoryWaits(estimator, seed)
    probes = seen(scene)
    if probes:
        first = probes[0].context
        teach(waits.of(Resources(cores=first.cores), first.walltime_s), probes, until=scene.engine.now)
    return waits


def teach(estimator: Estimator, probes: Sequence[Seen], until: float) -> None:
    """Have waits foretold at submission, and learned once they are over, as far as that is by a time [s].

    Parameters
    ----------
    probes
        In order of submission.
    """
    waiting: list[tuple[float, int, float]] = []

    def learn(now: float) -> None:
        while waiting and waiting[0][0] <= now:
            _, place, predicted = heapq.heappop(waiting)
            estimator.learn(probes[place].wait_s, predicted, probes[place].context)

    for place, probe in enumerate(probes):
        learn(probe.submitted)
        heapq.heappush(waiting, (probe.submitted + probe.wait_s, place, estimator.predict(probe.context)))
    learn(until)


def seen(scene: Scene) -> list[Seen]:
    """The probes of a scene in order of submission, the smallest first.

    Each stands for the first job of another user: none of its own waits.
    """
    times = np.array(sorted({probe.submitted for probes in scene.probes.values() for probe in probes}))
    if not len(times):
        return []
    queue = _seen_by(scene.engine.schedule(), scene.engine.now)
    capacity = scene.engine.cluster.cores
    moments = queue.at(times)
    columns = {
        "pending_s": np.zeros(len(times)),
        "backlog_s": queue.backlog(moments) / capacity,
        "queued": queue.queued(moments),
        "free_cores": np.maximum(0, capacity - queue.busy(moments)),
        "oldest_s": queue.oldest(moments),
        "left_s": queue.left(moments) / capacity,
    }
    contexts = {
        at: Context(at, **{name: column[place].item() for name, column in columns.items()})
        for place, at in enumerate(times.tolist())
    }
    found = [(probe, kind) for kind, probes in sorted(scene.probes.items()) for probe in probes]
    return [
        Seen(probe.submitted, probe.wait_s, _of(contexts[probe.submitted], kind))
        for probe, kind in sorted(found, key=lambda each: each[0].submitted)
    ]


def _of(context: Context, kind: Kind) -> Context:
    return replace(context, cores=kind.cores, walltime_s=kind.walltime_s)


def _seen_by(schedule: Schedule, now: float) -> QueueLog:
    """The queue until a moment [s]; what has not happened by then happens later, no matter when."""
    jobs = schedule.workload

    def known(times: Floats, later: float) -> Floats:
        return np.where(times <= now, times, now + later)

    start, end = known(schedule.start, 1.0), known(schedule.end, 2.0)
    came = np.flatnonzero(jobs.submit <= now)
    return QueueLog(jobs.submit, start, end, jobs.cores, jobs.walltime, jobs.user).take(came)
