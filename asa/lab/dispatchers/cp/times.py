"""Whole times: solvers count in ticks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.dispatchers.planning.instance import Instance

FINEST_S = 2.0**-10
"""The shortest tick [s]. A power of two: multiples of it, their sums, and quotients by it are exact."""

_MOST_TICKS = 2.0**40
_SCALE = 2**36
_MOST_COST = 2**61


@dataclass(frozen=True, eq=False)
class Times:
    """An instance's times as whole numbers of ticks.

    Parameters
    ----------
    tick
        How long one is [s].
    exact
        Whether all times are multiples of it. Else they are rounded up: a plan in ticks still holds, but nothing is
        proven of it.
    duration, release
        Of the waiting jobs, shape (n,), at least 1; when what runs ends, shape (k,), at least 1.
    weight, scale
        What one tick of each job's wait costs, shape (n,): `scale` over its duration, rounded down. So costs over
        `scale` are slowdowns, and a bound on the cost is one on the slowdown.
    """

    tick: float
    exact: bool
    duration: Ints
    release: Ints
    weight: Ints
    scale: int

    @property
    def horizon(self) -> int:
        """When all is over at the latest: what runs, then one job after the other; ``eoh`` of PCP'20, section 2.2."""
        return int(self.release.max(initial=0) + self.duration.sum())

    def cost(self, start: Ints) -> int:
        """What starts cost, in ticks."""
        return sum(int(weight) * int(at) for weight, at in zip(self.weight, start, strict=True))

    def in_ticks(self, start: Floats) -> Ints:
        """Starts of a plan of the `rounded` instance [s], in ticks."""
        return np.round(start / self.tick).astype(np.int64)

    def rounded(self, instance: Instance) -> Instance:
        """The instance with these times; each of its plans is one of the instance as it was."""
        duration, release = (np.asarray(ticks * self.tick, np.float64) for ticks in (self.duration, self.release))
        return replace(instance, duration=duration, release_at=release)


def times_of(instance: Instance) -> Times:
    """The times of an instance, in the longest tick of which all, rounded up to `FINEST_S` or a little more, are
    multiples.

    Raises
    ------
    InvalidInput
        When a time is not finite; names the job.
    """
    for job in np.flatnonzero(~np.isfinite(instance.duration))[:1].tolist():
        raise InvalidInput(f"job {instance.names[job]!r} takes {instance.duration[job]:g} s: a finite time expected")
    if not np.isfinite(instance.release_at).all():
        raise InvalidInput(f"what runs ends after {instance.release_at.max():g} s at last: a finite time expected")
    seconds = np.concatenate([instance.duration, instance.release_at])
    finest = FINEST_S
    while seconds.sum() / finest > _MOST_TICKS:
        finest *= 2
    whole = np.maximum(np.ceil(seconds / finest), 1).astype(np.int64)
    common = int(np.gcd.reduce(whole)) if len(whole) else 1
    duration, release = np.split(whole // common, [len(instance)])
    horizon = int(release.max(initial=0) + duration.sum())
    scale = min(_SCALE, _MOST_COST * int(duration.min(initial=horizon)) // (max(horizon, 1) * (len(instance) + 1)))
    exact = bool((whole * finest == seconds).all())
    return Times(finest * common, exact, duration, release, scale // np.maximum(duration, 1), scale)
