"""The event loop of the simulator, compiled: time passes, events take effect, a backfilling rule decides.

Every function changes the state and nothing else; none decides anything. Room in the tables is the caller's business
(`asa.lab.simulator.loop.spare`).

It calls the very functions that the engine and `Backfill` call one by one; a test holds the two against each other.
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.job import QueueRegime
from asa.lab.core.compiled import compiled, inner, inner_allocating, picked, ranking
from asa.lab.core.table import CANCELS, EXEMPT
from asa.lab.dispatchers.backfill import (
    BackfillRule,
    narrowed,
    queue_keys,
    resized,
    scan,
    scan_nodes,
    scan_widths,
    widen,
)
from asa.lab.placement.nodes import BLOCK, close, place, place_within
from asa.lab.simulator.limits import (
    CORE_MINUTES,
    CORE_RUN_MINUTES,
    COUNTER,
    GPU_RUN_MINUTES,
    HALF_LIFE,
    IN_ALL,
    KIND,
    LEFT,
    MOST,
    NO_LIMIT,
    RATE,
    SINCE,
    SUBMITTED_JOBS,
    USED,
    WALL_MINUTES,
)
from asa.lab.simulator.settings import FIFO, NICED
from asa.lab.simulator.state import (
    AFTER,
    AFTER_OK,
    BEGIN,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DECIDE,
    DEPENDENCY,
    DEPTH,
    DOWN,
    EARLY_END,
    ELIGIBLE,
    END,
    ENDED,
    FAILED,
    FINISHED,
    GROW,
    HELD,
    JOB_CHANGED,
    LOOK,
    NODE_DOWN,
    NODE_FAIL,
    NODE_UP,
    NONE,
    NOT_SUBMITTED,
    OPEN,
    OVER,
    PARENT,
    PREEMPTED,
    REQUEUED,
    RESIZED,
    RUNNING,
    SHARE,
    SPEED,
    STARTED,
    SUBMIT,
    SUBMITTED,
    TIMEOUT,
    UNTIL,
    UP,
    WAITING,
    SimulationState,
)

_NEVER = float("inf")

LOOKS_S = 1.0
"""Where gaps are filled at intervals, Slurm's main scheduler starts jobs in between, once a second [s]."""

ROUNDING_S = 1e-6
"""How far the end of a job's work and that of its wall time, where the two are one, are apart after resizes [s]."""

# -- Order of the queue -----------------------------------------------------------------------------------------------


@inner_allocating
def prioritise(s: SimulationState, weights: Floats) -> Ints:
    """The waiting rows, in order of priority; equal ones by place."""
    world = s.world[0]
    waiting = s.queue[: world.waiting]
    keys = np.empty(len(waiting))
    if weights[0] == NICED:
        for k in range(len(waiting)):
            keys[k] = s.jobs[waiting[k]].place + s.jobs[waiting[k]].nice
        return picked(waiting, ranking(keys))
    cores = 0
    for node in range(len(s.full)):
        cores += s.full[node, 0]
    if weights[3] > 0:
        renew_shares(s)
    for k in range(len(waiting)):
        job = s.jobs[waiting[k]]
        age = min(1.0, max(0.0, world.now - job.accrue) / weights[5])
        association = s.job_states[waiting[k]].association
        share = s.usage[association, 2] if association >= 0 else 1.0
        value = weights[1] * age + weights[2] * job.cores / cores + weights[3] * share + weights[4] * job.qos - job.nice
        keys[k] = -max(value, 1.0)  # no priority is below 1
    return picked(waiting, ranking(keys))


@inner_allocating
def renew_shares(s: SimulationState) -> None:
    """Make all fair-share factors anew, if it is time."""
    world = s.world[0]
    if world.calc_period > 0 and world.now // world.calc_period == world.calculated // world.calc_period:
        return
    world.calculated = world.now
    used = np.zeros(max(len(s.usage), len(s.tree)))
    for row in range(len(s.usage)):
        used[row] = _left(s, row)
    for k in range(world.running):
        row = s.job_states[s.active[k]].association
        if row >= 0:
            used[row] += _spent(s, s.active[k])
    if len(s.tree) > 0:
        rank_shares(s, used)
        return
    total = used.sum()
    for row in range(len(s.usage)):
        s.usage[row, 2] = 2.0 ** -(used[row] / total * len(s.usage)) if total > 0 else 1.0


@inner
def _left(s: SimulationState, row: int) -> float:
    """What jobs of an association that have ended had used, decayed [core-s]."""
    world = s.world[0]
    return decayed(s.usage[row, 0], world.now - s.usage[row, 1], world.half_life)


@inner
def _spent(s: SimulationState, job: int) -> float:
    """What a running job has used and was not charged for yet, decayed [core-s]."""
    world = s.world[0]
    begun = s.job_states[job].charged if s.jobs[job].malleable else s.jobs[job].started
    return float(s.jobs[job].cores * counting(world.now - begun, world.half_life))


@inner
def decayed(amount: float, age: float, half_life: float) -> float:
    """What counts of an amount after some time [s]."""
    return float(amount * 0.5 ** (max(age, 0.0) / half_life))


@inner
def counting(ran: float, half_life: float) -> float:
    """How much of the time counts that a job has run up to now [s]."""
    mean_life = half_life / math.log(2.0)
    return -math.expm1(-ran / mean_life) * mean_life if mean_life < _NEVER else ran


@inner_allocating
def rank_shares(s: SimulationState, used: Floats) -> None:
    """Fair Tree: users are ranked by going down the tree, at each level first to those who used least of their shares.

    Equal users have the same rank; the users of equal accounts are ranked together; beside a user who is equal to an
    account the first user of that has the same rank. (In Slurm not where an account without users comes first there.)
    `used` has a place for each row of the tree.
    """
    users, deepest, root = len(s.usage), 1, len(s.tree) - 1
    for row in range(root):
        used[int(s.tree[row, PARENT])] += used[row]
        deepest = max(deepest, int(s.tree[row, DEPTH]))
    levels = np.full((users, deepest), -_NEVER)  # of each user: less, level by level, where less was used
    for user in range(users):
        row = user
        while row != root:
            above, level = int(s.tree[row, PARENT]), -1e300
            if s.tree[row, SHARE] == 0:
                level = 0.0
            elif used[row] > 0:
                level = -s.tree[row, SHARE] * used[above] / used[row]
            levels[user, int(s.tree[row, DEPTH]) - 1] = level
            row = above
    order, keys = np.arange(users), np.empty(users)
    for depth in range(deepest - 1, -1, -1):
        for k in range(users):
            keys[k] = levels[order[k], depth]
        order = picked(order, ranking(keys))
    rank = users
    for k in range(users):
        if k > 0 and not _is_tied(levels, order[k - 1], order[k]):
            rank = users - k
        s.usage[order[k], 2] = rank / users


@inner
def _is_tied(levels: Floats, user: int, other: int) -> bool:
    """Whether a user has the rank of the one before: their levels are equal, as far down as his go."""
    for depth in range(levels.shape[1]):
        if levels[user, depth] == -_NEVER:
            break
        if levels[user, depth] != levels[other, depth]:
            return False
    return True


# -- Calendar: a binary heap of events, by time, kind, and the order in which they were made --------------------------


@compiled
def push(s: SimulationState, at: float, kind: int, what: int) -> int:
    """Put an event on the calendar; its number."""
    world = s.world[0]
    number = world.number
    world.number += 1
    child = world.events
    world.events += 1
    while child > 0:
        parent = (child - 1) >> 1
        above = s.heap[parent]
        if (above.at, above.kind, above.number) < (at, kind, number):
            break
        _set(s, child, above.at, above.kind, above.number, above.what)
        child = parent
    _set(s, child, at, kind, number, what)
    return int(number)


@inner
def drop(s: SimulationState) -> None:
    """Take the earliest event off the calendar."""
    world = s.world[0]
    world.events -= 1
    last = world.events
    if last == 0:
        return
    at, kind, number, what = s.heap[last].at, s.heap[last].kind, s.heap[last].number, s.heap[last].what
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last:
            left, right = s.heap[child], s.heap[child + 1]
            if (right.at, right.kind, right.number) < (left.at, left.kind, left.number):
                child += 1
        below = s.heap[child]
        if (at, kind, number) < (below.at, below.kind, below.number):
            break
        _set(s, parent, below.at, below.kind, below.number, below.what)
        parent = child
    _set(s, parent, at, kind, number, what)


@inner
def _set(s: SimulationState, row: int, at: float, kind: int, number: int, what: int) -> None:
    event = s.heap[row]
    event.at = at
    event.kind = kind
    event.number = number
    event.what = what


# -- Queue: who waits, in which order, and what holds whom back -------------------------------------------------------


@inner
def write(s: SimulationState, kind: int, what: int, value: float) -> None:
    """Add a line to the log."""
    world = s.world[0]
    line = s.log[world.lines]
    line.at = world.now
    line.kind = kind
    line.what = what
    line.value = value
    world.lines += 1


@inner
def report_change(s: SimulationState, job: int) -> None:
    """Something has happened to a job; its driver may want to know."""
    if s.job_states[job].watched:
        s.world[0].job_changed = 1


@inner
def join(s: SimulationState, job: int) -> None:
    """Put a job into the queue, at its place."""
    world = s.world[0]
    row = world.waiting
    mine = s.jobs[job].place
    while row > 0 and s.jobs[s.queue[row - 1]].place > mine:
        s.queue[row] = s.queue[row - 1]
        row -= 1
    s.queue[row] = job
    world.waiting += 1
    world.dirty = 1


@compiled
def leave(s: SimulationState, job: int) -> None:
    """Take a job out of the queue; found by its place."""
    world = s.world[0]
    mine = s.jobs[job].place
    low, high = 0, world.waiting
    while low < high:
        middle = (low + high) >> 1
        if s.jobs[s.queue[middle]].place < mine:
            low = middle + 1
        else:
            high = middle
    for row in range(low, world.waiting - 1):
        s.queue[row] = s.queue[row + 1]
    world.waiting -= 1
    world.dirty = 1


@compiled
def block(s: SimulationState, job: int, gate: int) -> None:
    """Hold a job back."""
    job_state = s.job_states[job]
    job_state.gates |= gate
    if job_state.status == WAITING:
        leave(s, job)
        job_state.status = HELD


@compiled
def unblock(s: SimulationState, job: int, gate: int) -> None:
    """Take one reason away; with the last one the job joins the queue, and begins to age if it does not yet."""
    job_state = s.job_states[job]
    job_state.gates &= ~gate
    if job_state.status == HELD and job_state.gates == 0:
        row = s.jobs[job]
        now = s.world[0].now
        job_state.status = WAITING
        if math.isnan(row.eligible):
            row.eligible = now
            if now > row.submit:
                write(s, ELIGIBLE, job, 0.0)
        if math.isnan(row.accrue):
            row.accrue = now
        join(s, job)
        report_change(s, job)


# -- Nodes: what they have left, and which jobs hold it ---------------------------------------------------------------


@inner
def take(s: SimulationState, first: int, last: int, kind: int, units: int) -> None:
    """Give units of these nodes away, or take them back (negative)."""
    for node in range(first, last + 1):
        had = s.free[node, 0] > 0
        for k in range(s.free.shape[1]):
            s.free[node, k] -= units * s.demands[kind, k]
        has = s.free[node, 0] > 0
        if has != had:
            s.blocks[node // BLOCK] += 1 if has else -1


@inner
def hold(s: SimulationState, job: int, first: int, last: int, units: int) -> None:
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
    row.next = s.job_states[job].held
    s.job_states[job].held = slot
    if world.keeps_nodes:
        kept = s.placed[world.placed]
        kept.job = job
        kept.restarts = s.jobs[job].restarts
        kept.first = first
        kept.last = last
        kept.units = units
        world.placed += 1


@inner
def release_nodes(s: SimulationState, job: int) -> None:
    """A job's nodes are free again."""
    world = s.world[0]
    slot = s.job_states[job].held
    while slot != NONE:
        row = s.slots[slot]
        take(s, row.first, row.last, s.jobs[job].kind, -row.units)
        behind = row.next
        row.next = world.vacant
        world.vacant = slot
        world.vacancies += 1
        slot = behind
    s.job_states[job].held = NONE
    if world.slots >= 0:
        world.free += s.jobs[job].units


@compiled
def find(s: SimulationState, job: int) -> int:
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
    return int(place_within(world.placement, free, need, row.units, row.per_node, row.max_nodes, blocks, s.runs))


@compiled
def visible(s: SimulationState, job: int) -> Ints:
    """What a job may take of the nodes: all of what is shared, and nothing where it may not be, or is kept from it."""
    free = s.free.copy()
    for k in range(len(s.shared)):
        if s.shared[k]:
            for node in range(free.shape[0]):
                free[node, k] = s.capacity[node, k]
    for node in range(free.shape[0]):
        if not s.allowed[s.jobs[job].allowed, node]:
            for k in range(free.shape[1]):
                free[node, k] = 0
    close(free, s.windows, s.world[0].now, s.jobs[job].walltime, s.jobs[job].user)
    return free


@inner
def recount(s: SimulationState, node: int, sign: int) -> None:
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


# -- Limits: what a job counts towards --------------------------------------------------------------------------------


@inner
def tally_submitted(s: SimulationState, job: int, sign: int) -> None:
    """A job comes (1), or has ended (-1)."""
    mine = s.job_states[job].whose
    for row in range(s.spans[mine], s.spans[mine + 1]):
        if s.limits[row, KIND] == SUBMITTED_JOBS:
            s.counts[s.limits[row, COUNTER]] += sign


@inner
def tally_running(s: SimulationState, job: int, sign: int) -> None:
    """A job starts (1), or runs no more (-1)."""
    mine, now = s.job_states[job].whose, s.world[0].now
    for row in range(s.spans[mine], s.spans[mine + 1]):
        kind, counter = s.limits[row, KIND], s.limits[row, COUNTER]
        if kind < CORE_MINUTES and kind != SUBMITTED_JOBS:
            s.counts[counter] += sign * s.amounts[job, kind]
        elif kind >= CORE_MINUTES and sign < 0:
            spent = s.spent[counter]
            used = s.amounts[job, kind] * counting(now - s.jobs[job].started, spent[HALF_LIFE])
            spent[USED] = decayed(spent[USED], now - spent[SINCE], spent[HALF_LIFE]) + used
            spent[SINCE] = now


@inner
def last_counted(s: SimulationState) -> float:
    """Up to when time that jobs have used is counted [s]: as often as priorities are made anew."""
    world = s.world[0]
    return float(world.now if world.calc_period <= 0 else world.now // world.calc_period * world.calc_period)


@inner
def count_time(s: SimulationState) -> None:
    """What all jobs have used by when it was last counted, and what those that run may still use."""
    at = last_counted(s)
    for counter in range(len(s.spent)):
        spent = s.spent[counter]
        spent[IN_ALL] = decayed(spent[USED], at - spent[SINCE], spent[HALF_LIFE])
        spent[LEFT] = spent[RATE] = 0.0
    for k in range(s.world[0].running if len(s.spent) > 0 else 0):
        job = s.active[k]
        mine, ran = s.job_states[job].whose, max(0.0, at - s.jobs[job].started)
        left = max(0.0, walltime_s(s, job) - ran)
        for row in range(s.spans[mine], s.spans[mine + 1]):
            kind = s.limits[row, KIND]
            if kind >= CORE_MINUTES and s.amounts[job, kind] > 0:
                spent, amount = s.spent[s.limits[row, COUNTER]], s.amounts[job, kind]
                spent[IN_ALL] += amount * counting(ran, spent[HALF_LIFE])
                spent[LEFT] += amount * left
                spent[RATE] += amount if left > 0 else 0


@inner
def walltime_s(s: SimulationState, job: int) -> float:
    """A job's wall time [s]; infinite where it has none."""
    walltime = s.jobs[job].walltime
    return float(_NEVER if math.isnan(walltime) else walltime)


@inner
def too_many(s: SimulationState, job: int) -> bool:
    """Whether a limit of submitted jobs is reached."""
    mine = s.job_states[job].whose
    for row in range(s.spans[mine], s.spans[mine + 1]):
        if s.limits[row, KIND] == SUBMITTED_JOBS and s.counts[s.limits[row, COUNTER]] >= s.limits[row, MOST]:
            return True
    return False


@inner
def allowed_from(s: SimulationState, job: int, row: int) -> float:
    """From when on a limit of time may let a waiting job start, if no job starts or ends until then [s].

    No later than it really does; minus infinity when it does now, infinity when never. Minutes are whole, as in Slurm.
    """
    kind, most, counter = s.limits[row, KIND], s.limits[row, MOST], s.limits[row, COUNTER]
    amount = s.amounts[job, kind]
    if most == NO_LIMIT or amount == 0:
        return -_NEVER
    spent, asked = s.spent[counter], amount * walltime_s(s, job) / 60.0
    used, left, found = spent[IN_ALL], spent[LEFT], -_NEVER
    free = 60.0 * (np.floor(most - asked) + 1.0)  # it may start when less is taken
    decay = used * math.log(2.0) / spent[HALF_LIFE]
    if CORE_RUN_MINUTES <= kind <= GPU_RUN_MINUTES:
        if np.floor(left / 60.0) + asked > most:
            found = _falls(left - free, spent[RATE])
        return found + last_counted(s)
    if np.floor(used / 60.0) >= most:
        found = _falls(used - 60.0 * most, decay)
    if s.world[0].safe:
        running = 0.0 if kind == WALL_MINUTES else left
        if np.floor(used / 60.0) + np.floor(running / 60.0) + asked > most:
            by, rate = used + running - free, decay
            if running > 0:  # both are rounded; and their sum falls no faster than this, if it falls
                by -= 60.0
                rate = max(decay, spent[RATE]) if by <= 0 or spent[HALF_LIFE] < _NEVER else 0.0
            found = max(found, _falls(by, rate))
    return found + last_counted(s)


@inner
def _falls(by: float, rate: float) -> float:
    """How long it takes to fall by so much [s]."""
    return max(by, 0.0) / rate if rate > 0 else _NEVER


@inner
def beyond(s: SimulationState, job: int) -> int:
    """Row of a limit of amounts that keeps a waiting job from starting now, or `NONE`."""
    mine = s.job_states[job].whose
    for row in range(s.spans[mine], s.spans[mine + 1]):
        kind, there = s.limits[row, KIND], s.counts[s.limits[row, COUNTER]]
        of_amounts = kind < CORE_MINUTES and kind != SUBMITTED_JOBS
        if of_amounts and there + s.amounts[job, kind] > s.limits[row, MOST]:
            return int(row)
    return NONE


@inner
def without_time(s: SimulationState, job: int) -> int:
    """The same of a limit of time; `count_time` comes first."""
    mine = s.job_states[job].whose
    for row in range(s.spans[mine], s.spans[mine + 1]):
        if s.limits[row, KIND] >= CORE_MINUTES and allowed_from(s, job, row) > -_NEVER:
            return int(row)
    return NONE


@compiled
def limited_by(s: SimulationState, job: int) -> int:
    """Row of any limit that keeps a waiting job from starting now, or `NONE`; `count_time` comes first."""
    row = beyond(s, job)
    return without_time(s, job) if row == NONE and len(s.spent) > 0 else row


@compiled
def kept_back(s: SimulationState) -> int:
    """How many of the waiting jobs limits keep from starting now."""
    count, timed = 0, len(s.spent) > 0
    if timed:
        count_time(s)
    for k in range(s.world[0].waiting if len(s.limits) > 0 else 0):  # functions of time are too large to be part of it
        if beyond(s, s.queue[k]) != NONE:
            count += 1
        elif timed:
            count += without_time(s, s.queue[k]) != NONE
    return count


@inner
def next_look(s: SimulationState) -> float:
    """When time alone may first let a job start that limits keep back [s]; infinite when it does not.

    That is when time is counted next: at multiples of a second, or of the time after which priorities are made anew.
    """
    world, first = s.world[0], _NEVER
    count_time(s)
    for k in range(world.waiting):
        job, at = s.queue[k], -_NEVER
        mine = s.job_states[job].whose
        for row in range(s.spans[mine], s.spans[mine + 1]):
            if s.limits[row, KIND] >= CORE_MINUTES:
                at = max(at, allowed_from(s, job, row))
        if at > -_NEVER and beyond(s, job) == NONE:
            first = min(first, at)
    step = world.calc_period if world.calc_period > 0 else 1.0
    return first if first == _NEVER else float(max(np.ceil(first / step), world.now // step + 1.0) * step)


@inner_allocating
def within_limits(s: SimulationState, waiting: Ints) -> Ints:
    """Those of the waiting rows that no limit keeps from starting."""
    found, count, timed = np.empty(len(waiting), np.int64), 0, len(s.spent) > 0
    if timed:
        count_time(s)
    for k in range(len(waiting)):
        if beyond(s, waiting[k]) == NONE and (not timed or without_time(s, waiting[k]) == NONE):
            found[count] = waiting[k]
            count += 1
    return found[:count]


# -- Jobs: they are submitted, become eligible, start, end, wait again ------------------------------------------------

REGIMES = tuple(QueueRegime)
ACCRUE_ALWAYS, MULTIFACTOR = REGIMES.index(QueueRegime.ACCRUE_ALWAYS), REGIMES.index(QueueRegime.MULTIFACTOR)


@inner
def submit(s: SimulationState, job: int) -> None:
    """A job reaches the machine, which refuses it when there are as many as a limit allows."""
    world = s.world[0]
    row, job_state = s.jobs[job], s.job_states[job]
    if too_many(s, job):
        finish(s, job, FAILED)
        return
    tally_submitted(s, job, 1)
    row.place = world.place
    world.place += 1.0
    job_state.status = HELD
    write(s, SUBMITTED, job, 0.0)
    if job_state.begin > world.now:
        job_state.gates |= BEGIN
        push(s, job_state.begin, OPEN, job)
    if job_state.unmet > 0:
        job_state.gates |= DEPENDENCY
    if world.regime == ACCRUE_ALWAYS:
        row.accrue = world.now
    elif world.regime == MULTIFACTOR and job_state.gates & BEGIN:
        row.accrue = job_state.begin  # and there it stays, even when the job is let go earlier
    unblock(s, job, 0)


@inner
def meet_dependency(s: SimulationState, edge: int) -> None:
    """A dependency is fulfilled."""
    child = s.edges[edge].child
    job_state = s.job_states[child]
    job_state.unmet -= 1
    think = s.edges[edge].think
    if think > 0:
        job_state.begin = max(job_state.begin, s.world[0].now + think)
        if job_state.status == HELD:
            job_state.gates |= BEGIN
            push(s, job_state.begin, OPEN, child)
    if job_state.unmet == 0 and job_state.status == HELD:
        unblock(s, child, DEPENDENCY)


@inner
def update_dependants(s: SimulationState, job: int, over: bool, well: bool) -> None:
    """Fulfil, or doom, the dependencies of those that wait for this job's start or end."""
    edge = s.job_states[job].children
    while edge != NONE:
        kind = s.edges[edge].kind
        if s.edges[edge].child == NONE:  # taken back
            pass
        elif kind == AFTER:
            if not over:
                meet_dependency(s, edge)
        elif over:
            if kind == AFTER_OK and not well:
                push(s, s.world[0].now, CANCEL, s.edges[edge].child)
            else:
                meet_dependency(s, edge)
        edge = s.edges[edge].next


@inner
def node_down(s: SimulationState, node: int) -> None:
    """A node fails, and with it the jobs it held; they wait again where the machine is set so."""
    world = s.world[0]
    if not _up(s, node):
        return
    row = world.running - 1
    while row >= 0:  # backwards, for rows behind one that goes move up
        job = s.active[row]
        slot = s.job_states[job].held
        while slot != NONE and not s.slots[slot].first <= node <= s.slots[slot].last:
            slot = s.slots[slot].next
        if slot != NONE:
            if world.requeues:
                requeue(s, job)
            else:
                finish(s, job, NODE_FAIL)
            row = world.running
        row -= 1
    if s.free[node, 0] > 0:
        s.blocks[node // BLOCK] -= 1
    for k in range(s.free.shape[1]):
        s.free[node, k] = 0
        s.capacity[node, k] = 0
    recount(s, node, -1)
    write(s, DOWN, node, 0.0)


@inner
def node_up(s: SimulationState, node: int) -> None:
    """A node is back."""
    if _up(s, node):
        return
    for k in range(s.free.shape[1]):
        s.capacity[node, k] = s.full[node, k]
        s.free[node, k] = s.full[node, k]
    if s.free[node, 0] > 0:
        s.blocks[node // BLOCK] += 1
    recount(s, node, 1)
    write(s, UP, node, 0.0)
    s.world[0].dirty = 1


@inner
def _up(s: SimulationState, node: int) -> bool:
    amounts = 0
    for k in range(s.capacity.shape[1]):
        amounts += s.capacity[node, k]
    return bool(amounts > 0)


@compiled
def mold(s: SimulationState, job: int, units: int) -> None:
    """A waiting job is to have that of its widths; its times follow."""
    if job + 1 >= len(s.molds) or s.jobs[job].units == units:
        return
    row, job_state = s.jobs[job], s.job_states[job]
    factor = _widen(s, job, units)
    row.walltime *= factor
    row.estimate *= factor
    row.predicted *= factor
    job_state.run *= factor
    job_state.stop *= factor


@inner
def _widen(s: SimulationState, job: int, units: int) -> float:
    """A job has that of its widths; how many times longer it takes than with that which it had."""
    row, factor = s.jobs[job], 1.0
    for width in range(s.molds[job], s.molds[job + 1]):
        if s.widths[width, 0] == units:
            factor *= s.widths[width, 1]
        elif s.widths[width, 0] == row.units:
            factor /= s.widths[width, 1]
    row.cores = row.cores // row.units * units
    row.units = units
    return factor


@compiled
def resize(s: SimulationState, job: int, units: int) -> None:
    """A malleable job that runs goes on with another of its widths: with nodes beside its own, or with some of those.

    What is left of its work, of its wall time and of what it is expected to take follows the width.
    """
    world = s.world[0]
    row, job_state, before = s.jobs[job], s.job_states[job], s.jobs[job].units
    need = s.demands[row.kind]
    if units > before:
        count = place(world.placement, s.free, need, units - before, row.per_node, s.blocks, s.runs)
    else:
        own = np.zeros_like(s.free)
        slot = job_state.held
        while slot != NONE:
            for node in range(s.slots[slot].first, s.slots[slot].last + 1):
                for k in range(len(need)):
                    own[node, k] += s.slots[slot].units * need[k]
            slot = s.slots[slot].next
        release_nodes(s, job)
        world.free -= before
        count = place(world.placement, own, need, units, row.per_node, np.ones_like(s.blocks), s.runs)
        world.dirty = 1
    for k in range(count):
        hold(s, job, s.runs[k, 0], s.runs[k, 1], s.runs[k, 2])
    world.free -= units - before
    charge(s, job)
    job_state.charged = world.now
    _leave_running(s, job)
    _get_on(s, job)
    ran, factor = job_state.since - row.started, _widen(s, job, units)
    row.walltime = ran + (row.walltime - ran) * factor + world.pause
    row.estimate = ran + max(0.0, row.estimate - ran) * factor + world.pause
    job_state.stop = ran + (job_state.stop - ran) * factor + world.pause
    job_state.left *= factor
    job_state.since += world.pause
    _join_running(s, job)
    write(s, RESIZED, job, float(before))
    expect_end(s, job)
    report_change(s, job)


@compiled
def start(s: SimulationState, job: int, count: int) -> None:
    """Start a waiting job on the first `count` runs of nodes in ``s.runs``. It must be out of the queue."""
    world = s.world[0]
    row, job_state = s.jobs[job], s.job_states[job]
    for k in range(count):
        hold(s, job, s.runs[k, 0], s.runs[k, 1], s.runs[k, 2])
    if world.slots >= 0:
        world.free -= row.units
    tally_running(s, job, 1)
    job_state.status = RUNNING
    job_state.left = job_state.run
    job_state.since = world.now
    job_state.charged = world.now
    row.started = world.now
    row.planned = np.nan
    _join_running(s, job)
    write(s, STARTED, job, 0.0)
    if len(s.preemption) > 0 and s.preemption[row.standing, EXEMPT] > 0:
        push(s, world.now + s.preemption[row.standing, EXEMPT], LOOK, 0)  # others may want its nodes then
    expect_end(s, job)
    update_dependants(s, job, False, True)
    report_change(s, job)


@inner
def _join_running(s: SimulationState, job: int) -> None:
    """Put a job among those that run, by its expected end."""
    world = s.world[0]
    ends = s.jobs[job].started + s.jobs[job].estimate
    behind = world.running
    while behind > 0 and s.ends[behind - 1] > ends:
        s.ends[behind] = s.ends[behind - 1]
        s.active[behind] = s.active[behind - 1]
        behind -= 1
    s.ends[behind] = ends
    s.active[behind] = job
    world.running += 1
    world.malleable += s.jobs[job].malleable


@inner
def _leave_running(s: SimulationState, job: int) -> None:
    """Take a job from among those that run."""
    world = s.world[0]
    ends = s.jobs[job].started + s.jobs[job].estimate
    low, high = 0, world.running
    while low < high:
        middle = (low + high) >> 1
        if s.ends[middle] < ends:
            low = middle + 1
        else:
            high = middle
    while s.active[low] != job:
        low += 1
    for behind in range(low, world.running - 1):
        s.ends[behind] = s.ends[behind + 1]
        s.active[behind] = s.active[behind + 1]
    world.running -= 1
    world.malleable -= s.jobs[job].malleable


@inner
def expect_end(s: SimulationState, job: int) -> None:
    """Put a running job's end on the calendar: of its work, or of its time."""
    world = s.world[0]
    row, job_state = s.jobs[job], s.job_states[job]
    at = max(world.now, min(job_state.since + job_state.left / job_state.speed, row.started + job_state.stop))
    early = world.one_by_one and at < row.started + row.estimate
    job_state.event = push(s, at, EARLY_END if early else END, job)


@compiled
def set_speed(s: SimulationState, job: int, speed: float) -> None:
    """A running job gets on at another speed from now on."""
    _get_on(s, job)
    s.job_states[job].speed = speed
    write(s, SPEED, job, speed)
    expect_end(s, job)


@inner
def _get_on(s: SimulationState, job: int) -> None:
    """What a running job has done by now is no longer left. One that is being resized gets on later."""
    job_state = s.job_states[job]
    now = max(s.world[0].now, job_state.since)
    job_state.left = max(0.0, job_state.left - (now - job_state.since) * job_state.speed)
    job_state.since = now


@inner
def stop_running(s: SimulationState, job: int) -> None:
    """A running job is gone from its nodes."""
    _leave_running(s, job)
    tally_running(s, job, -1)
    release_nodes(s, job)
    s.world[0].dirty = 1


@compiled
def finish(s: SimulationState, job: int, outcome: int) -> None:
    """A job's end, wherever it stands."""
    world = s.world[0]
    job_state = s.job_states[job]
    if job_state.status == RUNNING:
        stop_running(s, job)
        charge(s, job)
    elif job_state.status == WAITING:
        leave(s, job)
    if job_state.status != NOT_SUBMITTED:
        tally_submitted(s, job, -1)
    job_state.status = ENDED
    job_state.outcome = outcome
    job_state.ended = world.now
    job_state.event = NONE
    write(s, FINISHED, job, float(outcome))
    update_dependants(s, job, True, outcome == COMPLETED)
    report_change(s, job)


@compiled
def requeue(s: SimulationState, job: int) -> None:
    """A running job waits again, as if it had just been submitted: at the end of the queue, its age gone."""
    world = s.world[0]
    row, job_state = s.jobs[job], s.job_states[job]
    stop_running(s, job)
    charge(s, job)
    job_state.status = HELD
    job_state.event = NONE
    row.started = np.nan
    row.eligible = np.nan
    row.accrue = np.nan
    row.restarts += 1
    asked = row.units
    if job + 1 < len(s.molds) and s.molds[job] < s.molds[job + 1]:
        asked = int(s.widths[s.molds[job], 0])
    if row.units != asked or row.malleable:
        _widen(s, job, asked)
        job_state.run, row.walltime = s.asked[job, 0], s.asked[job, 1]
        row.estimate, row.predicted, job_state.stop = s.asked[job, 2], s.asked[job, 2], s.asked[job, 3]
    row.place = world.place
    world.place += 1.0
    write(s, REQUEUED, job, 0.0)
    if world.requeue_delay > 0:
        job_state.begin = world.now + world.requeue_delay
        job_state.gates |= BEGIN
        push(s, job_state.begin, OPEN, job)
    unblock(s, job, 0)


@compiled
def preempt(s: SimulationState, job: int) -> None:
    """A running job makes room for another."""
    if s.preemption[s.jobs[job].standing, CANCELS]:
        finish(s, job, PREEMPTED)
    else:
        requeue(s, job)


@inner
def charge(s: SimulationState, job: int) -> None:
    """Add what a job has used to that of its association."""
    row = s.job_states[job].association
    if row >= 0:
        s.usage[row, 0] = _left(s, row) + _spent(s, job)
        s.usage[row, 1] = s.world[0].now


# -- Time passes to the next decision ---------------------------------------------------------------------------------


@compiled
def advance(s: SimulationState, until: float) -> int:
    """Let time pass until a job waits and something has changed, but not beyond `until` [s]; why it came back.

    Where the dispatcher resizes jobs, a malleable one that runs is reason enough.

    All events of an instant take effect before anybody decides: first jobs end, then nodes come and go, then jobs are
    cancelled, submitted, and let go by their begin times. Where decisions are taken one by one, the ends that were
    expected still come first and together; then whatever else happens, each for itself, ends that come early last.
    An expected end is itself an occasion to decide, before early ends of jobs that started later.
    """
    world = s.world[0]
    while True:
        if world.job_changed:
            world.job_changed = 0
            return JOB_CHANGED
        at = _next(s)
        asks = world.waiting > 0 or (world.resizes and world.malleable > 0)
        if world.dirty and asks and (world.one_by_one or at > world.now):
            return DECIDE
        look = next_look(s) if len(s.spent) > 0 else _NEVER
        if min(at, look) > until:
            world.now = max(world.now, until)
            return UNTIL
        if look <= at and look < _NEVER:
            kept = kept_back(s)
            world.now = look
            world.dirty |= kept_back(s) < kept
            continue
        if at == _NEVER:
            return OVER
        lines, due = world.lines, -1
        world.now = max(world.now, at)
        while _next(s) <= world.now:
            if not spare(s):
                return GROW
            number = s.heap[0].number
            kind = _take_next(s)
            if not world.one_by_one:
                continue
            if kind != END:
                break
            due = number if due < 0 else due  # of the ends that were expected, the one that was made first
            if _next_early(s) > due:
                break
        if world.stops_often and world.lines > lines:
            return DECIDE


@inner
def spare(s: SimulationState) -> bool:
    """Whether the tables have room for whatever one event or one start may bring."""
    world = s.world[0]
    most = world.edges + 2 * world.running + 8  # all that wait for a job, or all jobs of a node, which may wait again
    return bool(
        len(s.heap) - world.events >= most
        and len(s.log) - world.lines >= most
        and len(s.queue) - world.waiting >= most
        and len(s.active) - world.running >= 1
    )


@inner
def _next(s: SimulationState) -> float:
    """Time of the next event, of the calendar or of the arrivals known from the start [s]."""
    world = s.world[0]
    at = _NEVER
    if world.events > 0:
        at = s.heap[0].at
    if world.arrival < world.arrivals:
        at = min(at, s.jobs[world.arrival].submit)
    return at


@inner
def _next_early(s: SimulationState) -> int:
    """Number of the end that comes early and is next at this instant, or -1 when something else is next."""
    world = s.world[0]
    if world.events == 0 or s.heap[0].at > world.now or s.heap[0].kind != EARLY_END:
        return -1
    if world.arrival < world.arrivals and s.jobs[world.arrival].submit <= world.now:
        return -1
    return int(s.heap[0].number)


@inner
def _take_next(s: SimulationState) -> int:
    """The next event takes effect; its kind."""
    world = s.world[0]
    if world.events > 0:
        at, kind, number, what = s.heap[0].at, s.heap[0].kind, s.heap[0].number, s.heap[0].what
    else:
        at, kind, number, what = _NEVER, OPEN, 0, 0
    arrives = world.arrival < world.arrivals
    if arrives and (at > s.jobs[world.arrival].submit or (at == s.jobs[world.arrival].submit and kind > CANCEL)):
        world.arrival += 1
        if s.job_states[world.arrival - 1].status == NOT_SUBMITTED:  # unless it was cancelled before
            submit(s, world.arrival - 1)
        return SUBMIT
    drop(s)
    if kind == NODE_UP:
        node_up(s, what)
        return int(kind)
    if kind == NODE_DOWN:
        node_down(s, what)
        return int(kind)
    if kind == LOOK:
        world.dirty = 1
        return int(kind)
    job_state = s.job_states[what]
    if kind in (END, EARLY_END):
        if job_state.status == RUNNING and job_state.event == number:  # a void one has been replaced by another
            row = s.jobs[what]
            in_time = job_state.since + job_state.left / job_state.speed <= row.started + job_state.stop + ROUNDING_S
            finish(s, what, COMPLETED if in_time else TIMEOUT)
    elif kind == CANCEL:
        if job_state.status != ENDED:
            finish(s, what, CANCELLED)
    elif kind == OPEN:
        if job_state.status == HELD and job_state.begin <= world.now:
            unblock(s, what, BEGIN)
    elif job_state.status == NOT_SUBMITTED:
        submit(s, what)
    return int(kind)


# -- The loop with a backfilling rule ---------------------------------------------------------------------------------


@compiled
def dispatch_loop(
    s: SimulationState,
    until: float,
    rule: BackfillRule,
    weights: Floats,
    promise: bool,
    most: int,
    nodes: bool | None,
    molds: bool | None,
    resizes: bool | None,
) -> int:
    """Run until `until` [s], until nothing more happens, or for `most` decisions; why it came back.

    `weights` are the priority model's. Where the rule has an interval, gaps are filled at its multiples only; at other
    times jobs start in order until one is blocked. `nodes` is None on a machine of slots, `molds` where no widths are
    chosen, `resizes` where none change: numba leaves out what stands behind a None, which shortens the first use by a
    fifth.
    """
    world = s.world[0]
    whole, in_order = BackfillRule(float(rule.depth), *rule[1:]), BackfillRule(0.0, *rule[1:])
    starts, promised = np.empty(64, np.int64), np.empty(64)
    runs, gone, units = np.empty((0, 4), np.int64), np.empty((0, 2), np.int64), np.empty(0, np.int64)
    while True:
        why = advance(s, until)
        if why != DECIDE:
            return why
        if most == 0:
            return DECIDE
        if rule.interval > 0 and not spare(s):
            return GROW
        most -= 1
        if world.waiting > len(starts):
            starts, promised = np.empty(2 * world.waiting, np.int64), np.empty(2 * world.waiting)
        if molds is not None and len(units) < len(starts):
            units = np.empty(len(starts), np.int64)
        world.dirty = 0
        pointless = world.waiting == 0 or (world.free == 0 and world.slots >= 0 and not promise)
        if resizes is not None:
            pointless = pointless and world.malleable == 0
        if pointless:
            continue
        now = whole
        if rule.interval > 0:
            world.fills = due(s, world.fills, rule.interval)
            if world.filled == world.now:
                now = in_order
            elif world.fills > world.now:
                world.looks = due(s, world.looks, LOOKS_S)
                if world.looks > world.now:
                    continue
                now = in_order
        world.decisions += 1
        waiting, free = ranked(s, rule, weights), world.free
        if resizes is not None:
            running = picked(s.active, np.arange(world.running))
            had = narrowed(rule, s.jobs, running, s.molds, s.widths)
            free += widen(s.jobs, running, had)
        if molds is not None:
            started = scan_widths(
                world.now, now, free, s.jobs, waiting, s.active[: world.running], s.ends[: world.running],
                s.molds, s.widths, starts, units, promised,
            )  # fmt: skip
        elif nodes is None:
            started = scan(
                world.now, now, free, world.slots, s.jobs, waiting,
                s.active[: world.running], s.ends[: world.running], starts, promised, promise,
            )  # fmt: skip
        else:
            release_at, release, holder = releases(s)
            started, runs, gone = scan_nodes(
                world.now, now, world.placement, s.jobs, s.demands, waiting,
                release_at, release, holder, s.free, s.allowed, s.windows, s.preemption, starts, promised, promise,
            )  # fmt: skip
        if promise:
            for k in range(min(rule.limit, len(waiting))):
                s.jobs[waiting[k]].planned = promised[k]
        if resizes is not None:
            widen(s.jobs, running, had)
            taken = 0
            for k in range(started):
                taken += units[k] if molds is not None else s.jobs[waiting[starts[k]]].units
            had = resized(rule, len(waiting), world.free, taken, s.jobs, running, s.molds, s.widths)
            for k in range(len(running)):
                if had[k] != s.jobs[running[k]].units:
                    if not has_room(s):
                        world.dirty = 1
                        return GROW
                    resize(s, running[k], had[k])
        if started == 0 and len(gone) == 0:
            continue
        all_seen = len(waiting) <= min(rule.limit, rule.oldest)  # else others come forward when some have started
        kept = world.waiting - len(waiting)
        begun = begin(s, picked(waiting, starts[:started]), starts, units, runs, gone, kept, nodes)
        if begun < started or (len(s.limits) > 0 and kept_back(s) > kept):
            world.dirty = 1  # what could not start yet is decided again, without what limits keep back now
            if has_room(s):
                continue
            return GROW
        if let_go(s, starts[:started], gone):
            world.filled = world.now
            push(s, world.now + rule.interval, LOOK, 0)
        plain = molds is None and resizes is None and len(s.preemption) == 0
        if all_seen and world.edges == 0 and not world.stops_often and plain:
            world.dirty = 0  # asked again at once, a rule without predictions would start no other job


@inner
def due(s: SimulationState, known: float, interval: float) -> float:
    """The next multiple of an interval [s], or now, if it is one; there will be a decision then. `known` is that which
    was found before."""
    now: float = s.world[0].now
    if now == known or now % interval == 0:
        return now
    if known < now:
        known = max((now // interval + 1) * interval, np.nextafter(now, np.inf))
        push(s, known, LOOK, 0)
    return known


@compiled
def ranked(s: SimulationState, rule: BackfillRule, weights: Floats) -> Ints:
    """The waiting rows that no limit keeps back: by tiers; among equals by the dispatcher's order; then by priority."""
    world = s.world[0]
    waiting = s.queue[: world.waiting]
    if weights[0] != FIFO:
        waiting = prioritise(s, weights)
    if len(s.limits) > 0:
        waiting = within_limits(s, waiting)
    if rule.order >= 0:
        submit, predicted = np.empty(len(waiting)), np.empty(len(waiting))
        cores = np.empty(len(waiting), np.int64)
        for k in range(len(waiting)):
            job = s.jobs[waiting[k]]
            submit[k], predicted[k], cores[k] = job.submit, job.predicted, job.cores
        keys = queue_keys(rule.order, rule.threshold, rule.oldest, world.now, submit, predicted, cores)
        waiting = picked(waiting, ranking(keys))
    if world.tiers:
        tiers = np.empty(len(waiting))
        for k in range(len(waiting)):
            tiers[k] = -s.jobs[waiting[k]].tier
        waiting = picked(waiting, ranking(tiers))
    return waiting


@inner
def begin(
    s: SimulationState, rows: Ints, starts: Ints, units: Ints, runs: Ints, gone: Ints, kept: int, nodes: bool | None
) -> int:
    """Start these rows, until the tables lack room for the next, or one has preempted others, or limits keep back more
    jobs than those `kept` that were left out of the decision; how many have started.

    `units` are their widths, if there are any. But on a machine of slots (None), which chooses the nodes, `runs` tells
    them: position in the queue as it was, first node, last node, units of each; and `gone` the running jobs that are
    preempted: position in the queue of that which preempts, row.
    """
    k, preempted = 0, False
    for i in range(len(rows)):
        if preempted or not has_room(s) or (i > 0 and len(s.limits) > 0 and kept_back(s) > kept):
            return i
        if len(units) > 0:
            mold(s, rows[i], units[i])
        count, job = 0, s.jobs[rows[i]]
        if nodes is None:
            need = s.demands[job.kind]
            count = place(s.world[0].placement, s.free, need, job.units, job.per_node, s.blocks, s.runs)
        else:
            while k < len(runs) and runs[k, 0] == starts[i]:
                for column in range(3):
                    s.runs[count, column] = runs[k, column + 1]
                count, k = count + 1, k + 1
            for victim in range(len(gone)):
                if gone[victim, 0] == starts[i]:
                    preempt(s, gone[victim, 1])
                    preempted = True
        leave(s, rows[i])
        start(s, rows[i], count)
    return len(rows)


@inner
def let_go(s: SimulationState, starts: Ints, gone: Ints) -> bool:
    """Preempt jobs for those that start at the next look, and say whether there were any.

    Not where jobs were preempted for one that starts now: then it is decided again first. `starts` and `gone` are those
    of `begin`.
    """
    for victim in range(len(gone)):
        for position in starts:
            if position == gone[victim, 0]:
                return False
    for victim in range(len(gone)):
        if has_room(s):
            preempt(s, gone[victim, 1])
    return len(gone) > 0


@compiled
def has_room(s: SimulationState) -> bool:
    """Whether the tables have room for one more start."""
    world = s.world[0]
    return spare(s) and world.vacancies >= len(s.runs) and len(s.placed) - world.placed >= len(s.runs)


@compiled
def releases(s: SimulationState) -> tuple[Floats, Ints, Ints]:
    """When what runs is expected to end [s], in order; what comes back: first node, last node, units, kind; and which
    row holds it."""
    world = s.world[0]
    count = 0
    for k in range(world.running):
        slot = s.job_states[s.active[k]].held
        while slot != NONE:
            count += 1
            slot = s.slots[slot].next
    at, what, holder = np.empty(count), np.empty((count, 4), np.int64), np.empty(count, np.int64)
    row = 0
    for k in range(world.running):
        slot = s.job_states[s.active[k]].held
        while slot != NONE:
            held = s.slots[slot]
            at[row] = s.ends[k]
            what[row, 0], what[row, 1], what[row, 2] = held.first, held.last, held.units
            what[row, 3] = s.jobs[s.active[k]].kind
            holder[row] = s.active[k]
            row += 1
            slot = held.next
    return at, what, holder
