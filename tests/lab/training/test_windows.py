from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import UnknownName
from asa.lab.placement.tjap.instance import Placed, Window
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.training.windows import MOST, NODES, epoch


class Remembers:
    """Places as `seq` does, and keeps which nodes each job got."""

    def __init__(self) -> None:
        self.given: list[list[list[int]]] = []

    def place(self, window: Window) -> Placed:
        found = Sequential().place(window)
        self.given.append([window.idle[mine].tolist() for mine in found.places])
        return found


@pytest.mark.parametrize(("geometry", "pods", "hops"), [("code", 25, [1, 3, 5]), ("text", 10, [2, 4, 6])])
def test_an_epoch(geometry, pods, hops):
    method = Remembers()
    found = epoch(method, seed=3, geometry=geometry)
    assert 80 <= len(found) <= min(100, len(method.given))  # it goes on until all jobs are done
    assert found[0].idle.tolist() == list(range(NODES)) and len(set(found[0].groups[1].tolist())) == pods
    assert found[0].hops.tolist() == hops
    for window in found:
        assert 1 <= len(window.sizes) <= MOST and window.sizes.min() >= 2 and window.sizes.max() <= 40
    assert np.mean([len(window.sizes) for window in found]) == pytest.approx(3.24, abs=0.4)  # authors' workload
    before = {node for mine in method.given[0] for node in mine}
    assert before.isdisjoint(found[1].idle.tolist()) or len(found[1].idle) == NODES  # runs take 10 s and more


def test_seeds():
    sizes = [[window.sizes.tolist() for window in epoch(Sequential(), seed=seed)] for seed in (1, 1, 2)]
    assert sizes[0] == sizes[1] != sizes[2]


def test_another_geometry():
    with pytest.raises(UnknownName, match="code, text"):
        epoch(Sequential(), seed=0, geometry="torus")
