"""Nodes for all jobs of a window: costs, bounds, and the methods but the neural one."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools")

import gzip
import json
import math
import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap import scas
from asa.lab.placement.tjap.bounds import dantzig_wolfe, priced_nodes
from asa.lab.placement.tjap.dcas import DcasAlns
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import (
    Placed,
    Window,
    cost,
    dense,
    grouped,
    job_cost,
    objective,
    placed,
    potential,
    proven,
    violations,
)
from asa.lab.placement.tjap.native import (
    add_potential,
    all_stretches,
    below,
    cheapest,
    count_left,
    draw,
    hops,
    stretch,
    stretches,
    tree_of,
)
from asa.lab.placement.tjap.nsa import Anneal
from asa.lab.placement.tjap.scas import Scas, beam, exact
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.placement.tjap.together import Prospect, Together
from asa.lab.placement.topology import CONVENTIONS, fat_tree, regular
from tests.lab.placement.brute import UNTIMED
from tests.lab.placement.tjap.windows import (
    best_dynamic,
    best_free,
    best_static,
    drawn,
    of_groups,
    packing,
    subsets,
    windows,
)
from tests.lab.placement.tjap.windows import stretch as scas_stretch

# -- Instance ---------------------------------------------------------------------------------------------------------

GOOD = {
    "idle": np.array([3, 4, 8]),
    "groups": np.array([[0, 0, 1], [0, 0, 0]]),
    "sizes": np.array([2]),
    "hops": np.array([1.0, 3.0]),
}


def is_static(window: Window, found: Placed) -> bool:
    """Whether each job has neighbours in the ring of idle nodes: the paper's static continuity (SCAS)."""
    ring = list(range(len(window.idle)))
    return all(neighbours(ring, set(places.tolist())) for places in found.places)


def is_dynamic(window: Window, found: Placed) -> bool:
    """Whether jobs can be put in an order in which each has neighbours among the nodes left by those before it.

    This is the paper's dynamic continuity (DCAS). A job that has neighbours now may come now: nodes that are gone only
    bring others together.
    """
    ring, left = list(range(len(window.idle))), [set(places.tolist()) for places in found.places]
    while left:
        job = next((each for each in left if neighbours(ring, each)), None)
        if job is None:
            return False
        left.remove(job)
        ring = [place for place in ring if place not in job]
    return True


def neighbours(ring: list[int], mine: set[int]) -> bool:
    """Whether these are neighbours in a ring: they begin at most once."""
    return sum(ring[k] in mine and ring[k - 1] not in mine for k in range(len(ring))) <= 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"idle": np.array([3, 4])}, "do not go together"),
        ({"hops": np.array([1.0])}, "do not go together"),
        ({"groups": np.array([0, 0, 0])}, "do not go together"),
        ({"idle": np.array([3, 3, 8])}, "node 3 is idle twice"),
        ({"idle": np.array([3, 3, 8]), "names": ("a", "a", "b")}, "node a is idle twice"),
        ({"idle": np.array([3, 9, 8])}, "node 8 comes after node 9"),
        ({"groups": np.array([[0, 1, 0], [0, 0, 0]])}, "rising numbers"),
        ({"groups": np.array([[0, 0, 1], [0, 1, 1]])}, "rising numbers"),
        ({"groups": np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), "hops": np.array([1, 2, 3])}, "below two switches"),
        ({"hops": np.array([3.0, 1.0])}, "rising, at least 0"),
        ({"hops": np.array([-1.0, 1.0])}, "rising, at least 0"),
        ({"price": -1.0}, "price of -1"),
        ({"price": float("nan")}, "price of nan"),
        ({"potential": (1.0, 1.0)}, "at most 1 numbers"),
        ({"potential": (-1.0,)}, "at least 0"),
        ({"potential": (float("nan"),)}, "at least 0"),
        ({"sizes": np.array([2, 0])}, "asks for 0 nodes"),
        ({"sizes": np.array([2, 2])}, "2 jobs ask for 4 nodes together: 3 are idle"),
    ],
)
def test_what_is_no_window(changed, words):
    with pytest.raises(InvalidInput, match=words):
        Window(**(GOOD | changed))


@pytest.mark.parametrize(("idle", "below"), [([0], [0]), ([0], [2, 3]), ([-1, 2], [2])])
def test_no_such_machine(idle, below):
    with pytest.raises(InvalidInput):
        grouped(idle, [1], below=below)


def test_a_machine_of_equal_switches():
    window = grouped([9, 0, 5], [1], below=[2, 4], potential=[0.1])
    assert window.idle.tolist() == [0, 5, 9] and window.groups.tolist() == [[0, 2, 4], [0, 1, 2], [0, 0, 0]]
    assert window.hops.tolist() == [1, 3, 5] and window.tables.kept.tolist() == [100, 0, 0]
    assert window.tables.saved.tolist() == [2000, 2000, 0] and window.tables.far == 5000
    assert window.tables.groups.tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 0]] == dense(window.groups).tolist()


def test_a_single_switch_is_below_a_root_as_far_away():
    window = grouped([0, 1], [2], below=[])
    assert window.tables.groups.shape == (2, 2) and window.tables.saved.tolist() == [0, 0]


def test_places_of_owners():
    found = placed(np.array([1, -1, 0, 1]), 2)
    assert [places.tolist() for places in found.places] == [[2], [0, 3]]


def at(*places):
    return Placed(tuple(np.array(each, dtype=np.int64) for each in places))


@given(windows())
def test_a_cost_pair_by_pair(window):
    found = Sequential().place(window)
    total = 0.0
    for places in found.places:
        for one, other in combinations(places.tolist(), 2):
            level = next(k for k, row in enumerate(window.groups) if row[one] == row[other])
            total += window.price * window.hops[level] / len(places)
    assert cost(window, found) == pytest.approx(total)
    assert violations(window, found) == []


def test_a_job_of_the_paper_alone():
    """Ten nodes below one switch and one in the same pod: 45 pairs of 2 hops and 10 of 4, in both directions."""
    window = fat_tree(20, 10).window([str(node) for node in range(11)], [11], CONVENTIONS["paper"])
    assert cost(window, at(range(11))) == pytest.approx(1000 * 2 * (45 * 2 + 10 * 4) / 11)


@given(windows(), st.lists(st.floats(0, 2), max_size=2))
def test_a_potential_pair_by_pair(window, worth):
    window = replace(window, potential=tuple(worth))
    found = Sequential().place(window)
    left = range(int(window.sizes.sum()), len(window.idle))
    pairs = [
        each
        for each, row in zip(worth, window.groups, strict=False)
        for one, other in combinations(left, 2)
        if row[one] == row[other]
    ]
    assert potential(window, found) == pytest.approx(window.price * sum(pairs))
    assert objective(window, found) == cost(window, found) - potential(window, found)


def test_laws():
    window = grouped(range(5), [2, 3], below=[4])
    assert violations(window, at([0, 1], [2, 3, 4])) == []
    assert violations(window, at([0, 1])) == ["1 jobs have nodes: there are 2"]
    assert violations(window, at([0, 0], [2, 3, 4])) == ["job 0 has 1 nodes: it asked for 2"]
    assert violations(window, at([0, 5], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([-1, 0], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([0, 2], [2, 3, 4])) == ["node 2 has jobs 0 and 1"]


def test_neighbours():
    """Static: in the ring of idle nodes. Dynamic: in the ring of those that are left."""
    window = grouped(range(6), [2, 2], below=[6])
    assert is_static(window, at([0, 5], [2, 3])) and is_dynamic(window, at([0, 5], [2, 3]))
    assert not is_static(window, at([0, 3], [1, 2])) and is_dynamic(window, at([0, 3], [1, 2]))
    assert not is_dynamic(window, at([0, 2], [1, 3]))


@given(windows(most_idle=8, most_jobs=3), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_the_prices_nothing_costs_less(window, data):
    leaves = len(set(window.groups[0].tolist()))
    prices = np.array(data.draw(st.lists(st.floats(0, 3 * window.price), min_size=leaves, max_size=leaves)))
    assert proven(window, prices) <= best_free(window) * (1 + 1e-9) + 1e-9


def test_prices_below_0_prove_nothing():
    from asa.lab.placement.tjap.instance import grouped

    assert proven(grouped([0, 1], [1], below=[1]), np.array([0.0, -0.1])) == -np.inf


SHARED = {"podsize": 4, "leafsize": 2, "w": [1, 3, 5], "c": 10}
ONE = {"idle": [0, 1, 5], "sizes": [2]}


def written(tmp_path, data):
    path = tmp_path / "windows.json"
    path.write_text(json.dumps(data))
    return path


def test_windows_with_something_in_common(tmp_path):
    (window,) = read_windows(written(tmp_path, SHARED | {"instances": [ONE]}))
    assert window.idle.tolist() == [0, 1, 5] and window.sizes.tolist() == [2] and window.price == 10
    assert window.groups.tolist() == [[0, 0, 2], [0, 0, 1], [0, 0, 0]] and window.hops.tolist() == [1, 3, 5]
    path = tmp_path / "windows.json.gz"
    path.write_bytes(gzip.compress((tmp_path / "windows.json").read_bytes()))
    assert len(read_windows(path)) == 1


def test_windows_that_each_say_all(tmp_path):
    each = ONE | {"leaf": 2, "pod": 6, "w": [2, 4, 6]}
    first, second = read_windows(written(tmp_path, [each, each | {"c": 1}]))
    assert first.groups[1].tolist() == [0, 0, 0] and (first.price, second.price) == (1000, 1)


def test_names(tmp_path):
    tree = regular([3, 2, 2])
    path = written(tmp_path, {"c": 1, "instances": [{"idle": "[8-9],3", "sizes": [2]}, {"idle": ["1"], "sizes": []}]})
    first, second = read_windows(path, tree, CONVENTIONS["paper"])
    assert first.names == ("3", "8", "9") and first.price == 2 and first.hops.tolist() == [2, 4, 6]
    assert second.names == ("1",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (1, "an object with 'instances', or a list"),
        ({"windows": []}, "an object with 'instances', or a list"),
        ([ONE], "window 0 has no 'leaf'"),
        (SHARED | {"instances": [{"idle": [1]}]}, "window 0 has no 'sizes'"),
        (SHARED | {"instances": [ONE, 3]}, "window 1: "),
        (
            SHARED | {"instances": [ONE, ONE | {"sizes": [4]}]},
            "window 1: a job asks for 4 nodes: at least 1, and at most the 3 idle",
        ),
        (SHARED | {"instances": [ONE | {"idle": [1, 1]}]}, "window 0: node 1 is idle twice"),
        (SHARED | {"instances": [ONE | {"idle": [1, 2.5]}]}, "'idle' must be a list of whole numbers"),
        (SHARED | {"instances": [ONE | {"sizes": "2"}]}, "'sizes' must be a list of whole numbers"),
        (SHARED | {"instances": [ONE | {"sizes": [0]}]}, "asks for 0 nodes"),
        (SHARED | {"instances": [ONE | {"idle": [2**80]}]}, "the number 1208925819614629174706176: a finite one"),
        (SHARED | {"w": [1, 2], "instances": [ONE]}, "do not go together"),
        (SHARED | {"w": "abc", "instances": [ONE]}, "window 0: "),
    ],
)
def test_what_are_no_windows(tmp_path, data, words):
    with pytest.raises(InvalidInput, match=words):
        read_windows(written(tmp_path, data))


@pytest.mark.parametrize("text", ["{", "\x1f\x8bnothing", "\udcff"])
def test_what_is_no_file_of_windows(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"x\.json"):
        read_windows(path)
    with pytest.raises(InvalidInput, match=r"none\.json"):
        read_windows(tmp_path / "none.json")


def test_names_that_are_not_there(tmp_path):
    path = written(tmp_path, [{"idle": ["x1"], "sizes": [1]}])
    with pytest.raises(InvalidInput, match="node 'x1' is below no switch"):
        read_windows(path, regular([2, 2]))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"none.json: No such file or directory. Expected a JSON file with 'instances'"
    ):
        read_windows(tmp_path / "none.json")


# -- Methods ----------------------------------------------------------------------------------------------------------


@given(windows())
def test_jobs_take_nodes_in_order(window):
    found = Sequential().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert np.concatenate(found.places).tolist() == list(range(window.sizes.sum()))


@given(windows())
@settings(max_examples=60, deadline=None)
def test_it_keeps_the_laws_and_is_never_worse_than_where_it_begins(window):
    begin = Sequential().place(window)
    for method in (Anneal(iterations=50), Anneal(iterations=50, starts=1)):
        found = method.place(window)
        assert violations(window, found) == [] and cost(window, found) <= cost(window, begin) * (1 + 1e-9)
        kept = replace(window, potential=(0.5, 0.1))
        assert objective(kept, method.place(kept)) <= objective(kept, begin) + 1e-6 * window.price
    assert violations(window, Anneal(iterations=50, as_published=True).place(window)) == []


def test_without_iterations_it_is_sequential():
    window = drawn(1, idle=60, jobs=4)
    found = Anneal(iterations=0).place(window)
    assert [places.tolist() for places in found.places] == [each.tolist() for each in Sequential().place(window).places]


def test_the_same_seed_the_same_placement():
    window = drawn(1, idle=60, jobs=4)
    one, same, other = (Anneal(iterations=200, seed=seed).place(window) for seed in (3, 3, 4))
    assert np.concatenate(one.places).tolist() == np.concatenate(same.places).tolist()
    assert np.concatenate(one.places).tolist() != np.concatenate(other.places).tolist()


def test_taking_rejected_moves_back_is_what_the_published_code_lacks():
    """In the mean of 30 windows: the walk is better than its begin, annealing far better than the walk."""
    chosen = [drawn(seed, idle=100, jobs=4) for seed in range(30)]
    means = [
        np.mean([cost(window, PLACEMENT_METHODS.create(spec).place(window)) for window in chosen])
        for spec in ("seq", "sa:as-published", "sa")
    ]
    assert means[0] > 1.05 * means[1] > 1.05 * 1.05 * means[2]


def test_as_published_only_the_first_100_nodes_are_first_ones():
    """All of a job's nodes are then among the first 100 and as many as it has."""
    window = replace(drawn(0, idle=190, jobs=2), sizes=np.array([5]))
    for seed in range(20):
        last = [Anneal(as_published=published, seed=seed).place(window).places[0][-1] for published in (True, False)]
        assert last[0] < 105


@pytest.mark.parametrize(
    "options", [{"iterations": -1}, {"removed": 0}, {"warmest": 1.0}, {"coldest": 0.0}, {"warmest": float("nan")}]
)
def test_no_such_annealing(options):
    with pytest.raises(InvalidInput, match="expected"):
        Anneal(**options)


@given(windows(), st.randoms(use_true_random=False))
def test_static_placements_are_dynamic_ones(window, draw):
    """Stretches of the ring side by side, in any order, with any gaps, turned by any number of places."""
    nodes, jobs = len(window.idle), list(range(len(window.sizes)))
    draw.shuffle(jobs)
    at, gaps, places = draw.randrange(nodes), nodes - int(window.sizes.sum()), [np.zeros(0)] * len(jobs)
    for job in jobs:
        skipped = draw.randint(0, gaps)
        at, gaps = at + skipped, gaps - skipped
        places[job] = np.sort((at + np.arange(window.sizes[job])) % nodes)
        at += int(window.sizes[job])
    found = Placed(tuple(places))
    assert violations(window, found) == [] and is_static(window, found) and is_dynamic(window, found)


@given(windows(most_idle=7, most_jobs=3, most_size=3))
@settings(max_examples=30, deadline=None)
def test_the_best_dynamic_placement_is_no_worse_than_the_best_static_one_and_ordered_search_no_better(window):
    best = best_dynamic(window)
    assert best <= best_static(window) * (1 + 1e-9)
    found = DcasAlns(iterations=300, ordered=True).place(window)
    assert is_dynamic(window, found) and cost(window, found) >= best * (1 - 1e-9)


@given(windows())
@settings(max_examples=60, deadline=None)
def test_it_keeps_the_laws_and_is_never_worse_than_neighbours(window):
    for ordered in (False, True):
        method = DcasAlns(iterations=60, ordered=ordered)
        found = method.place(window)
        assert violations(window, found) == [] and (not ordered or is_dynamic(window, found))
        assert cost(window, found) <= cost(window, Scas().place(window)) * (1 + 1e-9)
        kept = replace(window, potential=(0.5, 0.1))
        assert violations(kept, method.place(kept)) == []
        assert objective(kept, method.place(kept)) <= objective(kept, Scas().place(kept)) + 1e-6 * window.price


@pytest.mark.parametrize("seed", range(8))
def test_small_windows_are_solved(seed):
    window = drawn(seed, idle=12, jobs=3)
    assert cost(window, DcasAlns(ordered=True).place(window)) == pytest.approx(best_dynamic(window))


def test_it_finds_more_than_the_best_neighbours():
    chosen = [drawn(seed, idle=70, jobs=5) for seed in range(10)]
    static, dynamic = (
        np.mean([cost(window, method.place(window)) for window in chosen]) for method in (Scas(), DcasAlns())
    )
    assert dynamic < 0.994 * static


def test_the_same_seed_the_same_placement_dcas():
    window = drawn(2, idle=70, jobs=5)
    one, same = (np.concatenate(DcasAlns(seed=5).place(window).places) for _ in range(2))
    assert one.tolist() == same.tolist()


@pytest.mark.parametrize("options", [{"iterations": -1}, {"removed": 0}])
def test_no_such_search(options):
    with pytest.raises(InvalidInput, match="expected"):
        DcasAlns(**options)


@given(windows(most_idle=9, most_jobs=3))
@settings(max_examples=60, deadline=None)
def test_beside_all_placements_there_are(window):
    best, found = best_free(window), Free(iterations=300).place(window)
    assert violations(window, found) == []
    assert best * (1 - 1e-9) <= cost(window, found) <= cost(window, Scas().place(window)) * (1 + 1e-9)
    assert found.bound <= best * (1 + 1e-9) + 1e-9
    if found.status == "optimal":
        assert cost(window, found) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_small_windows_are_solved_free(seed):
    window = drawn(seed, idle=11, jobs=3)
    assert cost(window, Free().place(window)) == pytest.approx(best_free(window))


@given(windows(most_idle=9, most_jobs=1), st.lists(st.floats(0, 2), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_with_a_potential_one_job_goes_where_both_together_are_best(window, worth):
    window = replace(window, potential=tuple(worth))
    best = min(objective(window, Placed((np.array(mine),))) for mine in subsets(window, int(window.sizes[0])))
    found = Free(iterations=50).place(window)
    assert violations(window, found) == []
    assert objective(window, found) == pytest.approx(best, abs=1e-6 * window.price)


@given(windows())
@settings(max_examples=60, deadline=None)
def test_with_a_potential_it_is_never_worse_than_neighbours(window):
    window = replace(window, potential=(0.5, 0.1))
    found = Free(iterations=50).place(window)
    assert violations(window, found) == [] and found.bound <= cost(window, found) * (1 + 1e-9) + 1e-9
    assert objective(window, found) <= objective(window, Scas().place(window)) + 1e-6 * window.price


def test_jobs_that_cost_nothing_leave_nodes_together():
    """Each takes its node from the switch with fewer; the other one stays whole, or nearly."""
    window = grouped(range(7), [1, 1, 1], below=[4], potential=(1.0,))
    for method in (Free(), DcasAlns()):
        assert sorted(np.concatenate(method.place(window).places).tolist()) == [4, 5, 6]


def test_the_same_seed_the_same_placement_free():
    window = drawn(2, idle=70, jobs=5)
    one, same = (np.concatenate(Free(seed=5).place(window).places) for _ in range(2))
    assert one.tolist() == same.tolist()


@pytest.mark.parametrize("options", [{"iterations": -1}, {"removed": 0}])
def test_no_such_search_free(options):
    with pytest.raises(InvalidInput, match="expected"):
        Free(**options)


@compiled
def numbers(seed, count, most):
    state, found, whole = np.full(1, seed, np.uint64), np.empty(count), np.empty(count, np.int64)
    for k in range(count):
        found[k] = draw(state)
        whole[k] = below(state, most)
    return found, whole


@compiled
def on_ring(t, ring, size, cost):
    left, seen = np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    worth = count_left(t, ring, len(ring), left)
    stretches(t, ring, len(ring), size, left, seen, cost)
    last = stretch(t, ring, len(ring), len(ring) - 1, size, seen)
    return worth, last, seen.sum()


@given(windows(), st.lists(st.floats(0, 2), max_size=2), st.data())
@settings(max_examples=60, deadline=None)
def test_what_stretches_cost(window, worth, data):
    """Of any ring: hops, and what the potential of the ring loses."""
    window = replace(window, potential=tuple(worth), sizes=np.array([1]))
    ring = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(window.idle))), min_size=1))))
    size = data.draw(st.integers(1, len(ring)))
    others = np.setdiff1d(np.arange(len(window.idle)), ring)
    cost = np.empty(len(ring))
    before, last, counted = on_ring(window.tables, ring, size, cost)
    assert before == pytest.approx(potential(window, Placed((others,))), abs=1e-6)
    for start in range(len(ring)):
        mine = np.sort(ring[(start + np.arange(size)) % len(ring)])
        after = potential(window, Placed((others, mine)))
        assert cost[start] == pytest.approx(job_cost(window, mine) + before - after, abs=1e-6 * window.price)
    assert last == pytest.approx(job_cost(window, mine)) and counted == 0


@given(windows(most_jobs=1))
@settings(max_examples=30, deadline=None)
def test_all_stretches_of_all_nodes(window):
    size = np.unique(window.sizes)
    cost = np.empty((1, len(window.idle)))
    all_stretches(window.tables, size, cost)
    places = np.arange(len(window.idle))
    expected = [job_cost(window, np.sort((start + np.arange(size[0])) % len(places))) for start in places]
    assert cost[0] == pytest.approx(np.array(expected))


def test_random_numbers():
    found, whole = numbers(7, 20_000, 5)
    assert found.min() >= 0 and found.max() < 1
    assert np.histogram(found, 10, (0, 1))[0] == pytest.approx(2000, rel=0.1)
    assert np.bincount(whole, minlength=5) == pytest.approx(4000, rel=0.1)
    assert numbers(7, 3, 5)[0].tolist() == found[:3].tolist() != numbers(8, 3, 5)[0].tolist()


def test_random_numbers_are_splitmix64():
    """The first output for seed 1234567 of the reference implementation (Vigna, 2015)."""
    first = numbers(1234567, 1, 2)[0][0]
    assert first == (6457827717110365317 >> 11) * 2.0**-53


@compiled
def solve(t, size, room, price, answer):
    return cheapest(tree_of(t, size), size, room, price, answer)


@compiled
def of_hops(t, size, has):
    return hops(tree_of(t, size), size, has, np.zeros(len(has), np.int64))


@compiled
def lost(t, room, price):
    return add_potential(tree_of(t, 1), room, np.zeros(len(room), np.int64), price)


def places(window, has):
    """The first idle nodes of each leaf switch."""
    leaf = window.tables.groups[0]
    return np.concatenate([np.flatnonzero(leaf == k)[:count] for k, count in enumerate(has)])


@given(windows(most_idle=9, most_jobs=1), st.data())
@UNTIMED
def test_one_job_goes_where_it_costs_least(window, data):
    """All ways to take nodes of leaf switches, some of which are gone, at any prices."""
    rooms = np.bincount(window.tables.groups[0])
    left = np.array([data.draw(st.integers(0, count)) for count in rooms.tolist()])
    size = data.draw(st.integers(1, max(1, int(left.sum()))))
    if size > left.sum():
        return
    price = np.array(data.draw(st.lists(st.floats(0, 2000), min_size=len(rooms), max_size=len(rooms))))
    paid = {
        has: job_cost(window, places(window, has)) + float(price @ np.array(has))
        for has in product(*(range(count + 1) for count in left.tolist()))
        if sum(has) == size
    }
    answer = np.zeros(len(rooms), dtype=np.int64)
    value = solve(window.tables, size, left, price, answer)
    assert value == pytest.approx(min(paid.values())) and paid[tuple(answer.tolist())] == pytest.approx(value)
    assert of_hops(window.tables, size, answer) + price @ answer == pytest.approx(value)


@given(windows(most_jobs=1), st.lists(st.floats(0, 2), min_size=2, max_size=2), st.data())
@UNTIMED
def test_what_a_job_takes_from_the_potential(window, worth, data):
    """With prices of first nodes, what it costs is its hops and what the potential loses."""
    window = replace(window, potential=tuple(worth))
    rooms = np.bincount(window.tables.groups[0])
    has, price, after = np.zeros_like(rooms), np.zeros(len(rooms)), np.zeros(len(rooms))
    before = lost(window.tables, rooms, price)
    size = data.draw(st.integers(1, len(window.idle)))
    value = solve(window.tables, size, rooms, price, has)
    gone = before - lost(window.tables, rooms - has, after)
    assert value == pytest.approx(of_hops(window.tables, size, has) + gone, abs=1e-6)


# -- Scas -------------------------------------------------------------------------------------------------------------

SCAS_SHARED = Path(__file__).parents[5] / "shared" / "data" / "tjap"


@given(windows(most_idle=9, most_jobs=3))
@settings(max_examples=150)
def test_it_is_the_best_of_all_there_are(window):
    found = Scas().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert cost(window, found) == pytest.approx(best_static(window))
    assert found.bound == pytest.approx(cost(window, found)) and found.status == "optimal"


@pytest.mark.parametrize("seed", range(6))
def test_it_costs_what_integer_programming_finds(seed):
    window = drawn(seed, idle=50, jobs=4)
    assert cost(window, Scas().place(window)) == pytest.approx(packing(window))


@pytest.mark.parametrize("seed", range(3))
def test_it_costs_what_the_model_of_the_paper_and_constraint_programming_find(seed):
    pytest.importorskip("ortools")
    from tests.lab.placement.tjap.solvers import intervals, paper_model

    window = drawn(seed, idle=24, jobs=3)
    assert cost(window, Scas().place(window)) == pytest.approx(paper_model(window))
    assert cost(window, Scas().place(window)) == pytest.approx(intervals(window), abs=1e-3)


def test_a_stretch_may_go_over_the_end():
    """The only way to have two pairs in one leaf switch each: the first node and the last one are below the same."""
    window = of_groups(np.array([[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]), grouped(range(4), [2, 2], below=[1, 1]))
    found = Scas().place(window)
    assert cost(window, found) == pytest.approx(best_static(window)) and is_static(window, found)
    one = grouped([0, 1, 2, 3, 4], [5], below=[2, 4])
    assert cost(one, Scas().place(one)) == pytest.approx(best_static(one))


@given(windows())
@settings(max_examples=60)
def test_the_other_way_round_it_costs_as_much(window):
    """Neither the direction of the ring matters, nor where it begins if whole pods are moved."""
    mirrored = of_groups(-window.groups[:, ::-1] + window.groups.max(axis=1, keepdims=True), window)
    assert cost(mirrored, Scas().place(mirrored)) == pytest.approx(cost(window, Scas().place(window)))
    first = window.groups[1] == window.groups[1, 0]
    beyond = 1 + window.groups.max(axis=1, keepdims=True)
    groups = np.hstack([window.groups[:, ~first], window.groups[:, first] + beyond])
    groups[-1] = 0
    turned = of_groups(groups, window)
    assert cost(turned, Scas().place(turned)) == pytest.approx(cost(window, Scas().place(window)))


@given(windows())
@settings(max_examples=60)
def test_without_room_for_tables_it_finds_what_bounds_tell_of(window):
    best = cost(window, Scas().place(window))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scas, "CELLS", 0)
        for width in (1, 50):
            found = Scas(width=width).place(window)
            assert violations(window, found) == [] and is_static(window, found) and found.status == "feasible"
            assert found.bound <= best * (1 + 1e-9) + 1e-9
            assert cost(window, found) >= best * (1 - 1e-9) - 1e-9


def test_large_windows():
    draw = np.random.default_rng(4)
    nodes = np.sort(draw.choice(27648, 2700, replace=False))
    window = grouped(nodes, draw.integers(2, 41, 100), below=[24, 576])
    found = Scas().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert found.bound <= cost(window, found) <= 1.02 * found.bound
    assert cost(window, Scas(width=2).place(window)) >= cost(window, found)


def test_all_jobs_have_one_node():
    window = replace(grouped([3, 4, 8], [1, 1, 1], below=[2, 4]))
    assert cost(window, Scas().place(window)) == 0.0


@given(windows(most_jobs=1), st.lists(st.floats(0, 2), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_with_a_potential_a_job_alone_goes_where_both_together_are_best(window, worth):
    window = replace(window, potential=tuple(worth))
    size = int(window.sizes[0])
    ways = [Placed((scas_stretch(window, at, size),)) for at in range(len(window.idle))]
    found = Scas().place(window)
    assert is_static(window, found) and violations(window, found) == []
    best = min(objective(window, way) for way in ways)
    assert objective(window, found) == pytest.approx(best, abs=1e-6 * window.price)


def test_a_potential_keeps_a_leaf_switch_whole():
    """Two nodes of the switch with two left cost as much as two of the one with four."""
    window = grouped([0, 1, 2, 3, 4, 5], [2], below=[4, 8])
    assert Scas().place(window).places[0].tolist() == [0, 1]
    assert Scas().place(replace(window, potential=(0.1,))).places[0].tolist() == [4, 5]


def test_no_such_width():
    with pytest.raises(InvalidInput, match="width 0"):
        Scas(width=0)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(not SCAS_SHARED.is_dir(), reason="no folder ../shared/data")
@pytest.mark.parametrize("name", ["tjap_code_cap5", "tjap_text_cap5"])
def test_windows_as_in_the_paper(name):
    """The optimum by integer programming (HiGHS), too, of all windows that this takes seconds for, not minutes."""
    chosen = [window for window in read_windows(SCAS_SHARED / f"{name}.json.gz") if len(window.idle) <= 120]
    assert len(chosen) > 100
    for window in chosen[::3]:
        assert cost(window, Scas().place(window)) == pytest.approx(packing(window), rel=1e-7)


# -- Together ---------------------------------------------------------------------------------------------------------

FADE = 100.0
POTENTIAL = (0.3, 0.1)


@st.composite
def cases(draw: st.DrawFn, most_jobs: int = 3) -> tuple[Window, Prospect]:
    """Twelve nodes in leaves of two and pods of four; some are idle, the others held."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most_jobs))
    idle = sorted(draw(st.sets(st.integers(0, 11), min_size=sum(sizes), max_size=12)))
    held = np.setdiff1d(np.arange(12), idle)
    times = st.sampled_from([0.0, 30.0, 100.0, 700.0])
    window = grouped(idle, sizes, below=[2, 4], potential=POTENTIAL)
    lasts = np.array([draw(times) for _ in sizes])
    groups = np.array([held // 2, held // 4, held * 0])
    return window, Prospect(lasts, groups, np.array([draw(times) for _ in held]))


def worth(window: Window, found: Placed, prospect: Prospect) -> float:
    """What all pairs of nodes below the same switches are worth: pair by pair, as the module's docstring has it."""
    free_in = np.zeros(len(window.idle))
    for places, lasts in zip(found.places, prospect.lasts, strict=True):
        free_in[places] = lasts
    times = np.concatenate([free_in, prospect.free_in])
    groups = np.concatenate([window.groups, prospect.groups], axis=1)
    total = 0.0
    for level, each in enumerate(window.potential):
        for one, two in combinations(range(len(times)), 2):
            if groups[level, one] == groups[level, two]:
                total += each * math.exp(-abs(times[one] - times[two]) / FADE)
    return window.price * total


def all_places(window: Window) -> list[Placed]:
    """Every way to place one job."""
    (size,) = window.sizes.tolist()
    return [Placed((np.array(places),)) for places in combinations(range(len(window.idle)), size)]


@settings(deadline=None, max_examples=100)
@given(cases(most_jobs=1))
def test_one_job_goes_where_it_costs_least_less_what_nodes_are_worth(case: tuple[Window, Prospect]) -> None:
    window, prospect = case

    def total(found: Placed) -> float:
        return cost(window, found) - worth(window, found, prospect)

    found = Together(fade=FADE).place_with(window, prospect)
    least = min(map(total, all_places(window)))
    # Ties are broken by random prices of nodes, up to a ten-thousandth of what a node costs.
    assert total(found) <= least + 1e-3 * window.price


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(0, 30))
def test_placements_keep_the_laws_and_the_window_is_left_as_it_was(
    case: tuple[Window, Prospect], iterations: int
) -> None:
    window, prospect = case
    before = window.idle.copy(), window.tables.groups.copy(), window.tables.kept.copy()
    for found in (Together(iterations=iterations).place_with(window, prospect), Together().place(window)):
        assert violations(window, found) == []
    assert all(np.array_equal(*pair) for pair in zip(before, (window.idle, *window.tables[::3]), strict=True))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_more_moves_are_never_worse(case: tuple[Window, Prospect]) -> None:
    window, prospect = case

    def total(iterations: int) -> float:
        found = Together(fade=FADE, iterations=iterations).place_with(window, prospect)
        return cost(window, found) - worth(window, found, prospect)

    assert total(60) <= total(0) + 1e-6


@settings(deadline=None, max_examples=60)
@given(cases())
def test_without_times_it_is_a_search_with_the_potential(case: tuple[Window, Prospect]) -> None:
    window, _ = case
    mine, other = Together(iterations=300).place(window), Free(iterations=300).place(window)
    assert abs(objective(window, mine) - objective(window, other)) <= 0.02 * window.price * len(window.idle)


def test_the_same_seed_makes_the_same_choices() -> None:
    window = grouped(range(0, 60, 2), [5, 7, 3], below=[4, 16], potential=POTENTIAL)
    first, second = (Together(seed=5).place(window) for _ in range(2))
    assert [places.tolist() for places in first.places] == [places.tolist() for places in second.places]


def test_held_nodes_below_switches_without_idle_nodes_do_not_count() -> None:
    window = grouped([0, 1, 2, 3], [2], below=[2, 4], potential=POTENTIAL)
    far = Prospect(np.array([50.0]), np.array([[7, 8], [3, 4], [0, 0]]), np.array([50.0, 10.0]))
    none = Prospect(np.array([50.0]), np.zeros((3, 0), np.int64), np.zeros(0))
    places = [Together().place_with(window, each).places[0].tolist() for each in (far, none)]
    assert places[0] == places[1]


def test_no_jobs_are_no_problem() -> None:
    assert Together().place(grouped([1, 2], [], below=[2])).places == ()


@pytest.mark.parametrize("options", [{"fade": 0.0}, {"fade": math.inf}, {"iterations": -1}, {"removed": 0}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        Together(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lasts", "groups", "free_in"),
    [([-1.0], [[0]], [1.0]), ([1.0], [[0]], [math.inf]), ([1.0], [[0]], [1.0, 2.0]), ([[1.0]], [[0]], [1.0])],
)
def test_odd_prospects_are_refused(lasts: list[float], groups: list[list[int]], free_in: list[float]) -> None:
    with pytest.raises(InvalidInput, match="prospect"):
        Prospect(np.array(lasts), np.array(groups), np.array(free_in))


def test_a_prospect_of_another_window_is_refused() -> None:
    window = grouped([0, 1, 2, 3], [2], below=[2, 4])
    with pytest.raises(InvalidInput, match="window of 1"):
        Together().place_with(window, Prospect(np.array([1.0, 2.0]), np.zeros((3, 0), np.int64), np.zeros(0)))


# -- Bounds -----------------------------------------------------------------------------------------------------------


@given(windows(most_idle=8, most_jobs=3))
@settings(max_examples=40, deadline=None)
def test_nothing_costs_less_and_its_prices_prove_it(window):
    best = best_free(window)
    for known in (None, best, 2 * best):
        bound, prices = priced_nodes(window, known)
        assert bound <= best * (1 + 1e-9) + 1e-9
        assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)


@given(windows(most_jobs=1))
@settings(max_examples=40, deadline=None)
def test_of_one_job_it_is_exact(window):
    assert priced_nodes(window)[0] == pytest.approx(cost(window, Free(iterations=5).place(window)))


def test_prices_prove_more_than_jobs_that_overlap():
    """Two jobs of four want the one switch that has four: without prices both have it."""
    window = grouped([0, 1, 2, 3, 4, 5, 8, 9], [4, 4], below=[4, 8], price=1.0)
    alone = proven(window, np.zeros(3))
    assert alone == pytest.approx(2 * 6 / 4)
    assert priced_nodes(window)[0] > 1.3 * alone


def test_it_is_near_what_is_found():
    for seed in range(5):
        window = drawn(seed, idle=100, jobs=4)
        known = cost(window, Free().place(window))
        assert 0.97 * known <= priced_nodes(window, known)[0] <= known * (1 + 1e-9)


def test_a_potential_is_no_matter_and_no_jobs_cost_nothing():
    window = drawn(0, idle=60, jobs=3)
    assert priced_nodes(replace(window, potential=(1.0, 1.0)))[0] == priced_nodes(window)[0]
    assert priced_nodes(grouped([1, 2], [], below=[2]))[0] == 0.0


def relaxation(window) -> float:
    """The linear program over all placements of each job at once, by HiGHS."""
    leaf, jobs = window.tables.groups[0], len(window.sizes)
    room = np.bincount(leaf)
    costs, columns = [], []
    for job, size in enumerate(window.sizes.tolist()):
        for has in product(*(range(count + 1) for count in room.tolist())):
            if sum(has) == size:
                places = np.concatenate([np.flatnonzero(leaf == k)[:count] for k, count in enumerate(has)])
                costs.append(job_cost(window, places))
                columns.append((job, has))
    choose = np.array([[job == mine for mine, _ in columns] for job in range(jobs)], dtype=float)
    take = np.array([has for _, has in columns], dtype=float).T
    found = linprog(costs, A_ub=take, b_ub=room, A_eq=choose, b_eq=np.ones(jobs))
    assert found.status == 0
    return float(found.fun)


@given(windows(most_idle=7, most_jobs=3))
@settings(max_examples=40, deadline=None)
def test_it_is_the_linear_relaxation_over_all_placements(window):
    bound, prices = dantzig_wolfe(window, Sequential().place(window))
    assert bound == pytest.approx(relaxation(window), rel=1e-6, abs=1e-6)
    assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)
    assert bound <= best_free(window) * (1 + 1e-9) + 1e-9


def test_it_is_at_least_the_lagrangian_bound():
    better = 0
    for seed in range(10):
        window = drawn(seed, idle=100, jobs=4)
        found = Free().place(window)
        known = cost(window, found)
        bound, lagrangian = dantzig_wolfe(window, found)[0], priced_nodes(window, known)[0]
        assert lagrangian <= bound * (1 + 1e-12) and bound <= known * (1 + 1e-9)
        better += bound > lagrangian * (1 + 1e-5)
    assert better >= 1


def test_no_jobs_cost_nothing():
    window = grouped([1, 2], [], below=[2])
    assert dantzig_wolfe(window, Sequential().place(window))[0] == 0.0


def test_it_is_a_bound_whenever_it_is_stopped(monkeypatch):
    window = drawn(3, idle=100, jobs=4)
    found = Free().place(window)
    whole, _ = dantzig_wolfe(window, found)
    monkeypatch.setattr("asa.lab.placement.tjap.bounds.ROUNDS", 2)
    bound, prices = dantzig_wolfe(window, found)
    assert bound <= whole * (1 + 1e-9)
    assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)


def test_without_the_solver(monkeypatch):
    window = drawn(3, idle=20, jobs=2)
    monkeypatch.setitem(sys.modules, "ortools.linear_solver.pywraplp", None)
    with pytest.raises(InvalidInput, match=r"this bound needs ortools: pip install 'asa-hpc\[cp\]'"):
        dantzig_wolfe(window, Free().place(window))


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
