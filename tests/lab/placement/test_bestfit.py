from __future__ import annotations

from hypothesis import given

from asa.lab.placement.bestfit import BestFit
from asa.lab.placement.runs import amounts
from tests.lab.placement.brute import UNTIMED, Ints, greedy, holds, machines


@UNTIMED
@given(machines())
def test_the_fullest_nodes_come_first(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    most = holds(free, need)
    order = sorted(range(len(free)), key=lambda node: (most[node], node))
    found = BestFit().choose(free, need, units, per_node)
    assert (amounts(found, len(free)).tolist() if found else None) == greedy(free, need, units, per_node, order)


def test_a_single_unit_goes_where_least_is_left() -> None:
    assert BestFit().choose([[4], [3], [9]], need=[3], units=1, per_node=0) == ((0, 0, 1),)
    assert BestFit().choose([[7], [3], [9]], need=[3], units=1, per_node=0) == ((1, 1, 1),)
