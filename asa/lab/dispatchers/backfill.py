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
sizes for moldable scheduling of parallel jobs", HiPC 2002. Resizes: S. Iserte, R. Mayo, E. S. Quintana-Orti, V. Beltran
and A. J. Pena, "DMR API: improving cluster productivity by turning applications into malleable", Parallel Computing 78,
2018 (when); C. McCann, R. Vaswani and J. Zahorjan, "A dynamic processor allocation policy for multiprogrammed
shared-memory multiprocessors", ACM TOCS 11(2), 1993 (which job: equipartition). T. Ozden, T. Beringer, A. Mazaheri,
H. M. Fard and F. Wolf, "ElastiSim: a batch-system simulator for malleable workloads", ICPP 2022, simulates such rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

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
from asa.lab.core.table import TableView
from asa.lab.dispatchers.nodeplan import (
    BACKS,
    NodePlan,
    Table,
    all_back,
    end_now,
    find_nodes,
    find_victims,
    has_nodes,
    holder_of,
    longer,
    longer_plan,
    may_make_room,
    new_plan,
    not_before,
    note_nodes,
    open_nodes,
    place_job,
    reserve,
    reserve_beyond,
    take_nodes,
)
from asa.lab.dispatchers.room import columns
from asa.lab.dispatchers.shift import Shift

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
        QueueOrder("wfp3", WFP3),
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
    """The order of that name, or one made of a function ``key(job, now)``.

    Examples
    --------
    >>> find_order("sjf").rank(now=0.0, submit=[0.0, 0.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([60., 30.])
    >>> find_order("sjf", "1h").rank(now=3601.0, submit=[0.0, 60.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([-inf,  30.])
    """
    found, limit = _found(what), duration(threshold, what="threshold", endless=True)
    if not (oldest >= 1 and (oldest == math.inf or oldest == int(oldest))):
        raise InvalidInput(f"oldest={oldest!r}: a whole number of jobs, at least 1, expected")
    if limit == math.inf:
        if oldest < math.inf:
            raise InvalidInput(f"oldest={oldest:g} of the jobs beyond threshold= come first, and there is none")
        return found
    return replace(found, threshold=limit, oldest=oldest)


def _found(what: str | QueueOrder | Key) -> QueueOrder:
    if isinstance(what, QueueOrder):
        return what
    if not isinstance(what, str):
        return QueueOrder(getattr(what, "__name__", "own"), OWN, key=what)
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

# -- Widths of malleable jobs that run --------------------------------------------------------------------------------

NEVER, SHRINK, EXPAND, BOTH = range(4)
RESIZES: Mapping[str, int] = {"none": NEVER, "shrink": SHRINK, "expand": EXPAND, "both": BOTH}
"""When malleable jobs change their widths while they run. Shrink: which jobs start is decided as if the malleable ones
that run had their least widths; then these shrink as far as that needs, the widest first, from one of their widths to
the next. Expand: while no job waits, idle units go to them, to the narrowest first. Both: idle units go to them
wherever no waiting job can start, as they can be taken back. Plans go by the ends that are expected of the widths that
jobs have, so a job that shrinks may hold its least units for longer than a reservation took it to.
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
    width, resize
        Codes of how wide moldable jobs start, and of when malleable ones change their widths.
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
    resize: int = NEVER


# -- The rule on a machine of slots, compiled -------------------------------------------------------------------------


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


@compiled
def narrowed(rule: BackfillRule, jobs: Table, active: Ints, molds: Ints, widths: Floats) -> Ints:
    """Units of each running job in the plan that says who starts, shape (running,)."""
    found = np.empty(len(active), np.int64)
    for k in range(len(active)):
        row = active[k]
        found[k] = jobs[row].units
        if jobs[row].malleable and rule.resize != EXPAND:
            for width in range(molds[row], molds[row + 1]):
                found[k] = min(found[k], int(widths[width, 0]))
    return found


@compiled
def widen(jobs: Table, active: Ints, units: Ints) -> int:
    """Exchange the units of running jobs, shape (running,), for those in the table; how many fewer these are."""
    freed = 0
    for k in range(len(active)):
        had = jobs[active[k]].units
        jobs[active[k]].units = units[k]
        freed += had - units[k]
        units[k] = had
    return freed


@compiled
def resized(
    rule: BackfillRule, waiting: int, free: int, taken: int, jobs: Table, active: Ints, molds: Ints, widths: Floats
) -> Ints:
    """Units that each running job is to have, shape (running,), when so many of the `free` ones are going to be `taken`
    by jobs that start, of so many that were `waiting`; see `RESIZES`."""
    found = np.empty(len(active), np.int64)
    for k in range(len(active)):
        found[k] = jobs[active[k]].units
    grows = taken == 0 and (rule.resize == BOTH or (rule.resize == EXPAND and waiting == 0))
    while free < taken or (grows and free > 0):
        best, change = -1, 0
        for k in range(len(active)):
            row = active[k]
            if jobs[row].malleable and (best < 0 or ((found[k], row) < (found[best], active[best])) == grows):
                step = _next_width(widths[molds[row] : molds[row + 1]], found[k], grows) - found[k]
                if step != 0 and step <= free:
                    best, change = k, step
        if best < 0:
            break
        found[best] += change
        free -= change
    return found


@inner
def _next_width(widths: Floats, units: int, wider: bool) -> int:
    """The next of a job's widths, or the one that it has."""
    best = units
    for k in range(len(widths)):
        width = int(widths[k, 0])
        if (width > units if wider else width < units) and (best == units or (width < best) == wider):
            best = width
    return best


# -- The rule on a machine whose nodes or jobs differ, compiled -------------------------------------------------------


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
        position of the job that preempts, row of the one that runs. Where gaps are filled at intervals, a job that
        preempts while another is blocked before it is not among those that start: Slurm starts it when it fills gaps
        next.
    """
    depth, count = float(rule.depth), min(rule.limit, len(waiting))
    parts = 1
    for j in range(count):
        promised[j] = np.nan
        parts = max(parts, jobs[waiting[j]].partition + 1)
    most = int(min(depth * parts, count))  # reservations
    plan = new_plan(now, demands, allowed, windows, release_at, release, holder, free, most)
    whole = all_back(plan)
    chosen, rows = np.empty((64, 4), np.int64), 0
    gone, lost = np.empty((len(holder) if len(preemption) > 0 else 0, 2), np.int64), 0
    planned, reserved, since = np.empty(most, np.int64), 0, 0  # since: what nodes have left has only shrunk
    started, apart = 0, APART_S if rule.interval > 0 else 0.0
    reserved_of, begun = np.zeros(parts, np.int64), np.zeros(count, np.bool_)
    going = np.zeros(len(free), np.bool_)  # nodes of jobs that go, on which none starts yet
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
        found = find_nodes(plan, method, job, usable[job.allowed], now + stays + apart)
        if found == 0 and len(preemption) > 0 and may_make_room(plan, jobs, job, preemption):
            victims, found = find_victims(plan, method, jobs, job, usable[job.allowed], preemption, now + stays + apart)
            for victim in victims:
                if rule.interval > 0 and depth > 0 and blocked[part]:
                    note_nodes(plan, victim, going)
                gone[lost, 0], gone[lost, 1] = j, holder_of(plan, victim)
                lost += 1
                end_now(plan, victim)
                last, since = count - 1, reserved
        if found == 0 and depth > 0 and not blocked[part]:
            blocked[part], strict[part] = True, now - job.submit > rule.strict_after
            if rule.fill >= 0:
                _fill_behind(now, rule, jobs, waiting, places, turn)
                last = count - 1
        if found > 0:
            if rows + found > len(chosen):
                chosen = longer(chosen, 2 * (rows + found))
            if plan.counts[BACKS] + found > len(plan.ends):
                plan = longer_plan(plan, found)
            take_nodes(plan, job, found, now, now + stays, False)
            begun[j], now_free = True, True
            for k in range(found):
                for node in range(plan.runs[k, 0], plan.runs[k, 1] + 1):
                    now_free &= not going[node]
            for k in range(found if now_free else 0):
                chosen[rows, 0] = j
                for column in range(3):
                    chosen[rows, column + 1] = plan.runs[k, column]
                rows += 1
            if now_free:
                starts[started] = j
                started += 1
        elif depth == 0:
            open_nodes(plan, whole, job, allowed[job.allowed])
            if place_job(plan, method, job, now) > 0:  # one that cannot run now blocks no other
                blocked[part] = True
                closed += _close(usable, allowed[part])
        elif reserved_of[part] < depth:
            if not promise:
                last = _last_to_start(plan, jobs, waiting, places, begun, preemption, turn, last, apart)
                if last <= turn:
                    break
            after, shared = not_before(plan, jobs, job, waiting, planned[since:reserved], promised), False
            if len(preemption) > 0:
                at, found, shared = reserve_beyond(plan, method, jobs, job, preemption, apart, after, now + rule.window)
            else:
                at, found = reserve(plan, method, job, apart, after, now + rule.window)
            if found > 0:
                planned[reserved] = j
                reserved += 1
                promised[j] = at
                reserved_of[part] += 1
                if plan.counts[BACKS] + found > len(plan.ends):
                    plan = longer_plan(plan, found)
                take_nodes(plan, job, found, at, at + job.estimate, shared)
    return started, chosen[:rows], gone[:lost]


@inner
def _last_to_start(
    plan: NodePlan, jobs: Table, waiting: Ints, places: Ints, begun: Bools, preemption: Floats, turn: int, last: int,
    apart: float,
) -> int:  # fmt: skip
    """The last turn behind this one, up to `last`, at which a job may still start; or this one if there is none."""
    while last > turn:
        job = jobs[waiting[places[last]]]
        end = plan.times[0] + min(job.estimate, job.predicted) + apart
        makes_room = len(preemption) > 0 and may_make_room(plan, jobs, job, preemption)
        if not begun[places[last]] and (makes_room or has_nodes(plan, job, plan.allowed[job.allowed], end)):
            break
        last -= 1
    return last


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


# -- Decisions --------------------------------------------------------------------------------------------------------


def decide_on_tables(rule: Backfill, view: TableView) -> list[DispatchDecision]:
    """What to start now, and which later starts are promised: in the queue's order, unless a later job comes first."""
    waiting = view.waiting if rule.order is None else view.waiting[rule.order.arrange(view)]
    numbers, jobs, free = rule.numbers, view.jobs, view.slots
    resizes = numbers.resize != NEVER and len(view.molds) > 0 and view.slots >= 0
    if resizes:
        jobs, had = view.jobs.copy(), narrowed(numbers, view.jobs, view.active, view.molds, view.widths)
        free += widen(jobs, view.active, had)
    starts, promised = np.empty(max(1, len(waiting)), np.int64), np.empty(max(1, len(waiting)))
    widths: dict[int, int] = {}
    chosen: dict[int, list[NodeRun]] = {}
    preempted: dict[int, list[int]] = {}
    if numbers.width != AS_ASKED and len(view.molds):
        units = np.empty(len(starts), np.int64)
        started = scan_widths(
            view.now, numbers, free, jobs, waiting, view.active, view.ends, view.molds, view.widths,
            starts, units, promised,
        )  # fmt: skip
        widths = dict(zip(starts[:started].tolist(), units[:started].tolist(), strict=True))
    elif view.slots >= 0:
        started = scan(
            view.now, numbers, free, view.all_slots, jobs, waiting, view.active, view.ends, starts, promised, True,
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
    if resizes:
        taken = sum(widths.values()) if widths else int(view.jobs["units"][waiting[starts[:started]]].sum())
        new = resized(numbers, len(waiting), view.slots, taken, view.jobs, view.active, view.molds, view.widths)
        changed = zip(view.active.tolist(), view.jobs["units"][view.active].tolist(), new.tolist(), strict=True)
        decisions += [SetWidth(row, units) for row, before, units in changed if units != before]
    going = dict.fromkeys([*starts[:started].tolist(), *preempted])
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
    BackfillRule(depth=2.0, limit=100, ... resize=0)
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
    resize
        When malleable jobs of a simulation change their widths, see `RESIZES`: ``"none"``, ``"shrink"``, ``"expand"``
        or ``"both"``.
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
        resize: str = "none",
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
        if resize not in RESIZES:
            raise UnknownName("resize", resize, RESIZES)
        self.resize = RESIZES[resize]
        predicts = fill is not None or predictor is not None or strict_after != math.inf
        if predicts and (self.width != AS_ASKED or self.resize != NEVER):
            option = f"width={width}" if self.width != AS_ASKED else f"resize={resize}"
            raise InvalidInput(f"{option} plans with wall times: leave fill=, predictor= and strict_after= out")
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
            width=self.width, resize=self.resize,
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


class _OfDepth(Backfill):
    """`Backfill` with a reservation depth of its own."""

    DEPTH: ClassVar[float]

    def __init__(
        self,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
        width: str = "as-asked",
        resize: str = "none",
        shift: float | str = "",
        gain: float = 0.0,
        shift_qos: str = "",
    ) -> None:
        super().__init__(
            self.DEPTH, limit, order, threshold, width=width, resize=resize, shift=shift, gain=gain, shift_qos=shift_qos
        )


class Fcfs(_OfDepth):
    """First come, first served: no job is overtaken."""

    DEPTH = 0


class Easy(_OfDepth):
    """EASY backfilling: the first blocked job has a reservation, the others fill what it leaves."""

    DEPTH = 1


class Conservative(_OfDepth):
    """Conservative backfilling: every blocked job has a reservation."""

    DEPTH = math.inf


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
