"""A decision as DRAS takes it: job after job, first to start or to reserve for, then to backfill.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.decision import JobKey, Reserve, Start
from asa.core.errors import InvalidInput
from asa.core.units import duration
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import columns, room_of

# -- Queue -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class QueueColumns:
    """Waiting jobs in order of priority, and what runs. Sizes are nodes, or the units that all jobs of a machine share.

    Parameters
    ----------
    keys
        Names of the waiting jobs, q of them.
    size
        What they ask for, shape (q,); >= 1.
    estimate, wait
        Their expected run times and the times since they were submitted [s], shape (q,); >= 0.
    priority
        From 0 (low) to 1 (high), shape (q,).
    ends, held
        When the running jobs are expected to end [s], not before `now`, and what each holds; shape (r,).
    """

    now: float
    keys: Sequence[JobKey]
    size: Ints
    estimate: Floats
    wait: Floats
    priority: Floats
    free: int
    total: int
    ends: Floats
    held: Ints


def queue_of(view: QueueView | TableView) -> QueueColumns:
    """The queue of a view.

    Deviation: a trace has no priorities of two levels; quality of service, a share in [0, 1], stands for them, and 0
    where the view does not tell.

    Raises
    ------
    InvalidInput
        When it depends on the nodes whether a job fits, jobs ask for more than cores, or it is not known how long one
        will run.
    """
    submit, estimate, _ = columns(view)
    if isinstance(view, TableView):
        if view.slots < 0:
            raise InvalidInput(
                "learned dispatchers need a machine of equal nodes, and jobs that share one kind of unit"
            )
        priority = np.asarray(view.column("qos"), np.float64)
        keys: Sequence[JobKey] = view.waiting.tolist()
        ends, held = view.ends, np.asarray(view.jobs["units"][view.active], np.int64)
    else:
        if any(job.resources.memory or job.resources.gpus for job in view.queue):
            raise InvalidInput("learned dispatchers know of cores only, and jobs of this queue ask for memory or GPUs")
        priority, keys = np.zeros(len(view.queue)), [job.key for job in view.queue]
        ends = np.maximum([job.ends for job in view.running], view.now)
        held = np.array([job.resources.cores for job in view.running], dtype=np.int64)
    unknown = ~np.isfinite(estimate)
    if unknown.any():
        raise InvalidInput(f"job {keys[int(unknown.argmax())]} has no wall time: learned dispatchers plan with it")
    room = room_of(view)
    wait = np.maximum(0.0, view.now - submit)
    return QueueColumns(view.now, keys, room.sizes, estimate, wait, priority, room.free, room.total, ends, held)


# -- Selection --------------------------------------------------------------------------------------------------------


class Mode(StrEnum):
    """How a job came to start: section III-B's three modes."""

    READY = "ready"
    RESERVED = "reserved"
    BACKFILLED = "backfilled"


class Selected(NamedTuple):
    """A job, by its place in the queue, and its mode."""

    place: int
    mode: Mode


@dataclass(frozen=True)
class Turns:
    """Whose turn it is, whatever a policy prefers.

    Parameters
    ----------
    patience
        How often, in a row, others may be reserved for while the job at the head of the queue waits; >= 0. After that
        it is the only one to select. Infinite: as in the paper.
    threshold
        Of the jobs that have waited for longer [s], the first one is the only one to select, at both levels; > 0.
        Infinite: as in the paper. See `asa.lab.dispatchers.backfill`.
    keeps
        Whether a reservation holds until its job starts. Otherwise each decision begins without one, as EASY's do.
    """

    patience: float = math.inf
    threshold: float = math.inf
    keeps: bool = True

    def __post_init__(self) -> None:
        if not self.patience >= 0:
            raise InvalidInput(f"patience must be at least 0, or inf, not {self.patience!r}")
        duration(self.threshold, what="threshold", endless=True)


@dataclass
class Memory:
    """What is kept from one decision to the next.

    Attributes
    ----------
    reserved
        The job that nodes are reserved for, until it has started; or None.
    head, passed
        The job that was at the head of the queue when one was last reserved for, and how often it was another.
    """

    turns: Turns = Turns()
    reserved: JobKey | None = None
    head: JobKey | None = None
    passed: int = 0


class Selection:
    """One decision: jobs are selected one at a time from a window, until there is none to select.

    Level 1. The window is the front of the queue. A selected job that fits starts. One that does not is reserved for at
    the earliest time at which what it needs is expected to be free, and level 2 begins. Level 2. The window is the
    first jobs, of the whole queue, that fit now and do not delay the reservation; a selected one starts.

    A reservation holds until its job starts. Later decisions begin with it: the job starts as soon as it fits, and
    until it does there is only level 2. A reserved job starts no later than it was first promised, as long as jobs end
    no later than expected. Deviation: the paper does not say what becomes of a reservation at the next scheduling
    instance, and the authors' program forgets it (and reserves for the first job of the queue, not for the one that was
    selected). Then nothing bounds a wait. Even so a policy may prefer others for ever: `Turns` ends that.

    Without levels (Decima-PG, section IV-A) jobs of the front of the queue that fit are selected, as long as one does.

    Attributes
    ----------
    queue
        As it is after what was selected so far: jobs that start now hold nodes.
    places
        Places in the queue of the jobs in the window, shape (<= W,).
    mask
        Which of W actions there are, shape (W,).
    waiting
        Which jobs of the queue do not start now, shape (q,).
    shadow, spare
        When the job that is reserved for is expected to start [s], NaN where there is none, and what will be free then
        beside it.
    decisions
        What has been decided: at most one `Reserve`, and `Start`.
    """

    def __init__(self, queue: QueueColumns, window: int, memory: Memory, *, levels: bool = True) -> None:
        if window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {window}")
        self.queue, self._window, self._memory, self._levels = queue, window, memory, levels
        self.decisions: list[Start | Reserve] = []
        self.waiting = np.ones(len(queue.keys), np.bool_)
        self._left = np.flatnonzero(queue.size <= queue.free + queue.held.sum())
        self.shadow, self.spare = math.nan, 0
        if levels:
            self._keep_promise()
        self._look()

    @property
    def over(self) -> bool:
        """Whether there is no job to select any more."""
        return not self.mask.any()

    def select(self, action: int) -> Selected:
        """Take the job in this place of the window."""
        if not 0 <= action < self._window or not self.mask[action]:
            raise InvalidInput(f"action {action} is masked: {np.flatnonzero(self.mask).tolist()} are to select from")
        place, mode = int(self.places[action]), Mode.BACKFILLED
        if math.isnan(self.shadow):
            mode = Mode.READY if self.queue.size[place] <= self.queue.free else Mode.RESERVED
        if mode is Mode.RESERVED:
            self._count(place)
            self._memory.reserved = self.queue.keys[place]
            self._reserve(place)
        else:
            self._start(place)
        self._look()
        return Selected(place, mode)

    def _keep_promise(self) -> None:
        """Begin with the job that was reserved for."""
        promised, self._memory.reserved = self._memory.reserved, None
        if not self._memory.turns.keeps or promised not in self.queue.keys:  # it was cancelled, or held back
            return
        place = self.queue.keys.index(promised)
        if self.queue.size[place] <= self.queue.free:
            self._start(place)
        elif place in self._left:
            self._memory.reserved = promised
            self._reserve(place)

    def _look(self) -> None:
        """Fill the window."""
        size, free = self.queue.size[self._left], self.queue.free
        if not self._levels:
            self.places = self._left[: self._window]
            self.mask = self._padded(size[: self._window] <= free)
            return
        there = self._left
        if not math.isnan(self.shadow):
            in_time = self.queue.now + self.queue.estimate[there] <= self.shadow
            there = there[(size <= free) & (in_time | (size <= self.spare))]
        self.places = self._in_turn(there)[: self._window]
        self.mask = self._padded(np.ones(len(self.places), np.bool_))

    def _in_turn(self, places: Ints) -> Ints:
        """Those of these places whose turn it is."""
        memory, turns = self._memory, self._memory.turns
        if turns.threshold != math.inf:
            overdue = places[self.queue.wait[places] > turns.threshold]
            if len(overdue):
                return overdue[:1]
        if math.isnan(self.shadow) and len(places):
            head = self.queue.keys[places[0]]
            if turns.patience == 0 or (memory.passed >= turns.patience and head == memory.head):
                return places[:1]
        return places

    def _padded(self, valid: Bools) -> Bools:
        found = np.zeros(self._window, np.bool_)
        found[: len(valid)] = valid
        return found

    def _start(self, place: int) -> None:
        q, size = self.queue, int(self.queue.size[place])
        end = q.now + q.estimate[place]
        if end > self.shadow:
            self.spare -= size
        self.queue = replace(q, free=q.free - size, ends=np.append(q.ends, end), held=np.append(q.held, size))
        self._left, self.waiting[place] = self._left[self._left != place], False
        self.decisions.append(Start(q.keys[place]))

    def _reserve(self, place: int) -> None:
        """Promise a job the earliest time at which it is expected to fit."""
        q, size = self.queue, int(self.queue.size[place])
        self.shadow, there = earliest(q.free, q.ends, q.held, size)
        self.spare = there - size
        self._left = self._left[self._left != place]
        self.decisions.append(Reserve(q.keys[place], self.shadow))

    def _count(self, place: int) -> None:
        """Remember whether the head of the queue was passed over."""
        head = self.queue.keys[self._left[0]]
        if head != self._memory.head:
            self._memory.head, self._memory.passed = head, 0
        self._memory.passed = 0 if place == self._left[0] else self._memory.passed + 1


def earliest(free: int, ends: Floats, held: Ints, size: int) -> tuple[float, int]:
    """When so much is expected to be free [s], and what is free then. It is not now, and some day it is.

    >>> earliest(1, np.array([30.0, 10.0, 10.0]), np.array([4, 1, 1]), size=2)
    (10.0, 3)
    """
    order = np.argsort(ends, kind="stable")
    after = free + np.cumsum(held[order])
    at = float(ends[order][int(np.searchsorted(after, size))])
    return at, free + int(held[ends <= at].sum())
