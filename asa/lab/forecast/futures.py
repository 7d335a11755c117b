"""Futures of a queue: what any user sees of it as columns, and when a job would start if jobs ran as long as given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.decision import JobKey
from asa.core.units import DAY
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import BackfillRule
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import StopReason, Table

# -- Visible ----------------------------------------------------------------------------------------------------------

SHORTEST_S = 1.0
"""A running job whose wall time is over is expected to be gone after so long [s]."""


@dataclass(frozen=True, eq=False, slots=True)
class Visible:
    """Jobs of a queue at one moment; only their cores count.

    Parameters
    ----------
    running_cores, left_s
        Their cores, and the time that is left of their wall times [s], above 0; shape (r,).
    started
        When they started [s], NaN where the view does not tell; shape (r,).
    waiting_cores, walltime_s, submitted
        Their cores, wall times [s] and times of submission [s], shape (w,).
    """

    now: float
    cores: int
    running: tuple[JobKey, ...]
    running_cores: Ints
    left_s: Floats
    started: Floats
    waiting: tuple[JobKey, ...]
    waiting_cores: Ints
    walltime_s: Floats
    submitted: Floats


def visible(view: QueueView | TableView) -> Visible:
    """The columns of a view.

    A wall time that is not known is taken to be the longest one in the view, or a day. Memory, GPUs and nodes are not
    looked at: a user does not see which nodes a job could have.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob
    >>> seen = visible(QueueView(0.0, Resources(4), (QueuedJob("a", Resources(2), 60.0, 0.0),), ()))
    >>> seen.waiting, seen.waiting_cores.tolist(), seen.walltime_s.tolist()
    (('a',), [2], [60.0])
    """
    if isinstance(view, QueueView):
        running = tuple(job.key for job in view.running)
        running_cores = np.array([job.resources.cores for job in view.running], dtype=np.int64)
        ends, started = np.array([job.ends for job in view.running]), np.full(len(running), np.nan)
        waiting = tuple(job.key for job in view.queue)
        waiting_cores = np.array([job.resources.cores for job in view.queue], dtype=np.int64)
        walltime = np.array([job.walltime_s for job in view.queue])
        submitted = np.array([job.submitted for job in view.queue])
    else:
        running, waiting = tuple(view.active.tolist()), tuple(view.waiting.tolist())
        runs, waits = view.jobs[view.active], view.jobs[view.waiting]
        running_cores, waiting_cores = runs["cores"].copy(), waits["cores"].copy()
        ends, started = runs["started"] + runs["walltime"], runs["started"].copy()
        walltime, submitted = waits["walltime"].copy(), waits["submit"].copy()
    left = np.maximum(ends - view.now, SHORTEST_S)
    longest = max([0.0, *walltime[np.isfinite(walltime)], *left[np.isfinite(left)]]) or DAY
    return Visible(
        float(view.now),
        view.capacity.cores,
        running,
        running_cores,
        np.where(np.isfinite(left), left, longest),
        started,
        waiting,
        waiting_cores,
        np.where(np.isfinite(walltime), walltime, longest),
        submitted,
    )


# -- Futures ----------------------------------------------------------------------------------------------------------

_SETTINGS = MachineSettings(keep_nodes=False)


class Coming(NamedTuple):
    """Jobs that others will submit: when [s], cores, wall times [s] and run times [s], each of shape (n,)."""

    submit: Floats
    cores: Ints
    walltime_s: Floats
    run_s: Floats


NO_JOBS = Coming(np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False, slots=True)
class Ahead:
    """A queue on a machine of its own, with one more job behind all others; it can be run as often as one likes.

    All jobs are submitted at once, those that run before those that wait: so they start at once, for they do fit.

    Parameters
    ----------
    engine
        The machine at the moment of the look; it is only copied.

    Examples
    --------
    A job of two cores waits for one of four that goes on for 100 s, and for one that has waited longer and runs 50 s.

    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob, RunningJob
    >>> four = Resources(4)
    >>> seen = visible(QueueView(0.0, four, (QueuedJob("a", four, 60.0, 0.0),), (RunningJob("b", four, 300.0),)))
    >>> ahead = Ahead.of(seen, cores=2, walltime_s=60.0)
    >>> ahead.wait(BackfillRule(depth=1), np.array([100.0]), np.array([50.0]))
    150.0
    """

    engine: Engine
    now: float
    row: int

    @classmethod
    def of(cls, seen: Visible, cores: int, walltime_s: float) -> Ahead:
        """The queue, and a job of so many cores and such a wall time [s]; all jobs use all of theirs."""
        row = len(seen.running) + len(seen.waiting)
        walltime = np.concatenate([seen.left_s, seen.walltime_s, [walltime_s]])
        jobs = Workload.of(
            submit=np.full(row + 1, seen.now),
            run=walltime,
            cores=np.concatenate([seen.running_cores, seen.waiting_cores, [cores]]),
            walltime=walltime,
        )
        return cls(Engine(jobs, Cluster.of(nodes=1, cores=seen.cores), _SETTINGS), seen.now, row)

    def wait(self, rule: BackfillRule, left_s: Floats, run_s: Floats, coming: Coming = NO_JOBS) -> float:
        """How long the job waits [s]; infinite when the machine is too small for it.

        Parameters
        ----------
        left_s
            How long the running jobs go on [s], shape (r,); no longer than their wall times let them.
        run_s
            Run times of the waiting jobs [s], shape (w,), likewise.
        """
        engine, row = self.engine.copy(), self.row
        job_states = engine.state.job_states
        job_states["run"][:row], job_states["watched"][row] = np.concatenate([left_s, run_s]), 1
        _submit(engine, row, coming)
        while math.isnan(start := float(engine.state.jobs["started"][row])):
            if engine.dispatch(rule) is StopReason.OVER:
                return math.inf
        return start - self.now

    def planned(self) -> float:
        """How long the job waits if every job before it gets the first place that those before it leave [s]."""
        engine = self.engine.copy()
        engine.dispatch(BackfillRule(math.inf), promise=True, most=1)
        job = engine.state.jobs[self.row]
        start = float(job["planned"] if math.isnan(job["started"]) else job["started"])
        return math.inf if math.isnan(start) else start - self.now


def planned_s(view: QueueView | TableView, cores: int, walltime_s: float) -> float:
    """The wait [s] that a batch system expects for a job submitted now; infinite when the machine is too small for it.

    It takes every job to use all of its wall time, and gives each that waits the first place that those before it
    leave, as conservative backfilling does. Slurm's expected starts are made likewise, at a coarser grain.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.view import RunningJob
    >>> planned_s(QueueView(0.0, Resources(4), (), (RunningJob("a", Resources(4), 300.0),)), 2, 60.0)
    300.0
    """
    return Ahead.of(visible(view), cores, walltime_s).planned()


def _submit(engine: Engine, like: int, coming: Coming) -> None:
    """Let these jobs be submitted later: rows behind the last one, made like row `like`."""
    chosen = coming.cores <= engine.cluster.cores
    more = int(chosen.sum())
    if not more:
        return
    jobs, job_states = (_repeated(table, like, more) for table in (engine.state.jobs, engine.state.job_states))
    new = slice(-more, None)
    jobs["submit"][new] = np.maximum(coming.submit[chosen], engine.now)
    for column, values in (("cores", coming.cores), ("units", coming.cores), ("walltime", coming.walltime_s)):
        jobs[column][new] = values[chosen]
    jobs["estimate"][new] = jobs["predicted"][new] = job_states["stop"][new] = coming.walltime_s[chosen]
    job_states["run"][new], job_states["watched"][new] = coming.run_s[chosen], 0
    engine.extend(jobs=jobs, job_states=job_states)
    world = engine.state.world[0]
    world["jobs"] = world["arrivals"] = len(jobs)


def _repeated(table: Table, row: int, more: int) -> Table:
    """The table with so many more rows, all like one of it."""
    longer = np.empty(len(table) + more, table.dtype)
    longer[: len(table)], longer[len(table) :] = table, table[row]
    return longer
