"""The paper's Table 2: how well waits are foretold, by its own protocol and by one in which feedback can arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS
from asa.lab.studies.accuracy import Accuracy, Probe, accuracy, foretell
from asa.lab.studies.interval import Estimate, estimate
from asa.lab.studies.probes import Kind

PAPER_PROBES, PAPER_EVERY_S = 60, 60.0
"""Section 4.8: so many submissions of each geometry, so far apart [s]."""

PAPER, DAYS = "paper", "days"
"""The protocols: as in section 4.8, all at once; and over days, so that most waits are known when the next is asked."""

NUMBERS = tuple(item.name for item in fields(Accuracy))
"""Of a row, by name."""


@dataclass(frozen=True)
class Judged:
    """How an estimator did on one geometry of one queue.

    Parameters
    ----------
    system, regime, seed
        The queue.
    workflow, cores
        Whose largest stage the jobs are like.
    protocol
        ``paper`` or ``days``.
    estimator
        Its spec.
    accuracy
        What its predictions were worth.
    """

    system: str
    regime: str
    workflow: str
    cores: int
    protocol: str
    estimator: str
    seed: int
    accuracy: Accuracy

    @property
    def key(self) -> tuple[str, str, str, int, str, str]:
        """All but the seed."""
        return self.system, self.regime, self.workflow, self.cores, self.protocol, self.estimator

    def to_json(self) -> dict[str, Any]:
        """All of it, flat."""
        return {**dict(zip(KEY, self.key, strict=True)), "seed": self.seed, **self.accuracy.to_json()}


KEY = ("system", "regime", "workflow", "cores", "protocol", "estimator")


def judge(estimator: str, probes: Sequence[Probe], kind: Kind, seed: int) -> Accuracy:
    """What a fresh estimator's predictions for these probes are worth, feedback being as late as it is."""
    fresh: Estimator = ESTIMATORS.create(estimator, seed=seed)
    made, blind = foretell(fresh, probes)
    return accuracy(made, np.array([probe.wait_s for probe in probes]), kind.cores, blind)


def means_over_seeds(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Means over seeds: a row for each geometry, protocol and estimator, with an `Estimate` of each number."""
    together: dict[Any, list[Accuracy]] = {}
    for each in judged:
        together.setdefault(each.key, []).append(each.accuracy)
    return [
        dict(zip(KEY, key, strict=True)) | {name: _mean([getattr(each, name) for each in found]) for name in NUMBERS}
        for key, found in together.items()
    ]


def _mean(values: Sequence[float]) -> Estimate:
    return estimate(lambda drawn: drawn.mean((-2, -1)), np.array(values)[:, None])
