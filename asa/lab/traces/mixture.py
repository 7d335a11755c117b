"""Mixtures of job classes: which jobs come, whatever the time at which they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload

STEPS = 20
"""How many numbers describe how much of a request is used."""
CHOICES = 16
"""How many numbers describe the sizes, requests and lengths of the sessions of a class."""
REQUESTS = 3
"""Into how many classes jobs of one size are divided by the time they request."""
FEWEST = 64
"""A class of fewer sessions is joined to its neighbour."""


@dataclass(frozen=True)
class JobClass:
    """Jobs of like size that request like times. Users submit them in sessions: the same job one or more times.

    Parameters
    ----------
    share
        Share of the sessions that are of this class, relative to the other classes; > 0.
    cores
        Sizes, all equally likely; >= 1.
    walltime_s
        Requested times [s], all equally likely; > 0.
    used
        Run time as a share of the request: means of equal parts of the jobs, from those that use least to those that
        use most; in [0, 1], not falling. What is drawn lies on the line through them, so that the mean is kept.
    session
        Jobs of a session, all equally likely; >= 1.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds or there is none.
    """

    share: float
    cores: tuple[int, ...]
    walltime_s: tuple[float, ...]
    used: tuple[float, ...] = (0.0, 1.0)
    session: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not 0 < self.share < np.inf:
            raise InvalidInput(f"a job class has the share {self.share!r}: a number above 0 expected")
        for name, least in (("cores", 1), ("walltime_s", 1e-9), ("used", 0), ("session", 1)):
            values = getattr(self, name)
            if not values or not least <= min(values) or not max(values) < np.inf:
                raise InvalidInput(f"a job class has {name} {values!r}: numbers from {least:g} on expected")
        if max(self.used) > 1 or any(np.diff(self.used) < 0):
            raise InvalidInput(f"a job class has used {self.used!r}: shares in [0, 1] that do not fall expected")

    @property
    def mean_work(self) -> float:
        """Mean work of a session [core-seconds]."""
        return float(np.mean(self.cores) * np.mean(self.walltime_s) * np.mean(self.used) * np.mean(self.session))


class Drawn(NamedTuple):
    """Jobs of a mixture, in sessions that stand together; all of shape (jobs,)."""

    session: Ints
    kind: Ints
    cores: Ints
    run: Floats
    walltime: Floats

    def first(self, count: int) -> Drawn:
        """The first `count` jobs."""
        cut = slice(count)
        return Drawn(self.session[cut], self.kind[cut], self.cores[cut], self.run[cut], self.walltime[cut])


def draw(classes: Sequence[JobClass], sessions: int, rng: np.random.Generator, alike: float = 0.0) -> Drawn:
    """Jobs of this many sessions. Run times are whole seconds, at least 1 s, at most the request.

    Parameters
    ----------
    classes
        The mixture; at least one.
    alike
        Share of the jobs of a session that use as much of their request as the session's first; in [0, 1].
    """
    shares = np.array([each.share for each in classes])
    kind = rng.choice(len(classes), size=sessions, p=shares / shares.sum())
    cores, length = np.empty(sessions, dtype=np.int64), np.empty(sessions, dtype=np.int64)
    walltime, place = np.empty(sessions), rng.random(sessions)
    for k, each in enumerate(classes):
        rows = np.flatnonzero(kind == k)
        cores[rows] = rng.choice(each.cores, len(rows))
        walltime[rows] = rng.choice(each.walltime_s, len(rows))
        length[rows] = rng.choice(each.session, len(rows))
    session = np.repeat(np.arange(sessions), length)
    again = rng.random(len(session)) < alike
    quantile = np.where(again, place[session], rng.random(len(session)))
    used = np.empty(len(session))
    for k, each in enumerate(classes):
        rows = np.flatnonzero(kind[session] == k)
        used[rows] = np.interp(quantile[rows], (np.arange(len(each.used)) + 0.5) / len(each.used), each.used)
    asked = walltime[session]
    run = np.minimum(np.maximum(np.floor(used * asked), 1.0), asked)
    return Drawn(session, kind[session], cores[session], run, asked)


def measure_classes(workload: Workload, session: Ints | None = None) -> tuple[JobClass, ...]:
    """The mixture that a workload looks like.

    Jobs are divided by size (powers of two) and then into three by the time they request, so that how much of a request
    is used may depend on both. Within a class, size, request, length of the session and use are taken to be
    independent.

    Parameters
    ----------
    workload
        At least one job. Jobs without a requested time count as if they had requested what they ran; jobs that ran past
        their request as if they had ended with it.
    session
        Number of each job's session, shape (n,), 0 and up; its first job speaks for its size and request. Default: each
        job is one.
    """
    if not len(workload):
        raise InvalidInput("there are no jobs to measure a mixture of: the log, or what was chosen of it, is empty")
    session = np.arange(len(workload)) if session is None else session
    asked = np.where(np.isnan(workload.walltime), np.maximum(workload.run, 1.0), workload.walltime)
    used = np.minimum(workload.run / asked, 1.0)
    _, first, length = np.unique(session, return_index=True, return_counts=True)
    cores, request = workload.cores[first], asked[first]
    label = _divide(np.floor(np.log2(cores)).astype(np.int64), request)
    of_job = label[np.unique(session, return_inverse=True)[1]]
    found = []
    for each in np.unique(label):
        rows = np.flatnonzero(label == each)
        found.append(
            JobClass(
                share=round(len(rows) / len(first), 6),
                cores=tuple(int(value) for value in _spread(cores[rows])),
                walltime_s=tuple(_spread(request[rows])),
                used=tuple(round(mean, 6) for mean in _means(used[of_job == each], STEPS)),
                session=tuple(round(mean) for mean in _means(length[rows], CHOICES)),
            )
        )
    return tuple(found)


def _divide(size: Ints, request: Floats) -> Ints:
    """Class of each session: size first, then request. Small ones are joined to the one before (or after) them."""
    label = np.zeros(len(size), dtype=np.int64)
    for each in np.unique(size):
        rows = np.flatnonzero(size == each)
        bounds = np.unique(np.quantile(request[rows], np.arange(1, REQUESTS) / REQUESTS, method="inverted_cdf"))
        label[rows] = each * (REQUESTS + 1) + np.searchsorted(bounds, request[rows], side="left")
    while True:
        names, counts = np.unique(label, return_counts=True)
        small = np.flatnonzero(counts < FEWEST)
        if not len(small) or len(names) == 1:
            return label
        k = int(small[-1])  # from the largest jobs down
        label[label == names[k]] = names[k - 1] if k else names[1]


def _spread(values: Floats | Ints) -> list[float]:
    """A few of the values, at even steps of their rank: round numbers that are popular stay so."""
    few = min(CHOICES, len(values))
    ranks = ((np.arange(few) + 0.5) / few * len(values)).astype(np.int64)
    return [float(value) for value in np.sort(values)[ranks]]


def _means(values: Floats | Ints, parts: int) -> list[float]:
    """Means of equal parts of the sorted values: the longest sessions are few, but hold many of the jobs."""
    return [float(part.mean()) for part in np.array_split(np.sort(values), min(parts, len(values)))]
