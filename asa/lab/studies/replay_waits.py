"""What estimators would have said of recorded waits, each of which becomes known only once its job has started."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.ports import Estimator
from asa.lab.studies.accuracy import in_turn
from asa.lab.studies.waits_seen import Record

Make = Callable[[int], Estimator]
"""A fresh estimator from a seed."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, eq=False)
class Replayed:
    """Predictions beside the waits that came, in order of submission.

    Parameters
    ----------
    predicted, waits
        Shape (n,) [s].
    sizes
        Cores of each job.
    quantiles
        Which were asked for.
    quantile_predicted
        What was said to each of them, shape (n, quantiles) [s].
    step_us
        Time that a prediction and learning the wait took in the mean [us].
    """

    predicted: Floats
    waits: Floats
    sizes: Ints
    quantiles: tuple[float, ...]
    quantile_predicted: Floats
    step_us: float = math.nan

    def later(self, first: int) -> Replayed:
        """All but the first so many jobs of each size."""
        keep = np.ones(len(self.waits), dtype=bool)
        for size in np.unique(self.sizes):
            keep[np.flatnonzero(self.sizes == size)[:first]] = False
        return self._take(keep)

    def by_size(self) -> list[Replayed]:
        """One for each size, smallest first."""
        return [self._take(self.sizes == size) for size in np.unique(self.sizes)]

    def _take(self, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Replayed:
        return Replayed(
            self.predicted[keep],
            self.waits[keep],
            self.sizes[keep],
            self.quantiles,
            self.quantile_predicted[keep],
            self.step_us,
        )


def replay(
    make_estimator: Make, records: Sequence[Record], *, seed: int = 0, quantiles: Sequence[float] = ()
) -> Replayed:
    """Predict each job at its submission; learn its wait when it starts, with the context of its submission.

    An estimator whose class says ``pooled = True`` sees the jobs of all sizes; of any other there is one for each size.

    Parameters
    ----------
    make_estimator
        Makes a fresh one from a seed.
    records
        In order of submission.
    seed
        Of the seeds that the estimators get, one for each size.
    quantiles
        Also ask for these, in (0, 1).

    Raises
    ------
    InvalidInput
        When the records are not in order of submission.

    Examples
    --------
    A wait of 100 s is known to the third job, not to the second.

    >>> from asa.core.context import Context
    >>> from asa.estimators.baselines import Last
    >>> jobs = [Record(4, at, wait, Context(at, cores=4)) for at, wait in [(0.0, 100.0), (60.0, 200.0), (120.0, 50.0)]]
    >>> replay(lambda seed: Last(seed=seed), jobs).predicted
    array([  0.,   0., 100.])
    """
    sizes = np.array([record.size for record in records], dtype=np.int64)
    estimators = _estimators(make_estimator, np.unique(sizes).tolist(), seed)
    at_quantiles = np.empty((len(records), len(quantiles)))
    spent = 0.0

    def predict(place: int) -> float:
        nonlocal spent
        record = records[place]
        estimator, began = estimators[record.size], time.perf_counter()
        said = estimator.predict(record.context)
        spent += time.perf_counter() - began
        for column, quantile in enumerate(quantiles):
            at_quantiles[place, column] = estimator.predict(record.context, quantile)
        return said

    def learn(place: int, said: float) -> None:
        nonlocal spent
        record, began = records[place], time.perf_counter()
        estimators[record.size].learn(record.wait_s, said, record.context)
        spent += time.perf_counter() - began

    made, _ = in_turn(records, predict, learn)
    waits = np.array([record.wait_s for record in records])
    return Replayed(made, waits, sizes, tuple(quantiles), at_quantiles, 1e6 * spent / max(1, len(records)))


def _estimators(make: Make, sizes: Sequence[int], seed: int) -> dict[int, Estimator]:
    """The estimator of each size: the same one for all of them if it is pooled."""
    found: dict[int, Estimator] = {}
    shared: Estimator | None = None
    for size, each in zip(sizes, np.random.SeedSequence(seed).generate_state(len(sizes)).tolist(), strict=True):
        found[size] = make(each) if shared is None else shared
        if getattr(found[size], "pooled", False):
            shared = found[size]
    return found
