"""The paper's Table 1 from rows of a comparison: means over seeds, normalised averages, and ratios of strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.lab.studies.compare_row import METRICS, ORACLE, Row
from asa.lab.studies.interval import Estimate, Statistic, estimate

BASELINES = ("big-job", "per-stage", ORACLE)
"""What every strategy is compared with, where it was run."""

Case = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows laid out: the same cases under the same strategies with the same seeds.

    Parameters
    ----------
    cases
        System, workflow and cores.
    strategies
        Their names.
    values
        Number -> its values, shape (seeds, cases, strategies).
    """

    cases: tuple[Case, ...]
    strategies: tuple[str, ...]
    values: dict[str, Floats]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Grid:
        """Lay rows out, in the order in which they first name their cases and strategies.

        Raises
        ------
        InvalidInput
            When one is missing or there twice.
        """
        seeds = list(dict.fromkeys(row.seed for row in rows))
        cases = tuple(dict.fromkeys(row.case for row in rows))
        strategies = tuple(dict.fromkeys(row.strategy for row in rows))
        found = {(row.seed, row.case, row.strategy): row for row in rows}
        if not rows or len(found) != len(rows) or len(rows) != len(seeds) * len(cases) * len(strategies):
            raise InvalidInput(
                f"{len(rows)} rows for {len(seeds)} seeds, {len(cases)} cases and {len(strategies)} strategies: "
                "one row for each combination expected"
            )
        names = (*METRICS, "overhead_core_hours", "misses", "outstanding")
        return cls(
            cases,
            strategies,
            {
                name: np.array(
                    [
                        [
                            [float(getattr(found[seed, case, strategy], name)) for strategy in strategies]
                            for case in cases
                        ]
                        for seed in seeds
                    ]
                )
                for name in names
            },
        )

    def estimate(
        self,
        metric: str,
        statistic: Statistic,
        cases: Sequence[int] | None = None,
        strategies: Sequence[int] | None = None,
    ) -> Estimate:
        """A statistic of the means over seeds, shape (..., cases, strategies), of some of either (default: all)."""
        chosen = self.values[metric] if cases is None else self.values[metric][:, list(cases)]
        chosen = chosen if strategies is None else chosen[:, :, list(strategies)]
        shape = chosen.shape[1:]

        def of_means(values: Floats) -> Floats:
            return statistic(values.mean(axis=-2).reshape(*values.shape[:-2], *shape))

        return estimate(of_means, chosen.reshape(len(chosen), -1))


def table1(grid: Grid) -> list[dict[str, Any]]:
    """Means over seeds: a row for each case and strategy, with an `Estimate` of each number."""
    return [
        dict(zip(("system", "workflow", "cores"), case, strict=True))
        | {"strategy": strategy}
        | {name: grid.estimate(name, lambda means: means[..., 0, 0], [c], [k]) for name in grid.values}
        for c, case in enumerate(grid.cases)
        for k, strategy in enumerate(grid.strategies)
    ]


def normalised(grid: Grid) -> list[dict[str, Any]]:
    """Normalised averages: a row for each workflow and strategy.

    An average of 1.05 says: in the mean over the workflow's rows, 5 % above the best strategy of the row. The oracle is
    not taken for a strategy, so its averages can be below 1.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 4.7 and Table 1, whose averages are met to within
    1.5 points, the sums of its seconds being rounded.
    """
    workflows = dict.fromkeys(workflow for _, workflow, _ in grid.cases)
    real = [k for k, strategy in enumerate(grid.strategies) if strategy != ORACLE]

    def average(k: int) -> Statistic:
        return lambda means: _ratio(means[..., k], means[..., real].min(axis=-1)).mean(axis=-1)

    return [
        {"workflow": workflow, "strategy": strategy}
        | {
            name: grid.estimate(name, average(k), [c for c, case in enumerate(grid.cases) if case[1] == workflow])
            for name in METRICS
        }
        for workflow in workflows
        for k, strategy in enumerate(grid.strategies)
    ]


def ratios(grid: Grid) -> dict[str, Any]:
    """Each strategy over each of `BASELINES`: strategy -> baseline -> number -> two kinds of ratio.

    ``ratio_of_sums`` weighs cases by their size, as the paper's "43 % reduction" of core-hours and "2 % increase" of
    the makespan do; ``mean_of_ratios`` takes all cases alike.
    """
    places = {name: k for k, name in enumerate(grid.strategies)}

    def both(metric: str, k: int, base: int) -> dict[str, Any]:
        two = [k, base]
        return {
            "ratio_of_sums": grid.estimate(metric, ratio_of_sums, strategies=two),
            "mean_of_ratios": grid.estimate(metric, _mean_of_ratios, strategies=two),
        }

    return {
        strategy: {
            base: {metric: both(metric, k, places[base]) for metric in METRICS}
            for base in BASELINES
            if base in places and base != strategy
        }
        for strategy, k in places.items()
    }


def ratio_of_sums(means: Floats) -> Floats:
    """The first strategy's sum over all cases over the second's; means of shape (..., cases, 2)."""
    return _ratio(means[..., 0].sum(-1), means[..., 1].sum(-1))


def _mean_of_ratios(means: Floats) -> Floats:
    made: Floats = _ratio(means[..., 0], means[..., 1]).mean(-1)
    return made


def _ratio(over: Floats, under: Floats) -> Floats:
    """Of two numbers that may be 0: 1 when both are, not a number when only the second is."""
    safe = np.where(under > 0, under, 1.0)
    made: Floats = np.where(under > 0, over / safe, np.where(over > 0, np.nan, 1.0))
    return made
