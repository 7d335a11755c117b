from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.lab.studies.compare_row import Row
from asa.lab.studies.robustness import beside


def rows(strategy: str, makespans: list[float], workflow: str = "w", regime: str = "limits") -> list[Row]:
    return [
        Row("here", regime, workflow, 28, strategy, seed, makespan, 0.0, 1.0, 0.0, 0, ())
        for seed, makespan in enumerate(makespans)
    ]


def test_the_worst_case_comes_first_and_is_not_hidden_by_larger_ones() -> None:
    made = rows("auto", [10.0, 14.0], "short") + rows("per-stage", [10.0, 10.0], "short")
    made += rows("auto", [5000.0, 5000.0], "long") + rows("per-stage", [9000.0, 9000.0], "long")
    worst, best = beside(made, "auto")
    assert worst.case == ("here", "short", 28)
    assert worst.ratio.value == pytest.approx(1.2)
    assert worst.ratio.low == pytest.approx(1.0)
    assert worst.slower == 0.5
    assert (best.ratio.value, best.slower) == (pytest.approx(5 / 9), 0.0)


def test_it_is_a_ratio_of_means_not_a_mean_of_ratios() -> None:
    (found,) = beside(rows("auto", [100.0, 20.0]) + rows("per-stage", [100.0, 10.0]), "auto")
    assert found.ratio.value == pytest.approx(120 / 110)


def test_regimes_are_apart() -> None:
    made = rows("auto", [10.0]) + rows("per-stage", [10.0])
    made += rows("auto", [20.0], regime="fifo") + rows("per-stage", [10.0], regime="fifo")
    assert [(each.regime, each.ratio.value) for each in beside(made, "auto")] == [("fifo", 2.0), ("limits", 1.0)]


@pytest.mark.parametrize("there", ["auto", "per-stage"])
def test_both_must_have_run(there: str) -> None:
    with pytest.raises(InvalidInput, match="'auto' and 'per-stage' expected"):
        beside(rows(there, [1.0]), "auto")
