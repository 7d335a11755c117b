from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.metrics.job import bounded_slowdown, by_class, class_names, size_classes, spread, user_means

times = st.floats(0, 1e6)


@given(st.lists(st.tuples(times, times), min_size=1), st.floats(0.1, 100))
def test_bounded_slowdown_is_the_definition(jobs: list[tuple[float, float]], bound: float) -> None:
    wait, run = np.array(jobs).T
    expected = [max(1.0, (w + r) / max(r, bound)) for w, r in jobs]
    assert bounded_slowdown(wait + run, run, bound).tolist() == expected


def test_a_slowdown_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="above 0 s"):
        bounded_slowdown(np.ones(1), np.ones(1), 0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_spread(values: list[float]) -> None:
    found = spread(np.array(values))
    assert found.count == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.median == pytest.approx(statistics.median(values), abs=1e-6)
    assert found.p90 == pytest.approx(statistics.quantiles(values, n=10, method="inclusive")[-1], abs=1e-6)
    assert found.median <= found.p90 <= found.p99 <= found.max == max(values)


def test_nothing_has_no_spread() -> None:
    nothing = spread(np.empty(0))
    assert nothing.count == 0
    assert math.isnan(nothing.mean) and math.isnan(nothing.max)


@given(st.integers(1, 10**6), st.integers(2, 20))
def test_every_size_is_in_one_class(cores: int, most: int) -> None:
    bounds = size_classes(cores, most)
    assert len(bounds) <= most
    assert bounds[-1] == cores
    assert (np.diff(bounds) > 0).all()
    assert bounds[0] == 1, "single cores are a class of their own"
    names = class_names(bounds)
    firsts = [int(name.split("-")[0]) for name in names]
    assert [int(name.split("-")[-1]) for name in names] == bounds.tolist()
    assert firsts == [1, *(bounds[:-1] + 1).tolist()]


@pytest.mark.parametrize(("cores", "most"), [(0, 5), (8, 1)])
def test_no_classes(cores: int, most: int) -> None:
    with pytest.raises(InvalidInput, match="no size classes"):
        size_classes(cores, most)


@given(st.lists(st.tuples(st.integers(1, 40), times), min_size=1))
def test_classes_are_looked_at_one_by_one(jobs: list[tuple[int, float]]) -> None:
    bounds = size_classes(32)
    found = by_class(np.array([value for _, value in jobs]), np.array([size for size, _ in jobs]), bounds)
    low = 1
    for last, got in zip(bounds.tolist(), found, strict=True):
        high = 40 if last == 32 else last  # what is larger than the machine is in the last class
        values = [value for size, value in jobs if low <= size <= high]
        assert got.count == len(values)
        assert not values or got.max == max(values)
        low = last + 1


@given(st.lists(st.tuples(st.integers(-1, 5), times)))
def test_means_of_users(jobs: list[tuple[int, float]]) -> None:
    found = user_means(np.array([value for _, value in jobs]), np.array([user for user, _ in jobs], dtype=np.int64))
    users = sorted({user for user, _ in jobs if user >= 0})
    expected = [statistics.fmean(value for who, value in jobs if who == user) for user in users]
    assert found.tolist() == pytest.approx(expected)
