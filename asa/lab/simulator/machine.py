"""What happens to jobs on a simulated machine, compiled: they are submitted, become eligible, start, end, wait again.

Every function changes the state and nothing else; none decides anything. Room in the tables is the caller's business
(`asa.lab.simulator.calendar.spare`).
"""

from __future__ import annotations

import numpy as np

from asa.core.job import JobState, QueueRegime
from asa.lab.core.compiled import compiled, inner
from asa.lab.core.schedule import OUTCOMES
from asa.lab.placement.native import BLOCK
from asa.lab.simulator.heap import push
from asa.lab.simulator.nodes import hold, let_go, recount
from asa.lab.simulator.state import (
    AFTER,
    AFTER_OK,
    BEGIN,
    CANCEL,
    DEPENDENCY,
    DOWN,
    EARLY_END,
    END,
    ENDED,
    FINISHED,
    HELD,
    NONE,
    OPEN,
    REQUEUED,
    RUNNING,
    SPEED,
    STARTED,
    SUBMITTED,
    UP,
    WAITING,
    State,
)
from asa.lab.simulator.waitlist import leave, notice, unshut, write

COMPLETED, TIMEOUT, CANCELLED, NODE_FAIL, FAILED = (
    OUTCOMES.index(state)
    for state in (JobState.COMPLETED, JobState.TIMEOUT, JobState.CANCELLED, JobState.NODE_FAIL, JobState.FAILED)
)

REGIMES = tuple(QueueRegime)
ACCRUE_ALWAYS, MULTIFACTOR = REGIMES.index(QueueRegime.ACCRUE_ALWAYS), REGIMES.index(QueueRegime.MULTIFACTOR)


@inner
def submit(s: State, job: int) -> None:
    """A job reaches the machine."""
    world = s.world[0]
    row, fate = s.jobs[job], s.fates[job]
    row.place = world.place
    world.place += 1.0
    fate.status = HELD
    write(s, SUBMITTED, job, 0.0)
    if fate.begin > world.now:
        fate.gates |= BEGIN
        push(s, fate.begin, OPEN, job)
    if fate.unmet > 0:
        fate.gates |= DEPENDENCY
    if world.regime == ACCRUE_ALWAYS:
        row.accrue = world.now
    elif world.regime == MULTIFACTOR and fate.gates & BEGIN:
        row.accrue = fate.begin  # and there it stays, even when the job is let go earlier
    unshut(s, job, 0)


@inner
def meet(s: State, edge: int) -> None:
    """A dependency is fulfilled."""
    child = s.edges[edge].child
    fate = s.fates[child]
    fate.unmet -= 1
    think = s.edges[edge].think
    if think > 0:
        fate.begin = max(fate.begin, s.world[0].now + think)
        if fate.status == HELD:
            fate.gates |= BEGIN
            push(s, fate.begin, OPEN, child)
    if fate.unmet == 0 and fate.status == HELD:
        unshut(s, child, DEPENDENCY)


@inner
def tell_children(s: State, job: int, over: bool, well: bool) -> None:
    """Fulfil, or doom, the dependencies of those that wait for this job's start or end."""
    edge = s.fates[job].children
    while edge != NONE:
        kind = s.edges[edge].kind
        if s.edges[edge].child == NONE:  # taken back
            pass
        elif kind == AFTER:
            if not over:
                meet(s, edge)
        elif over:
            if kind == AFTER_OK and not well:
                push(s, s.world[0].now, CANCEL, s.edges[edge].child)
            else:
                meet(s, edge)
        edge = s.edges[edge].next


@inner
def node_down(s: State, node: int) -> None:
    """A node fails, and with it the jobs it held; they wait again where the machine is set so."""
    world = s.world[0]
    if not _up(s, node):
        return
    row = world.running - 1
    while row >= 0:  # backwards, for rows behind one that goes move up
        job = s.active[row]
        slot = s.fates[job].held
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
def node_up(s: State, node: int) -> None:
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
def _up(s: State, node: int) -> bool:
    amounts = 0
    for k in range(s.capacity.shape[1]):
        amounts += s.capacity[node, k]
    return bool(amounts > 0)


@compiled
def start(s: State, job: int, count: int) -> None:
    """Start a waiting job on the first `count` runs of nodes in ``s.runs``. It must be out of the queue."""
    world = s.world[0]
    row, fate = s.jobs[job], s.fates[job]
    for k in range(count):
        hold(s, job, s.runs[k, 0], s.runs[k, 1], s.runs[k, 2])
    if world.slots >= 0:
        world.free -= row.units
    fate.status = RUNNING
    fate.left = fate.run
    fate.since = world.now
    row.started = world.now
    row.planned = np.nan
    ends = world.now + row.estimate
    behind = world.running
    while behind > 0 and s.ends[behind - 1] > ends:
        s.ends[behind] = s.ends[behind - 1]
        s.active[behind] = s.active[behind - 1]
        behind -= 1
    s.ends[behind] = ends
    s.active[behind] = job
    world.running += 1
    write(s, STARTED, job, 0.0)
    expect_end(s, job)
    tell_children(s, job, False, True)
    notice(s, job)


@inner
def expect_end(s: State, job: int) -> None:
    """Put a running job's end on the calendar: of its work, or of its time."""
    world = s.world[0]
    row, fate = s.jobs[job], s.fates[job]
    at = max(world.now, min(fate.since + fate.left / fate.speed, row.started + fate.stop))
    early = world.one_by_one and at < row.started + row.estimate
    fate.event = push(s, at, EARLY_END if early else END, job)


@compiled
def set_speed(s: State, job: int, speed: float) -> None:
    """A running job gets on at another speed from now on."""
    fate = s.fates[job]
    now = s.world[0].now
    fate.left = max(0.0, fate.left - (now - fate.since) * fate.speed)
    fate.since = now
    fate.speed = speed
    write(s, SPEED, job, speed)
    expect_end(s, job)


@inner
def stop_running(s: State, job: int) -> None:
    """A running job is gone from its nodes."""
    world = s.world[0]
    row = s.jobs[job]
    ends = row.started + row.estimate
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
    let_go(s, job)
    world.dirty = 1


@compiled
def finish(s: State, job: int, outcome: int) -> None:
    """A job's end, wherever it stands."""
    world = s.world[0]
    fate = s.fates[job]
    if fate.status == RUNNING:
        stop_running(s, job)
        charge(s, job)
    elif fate.status == WAITING:
        leave(s, job)
    fate.status = ENDED
    fate.outcome = outcome
    fate.ended = world.now
    fate.event = NONE
    write(s, FINISHED, job, float(outcome))
    tell_children(s, job, True, outcome == COMPLETED)
    notice(s, job)


@compiled
def requeue(s: State, job: int) -> None:
    """A running job waits again, as if it had just been submitted: at the end of the queue, its age gone."""
    world = s.world[0]
    row, fate = s.jobs[job], s.fates[job]
    stop_running(s, job)
    charge(s, job)
    fate.status = HELD
    fate.event = NONE
    row.started = np.nan
    row.eligible = np.nan
    row.accrue = np.nan
    row.restarts += 1
    row.place = world.place
    world.place += 1.0
    write(s, REQUEUED, job, 0.0)
    unshut(s, job, 0)


@inner
def charge(s: State, job: int) -> None:
    """Add what a job has used to its user's account."""
    row = s.jobs[job]
    if row.user >= 0:
        now = s.world[0].now
        age = now - s.usage[row.user, 1]
        s.usage[row.user, 0] *= 0.5 ** (age / s.world[0].half_life)
        s.usage[row.user, 0] += row.cores * (now - row.started)
        s.usage[row.user, 1] = now
