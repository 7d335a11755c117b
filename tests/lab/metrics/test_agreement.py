from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.metrics.agreement import displacement, equal_positions, inversions, kendall, ranks, spearman

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=20)
orders = st.integers(1, 40).flatmap(lambda count: st.permutations(range(count)))


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


@given(pairs)
def test_kendall_pair_by_pair(points: list[tuple[int, int]]) -> None:
    a, b = zip(*points, strict=True)
    signs = [(sign(a[i] - a[j]), sign(b[i] - b[j])) for i, j in itertools.combinations(range(len(a)), 2)]
    scale = math.sqrt(sum(x * x for x, _ in signs) * sum(y * y for _, y in signs))
    if scale:
        assert kendall(a, b) == pytest.approx(sum(x * y for x, y in signs) / scale)
    else:
        assert math.isnan(kendall(a, b))


@given(pairs)
def test_spearman_by_its_definition(points: list[tuple[int, int]]) -> None:
    a, b = zip(*points, strict=True)
    rank_a = [sum(y < x for y in a) + (sum(y == x for y in a) + 1) / 2 for x in a]
    rank_b = [sum(y < x for y in b) + (sum(y == x for y in b) + 1) / 2 for x in b]
    assert ranks(a).tolist() == rank_a
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert spearman(a, b) == pytest.approx(np.corrcoef(rank_a, rank_b)[0, 1])
    else:
        assert math.isnan(spearman(a, b))


@given(orders)
def test_spearman_without_equal_values_is_the_classic_formula(order: list[int]) -> None:
    count = len(order)
    if count > 1:
        squares = sum((place - value) ** 2 for place, value in enumerate(order))
        assert spearman(range(count), order) == pytest.approx(1 - 6 * squares / (count * (count**2 - 1)))


def test_a_published_example() -> None:
    """Wikipedia's example of intelligence and hours of television: rho = -29/165, tau = -1/9."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)
    assert kendall(iq, hours) == pytest.approx(-1 / 9)


@given(orders)
def test_inversions_pair_by_pair(order: list[int]) -> None:
    assert inversions(np.array(order)) == sum(x > y for x, y in itertools.combinations(order, 2))


def test_many_values_at_once() -> None:
    values = np.arange(100_000)
    assert kendall(values, -values) == -1.0
    assert kendall(values, values) == 1.0


@given(orders)
def test_equal_positions_without_equal_times(order: list[int]) -> None:
    expected = sum(place == value for place, value in enumerate(order)) / len(order)
    assert equal_positions(range(len(order)), order) == pytest.approx(expected)
    moved = displacement(range(len(order)), order)
    assert moved.tolist() == [value - place for place, value in enumerate(order)]


def test_jobs_that_start_together_share_their_positions() -> None:
    assert equal_positions([1, 1, 2], [3, 2, 4]) == 1.0
    assert equal_positions([1, 1, 2], [3, 4, 2]) == pytest.approx(1 / 3)
    assert displacement([1, 1, 2], [3, 4, 2]).tolist() == [0.5, 1.5, -2.0]


def test_nothing_to_compare() -> None:
    assert math.isnan(equal_positions([], []))
    assert math.isnan(spearman([], []))
    assert math.isnan(kendall([], []))


@pytest.mark.parametrize("measure", [spearman, kendall, equal_positions, displacement])
def test_bad_input(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(InvalidInput, match="of 1 and 2"):
        measure([1], [1, 2])
    with pytest.raises(InvalidInput, match="number 1 is NaN"):
        measure([1, 2], [1, math.nan])
    with pytest.raises(InvalidInput, match="shape"):
        measure([[1]], [[1]])
