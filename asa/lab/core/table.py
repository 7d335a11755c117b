"""A queue as tables: what dispatchers of large simulated machines see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats, Ints
from asa.core.job import Resources
from asa.core.view import Counters, QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN

JOB = np.dtype(
    [
        ("submit", "f8"),  # [s]
        ("eligible", "f8"),  # nothing but the dispatcher has held it back since [s]
        ("accrue", "f8"),  # it ages since [s]; NaN while it does not
        ("place", "f8"),  # place by order of submission; lower is earlier
        ("started", "f8"),  # [s]; NaN while it waits
        ("walltime", "f8"),  # requested [s]; NaN where nothing was
        ("estimate", "f8"),  # how long it may run, for plans [s]: the wall time, or what the machine's predictor says
        ("predicted", "f8"),  # how long it is expected to run [s]: the estimate, or what a dispatcher's predictor says
        ("planned", "f8"),  # start that it was promised [s]; NaN without a promise
        ("nice", "f8"),  # taken off its priority
        ("qos", "f8"),  # priority of its quality of service, a share in [0, 1]
        ("cores", "i8"),
        ("units", "i8"),
        ("kind", "i8"),  # row of the table of demands
        ("per_node", "i8"),  # most units that may share a node; 0 for no limit
        ("max_nodes", "i8"),  # most nodes that its partition gives to a job; 0 for no limit
        ("tier", "i8"),  # of its partition
        ("user", "i8"),
        ("group", "i8"),
        ("name", "i8"),
        ("partition", "i8"),
        ("allowed", "i8"),  # row of the table of nodes that jobs may have
        ("standing", "i8"),  # its row of the table of preemption
        ("number", "i8"),
        ("restarts", "i8"),
        ("malleable", "i8"),  # its width may change while it runs
    ],
    align=True,
)
"""A row of the table of jobs: all that may be known of a job before it has ended."""


# Columns of the table of preemption: how long a job runs before it may be preempted [s]; the lowest is preempted first;
# whether it is cancelled, and not requeued; and from there on whether it preempts jobs of each row.
EXEMPT, RANK, CANCELS, PREEMPTS = range(4)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableView:
    """A machine's queue and running jobs. Also a `QueueView`: `capacity`, `queue`, `running` are made when asked for.

    All arrays are read-only, and change once the decisions have been applied.

    Parameters
    ----------
    jobs
        Table of all jobs known by now, of dtype `JOB`; other rows are numbers of its rows.
    waiting
        Rows of the jobs that wait and may start, in order of priority.
    active
        Rows of the running jobs, in order of their expected end.
    ends
        Expected ends of the running jobs [s], never before `now`.
    free
        What the nodes have left, shape (nodes, resources); negative where a shareable resource is shared.
    demands
        What one unit of a job of each kind needs, shape (kinds, resources).
    slots
        On a machine of equal nodes whose jobs are all of one kind: how many units are free. Otherwise -1: whether a job
        fits depends on the nodes.
    all_slots
        How many units such a machine has in all, or -1.
    placement
        Code of the placement by which the machine chooses nodes; see `asa.lab.placement`.
    release_at, release
        Where it depends on the nodes (otherwise empty): when what runs is expected to end [s], in order, and what comes
        back then, shape (k,) and (k, 4): first node, last node, units of each, kind.
    holder
        Rows of the jobs that it comes back from, shape (k,).
    preemption
        Of each partition, or each QOS, what the columns `EXEMPT` to `PREEMPTS` say; shape (p, 3 + p), or no rows.
    allowed
        Nodes that jobs may have, shape (rows, nodes), 1 where one is such a node: those of each partition, and from
        there on those of them with the features that some jobs ask for.
    windows
        When nodes are kept from jobs (`asa.lab.core.cluster.NodeWindow`), in order of start, shape (w, 2 + nodes +
        users + 1): start and end [s]; 1 for each node that is kept; and 1 for each user whose jobs may start there none
        the less, unknown ones first.
    molds, widths
        Widths of moldable jobs: those of a job are the rows ``molds[row]`` to ``molds[row + 1] - 1`` of `widths`, that
        which it asks for first; a rigid job has none. Shape (n + 1,), or empty where all jobs are rigid, and (k, 2):
        units, and how many times longer it runs with them than as it asks.
    labels
        Column -> the texts behind its codes, for users and names.
    made
        Objects of waiting jobs that were made before; an engine hands it from view to view.
    """

    now: float
    cluster: Cluster
    jobs: npt.NDArray[np.void]
    waiting: Ints
    active: Ints
    ends: Floats
    free: Ints
    demands: Ints
    slots: int
    all_slots: int
    placement: int
    release_at: Floats
    release: Ints
    holder: Ints
    allowed: Ints
    windows: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    preemption: Floats = field(default_factory=lambda: np.zeros((0, 3)))
    molds: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    widths: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made: dict[int, QueuedJob] = field(default_factory=dict)

    def column(self, name: str) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
        """A column of the waiting jobs, in order of priority."""
        values: npt.NDArray[np.float64] = self.jobs[name][self.waiting]
        return values

    def barred(self) -> Bools:
        """From which windows' nodes each waiting job is barred now, shape (q, w)."""
        begin, end = self.windows[:, :2].T
        until = np.nan_to_num(np.asarray(self.column("walltime")), nan=np.inf) + self.now
        kept = (begin < np.maximum(until, np.nextafter(self.now, np.inf))[:, None]) & (end > self.now)
        who = 3 + len(self.free) + np.asarray(self.column("user"), dtype=np.int64)
        found: Bools = kept & (self.windows[:, who] == 0).T
        return found

    @property
    def capacity(self) -> Resources:
        """What the whole machine has."""
        return _resources(self.cluster.resources, self.cluster.capacity.sum(axis=0).tolist())

    @property
    def queue(self) -> tuple[QueuedJob, ...]:
        """The waiting jobs as objects, in order of priority."""
        found = []
        for row, estimate, cores in zip(
            self.waiting.tolist(), self.column("estimate").tolist(), self.column("cores").tolist(), strict=True
        ):
            job = self.made.get(row)
            if job is None or (job.walltime_s, job.resources.cores) != (estimate, cores):
                job = self.made[row] = self.job(row)
            found.append(job)
        return tuple(found)

    def counters(self) -> Counters:
        """As `QueueView.counters`, from the columns."""
        waiting, running = self.jobs[self.waiting], self.jobs[self.active]
        asked, ends = waiting["walltime"], running["started"] + running["walltime"]
        work = waiting["cores"] @ np.where(np.isfinite(asked), asked, 0.0)
        left = running["cores"] @ np.where(np.isfinite(ends), np.maximum(ends - self.now, 0.0), 0.0)
        cores = self.cluster.cores
        return Counters(
            float(work) / cores,
            len(waiting),
            max(0, cores - int(running["cores"].sum())),
            max(0.0, self.now - float(waiting["submit"].min(initial=self.now))),
            float(left) / cores,
        )

    def plain(self) -> QueueView:
        """What a user sees of the queue: no starts, no run times. It stays as it is while time passes."""
        return QueueView(self.now, self.capacity, self.queue, self.running)

    @property
    def running(self) -> tuple[RunningJob, ...]:
        """The running jobs as objects, in order of their expected end."""
        return tuple(
            RunningJob(row, self._needs(row), end, walltime_s)
            for row, end, walltime_s in zip(
                self.active.tolist(), self.ends.tolist(), self.jobs["walltime"][self.active].tolist(), strict=True
            )
        )

    def job(self, row: int, *, wall: bool = False) -> QueuedJob:
        """One job as an object; with its wall time (`wall`) or what it is expected to run."""
        job = self.jobs[row]
        return QueuedJob(
            row,
            self._needs(row),
            float(job["walltime" if wall else "estimate"]),
            float(job["submit"]),
            self._text("user", int(job["user"])),
            self._text("name", int(job["name"])),
        )

    def _text(self, column: str, code: int) -> str:
        if code == UNKNOWN:
            return ""
        return self.labels[column][code] if column in self.labels else str(code)

    def _needs(self, row: int) -> Resources:
        job = self.jobs[row]
        return _resources(self.cluster.resources, (self.demands[int(job["kind"])] * int(job["units"])).tolist())


def _resources(names: tuple[str, ...], amounts: list[int]) -> Resources:
    found = dict(zip(names, amounts, strict=True))
    return Resources(max(1, found["cores"]), memory=found.get("memory") or None, gpus=found.get("gpus", 0))
