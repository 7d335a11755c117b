import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.grid import PAPER_GRID, check_grid, nearest, with_zero

WAITS = st.integers(0, 10**9).map(float)
GRIDS = st.lists(WAITS, min_size=2, max_size=20, unique=True).map(sorted)


def test_the_paper_has_53_alternatives_from_10_s_to_100_000_s():
    assert len(PAPER_GRID) == 53
    assert (PAPER_GRID[0], PAPER_GRID[-1]) == (10, 100_000)
    assert check_grid(PAPER_GRID) == PAPER_GRID


def test_more_alternatives_in_the_tens_and_hundreds_than_above():
    decades = [sum(10**power <= wait < 10 ** (power + 1) for wait in PAPER_GRID) for power in range(1, 6)]
    assert decades == [17, 17, 9, 9, 1]


@given(GRIDS, WAITS)
def test_nearest_is_the_closest_and_of_ties_the_smallest(grid, wait):
    assert nearest(grid, wait) == min(range(len(grid)), key=lambda index: (abs(grid[index] - wait), index))


def test_nearest_beyond_both_ends():
    assert nearest(PAPER_GRID, 0.0) == 0
    assert nearest(PAPER_GRID, 1e12) == 52


def test_halfway_counts_as_the_smaller():
    assert nearest((10.0, 20.0), 15.0) == 0


def test_with_zero_adds_it_once():
    assert with_zero(PAPER_GRID) == (0.0, *PAPER_GRID)
    assert with_zero(with_zero(PAPER_GRID)) == with_zero(PAPER_GRID)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "0 alternatives"),
        ([10], "1 alternatives"),
        ([10, 5], r"grid\[1\] is 5.0 after 10.0"),
        ([10, 10], r"grid\[1\] is 10.0 after 10.0"),
        ([-1, 10], r"grid\[0\] is -1.0"),
        ([10, math.inf], r"grid\[1\] is inf"),
        ([math.nan, 10], r"grid\[0\] is nan"),
    ],
)
def test_a_grid_that_is_none_is_refused(grid, message):
    with pytest.raises(InvalidInput, match=message):
        check_grid(grid)
