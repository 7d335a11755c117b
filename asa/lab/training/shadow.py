"""What EASY would have done in the meantime: a shadow of the machine, simulated from the same beginning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asa.core.decision import JobKey
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.queue import queue_of
from asa.lab.simulator.run import simulate


@dataclass(slots=True)
class Seen:
    """A job, as far as it could be seen: when it began to wait in the period [s], its size and estimate [s], and when
    it started and ended [s]; NaN where it has not."""

    since: float
    size: int
    estimate: float
    start: float = math.nan
    end: float = math.nan


class Shadow:
    """Watches a queue decision by decision, and says at the end of a period how long its jobs have waited.

    Starts and ends are noticed at the next decision, which is when something has come or ended while jobs wait: an end
    is told late while nobody waits, when it makes no difference to anybody.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Seen] = {}
        self._begin, self._now, self._total = math.nan, math.nan, 0

    @property
    def age(self) -> float:
        """Time since the period began [s]; 0 before anything was seen."""
        return 0.0 if math.isnan(self._begin) else self._now - self._begin

    def see(self, view: QueueView | TableView) -> None:
        """Look at the queue once more."""
        queue, before = queue_of(view), self._now
        self._now, self._total = queue.now, queue.total
        if math.isnan(self._begin):
            self._begin = queue.now
        for place, key in enumerate(queue.keys):
            if key not in self._jobs:
                since = max(self._begin, queue.now - float(queue.wait[place]))
                self._jobs[key] = Seen(since, int(queue.size[place]), float(queue.estimate[place]))
        running = view.active.tolist() if isinstance(view, TableView) else [job.key for job in view.running]
        for key, end, held in zip(running, queue.ends.tolist(), queue.held.tolist(), strict=True):
            job = self._jobs.setdefault(key, Seen(queue.now, held, end - queue.now, queue.now))
            if math.isnan(job.start):
                job.start = min(queue.now, max(job.since, end - job.estimate))
        here = {*running, *queue.keys}
        for key, job in self._jobs.items():
            if key not in here and math.isnan(job.end):
                job.end = queue.now
                job.start = max(job.since, before) if math.isnan(job.start) else job.start

    def judge(self, now: float) -> tuple[float, float]:
        """Time that all jobs together have waited in the period, and would have waited under EASY [s].

        A new period begins.

        What ran when the period began runs in the shadow, too, and what waited waits. Jobs that have ended ran as long
        as they did; the others are taken to run for as long as was asked for.
        """
        seen = sorted(self._jobs.values(), key=lambda job: (job.since, not job.start <= self._begin))
        waited = sum(min(job.start, now) - job.since if job.start == job.start else now - job.since for job in seen)
        run = [max(1.0, job.end - job.start) if job.end == job.end else max(1.0, job.estimate) for job in seen]
        work = Workload.of(
            submit=[job.since for job in seen],
            run=run,
            cores=[job.size for job in seen],
            walltime=np.maximum(run, [job.estimate for job in seen]),
        )
        start = simulate(work, Cluster.of(max(self._total, 1)), "easy").start
        shadow = float((np.minimum(start, now) - work.submit).sum())
        self._renew(now)
        return float(waited), shadow

    def _renew(self, now: float) -> None:
        """Begin a period with what waits and runs now."""
        left = {key: job for key, job in self._jobs.items() if math.isnan(job.end)}
        for job in left.values():
            if job.start == job.start:
                job.estimate = max(1.0, job.start + job.estimate - now)
                job.start = now
            job.since = now
        self._jobs, self._begin = left, now
