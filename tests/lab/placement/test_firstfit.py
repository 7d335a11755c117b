from __future__ import annotations

from hypothesis import given

from asa.lab.placement.firstfit import FirstFit
from asa.lab.placement.runs import amounts
from tests.lab.placement.brute import UNTIMED, Ints, greedy, machines


@UNTIMED
@given(machines())
def test_nodes_are_filled_in_order_of_their_numbers(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    expected = greedy(free, need, units, per_node, list(range(len(free))))
    found = FirstFit().choose(free, need, units, per_node)
    assert (amounts(found, len(free)).tolist() if found else None) == expected
