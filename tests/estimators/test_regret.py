import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asa.core.errors import InvalidInput
from asa.estimators.regret import best_fixed, best_switching, loss_table, regret

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
