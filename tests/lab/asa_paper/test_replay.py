"""Estimators on recorded waits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.estimators.baselines import Last, Median, Zero
from asa.estimators.fixedshare import FixedShare
from asa.lab.asa_paper.accuracy import Probe, predict_all
from asa.lab.asa_paper.queue_history import ObservedWait, load_log, records
from asa.lab.asa_paper.replay import SPANS, Replayed, ReplayTable, heeds_quantiles, replay, score, tabulate
from tests.lab.traces.shared import shared_file


def job(size: int, submitted: float, wait: float) -> ObservedWait:
    return ObservedWait(size, submitted, wait, Context(at=submitted, cores=size, backlog_s=submitted))


class Spy:
    """Remembers what it was taught, and says how much that was."""

    made: list[Spy]

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.taught: list[tuple[float, float | None, Context | None]] = []
        self.made.append(self)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return len(self.taught) + (quantile or 0.0)

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        self.taught.append((wait_s, predicted_s, context))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


@pytest.fixture
def spy() -> type[Spy]:
    return type("Fresh", (Spy,), {"made": []})


jobs = st.lists(st.tuples(st.integers(4, 6), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=30)


@given(jobs)
def test_each_size_is_foretold_as_if_it_were_alone(rows: list[tuple[int, int, int]]) -> None:
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    found = replay(lambda seed: FixedShare(seed=seed), records)
    for size in {record.size for record in records}:
        probes = [Probe(record.submitted, record.wait_s) for record in records if record.size == size]
        assert found.predicted[found.sizes == size].tolist() == predict_all(FixedShare(), probes)[0].tolist()


@given(jobs)
def test_nothing_is_learned_before_it_has_happened(rows: list[tuple[int, int, int]]) -> None:
    pooled = type("Pooled", (Spy,), {"made": [], "pooled": True})
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    made = replay(pooled, records).predicted
    for place, record in enumerate(records):
        assert made[place] == sum(other.started <= record.submitted for other in records[:place])


def test_waits_are_learned_with_their_predictions_and_the_contexts_of_their_submissions(spy: type[Spy]) -> None:
    records = [job(4, 0, 500), job(4, 10, 20), job(4, 40, 7), job(4, 600, 0)]
    replay(spy, records)
    assert spy.made[0].taught == [
        (20, 0.0, records[1].context),
        (7, 1.0, records[2].context),
        (500, 0.0, records[0].context),
    ]


def test_sizes_have_estimators_of_their_own_with_seeds_of_their_own(spy: type[Spy]) -> None:
    records = [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)]
    replay(spy, records, seed=1)
    assert [len(each.taught) for each in spy.made] == [2, 1]
    seeds = [each.seed for each in spy.made]
    assert len(set(seeds)) == 2
    replay(spy, records, seed=1)
    replay(spy, records, seed=2)
    assert [each.seed for each in spy.made[2:4]] == seeds
    assert not {each.seed for each in spy.made[4:]} & set(seeds)


def test_a_pooled_estimator_learns_from_all_sizes(spy: type[Spy]) -> None:
    spy.pooled = True  # type: ignore[attr-defined]
    replay(spy, [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)])
    assert [len(each.taught) for each in spy.made] == [3]


def test_quantiles_are_asked_for_beside_the_prediction(spy: type[Spy]) -> None:
    found = replay(spy, [job(4, 0, 5), job(4, 10, 5)], quantiles=(0.25, 0.5))
    assert found.predicted.tolist() == [0.0, 1.0]
    assert found.quantile_predicted.tolist() == [[0.25, 0.5], [1.25, 1.5]]


def test_the_first_jobs_of_each_size_can_be_left_out() -> None:
    records = [job(4, 0, 1), job(8, 1, 2), job(4, 2, 3), job(4, 3, 4), job(8, 4, 5)]
    found = replay(lambda seed: Last(seed=seed), records).later(1)
    assert found.waits.tolist() == [3, 4, 5]
    assert [part.waits.tolist() for part in found.by_size()] == [[3, 4], [5]]
    assert found.later(2).by_size() == []


def test_jobs_must_come_in_order() -> None:
    with pytest.raises(InvalidInput, match="job 1 was submitted before"):
        replay(lambda seed: Last(seed=seed), [job(4, 5, 1), job(4, 4, 1)])


def test_no_jobs_no_predictions() -> None:
    assert len(replay(lambda seed: Last(seed=seed), [], quantiles=(0.5,)).predicted) == 0


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


def log(seed: int, jobs: int = 120, scale: float = 1.0) -> list[ObservedWait]:
    """Waits of two sizes that follow a level, submitted so seldom that each is known to the next job."""
    rng = np.random.default_rng(seed)
    level = np.exp(np.cumsum(rng.normal(0.0, 0.3, jobs)) + 6.0)
    return [
        ObservedWait(4 if k % 2 else 8, 1e6 * k, scale * float(level[k]), Context(at=1e6 * k, cores=4 if k % 2 else 8))
        for k in range(jobs)
    ]


@pytest.fixture(scope="module")
def found() -> ReplayTable:
    logs = {"one": log(0), "two": log(1)}
    return tabulate(logs, ["zero", "median", "fixed-share", "algorithm1"], seeds=2, warmup=10)


def test_there_is_a_row_for_each_log_and_estimator_the_last_wait_first(found: ReplayTable) -> None:
    names = ["last", "zero", "median", "fixed-share", "algorithm1"]
    assert [(row.trace, row.estimator) for row in found.rows] == [
        (log, name) for log in ("one", "two") for name in names
    ]
    assert list(found.overall) == names


def test_relative_errors_are_those_of_the_scores(found: ReplayTable) -> None:
    last = found.rows[0].mean("mae_h")
    for row in found.rows[:5]:
        assert row.relative.value == pytest.approx(row.mean("mae_h") / last)
        assert row.errors.shape == (SPANS, 2)
    assert found.rows[0].relative.value == found.rows[0].relative.high == 1.0


def test_intervals_hold_the_values(found: ReplayTable) -> None:
    for estimate in [row.relative for row in found.rows] + list(found.overall.values()):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high


def test_the_mean_over_logs_is_geometric(found: ReplayTable) -> None:
    ratios = [row.relative.value for row in found.rows if row.estimator == "zero"]
    assert found.overall["zero"].value == pytest.approx(np.sqrt(ratios[0] * ratios[1]))


def test_ratios_do_not_depend_on_the_unit_of_time() -> None:
    once, twice = (tabulate({"log": log(3, scale=scale)}, ["zero"], warmup=10) for scale in (1.0, 2.0))
    assert once.overall["zero"].value == pytest.approx(twice.overall["zero"].value)


def test_only_estimators_that_draw_have_several_seeds(found: ReplayTable) -> None:
    assert {row.estimator: len(row.seeds) for row in found.rows} == {
        "last": 1,
        "zero": 1,
        "median": 1,
        "fixed-share": 1,
        "algorithm1": 2,
    }
    drawn = next(row for row in found.rows if row.estimator == "algorithm1")
    assert drawn.seeds[0] != drawn.seeds[1]
    assert drawn.mean("mae_h") == pytest.approx(np.mean([each.mae_h for each in drawn.seeds]))


def test_calibration_is_told_of_those_that_heed_quantiles(found: ReplayTable) -> None:
    told = {row.estimator: row.means("calibration") for row in found.rows}
    assert told["last"] is None
    assert told["algorithm1"] is None


def test_in_words_and_as_json(found: ReplayTable) -> None:
    text = found.text()
    assert "one: 100 jobs, means over 2 sizes" in text
    assert "geometric mean over 2 logs" in text
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(data["rows"]) == 10
    assert data["overall"]["last"]["value"] == 1.0
    assert data["rows"][4]["seeds"][1]["mae_h"] > 0


def test_it_can_be_drawn(found: ReplayTable, tmp_path: Path) -> None:
    found.draw(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    with pytest.raises(InvalidInput, match=r"cannot be written: end the name with \.png"):
        found.draw(tmp_path / "errors.doc")


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidInput, match="0 logs"):
        tabulate({}, ["last"])
    with pytest.raises(InvalidInput, match="0 seeds"):
        tabulate({"log": log(0)}, ["last"], seeds=0)
    with pytest.raises(UnknownName, match="medain"):
        tabulate({"log": log(0)}, ["medain"])
    with pytest.raises(InvalidInput, match="more than the 200 jobs"):
        tabulate({"log": log(0)}, ["last"])


def test_whoever_waits_is_told_what_comes_next() -> None:
    told: list[tuple[str, str]] = []
    tabulate({"log": log(0)}, ["zero"], warmup=10, progress=lambda trace, name: told.append((trace, name)))
    assert told == [("log", "last"), ("log", "zero")]
