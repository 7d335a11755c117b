"""Decision trees as data: a metric and the happiness choose a leaf, and a leaf is a distribution over actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from coscheduler.experts.simplex import check_votes
from coscheduler.nouns import JobStates

METRICS = tuple(each.name for each in fields(JobStates))


@dataclass(frozen=True, eq=False)
class Tree:
    """An expert for one metric, as in the paper's Figure 2.

    Parameters
    ----------
    metric
        A column of `coscheduler.nouns.JobStates`.
    cuts
        Thresholds of the metric, increasing, shape (k,); a value above `cuts[i]` goes further up.
    happy_cuts
        Thresholds of the happiness, increasing, shape (h,); a value at `happy_cuts[i]` goes up already.
    leaves
        A distribution for each part of the metric and of the happiness, shape (k + 1, h + 1, m).

    Raises
    ------
    InvalidInput
        When the shapes do not fit together, or a leaf is no distribution.

    References
    ----------
    ASA_X, section 3.1.1 and Figure 2: three parts of the metric, three of the happiness (below 1, near 1, above 1.1),
    nine leaves.

    Examples
    --------
    >>> shy, bold = [1.0] + 9 * [0.0], 9 * [0.0] + [1.0]
    >>> tree = Tree.of({"metric": "cpu", "cuts": [0.75], "happy_cuts": [1.1], "leaves": [[shy, bold], [shy, shy]]})
    >>> column = np.array
    >>> states = JobStates(column([0.5, 0.9]), column([0.1, 0.1]), column([True, True]), column([0.2, 0.2]),
    ...                    column([1.2, 1.2]))
    >>> tree.vote(states).argmax(axis=1).tolist()
    [9, 0]
    """

    metric: str
    cuts: Floats
    happy_cuts: Floats
    leaves: Floats

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InvalidInput(f"{self.metric!r} is no metric: one of {', '.join(METRICS)} expected")
        for name in ("cuts", "happy_cuts"):
            if np.any(np.diff(getattr(self, name)) <= 0):
                raise InvalidInput(f"{name} are {getattr(self, name).tolist()}: increasing thresholds expected")
        parts = (len(self.cuts) + 1, len(self.happy_cuts) + 1)
        if self.leaves.ndim != 3 or self.leaves.shape[:2] != parts:
            raise InvalidInput(f"leaves of shape {self.leaves.shape}: {parts[0]} by {parts[1]} leaves expected")
        check_votes(self.leaves.reshape(parts[0] * parts[1], -1), parts[0] * parts[1], f"the tree of {self.metric}")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """A tree from plain data, such as JSON: the four fields as lists."""
        arrays = {name: np.array(table[name], dtype=np.float64) for name in ("cuts", "happy_cuts", "leaves")}
        return cls(metric=table["metric"], **arrays)

    def table(self) -> dict[str, Any]:
        """The tree as plain data."""
        return {
            "metric": self.metric,
            "cuts": self.cuts.tolist(),
            "happy_cuts": self.happy_cuts.tolist(),
            "leaves": self.leaves.tolist(),
        }

    def vote(self, states: JobStates) -> Floats:
        """The leaf of each job, shape (n, m)."""
        part = np.searchsorted(self.cuts, getattr(states, self.metric).astype(np.float64), side="left")
        mood = np.searchsorted(self.happy_cuts, states.happiness, side="right")
        return np.asarray(self.leaves[part, mood])
