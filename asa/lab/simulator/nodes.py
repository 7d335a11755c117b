"""The nodes of a simulated machine, compiled: what they have left, and who holds it."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Ints
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.native import BLOCK, place
from asa.lab.simulator.state import NONE, State


@inner
def take(s: State, first: int, last: int, kind: int, units: int) -> None:
    """Give units of these nodes away, or take them back (negative)."""
    for node in range(first, last + 1):
        had = s.free[node, 0] > 0
        for k in range(s.free.shape[1]):
            s.free[node, k] -= units * s.demands[kind, k]
        has = s.free[node, 0] > 0
        if has != had:
            s.blocks[node // BLOCK] += 1 if has else -1


@inner
def hold(s: State, job: int, first: int, last: int, units: int) -> None:
    """These nodes give so many units each to a job."""
    world = s.world[0]
    take(s, first, last, s.jobs[job].kind, units)
    slot = world.vacant
    world.vacant = s.slots[slot].next
    world.vacancies -= 1
    row = s.slots[slot]
    row.first = first
    row.last = last
    row.units = units
    row.next = s.fates[job].held
    s.fates[job].held = slot
    if world.keeps_nodes:
        kept = s.placed[world.placed]
        kept.job = job
        kept.first = first
        kept.last = last
        kept.units = units
        world.placed += 1


@inner
def let_go(s: State, job: int) -> None:
    """A job's nodes are free again."""
    world = s.world[0]
    slot = s.fates[job].held
    while slot != NONE:
        row = s.slots[slot]
        take(s, row.first, row.last, s.jobs[job].kind, -row.units)
        behind = row.next
        row.next = world.vacant
        world.vacant = slot
        world.vacancies += 1
        slot = behind
    s.fates[job].held = NONE
    if world.slots >= 0:
        world.free += s.jobs[job].units


@compiled
def find(s: State, job: int) -> int:
    """Nodes for a job, into ``s.runs``; how many runs of them, 0 when there is no room."""
    world = s.world[0]
    row = s.jobs[job]
    need = s.demands[row.kind]
    if not world.special:
        return int(place(world.placement, s.free, need, row.units, row.per_node, s.blocks, s.runs))
    free = visible(s, job)
    blocks = np.zeros_like(s.blocks)
    for node in range(free.shape[0]):
        blocks[node // BLOCK] += free[node, 0] > 0
    return int(place(world.placement, free, need, row.units, row.per_node, blocks, s.runs))


@compiled
def visible(s: State, job: int) -> Ints:
    """What a job may take of the nodes: all of what is shared, and nothing outside its partition."""
    free = s.free.copy()
    for k in range(len(s.shared)):
        if s.shared[k]:
            for node in range(free.shape[0]):
                free[node, k] = s.capacity[node, k]
    for node in range(free.shape[0]):
        if not s.partitions[max(s.jobs[job].partition, 0), node]:
            for k in range(free.shape[1]):
                free[node, k] = 0
    return free


@inner
def recount(s: State, node: int, sign: int) -> None:
    """Units that come or go with a node, on a machine of slots."""
    world = s.world[0]
    if world.slots >= 0:
        units = sign * fit(s.full[node], s.demands[world.kind])
        world.slots += units
        world.free += units


@inner
def fit(amounts: Ints, need: Ints) -> int:
    """How many units these amounts hold."""
    most = np.iinfo(np.int64).max
    for k in range(len(need)):
        if need[k] > 0:
            most = min(most, amounts[k] // need[k])
    return most
