from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.estimators.baselines import Last, Median, Zero
from asa.lab.studies.replay_score import heeds_quantiles, score
from asa.lab.studies.replay_waits import Replayed, replay
from asa.lab.studies.waits_seen import load_log, records
from tests.lab.traces.shared import shared_file

HOUR = 3600.0


def replayed(
    predicted: list[float],
    waits: list[float],
    sizes: list[int] | None = None,
    quantiles: tuple[float, ...] = (),
    said: list[list[float]] | None = None,
) -> Replayed:
    return Replayed(
        np.array(predicted, dtype=float),
        np.array(waits, dtype=float),
        np.array(sizes or [4] * len(waits)),
        quantiles,
        np.array(said if said is not None else [[0.0] * len(quantiles)] * len(waits), dtype=float).reshape(
            len(waits), len(quantiles)
        ),
    )


def test_sizes_count_the_same_however_many_jobs_they_have() -> None:
    found = score(replayed([HOUR, 0, 0, 0], [0, 2 * HOUR, 4 * HOUR, 6 * HOUR], [4, 8, 8, 8]), warmup=0)
    assert found.jobs == 4
    assert found.early_h == pytest.approx((1 + 0) / 2)
    assert found.late_h == pytest.approx((0 + 4) / 2)
    assert found.mae_h == pytest.approx(found.early_h + found.late_h)
    assert found.not_over == pytest.approx((0 + 1) / 2)


def test_logarithms_are_taken_after_a_minute_is_added() -> None:
    assert score(replayed([540, 0], [0, 0]), warmup=0).log10_error == pytest.approx(0.5)
    assert score(replayed([0, 0], [540, 5940]), warmup=0).log10_error == pytest.approx(1.5)


def test_pinball_losses_and_calibration() -> None:
    waits = [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    said = [[1.5 * HOUR, 3.0 * HOUR]] * 4
    found = score(replayed([0, 0, 0, 0], waits, quantiles=(0.25, 0.75), said=said), warmup=0)
    low = (0.75 * 0.5 + 0.25 * (0.5 + 1.5 + 2.5)) / 4
    high = (0.25 * (2 + 1) + 0.75 * 1) / 4
    assert found.pinball_h == pytest.approx((low, high))
    assert found.calibration == (0.25, 0.75)


def test_the_pinball_loss_of_the_median_is_half_the_error() -> None:
    waits = [100.0, 5000.0, 20.0]
    found = score(replayed([30, 40, 50], waits, quantiles=(0.5,), said=[[30], [40], [50]]), warmup=0)
    assert found.pinball_h[0] == pytest.approx(found.mae_h / 2)
    assert found.calibration is None  # one quantile cannot increase


def test_waits_a_minute_from_their_prediction_may_stand_on_either_side() -> None:
    """Of waits that are mostly 0, any low quantile is 0: that is calibrated."""
    waits = [0.0, 0.0, 0.0, 5000.0]
    said = [[0.0, 30.0, 59.0, 6000.0]] * 4
    found = score(replayed([0, 0, 0, 0], waits, quantiles=(0.1, 0.5, 0.9, 0.95), said=said), warmup=0)
    assert found.calibration == (0.1, 0.5, 0.75, 1.0)
    said = [[0.0, 61.0]] * 4
    assert score(replayed([0, 0, 0, 0], waits, quantiles=(0.1, 0.2), said=said), warmup=0).calibration == (0.1, 0.75)


@pytest.mark.parametrize(
    ("said", "heeds"),
    [
        ([[1, 2], [1, 1]], True),
        ([[1, 1], [2, 2]], False),  # ignores them
        ([[1, 2], [3, 1]], False),  # draws
        ([[2, 1]], False),
    ],
)
def test_quantiles_are_heeded_when_they_never_fall_and_once_rise(said: list[list[float]], heeds: bool) -> None:
    nothing = [0.0] * len(said)
    assert heeds_quantiles(replayed(nothing, nothing, quantiles=(0.2, 0.8), said=said)) is heeds
    swapped = [row[::-1] for row in said]
    assert heeds_quantiles(replayed(nothing, nothing, quantiles=(0.8, 0.2), said=swapped)) is heeds


def test_warm_up_jobs_do_not_count() -> None:
    found = score(replayed([9 * HOUR, 0, 0], [0, HOUR, HOUR]), warmup=1)
    assert (found.jobs, found.mae_h) == (2, 1.0)
    with pytest.raises(InvalidInput, match="more than the 3 jobs"):
        score(replayed([0, 0, 0], [0, 0, 0]), warmup=3)


def test_regret_is_none_for_the_best_alternative() -> None:
    found = score(replayed([0.0] * 5, [0.0] * 5), warmup=0)
    assert math.isclose(found.regret, 0.0, abs_tol=1e-12)
    assert score(replayed([HOUR] * 5, [0.0] * 5), warmup=0).regret > 0.5


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HPC2N-2002-2.2-cln", {Zero: (8.871, 1.733), Last: (9.603, 0.847), Median: (9.018, 0.873)}),
        ("CTC-SP2-1996-3.1-cln", {Zero: (4.528, 1.267), Last: (4.991, 0.728)}),
        ("ANL-Intrepid-2009-1", {Zero: (2.746, 1.368), Last: (2.987, 0.455), Median: (2.727, 0.429)}),
    ],
)
def test_errors_are_those_that_an_independent_program_found(
    name: str, expected: dict[type[Any], tuple[float, float]]
) -> None:
    """A prototype that shares no code with this one replayed the same jobs of these logs."""
    jobs = records(load_log(shared_file("swf", f"{name}.swf.gz")), plan=False)
    for make, (mae_h, log10_error) in expected.items():
        found = score(replay(lambda seed, make=make: make(seed=seed), jobs))
        assert found.mae_h == pytest.approx(mae_h, abs=0.0006)
        assert found.log10_error == pytest.approx(log10_error, abs=0.0006)
