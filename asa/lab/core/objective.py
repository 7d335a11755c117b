"""What a dispatcher is to be good at: the two objectives of DRAS, which optimising and learning dispatchers share.

References
----------
Y. Fan, T. Childers, P. Rich, W. Allcock, M. Papka and Z. Lan, "Deep Reinforcement Agent for Scheduling in HPC", IPDPS
2021, equations (1) and (2) (section IV-A calls them (3) and (4), which in the paper are learning rules).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Waiting:
    """The waiting jobs at a decision, and how full the machine is. Sizes are cores, or units that all jobs share.

    Parameters
    ----------
    wait, estimate, size
        Time since submission and expected run time [s], and size, shape (q,) each; >= 0.
    used, total
        What is in use before the decision, and what there is.
    """

    wait: Floats
    estimate: Floats
    size: Ints
    used: int
    total: int


class Objective(Protocol):
    """Larger is better. Jobs are places in `Waiting`."""

    def reward(self, queue: Waiting, selected: npt.ArrayLike, started: npt.ArrayLike | None = None) -> float:
        """What a decision is worth that selects these jobs. Of these `started` start, all of them unless given."""

    def gains(self, queue: Waiting) -> Floats:
        """What starting each job adds, shape (q,): a form of the objective that is a sum over jobs; >= 0."""


@dataclass(frozen=True)
class Capability:
    """For sites that run large jobs: no job starves, large jobs come first, the machine is busy.

    The reward is DRAS's equation (1): ``wait`` times the mean wait of the selected jobs as a share of the longest in
    the queue, plus ``size`` times their mean size as a share of the machine, plus ``utilisation`` times the share of
    the machine in use when the decision has been carried out. When no job has waited yet, or nothing is selected, the
    means are 0.

    The gains replace means by sums, as the authors' program does when it rewards job by job: a mean is best when a
    single job starts, and no 0-1 knapsack has it as its objective. (That program divides waits by at least six hours;
    the paper does not, and neither does this.)

    Parameters
    ----------
    wait, size, utilisation
        Weights, >= 0, not all of them 0; the paper's are a third each.

    Examples
    --------
    >>> queue = Waiting(np.array([10.0, 40.0]), np.array([60.0, 60.0]), np.array([2, 4]), used=4, total=10)
    >>> round(Capability().reward(queue, [1]), 3)
    0.733
    """

    wait: float = 1 / 3
    size: float = 1 / 3
    utilisation: float = 1 / 3

    def __post_init__(self) -> None:
        weights = (self.wait, self.size, self.utilisation)
        if not (min(weights) >= 0 and sum(weights) > 0):
            raise InvalidInput(f"weights of the capability objective must be >= 0 and not all 0, not {weights}")

    def reward(self, queue: Waiting, selected: npt.ArrayLike, started: npt.ArrayLike | None = None) -> float:
        chosen = _places(selected)
        starting = chosen if started is None else _places(started)
        in_use = (queue.used + queue.size[starting].sum()) / queue.total
        if not len(chosen):
            return float(self.utilisation * in_use)
        wait, size = _shares_of_longest(queue)[chosen].mean(), queue.size[chosen].mean() / queue.total
        return float(self.wait * wait + self.size * size + self.utilisation * in_use)

    def gains(self, queue: Waiting) -> Floats:
        gains: Floats = (
            self.wait * _shares_of_longest(queue) + (self.size + self.utilisation) * queue.size / queue.total
        )
        return gains


@dataclass(frozen=True)
class Capacity:
    """For sites that run many jobs: short waits.

    The reward is DRAS's equation (2): the mean of -1 / t over the jobs that still wait after the decision; 0 when none
    does. The paper does not say what t is there. We take it to be the estimated run time, which is t in its section
    II-A, and in the reward of DeepRM, where the form comes from (as a sum, it makes the sum of slowdowns grow as slowly
    as can be). Were it the time waited, jobs that wait longer would be better. Less than 1 s counts as 1 s.

    A job that starts takes its term out of the sum: its gain is 1 / t.

    Examples
    --------
    >>> queue = Waiting(np.array([10.0, 40.0]), np.array([50.0, 20.0]), np.array([2, 4]), used=4, total=10)
    >>> Capacity().reward(queue, []), Capacity().reward(queue, [1])
    (-0.035, -0.02)
    """

    def reward(self, queue: Waiting, selected: npt.ArrayLike, started: npt.ArrayLike | None = None) -> float:
        gone = _places(selected if started is None else started)
        left = np.delete(self.gains(queue), gone)
        return -float(left.mean()) if len(left) else 0.0

    def gains(self, queue: Waiting) -> Floats:
        """What starting each job adds, shape (q,).

        Raises
        ------
        InvalidInput
            When it is not known how long a job will run.
        """
        unknown = ~np.isfinite(queue.estimate)
        if unknown.any():
            raise InvalidInput(
                f"the capacity objective needs to know how long jobs run, but the one at place {int(unknown.argmax())} "
                "of the queue has no wall time: choose a predictor that does without, or the capability objective"
            )
        gains: Floats = 1 / np.maximum(queue.estimate, 1.0)
        return gains


OBJECTIVES: Mapping[str, type[Capability] | type[Capacity]] = {"capability": Capability, "capacity": Capacity}
"""Objectives by the names they have as options."""


def _places(jobs: npt.ArrayLike) -> Ints:
    return np.asarray(jobs, dtype=np.int64)


def _shares_of_longest(queue: Waiting) -> Floats:
    longest = queue.wait.max(initial=0.0)
    shares: Floats = queue.wait / longest if longest > 0 else np.zeros(len(queue.wait))
    return shares
