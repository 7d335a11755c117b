"""First come first served, EASY and conservative backfilling: one rule and a number, compiled for large queues.

The rule is that of `asa.core.backfill.ReservationRule`; tests hold the two against each other. A machine of slots has
equal nodes, and jobs that differ in how many equal units they take: one number says what is free. On other machines a
job starts on nodes that no reservation needs while it runs, and a reservation is a time and a set of nodes. That is
stricter than on a machine of slots, where a reservation may still find other nodes.

References
----------
WFP3: W. Tang, Z. Lan, N. Desai and D. Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P systems",
IEEE Cluster 2009. F1: D. Carastan-Santos and R. Y. de Camargo, "Obtaining dynamic scheduling policies with simulation
and machine learning", SC 2017, table 3. Smallest area: D. Carastan-Santos, R. Y. de Camargo, D. Trystram and
S. Zrigui, "One can only gain by replacing EASY backfilling", CCGrid 2019. The others are folklore. Threshold:
J. Lelong, V. Reis and D. Trystram, "Tuning EASY-backfilling queues", JSSPP 2017.
A. W. Mu'alem and D. G. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the
IBM SP2 with backfilling", IEEE TPDS 12(6), 2001. D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY).
Widths: S. Srinivasan, V. Subramani, R. Kettimuthu, P. Holenarsipur and P. Sadayappan, "Effective selection of partition
sizes for moldable scheduling of parallel jobs", HiPC 2002.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats, Ints
from asa.core.backfill import ReservationRule
from asa.core.decision import DispatchDecision, NodeRun, Reserve, SetWidth, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import DISPATCHERS
from asa.core.units import duration
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.compiled import compiled, inner, inner_allocating, picked, ranking
from asa.lab.core.registry import PREDICTORS
from asa.lab.core.table import EXEMPT, PREEMPTS, RANK, TableView
from asa.lab.dispatchers.room import columns
from asa.lab.dispatchers.shift import Shift
from asa.lab.placement.nodes import BLOCK, capped, close, held, place_within

# -- Orders of the queue ----------------------------------------------------------------------------------------------

Key = Callable[[QueuedJob, float], float]
"""What a job's place in the queue is computed from: the job and the time [s]. The lowest is first."""

FCFS, SJF, LARGEST_AREA, WFP3, F1, SMALLEST_AREA = range(6)
ALL_JOBS = 2**62
OWN = -1
"""Code of an order that a function of the user's makes."""
APART_S = 1.0
"""Where gaps are filled at intervals, as by Slurm, a job has to end so long before a reservation begins [s]: Slurm
plans in whole seconds, and a job that would end in the second in which another begins is in its way."""


@compiled
def order_key(code: int, now: float, submit: float, estimate: float, cores: int) -> float:
    """Key of one job in one of the orders of `ORDERS`.

    Times in [s]. Infinite where an order needs an estimate and there is none (NaN or infinite). Where a formula divides
    by the estimate, or takes the logarithm of it or of the submission, less than 1 s counts as 1 s: the papers leave
    open what jobs without length, and those at the very start of a trace, are worth.
    """
    if code == FCFS:
        return submit
    if not math.isfinite(estimate):
        return math.inf
    if code == SJF:
        return estimate
    if code == LARGEST_AREA:
        return -estimate * cores
    if code == SMALLEST_AREA:
        return estimate * cores
    if code == WFP3:
        ratio = (now - submit) / max(estimate, 1.0)
        return -ratio * ratio * ratio * cores
    return math.log10(max(estimate, 1.0)) * cores + 870.0 * math.log10(max(submit, 1.0))


@compiled
def queue_keys(
    code: int, threshold: float, oldest: int, now: float, submit: Floats, estimate: Floats, cores: Ints
) -> Floats:
    """Keys of many jobs, shape (q,): minus infinity for the first `oldest` that waited for over `threshold` [s]."""
    keys = np.empty(len(submit))
    for job in range(len(submit)):
        if oldest > 0 and now - submit[job] > threshold:
            keys[job] = -math.inf
            oldest -= 1
        else:
            keys[job] = order_key(code, now, submit[job], estimate[job], cores[job])
    return keys


@dataclass(frozen=True)
class QueueOrder:
    """An order of the queue. Equal keys leave jobs in the order in which they stand.

    Parameters
    ----------
    dynamic
        Whether a job's key changes while it waits.
    key
        The function behind an order of one's own.
    threshold
        Jobs that have waited for longer [s] come before all others, and stay among themselves as they stand: so no
        order starves a job for ever. Infinite: there are none.
    oldest
        How many of these come first; the others wait in the order like all. A whole number >= 1, or infinite.
    """

    name: str
    code: int
    dynamic: bool = False
    key: Key | None = None
    threshold: float = math.inf
    oldest: float = math.inf

    @property
    def most(self) -> int:
        """`oldest` as a whole number."""
        return int(min(self.oldest, ALL_JOBS))

    def rank(self, now: float, submit: npt.ArrayLike, estimate: npt.ArrayLike, cores: npt.ArrayLike) -> Floats:
        """Keys of jobs that are given as columns, shape (q,).

        Raises
        ------
        InvalidInput
            When the order is a function of one's own: it needs to see the jobs, so use `keys`.
        """
        if self.key is not None:
            raise InvalidInput(f"order {self.name!r} is a function of jobs: give `keys` a view instead of columns")
        keys: Floats = queue_keys(
            self.code,
            self.threshold,
            self.most,
            float(now),
            np.ascontiguousarray(submit, dtype=np.float64),
            np.ascontiguousarray(estimate, dtype=np.float64),
            np.ascontiguousarray(cores, dtype=np.int64),
        )
        return keys

    def keys(self, view: QueueView | TableView) -> Floats:
        """Keys of a view's waiting jobs, shape (q,)."""
        if self.key is not None:
            keys = np.array([self.key(job, view.now) for job in view.queue], dtype=np.float64)
            keys[np.flatnonzero(view.now - columns(view)[0] > self.threshold)[: self.most]] = -math.inf
            return keys
        return self.rank(view.now, *columns(view))

    def arrange(self, view: QueueView | TableView) -> Ints:
        """Places of the waiting jobs in a view's queue, in this order, shape (q,); higher tiers first."""
        order: Ints = np.argsort(self.keys(view), kind="stable")
        if isinstance(view, QueueView):
            return order
        return order[np.argsort(-view.column("tier")[order], kind="stable")]


ORDERS: Mapping[str, QueueOrder] = {
    item.name: item
    for item in (
        QueueOrder("fcfs", FCFS),
        QueueOrder("sjf", SJF),
        QueueOrder("largest-area", LARGEST_AREA),
        QueueOrder("wfp3", WFP3, dynamic=True),
        QueueOrder("f1", F1),
        QueueOrder("smallest-area", SMALLEST_AREA),
    )
}
"""First come first served: submission. Shortest job first: estimate. Largest area first: minus estimate times cores;
smallest: the same without the minus. WFP3: minus (wait / estimate) cubed times cores, which favours large jobs that
have waited long for their length. F1: log10(estimate) * cores + 870 * log10(submission), learned from simulations; the
logarithm of the submission makes it depend on when time begins, which for it is the begin of the trace.
"""


def find_order(what: str | QueueOrder | Key, threshold: float | str = math.inf, oldest: float = math.inf) -> QueueOrder:
    """The order of that name, or one made of a function ``key(job, now)``, which is taken to change with time.

    Examples
    --------
    >>> find_order("sjf").rank(now=0.0, submit=[0.0, 0.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([60., 30.])
    >>> find_order("sjf", "1h").rank(now=3601.0, submit=[0.0, 60.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([-inf,  30.])
    >>> find_order(lambda job, now: job.resources.cores).dynamic
    True
    """
    found, limit = _found(what), duration(threshold, what="threshold", endless=True)
    if not (oldest >= 1 and (oldest == math.inf or oldest == int(oldest))):
        raise InvalidInput(f"oldest={oldest!r}: a whole number of jobs, at least 1, expected")
    if limit == math.inf:
        if oldest < math.inf:
            raise InvalidInput(f"oldest={oldest:g} of the jobs beyond threshold= come first, and there is none")
        return found
    return replace(found, threshold=limit, oldest=oldest, dynamic=True)


def _found(what: str | QueueOrder | Key) -> QueueOrder:
    if isinstance(what, QueueOrder):
        return what
    if not isinstance(what, str):
        return QueueOrder(getattr(what, "__name__", "own"), OWN, dynamic=True, key=what)
    if what not in ORDERS:
        raise UnknownName("order", what, ORDERS)
    return ORDERS[what]


# -- Widths of moldable jobs ------------------------------------------------------------------------------------------

AS_ASKED, SOONEST, FAIR = range(3)
WIDTHS: Mapping[str, int] = {"as-asked": AS_ASKED, "soonest": SOONEST, "fair": FAIR}
"""How wide moldable jobs start. As they ask; that with which the job is planned to end soonest: now on fewer units, or
later on more; or the soonest of those that are no more than its share of the idle units, or the least. Shares go by
what the waiting jobs ask for. Of widths that end at the same time it is that which starts first, then the narrowest.
"""

# -- The rule as numbers --------------------------------------------------------------------------------------------


class BackfillRule(NamedTuple):
    """A backfilling rule as numbers, for compiled code.

    Parameters
    ----------
    depth, limit
        As in `Backfill`.
    order, threshold, oldest
        Code of the queue's order, or -1, its threshold [s], and how many jobs beyond that come first.
    fill, strict_after
        Code of the order in which gaps are filled, or -1; after which wait of the first blocked job they are filled
        only by jobs whose wall times fit [s].
    window
        How far ahead there are reservations [s].
    interval
        How often gaps are filled [s]; 0: at each decision. With one, jobs end `APART_S` before reservations begin.
    width
        Code of how wide moldable jobs start.
    """

    depth: float
    limit: int = ALL_JOBS
    order: int = -1
    threshold: float = math.inf
    fill: int = -1
    strict_after: float = math.inf
    oldest: int = ALL_JOBS
    window: float = math.inf
    interval: float = 0.0
    width: int = AS_ASKED


# -- The rule on a machine of slots, compiled -------------------------------------------------------------------------

Table = npt.NDArray[np.void]


@compiled
def scan(
    now: float,
    rule: BackfillRule,
    free: int,
    slots: int,
    jobs: Table,
    waiting: Ints,
    active: Ints,
    ends: Floats,
    starts: Ints,
    promised: Floats,
    promise: bool,
) -> int:
    """Which of the waiting jobs start now.

    Parameters
    ----------
    rule
        Its order is not looked at: `waiting` has it; of its interval only whether there is one.
    jobs
        Table of jobs; its units, estimates and predictions [s] are read.
    active, ends
        Rows of running jobs and their expected ends [s], in order of these.
    starts
        Takes the positions in `waiting` of those that start, in order.
    promised
        Takes, for each waiting job, the start it is promised [s], or NaN; only the first ``rule.limit`` are written.
    promise
        Whether the promises matter even where they cannot change who starts.

    Returns
    -------
    int
        How many start.
    """
    depth, count = rule.depth, min(rule.limit, len(waiting))
    for j in range(count):
        promised[j] = np.nan
    started, k = 0, 0
    while k < count and (jobs[waiting[k]].units <= free or (depth == 0 and jobs[waiting[k]].units > slots)):
        if jobs[waiting[k]].units <= free:  # the first blocked one ends this; one that can never run blocks no other
            free -= jobs[waiting[k]].units
            starts[started] = k
            started += 1
        k += 1
    if k == count or depth == 0 or (free == 0 and not promise):
        return started
    size = len(active) + started + (count - k) + 2
    times, room = np.empty(size), np.empty(size, np.int64)
    steps = _free_units(now, free, jobs, waiting, starts[:started], active, ends, times, room)
    strict = now - jobs[waiting[k]].submit > rule.strict_after
    reserved, apart = 0, APART_S if rule.interval > 0 else 0.0
    for j in _filling(now, rule, jobs, waiting, k, count):
        if room[0] == 0 and (reserved >= depth or not promise):  # no other can start
            break
        units, lasts = jobs[waiting[j]].units, jobs[waiting[j]].estimate
        stays = lasts if strict else jobs[waiting[j]].predicted
        if units <= room[0] and _fits(times, room, steps, units, now + stays + apart):
            steps = _cut_step(times, room, steps, units, 0, now, now + stays)
            starts[started] = j
            started += 1
        elif reserved < depth:
            step = _earliest(times, room, steps, units, lasts + apart)
            if step >= 0 and times[step] <= now + rule.window:
                promised[j] = times[step]
                steps = _cut_step(times, room, steps, units, step, times[step], times[step] + lasts)
                reserved += 1
    for i in range(1, started):  # in the queue's order, whatever the order in which they fill gaps
        at, j = i, starts[i]
        while at > 0 and starts[at - 1] > j:
            starts[at] = starts[at - 1]
            at -= 1
        starts[at] = j
    return started


@inner_allocating
def _filling(now: float, rule: BackfillRule, jobs: Table, waiting: Ints, first: int, count: int) -> Ints:
    """Places from the first blocked job's on; those behind it in the order in which they fill what it leaves."""
    places = np.arange(first, count)
    if rule.fill >= 0 and count > first + 1:
        keys = np.empty(count - first - 1)
        for k in range(len(keys)):
            job = jobs[waiting[first + 1 + k]]
            keys[k] = order_key(rule.fill, now, job.submit, job.predicted, job.cores)
        order = ranking(keys)
        for k in range(len(keys)):
            places[k + 1] = first + 1 + order[k]
    return places


@inner_allocating
def _free_units(
    now: float,
    free: int,
    jobs: Table,
    waiting: Ints,
    starts: Ints,
    active: Ints,
    ends: Floats,
    times: Floats,
    room: Ints,
) -> int:
    """Free units over time, from running jobs and from those that start now; how many steps."""
    soonest = np.nextafter(now, math.inf)  # one that is overdue is expected back in the very next moment
    order = np.empty(len(starts))
    for i in range(len(starts)):
        order[i] = max(now + jobs[waiting[starts[i]]].estimate, soonest)
    rank = ranking(order)
    times[0], room[0] = now, free
    steps, a, b = 1, 0, 0
    while a < len(active) or b < len(starts):
        mine = max(ends[a], soonest) if a < len(active) else math.inf
        new = order[rank[b]] if b < len(starts) else math.inf
        if a < len(active) and mine <= new:
            at, back = mine, jobs[active[a]].units
            a += 1
        else:
            at, back = new, jobs[waiting[starts[rank[b]]]].units
            b += 1
        if at > times[steps - 1]:
            times[steps], room[steps] = at, room[steps - 1]
            steps += 1
        room[steps - 1] += back
    return steps


@inner
def _fits(times: Floats, room: Ints, steps: int, units: int, end: float) -> bool:
    """Whether so many units are free from the first step until `end` [s]."""
    step = 0
    while room[step] >= units:
        step += 1
        if step == steps or times[step] >= end:
            return True
    return False


@inner
def _earliest(times: Floats, room: Ints, steps: int, units: int, lasts: float) -> int:
    """First step from which so many units are free for so long [s]; -1 when never."""
    begin = 0
    for step in range(steps):
        if room[step] < units:
            begin = step + 1
        elif step + 1 < steps and times[step + 1] >= times[begin] + lasts:
            return begin
    return begin if begin < steps else -1


@inner
def _cut_step(times: Floats, room: Ints, steps: int, units: int, first: int, start: float, end: float) -> int:
    """Take units out from step `first` until `end` [s], cutting the last step in two; the new number of steps."""
    end = max(end, np.nextafter(start, math.inf))  # a box too thin for a float still counts
    last = first
    while last < steps and times[last] < end:
        last += 1
    if end < math.inf and (last == steps or times[last] > end):
        for step in range(steps, last, -1):
            times[step], room[step] = times[step - 1], room[step - 1]
        times[last], room[last] = end, room[last - 1]
        steps += 1
    for step in range(first, last):
        room[step] -= units
    return steps


@compiled
def scan_widths(
    now: float,
    rule: BackfillRule,
    free: int,
    jobs: Table,
    waiting: Ints,
    active: Ints,
    ends: Floats,
    molds: Ints,
    widths: Floats,
    starts: Ints,
    units: Ints,
    promised: Floats,
) -> int:
    """Which of the waiting jobs start now, some of which are moldable; the others are treated as by `scan`.

    Of each job in turn the width is chosen, in the plan that the jobs before it have left. One that does not start now
    with its width is blocked; the first `depth` of these get reservations.

    Parameters
    ----------
    now, rule, free, jobs, waiting, active, ends, starts, promised
        As in `scan`.
    molds, widths
        As in `TableView`.
    units
        Takes the widths of those that start, in order.

    Returns
    -------
    int
        How many start.
    """
    depth, count = rule.depth, min(rule.limit, len(waiting))
    asked = 0
    for j in range(count):
        promised[j] = np.nan
        asked += jobs[waiting[j]].units
    size = len(active) + 2 * count + 2
    times, room = np.empty(size), np.empty(size, np.int64)
    steps = _free_units(now, free, jobs, waiting, starts[:0], active, ends, times, room)
    started, reserved = 0, 0
    for j in range(count):
        if room[0] == 0 and reserved >= depth:  # no other can start
            break
        row = waiting[j]
        first, last = (molds[row], molds[row + 1]) if row + 1 < len(molds) else (0, 0)
        most = free * jobs[row].units // asked if rule.width == FAIR else ALL_JOBS
        step, wide, lasts = _soonest(times, room, steps, jobs[row], widths[first:last], most)
        if step == 0:
            steps = _cut_step(times, room, steps, wide, 0, now, now + lasts)
            starts[started], units[started] = j, wide
            started += 1
        elif step > 0 and depth == 0:
            break
        elif step > 0 and reserved < depth and times[step] <= now + rule.window:
            promised[j] = times[step]
            steps = _cut_step(times, room, steps, wide, step, times[step], times[step] + lasts)
            reserved += 1
    return started


@inner
def _soonest(times: Floats, room: Ints, steps: int, job: Any, widths: Floats, most: int) -> tuple[int, int, float]:
    """The first step from which a job can run with the width with which it ends soonest, that width, and how long it
    lasts [s]; -1 when it can never run. Only the narrowest of its `widths` may be above `most`; a rigid job has none.
    """
    if len(widths) == 0:
        return _earliest(times, room, steps, job.units, job.estimate), job.units, job.estimate
    least = math.inf
    for k in range(len(widths)):
        least = min(least, widths[k, 0])
    best, units, lasts = -1, 0, math.inf
    for k in range(len(widths)):
        wide, takes = int(widths[k, 0]), job.estimate * widths[k, 1]
        step = _earliest(times, room, steps, wide, takes) if wide <= max(least, most) else -1
        if step >= 0:
            found = (times[step] + takes, step, wide)
            if best < 0 or found < (times[best] + lasts, best, units):
                best, units, lasts = step, wide, takes
    return best, units, lasts


# -- The rule on a machine whose nodes or jobs differ, compiled -------------------------------------------------------

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
        What nodes have left then, shape (levels, nodes, resources).
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


@compiled
def scan_nodes(
    now: float,
    rule: BackfillRule,
    method: int,
    jobs: Table,
    demands: Ints,
    waiting: Ints,
    release_at: Floats,
    release: Ints,
    holder: Ints,
    free: Ints,
    allowed: Ints,
    windows: Floats,
    preemption: Floats,
    starts: Ints,
    promised: Floats,
    promise: bool,
) -> tuple[int, Ints, Ints]:
    """Which of the waiting jobs start now, where, and which running jobs make room for them.

    The rule is that of each partition: the first `depth` jobs of each that cannot start get reservations. With a depth
    of 0, one that cannot start keeps all behind it from the nodes of its partition, whatever partition they are of; but
    not one for which there are too few nodes beside the windows. Where there are windows, the queue is first gone
    through with a depth of 0, as by Slurm's main scheduler.

    Parameters
    ----------
    now, rule, starts, promised, promise
        As in `asa.lab.dispatchers.backfill.scan`.
    jobs, demands, waiting
        Table of jobs, what one unit of each kind takes, and rows of waiting jobs, in order.
    release_at, release
        When what runs is expected to end [s], in order, and what comes back then: shape (k,), and (k, 4): first node,
        last node, units of each, kind.
    holder, preemption
        Rows of the jobs that it comes back from, and who preempts whom, as in `TableView`.
    free
        What nodes have left, shape (nodes, resources).
    allowed
        Nodes that jobs may have, as in `TableView`.
    windows
        When nodes are kept from jobs, as in `TableView`; they go by wall times, whatever the estimates are.

    Returns
    -------
    tuple
        How many start; on which nodes: rows of position, first node, last node, units of each; and who goes: rows of
        position of the job that preempts, row of the one that runs.
    """
    depth, count = float(rule.depth), min(rule.limit, len(waiting))
    parts = 1
    for j in range(count):
        promised[j] = np.nan
        parts = max(parts, jobs[waiting[j]].partition + 1)
    most = int(min(depth * parts, count))  # reservations
    plan = _new_plan(now, demands, allowed, windows, release_at, release, holder, free, most)
    whole = _all_back(plan)
    chosen, rows = np.empty((64, 4), np.int64), 0
    gone, lost = np.empty((len(holder) if len(preemption) > 0 else 0, 2), np.int64), 0
    planned, reserved, since = np.empty(most, np.int64), 0, 0  # since: what nodes have left has only shrunk
    started, apart = 0, APART_S if rule.interval > 0 else 0.0
    reserved_of, begun = np.zeros(parts, np.int64), np.zeros(count, np.bool_)
    depths = np.array([0.0, depth]) if depth > 0 and len(windows) > 0 else np.array([depth])
    for step in range(len(depths) * count):
        depth, turn = depths[step // count], step % count
        if turn == 0:
            places, last = np.arange(count), count - 1  # last: none behind that turn can start
            blocked, strict = np.zeros(parts, np.bool_), np.zeros(parts, np.bool_)
            usable, closed = allowed.copy(), 0  # closed: nodes that a blocked job keeps for itself, with a depth of 0
        j = places[turn]
        if begun[j] or closed == len(free):
            continue
        job = jobs[waiting[j]]
        part = job.partition
        if depth == 0 and blocked[part]:
            continue
        stays = job.predicted if blocked[part] and not strict[part] else job.estimate
        found = _find(plan, method, job, usable[job.allowed], now + stays + apart)
        if found == 0 and len(preemption) > 0 and _may_make_room(plan, jobs, job, preemption):
            victims, found = _victims(plan, method, jobs, job, usable[job.allowed], preemption, now + stays + apart)
            for victim in victims:
                gone[lost, 0], gone[lost, 1] = j, _holder(plan, victim)
                lost += 1
                _end_now(plan, victim)
                last, since = count - 1, reserved
        if found == 0 and depth > 0 and not blocked[part]:
            blocked[part], strict[part] = True, now - job.submit > rule.strict_after
            if rule.fill >= 0:
                _fill_behind(now, rule, jobs, waiting, places, turn)
                last = count - 1
        if found > 0:
            if rows + found > len(chosen):
                chosen = _longer(chosen, 2 * (rows + found))
            if plan.counts[BACKS] + found > len(plan.ends):
                plan = _longer_plan(plan, found)
            _take(plan, job, found, now, now + stays)
            for k in range(found):
                chosen[rows, 0] = j
                for column in range(3):
                    chosen[rows, column + 1] = plan.runs[k, column]
                rows += 1
            starts[started] = j
            begun[j] = True
            started += 1
        elif depth == 0:
            _open(plan, whole, job, allowed[job.allowed])
            if _place(plan, method, job, now) > 0:  # one that cannot run now blocks no other
                blocked[part] = True
                closed += _close(usable, allowed[part])
        elif reserved_of[part] < depth:
            if not promise:
                last = _last_to_start(plan, jobs, waiting, places, begun, preemption, turn, last, apart)
                if last <= turn:
                    break
            after = _not_before(plan, jobs, job, waiting, planned[since:reserved], promised)
            at, found = _reserve(plan, method, job, apart, after, now + rule.window)
            if found > 0:
                planned[reserved] = j
                reserved += 1
                promised[j] = at
                reserved_of[part] += 1
                if plan.counts[BACKS] + found > len(plan.ends):
                    plan = _longer_plan(plan, found)
                _take(plan, job, found, at, at + job.estimate)
    return started, chosen[:rows], gone[:lost]


# What nodes have left, and what comes back


@inner_allocating
def _new_plan(
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
def _all_back(plan: NodePlan) -> Ints:
    """What nodes have when all has come back, shape (nodes, resources)."""
    whole = plan.left[0].copy()
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
def _take(plan: NodePlan, job: Any, found: int, start: float, end: float) -> None:
    """A job has its `runs` of nodes from a level's time until `end` [s]; they come back then."""
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
def _longer_plan(plan: NodePlan, more: int) -> NodePlan:
    """The same plan with room for so many more of `backs`."""
    size = 2 * (plan.counts[BACKS] + more)
    ends, rows = np.empty(size), np.empty(size, np.int64)
    for k in range(plan.counts[BACKS]):
        ends[k], rows[k] = plan.ends[k], plan.rows[k]
    return NodePlan(
        plan.demands, plan.allowed, plan.windows, plan.times, plan.order, plan.left, plan.idle,
        ends, rows, _longer(plan.backs, size), _longer(plan.gains, size),
        plan.counts, plan.room, plan.units, plan.runs, plan.blocks,
    )  # fmt: skip


# Where a job fits


@inner
def _find(plan: NodePlan, method: int, job: Any, members: Ints, end: float) -> int:
    """Nodes of `members` for a job from now until `end` [s], into `plan.runs`; how many rows, 0 if it does not fit."""
    return _place(plan, method, job, plan.times[0]) if _has_nodes(plan, job, members, end) else 0


@inner
def _has_nodes(plan: NodePlan, job: Any, members: Ints, end: float) -> bool:
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
    units, never = _open(plan, left, job, members), -math.inf
    last = level
    while last + 1 < plan.counts[LEVELS] and plan.times[last + 1] < end:
        last += 1
    if units < job.units or last == level:
        return units, never
    units = _open(plan, plan.left[plan.order[last]], job, members)
    for later in range(last, level, -1):
        if later < last:
            units = _narrow(plan, plan.left[plan.order[later]], job, units)
        if units < job.units:
            return units, plan.times[later]
    return _narrow(plan, left, job, units), never


@inner
def _open(plan: NodePlan, left: Ints, job: Any, members: Ints) -> int:
    """Let a job's nodes have what is left; how many units of it they hold."""
    need, units = plan.demands[job.kind], 0
    for node in range(len(left)):
        plan.units[node] = 0
        for resource in range(left.shape[1]):
            plan.room[node, resource] = left[node, resource] if members[node] else 0
        if members[node]:
            plan.units[node] = capped(held(left, node, need), job.per_node)
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
                if left[node, resource] < plan.room[node, resource]:
                    plan.room[node, resource], lower = left[node, resource], True
            if lower:
                now = capped(held(plan.room, node, need), job.per_node)
                units += now - plan.units[node]
                plan.units[node] = now
    return units


@inner
def _place(plan: NodePlan, method: int, job: Any, start: float) -> int:
    """Nodes in `plan.room` for a job that starts then, into `plan.runs`; how many rows."""
    close(plan.room, plan.windows, start, job.walltime, job.user)
    return int(
        place_within(
            method, plan.room, plan.demands[job.kind], job.units, job.per_node, job.max_nodes, plan.blocks, plan.runs
        )
    )


@inner
def _last_to_start(
    plan: NodePlan, jobs: Table, waiting: Ints, places: Ints, begun: Bools, preemption: Floats, turn: int, last: int,
    apart: float,
) -> int:  # fmt: skip
    """The last turn behind this one, up to `last`, at which a job may still start; or this one if there is none."""
    while last > turn:
        job = jobs[waiting[places[last]]]
        end = plan.times[0] + min(job.estimate, job.predicted) + apart
        makes_room = len(preemption) > 0 and _may_make_room(plan, jobs, job, preemption)
        if not begun[places[last]] and (makes_room or _has_nodes(plan, job, plan.allowed[job.allowed], end)):
            break
        last -= 1
    return last


@inner
def _not_before(plan: NodePlan, jobs: Table, job: Any, waiting: Ints, planned: Ints, promised: Floats) -> float:
    """When a job can start at the earliest [s]: not before one that asks for no more, and has been planned already."""
    at = plan.times[0]
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
def _reserve(
    plan: NodePlan, method: int, job: Any, apart: float, after: float, latest: float
) -> tuple[float, int]:  # fmt: skip
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
        found = _place(plan, method, job, at) if units >= job.units else 0
        if found > 0:
            _add_level(plan, level, at, left, first, k)
            return at, found


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


# Who makes room


@inner_allocating
def _victims(
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
                found = _find(plan, method, job, members, end)
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
def _may_make_room(plan: NodePlan, jobs: Table, job: Any, preemption: Floats) -> bool:
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
        other = jobs[_holder(plan, order[k])]
        keys[k] = preemption[other.standing, RANK] * 2.0**32 + other.cores
    return picked(order, ranking(keys[:count]))


@inner
def _holder(plan: NodePlan, k: int) -> int:
    return int(plan.backs[plan.rows[k], HOLDER])


@inner
def _set_free(plan: NodePlan, victim: int, sign: int) -> None:
    """What a running job holds is free from now on, or is not (-1)."""
    row, k = _holder(plan, victim), victim
    while k < plan.counts[BACKS] and _holder(plan, k) == row:
        _change(plan, k, plan.times[0], sign)
        k += 1


@inner
def _end_now(plan: NodePlan, victim: int) -> None:
    """A running job goes: what it holds is free from now on, and nothing more will come back."""
    _set_free(plan, victim, 1)
    row, k = _holder(plan, victim), victim
    while k < plan.counts[BACKS] and _holder(plan, k) == row:
        plan.backs[plan.rows[k], UNITS] = 0
        for each in range(len(plan.allowed)):
            plan.gains[plan.rows[k], each] = 0
        k += 1


@inner
def _overlaps(plan: NodePlan, victim: int, found: int) -> bool:
    """Whether a running job is on one of these nodes."""
    row, k = _holder(plan, victim), victim
    while k < plan.counts[BACKS] and _holder(plan, k) == row:
        back = plan.backs[plan.rows[k]]
        for run in range(found):
            if plan.runs[run, 0] <= back[LAST] and back[FIRST] <= plan.runs[run, 1]:
                return True
        k += 1
    return False


# The order of the queue, and what is closed to others


@inner_allocating
def _fill_behind(now: float, rule: BackfillRule, jobs: Table, waiting: Ints, places: Ints, turn: int) -> None:
    """Those of a partition behind its first blocked job, at `turn`, change places: by the order that fills gaps."""
    part = jobs[waiting[places[turn]]].partition
    turns, keys, count = np.empty(len(places), np.int64), np.empty(len(places)), 0
    for later in range(turn + 1, len(places)):
        job = jobs[waiting[places[later]]]
        if job.partition == part:
            turns[count] = later
            keys[count] = order_key(rule.fill, now, job.submit, job.predicted, job.cores)
            count += 1
    mine = picked(places, picked(turns[:count], ranking(keys[:count])))
    for k in range(count):
        places[turns[k]] = mine[k]


@inner
def _close(usable: Ints, members: Ints) -> int:
    """Let no partition use these nodes; how many some could use before."""
    closed = 0
    for node in range(len(members)):
        was = 0
        if members[node]:
            for part in range(len(usable)):
                was |= usable[part, node]
                usable[part, node] = 0
        closed += was
    return closed


@inner
def _copy(table: Ints, other: Ints) -> None:
    for row in range(len(other)):
        for column in range(other.shape[1]):
            table[row, column] = other[row, column]


@inner_allocating
def _longer(table: Ints, rows: int) -> Ints:
    """The same table with so many rows."""
    longer = np.empty((rows, table.shape[1]), np.int64)
    _copy(longer, table)
    return longer


# -- Decisions --------------------------------------------------------------------------------------------------------


def decide_on_tables(rule: Backfill, view: TableView) -> list[DispatchDecision]:
    """What to start now, and which later starts are promised: in the queue's order, unless a later job comes first."""
    waiting = view.waiting if rule.order is None else view.waiting[rule.order.arrange(view)]
    numbers = rule.numbers
    starts, promised = np.empty(max(1, len(waiting)), np.int64), np.empty(max(1, len(waiting)))
    widths: dict[int, int] = {}
    chosen: dict[int, list[NodeRun]] = {}
    preempted: dict[int, list[int]] = {}
    if numbers.width != AS_ASKED and len(view.molds):
        units = np.empty(len(starts), np.int64)
        started = scan_widths(
            view.now, numbers, view.slots, view.jobs, waiting, view.active, view.ends, view.molds, view.widths,
            starts, units, promised,
        )  # fmt: skip
        widths = dict(zip(starts[:started].tolist(), units[:started].tolist(), strict=True))
    elif view.slots >= 0:
        started = scan(
            view.now, numbers, view.slots, view.all_slots, view.jobs, waiting, view.active, view.ends,
            starts, promised, True,
        )  # fmt: skip
    else:
        started, rows, gone = scan_nodes(
            view.now, numbers, view.placement, view.jobs, view.demands, waiting, view.release_at, view.release,
            view.holder, view.free, view.allowed, view.windows, view.preemption, starts, promised, True,
        )  # fmt: skip
        for place, first, last, units in rows.tolist():
            chosen.setdefault(place, []).append(NodeRun(first, last, units))
        for place, row in gone.tolist():
            preempted.setdefault(place, []).append(row)
    decisions: list[DispatchDecision] = []
    going = dict.fromkeys(starts[:started].tolist())
    places = [*going, *np.flatnonzero(~np.isnan(promised[: min(numbers.limit, len(waiting))])).tolist()]
    for place in sorted(places) if [*going] == sorted(going) else places:
        row = int(waiting[place])
        if place in going:
            if widths.get(place, 0) not in (0, view.jobs[row]["units"]):
                decisions.append(SetWidth(row, widths[place]))
            decisions.append(Start(row, tuple(chosen.get(place, ())), tuple(preempted.get(place, ()))))
        else:
            decisions.append(Reserve(row, float(promised[place])))
    return decisions


# -- Dispatchers ------------------------------------------------------------------------------------------------------


def rule_of(dispatcher: Any) -> BackfillRule:
    """A dispatcher's rule as numbers; the dispatcher itself, or by name.

    Raises
    ------
    InvalidInput
        When it is not one that compiled loops know.
    UnknownName
        When there is none of this name.

    Examples
    --------
    >>> rule_of("backfill:depth=2,limit=100")  # doctest: +ELLIPSIS
    BackfillRule(depth=2.0, limit=100, ... width=0)
    """
    made = DISPATCHERS.create(dispatcher)
    rule: BackfillRule | None = getattr(made, "native", None)
    refuse_shift(made)
    if rule is None:
        raise InvalidInput(f"dispatcher {dispatcher!r} is no backfilling rule: expected one such as easy")
    return rule


def refuse_shift(dispatcher: Any) -> None:
    """Refuse a dispatcher that holds jobs where only logs are simulated so, from their submissions on."""
    if getattr(dispatcher, "shift", None) is not None:
        raise InvalidInput("shift= is for whole logs, as in asa simulate and asa tune: leave it out here")


class Backfill:
    """Start jobs in the queue's order; the first `depth` that cannot start get reservations, later ones fill the gaps.

    The rule is that of `asa.core.backfill.ReservationRule`, here also for the tables of a simulation, and with orders:
    depth 0 is first come, first served; 1 is EASY; infinity is conservative backfilling.

    What holds, for jobs that end no later than their wall times and a queue in which no job is overtaken: the first
    blocked job never starts later than it was promised. When run times equal wall times this is true of all
    reservations, and no job starts later under conservative than under first come, first served.

    Deviation from Mu'alem and Feitelson: reservations are made anew at each decision, in the queue's order, for a
    dispatcher keeps no memory. When a job ends before its wall time, one that is early in the queue may therefore
    move forward into the place of a later one, whose reservation then moves back; the paper's compression would leave
    it. The order of the queue counts for more here than an old promise.

    Parameters
    ----------
    depth
        How many blocked jobs get a reservation; a whole number >= 0, or infinite.
    limit
        How many waiting jobs are looked at, from the front of the queue; a whole number >= 0, or infinite.
    order
        Another order than that in which the queue stands: a name of `asa.lab.dispatchers.backfill`, or a key.
    threshold
        With an order, jobs that have waited for longer come first, as they stand: seconds, or like ``"3d"``; > 0.
    fill
        Another order for the jobs behind the first that is blocked, by which they fill what it leaves: a name.
    predictor
        What predicts how long jobs run: orders go by that, and a job fills a gap that is as long. Reservations are by
        wall times, which running jobs keep to. Without one, wall times are predicted.
    strict_after
        Once the first blocked job has waited for longer, only jobs whose wall times fit fill gaps, so it starts when it
        was promised: seconds, or like ``"24h"``; > 0.
    oldest
        How many of the jobs that have waited for longer than `threshold` come first; a whole number >= 1, or infinite.
        In a congested queue nearly all have, and would be served first come, first served.
    window
        How far ahead jobs get reservations, as Slurm's ``bf_window``: seconds, or like ``"1d"``; > 0. One that could
        not start by then gets none, and is overtaken by whatever fits.
    interval
        How often gaps are filled, as Slurm's ``bf_interval``: seconds, or like ``"30s"``; >= 0. Only at its
        multiples do jobs get reservations and overtake others; in between, once a second, they start in order until one
        is blocked. A job that fills a gap ends a second before it does, as in Slurm. In simulations only.
    width
        How wide moldable jobs of a simulation start, see `WIDTHS`: ``"as-asked"``, ``"soonest"`` or ``"fair"``.
    shift, gain, shift_qos
        Jobs are held for less intense hours of the grid, at most so long, where an hour saves so much CO2 [g], if they
        name this QOS; see `asa.lab.dispatchers.shift.Shift`. Without `shift` none is.

    Raises
    ------
    InvalidInput
        When `depth`, `limit` or `oldest` is out of bounds or not a whole number, `threshold`, `strict_after` or
        `window` no duration, or there is no order to put jobs before.
    UnknownName
        When there is no such order or predictor.
    """

    def __init__(
        self,
        depth: float = 1,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        fill: str | None = None,
        predictor: Any = None,
        strict_after: float | str = math.inf,
        oldest: float = math.inf,
        window: float | str = math.inf,
        interval: float | str = 0.0,
        width: str = "as-asked",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        self.shift = Shift(shift, gain, shift_qos) if shift != "" else None
        if self.shift is None and (gain or shift_qos):
            raise InvalidInput("gain= and shift_qos= say which jobs are held, and none is: say shift=12h")
        self._plain = ReservationRule(depth, limit, duration(window, what="window", endless=True))
        self.depth, self.limit = depth, limit
        self.interval = 0.0 if interval == 0 else duration(interval, what="interval")
        if self.interval and callable(order):
            raise InvalidInput("interval= is simulated with orders that have names: leave it out, or name one")
        self.fill = None if fill is None else find_order(fill)
        if width not in WIDTHS:
            raise UnknownName("width", width, WIDTHS)
        self.width = WIDTHS[width]
        if self.width != AS_ASKED and (fill is not None or predictor is not None or strict_after != math.inf):
            raise InvalidInput(f"width={width} plans with wall times: leave fill=, predictor= and strict_after= out")
        self.predictor = predictor
        if predictor is not None:
            PREDICTORS.create(predictor)  # refused here, not when it is needed
        self.strict_after = duration(strict_after, what="strict_after", endless=True)
        self.order: QueueOrder | None = None
        if order is not None:
            self.order = find_order(order, threshold, oldest)
        elif threshold != math.inf or oldest != math.inf:
            raise InvalidInput("threshold= puts jobs before the order's first, and there is no order: say order=sjf")

    @property
    def needs_estimates(self) -> bool:
        """Whether it plans with wall times."""
        return self.depth > 0 or self.width != AS_ASKED

    @property
    def native(self) -> BackfillRule | None:
        """The rule as numbers, for the compiled loop of the simulator; None where the order is a Python function."""
        return None if self.order is not None and self.order.key is not None else self.numbers

    @property
    def numbers(self) -> BackfillRule:
        """The rule as numbers; the code of an order that is a Python function is `OWN`."""
        fill, limit = OWN if self.fill is None else self.fill.code, int(min(self.limit, ALL_JOBS))
        reach = self._plain.window_s
        rule = BackfillRule(
            float(self.depth), limit, fill=fill, strict_after=self.strict_after, window=reach, interval=self.interval,
            width=self.width,
        )  # fmt: skip
        if self.order is None:
            return rule
        return rule._replace(order=self.order.code, threshold=self.order.threshold, oldest=self.order.most)

    def decide(self, view: QueueView | TableView) -> list[DispatchDecision]:
        """What to start now, and which later starts are promised; in the queue's order."""
        if self.interval:
            raise InvalidInput("interval= needs a rule that decides for a whole simulation: leave it out here")
        if not isinstance(view, QueueView):
            return decide_on_tables(self, view)
        refuse_shift(self)
        queue = [*view.queue] if self.order is None else [view.queue[place] for place in self.order.arrange(view)]
        decisions = self._plain.decide_in_order(view, queue)
        going = {item.job for item in decisions if isinstance(item, Start)}
        blocked = next((place for place, job in enumerate(queue) if job.key not in going), None)
        if self.fill is None or blocked is None or self.depth == 0:
            return decisions
        behind = 1 + blocked
        keys = dict(zip((job.key for job in view.queue), self.fill.keys(view), strict=True))
        queue[behind:] = sorted(queue[behind : int(min(self.limit, len(queue)))], key=lambda job: keys[job.key])
        return self._plain.decide_in_order(view, queue)


class Fcfs(Backfill):
    """First come, first served: no job is overtaken."""

    def __init__(
        self,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        width: str = "as-asked",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        super().__init__(0, limit, order, threshold, width=width, shift=shift, gain=gain, shift_qos=shift_qos)


class Easy(Backfill):
    """EASY backfilling: the first blocked job has a reservation, the others fill what it leaves."""

    def __init__(
        self,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        width: str = "as-asked",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        super().__init__(1, limit, order, threshold, width=width, shift=shift, gain=gain, shift_qos=shift_qos)


class Conservative(Backfill):
    """Conservative backfilling: every blocked job has a reservation."""

    def __init__(
        self,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        width: str = "as-asked",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        super().__init__(math.inf, limit, order, threshold, width=width, shift=shift, gain=gain, shift_qos=shift_qos)


class EasyPlusPlus(Backfill):
    """EASY++: EASY backfilling where predictions say which jobs fill gaps, the shortest first.

    Deviations from Tsafrir et al.: reservations go by wall times, so predictions need no correction when jobs outlive
    them. With reservations by corrected predictions, as printed, the mean wait on CTC SP2 is 1.5 times EASY's. Once a
    blocked job has waited for longer than `strict_after`, no job that may outlast the gap goes before it: without that,
    the longest wait on CTC SP2 is ten times EASY's. Predicted is by `alike` jobs, instead of the user's last two.
    docs/howto/simulate-a-trace.md has the figures.

    References
    ----------
    D. Tsafrir, Y. Etsion and D. G. Feitelson, "Backfilling using system-generated predictions rather than user runtime
    estimates", IEEE TPDS 18(6), 2007.
    """

    def __init__(
        self,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        fill: str | None = "sjf",
        predictor: Any = "alike",
        strict_after: float | str = "24h",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        super().__init__(
            1, limit, order, threshold, fill, predictor, strict_after, shift=shift, gain=gain, shift_qos=shift_qos
        )
