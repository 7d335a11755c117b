from __future__ import annotations

import numpy as np
import pytest

from asa.lab.forecast.arrivals import LEAST_S, coming
from asa.lab.forecast.sightings import Sightings
from asa.lab.forecast.visible import visible
from tests.lab.forecast.queues import queue, steady


def watched(looks: int = 400) -> Sightings:
    seen = Sightings()
    for view in steady(looks):
        seen.see(visible(view))
    return seen


def test_as_many_come_as_came() -> None:
    seen = watched()
    others = coming(seen, seen.at, seen.at + 36_000.0, np.random.default_rng(1))
    assert len(others.submit) == pytest.approx(600, abs=3)
    assert (np.diff(others.submit) >= 0).all()
    assert seen.at <= others.submit[0] and others.submit[-1] < seen.at + 36_000
    assert set(others.cores.tolist()) == {1}
    assert others.walltime_s == pytest.approx(np.full(len(others.cores), 3600.0), rel=0.02)
    assert (others.run_s <= others.walltime_s).all()


def test_longer_times_than_were_seen_are_filled() -> None:
    seen = watched()
    others = coming(seen, 1e6, 1e6 + 5 * 24_000.0, np.random.default_rng(1))
    assert len(others.submit) == pytest.approx(2000, abs=20)
    assert others.submit[-1] > 1e6 + 4.9 * 24_000.0


def test_futures_differ_and_a_seed_repeats_them() -> None:
    seen = watched()
    one, other, again = (coming(seen, 0.0, 9000.0, np.random.default_rng(seed)) for seed in (1, 2, 1))
    assert one.run_s.tolist() != other.run_s.tolist()
    assert one.run_s.tolist() == again.run_s.tolist()


def test_too_little_says_nothing() -> None:
    rng = np.random.default_rng(1)
    assert len(coming(Sightings(), 0.0, 100.0, rng).submit) == 0
    seen = watched(int(LEAST_S / 60))
    assert len(coming(seen, seen.at, seen.at + 100.0, rng).submit) == 0
    assert len(coming(watched(), 50.0, 50.0, rng).submit) == 0


def test_nobody_comes_where_nobody_came() -> None:
    seen = Sightings()
    for now in np.arange(0, 5 * LEAST_S, 600.0).tolist():
        seen.see(visible(queue(now)))
    assert len(coming(seen, seen.at, seen.at + 1e5, np.random.default_rng(1)).submit) == 0
