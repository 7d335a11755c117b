"""Experts: from the state of a job to a distribution over the share of its cores that others may have.

The paper's four trees, one per metric; one that learns what each action costs; fitted classifiers of other libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.estimators.checks import check_open_share, check_positive, read
from coscheduler.nouns import ACTIONS, JobStates

WIDTH, GROUND = 0.08, 0.001


def check_votes(votes: Floats, jobs: int, who: str) -> Floats:
    """Return the votes of an expert on so many jobs, shape (jobs, m).

    Raises `InvalidInput` when they are no distributions over the m actions.
    """
    if votes.shape != (jobs, len(ACTIONS)):
        raise InvalidInput(f"{who} voted with shape {votes.shape}: expected ({jobs}, {len(ACTIONS)})")
    if jobs and not (votes.min() >= 0 and np.abs(votes.sum(axis=1) - 1).max() < 1e-6):
        raise InvalidInput(f"{who} voted with what is no distribution: expected shares >= 0 that sum to 1")
    return votes


def bump(centres: Floats) -> Floats:
    """Distributions that peak at these shares, shape (n, m): a Gaussian of width `WIDTH` on a ground of `GROUND`.

    >>> bump(np.array([0.3])).argmax()
    np.int64(3)
    """
    found = np.exp(-0.5 * ((np.array(ACTIONS) - np.asarray(centres)[..., None]) / WIDTH) ** 2) + GROUND
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


METRICS = tuple(each.name for each in fields(JobStates))


@dataclass(frozen=True, eq=False)
class MetricTree:
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
    >>> leaves = [[shy, bold], [shy, shy]]
    >>> tree = MetricTree.of({"metric": "cpu", "cuts": [0.75], "happy_cuts": [1.1], "leaves": leaves})
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


HAPPY_CUTS = (1.0, 1.1)
_MOODS = np.array([0.0, 0.5, 1.0])  # of what a happy job gives, an unhappy one and one near 1 give this much


def cpu() -> MetricTree:
    """A happy job gives what it leaves idle, less 5 %; in steps of 10 %."""
    cuts = np.arange(1, 10) / 10
    return _tree("cpu", cuts, np.maximum(0.0, 1 - (np.arange(10) / 10 + 0.05) - 0.05))


def memory() -> MetricTree:
    """Nothing above 75 % of the memory, 30 % above 40 %, else 50 %."""
    return _tree("memory", np.array([0.4, 0.75]), np.array([0.5, 0.3, 0.0]))


def stage() -> MetricTree:
    """70 % in a sequential stage, 20 % in a parallel one."""
    return _tree("parallel", np.array([0.5]), np.array([0.7, 0.2]))


def elapsed() -> MetricTree:
    """20, 30, 40 and 60 % in the four quarters of the wall time."""
    return _tree("elapsed", np.array([0.25, 0.5, 0.75]), np.array([0.2, 0.3, 0.4, 0.6]))


def _tree(metric: str, cuts: Floats, centres: Floats) -> MetricTree:
    return MetricTree(metric, cuts, np.array(HAPPY_CUTS), bump(centres[:, None] * _MOODS))


_PARTS = 4  # of CPU and of memory use


class LearnedContention:
    """Gives as much as it may by the mean loss seen in states like this one.

    States are alike that are in the same quarter of CPU use, the same quarter of memory use, and both in sequential or
    both in parallel stages. Giving more never harms less, so means are made to rise with the action.

    Parameters
    ----------
    tolerance
        Expected loss that is accepted, in (0, 1).
    prior
        How many runs without loss every action is credited with, above 0: what was never tried is tried.
    """

    def __init__(self, *, tolerance: float = 0.1, prior: float = 1.0) -> None:
        self._tolerance = check_open_share(tolerance, "tolerance")
        self._prior = check_positive(prior, "prior")
        self._loss = np.zeros((2 * _PARTS * _PARTS, len(ACTIONS)))
        self._count = np.zeros_like(self._loss)

    def vote(self, states: JobStates) -> Floats:
        """A peak at the largest action whose expected loss is accepted, shape (n, m)."""
        mean = np.maximum.accumulate(self._loss / (self._count + self._prior), axis=1)
        largest = (mean <= self._tolerance).sum(axis=1) - 1
        return bump(np.array(ACTIONS)[np.maximum(largest, 0)][_cell(states)])

    def learn(self, states: JobStates, action: int, loss: float) -> None:
        """Jobs in these states gave `action`, and lost `loss` in [0, 1] each."""
        np.add.at(self._loss, (_cell(states), action), loss)
        np.add.at(self._count, (_cell(states), action), 1.0)

    def state(self) -> dict[str, Any]:
        return {"loss": self._loss.tolist(), "count": self._count.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another one has learned. Raises `InvalidInput` when the tables are of another shape."""
        tables = [np.array(read(state, name), dtype=np.float64) for name in ("loss", "count")]
        if any(each.shape != self._loss.shape or not np.isfinite(each).all() for each in tables):
            raise InvalidInput(f"two tables of finite numbers of shape {self._loss.shape} expected")
        self._loss, self._count = tables


def _cell(states: JobStates) -> Any:
    parts = [np.minimum((_PARTS * column).astype(np.int64), _PARTS - 1) for column in (states.cpu, states.memory)]
    return (parts[0] * _PARTS + parts[1]) * 2 + states.parallel


class ProbabilisticClassifier(Protocol):
    """What is expected of a fitted model: its classes are numbers of actions."""

    classes_: Any

    def predict_proba(self, features: Floats, /) -> Any: ...


class Classifier:
    """A fitted classifier that says which action is best.

    Raises `InvalidInput` when its classes are no numbers of actions.

    Parameters
    ----------
    model
        Fitted on `JobStates.features` (cpu, memory, parallel, elapsed, happiness) and numbers of actions, 0 to 9.
        Load it yourself: a pickle of unknown origin is a program of unknown origin.
    """

    def __init__(self, model: ProbabilisticClassifier) -> None:
        self._classes = np.asarray(model.classes_)
        if not np.all(np.isin(self._classes, np.arange(len(ACTIONS)))):
            raise InvalidInput(
                f"classes {self._classes.tolist()}: numbers of actions, 0 to {len(ACTIONS) - 1}, expected"
            )
        self._model = model

    def vote(self, states: JobStates) -> Floats:
        """Probability of each action, shape (n, m); 0 for one that the model has never seen."""
        votes = np.zeros((len(states), len(ACTIONS)))
        if len(states):
            votes[:, self._classes.astype(np.int64)] = self._model.predict_proba(states.features())
        return votes
