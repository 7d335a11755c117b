import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.fattree import fat_tree, regular
from asa.lab.placement.topology import CONVENTIONS


@given(st.integers(1, 6), st.data())
def test_a_fat_tree_has_k_pods_of_k_half_switches_of_k_half_nodes(half: int, data: st.DataObject) -> None:
    k = 2 * half
    pods = data.draw(st.integers(1, k))
    tree = fat_tree(k, pods)
    assert len(tree.nodes) == pods * half**2
    leaf, pod, root = (np.bincount(row) for row in tree.groups)
    assert set(leaf) == {half} and set(pod) == {half**2} and set(root) == {len(tree.nodes)}


def test_hops_of_the_two_conventions() -> None:
    """Figures of the paper, section III: 2 below one switch, 4 in one pod, 6 otherwise; one less in the code."""
    tree = fat_tree(20, pods=10)
    levels = [tree.level("0", other) for other in ("9", "10", "99", "100")]
    assert tree.hops(CONVENTIONS["paper"])[levels].tolist() == [2, 4, 4, 6]
    assert tree.hops(CONVENTIONS["code"])[levels].tolist() == [1, 3, 3, 5]


@pytest.mark.parametrize(("k", "pods"), [(3, None), (0, None), (-2, None), (4, 0), (4, 5)])
def test_no_such_fat_tree(k: int, pods: int | None) -> None:
    with pytest.raises(InvalidInput, match="ports"):
        fat_tree(k, pods)


@pytest.mark.parametrize("widths", [[], [2, 0], [-1]])
def test_no_such_tree(widths: list[int]) -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        regular(widths)
