"""What compiled placement methods share: the cost of stretches of a ring of nodes, and random numbers."""

from __future__ import annotations

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
    """Fill `ring` with the places that nobody holds; how many there are."""
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
