from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asa.core.errors import InvalidInput
from asa.estimators.loss import LOSSES, PAPER_GRID, check_grid, closest, log_distance, nearest, pinball, with_zero
from asa.estimators.regret import best_fixed, best_switching, loss_table, regret

GRID = np.array(with_zero(PAPER_GRID))
WAITS = st.floats(0, 1e9, allow_nan=False)


@given(WAITS, st.sampled_from(sorted(LOSSES)))
def test_losses_are_shares_and_smallest_next_to_the_wait(wait, name):
    losses = LOSSES[name](GRID, wait)
    assert losses.shape == GRID.shape
    assert losses.min() >= 0 and losses.max() <= 1
    below = GRID.searchsorted(wait, side="right") - 1
    neighbours = losses[max(below, 0) : below + 2]
    assert losses.min() == neighbours.min()


@given(WAITS)
def test_closest_forgives_the_nearest_alternative_only(wait):
    losses = closest(GRID, wait)
    assert losses.sum() == len(GRID) - 1
    assert losses[nearest(with_zero(PAPER_GRID), wait)] == 0


@given(WAITS, st.floats(0.01, 0.99))
def test_pinball_is_the_textbook_formula(wait, tau):
    for alternative, loss in zip(GRID, pinball(GRID, wait, tau), strict=True):
        difference = math.log(wait + 60) - math.log(alternative + 60)
        textbook = tau * difference if difference >= 0 else (tau - 1) * difference
        assert loss == pytest.approx(min(1.0, 2 / math.log(100) * textbook), abs=1e-12)


@pytest.mark.parametrize("tau", [0.2, 0.5, 0.9])
def test_expected_pinball_is_smallest_at_the_quantile(tau):
    waits = np.exp(np.random.default_rng(0).normal(6, 0.5, 4000))
    expected = np.mean([pinball(GRID, wait, tau) for wait in waits], axis=0)
    quantile = np.quantile(waits, tau)
    assert abs(int(expected.argmin()) - nearest(with_zero(PAPER_GRID), quantile)) <= 1


def test_graded_losses_tell_near_from_far_and_the_papers_does_not():
    for loss in (log_distance, pinball):
        losses = loss(GRID, 500.0)
        assert losses[nearest(with_zero(PAPER_GRID), 600.0)] < losses[nearest(with_zero(PAPER_GRID), 5000.0)]
    losses = closest(GRID, 500.0)
    assert losses[nearest(with_zero(PAPER_GRID), 600.0)] == losses[nearest(with_zero(PAPER_GRID), 5000.0)]


GRID_WAITS = st.integers(0, 10**9).map(float)
GRIDS = st.lists(GRID_WAITS, min_size=2, max_size=20, unique=True).map(sorted)


def test_the_paper_has_53_alternatives_from_10_s_to_100_000_s():
    assert len(PAPER_GRID) == 53
    assert (PAPER_GRID[0], PAPER_GRID[-1]) == (10, 100_000)
    assert check_grid(PAPER_GRID) == PAPER_GRID


def test_more_alternatives_in_the_tens_and_hundreds_than_above():
    decades = [sum(10**power <= wait < 10 ** (power + 1) for wait in PAPER_GRID) for power in range(1, 6)]
    assert decades == [17, 17, 9, 9, 1]


@given(GRIDS, GRID_WAITS)
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


TABLES = st.tuples(st.integers(1, 5), st.integers(2, 4)).flatmap(
    lambda shape: arrays(float, shape, elements=st.floats(0, 1))
)


@given(TABLES, st.integers(0, 5))
def test_best_switching_is_that_of_all_sequences(losses, switches):
    jobs, alternatives = losses.shape
    best = min(
        sum(losses[job, path[job]] for job in range(jobs))
        for path in itertools.product(range(alternatives), repeat=jobs)
        if sum(before != after for before, after in itertools.pairwise(path)) <= switches
    )
    assert best_switching(losses, switches) == pytest.approx(best)


@given(TABLES)
def test_no_switch_is_best_fixed_and_enough_of_them_the_best_of_each_job(losses):
    assert best_switching(losses, 0) == pytest.approx(best_fixed(losses))
    assert best_switching(losses, len(losses)) == pytest.approx(losses.min(axis=1).sum())


@given(TABLES, st.integers(0, 3))
def test_regret_of_a_fixed_alternative(losses, switches):
    own = losses[:, 0]
    assert regret(own, losses) >= -1e-12
    assert regret(own, losses, switches + 1) >= regret(own, losses, switches) - 1e-12


def test_a_table_has_a_row_per_wait():
    assert loss_table((10.0, 100.0), [10.0, 90.0, 100.0]).tolist() == [[0, 1], [1, 0], [1, 0]]
    assert loss_table((10.0, 100.0), []).shape == (0, 2)


def test_what_cannot_be_compared_is_refused():
    losses = loss_table((10.0, 100.0), [10.0, 90.0])
    with pytest.raises(InvalidInput, match="switches is -1"):
        best_switching(losses, -1)
    with pytest.raises(InvalidInput, match="incurred has 3 losses: expected 2"):
        regret(np.zeros(3), losses)
