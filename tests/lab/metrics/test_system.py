from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.metrics.system import core_seconds, jain_index, level, longest_queue, mean_level, utilisation

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(1, 5)), min_size=1)


def columns(jobs: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(jobs)
    return table[:, 0].astype(float), (table[:, 0] + table[:, 1]).astype(float), table[:, 2]


@given(spans, st.integers(0, 30), st.integers(0, 20))
def test_core_seconds_second_by_second(jobs: list[tuple[int, int, int]], begin: int, length: int) -> None:
    counted = sum(
        amount for second in range(begin, begin + length) for at, run, amount in jobs if at <= second < at + run
    )
    assert core_seconds(*columns(jobs), begin, begin + length) == counted
    if length:
        share = utilisation(*columns(jobs), 7, begin=begin, until=begin + length)
        assert share == pytest.approx(counted / 7 / length)


def test_utilisation_needs_cores_and_time() -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        utilisation(*columns([(0, 5, 1)]), 0, begin=0.0, until=5.0)
    assert math.isnan(utilisation(*columns([(0, 5, 1)]), 4, begin=5.0, until=5.0))


@given(spans)
def test_a_level_is_what_is_there(jobs: list[tuple[int, int, int]]) -> None:
    times, sums = level(*columns(jobs))
    assert (np.diff(times) > 0).all()
    assert sums[-1] == 0
    for time, found in zip(times, sums, strict=True):
        assert found == sum(amount for at, run, amount in jobs if at <= time < at + run)


@given(spans, st.integers(1, 12))
def test_means_of_a_level_keep_its_area(jobs: list[tuple[int, int, int]], bins: int) -> None:
    edges = np.linspace(-3.0, 45.0, bins + 1)
    means = mean_level(*level(*columns(jobs)), edges)
    assert len(means) == bins
    assert (means * np.diff(edges)).sum() == pytest.approx(sum(run * amount for _, run, amount in jobs))


def test_a_level_of_nothing() -> None:
    times, sums = level(np.empty(0), np.empty(0))
    assert len(times) == len(sums) == 0
    assert mean_level(times, sums, np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.0]


@given(spans)
def test_the_longest_queue(jobs: list[tuple[int, int, int]]) -> None:
    begin, end, _ = columns(jobs)
    counted = max(sum(at <= time < at + wait for at, wait, _ in jobs) for time in range(41))
    assert longest_queue(begin, end) == counted


def test_nobody_queues() -> None:
    assert longest_queue(np.empty(0), np.empty(0)) == 0


@given(st.lists(st.floats(0.5, 1e4), min_size=1))
def test_jains_index_is_between_its_bounds(values: list[float]) -> None:
    found = jain_index(np.array(values))
    assert 1 / len(values) - 1e-9 <= found <= 1 + 1e-9
    assert jain_index(np.array(values) * 3) == pytest.approx(found), "it has no unit"


def test_jains_index_of_published_shape() -> None:
    """Two thirds of the users have all alike, the others nothing: the index is the share of those who have."""
    assert jain_index(np.array([5.0, 5.0, 0.0])) == pytest.approx(2 / 3)
    assert math.isnan(jain_index(np.empty(0)))
