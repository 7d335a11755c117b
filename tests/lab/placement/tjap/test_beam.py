from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.placement.tjap.beam import beam
from asa.lab.placement.tjap.scas import exact


def both(cost: list[list[float]], size: list[int], copies: list[int], width: int = 20) -> tuple[float, float, float]:
    """The bound, what the search found, and the least there is."""
    args = np.array(cost, dtype=float), np.array(size), np.array(copies)
    steps, bound = beam(*args, width)
    least = exact(*args, np.zeros((sum(copies), 2), dtype=np.int64))
    return bound, float(args[0][steps[:, 0], steps[:, 1]].sum()), least


def test_prices_that_are_right_are_left_alone() -> None:
    """They once went to infinity from there, and rounding made them a bound that was none."""
    third = 13 / 3
    bound, found, least = both([[3.0, third, third, third, 5.0, third]], [3], [2])
    assert least == pytest.approx(22 / 3) and found >= least
    assert bound == pytest.approx(least) and bound <= least * (1 + 1e-12)


@given(st.data())
def test_no_placement_costs_less_than_the_bound(data: st.DataObject) -> None:
    size = sorted(data.draw(st.sets(st.integers(1, 4), min_size=1, max_size=3)))
    copies = [data.draw(st.integers(1, 3)) for _ in size]
    nodes = sum(map(int.__mul__, size, copies)) + data.draw(st.integers(0, 4))
    amounts = st.lists(st.integers(1, 30).map(lambda tenths: tenths / 3), min_size=nodes, max_size=nodes)
    bound, found, least = both([data.draw(amounts) for _ in size], size, copies, data.draw(st.sampled_from([1, 20])))
    assert bound <= least * (1 + 1e-9) and least <= found * (1 + 1e-9)
