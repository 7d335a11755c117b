"""Neural simulated annealing: annealing whose jobs a trained network puts back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.core.workload import Reals
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import (
    Random,
    below,
    count_left,
    draw,
    give_back,
    paid,
    rest_of,
    some_jobs,
    sort_front,
    stretch,
    take,
)
from asa.lab.placement.tjap.nsa_network import NONE, PLACES, Network, forward, read_network, widest
from asa.lab.placement.tjap.seq import in_order

MODEL = Path(__file__).parent / "models" / "nsa.safetensors"
"""The model that ships with ASA; docs/nsa.md tells how it was trained."""


class Neural:
    """As `asa.lab.placement.tjap.anneal.Anneal`, but for where a job that was taken out begins: a network draws that.

    Parameters
    ----------
    iterations, warmest, coldest, removed, seed
        As there.
    tries
        How many places are drawn for a job, with one run of the network; it goes where its hops cost least of them.
        More of them make annealing better that is short, and worse that is long.
    anywhere
        Where more nodes are left than the network sees, whether it sees those from a random one on; else the first
        ones, as in the paper, where no job begins anywhere else then.
    model
        File of a network that `asa train nsa` wrote; None for the one that ships with ASA; ``"none"`` for no network:
        all places are as likely, which tells what the network is worth.

    Raises
    ------
    InvalidInput
        When an option is out of its range, or the file is no such network.

    References
    ----------
    Algorithm 1 and section V-B of the paper.
    """

    def __init__(
        self,
        *,
        iterations: int = 500,
        warmest: float = 2500.0,
        coldest: float = 2.5,
        removed: int = 2,
        tries: int = 1,
        anywhere: bool = True,
        model: str | None = None,
        seed: int = 0,
    ) -> None:
        if iterations < 0 or removed < 1 or tries < 1 or not warmest >= coldest > 0:
            raise InvalidInput(
                f"{iterations} iterations, {removed} jobs removed, {tries} tries, temperatures from {warmest:g} to "
                f"{coldest:g}: at least 0, at least 1, at least 1, and falling, above 0, expected"
            )
        self._moves, self._temperatures, self._seed = (iterations, removed, tries, anywhere), (warmest, coldest), seed
        self._network = NONE if model == "none" else read_network(model or MODEL)

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""
        state = np.array([self._seed], dtype=np.uint64)
        room = np.zeros((2, widest(self._network)), np.float32)
        search = window.tables, window.sizes, in_order(window), places_of(window)
        owner = neural(*search, self._network, room, self._moves, self._temperatures, state)
        return placed(owner, len(window.sizes))


def places_of(window: Window) -> Reals:
    """Of each idle node its leaf switch, and the switch above that: numbers in (0, 1], shape (2, N).

    The paper divides by how many switches there are. A window only knows those with idle nodes: the last of them is 1.
    """
    groups = window.groups[np.minimum([0, 1], len(window.groups) - 1)]
    return np.asarray((groups + 1) / (groups[:, -1:] + 1), dtype=np.float32)


@inner
def rotate(ring: Ints, count: int, by: int, again: Ints) -> None:
    """Turn a ring of so many places, so that it begins `by` places later; `again` is room to work in."""
    for k in range(count):
        again[k] = ring[k]
    for k in range(count):
        ring[k] = again[k + by if k + by < count else k + by - count]


@inner
def observe(
    t: Tables, where: Reals, scale: tuple[bool, float], ring: Ints, asked: tuple[int, int, float], state: Reals
) -> None:
    """Fill `state` with what the network sees: attribute after attribute of the first `PLACES` nodes left, then zeros.

    The attributes of section V-B: (1) the leaf switch and (2) the switch above it, as numbers; (3) nodes that the job
    asks for; (4) what the others that are still out ask for in the mean; (3) and (4) in shares of the most that a job
    asks for. For a network of ``"steps"``, (1) and (2) are how many nodes of the ring are below the same switch from
    this one on, in shares of the most that a job asks for.

    Parameters
    ----------
    where
        See `places_of`.
    scale
        Whether the network is one of ``"steps"``, and the most that a job asks for.
    asked
        How many places `ring` has, (3) and (4) in nodes.
    state
        Shape (>= ATTRIBUTES * PLACES,).
    """
    steps, biggest = scale
    count, size, others = asked
    seen = min(count, PLACES)
    for k in range(4 * PLACES):
        state[k] = 0.0
    mine, theirs, unit = np.float32(size / biggest), np.float32(others / biggest), 1.0 / biggest
    for k in range(seen):
        state[2 * PLACES + k] = mine
        state[3 * PLACES + k] = theirs
    for level in range(2):
        if not steps:
            for k in range(seen):
                state[level * PLACES + k] = where[level, ring[k]]
            continue
        switch, end = t.groups[min(level, len(t.groups) - 1)], seen
        while end < count and switch[ring[end]] == switch[ring[seen - 1]]:
            end += 1
        for k in range(seen - 1, -1, -1):
            if k + 1 < seen and switch[ring[k]] != switch[ring[k + 1]]:
                end = k + 1
            state[level * PLACES + k] = min((end - k) * unit, 1.0)


@inner
def weigh(scores: Reals, seen: int) -> float:
    """Turn the scores of the first actions into weights, by which they are drawn; their sum. Others are masked."""
    most, total = scores[0], 0.0
    for k in range(1, seen):
        most = max(most, scores[k])
    for k in range(seen):
        scores[k] = math.exp(scores[k] - most)
        total += scores[k]
    return total


@inner
def drawn(weights: Reals, seen: int, total: float, state: Random) -> int:
    """One of the first actions, by weight."""
    rest = draw(state) * total
    for k in range(seen - 1):
        rest -= weights[k]
        if rest < 0:
            return k
    return seen - 1


@compiled
def neural(
    t: Tables,
    sizes: Ints,
    owner: Ints,
    where: Reals,
    network: Network,
    room: Reals,
    moves: tuple[int, int, int, bool],
    temperatures: tuple[float, float],
    state: Random,
) -> Ints:
    """The best placement met on the way from `owner`, which is changed; see `Neural`."""
    iterations, removed, tries, anywhere = moves
    jobs, seen, left = len(sizes), np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    guided = len(network.layers) > 0
    ring, again = np.empty(len(owner), np.int64), np.empty(len(owner), np.int64)
    rank, last, chosen, before = -sizes, owner.copy(), np.arange(jobs), np.empty(jobs)
    spent: Floats = paid(t, owner, jobs, ring, seen)
    known = spent.sum() - count_left(t, ring, rest_of(owner, ring), left)
    best, kept = known, owner.copy()
    cooling = math.log(temperatures[1] / temperatures[0])
    for turn in range(iterations):
        heat = temperatures[0] * math.exp(cooling * turn / iterations)
        last[:], before[:] = owner, spent
        many = 1 + below(state, min(removed, jobs))
        some_jobs(state, chosen, many)
        sort_front(chosen, many, rank)
        give_back(owner, chosen, many)
        count = rest_of(owner, ring)
        for k in range(many):
            job, others, within, total, weights = chosen[k], 0.0, min(count, PLACES), 0.0, room[0]
            if guided:
                for other in range(k + 1, many):
                    others += sizes[chosen[other]] / (many - 1 - k)
                if anywhere and count > PLACES:
                    rotate(ring, count, below(state, count), again)
                observe(t, where, (network.steps, network.biggest), ring, (count, sizes[job], others), room[0])
                weights = room[forward(network, room, within)]
                total = weigh(weights, within)
            start, spent[job] = 0, math.inf
            for _ in range(tries):
                at = drawn(weights, within, total, state) if guided else below(state, count)
                there = stretch(t, ring, count, at, sizes[job], seen)
                if there < spent[job]:
                    start, spent[job] = at, there
            take(owner, ring, count, start, sizes[job], job)
            count = rest_of(owner, ring)
        found = spent.sum() - count_left(t, ring, count, left)
        if found <= known or draw(state) < math.exp((known - found) / heat):
            known = found
            if found < best:
                best = found
                kept[:] = owner
        else:
            owner[:], spent[:] = last, before
    return kept
