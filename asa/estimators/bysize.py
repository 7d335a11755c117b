"""One estimator for each size of job, and what it said when: estimators that know no contexts, where contexts count."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS, parse_spec
from asa.estimators.checks import check_wait, read

SIZES = 12
"""Numbers of cores that are remembered; of more, those taught last."""
SAID = 64
"""Changes of what an estimator says that are remembered, for each number of cores."""
LEVELS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""Quantiles that are remembered; those between are interpolated."""


def make_pooled(spec: str, seed: int) -> Estimator:
    """The estimator of this spec, if need be in a `BySize`, so that it can be asked what it would have said.

    Raises
    ------
    UnknownName
        If there is no such estimator, or it has no such option.
    """
    made: Estimator = ESTIMATORS.create(spec, seed=seed)
    return made if getattr(made, "pooled", False) else BySize(spec, seed)


def knows_quantiles(spec: str) -> bool:
    """Whether the estimator of this spec says of itself that it knows a distribution (``has_quantiles``)."""
    return bool(getattr(ESTIMATORS.load(parse_spec(spec)[0]), "has_quantiles", False))


class _Size:
    """An estimator, since when it has said what, and what it had said before that."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.levels = LEVELS if getattr(estimator, "has_quantiles", False) else ()
        self.since: list[float] = []
        self.said = [self._says()]

    def learn(self, wait_s: float, predicted_s: float | None, context: Context | None) -> None:
        self.estimator.learn(wait_s, predicted_s, context)
        says = self._says()
        if context is None:
            self.since, self.said = [], [says]  # nobody knows when: it counts as said all along
        elif says != self.said[-1]:
            self.since = [*self.since, max([context.at + wait_s, *self.since[-1:]])][-SAID:]
            self.said = [*self.said, says][-SAID - 1 :]

    def predict(self, context: Context | None, quantile: float | None) -> float:
        place = len(self.since) if context is None else bisect_right(self.since, context.at)
        own, *known = self.said[place]
        if quantile is not None and known:  # interpolated now as it will be later: who is calibrated needs the same
            return float(np.interp(quantile, self.levels, known))
        return self.estimator.predict(context) if place == len(self.since) else own

    def _says(self) -> list[float]:
        estimator = self.estimator
        return [round(estimator.predict(None, level), 3) for level in (None, *self.levels)]


class BySize:
    """A pooled estimator of those that are not: one for each number of cores.

    Its predictions count only on waits that were known at ``context.at``.

    Parameters
    ----------
    spec
        Of the estimators.
    seed
        For those that sample.

    Examples
    --------
    >>> estimator = BySize("last")
    >>> estimator.learn(600.0, context=Context(at=0.0, cores=4))
    >>> [estimator.predict(Context(at=at, cores=cores)) for at, cores in ((599.0, 4), (600.0, 4), (600.0, 8))]
    [0.0, 600.0, 0.0]
    """

    pooled = True

    def __init__(self, spec: str, seed: int = 0) -> None:
        self._spec, self._seed = spec, seed
        self._sizes: dict[int, _Size] = {}
        self._fresh = self._make()

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """Return what the estimator of this size said at that time [s]."""
        return self._sizes.get(_cores(context), self._fresh).predict(context, quantile)

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """Teach the estimator of this size.

        Raises
        ------
        InvalidInput
            If the wait is negative or not finite.
        """
        check_wait(wait_s)
        cores = _cores(context)
        size = self._sizes.pop(cores, None) or self._make()
        size.learn(wait_s, predicted_s, context)
        self._sizes[cores] = size
        if len(self._sizes) > SIZES:
            del self._sizes[next(iter(self._sizes))]

    def state(self) -> dict[str, Any]:
        """Return what the estimators know, and said, JSON-able; the one taught last comes last."""
        sizes = [
            {"cores": cores, "estimator": size.estimator.state(), "since": size.since, "said": size.said}
            for cores, size in self._sizes.items()
        ]
        return {"sizes": sizes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another instance with the same kind of estimator has learned.

        Raises
        ------
        InvalidInput
            If the state is incomplete, or one of another kind of estimator.
        """
        sizes: dict[int, _Size] = {}
        for entry in read(state, "sizes"):
            size = self._make()
            size.estimator.restore(read(entry, "estimator"))
            size.since, size.said = list(read(entry, "since")), [list(said) for said in read(entry, "said")]
            if len(size.said) != len(size.since) + 1 or any(len(said) != len(size.levels) + 1 for said in size.said):
                raise InvalidInput("the state's predictions and their times do not match: start without it")
            sizes[int(read(entry, "cores"))] = size
        self._sizes = sizes

    def _make(self) -> _Size:
        return _Size(ESTIMATORS.create(self._spec, seed=self._seed))


def _cores(context: Context | None) -> int:
    return 0 if context is None else context.cores
