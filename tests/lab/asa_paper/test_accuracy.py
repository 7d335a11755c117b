"""What predictions were worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.baselines import Last, Zero
from asa.estimators.fixedshare import FixedShare
from asa.lab.asa_paper.accuracy import (
    DAYS,
    GRACE_S,
    NUMBERS,
    PAPER,
    Judged,
    Probe,
    accuracy,
    in_turn,
    judge,
    means_over_seeds,
    predict_all,
)
from asa.lab.asa_paper.tables import in_words

hours = st.lists(st.floats(0.0, 1e5), min_size=1, max_size=30)


class Spy:
    """Remembers what it was taught, and says how much that was."""

    def __init__(self) -> None:
        self.taught: list[tuple[float, float | None]] = []

    def predict(self, context: Any = None, quantile: Any = None) -> float:
        return float(len(self.taught))

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Any = None) -> None:
        self.taught.append((wait_s, predicted_s))

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: object) -> None: ...


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), min_size=1, max_size=30))
def test_nothing_is_learned_before_it_has_happened(jobs: list[tuple[float, float]]) -> None:
    probes = [Probe(submitted, wait) for submitted, wait in sorted(jobs)]
    spy = Spy()
    made, blind = predict_all(spy, probes)
    known = [sum(other.started <= probe.submitted for other in probes[:k]) for k, probe in enumerate(probes)]
    assert made.tolist() == known
    assert blind == known.count(0)


def test_waits_are_learned_in_order_of_the_starts_with_their_own_predictions() -> None:
    spy = Spy()
    predict_all(spy, [Probe(0, 500), Probe(10, 20), Probe(40, 7), Probe(600, 0)])
    assert spy.taught == [(20, 0.0), (7, 1.0), (500, 0.0)]


def test_it_goes_on_learning_until_the_end() -> None:
    spy = Spy()
    predict_all(spy, [Probe(0, 500), Probe(10, 20), Probe(40, 7)], until=450)
    assert [wait for wait, _ in spy.taught] == [20, 7]


def test_long_waits_give_the_papers_protocol_no_feedback() -> None:
    probes = [Probe(60.0 * k, 11 * 3600.0) for k in range(60)]
    made, blind = predict_all(FixedShare(), probes)
    assert blind == 60
    assert len(set(made)) == 1


def test_probes_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidInput, match="job 1 was submitted before"):
        predict_all(Zero(), [Probe(10, 0), Probe(5, 0)])


def test_every_column_by_hand() -> None:
    waits = np.array([3600.0, 3600.0, 3600.0, 3600.0])
    found = accuracy(np.array([3600.0, 0.0, 3700.0, 7200.0]), waits, cores=36, blind=1)
    assert (found.jobs, found.known) == (4, 0.75)
    assert (found.real_h, found.real_sd_h) == (1.0, 0.0)
    assert found.predicted_h == pytest.approx(14500 / 4 / 3600)
    assert found.perceived_h == 0.25
    assert (found.hit, found.miss) == (0.75, 0.25)
    assert found.overhead_core_hours == pytest.approx((100 + GRACE_S) / 4 * 36 / 3600)
    assert found.idle_core_hours == pytest.approx((100 + 3600) / 4 * 36 / 3600)
    assert found.hit_exact == 0.5  # 3700 s is closest to 4000 s, as 3600 s is
    assert found.not_over == 0.5
    assert found.mae_h == pytest.approx((3600 + 100 + 3600) / 4 / 3600)


def test_zero_always_hits_and_is_late_by_the_whole_wait() -> None:
    waits = np.array([40000.0, 50000.0])
    found = accuracy(np.zeros(2), waits, cores=160)
    assert (found.hit, found.not_over, found.hit_exact, found.overhead_core_hours) == (1.0, 1.0, 0.0, 0.0)
    assert found.perceived_h == found.real_h == found.mae_h


@given(hours)
def test_a_prophet_has_nothing_to_regret(waits: list[float]) -> None:
    found = accuracy(np.array(waits), np.array(waits), cores=4)
    assert (found.hit, found.hit_exact, found.within_one, found.mae_h, found.idle_core_hours) == (1, 1, 1, 0, 0)
    assert found.regret <= 1e-12
    assert found.regret <= found.regret_switching + 1e-12


@given(hours, st.integers(0, 2**32 - 1))
def test_shares_and_bounds(waits: list[float], seed: int) -> None:
    predicted = np.random.default_rng(seed).uniform(0, 1e5, len(waits))
    found = accuracy(predicted, np.array(waits), cores=4)
    assert found.hit + found.miss == pytest.approx(1)
    assert found.hit_exact <= found.within_one
    assert found.not_over <= found.hit
    assert found.overhead_core_hours <= found.idle_core_hours + 1e-9
    assert found.mae_h == pytest.approx(found.perceived_h + found.idle_core_hours / 4)


def test_last_learns_from_what_has_started() -> None:
    made, blind = predict_all(Last(), [Probe(0, 30), Probe(60, 90), Probe(120, 0), Probe(180, 0)])
    assert made[1:].tolist() == [30, 30, 90]  # the second started at 150 s, the third at 120 s
    assert blind == 1


@pytest.mark.parametrize(("predicted", "waits"), [([], []), ([1.0], [1.0, 2.0])])
def test_unequal_lengths_are_refused(predicted: list[float], waits: list[float]) -> None:
    with pytest.raises(InvalidInput, match="as many of both"):
        accuracy(np.array(predicted), np.array(waits), cores=1)


def test_each_job_is_told_of_once_it_has_started_and_none_after_the_end() -> None:
    diary: list[tuple[str, int]] = []

    def predict(place: int) -> float:
        diary.append(("asked", place))
        return place / 2

    def learn(place: int, said: float) -> None:
        assert said == place / 2
        diary.append(("told", place))

    made, blind = in_turn([10.0, 20.0, 30.0, 40.0], [35.0, 30.0, 31.0, 1040.0], predict, learn, until=100.0)
    assert diary == [("asked", 0), ("asked", 1), ("told", 1), ("asked", 2), ("told", 2), ("told", 0), ("asked", 3)]
    assert made.tolist() == [0.0, 0.5, 1.0, 1.5] and blind == 2


CORES = 100
STEADY = [Probe(600.0 * k, 1200.0) for k in range(50)]


def judged(seed: int = 0, protocol: str = DAYS) -> Judged:
    found = judge("last", [Probe(probe.submitted, 1200.0 + 60 * seed) for probe in STEADY], CORES, seed)
    return Judged("here", "fifo", "blast", 100, protocol, "last", seed, found)


def test_a_steady_wait_is_foretold_once_it_is_known() -> None:
    found = judge("last", STEADY, CORES, seed=0)
    assert found.known == pytest.approx(48 / 50)  # 1200 s are over when the third probe is submitted
    assert found.hit_exact == pytest.approx(48 / 50)
    assert found.mae_h == pytest.approx(2 * 1200 / 50 / 3600)


def test_all_at_once_nothing_is_known() -> None:
    found = judge("fixed-share", [Probe(60.0 * k, 40000.0) for k in range(60)], CORES, seed=0)
    assert (found.known, found.hit_exact, found.miss) == (0.0, 0.0, 0.0)


def test_estimators_that_sample_draw_by_their_seed() -> None:
    made = [judge("algorithm1:sampling=tuned", STEADY, CORES, seed).predicted_h for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_means_are_over_seeds() -> None:
    (row,) = means_over_seeds([judged(seed) for seed in range(4)])
    assert row["real_h"].value == pytest.approx((1200 + 90) / 3600)
    assert row["real_h"].low < row["real_h"].value < row["real_h"].high
    assert set(NUMBERS) < set(row)


def test_rows_are_apart_by_everything_else() -> None:
    one = judged()
    others = [replace(one, **change) for change in ({"protocol": PAPER}, {"estimator": "zero"}, {"cores": 5})]
    assert len(means_over_seeds([one, *others])) == 4


def test_words_tell_protocol_and_estimator() -> None:
    text = in_words([], means_over_seeds([judged(), judged(protocol=PAPER)]), seeds=1)
    assert "predictions of last, fifo, over days, so that feedback arrives" in text
    assert "predictions of last, fifo, the paper's protocol (60 jobs, a minute apart)" in text
    assert "PWT: what is left" in text
