"""The whole loop, compiled, for dispatchers that are a backfilling rule: advance, decide, apply, again.

It calls the very functions that the engine and `Backfill` call one by one; a test holds the two against each other.
"""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner
from asa.lab.core.ranking import picked, ranking
from asa.lab.dispatchers.nodescan import scan_nodes
from asa.lab.dispatchers.order import queue_key
from asa.lab.dispatchers.scan import scan
from asa.lab.simulator.calendar import advance, spare
from asa.lab.simulator.machine import start
from asa.lab.simulator.nodes import find
from asa.lab.simulator.priority import FIFO, prioritise
from asa.lab.simulator.state import DECIDE, GROW, NONE, State
from asa.lab.simulator.waitlist import leave


@compiled
def drive(
    s: State,
    until: float,
    depth: float,
    limit: int,
    order: int,
    threshold: float,
    weights: Floats,
    promise: bool,
    most: int,
) -> int:
    """Run until `until` [s], until nothing more happens, or for `most` decisions; why it came back.

    `order` is a code of `asa.lab.dispatchers.order`, or -1, with its `threshold` [s]; `weights` the priority model's.
    """
    world = s.world[0]
    starts, promised = np.empty(64, np.int64), np.empty(64)
    runs = np.empty((0, 4), np.int64)
    while True:
        why = advance(s, until)
        if why != DECIDE:
            return why
        if most == 0:
            return DECIDE
        most -= 1
        if world.waiting > len(starts):
            starts, promised = np.empty(2 * world.waiting, np.int64), np.empty(2 * world.waiting)
        world.dirty = 0
        if world.waiting == 0 or (world.free == 0 and world.slots >= 0 and not promise):
            continue
        world.decisions += 1
        waiting = ranked(s, order, threshold, weights)
        if world.slots >= 0:
            started = scan(
                world.now, depth, limit, world.free, world.slots, s.jobs, waiting,
                s.active[: world.running], s.ends[: world.running], starts, promised, promise,
            )  # fmt: skip
        else:
            release_at, release = releases(s)
            started, runs = scan_nodes(
                world.now, depth, limit, world.placement, s.jobs, s.demands, waiting,
                release_at, release, s.free, s.partitions, starts, promised,
            )  # fmt: skip
        if promise:
            for k in range(min(limit, len(waiting))):
                s.jobs[waiting[k]].planned = promised[k]
        if started == 0:
            continue
        everybody = len(waiting) <= limit
        if not begin(s, picked(waiting, starts[:started]), starts, runs):
            world.dirty = 1  # what could not start yet is decided again
            return GROW
        if everybody and world.edges == 0:
            world.dirty = 0  # asked again at once, the rule would start nobody else


@compiled
def ranked(s: State, order: int, threshold: float, weights: Floats) -> Ints:
    """The waiting rows in order: by the machine's priorities, and then by the dispatcher's own order."""
    world = s.world[0]
    waiting = s.queue[: world.waiting]
    if weights[0] != FIFO:
        waiting = prioritise(s, weights)
    if order < 0:
        return waiting
    keys = np.empty(len(waiting))
    for k in range(len(waiting)):
        job = s.jobs[waiting[k]]
        keys[k] = queue_key(order, threshold, world.now, job.submit, job.estimate, job.cores)
    return picked(waiting, ranking(keys))


@inner
def begin(s: State, rows: Ints, starts: Ints, runs: Ints) -> bool:
    """Start these rows; False when the tables lack the room for all of them.

    `runs` tells the nodes where the machine does not choose them: position in the queue as it was, first node, last
    node, units of each.
    """
    k = 0
    for i in range(len(rows)):
        if not has_room(s):
            return False
        count = 0
        while k < len(runs) and runs[k, 0] == starts[i]:
            for column in range(3):
                s.runs[count, column] = runs[k, column + 1]
            count, k = count + 1, k + 1
        if count == 0:
            count = find(s, rows[i])
        leave(s, rows[i])
        start(s, rows[i], count)
    return True


@compiled
def has_room(s: State) -> bool:
    """Whether the tables have room for one more start."""
    world = s.world[0]
    return spare(s) and world.vacancies >= len(s.runs) and len(s.placed) - world.placed >= len(s.runs)


@compiled
def releases(s: State) -> tuple[Floats, Ints]:
    """When what runs is expected to end [s], in order, and what comes back: first node, last node, units, kind."""
    world = s.world[0]
    count = 0
    for k in range(world.running):
        slot = s.fates[s.active[k]].held
        while slot != NONE:
            count += 1
            slot = s.slots[slot].next
    at, what = np.empty(count), np.empty((count, 4), np.int64)
    row = 0
    for k in range(world.running):
        slot = s.fates[s.active[k]].held
        while slot != NONE:
            held = s.slots[slot]
            at[row] = s.ends[k]
            what[row, 0], what[row, 1], what[row, 2] = held.first, held.last, held.units
            what[row, 3] = s.jobs[s.active[k]].kind
            row += 1
            slot = held.next
    return at, what
