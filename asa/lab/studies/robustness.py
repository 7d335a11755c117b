"""Whether a strategy is ever slower than another: case by case, not in sums, which hide the small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asa.core.errors import InvalidInput
from asa.lab.studies.compare_row import Row
from asa.lab.studies.interval import Estimate
from asa.lab.studies.table1 import Case, Grid, ratio_of_sums


@dataclass(frozen=True)
class Beside:
    """One strategy's mean makespan over another's in one case.

    Parameters
    ----------
    regime, case
        Where: the case is system, workflow and cores.
    strategy
        Which.
    ratio
        Of the means over seeds; 1 where both are alike.
    slower
        Share of the seeds in which it was slower by more than a second, in [0, 1].
    """

    regime: str
    case: Case
    strategy: str
    ratio: Estimate
    slower: float


def beside(rows: Sequence[Row], strategy: str, other: str = "per-stage") -> list[Beside]:
    """A strategy beside another in each case of each regime, the worst first.

    Raises
    ------
    InvalidInput
        When one of the two was not run.

    Examples
    --------
    >>> def row(strategy, seed, makespan_s):
    ...     return Row("here", "fifo", "chain", 8, strategy, seed, makespan_s, 0.0, 1.0, 0.0, 0, ())
    >>> rows = [row("asa", 0, 90.0), row("asa", 1, 120.0), row("per-stage", 0, 100.0), row("per-stage", 1, 100.0)]
    >>> (one,) = beside(rows, "asa")
    >>> print(one.case, one.ratio, one.slower)
    ('here', 'chain', 8) 1.05 [0.9, 1.2] 0.5
    """
    found = []
    for regime in dict.fromkeys(row.regime for row in rows):
        grid = Grid.of([row for row in rows if row.regime == regime and row.strategy in (strategy, other)])
        if {*grid.strategies} != {strategy, other}:
            raise InvalidInput(f"runs of {strategy!r} and {other!r} expected, not of {', '.join(grid.strategies)} only")
        two = [grid.strategies.index(name) for name in (strategy, other)]
        for place, case in enumerate(grid.cases):
            one, reference = (grid.values["makespan_s"][:, place, k] for k in two)
            ratio = grid.estimate("makespan_s", ratio_of_sums, [place], two)
            found.append(Beside(regime, case, strategy, ratio, float((one > reference + 1.0).mean())))
    return sorted(found, key=lambda each: -each.ratio.value)
