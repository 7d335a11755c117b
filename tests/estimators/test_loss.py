import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.estimators.grid import PAPER_GRID, nearest, with_zero
from asa.estimators.loss import LOSSES, closest, log_distance, pinball

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
