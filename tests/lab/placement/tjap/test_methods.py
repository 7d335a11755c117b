from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.anneal import Anneal
from asa.lab.placement.tjap.dcas import DcasAlns
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import (
    Placed,
    cost,
    grouped,
    is_dynamic,
    is_static,
    job_cost,
    objective,
    potential,
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
from asa.lab.placement.tjap.scas import Scas
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.brute import UNTIMED
from tests.lab.placement.tjap.windows import best_dynamic, best_free, best_static, drawn, subsets, windows


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
