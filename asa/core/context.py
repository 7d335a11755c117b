"""What queue waits are learned by: the geometry of a job, and what was known of the queue when it was submitted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from urllib.parse import quote, unquote

from asa.core.errors import InvalidInput
from asa.core.view import QueueView

WALLTIME_CLASSES = {
    "15m": 900.0,
    "1h": 3600.0,
    "4h": 14400.0,
    "12h": 43200.0,
    "1d": 86400.0,
    "3d": 259200.0,
    "longer": math.inf,
}
"""Class of a wall time -> the longest wall time [s] in it."""


@dataclass(frozen=True, slots=True, order=True)
class Geometry:
    """Jobs that a queue is expected to treat alike. As text: ``site/partition/cores/class``.

    Parameters
    ----------
    site
        Name of the queue.
    partition
        Part of the site, or "" where there are none.
    cores
        Cores of the job; >= 1.
    walltime_class
        One of `WALLTIME_CLASSES`.

    Raises
    ------
    InvalidInput
        When a value is out of range.

    Examples
    --------
    >>> str(geometry_of("hpc2n", "core", 112, 1800.0))
    'hpc2n/core/112/1h'
    >>> Geometry.parse("hpc2n/core/112/1h").cores
    112
    """

    site: str
    partition: str
    cores: int
    walltime_class: str

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise InvalidInput(f"a geometry has at least 1 core, not {self.cores}")
        if self.walltime_class not in WALLTIME_CLASSES:
            known = ", ".join(WALLTIME_CLASSES)
            raise InvalidInput(f"unknown wall-time class {self.walltime_class!r}: expected one of {known}")

    def __str__(self) -> str:
        return f"{quote(self.site, safe='')}/{quote(self.partition, safe='')}/{self.cores}/{self.walltime_class}"

    @classmethod
    def parse(cls, text: str) -> Geometry:
        """Inverse of ``str``.

        Raises
        ------
        InvalidInput
            When `text` is not the text of a geometry.
        """
        parts = text.split("/")
        if len(parts) != 4 or not (parts[2].isascii() and parts[2].isdecimal()):
            raise InvalidInput(f"{text!r} is not a geometry: expected one like 'hpc2n/core/112/1h'")
        return cls(unquote(parts[0]), unquote(parts[1]), int(parts[2]), parts[3])


def geometry_of(site: str, partition: str, cores: int, walltime_s: float) -> Geometry:
    """The geometry of a job with this many cores and this wall time [s].

    Raises
    ------
    InvalidInput
        When the wall time is not positive or there is no core.
    """
    if not walltime_s > 0:
        raise InvalidInput(f"wall time {walltime_s!r} s: expected more than 0 s")
    return Geometry(site, partition, cores, next(name for name, most in WALLTIME_CLASSES.items() if walltime_s <= most))


@dataclass(frozen=True, slots=True)
class Context:
    """A job that is to be submitted, and what its user can see of the queue; None for what is not known.

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
