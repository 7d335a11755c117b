import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.lab.placement.tjap.certificate import proven
from tests.lab.placement.tjap.windows import best_free, windows


@given(windows(most_idle=8, most_jobs=3), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_the_prices_nothing_costs_less(window, data):
    leaves = len(set(window.groups[0].tolist()))
    prices = np.array(data.draw(st.lists(st.floats(0, 3 * window.price), min_size=leaves, max_size=leaves)))
    assert proven(window, prices) <= best_free(window) * (1 + 1e-9) + 1e-9


def test_prices_below_0_prove_nothing():
    from asa.lab.placement.tjap.instance import grouped

    assert proven(grouped([0, 1], [1], below=[1]), np.array([0.0, -0.1])) == -np.inf
