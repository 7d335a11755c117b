"""Nodes for one job, and the network above them."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.nodes import (
    BEST_FIT,
    CONTIGUOUS,
    FIRST_FIT,
    BestFit,
    Contiguous,
    FirstFit,
    amounts,
    choose,
    place,
)
from asa.lab.placement.tjap.instance import Placed, cost
from asa.lab.placement.topology import CONVENTIONS, Topology, fat_tree, read_topology, regular
from tests.lab.placement.brute import UNTIMED, Ints, blocks, greedy, holds, machines, stretches

# -- Nodes ------------------------------------------------------------------------------------------------------------


@UNTIMED
@given(machines())
def test_nodes_are_filled_in_order_of_their_numbers(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    expected = greedy(free, need, units, per_node, list(range(len(free))))
    found = FirstFit().choose(free, need, units, per_node)
    assert (amounts(found, len(free)).tolist() if found else None) == expected


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


def given_units(machine: tuple[Ints, Ints, int, int]) -> list[int]:
    return amounts(Contiguous().choose(*machine), len(machine[0])).tolist()


@UNTIMED
@given(machines())
def test_it_is_a_preference_and_no_constraint(machine: tuple[Ints, Ints, int, int]) -> None:
    assert bool(Contiguous().choose(*machine)) == bool(FirstFit().choose(*machine))


@UNTIMED
@given(machines())
def test_a_job_stays_together_in_the_tightest_stretch(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    most = holds(free, need, per_node)
    fitting = [nodes for nodes in stretches(most) if sum(most[node] for node in nodes) >= units]
    assume(fitting)
    tightest = min(fitting, key=lambda nodes: sum(most[node] for node in nodes))
    expected, left = [0] * len(free), units
    for node in tightest:
        expected[node] = min(left, most[node])
        left -= expected[node]
    assert given_units(machine) == expected


@UNTIMED
@given(machines())
def test_a_job_that_must_be_split_uses_as_few_stretches_as_possible(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    assume(len(free) < 20)
    most = holds(free, need, per_node)
    sizes = [sum(most[node] for node in nodes) for nodes in stretches(most)]
    assume(sum(sizes) >= units)
    fewest = next(
        count for count in range(1, len(sizes) + 1) if any(sum(some) >= units for some in combinations(sizes, count))
    )
    assert len(stretches(given_units(machine))) == fewest


METHODS = st.sampled_from([FIRST_FIT, BEST_FIT, CONTIGUOUS])


def chosen_nodes(method: int, free: Ints, need: Ints, units: int, per_node: int, rows: int = 200) -> tuple[int, Ints]:
    runs = np.full((rows, 3), -7)
    return place(method, free, need, units, per_node, blocks(free), runs), runs


@UNTIMED
@given(METHODS, machines())
def test_what_is_chosen_is_enough_and_fits(method: int, machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    before = free.copy()
    rows, runs = chosen_nodes(method, free, need, units, per_node)
    most = holds(free, need, per_node)
    assert (free == before).all()
    if rows == 0:
        assert sum(most) < units
        return
    given = [0] * len(free)
    for first, last, each in runs[:rows].tolist():
        assert 0 <= first <= last < len(free) and each > 0
        for node in range(first, last + 1):
            given[node] += each
    assert sum(given) == units
    assert all(has <= can for has, can in zip(given, most, strict=True))


@UNTIMED
@given(METHODS, machines())
def test_runs_are_in_order_and_as_long_as_they_can_be(method: int, machine: tuple[Ints, Ints, int, int]) -> None:
    rows, runs = chosen_nodes(method, *machine)
    for (_, last, units), (first, _, more) in pairwise(runs[:rows].tolist()):
        assert last < first
        assert not (last + 1 == first and units == more)


@UNTIMED
@given(METHODS, machines(), st.integers(0, 3))
def test_too_few_rows_are_reported_and_not_overrun(
    method: int, machine: tuple[Ints, Ints, int, int], spare: int
) -> None:
    rows, _ = chosen_nodes(method, *machine)
    answer, runs = chosen_nodes(method, *machine, rows=spare)
    if rows > spare:
        assert answer == -1
    elif rows > 0:
        assert answer == rows
    else:
        assert answer in (0, -1)
    assert len(runs) == spare


def test_a_block_without_free_cores_is_passed_over() -> None:
    free = np.full((130, 1), 1)
    occupied = np.array([64, 0, 2])
    runs = np.empty((9, 3), np.int64)
    assert place(FIRST_FIT, free, np.array([1]), 66, 0, occupied, runs) == 2
    assert runs[:2].tolist() == [[0, 63, 1], [128, 129, 1]]


@pytest.mark.parametrize("method", [FIRST_FIT, BEST_FIT, CONTIGUOUS])
def test_a_job_without_cores_may_use_nodes_that_have_none(method: int) -> None:
    free = np.array([[0, 2], [0, 1]])
    runs = np.empty((9, 3), np.int64)
    assert place(method, free, np.array([0, 1]), 3, 0, np.array([0]), runs) == 2
    assert runs[:2].tolist() == [[0, 0, 2], [1, 1, 1]]


def test_no_room_is_an_empty_choice() -> None:
    assert choose(FIRST_FIT, [[1], [1]], [1], 3, 0) == ()


def test_many_single_nodes_need_no_more_rows_than_there_are() -> None:
    free = np.tile([[1], [0]], (5_000, 1))
    assert len(choose(FIRST_FIT, free, [1], 5_000, 0)) == 5_000


def test_shapes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \(2, 1\) and needs of shape \(2,\)"):
        choose(FIRST_FIT, [[1], [1]], [1, 1], 1, 0)


@pytest.mark.parametrize(("units", "per_node"), [(0, 0), (1, -1)])
def test_jobs_that_cannot_be_are_refused(units: int, per_node: int) -> None:
    with pytest.raises(InvalidInput, match="no such job"):
        choose(FIRST_FIT, [[1]], [1], units, per_node)


def test_methods_have_the_numbers_the_compiled_machine_knows() -> None:
    assert (FirstFit.native, BestFit.native, Contiguous.native) == (FIRST_FIT, BEST_FIT, CONTIGUOUS) == (0, 1, 2)


# -- Topology ---------------------------------------------------------------------------------------------------------


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
