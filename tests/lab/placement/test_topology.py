from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import Placed, cost
from asa.lab.placement.topology import CONVENTIONS, Topology, fat_tree, read_topology, regular


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


REAL = Path(__file__).parents[4] / "shared" / "data" / "topology"


def read(folder: Path, text: str) -> Topology:
    path = folder / "topology.conf"
    path.write_text(text)
    return read_topology(path)


def test_switches_at_any_level_in_any_order(tmp_path: Path) -> None:
    tree = read(
        tmp_path,
        "SwitchName=root Switches=far,pod  # the top\n"
        "switchname=pod switches=s[0-1] LinkSpeed=100\n\n"
        "SwitchName=far Nodes=x[1-2]\n"
        "SwitchName=s1 \\\n  Nodes=c\n"
        "SwitchName=s0 Nodes=a,b\n",
    )
    assert tree.nodes == ("x1", "x2", "a", "b", "c") and len(tree.groups) == 3
    pairs = {("x1", "x2"): 0, ("a", "b"): 0, ("a", "c"): 1, ("x1", "a"): 2}
    assert {pair: tree.level(*pair) for pair in pairs} == pairs


def test_a_single_switch(tmp_path: Path) -> None:
    assert read(tmp_path, "SwitchName=s Nodes=n[1-3]").groups.tolist() == [[0, 0, 0]]


def test_a_deep_tree(tmp_path: Path) -> None:
    lines = ["SwitchName=s0 Nodes=n"] + [f"SwitchName=s{k} Switches=s{k - 1}" for k in range(1, 1500)]
    assert read(tmp_path, "\n".join(lines)).groups.shape == (1500, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no switch"),
        ("NodeName=a", "line 1: 'NodeName=a' is not SwitchName="),
        ("SwitchName=s Nodes", "line 1: 'Nodes' is not"),
        ("SwitchName=s", "line 1: a SwitchName, and either Nodes or Switches"),
        ("Nodes=a", "line 1: a SwitchName"),
        ("SwitchName=s Nodes=a Switches=b", "either Nodes or Switches"),
        ("SwitchName=s Nodes=a[", "line 1: host list 'a\\[': brackets do not match"),
        ("SwitchName=s Nodes=a\nSwitchName=s Nodes=b", "line 2: switch s \\(line 1\\) is there already"),
        ("SwitchName=t Switches=s", "line 1: 's', below 't', is no switch of this file"),
        ("SwitchName=s Nodes=a\nSwitchName=t Nodes=b", "nothing joins switch s .* SwitchName=root Switches=s,t"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "switches form a cycle: switch . \\(line .\\), switch"),
        (
            "SwitchName=r Switches=s,t\nSwitchName=s Nodes=a\nSwitchName=t Nodes=b,a",
            "node a is on switch s \\(line 2\\) and switch t \\(line 3\\): one only",
        ),
        (
            "SwitchName=s Nodes=a\nSwitchName=r Switches=s\nSwitchName=q Switches=s",
            "switch s \\(line 1\\) is below two: switch r \\(line 2\\) and switch q \\(line 3\\)",
        ),
    ],
)
def test_what_is_no_tree(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as told:
        read(tmp_path, text)
    assert "topology.conf: " in str(told.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"Expected a topology\.conf"):
        read_topology(tmp_path / "none")


@pytest.mark.shared
@pytest.mark.skipif(not REAL.is_dir(), reason="no folder ../shared/data")
def test_real_files() -> None:
    tree = read_topology(REAL / "nstda-tara_topology.conf")
    assert (len(tree.nodes), len(tree.groups), len(set(tree.groups[0].tolist()))) == (10, 2, 4)
    with pytest.raises(InvalidInput, match="node circe-n051 is on switch s2"):
        read_topology(REAL / "nvidia-circe-superpod_topology.conf")
    with pytest.raises(InvalidInput, match="nothing joins switch IB1"):
        read_topology(REAL / "ub-hpc_topology.conf")


def test_a_line_may_go_on_and_the_last_one_may_never_end(tmp_path: Path) -> None:
    whole = read(tmp_path, "SwitchName=s Nodes=a,b")
    assert str(read(tmp_path, "SwitchName=s \\\n  Nodes=a,b  # both\n")) == str(whole)
    assert str(read(tmp_path, "SwitchName=s Nodes=a,b \\")) == str(whole)
    with pytest.raises(InvalidInput, match="line 2: 'Nodes' is not"):
        read(tmp_path, "# switches\nSwitchName=s \\\n Nodes \\")
