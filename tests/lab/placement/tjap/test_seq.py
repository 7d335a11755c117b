import numpy as np
from hypothesis import given

from asa.lab.placement.tjap.cost import is_static, violations
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.tjap.windows import windows


@given(windows())
def test_jobs_take_nodes_in_order(window):
    found = Sequential().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert np.concatenate(found.places).tolist() == list(range(window.sizes.sum()))
