"""What was known of a job, and of the queue it goes into, when its wait was predicted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from asa.core.view import QueueView


@dataclass(frozen=True, slots=True)
class Context:
    """A job that is to be submitted, and what its user can see of the queue; None for what nobody tells.

    The first four need no access to the cluster beyond one's own jobs; the others are counters that most sites show.

    Parameters
    ----------
    at
        Time of submission [s since the epoch].
    cores, walltime_s
        The job's size and wall time [s].
    pending_s
        How long the oldest of one's own jobs of this geometry that still wait has waited [s]; 0 when none waits.
    backlog_s
        Work of all jobs that wait, cores times wall time, over the cores of the machine [s].
    queued
        Jobs that wait.
    free_cores
        Cores of the machine that nothing runs on.
    planned_s
        The wait that the batch system itself expects [s].
    oldest_s
        How long the job that waits longest has waited [s]; 0 when none waits.
    left_s
        Work that running jobs have left by their wall times, cores times time, over the cores of the machine [s].
    alike_queued
        Jobs of this geometry that wait.
    own_queued
        Jobs of one's own that wait, of any geometry.
    own_backlog_s
        Their work, cores times wall time, over the cores of the machine [s].
    own_cores
        Cores that one's own jobs run on.
    queue
        All of the queue, for estimators that simulate it. Not kept in the log.
    """

    at: float
    cores: int = 1
    walltime_s: float = 3600.0
    pending_s: float | None = None
    backlog_s: float | None = None
    queued: int | None = None
    free_cores: int | None = None
    planned_s: float | None = None
    oldest_s: float | None = None
    left_s: float | None = None
    alike_queued: int | None = None
    own_queued: int | None = None
    own_backlog_s: float | None = None
    own_cores: int | None = None
    queue: QueueView | None = field(default=None, repr=False, compare=False, metadata={"logged": False})

    def looked(self, queue: QueueView) -> Context:
        """This context with the queue that the job goes into, and its counters.

        Whoever keeps it keeps the view: give it a plain one (`QueueView.plain`), for a table changes as time passes.
        """
        return replace(self, **asdict(queue.counters()), queue=queue)
