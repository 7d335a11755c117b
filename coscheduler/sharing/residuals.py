"""How much better or worse than foreseen two applications get on with one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.estimators.checks import read
from coscheduler.nouns import RunningJobs

_NEW = 0.3  # weight of one more observation
_BOUNDS = (0.25, 4.0)
_FORGIVEN = 0.02  # of the distance to 1, at each refusal


class Residuals:
    """A factor on the harm that is foreseen, for each pair of a host's and a guest's application; 1 at first.

    A pair that has once done badly would never be tried again, and nothing would be learned of it any more: each time
    that it is refused it is forgiven a little, until it is tried anew.

    Examples
    --------
    >>> residuals = Residuals()
    >>> residuals.learn(("blast", "montage"), foreseen=0.1, harm=0.3)
    >>> round(residuals["blast", "montage"], 2)
    1.6
    >>> for _ in range(100):
    ...     residuals.refused(("blast", "montage"))
    >>> round(residuals["blast", "montage"], 2)
    1.08
    """

    def __init__(self) -> None:
        self._factors: dict[tuple[str, str], float] = {}

    def __getitem__(self, pair: tuple[str, str]) -> float:
        return self._factors.get(pair, 1.0)

    def table(self, running: RunningJobs, hosts: Ints, guests: Sequence[str]) -> Floats:
        """Factors of guests of these applications with each of the hosts (rows of `running`), shape (k, p)."""
        kinds = list(dict.fromkeys(guests))
        found = np.array([[self[host, guest] for host in running.applications] for guest in kinds])
        rows = np.array([kinds.index(guest) for guest in guests])
        return np.asarray(found[rows[:, None], running.application[hosts]])

    def learn(self, pair: tuple[str, str], foreseen: float, harm: float) -> None:
        """The pair did this harm, where that was foreseen; both above 0."""
        low, high = _BOUNDS
        ratio = min(high, max(low, harm / foreseen))
        self._factors[pair] = (1 - _NEW) * self[pair] + _NEW * ratio

    def refused(self, pair: tuple[str, str]) -> None:
        """The pair was not tried, because of the harm."""
        if self[pair] > 1:
            self._factors[pair] += _FORGIVEN * (1 - self[pair])

    def state(self) -> dict[str, Any]:
        """Return the factors, JSON-able."""
        return {"pairs": [[*pair, factor] for pair, factor in self._factors.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what others have learned."""
        self._factors = {(host, guest): float(factor) for host, guest, factor in read(state, "pairs")}
