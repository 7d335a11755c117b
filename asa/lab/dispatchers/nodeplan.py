"""A plan of what nodes have left from now on, compiled: where a job fits, when it can start, and who makes room for it.

Backfilling rules decide with it on a machine whose nodes or jobs differ; they say for which jobs, in which order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats, Ints
from asa.lab.core.compiled import inner, inner_allocating, picked, ranking
from asa.lab.core.table import EXEMPT, PREEMPTS, RANK
from asa.lab.placement.nodes import BLOCK, capped, close, held, place_within

Table = npt.NDArray[np.void]

FIRST, LAST, UNITS, KIND, HOLDER = range(5)
"""Columns of what comes back: nodes, units of each, of which kind, and the row of the job that runs on them, or -1."""
LEVELS, BACKS = range(2)


class NodePlan(NamedTuple):
    """What nodes have left from now on.

    There is a *level* now, and where each reservation begins. From one level to the next, what nodes have left only
    grows, by what comes back: so the least from one time until another is what there is at the first of them, or at a
    level between them.

    Parameters
    ----------
    demands, allowed, windows
        As in `TableView`.
    times
        When levels begin, in order [s].
    order
        The row of each level in `left` and `idle`.
    left
        What nodes have left then, shape (levels, nodes, resources); below 0 where a job is planned on nodes of others
        that would make room for it.
    idle
        At least as much as the nodes of each row of `allowed` then have left of the first resource, shape (levels,
        rows).
    ends, rows
        When something comes back, in order [s], from running jobs, from those that start and from reservations; and
        its row in `backs` and `gains`.
    backs
        What comes back, with the columns above.
    gains
        How much of the first resource comes back to nodes of each row of `allowed`, shape (backs, rows).
    counts
        How many `LEVELS` and `BACKS` are in use.
    room, units, runs, blocks
        Scratch: the least that a job finds on nodes, how many units of it that is, and where it is placed.
    """

    demands: Ints
    allowed: Ints
    windows: Floats
    times: Floats
    order: Ints
    left: Ints
    idle: Ints
    ends: Floats
    rows: Ints
    backs: Ints
    gains: Ints
    counts: Ints
    room: Ints
    units: Ints
    runs: Ints
    blocks: Ints


# -- What nodes have left, and what comes back -------------------------------------------------------------------------


@inner_allocating
def new_plan(
    now: float, demands: Ints, allowed: Ints, windows: Floats, release_at: Floats, release: Ints, holder: Ints,
    free: Ints, most: int,
) -> NodePlan:  # fmt: skip
    """The plan before the first job starts, with room for `most` reservations."""
    nodes, resources, size = len(free), free.shape[1], len(release)
    plan = NodePlan(
        demands, allowed, windows,
        np.empty(1 + most), np.empty(1 + most, np.int64),
        np.empty((1 + most, nodes, resources), np.int64), np.empty((1 + most, len(allowed)), np.int64),
        np.empty(size + 64), np.arange(size + 64),
        np.empty((size + 64, 5), np.int64), np.empty((size + 64, len(allowed)), np.int64),
        np.array([1, size]),
        np.empty((nodes, resources), np.int64), np.empty(nodes, np.int64), np.empty((nodes, 3), np.int64),
        np.ones((nodes + BLOCK - 1) // BLOCK, np.int64),
    )  # fmt: skip
    plan.times[0], plan.order[0] = now, 0
    _copy(plan.left[0], free)
    for row in range(len(allowed)):
        plan.idle[0, row] = 0
        for node in range(nodes):
            if allowed[row, node] and free[node, 0] > 0:
                plan.idle[0, row] += free[node, 0]
    soonest = np.nextafter(now, math.inf)  # one that is overdue is expected back in the very next moment
    for k in range(size):
        plan.ends[k] = max(release_at[k], soonest)
        _write_back(plan, k, release[k], release[k, KIND], holder[k])
    return plan


@inner
def _write_back(plan: NodePlan, own: int, run: Ints, kind: int, holder: int) -> None:
    """So many units come back from these nodes: first, last, units of each."""
    back = plan.backs[own]
    back[FIRST], back[LAST], back[UNITS], back[KIND], back[HOLDER] = run[0], run[1], run[2], kind, holder
    for row in range(len(plan.allowed)):
        nodes = 0
        for node in range(run[0], run[1] + 1):
            nodes += plan.allowed[row, node]
        plan.gains[own, row] = nodes * run[2] * plan.demands[kind, 0]


@inner_allocating
def all_back(plan: NodePlan) -> Ints:
    """What nodes have when all has come back, shape (nodes, resources)."""
    whole: Ints = plan.left[0].copy()
    for k in range(plan.counts[BACKS]):
        _give_back(plan, k, whole, 1)
    return whole


@inner
def _give_back(plan: NodePlan, k: int, left: Ints, sign: int) -> None:
    back = plan.backs[plan.rows[k]]
    for node in range(back[FIRST], back[LAST] + 1):
        for resource in range(left.shape[1]):
            left[node, resource] += sign * back[UNITS] * plan.demands[back[KIND], resource]


@inner
def take_nodes(plan: NodePlan, job: Any, found: int, start: float, end: float, shared: bool) -> None:
    """A job has its `runs` of nodes from a level's time until `end` [s]; they come back then.

    `shared`: other jobs may have some of them until they end, or make room. Then these nodes have less than nothing
    left, and `idle` still counts them.
    """
    end = max(end, np.nextafter(start, math.inf))  # a job too short for a float still counts
    used = plan.counts[BACKS]
    first = used
    while first > 0 and plan.ends[first - 1] > end:
        first -= 1
        plan.ends[first + found], plan.rows[first + found] = plan.ends[first], plan.rows[first]
    plan.counts[BACKS] += found
    for k in range(found):
        plan.ends[first + k], plan.rows[first + k] = end, used + k
        _write_back(plan, used + k, plan.runs[k], job.kind, -1)
        for row in range(len(plan.allowed) if shared else 0):
            plan.gains[used + k, row] = 0
        _change(plan, first + k, start, -1)


@inner
def _change(plan: NodePlan, k: int, start: float, sign: int) -> None:
    """What comes back in the end is there from `start` on [s], or is taken until then (-1)."""
    for level in range(plan.counts[LEVELS]):
        if plan.times[level] >= plan.ends[k]:
            break
        if plan.times[level] >= start:
            own = plan.order[level]
            _give_back(plan, k, plan.left[own], sign)
            for row in range(len(plan.allowed)):
                plan.idle[own, row] += sign * plan.gains[plan.rows[k], row]


@inner_allocating
def longer_plan(plan: NodePlan, more: int) -> NodePlan:
    """The same plan with room for so many more of `backs`."""
    size = 2 * (plan.counts[BACKS] + more)
    ends, rows = np.empty(size), np.empty(size, np.int64)
    for k in range(plan.counts[BACKS]):
        ends[k], rows[k] = plan.ends[k], plan.rows[k]
    return NodePlan(
        plan.demands, plan.allowed, plan.windows, plan.times, plan.order, plan.left, plan.idle,
        ends, rows, longer(plan.backs, size), longer(plan.gains, size),
        plan.counts, plan.room, plan.units, plan.runs, plan.blocks,
    )  # fmt: skip


@inner
def _copy(table: Ints, other: Ints) -> None:
    for row in range(len(other)):
        for column in range(other.shape[1]):
            table[row, column] = other[row, column]


@inner_allocating
def longer(table: Ints, rows: int) -> Ints:
    """The same table with so many rows."""
    longer = np.empty((rows, table.shape[1]), np.int64)
    _copy(longer, table)
    return longer


# -- Where a job fits --------------------------------------------------------------------------------------------------


@inner
def find_nodes(plan: NodePlan, method: int, job: Any, members: Ints, end: float) -> int:
    """Nodes of `members` for a job from now until `end` [s], into `plan.runs`; how many rows, 0 if it does not fit."""
    return place_job(plan, method, job, plan.times[0]) if has_nodes(plan, job, members, end) else 0


@inner
def has_nodes(plan: NodePlan, job: Any, members: Ints, end: float) -> bool:
    """Whether nodes hold all units of a job from now until `end` [s], but for windows and a most of nodes."""
    if not _may_fit(plan, job, end):
        return False
    units, _ = _least(plan, plan.left[plan.order[0]], 0, job, members, end)
    return bool(units >= job.units)


@inner
def _may_fit(plan: NodePlan, job: Any, end: float) -> bool:
    """Whether enough of the first resource is idle at all levels from now until `end` [s]."""
    wanted = job.units * plan.demands[job.kind, 0]
    for level in range(plan.counts[LEVELS]):
        if level > 0 and not plan.times[level] < end:
            return True
        if plan.idle[plan.order[level], job.allowed] < wanted:
            return False
    return True


@inner
def _least(plan: NodePlan, left: Ints, level: int, job: Any, members: Ints, end: float) -> tuple[int, float]:
    """How many units of a job its nodes hold until `end` [s]; the least that they have left is in `plan.room`.

    `left` is what they have at the start, which is not before this level and before the next one. If they hold too few
    from a later level on, whatever there was before: when that begins [s], else minus infinity.
    """
    units, never = open_nodes(plan, left, job, members), -math.inf
    last = level
    while last + 1 < plan.counts[LEVELS] and plan.times[last + 1] < end:
        last += 1
    if units < job.units or last == level:
        return units, never
    units = open_nodes(plan, plan.left[plan.order[last]], job, members)
    for later in range(last, level, -1):
        if later < last:
            units = _narrow(plan, plan.left[plan.order[later]], job, units)
        if units < job.units:
            return units, plan.times[later]
    return _narrow(plan, left, job, units), never


@inner
def open_nodes(plan: NodePlan, left: Ints, job: Any, members: Ints) -> int:
    """Let a job's nodes have what is left; how many units of it they hold."""
    need, units = plan.demands[job.kind], 0
    for node in range(len(left)):
        plan.units[node] = 0
        for resource in range(left.shape[1]):
            plan.room[node, resource] = max(left[node, resource], 0) if members[node] else 0
        if members[node]:
            plan.units[node] = capped(held(plan.room, node, need), job.per_node)
            units += plan.units[node]
    return units


@inner
def _narrow(plan: NodePlan, left: Ints, job: Any, units: int) -> int:
    """Let nodes have no more than this; how many units of a job they hold, after `units` before."""
    need = plan.demands[job.kind]
    for node in range(len(left)):
        if plan.units[node] > 0:
            lower = False
            for resource in range(left.shape[1]):
                if max(left[node, resource], 0) < plan.room[node, resource]:
                    plan.room[node, resource], lower = max(left[node, resource], 0), True
            if lower:
                now = capped(held(plan.room, node, need), job.per_node)
                units += now - plan.units[node]
                plan.units[node] = now
    return units


@inner
def place_job(plan: NodePlan, method: int, job: Any, start: float) -> int:
    """Nodes in `plan.room` for a job that starts then, into `plan.runs`; how many rows."""
    close(plan.room, plan.windows, start, job.walltime, job.user)
    return int(
        place_within(
            method, plan.room, plan.demands[job.kind], job.units, job.per_node, job.max_nodes, plan.blocks, plan.runs
        )
    )


# -- When a job can start ----------------------------------------------------------------------------------------------


@inner
def not_before(plan: NodePlan, jobs: Table, job: Any, waiting: Ints, planned: Ints, promised: Floats) -> float:
    """When a job can start at the earliest [s]: not before one that asks for no more, and has been planned already."""
    at: float = plan.times[0]
    if len(plan.windows) > 0:
        return at
    for j in planned:
        if promised[j] > at:
            other = jobs[waiting[j]]
            alike = other.kind == job.kind and other.allowed == job.allowed and other.per_node == job.per_node
            no_more = other.units <= job.units and other.estimate <= job.estimate
            if alike and no_more and other.max_nodes == job.max_nodes and other.predicted <= other.estimate:
                at = promised[j]
    return at


@inner_allocating
def reserve(plan: NodePlan, method: int, job: Any, apart: float, after: float, latest: float) -> tuple[float, int]:
    """When a job can start after now [s], at a level that is then there, and how many rows of nodes are in `plan.runs`;
    0 if it cannot start until `latest`. It cannot start before `after` [s]."""
    members, wanted = plan.allowed[job.allowed], job.units * plan.demands[job.kind, 0]
    left, known, back = np.empty_like(plan.room), -1, 0  # left: from this level and all before that comes back
    level, first = 0, 0  # first: of what comes back after the level
    while level + 1 < plan.counts[LEVELS] and plan.times[level + 1] < after:
        level += 1
    while first < plan.counts[BACKS] and plan.ends[first] <= plan.times[level]:
        first += 1
    k, idle = first, plan.idle[plan.order[level], job.allowed]
    while k < plan.counts[BACKS] and plan.ends[k] < after:
        idle += plan.gains[plan.rows[k], job.allowed]
        k += 1
    seen, barred = level + 1, -math.inf  # barred: it cannot start then, nor before
    at = max(plan.times[0], np.nextafter(after, -math.inf))
    while True:
        at = _next_time(plan, at, k)
        if at == math.inf or at > latest:
            return at, 0
        while k < plan.counts[BACKS] and plan.ends[k] <= at:
            idle += plan.gains[plan.rows[k], job.allowed]
            k += 1
        while level + 1 < plan.counts[LEVELS] and plan.times[level + 1] <= at:
            level, first = level + 1, k
            idle = plan.idle[plan.order[level], job.allowed]
        end = at + job.estimate + apart
        while seen < plan.counts[LEVELS] and plan.times[seen] < end:
            if plan.idle[plan.order[seen], job.allowed] < wanted:
                barred = plan.times[seen]
            seen += 1
        if idle < wanted or at <= barred:
            continue
        if known < level:
            _copy(left, plan.left[plan.order[level]])
            known, back = level, first
        while back < k:
            _give_back(plan, back, left, 1)
            back += 1
        units, too_few = _least(plan, left, level, job, members, end)
        barred = max(barred, too_few)
        found = place_job(plan, method, job, at) if units >= job.units else 0
        if found > 0:
            _add_level(plan, level, at, left, first, k)
            return at, found


@inner_allocating
def reserve_beyond(
    plan: NodePlan, method: int, jobs: Table, job: Any, preemption: Floats, apart: float, after: float, latest: float
) -> tuple[float, int, bool]:
    """As `reserve`, but as if the running jobs that the job may preempt had gone, as Slurm plans; and whether there are
    such."""
    victims = _preemptible(plan, jobs, job, preemption)
    if len(victims) == 0:
        at, found = reserve(plan, method, job, apart, after, latest)
        return at, found, False
    backs, gains = plan.backs[: plan.counts[BACKS]].copy(), plan.gains[: plan.counts[BACKS]].copy()
    for victim in victims:
        end_now(plan, victim)
    at, found = reserve(plan, method, job, apart, plan.times[0], latest)
    _copy(plan.backs, backs)
    _copy(plan.gains, gains)
    for victim in victims:
        _set_free(plan, victim, -1)
    return at, found, True


@inner
def _next_time(plan: NodePlan, after: float, k: int) -> float:
    """The next time at which something comes back, or a window ends [s]."""
    at = plan.ends[k] if k < plan.counts[BACKS] else math.inf
    for w in range(len(plan.windows)):
        if plan.windows[w, 1] > after:
            at = min(at, plan.windows[w, 1])
    return at


@inner
def _add_level(plan: NodePlan, level: int, at: float, left: Ints, first: int, k: int) -> None:
    """Begin a level behind that one, unless it begins at that time itself; the first `k` have come back by then, of
    which the `first` had before."""
    if plan.times[level] == at:
        return
    own = plan.counts[LEVELS]
    plan.counts[LEVELS] += 1
    for later in range(own, level + 1, -1):
        plan.times[later], plan.order[later] = plan.times[later - 1], plan.order[later - 1]
    plan.times[level + 1], plan.order[level + 1] = at, own
    _copy(plan.left[own], left)
    for row in range(len(plan.allowed)):
        plan.idle[own, row] = plan.idle[plan.order[level], row]
        for back in range(first, k):
            plan.idle[own, row] += plan.gains[plan.rows[back], row]


# -- Who makes room ----------------------------------------------------------------------------------------------------


@inner_allocating
def find_victims(
    plan: NodePlan, method: int, jobs: Table, job: Any, members: Ints, preemption: Floats, end: float
) -> tuple[Ints, int]:
    """Which running jobs have to go so that a job can run from now until `end` [s]: where they stand first in
    `plan.ends`; and how many rows of nodes it then has; none if it would not fit without all of them either.

    As Slurm chooses them: those of the lowest rank, then of the fewest cores, then those submitted first are taken away
    until the job fits; twice this is done again, the last one first, to need fewer. The job is then placed, and those
    go whose nodes it gets.
    """
    order = _preemptible(plan, jobs, job, preemption)
    for turn in range(4):  # at first all go, to see whether it fits at all
        found, k = 0, 0
        while found == 0 and k < len(order):
            _set_free(plan, order[k], 1)
            k += 1
            if turn > 0 or k == len(order):
                found = find_nodes(plan, method, job, members, end)
        for victim in order[:k]:
            _set_free(plan, victim, -1)
        if found == 0:
            return order[:0], 0
        if turn > 0:
            last = order[k - 1]
            for j in range(k - 1, 0, -1):
                order[j] = order[j - 1]
            order[0] = last
            order = order[:k]
    count = 0
    for victim in order:
        if _overlaps(plan, victim, found):
            order[count] = victim
            count += 1
    return order[:count], found


@inner
def may_make_room(plan: NodePlan, jobs: Table, job: Any, preemption: Floats) -> bool:
    """Whether enough of the first resource would be idle without all running jobs that may be preempted for a job."""
    idle, may, row = plan.idle[plan.order[0], job.allowed], False, -1
    wanted, some = job.units * plan.demands[job.kind, 0], False
    for k in range(plan.counts[BACKS]):
        back = plan.backs[plan.rows[k]]
        if back[HOLDER] != row:
            row = back[HOLDER]
            may = row >= 0 and _is_preemptible(jobs[row], job, preemption, plan.times[0])
        if may and back[UNITS] > 0:
            idle, some = idle + plan.gains[plan.rows[k], job.allowed], True
    return some and idle >= wanted


@inner
def _is_preemptible(other: Any, job: Any, preemption: Floats, now: float) -> bool:
    """Whether a running job may be preempted for another."""
    may = preemption[job.standing, PREEMPTS + other.standing] > 0
    return bool(may and now - other.started >= preemption[other.standing, EXEMPT])


@inner_allocating
def _preemptible(plan: NodePlan, jobs: Table, job: Any, preemption: Floats) -> Ints:
    """The running jobs that have to go for a job, in order: where they stand first in `plan.ends`."""
    first, keys, count, row = np.empty(plan.counts[BACKS], np.int64), np.empty(plan.counts[BACKS]), 0, -1
    for k in range(plan.counts[BACKS]):
        back = plan.backs[plan.rows[k]]
        if back[HOLDER] != row and back[UNITS] > 0:
            row = back[HOLDER]
            if row >= 0 and _is_preemptible(jobs[row], job, preemption, plan.times[0]):
                first[count], keys[count] = k, row
                count += 1
    order = picked(first, ranking(keys[:count]))
    for k in range(count):
        other = jobs[holder_of(plan, order[k])]
        keys[k] = preemption[other.standing, RANK] * 2.0**32 + other.cores
    return picked(order, ranking(keys[:count]))


@inner
def holder_of(plan: NodePlan, k: int) -> int:
    """The row of the job that what comes back then is taken by, or -1."""
    return int(plan.backs[plan.rows[k], HOLDER])


@inner
def _behind(plan: NodePlan, victim: int) -> int:
    """Where what comes back from a running job, which stands there first, ends in `plan.ends`."""
    k = victim
    while k < plan.counts[BACKS] and holder_of(plan, k) == holder_of(plan, victim):
        k += 1
    return k


@inner
def _set_free(plan: NodePlan, victim: int, sign: int) -> None:
    """What a running job holds is free from now on, or is not (-1)."""
    for k in range(victim, _behind(plan, victim)):
        _change(plan, k, plan.times[0], sign)


@inner
def end_now(plan: NodePlan, victim: int) -> None:
    """A running job goes: what it holds is free from now on, and nothing more will come back."""
    _set_free(plan, victim, 1)
    for k in range(victim, _behind(plan, victim)):
        plan.backs[plan.rows[k], UNITS] = 0
        for each in range(len(plan.allowed)):
            plan.gains[plan.rows[k], each] = 0


@inner
def note_nodes(plan: NodePlan, victim: int, nodes: Bools) -> None:
    """Add the nodes of a running job to `nodes`."""
    for k in range(victim, _behind(plan, victim)):
        back = plan.backs[plan.rows[k]]
        for node in range(back[FIRST], back[LAST] + 1):
            nodes[node] = True


@inner
def _overlaps(plan: NodePlan, victim: int, found: int) -> bool:
    """Whether a running job is on one of these nodes."""
    for k in range(victim, _behind(plan, victim)):
        back = plan.backs[plan.rows[k]]
        for run in range(found):
            if plan.runs[run, 0] <= back[LAST] and back[FIRST] <= plan.runs[run, 1]:
                return True
    return False
