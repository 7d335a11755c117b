from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.fattree import regular
from asa.lab.placement.tjap.cost import cost
from asa.lab.placement.tjap.instance import Placed
from asa.lab.placement.topology import CONVENTIONS, Topology


def way(one: str, other: str, tree: Topology) -> int:
    """Links from node to node: up to the lowest switch above both, and down."""
    column, its = tree.groups[:, [tree.place[one], tree.place[other]]].T
    return 2 * (1 + int((column != its).sum()))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_costs_pair_by_pair(widths: list[int], data: st.DataObject) -> None:
    tree = regular(widths)
    mine = data.draw(st.sets(st.sampled_from(tree.nodes), min_size=1))
    ways = [way(one, other, tree) for one, other in combinations(sorted(mine), 2)]
    assert tree.cost(sorted(mine), CONVENTIONS["paper"], price=7.0) == pytest.approx(7 * 2 * sum(ways) / len(mine))
    switches = sum(links - 1 for links in ways)
    assert tree.cost(sorted(mine), CONVENTIONS["code"], price=7.0) == max(7 * switches // len(mine), 1)


def test_a_window_costs_what_the_topology_says() -> None:
    tree = regular([3, 2, 4])
    for name, convention in CONVENTIONS.items():
        window = tree.window(["20", "3", "4", "9"], [4], convention, price=10.0, potential=[0.5])
        assert window.names == ("3", "4", "9", "20") and window.potential == (0.5,)
        paid = cost(window, Placed((np.arange(4),)))
        expected = tree.cost(window.names, convention, price=10.0)
        assert expected == pytest.approx(np.floor(paid) if name == "code" else paid)


@pytest.mark.parametrize(
    ("nodes", "groups", "words"),
    [
        ((), np.zeros((1, 0), dtype=np.int64), "expected"),
        (("a", "b"), np.zeros((1, 3), dtype=np.int64), "expected"),
        (("a", "b"), np.array([[1, 0], [0, 0]]), "rising numbers"),
        (("a", "b"), np.array([[0, 1]]), "rising numbers"),
        (("a", "a"), np.array([[0, 0]]), "node a is there twice"),
    ],
)
def test_no_such_topology(nodes: tuple[str, ...], groups: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Topology(nodes, groups)


def test_no_such_node() -> None:
    tree = regular([2, 2])
    for call in (lambda: tree.find(["0", "x"]), lambda: tree.window(["x"], [1], CONVENTIONS["code"])):
        with pytest.raises(InvalidInput, match="node 'x' is below no switch"):
            call()


def test_a_node_that_is_idle_twice() -> None:
    with pytest.raises(InvalidInput, match="node 1 is idle twice"):
        regular([2, 2]).window(["1", "0", "1"], [1], CONVENTIONS["code"])
