"""What compiled placement methods share: costs on a ring of nodes and in a tree of switches, random numbers.

Where one job costs least, if it may have any idle nodes: a knapsack in every switch, from the leaves up.

Nodes below one leaf switch are alike, so that a placement is how many nodes of each leaf switch a job has. What is
saved is a sum over switches, of a number that depends on how many of the job's nodes are below each. So the best for
every number of nodes below a switch follows from the same of the switches below that one, each once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner, inner_allocating
from asa.lab.placement.tjap.instance import Tables

Random = npt.NDArray[np.uint64]
"""A state of `draw`, shape (1,)."""


@inner
def draw(state: Random) -> float:
    """A number in [0, 1); splitmix64 (Steele, Lea and Flood, OOPSLA 2014). The state is the caller's own."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * 2.0**-53


@inner
def temperature(scale: float, hot: float, cold: float, progress: float) -> float:
    """Temperature at a share of the search: it falls geometrically from `hot` to `cold`, both in units of `scale`."""
    return float(scale * hot * (cold / hot) ** progress)


@inner
def accepts(state: Random, found: float, known: float, heat: float) -> bool:
    """Metropolis' rule: what costs no more is accepted, and what costs more now and then."""
    return bool(found <= known or (heat > 0 and draw(state) < math.exp((known - found) / heat)))


@inner
def below(state: Random, count: int) -> int:
    """A whole number from 0 to `count` - 1."""
    return min(int(draw(state) * count), count - 1)


@inner
def stretches(t: Tables, ring: Ints, count: int, size: int, left: Ints, seen: Ints, cost: Floats) -> None:
    """What a job of `size` nodes costs on each stretch of a ring, which goes on at its beginning after its end.

    That is its cost of hops, and the potential that the nodes left idle lose. Where c of them are below a switch, these
    lose c - 1 pairs with the first that is taken, c - 2 with the next, and so on.

    Parameters
    ----------
    ring
        Places of idle nodes, rising; the first `count` of them are the ring.
    left
        How many nodes of the ring are below each switch, shape (levels, N); not read without a potential.
    seen
        Room to count in, shape (levels, N); all 0 before and after.
    cost
        The answer: by the stretch's first place in the ring, shape (>= count,).
    """
    levels = len(t.saved) - 1
    pairs, saved = t.far * (size * (size - 1) / 2), 0.0
    for k in range(size):
        for level in range(levels):
            group = t.groups[level, ring[k]]
            saved += t.saved[level] * seen[level, group]
            if t.kept[level] > 0:
                saved -= size * t.kept[level] * (left[level, group] - seen[level, group] - 1)
            seen[level, group] += 1
    cost[0] = (pairs - saved) / size
    into = size % count
    for start in range(1, count):
        for level in range(levels):
            group = t.groups[level, ring[start - 1]]
            seen[level, group] -= 1
            saved -= t.saved[level] * seen[level, group]
            if t.kept[level] > 0:
                saved += size * t.kept[level] * (left[level, group] - seen[level, group] - 1)
            group = t.groups[level, ring[into]]
            saved += t.saved[level] * seen[level, group]
            if t.kept[level] > 0:
                saved -= size * t.kept[level] * (left[level, group] - seen[level, group] - 1)
            seen[level, group] += 1
        cost[start] = (pairs - saved) / size
        into = into + 1 if into + 1 < count else 0
    into = count - 1
    for _ in range(size):  # the last stretch: the ring's last place, and those from its first one on
        for level in range(levels):
            seen[level, t.groups[level, ring[into]]] -= 1
        into = into + 1 if into + 1 < count else 0


@compiled
def all_stretches(t: Tables, size: Ints, cost: Floats) -> None:
    """Fill `cost`, shape (sorts, N), with what one job of each size costs on each stretch of all nodes; `stretches`."""
    ring, shape = np.arange(t.groups.shape[1]), t.groups.shape
    left, seen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    count_left(t, ring, len(ring), left)
    for sort in range(len(size)):
        stretches(t, ring, len(ring), size[sort], left, seen, cost[sort])


@inner
def rest_of(owner: Ints, ring: Ints) -> int:
    """Fill `ring` with the places that no job holds; how many there are."""
    count = 0
    for place in range(len(owner)):
        if owner[place] < 0:
            ring[count] = place
            count += 1
    return count


@inner
def count_left(t: Tables, ring: Ints, count: int, left: Ints) -> float:
    """Fill `left`, shape (levels, N), with how many of the first `count` nodes of a ring are below each switch.

    What their potential is. Without a potential nothing is done, and `left` stays as it is.
    """
    worth = 0.0
    for level in range(len(t.kept) - 1):
        if t.kept[level] > 0:
            left[level, :] = 0
            for k in range(count):
                group = t.groups[level, ring[k]]
                worth += t.kept[level] * left[level, group]
                left[level, group] += 1
    return worth


@inner
def take(owner: Ints, ring: Ints, count: int, start: int, size: int, job: int) -> None:
    """Give a job the stretch of a ring that begins there."""
    at = start
    for _ in range(size):
        owner[ring[at]] = job
        at = at + 1 if at + 1 < count else 0


@inner
def stretch(t: Tables, ring: Ints, count: int, start: int, size: int, seen: Ints) -> float:
    """What a job pays for hops on the stretch of a ring that begins there; `seen` as in `stretches`."""
    levels = len(t.saved) - 1
    saved, at = 0.0, start
    for _ in range(size):
        for level in range(levels):
            group = t.groups[level, ring[at]]
            saved += t.saved[level] * seen[level, group]
            seen[level, group] += 1
        at = at + 1 if at + 1 < count else 0
    at = start
    for _ in range(size):
        for level in range(levels):
            seen[level, t.groups[level, ring[at]]] -= 1
        at = at + 1 if at + 1 < count else 0
    return (t.far * (size * (size - 1) / 2) - saved) / size


@inner_allocating
def paid(t: Tables, owner: Ints, jobs: int, ring: Ints, seen: Ints) -> Floats:
    """What each job pays for hops where it is, shape (J,); `ring` and `seen` are room to work in."""
    spent = np.empty(jobs)
    for job in range(jobs):
        count = 0
        for place in range(len(owner)):
            if owner[place] == job:
                ring[count] = place
                count += 1
        spent[job] = stretch(t, ring, count, 0, count, seen)
    return spent


@inner
def give_back(owner: Ints, chosen: Ints, count: int) -> None:
    """Take the nodes of the first `count` of these jobs from them."""
    for place in range(len(owner)):
        for k in range(count):
            if owner[place] == chosen[k]:
                owner[place] = -1


@inner
def some_jobs(state: Random, chosen: Ints, count: int) -> None:
    """Move `count` jobs drawn at random to the front of `chosen`, which has all of them."""
    for k in range(count):
        other = k + below(state, len(chosen) - k)
        chosen[k], chosen[other] = chosen[other], chosen[k]


@inner
def sort_front(chosen: Ints, count: int, key: Ints) -> None:
    """Sort the first `count` of these jobs by rising key."""
    for k in range(1, count):
        job, at = chosen[k], k
        while at > 0 and key[chosen[at - 1]] > key[job]:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = job


# -- Trees ------------------------------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """The leaf switches of a window, F of them, and room to work in.

    Parameters
    ----------
    above
        The switch of each level that a leaf switch is below, shape (levels, F); row 0 is the leaf switch itself.
    top
        The highest level at which the leaf switch is the last one below its switch, shape (F,).
    room
        How many idle nodes are below each leaf switch, shape (F,).
    saved, kept, far
        As in `Tables`.
    each
        What a pair of the job's nodes below the same switch of a level saves now, shape (levels,).
    best, filled
        Of the switch of each level that is open, by nodes of the job below it: what is saved, shape (levels, most + 1),
        and up to how many nodes that is known, shape (levels,).
    given, passed, known
        What was chosen: nodes from each leaf switch by nodes in the switch above so far, shape (F, most + 1); and of
        each switch by level, from it and from those before it, shape (levels, F, most + 1) and (levels, F).
    """

    above: Ints
    top: Ints
    room: Ints
    saved: Floats
    kept: Floats
    far: float
    each: Floats
    best: Floats
    filled: Ints
    given: Ints
    passed: Ints
    known: Ints


@inner_allocating
def tree_of(t: Tables, most: int) -> Tree:
    """The leaf switches of a window, and room to work for jobs of at most so many nodes."""
    levels, nodes = t.groups.shape
    leaves = t.groups[0, nodes - 1] + 1
    above, top, room = np.empty((levels, leaves), np.int64), np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
    for place in range(nodes):
        leaf = t.groups[0, place]
        room[leaf] += 1
        for level in range(levels):
            above[level, leaf] = t.groups[level, place]
    for leaf in range(leaves):
        for level in range(levels):
            if leaf + 1 == leaves or above[level, leaf + 1] != above[level, leaf]:
                top[leaf] = level
    best, filled, given = (
        np.zeros((levels, most + 1)),
        np.zeros(levels, np.int64),
        np.zeros((leaves, most + 1), np.int64),
    )
    passed, known = np.zeros((levels, leaves, most + 1), np.int64), np.zeros((levels, leaves), np.int64)
    return Tree(above, top, room, t.saved, t.kept, t.far, t.saved.copy(), best, filled, given, passed, known)


@inner
def cheapest(tree: Tree, size: int, room: Ints, price: Floats, answer: Ints) -> float:
    """Fill `answer`, shape (F,), with where a job costs least, nodes included; what that is.

    `room`, the nodes left below each leaf switch, and `price`, of one of these, have shape (F,).

    Of the potential that is lost, only what pairs of the job's own nodes count twice is taken off here: what its nodes
    lose one by one is a price of nodes (`add_potential`).
    """
    levels, leaves = tree.above.shape
    for level in range(levels):
        tree.best[level, 0] = 0.0
        tree.filled[level] = 0
        tree.each[level] = tree.saved[level] + size * tree.kept[level]
    for leaf in range(leaves):
        if room[leaf] > 0:
            add_leaf(tree, leaf, min(room[leaf], size), size, price[leaf] * size)
        for level in range(1, min(tree.top[leaf], levels - 2) + 1):
            close(tree, level, tree.above[level, leaf], size)
    left = tree.filled  # from here on: how many of the job's nodes are still to be found in the open switch
    left[levels - 1] = size
    for leaf in range(leaves - 1, -1, -1):
        for level in range(min(tree.top[leaf], levels - 2), 0, -1):
            group = tree.above[level, leaf]
            left[level] = tree.passed[level, group, left[level + 1]] if tree.known[level, group] > 0 else 0
            left[level + 1] -= left[level]
        answer[leaf] = tree.given[leaf, left[1]] if room[leaf] > 0 else 0
        left[1] -= answer[leaf]
    return float((tree.far * (size * (size - 1) / 2) - tree.best[levels - 1, size]) / size)


@inner
def add_leaf(tree: Tree, leaf: int, most: int, size: int, price: float) -> None:
    """What is saved with up to `most` nodes of a leaf switch, too, in the open switch above it."""
    best, given, known, each = tree.best, tree.given, tree.filled[1], tree.each[0] / 2
    upto = min(size, known + most)
    for count in range(upto, -1, -1):
        value, chosen = -math.inf, 0
        for mine in range(max(0, count - known), min(most, count) + 1):
            other = best[1, count - mine] + mine * (each * (mine - 1) - price)
            if other > value:
                value, chosen = other, mine
        best[1, count] = value
        given[leaf, count] = chosen
    tree.filled[1] = upto


@inner
def close(tree: Tree, level: int, group: int, size: int) -> None:
    """What is saved with nodes of the open switch of a level, too, in the open switch above it; it is open no more."""
    best, passed, most, known = tree.best, tree.passed, tree.filled[level], tree.filled[level + 1]
    tree.known[level, group] = most
    if most == 0:
        return
    for count in range(most + 1):
        best[level, count] += tree.each[level] * (count * (count - 1) / 2)
    upto = min(size, known + most)
    for count in range(upto, -1, -1):
        value, chosen = -math.inf, 0
        for mine in range(max(0, count - known), min(most, count) + 1):
            other = best[level + 1, count - mine] + best[level, mine]
            if other > value:
                value, chosen = other, mine
        best[level + 1, count] = value
        passed[level, group, count] = chosen
    tree.filled[level + 1], tree.filled[level] = upto, 0
    best[level, 0] = 0.0


@inner
def hops(tree: Tree, size: int, has: Ints, below: Ints) -> float:
    """What a job pays for hops that has so many nodes of each leaf switch, shape (F,); `below` is room for as many."""
    levels, leaves = tree.above.shape
    saved = 0.0
    for level in range(levels - 1):
        for leaf in range(leaves):
            group = tree.above[level, leaf]
            if leaf == 0 or group != tree.above[level, leaf - 1]:
                below[group] = 0
            saved += tree.saved[level] * (has[leaf] * below[group] + has[leaf] * (has[leaf] - 1) / 2)
            below[group] += has[leaf]
    return float((tree.far * (size * (size - 1) / 2) - saved) / size)


@inner
def add_potential(tree: Tree, room: Ints, below: Ints, price: Floats) -> float:
    """Add to `price`, shape (F,), what a first node of each leaf switch takes from the potential of what is left there.

    `room`, the nodes left there, and `below`, room to work in, have shape (F,), too.

    Returns
    -------
    The potential of what is left.
    """
    levels, leaves = tree.above.shape
    worth = 0.0
    for level in range(levels - 1):
        if tree.kept[level] == 0:
            continue
        below[:] = 0
        for leaf in range(leaves):
            below[tree.above[level, leaf]] += room[leaf]
        for leaf in range(leaves):
            price[leaf] += tree.kept[level] * (below[tree.above[level, leaf]] - 1)
        for group in range(leaves):
            worth += tree.kept[level] * (below[group] * (below[group] - 1) / 2)
    return worth
