from __future__ import annotations

from dataclasses import replace

import pytest

from asa.lab.studies.accuracy import Probe
from asa.lab.studies.compare_words import in_words
from asa.lab.studies.probes import Kind
from asa.lab.studies.table2 import DAYS, NUMBERS, PAPER, Judged, judge, means_over_seeds

KIND = Kind(100, 3600.0)
STEADY = [Probe(600.0 * k, 1200.0) for k in range(50)]


def judged(seed: int = 0, protocol: str = DAYS) -> Judged:
    found = judge("last", [probe._replace(wait_s=1200.0 + 60 * seed) for probe in STEADY], KIND, seed)
    return Judged("here", "fifo", "blast", 100, protocol, "last", seed, found)


def test_a_steady_wait_is_foretold_once_it_is_known() -> None:
    found = judge("last", STEADY, KIND, seed=0)
    assert found.known == pytest.approx(48 / 50)  # 1200 s are over when the third probe is submitted
    assert found.hit_exact == pytest.approx(48 / 50)
    assert found.mae_h == pytest.approx(2 * 1200 / 50 / 3600)


def test_all_at_once_nothing_is_known() -> None:
    found = judge("fixed-share", [Probe(60.0 * k, 40000.0) for k in range(60)], KIND, seed=0)
    assert (found.known, found.hit_exact, found.miss) == (0.0, 0.0, 0.0)


def test_estimators_that_sample_draw_by_their_seed() -> None:
    made = [judge("algorithm1:sampling=tuned", STEADY, KIND, seed).predicted_h for seed in (1, 1, 2)]
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
