"""A run, folded from its events: the one place that says what follows from what happened.

`FoldedRun.on` takes one event and decides nothing; the plan, reports, the page and exports look at the same state.
Replaying a log through it gives the run's state again, so that is all there is to resuming a run. A run of calls is a
run of one stage whose number of tasks grows.

What may become of a stage, a task, a job and an allocation is written down in `STAGE`, `TASK`, `JOB` and `ALLOCATION`.
An event that fits none of their rows changes no state; it is logged and kept in `FoldedRun.illegal`.
"""

from __future__ import annotations

import enum
import heapq
import logging
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import islice, repeat
from struct import Struct
from typing import Any

from asa.core.allocation import drain_margin
from asa.core.context import Context
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    CallsAdded,
    CancelAsked,
    Cancelled,
    CoresUnused,
    DriverStarted,
    Event,
    ExpectationMissed,
    HoldAsked,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Predicted,
    Queued,
    Quoted,
    Recalled,
    Released,
    Requeued,
    ResultsLost,
    RetriesDue,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    StageFailed,
    StageGrown,
    StageLookedUp,
    StagesAdded,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskCancelled,
    TaskDone,
    TaskFailed,
    TaskPaused,
    TasksDone,
    TasksKept,
    TasksLaunched,
    Trouble,
    Wanted,
    WidthChosen,
)
from asa.core.job import JobHandle, JobRequest, JobState, Options, Resources
from asa.core.stage import StageSpec, StageState
from asa.core.task import SOURCES, Failed
from asa.core.units import brief
from asa.core.view import AllocationView, StageView

UNRESPONSIVE_S = 30.0
"""How long a released job may take to end before it is cancelled [s]."""
GONE_S, JOIN_S = 300.0, 1800.0
"""How long a job goes on without a node, once it had one, or before the first has joined, until it is cancelled [s].
Preparations such as modules and images take time. A supervisor that lost its driver ends by itself, if it works."""

NOTHING: tuple[Resources | None, int] = (None, 0)
"""What a run asks of others when no task of it waits for room."""

AGAIN_LEAST_S, AGAIN_MOST_S = 5.0, 600.0
"""How long after it took no more jobs a batch system is asked again [s]: twice as long each time."""

BARREN_MOST = 3
"""Allocations in a row that may end without a task done before a stage is given up."""

CANCELLED_MOST = 3
"""Allocations of a stage that others than the run may cancel before the stage is given up."""

RAISED_MOST = 5
"""How often a task is tried again, beyond its retries, that had too little of what is learned: 32 times as much."""

LOSSES_MOST = 3
"""How often a call may be lost with its node before it is given up: it may be what kills the nodes."""

FAILURES_KEPT = 100
"""Failures kept with all their words; of further ones only the number is known."""

TAILS_KEPT = 1000
"""Tasks that failed for good of which it is kept what they printed."""

STALLED_SHARE = 0.8
"""The part of a wall time that a task may run in all without saving anything new before it has failed."""
STALLED_MOST = 3
"""How often in a row it may end so, however short it ran."""

DELAY_MOST_S = 3600.0
"""The longest time until a task that failed is tried again [s]."""

_CLOCKS_S = 5.0
"""Clocks that are no further apart count as the same [s]: batch systems report whole seconds."""

CALLS = "elastic"
"""The strategy of a run of calls, in its first event."""

_DONE_STEPS = 20  # how often in the life of a stage its progress counts as news
_AHEAD_S = 0.5
_INSTANT_S, _AT_ONCE_S = 0.2, 1e-3
_AHEAD_MOST = 256.0
_TRUST_SHARE = 0.2
_NEARLY_ALL = 0.9

_FINAL = frozenset(state for state in StageState if state.final)

_log = logging.getLogger(__name__)

# ---------------------------------------------------------------- what may become of what


class TaskState(enum.IntEnum):
    """Where a task stands."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3  # for good, as calls do, and tasks of a stage that continues; with others their stage fails
    SKIPPED = 4  # a task failed that it needs


class AllocationState(enum.Enum):
    """Where an allocation stands, or a lease."""

    ASKED = "asked"  # about to be submitted
    QUEUED = "queued"
    RUNNING = "running"
    LEAVING = "leaving"  # takes no more tasks
    ENDED = "ended"


class TaskOutcome(enum.IntEnum):
    """How an attempt at a task ended."""

    DONE = 0
    FAILED = 1  # by the task's own fault
    LOST = 2  # by the infrastructure's; it does not count against the task
    PAUSED = 3  # it goes on from a checkpoint


WELL = (TaskOutcome.DONE, TaskOutcome.PAUSED)
"""Ends of attempts after which nothing is lost."""


Table = Mapping[tuple[Any, str], Any]
"""(state, what happened) -> state."""

STAGE: Table = {
    (StageState.WAITING, "predecessors done"): StageState.READY,
    (StageState.WAITING, "predecessor failed"): StageState.SKIPPED,
    (StageState.WAITING, "gives up"): StageState.FAILED,
    (StageState.READY, "tasks launched"): StageState.RUNNING,
    (StageState.READY, "all tasks done"): StageState.DONE,
    (StageState.READY, "some tasks done"): StageState.PARTIAL,
    (StageState.READY, "all tasks skipped"): StageState.SKIPPED,
    (StageState.READY, "gives up"): StageState.FAILED,
    (StageState.RUNNING, "tasks launched"): StageState.RUNNING,
    (StageState.RUNNING, "all tasks done"): StageState.DONE,
    (StageState.RUNNING, "some tasks done"): StageState.PARTIAL,
    (StageState.RUNNING, "all tasks skipped"): StageState.SKIPPED,
    (StageState.RUNNING, "gives up"): StageState.FAILED,
    (StageState.PARTIAL, "driver started"): StageState.WAITING,
    (StageState.FAILED, "driver started"): StageState.WAITING,
    (StageState.SKIPPED, "driver started"): StageState.WAITING,
    (StageState.READY, "results lost"): StageState.WAITING,  # its own, or those that it needs
    (StageState.RUNNING, "results lost"): StageState.WAITING,
    (StageState.DONE, "results lost"): StageState.WAITING,
    (StageState.PARTIAL, "results lost"): StageState.WAITING,
    (StageState.WAITING, "all tasks done"): StageState.DONE,  # what ran already when results before it were lost
    (StageState.WAITING, "some tasks done"): StageState.PARTIAL,
    **{(state, "what added it is lost"): StageState.SKIPPED for state in StageState},
}
"""What becomes of a stage."""

TASK: Table = {
    (TaskState.WAITING, "launched"): TaskState.RUNNING,
    (TaskState.RUNNING, "failed or lost"): TaskState.WAITING,
    (TaskState.RUNNING, "done"): TaskState.DONE,
    (TaskState.WAITING, "done"): TaskState.DONE,  # it was taken for lost
    (TaskState.DONE, "done"): TaskState.DONE,  # the first result stands
    (TaskState.DONE, "result lost"): TaskState.WAITING,
    (TaskState.DONE, "refused"): TaskState.WAITING,
    (TaskState.DONE, "failed or lost"): TaskState.DONE,
    (TaskState.FAILED, "failed or lost"): TaskState.FAILED,
    (TaskState.FAILED, "done"): TaskState.FAILED,
    (TaskState.WAITING, "given up"): TaskState.FAILED,
    (TaskState.RUNNING, "given up"): TaskState.FAILED,
    (TaskState.WAITING, "skipped"): TaskState.SKIPPED,
    (TaskState.SKIPPED, "done"): TaskState.SKIPPED,
    (TaskState.SKIPPED, "failed or lost"): TaskState.SKIPPED,
    (TaskState.FAILED, "driver started"): TaskState.WAITING,
    (TaskState.SKIPPED, "driver started"): TaskState.WAITING,
}
"""What becomes of a task."""

JOB: Table = {
    (JobState.PENDING, "AllocationStarted"): JobState.RUNNING,
    (JobState.PENDING, "NodeJoined"): JobState.RUNNING,  # the batch system has not said so yet
    (JobState.PENDING, "Requeued"): JobState.PENDING,
    (JobState.PENDING, "SubmitRefused"): JobState.FAILED,
    (JobState.RUNNING, "AllocationStarted"): JobState.RUNNING,
    (JobState.RUNNING, "NodeJoined"): JobState.RUNNING,
    (JobState.RUNNING, "Requeued"): JobState.PENDING,
    **{
        (state, f"JobEnded: {end.value}"): end
        for state in (JobState.PENDING, JobState.RUNNING)
        for end in JobState
        if end.final
    },
    (JobState.RUNNING, "LeaseEnded"): JobState.COMPLETED,
    (JobState.RUNNING, "LeaseEnded with a reason"): JobState.FAILED,
    (JobState.RUNNING, "DriverStarted"): JobState.LOST,  # leases are the driver's
}
"""What becomes of a job; leases count as jobs that run."""

ALLOCATION: Table = {
    (AllocationState.ASKED, "Submitted"): AllocationState.QUEUED,
    (AllocationState.ASKED, "SubmitRefused"): AllocationState.ENDED,
    (AllocationState.ASKED, "NodeJoined"): AllocationState.RUNNING,  # the batch system has not answered yet
    (AllocationState.ASKED, "AllocationStarted"): AllocationState.RUNNING,
    (AllocationState.ASKED, "JobEnded"): AllocationState.ENDED,
    (AllocationState.QUEUED, "AllocationStarted"): AllocationState.RUNNING,
    (AllocationState.QUEUED, "NodeJoined"): AllocationState.RUNNING,
    (AllocationState.QUEUED, "Requeued"): AllocationState.QUEUED,
    (AllocationState.QUEUED, "Cancelled"): AllocationState.LEAVING,
    (AllocationState.QUEUED, "Released"): AllocationState.LEAVING,
    (AllocationState.QUEUED, "JobEnded"): AllocationState.ENDED,
    (AllocationState.RUNNING, "Submitted"): AllocationState.RUNNING,
    (AllocationState.RUNNING, "AllocationStarted"): AllocationState.RUNNING,
    (AllocationState.RUNNING, "NodeJoined"): AllocationState.RUNNING,
    (AllocationState.RUNNING, "Requeued"): AllocationState.QUEUED,
    (AllocationState.RUNNING, "Released"): AllocationState.LEAVING,
    (AllocationState.RUNNING, "Cancelled"): AllocationState.LEAVING,
    (AllocationState.RUNNING, "Recalled"): AllocationState.LEAVING,
    (AllocationState.RUNNING, "JobEnded"): AllocationState.ENDED,
    (AllocationState.RUNNING, "LeaseEnded"): AllocationState.ENDED,
    (AllocationState.RUNNING, "DriverStarted"): AllocationState.ENDED,
    **{
        (AllocationState.LEAVING, what): AllocationState.LEAVING
        for what in ("Submitted", "AllocationStarted", "NodeJoined", "Requeued", "Released", "Cancelled", "Recalled")
    },
    (AllocationState.LEAVING, "JobEnded"): AllocationState.ENDED,
    (AllocationState.LEAVING, "LeaseEnded"): AllocationState.ENDED,
    (AllocationState.LEAVING, "DriverStarted"): AllocationState.ENDED,
}
"""What becomes of an allocation. Of a lease only the driver's restart counts: it ends with its driver."""

_TASK = {what: bytes(TASK.get((state, what), state) for state in TaskState) for _, what in TASK}
"""`TASK` for tasks in a `bytearray`, by what happened: the next state at the place of each."""
_NOT_RUNNING = [state != TaskState.RUNNING for state in TaskState]
_RETURNED = TASK[TaskState.RUNNING, "done"]
_IS_DONE = bytes(state == TaskState.DONE for state in range(256))
_DONE, _LOST, _LAUNCHED = _TASK["done"], _TASK["failed or lost"], _TASK["launched"] + bytes(256 - len(TaskState))


def _name(state: Any) -> str:
    return str(getattr(state, "name", state)).lower()


def _next(table: Table, of: str, state: Any, what: str, illegal: list[str]) -> Any:
    """The state that follows; the same one, with a warning, where the table has none."""
    after = table.get((state, what))
    if after is None:
        illegal.append(f"{of} is {_name(state)}: {what}")
        _log.warning("%s is %s, where this cannot happen: %s", of, _name(state), what)
        return state
    if after is not state:
        _log.debug("%s: %s -> %s (%s)", of, _name(state), _name(after), what)
    return after


# ---------------------------------------------------------------- attempts at tasks


ATTEMPT = Struct("<5i2d")
"""An attempt at a task: stage, index, allocation, node, outcome, and when it started and ended [s since the epoch]."""
TAKEN = Struct("<d2qB2?")
"""What it took: processor time [s], most memory and what it was given [bytes], which of `SOURCES` says so; whether
it ended for want of memory, and of time."""


class _Numbers(dict[str, int]):
    """Names, numbered as they come."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class AttemptLog:
    """Every attempt at a task that was reported, in the order of the log: records of numbers, `ATTEMPT` and `TAKEN`.

    `stages`, `allocations` and `nodes` say what the numbers of names stand for. An attempt never ends before it starts,
    although clocks of node and driver may differ.
    """

    def __init__(self) -> None:
        self.records, self.taken = bytearray(), bytearray()
        self.stages = _Numbers()
        self.allocations = _Numbers()
        self.nodes = _Numbers()

    def __len__(self) -> int:
        return len(self.records) // ATTEMPT.size

    def add(self, event: TaskDone | TaskFailed | TaskPaused, outcome: int) -> None:
        started, ended = event.started, event.at
        self.records += _packed(
            self.stages[event.stage],
            event.index,
            self.allocations[event.allocation],
            self.nodes[event.node],
            outcome,
            started,
            ended if ended > started else started,
        )
        if isinstance(event, TaskPaused):
            self.taken += _TOOK_NOTHING
        else:
            cause = "" if isinstance(event, TaskDone) else event.cause
            self.taken += _pack_taken(
                event.cpu_s, event.peak, event.given, _SOURCE.get(event.source, 0), cause == "memory", cause == "time"
            )

    def add_done(self, done: TasksDone) -> None:
        stage, allocation = self.stages[done.stage], self.allocations[done.allocation]
        node, outcome = self.nodes[done.node], TaskOutcome.DONE.value
        same = map(repeat, (allocation, node, outcome))
        ends = map(max, done.started, done.at)
        self.records += b"".join(map(_packed, repeat(stage), done.index, *same, done.started, ends))
        if done.source:
            source = map(_SOURCE.__getitem__, done.source)
            lacked = repeat(False), repeat(False)
            self.taken += b"".join(map(_pack_taken, done.cpu_s, done.peak, done.given, source, *lacked))
        else:
            self.taken += _TOOK_NOTHING * len(done)


_packed, _pack_taken = ATTEMPT.pack, TAKEN.pack
_SOURCE = {name: number for number, name in enumerate(SOURCES)}
_TOOK_NOTHING = bytes(TAKEN.size)


# ---------------------------------------------------------------- stages


@dataclass(slots=True)
class PausedTask:
    """A task that goes from allocation to allocation: how long it ran in all [s], what stands for what it has saved;
    for how long [s], and how often, it ran since then."""

    ran_s: float = 0.0
    saved: str = ""
    stalled_s: float = 0.0
    stalls: int = 0


@dataclass
class StageProgress:
    """How far a stage has come: which of its tasks were never launched (from `fresh` on), wait again, run, are done.

    Attributes
    ----------
    open
        Whether its number of tasks grows: calls.
    tasks
        State of each task.
    again
        Tasks that were launched and have to run again, in order.
    running, since, active_s
        How many tasks run now; since when some do [s since the epoch]; how long some did before [s].
    launched, done, dropped, news_at
        Tasks launched in all, reruns included; that returned; that were given up before they were launched; how many
        have to return until that counts as news.
    looked, reused, unused
        Tasks for which results of earlier runs were looked for; for which they stand; why some were not looked for.
    sources
        The runs whose results these are, and the tasks, as half-open ranges.
    failures
        Task -> how often it failed by its own fault; call -> how often it was lost.
    errors
        Task that is not done -> what its last attempt failed with.
    given_up
        Call that will not run any more -> why.
    failed
        Task that failed for good -> how.
    undone
        Tasks that failed for good while the others go on, or are skipped.
    later
        Tasks that failed and wait to be tried again -> until when [s since the epoch].
    paused, pauses
        Task with checkpoints that is not done -> how it has come so far; how often tasks have gone on elsewhere.
    lacks
        What a task had too little of since the stage's needs were raised last: "memory", "time" (its own limit) or
        "walltime".
    short, width_chosen, why_width
        Whether a wall time that was less than what was declared, as it is wide, was too short for a task of it.
        When the width of its next job was chosen [s since the epoch], None where that is to be done; why that one.
    grown, bounded, outgrown
        Whether they were; what kept them from being raised more; until when it was which stage before [s since the
        epoch].
    sifted
        Whether it was found out which of its tasks have to be skipped.
    tolerated
        Whether tasks of others may run that need only what is done of it, although not all is; of a stage that was
        skipped, whether its own would be.
    ready, started, ended
        When its last predecessor ended, its first task was launched, and it was done or given up [s since the epoch].
    peak, cpu_s
        The most memory that an attempt at a task has had [bytes], and processor time of all of them [s]; 0 where that
        is not known.
    barren, withdrawn
        Allocations in a row that ended without a task done; allocations that others than the run have cancelled.
    error, details
        Why it failed, in a line or so; what its task printed.
    added, origin, orphaned, chain
        Task -> what it has added to the run, of those that are done; the stage that added it, or ""; whether what that
        had returned is lost; the first of those, of which something is expected, that it follows on, or "".
    number, followers
        Its sort key in topological order; the stages that wait for it.
    before, followed
        How many of those that it waits for are not done; whether that it is over was counted in its followers.
    held_back
        Those of its followers that were skipped because of it.
    hosts, ousted
        Stages on whose cores tasks of it were launched as guests -> how many; whether one was ended because of its
        host, so that no more are.
    stirred
        Names of the run's stages whose state, or whose tasks to launch, have changed; it adds its own.
    """

    spec: StageSpec
    width: int | None
    open: bool = False
    illegal: list[str] = field(default_factory=list)
    stirred: dict[str, None] = field(default_factory=dict, repr=False)
    number: int = 0
    followers: list[str] = field(default_factory=list)
    before: int = 0
    followed: bool = False
    held_back: frozenset[str] = frozenset()
    hosts: dict[str, int] = field(default_factory=dict)
    ousted: bool = False
    added: dict[int, StagesAdded] = field(default_factory=dict)
    origin: str = ""
    orphaned: bool = False
    chain: str = ""
    state: StageState = StageState.WAITING
    tasks: bytearray = field(default_factory=bytearray)
    fresh: int = 0
    again: dict[int, None] = field(default_factory=dict)
    running: int = 0
    since: float | None = None
    active_s: float = 0.0
    launched: int = 0
    done: int = 0
    dropped: int = 0
    looked: int = 0
    reused: int = 0
    unused: str = ""
    sources: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    news_at: int = 1
    failures: dict[int, int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    undone: int = 0
    later: dict[int, float] = field(default_factory=dict)
    paused: dict[int, PausedTask] = field(default_factory=dict)
    pauses: int = 0
    lacks: dict[str, None] = field(default_factory=dict)
    grown: bool = False
    bounded: str = ""
    short: bool = False
    width_chosen: float | None = None
    why_width: str = ""
    outgrown: list[tuple[float, StageSpec]] = field(default_factory=list)
    sifted: bool = False
    tolerated: bool = True
    ready: float | None = None
    started: float | None = None
    ended: float | None = None
    predicted_wait_s: float | None = None
    soon_wait_s: float | None = None
    predicted_at: float | None = None
    attempts: int = 0
    displaced: int = 0
    barren: int = 0
    withdrawn: int = 0
    mean_s: float | None = None
    longest_s: float = 0.0
    peak: int = 0
    cpu_s: float = 0.0
    error: str = ""
    details: str = ""

    def __post_init__(self) -> None:
        self.expand(self.width)

    @property
    def unlaunched(self) -> int:
        """Tasks that no allocation was given and that the stage is ready for."""
        if self.width is None or self.state not in (StageState.READY, StageState.RUNNING):
            return 0
        return self.width - self.fresh - self.dropped + len(self.again)

    @property
    def is_complete(self) -> bool:
        """Whether none of its tasks is left, and it is known what they add."""
        over = self.done + self.undone == self.width and not self.open
        return over and (not self.spec.expands or len(self.added) == self.done)

    @property
    def is_telling(self) -> bool:
        """Whether later runs can learn anything from what it took: it, and a task of it, took more than an instant, or
        failed."""
        mean_s = self.mean_s or 0.0
        return bool(self.failures) or (mean_s >= _AT_ONCE_S and mean_s * self.done >= _INSTANT_S)

    @property
    def ahead(self) -> float:
        """How many times its capacity an allocation may hold queued: about half a second of work, so that short
        tasks do not wait for the driver and long ones are not bound to one allocation too early."""
        if self.mean_s is None or self.mean_s >= _AHEAD_S:
            return 0.0
        return min(_AHEAD_MOST, _AHEAD_S / max(self.mean_s, 1e-6))

    @property
    def story(self) -> str:
        """Why it failed, with what its task printed."""
        return self.error + self.details

    def waiting(self) -> Iterator[int]:
        """Tasks to launch, in order: those that run again first."""
        yield from self.again
        for index in range(self.fresh, self.width or 0):
            if self.tasks[index] == TaskState.WAITING:
                yield index

    def next_ranges(self, count: int, skip: int = 0) -> tuple[tuple[int, int], ...]:
        """The next `count` tasks to launch after the first `skip`, lost ones first, as half-open ranges."""
        again = list(islice(self.again, skip, skip + count))
        ranges = [(index, index + 1) for index in again]
        if self.dropped:
            return (*ranges, *self._fresh_ranges(count - len(again), max(0, skip - len(self.again))))
        first = self.fresh + max(0, skip - len(self.again))
        last = min(first + count - len(again), self.width or 0)
        return (*ranges, (first, last)) if last > first else tuple(ranges)

    def _fresh_ranges(self, count: int, skip: int) -> Iterator[tuple[int, int]]:
        """The next tasks that were never launched, where some of these are not to be."""
        place, width = self.fresh, self.width or 0
        while count > 0 and (start := self.tasks.find(TaskState.WAITING, place, width)) >= 0:
            stop = start
            while stop < width and stop - start < skip + count and not self.tasks[stop]:
                stop += 1
            place, left = stop, min(skip, stop - start)
            start, skip = start + left, skip - left
            if start < stop:
                count -= stop - start
                yield start, stop

    def move(self, what: str) -> None:
        """Follow the table of stages."""
        self.stirred[self.spec.name] = None
        self.state = _next(STAGE, f"stage {self.spec.name}", self.state, what, self.illegal)

    def expand(self, width: int | None) -> None:
        """Its number of tasks became known, or grew."""
        self.stirred[self.spec.name] = None
        if width is not None:
            self.spec = self.spec.holding(width)
        self.width, self.news_at = width, self.done + max(1, (width or 0) // _DONE_STEPS)
        self._grow(width or 0)

    def reuse(self, event: StageLookedUp) -> None:
        """Results of earlier runs stand for tasks, which will not be launched."""
        self.stirred[self.spec.name] = None
        self.looked, self.unused = event.stop, event.trouble or self.unused
        self.sources += event.reused
        last = 0
        for start, stop in (each for _, ranges in event.reused for each in ranges):
            self._grow(stop)
            last = max(last, stop)
            waiting = self.tasks.count(TaskState.WAITING, start, stop)
            self.tasks[start:stop] = self.tasks[start:stop].translate(_DONE + bytes(256 - len(TaskState)))
            self.done += waiting
            self.reused += waiting
        if last > self.fresh:
            self.dropped -= self.tasks.count(TaskState.SKIPPED, self.fresh, last)
            self.again |= {index: None for index in range(self.fresh, last) if self.tasks[index] == TaskState.WAITING}
            self.fresh = last
        self.news_at = self.done + max(1, (self.width or 0) // _DONE_STEPS)

    def launch(self, start: int, stop: int, now: float) -> None:
        """Tasks were given to an allocation."""
        self._grow(stop)
        waiting = self.tasks.count(TaskState.WAITING, start, stop)
        if waiting != stop - start:
            self.illegal.append(f"stage {self.spec.name}: of tasks {start} to {stop - 1} only {waiting} waited")
            _log.warning(self.illegal[-1])
        self.tasks[start:stop] = self.tasks[start:stop].translate(_LAUNCHED)
        if self.again:
            for index in range(start, min(stop, self.fresh)):
                self.again.pop(index, None)
        if self.dropped and start > self.fresh:
            self.dropped -= start - self.fresh - self.tasks.count(TaskState.WAITING, self.fresh, start)
        self.fresh = max(self.fresh, stop)
        self.launched += stop - start
        self.running += stop - start
        if self.state is StageState.READY:
            self.move("tasks launched")
        self.since = now if self.since is None else self.since
        self.started = now if self.started is None else self.started

    def leave(self, now: float) -> None:
        """A task does not run any more where it did."""
        self.running -= 1
        if not self.running and self.since is not None:
            if now > self.since:
                self.active_s += now - self.since
            self.since = None

    def took(self, event: TaskDone | TaskFailed) -> None:
        """An attempt at a task took so much."""
        self.cpu_s += event.cpu_s
        if event.peak > self.peak:
            self.peak = event.peak

    def finish(self, index: int, run_time_s: float, now: float) -> None:
        """A task is done; the first time counts."""
        if index >= len(self.tasks):
            self._grow(index + 1)
        before = self.tasks[index]
        self.tasks[index] = _DONE[before]
        if before >= 2:  # done or given up
            return
        if self.again:
            self.again.pop(index, None)
        if self.errors:
            self.errors.pop(index, None)
        if self.paused and (paused := self.paused.pop(index, None)) is not None:
            run_time_s += paused.ran_s
        self.done += 1
        self.barren = 0
        self.mean_s = run_time_s if self.mean_s is None else 0.9 * self.mean_s + 0.1 * run_time_s
        if run_time_s > self.longest_s:
            self.longest_s = run_time_s
        if self.done + self.undone == self.width and self.is_complete and not self.state.final:
            self.complete(now)

    def complete(self, now: float) -> None:
        """None of its tasks is left."""
        if not self.undone:
            self.close("all tasks done", now)
            return
        self.tolerated = self.spec.continues or not self.failed
        if self.failed:
            first = self.failed[min(self.failed)]
            where = f" on node {first.node}" * bool(first.node)
            count = f"{len(self.failed)} of {self.width} tasks failed; the first: " if self.width != 1 else ""
            self.error, self.details = f"{count}task {first.index}{where}: {first.message}", first.tail
        self.close("some tasks done" if self.done else "gives up" if self.failed else "all tasks skipped", now)

    def skip(self, index: int) -> None:
        """A task that waits is not to run: one failed that it needs."""
        if index >= self.fresh:
            self.dropped += 1
        self.again.pop(index, None)
        self.later.pop(index, None)
        self.tasks[index] = TASK[TaskState.WAITING, "skipped"]
        self.undone += 1

    def fail_task(self, failed: Failed, now: float) -> None:
        """A task that waits again is not tried any more; the others go on."""
        index = failed.index
        self.again.pop(index, None)
        self.errors.pop(index, None)
        self.tasks[index] = TASK[TaskState.WAITING, "given up"]
        self.failed[index] = failed
        self.undone += 1
        self.stirred[self.spec.name] = None
        if self.is_complete and not self.state.final:
            self.complete(now)

    @property
    def not_done(self) -> Iterator[int]:
        tasks = self.tasks.translate(_IS_DONE)
        place = tasks.find(0)
        while place >= 0:
            yield place
            place = tasks.find(0, place + 1)
        yield from range(len(tasks), self.width or 0)

    @property
    def is_widthless(self) -> bool:
        """Whether it is over, and it will never be known how many tasks it had."""
        return self.width is None and self.state.final

    @property
    def skipped(self) -> int:
        if self.state is StageState.SKIPPED:
            return self.width or 0
        return self.tasks.count(TaskState.SKIPPED) if self.undone else 0

    def finish_running(self, done: TasksDone) -> None:
        """As `leave` and `finish` for each of these tasks, which all run, while others run, too, and are not done."""
        tasks, mean, longest = self.tasks, self.mean_s, self.longest_s
        for index, at, started in zip(done.index, done.at, done.started, strict=True):
            tasks[index] = _RETURNED
            run_time_s = at - started
            mean = run_time_s if mean is None else 0.9 * mean + 0.1 * run_time_s
            if run_time_s > longest:
                longest = run_time_s
        self.mean_s, self.longest_s, self.barren = mean, longest, 0
        if done.source:
            self.peak = max(self.peak, *done.peak)
            self.cpu_s = reduce(operator.add, done.cpu_s, self.cpu_s)  # rounded as one by one
        self.done += len(done)
        self.running -= len(done)

    def is_done(self, index: int) -> bool:
        return index < len(self.tasks) and self.tasks[index] == TaskState.DONE

    def is_wanted(self, index: int) -> bool:
        """Whether a task has not returned, and is not over in another way."""
        return index >= len(self.tasks) or self.tasks[index] in (TaskState.WAITING, TaskState.RUNNING)

    def lose(self, index: int) -> None:
        """A task that was launched has to run again."""
        self.tasks[index] = after = _LOST[self.tasks[index]]
        if after == TaskState.WAITING:
            self.again[index] = None
            self.stirred[self.spec.name] = None

    def revoke(self, index: int) -> None:
        """The result of a task that was done is lost: it runs again."""
        if self.is_done(index):
            self._undo(index, "result lost")
            if self.state in (StageState.DONE, StageState.PARTIAL):
                self.move("results lost")
                self.ended = None

    def refuse(self, index: int, reason: str, now: float) -> None:
        """What a task has returned cannot be part of the run: it has failed for good."""
        if self.is_done(index):
            self._undo(index, "refused")
            failed = Failed(self.spec.name, index, reason, 1 + self.failures.get(index, 0))
            if self.spec.continues:
                self.fail_task(failed, now)
            else:
                self.failed.setdefault(index, failed)
                self.fail(f"task {index}: {reason}", now)

    def _undo(self, index: int, what: str) -> None:
        """A task that was done is not any more."""
        self.tasks[index] = TASK[TaskState.DONE, what]
        self.added.pop(index, None)
        self.again[index] = None
        self.stirred[self.spec.name] = None
        self.done -= 1
        self.news_at = min(self.news_at, self.done + 1)

    def give_up(self, index: int, reason: str = "") -> None:
        """A call will not run again; no `reason` where it failed by itself or was cancelled."""
        if self.tasks[index] >= TaskState.DONE:
            return
        if self.tasks[index] == TaskState.WAITING and index >= self.fresh:
            self.dropped += 1
        self.again.pop(index, None)
        self.tasks[index] = TaskState.FAILED
        if reason:
            self.given_up[index] = reason

    def cancel(self, index: int) -> None:
        """A call was cancelled, maybe before it was counted; one that runs runs on."""
        if index >= (self.width or 0):
            self.expand(index + 1)
        if self.tasks[index] != TaskState.RUNNING:
            self.give_up(index)

    def fail(self, reason: str, now: float, details: str = "") -> None:
        """The stage is given up; the first reason is kept."""
        if not self.state.final:
            self.close("gives up", now)
            reason = f"no allocation is of use: {reason}" if self.open else reason
            self.tolerated = self.spec.continues
            self.error, self.details = reason, details
            if self.open:
                for index in list(self.waiting()):
                    self.give_up(index, reason)

    def close(self, what: str, now: float) -> None:
        self.move(what)
        self.ended = now

    def reopen(self) -> None:
        """A new driver gives a stage that failed, or was skipped, another go."""
        if self.orphaned:
            return
        if self.state in (StageState.FAILED, StageState.SKIPPED, StageState.PARTIAL):
            self.move("driver started")
            self.followed = False
            self.ended, self.error, self.details = None, "", ""
        if not self.open:
            self.again |= dict.fromkeys(self.later)
            if self.undone:
                self.stirred[self.spec.name] = None
                for index, state in enumerate(self.tasks):
                    if state in (TaskState.FAILED, TaskState.SKIPPED):
                        self.tasks[index] = TASK[TaskState(state), "driver started"]
                        if index < self.fresh:
                            self.again[index] = None
                        else:
                            self.dropped -= 1
            if self.later:
                self.stirred[self.spec.name] = None
            self.later, self.failed, self.undone = {}, {}, 0
            for paused in self.paused.values():
                paused.stalled_s, paused.stalls = 0.0, 0
            self.sifted, self.tolerated, self.lacks = False, True, {}
        self.failures.clear()
        self.barren = self.withdrawn = 0

    def expected_end(self, now: float) -> float | None:
        """When a running stage is expected to end [s since the epoch]: extrapolated from its tasks once a fifth of them
        is done, before that by its predicted run time."""
        if self.state is not StageState.RUNNING or self.started is None:
            return None
        width, done = (self.width or 0) - self.reused, self.done - self.reused
        if width > 0 and done >= _TRUST_SHARE * width:
            return max(now, self.started + (now - self.started) * width / done)
        return max(now, self.started + self.spec.run_time_s)

    @property
    def task_s(self) -> float:
        """How long one of its tasks is expected to run [s]: as those that are done, before that as the stage."""
        at_once = max(1, self.spec.resources.cores // self.spec.task.cores)
        return self.spec.run_time_s / -(-max(1, self.width or 1) // at_once) if self.mean_s is None else self.mean_s

    def view(self, now: float, allocations: tuple[AllocationView, ...]) -> StageView:
        """What a strategy sees of it; `allocations` are those meant for it."""
        return StageView(
            spec=self.spec,
            state=self.state,
            allocations=allocations,
            started=self.started,
            ended=self.ended,
            expected_end=self.expected_end(now),
            predicted_wait_s=self.predicted_wait_s,
            attempts=self.attempts,
            unlaunched=self.unlaunched > 0 or self.state is StageState.WAITING or self.width is None,
            soon_wait_s=self.soon_wait_s,
            predicted_at=self.predicted_at,
            displaced=self.displaced,
            rest_s=self._rest_s,
        )

    @property
    def longest_wall_s(self) -> float:
        """The longest wall time that it may ask for as it is declared [s]: what is expected to be enough of it where it
        is wide may not be."""
        return max([self.spec.walltime_s, *(width.walltime_s for width in self.spec.widths)])

    @property
    def _rest_s(self) -> float | None:
        """How long a task is expected to run yet, which is the longest of them, from when it last began [s]."""
        total_s = self.spec.total_s
        if total_s is None or not self.paused or len(self.paused) < (self.width or 0) - self.done - self.undone:
            return total_s
        return max(0.0, total_s - min(paused.ran_s for paused in self.paused.values()))

    def _grow(self, width: int) -> None:
        if width > len(self.tasks):
            self.tasks.extend(bytes(width - len(self.tasks)))


class Launchable:
    """Stages with tasks to launch, by what one task holds.

    A stage is added when it may have some; that it has none is seen when it is looked at.
    """

    def __init__(self) -> None:
        self._heaps: dict[Resources, list[tuple[int, StageProgress]]] = {}
        self._known: set[int] = set()
        self._begun: dict[int, StageProgress] = {}

    def drop(self, stage: StageProgress) -> None:
        """What one of its tasks holds is about to change: it is to be added again."""
        if stage.number in self._known:
            self._known.discard(stage.number)
            heap = self._heaps[stage.spec.task]
            heap.remove((stage.number, stage))
            heapq.heapify(heap)

    def renumber(self) -> None:
        """Numbers of stages have changed."""
        stages = [stage for heap in self._heaps.values() for _, stage in heap] + [*self._begun.values()]
        self._heaps, self._known, self._begun = {}, set(), {}
        for stage in stages:
            self.add(stage)

    def add(self, stage: StageProgress) -> None:
        """A stage may have tasks to launch."""
        if not stage.unlaunched:
            return
        if stage.state is StageState.RUNNING:
            self._begun[stage.number] = stage
        if stage.number not in self._known:
            self._known.add(stage.number)
            heapq.heappush(self._heaps.setdefault(stage.spec.task, []), (stage.number, stage))

    def those(self, fits: Callable[[Resources], object]) -> Iterator[StageProgress]:
        """Stages in topological order of whose tasks `fits`, asked before each, says that there is room for one."""
        seen: list[tuple[int, StageProgress]] = []
        while heaps := [heap for task, heap in self._heaps.items() if self._trim(heap) and fits(task)]:
            seen.append(heapq.heappop(min(heaps)))
            yield seen[-1][1]
        for entry in seen:
            heapq.heappush(self._heaps[entry[1].spec.task], entry)
        for task in [task for task, heap in self._heaps.items() if not heap]:
            del self._heaps[task]

    def __len__(self) -> int:
        """How many there are at most."""
        return len(self._known)

    def __iter__(self) -> Iterator[StageProgress]:
        """All of them, in no order."""
        return (stage for heap in self._heaps.values() for _, stage in heap if stage.unlaunched)

    def begun(self) -> list[StageProgress]:
        """Stages in topological order of which some tasks were launched already."""
        self._begun = {number: stage for number, stage in sorted(self._begun.items()) if stage.unlaunched}
        return list(self._begun.values())

    def _trim(self, heap: list[tuple[int, StageProgress]]) -> bool:
        while heap and not heap[0][1].unlaunched:
            self._known.discard(heapq.heappop(heap)[0])
        return bool(heap)


# ---------------------------------------------------------------- allocations


@dataclass
class Held:
    """One allocation from the decision to ask for it, or a lease of part of another run's.

    Attributes
    ----------
    why
        Why it is for several stages, and in its queue, in plain words, or "".
    second, twin, instead
        The queue in which the same is yet to be asked for; the name of the allocation that was asked for there, or to
        whose request this one is the second, and whether it is that.
    state, job
        Where it stands; where its job stands, in the batch system's words.
    started, runs
        When it started last [s since the epoch], None while it waits; from when to when its job ran before, and on how
        many cores.
    allocated, energy_j
        Cores that its job holds or held last, and what its last run drew [J], where the batch system has said so.
    asked, ended, used, idle_since
        When it was asked for, was over, got its first task, and since when it runs nothing [s since the epoch].
    nodes, hosts, confirmed
        Nodes that are ready, with their cores; names of all nodes of the job, once the batch system has confirmed them.
    running, lost
        Task (stage, index) -> what it uses and when it was launched; tasks that its nodes took along -> since when at
        the latest they ran, and when they were lost [s since the epoch].
    joined, bare
        Whether a node of it ever joined; since when its job runs without a node [s since the epoch].
    unseen, away
        Of what runs, what an earlier driver launched and this one has not heard of; nodes that the earlier one had.
    guests, unused
        Of what runs, what runs as a guest, and the stage that is its host; what guests may use: (node, stage) -> cores
        and memory [bytes].
    crowded
        When one of its tasks ended last while more were in it than can run at once [s since the epoch].
    crowd
        When more tasks came last than can run at once, and `crowded` as it was then [s since the epoch].
    useful, taught, requeued
        Whether a task ran to its end in it; its wait was learned from; its job had to wait a second time.
    dependable
        Whether the batch system lets other jobs wait for it.
    released, cancelled, dismissed
        When it was released or cancelled, and why.
    amending, amended, refused
        A change of its job that is on its way; whether its job was made to wait, or parked; why the last change was
        not made.
    reason, ages_since, reported
        Why its job waits, in the batch system's words; since when it ages; when it was submitted, as that reported.
    answered, ahead_s
        When the batch system's answer to its submission came [s since the epoch]; how far the driver's clock is ahead
        of the one by which it started [s].
    end_reason
        Why the job ended, or was refused, in the site's words.
    lender, recalled
        The run that has the allocation of which this is a lease, and whether that recalled it.
    number
        Its place in the order of asking.
    """

    request: JobRequest
    stages: tuple[str, ...]
    after: tuple[str, ...]
    asked: float
    predicted_wait_s: float | None
    soon_wait_s: float | None = None
    context: Context | None = None
    lender: str = ""
    why: str = ""
    second: Options | None = None
    twin: str = ""
    instead: bool = False
    started: float | None = None
    illegal: list[str] = field(default_factory=list)
    state: AllocationState = AllocationState.ASKED
    job: JobState = JobState.PENDING
    parked: bool = False
    amending: Amending | None = None
    amended: bool = False
    refused: str = ""
    reason: str = ""
    ages_since: float | None = None
    reported: float | None = None
    answered: float | None = None
    ahead_s: float = 0.0
    used: float | None = None
    idle_since: float | None = None
    handle: JobHandle | None = None
    runs: list[tuple[float, float, int]] = field(default_factory=list)
    allocated: int | None = None
    energy_j: float | None = None
    ended: float | None = None
    end_reason: str = ""
    requeued: bool = False
    useful: bool = False
    taught: bool = False
    dependable: bool = True
    released: float | None = None
    cancelled: float | None = None
    dismissed: str = ""
    recalled: bool = False
    number: int = 0
    many: int = 0  # stages, from so many on those that are over are left out
    nodes: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    confirmed: bool = False
    joined: bool = False
    bare: float | None = None
    running: dict[tuple[str, int], tuple[Resources, float]] = field(default_factory=dict)
    lost: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    unseen: dict[tuple[str, int], None] = field(default_factory=dict)
    away: dict[str, None] = field(default_factory=dict)
    cores_busy: int = 0
    memory_busy: int = 0
    gpus_busy: int = 0
    guests: dict[tuple[str, int], str] = field(default_factory=dict)
    unused: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    crowded: float = -math.inf
    crowd: tuple[float, float] = (-math.inf, -math.inf)

    @property
    def key(self) -> str:
        return self.request.token

    @cached_property
    def meant_for(self) -> frozenset[str]:
        """Names of the stages that it is meant for."""
        return frozenset(self.stages)

    @property
    def cores(self) -> int:
        """Cores that it is charged for: those that its job was given or, until that is known, asked for."""
        return self.allocated or self.request.resources.cores

    @property
    def submitted(self) -> float:
        """When its job was submitted, by the batch system's clock where that reported it [s since the epoch]."""
        if self.reported is not None:
            return self.reported
        return self.asked if self.handle is None else self.handle.submitted

    @property
    def clocks_apart_s(self) -> float:
        """How far the driver's clock is ahead of the batch system's [s], maybe negative: by as much as the latter says
        that the job was submitted before it was asked for, or after the answer."""
        early = self.asked - self.submitted
        late = -math.inf if self.answered is None else self.submitted - self.answered
        if max(early, late) <= _CLOCKS_S:
            return 0.0
        return early if early > late else -late

    @property
    def began(self) -> float | None:
        """When it started, by the driver's clock [s since the epoch], or None while it waits."""
        return None if self.started is None else self.started + self.ahead_s

    @property
    def ends(self) -> float | None:
        """When its wall time is over [s since the epoch], or None while it waits."""
        return None if (began := self.began) is None else began + self.request.walltime_s

    @property
    def drains(self) -> float | None:
        """When it stops taking tasks [s since the epoch], or None while it waits."""
        return None if (ends := self.ends) is None else ends - drain_margin(self.request.walltime_s)

    @property
    def gated(self) -> bool:
        """Whether its place in the queue was, or is, held: its wait is not the queue's alone."""
        behind = bool(self.request.array) and bool(self.handle and self.handle.array_index)
        return self.amended or behind or self.request.begin is not None

    @property
    def ending(self) -> bool:
        """Released, cancelled or recalled: it takes no more tasks, whatever time is left."""
        return self.state is AllocationState.LEAVING

    @property
    def overdue_at(self) -> float:
        """When its job is cancelled because it does not do as it should [s since the epoch]; infinite if it does."""
        if self.cancelled is not None or self.lender:
            return math.inf
        return self._deserted_at if self.released is None else self.released + UNRESPONSIVE_S

    @property
    def overdue(self) -> str:
        """Why it is cancelled then."""
        if self.released is not None:
            return "it was released and did not end"
        return f"its nodes are gone for {brief(GONE_S)}" if self.joined else f"no node joined in {brief(JOIN_S)}"

    @property
    def _deserted_at(self) -> float:
        return math.inf if self.bare is None else self.bare + (GONE_S if self.joined else JOIN_S)

    @property
    def deserted(self) -> bool:
        """Whether it was cancelled since it had no nodes."""
        return self.released is None and self.cancelled is not None and self.cancelled >= self._deserted_at

    @property
    def why_ended(self) -> str:
        """Why it was cancelled, or else how it ended, in the words of the run or of the site."""
        return (self.dismissed if self.cancelled is not None else "") or self.end_reason

    def leaving(self, now: float) -> bool:
        """Whether it takes no more tasks."""
        return self.ending or ((drains := self.drains) is not None and now >= drains)

    def move(self, what: str, job: bool = True) -> None:
        """Follow the table of allocations, and that of jobs if it is about the `job`, too."""
        self.state = _next(ALLOCATION, f"allocation {self.key}", self.state, what, self.illegal)
        if job:
            self.job = _next(JOB, f"job of {self.key}", self.job, what, self.illegal)

    @property
    def ran_s(self) -> float:
        """How long its job ran until it last ended or was requeued, all its runs together [s]."""
        return sum(ended - started for started, ended, _ in self.runs)

    @property
    def preempted(self) -> int:
        """How often its nodes were taken from it, as far as is known: it was requeued, or ended as preempted."""
        whole = self.ended is not None and self.started is not None
        return len(self.runs) - whole + (self.job is JobState.PREEMPTED)

    def stop(self, now: float) -> None:
        """Its job runs no more, for now."""
        if self.started is not None:
            self.runs.append((self.started, max(self.started, now), self.cores))

    def end(self, what: str, job: str, now: float, reason: str) -> None:
        self.move(what, job=False)
        self.job = _next(JOB, f"job of {self.key}", self.job, job, self.illegal)
        self.stop(now)
        self.ended, self.end_reason = now, reason

    def room(self, task: Resources, ahead: float, claims: Sequence[tuple[Resources, int]] = ()) -> int:
        """How many more such tasks it takes, with `ahead` times its capacity allowed to queue up inside it, and room
        left for so many more of others."""
        factor = 1.0 + ahead
        if task.options != self.request.resources.options:
            return 0
        if not (cores := min([self._usable(task), *(self._usable(size) for size, _ in claims)])):
            return 0
        taken, held_back = self._left_behind()
        taken += self.cores_busy + sum(size.cores * count for size, count in claims)
        room = int((cores * factor - taken) // task.cores)
        if task.memory and (memory := self.request.resources.memory):
            kept = held_back + self.memory_busy + sum((size.memory or 0) * count for size, count in claims)
            room = min(room, int((memory * factor - kept) // task.memory))
        if task.gpus:
            kept = self.gpus_busy + sum(size.gpus * count for size, count in claims)
            room = min(room, int((self.request.resources.gpus * factor - kept) // task.gpus))
        return max(room, 0)

    def guest_room(self, task: Resources, host: str, cores: int) -> int:
        """How many more such tasks it takes as guests of a stage, which leaves them so many `cores` at most.

        The first guest may ask for more than is idle, up to what one task of the host holds: then it is slower.
        """
        whole = self.request.resources
        if task.options != whole.options or not task.memory or not whole.memory:
            return 0
        taken, kept = self._guests()
        memory = whole.memory - self.memory_busy + sum(left for _, left in self.unused.values()) - kept
        of_host = sum(self.running[task][0].cores for task, each in self.guests.items() if each == host)
        there = [left for (_, stage), (left, _) in self.unused.items() if stage == host]
        room = sum(left // task.cores for left in there) - -(-of_host // task.cores)
        room = min(
            room, (cores - of_host) // task.cores, (sum(left for left, _ in self.unused.values()) - taken) // task.cores
        )
        if not taken and room <= 0 < min(cores, sum(there)):
            own = [size.cores for (name, _), (size, _) in self.running.items() if name == host]
            room = int(task.cores <= max(own, default=0))
        return max(0, min(room, memory // task.memory))

    def _guests(self) -> tuple[int, int]:
        """Cores and memory [bytes] of the guests."""
        sizes = [self.running[task][0] for task in self.guests]
        return sum(size.cores for size in sizes), sum(size.memory or 0 for size in sizes)

    def _left_behind(self) -> tuple[int, int]:
        """Cores and memory [bytes] that guests hold like other tasks, since their hosts have ended, or use more now."""
        if not self.guests:
            return 0, 0
        cores, memory = self._guests()
        spare = list(self.unused.values())
        return max(0, cores - sum(left for left, _ in spare)), max(0, memory - sum(left for _, left in spare))

    def most(self, task: Resources) -> int:
        """How many such tasks it would take if nothing ran in it."""
        most, there = self._usable(task) // task.cores, self.request.resources
        if task.memory and there.memory:
            most = min(most, there.memory // task.memory)
        return min(most, there.gpus // task.gpus) if task.gpus else most

    def _usable(self, task: Resources) -> int:
        """Cores that such tasks can use; 0 where there is no room for one of them, even if nothing else ran.

        What is left of a node beside whole units is of no use. But a batch system may give other shapes, or less, than
        it was asked for, of which tasks of the shape that was asked for make the best.
        """
        there = list(self.nodes.values())
        if task.nodes is not None:
            abreast = sum(cores >= task.cores // task.nodes for cores in there) >= task.nodes
            return sum(there) if abreast and task.cores <= sum(there) else 0
        unit = task.unit or task.cores
        if (cores := sum(cores // unit for cores in there) * unit) >= task.cores:
            return cores if len(there) > 1 else there[0]  # what is left of a single one may be used by others
        asked = self.request.resources
        if (asked.unit or asked.cores // (asked.nodes or 1)) < unit or asked.cores < task.cores:
            return 0
        if task.unit is None:
            return sum(there) if task.cores <= sum(there) else 0
        return task.cores if self.confirmed and self.hosts.keys() <= self.nodes.keys() else 0

    def take(self, stage: str, start: int, stop: int, needs: Resources, now: float, host: str = "") -> None:
        """Count tasks `start` to `stop` - 1 of a stage in, as guests of the `host` if there is one."""
        if stop <= start:
            return
        tasks = dict.fromkeys(zip(repeat(stage), range(start, stop)), (needs, now))
        self.running |= tasks
        self.used = now if self.used is None else self.used
        self.idle_since = None
        if host:
            self.guests |= dict.fromkeys(tasks, host)
            return
        was_crowded = self._is_crowded()
        self._count(needs, stop - start)
        if not was_crowded and self._is_crowded():
            self.crowd = now, self.crowded

    def drop(self, task: tuple[str, int], now: float, node: str = "") -> float | None:
        """Count a task out, which ran on this `node`; when it was launched [s since the epoch], or None when it was not
        here."""
        if (entry := self.running.pop(task, None)) is None:
            return None
        guest = self.guests.pop(task, None) is not None
        if not guest:
            self.unused.pop((node, task[0]), None)
        if self.unseen:
            self.unseen.pop(task, None)
        if self._is_crowded():
            self.crowded = now
        if not guest:
            self._count(entry[0], -1)
        if not self.running:
            self.idle_since = now
        return entry[1]

    def drop_all(self, done: TasksDone, needs: Resources) -> bool:
        """Count these tasks out, which all need the same, if all are here, no earlier driver's, and not all there are;
        whether they were."""
        tasks = set(zip(repeat(done.stage), done.index))
        running = self.running
        if (
            self.unseen
            or self.guests
            or self.unused
            or not len(done) == len(tasks) < len(running)
            or not tasks <= running.keys()
        ):
            return False
        for task in tasks:
            del running[task]
        # It was crowded before each of the first of them, until there was no more of anything than there is.
        there, beyond = self.request.resources, [(self.cores_busy - self.cores, needs.cores)]
        if there.memory is not None:
            beyond.append((self.memory_busy - there.memory, needs.memory or 0))
        beyond.append((self.gpus_busy - there.gpus, needs.gpus))
        crowded = max((-(-more // each) if each else len(done)) if more > 0 else 0 for more, each in beyond)
        if crowded > 0:
            self.crowded = done.at[min(crowded, len(done)) - 1]
        self._count(needs, -len(done))
        return True

    def runs_since(self, launched: float, now: float) -> float:
        """Since when at the latest a task runs that was launched then [s since the epoch]: it may have had to wait for
        another one to end; `now` where it may still wait."""
        began, crowded_before = self.crowd
        if launched < began:  # those that came then wait for it
            return max(launched, crowded_before)
        return now if self._is_crowded() else max(launched, self.crowded)

    def _is_crowded(self) -> bool:
        """Whether there are more tasks in it than can run at once."""
        there = self.request.resources
        return (
            self.cores_busy > self.cores
            or (there.memory is not None and self.memory_busy > there.memory)
            or self.gpus_busy > there.gpus
        )

    def _count(self, needs: Resources, times: int) -> None:
        self.cores_busy += times * needs.cores
        if needs.memory:
            self.memory_busy += times * needs.memory
        if needs.gpus:
            self.gpus_busy += times * needs.gpus

    def idle_core_s(self, now: float) -> float:
        """Cores times the time that it held nothing before its first task [s]; 0 for a lease: its lender pays."""
        if (began := self.began) is None or self.lender:
            return 0.0
        return self.cores * max(0.0, (now if self.used is None else self.used) - began)

    def view(self, now: float, throttle: int = 1) -> AllocationView:
        """What a strategy sees of it, by the driver's clock; `throttle` is that of its array."""
        return AllocationView(
            key=self.key,
            stages=self.stages,
            submitted=self.submitted + self.clocks_apart_s,
            queued=self.handle is not None and self.dependable,
            started=self.began,
            ends=self.ends,
            leaving=self.leaving(now),
            busy=bool(self.running),
            resources=self.request.resources,
            walltime_s=self.request.walltime_s,
            predicted_wait_s=self.predicted_wait_s,
            soon_wait_s=self.soon_wait_s,
            after=self.after,
            array=self.request.array,
            throttle=throttle,
            parked=self.parked,
            amending=self.amending is not None,
            refused=self.refused,
            reason=self.reason,
            ages_since=self.ages_since,
        )


_NONE: Mapping[str, Held] = {}


class Pool:
    """All allocations of a run.

    Attributes
    ----------
    held
        Those that have not ended, by key, in order of asking.
    ever
        All there have been.
    throttles
        How many elements of each job array may run.
    idle_core_s
        What allocations that have got a task, or have ended, held nothing for before, cores times time [s].
    seconds, twins
        Those for which the same is yet to be asked for in another queue; keys of those for which it was.
    moved
        Those of which something has changed since the plan last emptied this, by key; ended ones, too.
    """

    def __init__(self, illegal: list[str] | None = None) -> None:
        self.held: dict[str, Held] = {}
        self.ever: dict[str, Held] = {}
        self.moved: dict[str, Held] = {}
        self.throttles: dict[str, int] = {}
        self.seconds: dict[str, Held] = {}
        self.twins: set[str] = set()
        self.lends = False  # its nodes may work for other runs
        self._meant: dict[str, dict[str, Held]] = {}
        self._asked = 0
        self.idle_core_s = 0.0
        self._illegal: list[str] = [] if illegal is None else illegal

    def on(self, event: Event) -> None:
        """Fold an event; events of allocations that are not (or no longer) held change nothing."""
        if isinstance(event, Submitting):
            self._submitting(event)
        elif isinstance(event, Leased):
            self._leased(event)
        elif held := self.held.get(getattr(event, "allocation", "")):
            self.moved[held.key] = held
            self._on_held(held, event)
            if (twin := self.held.get(held.twin)) is not None:
                self.moved[twin.key] = twin
            if held.started is not None or held.ending:
                self.seconds.pop(held.key, None)

    def meant_for(self, stage: str) -> Collection[Held]:
        """Those of a stage that have not ended, in order of asking."""
        return self._meant.get(stage, _NONE).values()

    def extend(self, stage: str, specs: Sequence[StageSpec], over: Callable[[str], bool]) -> None:
        """Allocations of a stage are also meant for those that it adds and that they can hold, instead of for those
        that are `over`."""
        for held in list(self.meant_for(stage)):
            there = held.request.resources
            more = [
                spec.name
                for spec in specs
                if spec.task.fits(there)
                and spec.resources.cores <= there.cores
                and spec.walltime_s <= held.request.walltime_s
                and spec.task.options == there.options
            ]
            if more and not held.ending:
                if len(held.stages) >= held.many:
                    for name in filter(over, held.stages):
                        self._meant[name].pop(held.key, None)
                    held.stages = tuple(name for name in held.stages if not over(name))
                    held.many = 2 * len(held.stages)
                held.stages += tuple(more)
                vars(held).pop("meant_for", None)
                self.moved[held.key] = held
                for name in more:
                    self._meant.setdefault(name, {})[held.key] = held

    def _add(self, held: Held) -> None:
        held.number, self._asked = self._asked, self._asked + 1
        self.held[held.key] = self.ever[held.key] = self.moved[held.key] = held
        for name in held.stages:
            self._meant.setdefault(name, {})[held.key] = held

    def is_spare(self, held: Held) -> bool:
        """Whether the same was asked for elsewhere, and that is used: it started first, or was asked for first."""
        other = self.held.get(held.twin)
        if other is None or other.ending:
            return False
        if (held.used is None) != (other.used is None):
            return held.used is None
        if (held.started is None) != (other.started is None):
            return held.started is None
        return held.used is None and held.instead

    def _remove(self, held: Held) -> None:
        self.seconds.pop(held.key, None)
        self.twins.discard(held.key)
        del self.held[held.key]
        for name in held.stages:
            self._meant[name].pop(held.key, None)

    def _submitting(self, event: Submitting) -> None:
        held = Held(
            event.request,
            event.stages,
            event.after,
            event.at,
            event.predicted_wait_s,
            event.soon_wait_s,
            event.context,
            why=event.why,
            second=event.second,
            twin=event.instead,
            instead=bool(event.instead),
            illegal=self._illegal,
        )
        self._add(held)
        if event.second is not None:
            self.seconds[held.key] = held
        if (first := self.seconds.pop(event.instead, None)) is not None:
            first.twin, self.moved[first.key] = held.key, first
            self.twins.add(first.key)
        if held.twin:
            self.twins.add(held.key)
        if event.request.array:
            self.throttles.setdefault(event.request.array, 1)

    def _leased(self, event: Leased) -> None:
        lease = Held(  # it started as soon as it was granted
            event.request,
            (),
            (),
            event.at,
            None,
            lender=event.lender,
            started=event.at,
            illegal=self._illegal,
            state=AllocationState.RUNNING,
            job=JobState.RUNNING,
        )
        self._add(lease)

    def _on_held(self, held: Held, event: Event) -> None:
        match event:
            case Submitted():
                held.handle, held.answered = event.handle, event.at
                held.move("Submitted", job=False)
            case Amending():
                held.amending = event
            case Amended():
                self._amended(held, event)
            case Queued():
                held.reason, held.ages_since = event.reason, event.ages_since
            case NodeJoined():
                held.nodes[event.node], held.hosts[event.node] = event.cores, None
                held.joined, held.bare = True, None
                if held.started is None:
                    held.move("NodeJoined")
                    held.started = event.at
                if held.idle_since is None and not held.running:
                    held.idle_since = event.at
            case CoresUnused():
                held.unused[event.node, event.stage] = event.cores, event.memory
            case NodeLost():
                held.nodes.pop(event.node, None)
                held.unused = {key: left for key, left in held.unused.items() if key[0] != event.node}
                self.is_bare(held, event.at)
            case AllocationStarted():
                held.move("AllocationStarted")
                held.started = event.started
                held.allocated = event.cores or held.allocated
                held.reported = held.reported if event.submitted is None else event.submitted
                held.ahead_s = held.clocks_apart_s
                held.hosts |= dict.fromkeys(event.nodes)
                held.confirmed = bool(event.nodes)
                self.is_bare(held, event.at)
            case Requeued():  # the executor reports nodes: new ones may have joined before this became known
                held.move("Requeued")
                held.stop(event.at)
                held.started, held.requeued, held.allocated, held.ahead_s = None, True, None, 0.0
                held.joined, held.bare = False, None
                held.hosts.clear()
                held.confirmed = False
            case Learned():
                held.taught = True
            case Released():
                held.move("Released", job=False)
                held.released, held.dismissed = event.at, event.reason
            case Cancelled():
                held.move("Cancelled", job=False)
                held.cancelled, held.dismissed = event.at, event.reason
            case Recalled():
                held.move("Recalled", job=False)
                held.recalled = True
            case JobEnded() | SubmitRefused() | LeaseEnded():
                self._end(held, event)

    def is_bare(self, held: Held, at: float, *, gone: bool = False) -> None:
        """Note if its job runs without a node from then on [s since the epoch], as where all are `gone`.

        In a pool of several runs its nodes may work for others.
        """
        if held.started is not None and held.bare is None and not self.lends and (gone or not held.nodes):
            held.bare = at

    def _end(self, held: Held, event: JobEnded | SubmitRefused | LeaseEnded) -> None:
        if isinstance(event, JobEnded):
            held.allocated, held.energy_j = event.cores or held.allocated, event.energy_j
        if held.used is None:
            self.idle_core_s += held.idle_core_s(event.at)
        what = type(event).__name__
        if isinstance(event, JobEnded):
            held.started = held.started if event.started is None else event.started
            held.end(what, f"{what}: {event.state.value}", event.at, event.reason)
        elif isinstance(event, LeaseEnded):
            held.end(what, f"{what} with a reason" if event.reason else what, event.at, event.reason)
        else:
            held.end(what, what, event.at, event.reason)
            if event.later:
                del self.ever[event.allocation]
        self._remove(held)

    def _amended(self, held: Held, event: Amended) -> None:
        """A change that was asked for has been made, or refused."""
        change, held.amending, held.refused = held.amending, None, event.refused
        if change is None or event.refused:
            return
        held.reason, held.ages_since = "", None  # to be asked anew
        held.request = change.changed(held.request)
        if change.after is not None:
            held.after, held.amended = change.after, True
        if change.parked is not None:
            held.parked, held.amended = change.parked, True
        if change.throttle is not None:
            self.throttles[held.request.array] = change.throttle
            self.moved |= {each.key: each for each in self.held.values() if each.request.array == held.request.array}

    def forget_nodes(self, now: float, keeps: bool) -> None:
        """A new driver took over: nodes join again; whether they still have what they ran, they say.

        Leases ended with the old one, at `now`, and so did what ran unless it `keeps` that.
        """
        self.moved |= self.held
        for held in list(self.held.values()):
            held.away = dict.fromkeys(held.nodes)
            held.nodes.clear()
            held.unused.clear()
            # Whether a change was made is unknown: making it again does no harm; what may be parked is let go.
            if held.amending is not None and held.amending.parked is not None:
                held.parked = held.amended = True
            held.amending = None
            if held.lender or not keeps:
                for task in list(held.running):
                    held.drop(task, now)
            held.unseen = dict.fromkeys(held.running)
            held.idle_since = None
            if held.lender:
                held.end("DriverStarted", "DriverStarted", now, "the driver was gone")
                self._remove(held)


@dataclass(frozen=True, slots=True)
class Full:
    """The batch system took no more jobs of the user, in its own words, so many `tries` in a row; when to ask `again`
    [s since the epoch], and for how many at a time (`room`). So many jobs had been `asked` for by then."""

    reason: str
    room: int
    tries: int
    again: float
    asked: int

    @staticmethod
    def after(before: Full | None, event: SubmitRefused, jobs: int, asked: int) -> Full:
        """What follows from a refusal of so many jobs together; of several that were sent together, the first counts.

        A job array may fit if it is shorter, and is asked for at once; one job is asked for again later.
        """
        if before is not None and before.asked == asked:
            return before
        tries = (0 if before is None else before.tries) + (jobs == 1)
        wait_s = min(AGAIN_MOST_S, AGAIN_LEAST_S * 2.0 ** (tries - 1)) if jobs == 1 else 0.0
        return Full(event.reason, max(1, jobs - max(1, jobs // 3)), tries, event.at + wait_s, asked)


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a job waited: times [s since the epoch] of submission, of the end of the last job that it depended on
    (minus infinity without one), and of its start; the wait it was planned with [s], and what was known then. `gated`
    says that something else than the queue held it back for a while."""

    request: JobRequest
    stage: str
    submitted: float
    freed: float
    started: float
    predicted_s: float | None
    context: Context | None = None
    gated: bool = False

    def lesson(self, *, dependents_age: bool) -> tuple[float, bool]:
        """How long the queue made it wait [s], and whether that is censored: it says nothing of the queue.

        Where dependent jobs do not age, what the job depended on has ended when its wait begins: it had been in no
        queue before. Where they do, its turn may have come, and passed, long before it was let go; and of those that
        start late after that, which are the ones that wait long, one would learn too long waits.
        """
        depended = self.freed > self.submitted
        since = self.freed if depended and not dependents_age else self.submitted
        return max(0.0, self.started - since), (depended and dependents_age) or self.gated


# ---------------------------------------------------------------- the run


class FoldedRun:
    """A run as far as its events tell.

    Attributes
    ----------
    start
        Its first event; None before that.
    stages
        Name -> how far it has come, in topological order.
    pool
        Its allocations.
    attempts
        Every attempt at a task.
    outcome, message, ended
        How the run ended, and when [s since the epoch].
    last
        The latest time of an event [s since the epoch].
    drivers
        How many drivers have had it.
    failed, failures
        How many attempts failed by their own fault; the first of them.
    cancelling
        Why it is to end, or "".
    on_hold
        Since when nothing new is to be submitted or launched [s since the epoch]; None when it may be.
    trouble
        What the batch system last failed with, if it does not answer; else "".
    asked
        Jobs asked for so far.
    goes_on
        Whether there are tasks with checkpoints.
    untaught
        Token -> a job's wait that no estimator has learned.
    full
        That the batch system takes no more jobs for now, or None.
    wanted
        How many more tasks of which size the executor was last asked to find room for.
    unexpanded
        Names of stages that are ready, but for the number of their tasks.
    unlooked
        Names of stages that are ready, but results of earlier runs have to be looked for first.
    unadded
        Tasks, as (stage, index), that are done and of which it is not known yet what they add to the run.
    delayed
        Names of stages of which tasks wait to be tried again.
    growing
        Names of stages a task of which had too little, so that their needs are to be raised.
    grown
        How often needs of stages were raised.
    widths
        How often widths of stages were chosen.
    launchable
        Stages with tasks to launch.
    changes
        How often something changed that a strategy looks at.
    touched
        Names of the stages of which something has changed since the plan last emptied this.
    illegal
        What happened although it could not; nothing of that should ever be there.
    """

    def __init__(self) -> None:
        self.start: RunStarted | None = None
        self.illegal: list[str] = []
        self.stages: dict[str, StageProgress] = {}
        self.pool = Pool(self.illegal)
        self.attempts = AttemptLog()
        self.outcome: RunState = RunState.RUNNING
        self.message = ""
        self.ended: float | None = None
        self.last = 0.0
        self.drivers = 0
        self.failed = 0
        self.failures: list[TaskFailed] = []
        self.cancelling = ""
        self.on_hold: float | None = None
        self.quoted: Quoted | None = None
        self.trouble = ""
        self.asked = 0
        self.goes_on = False
        self.untaught: dict[str, Wait] = {}
        self.full: Full | None = None
        self.wanted = NOTHING
        self.changes = 0
        self.touched: dict[str, None] = {}
        self.unexpanded: dict[str, None] = {}
        self.unlooked: dict[str, None] = {}
        self.unadded: dict[tuple[str, int], None] = {}
        self.delayed: dict[str, None] = {}
        self.growing: dict[str, None] = {}
        self.grown = 0
        self.widths = 0
        self.launchable = Launchable()
        self._order: list[StageProgress] = []  # topological
        self._numbered: dict[int, StageProgress] = {}
        self._stirred: dict[str, None] = {}
        self._ends: dict[str, JobEnded] = {}
        self._borrowed = False
        self._tails = 0

    @property
    def run(self) -> str:
        """Its name."""
        return "" if self.start is None else self.start.run

    @property
    def in_order(self) -> Sequence[StageProgress]:
        """Its stages, each after those that it waits for."""
        return self._order

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left; leases end by themselves."""
        return self.outcome is not RunState.RUNNING and all(held.lender for held in self.pool.held.values())

    def room(self, now: float) -> float:
        """How many more jobs may be submitted now; infinite where no limit is known."""
        most = None if self.start is None else self.start.most_jobs
        if most is None and self.full is None:
            return math.inf
        jobs = [held for held in self.pool.held.values() if not held.lender]
        left = math.inf if most is None else most - len(jobs)
        if self.full is not None:
            unanswered = sum(held.handle is None for held in jobs)
            left = min(left, self.full.room - unanswered if now >= self.full.again else 0)
        return max(0, left)

    def on(self, event: Event | TasksDone) -> None:
        """Fold one event into the state, or several that a log keeps as one."""
        if isinstance(event, TaskDone):
            self._task_done(event)
            return
        if isinstance(event, TasksDone):
            if not self._tasks_done(event):
                for one in event.events():
                    self._task_done(one)
            return
        if isinstance(event, TasksLaunched) and not self._tasks_launched(event):
            return
        if isinstance(event, CoresUnused):  # no strategy looks at it
            self.pool.on(event)
            self.last = max(self.last, event.at)
            return
        self._fold(event)
        self.pool.on(event)
        if isinstance(event, AllocationStarted) and (held := self.pool.held.get(event.allocation)):
            self._note_wait(held)
        self.changes += 1
        if event.at > self.last:
            self.last = event.at
        self._settle(event.at)

    def _fold(self, event: Event) -> None:
        """What changes outside the pool; the pool is as it was before the event."""
        match event:
            case TaskFailed():
                self._task_failed(event)
            case TaskPaused():
                self._task_paused(event)
            case TaskCancelled():
                self.stages[event.stage].cancel(event.index)
            case JobEnded() | SubmitRefused():
                self._job_ended(event)
            case LeaseEnded():
                self._lease_ended(event)
            case Leased():
                self._borrowed = True
            case Wanted():
                self.wanted = event.task, event.count
            case RunStarted():
                self._run_started(event)
            case DriverStarted():
                self._driver_started(event)
            case TasksKept():
                self._tasks_kept(event)
            case ResultsLost():
                self._results_lost(event)
            case CallsAdded():
                for spec in event.stages:
                    self._insert(spec, calls=True)
            case StageExpanded():
                self.stages[event.stage].expand(event.width)
            case StageLookedUp():
                self.stages[event.stage].reuse(event)
                if self.stages[event.stage].spec.expands:
                    for start, stop in (each for _, ranges in event.reused for each in ranges):
                        for index in range(start, stop):
                            self._is_unadded(self.stages[event.stage], index)
            case StagesAdded():
                self._stages_added(event)
            case RetriesDue():
                self._retries_due(event)
            case StageGrown():
                self._stage_grown(event)
            case WidthChosen():
                self._width_chosen(event)
            case StageFailed():
                self.stages[event.stage].fail(event.reason, event.at)
            case Predicted():
                stage = self.stages[event.stage]
                self.touched[event.stage] = None
                stage.predicted_wait_s, stage.soon_wait_s, stage.predicted_at = event.wait_s, event.soon_s, event.at
            case Submitting():
                self._submitting(event)
            case Submitted():
                if self.full is not None:  # there was room for one: there may be for more
                    self.full = replace(self.full, room=self.full.room + 1, tries=0)
            case Cancelled(displaced=True):
                if held := self.pool.held.get(event.allocation):
                    self._displace(held)
            case CancelAsked():
                self.cancelling = event.reason
            case HoldAsked():
                self.on_hold = (event.at if self.on_hold is None else self.on_hold) if event.held else None
            case Trouble():
                self.trouble = event.error
            case Quoted():
                self.quoted = event
            case Learned():
                self.untaught.pop(event.allocation, None)
            case RunEnded():
                self._run_ended(event)

    def _run_started(self, event: RunStarted) -> None:
        if self.start is None:
            self.start = event
            self.pool.lends = ":" in event.pool
            for spec in event.stages:
                self._insert(spec, event.strategy == CALLS)

    def _insert(self, spec: StageSpec, calls: bool = False, before: StageProgress | None = None) -> None:
        """A stage of the run, in topological order `before` another one."""
        if before is not None and before.number - self._number_before(before) < 2:
            self._order.sort(key=_number_of)
            for place, stage in enumerate(self._order, 1):
                stage.number = place << _APART
            self._numbered = {stage.number: stage for stage in self._order}
            self.launchable.renumber()
        if before is None:
            number = (self._order[-1].number if self._order else 0) + (1 << _APART)
        else:
            least = self._number_before(before)
            number = least + max(1, (before.number - least) >> 4)
        self.goes_on |= spec.checkpoint
        stage = StageProgress(spec, spec.width, calls, self.illegal, self._stirred, number)
        stage.before = len(spec.predecessors)
        for name in spec.predecessors:
            self.stages[name].followers.append(spec.name)
        self.stages[spec.name] = self._numbered[number] = stage
        self._order.insert(bisect_left(self._order, number, key=_number_of), stage)

    def _number_before(self, stage: StageProgress) -> int:
        place = bisect_left(self._order, stage.number, key=_number_of)
        return self._order[place - 1].number if place else 0

    def _is_unadded(self, stage: StageProgress, index: int) -> None:
        """Have it found out what a task adds to the run that is done, if that is not known."""
        if stage.is_done(index) and index not in stage.added:
            self.unadded[stage.spec.name, index] = None

    def _stages_added(self, event: StagesAdded) -> None:
        """Whatever waits for the stage waits for those of the added ones, too, of which its result is made."""
        stage = self.stages[event.stage]
        self.unadded.pop((event.stage, event.index), None)
        stage.stirred[event.stage] = None
        if event.refused:
            stage.refuse(event.index, event.refused, event.at)
            return
        stage.added[event.index] = event
        if not event.specs:
            return
        followers = [self.stages[name] for name in stage.followers]
        before = min(followers, key=_number_of, default=None)
        for spec in event.specs:
            self._insert(spec, before=before)
            self._stirred[spec.name] = None
            self.stages[spec.name].origin = event.stage
            if stage.spec.is_followed_by(spec):
                self.stages[spec.name].chain = stage.chain or event.stage
        for follower in followers:
            self._await(follower, event)
        if self.start is not None and self.start.pool != "per-stage":
            self.pool.extend(event.stage, event.specs, lambda name: self.stages[name].state.final)

    def _await(self, follower: StageProgress, event: StagesAdded) -> None:
        """A stage that waits for one that has added others waits for these."""
        spec, name = follower.spec, event.stage
        new = [need for need in event.needs if need not in spec.predecessors]
        if not new:
            return
        changes: dict[str, Any] = {"predecessors": (*spec.predecessors, *new)}
        tasks = (event.index,) if name in spec.alike else dict(spec.parts).get(name)
        if tasks is not None:
            changes["parts"] = (*spec.parts, *((need, tasks) for need in new))
        elif name in spec.lists and event.alike:
            changes["alike"] = (*spec.alike, *new)
        follower.spec = replace(spec, **changes)
        follower.before += len(new)
        for need in new:
            self.stages[need].followers.append(spec.name)
        follower.stirred[spec.name] = None

    def _forget(self, stage: StageProgress, follower: StageProgress) -> None:
        """A stage need not be waited for any more, but for those that it has added."""
        spec, name = follower.spec, stage.spec.name
        stage.followers.remove(spec.name)
        others = tuple(other for other in spec.predecessors if other != name)
        follower.spec = replace(spec, predecessors=others)
        self.touched[spec.name] = None

    def missed(self, event: Event) -> ExpectationMissed | None:
        """What an event, which was not folded yet, says of what was expected, where something else came."""
        if isinstance(event, StageExpanded):
            expect, name, came = self.stages[event.stage].spec.expect, event.stage, event.width
        elif isinstance(event, StagesAdded) and not event.refused:
            stage = self.stages[event.stage]
            if stage.spec.expect is None or any(map(stage.spec.is_followed_by, event.specs)):
                return None
            name = stage.chain or event.stage
            expect = self.stages[name].spec.expect
            came = (expect or 0) - stage.spec.expect
        else:
            return None
        return None if expect is None or expect == came else ExpectationMissed(event.at, name, expect, came)

    def came(self) -> Iterator[tuple[str, int]]:
        """Of stages of which something was expected that only the run could tell, what came."""
        for name, stage in self.stages.items():
            spec = stage.spec
            if spec.expect is None or stage.state is not StageState.DONE:
                continue
            if not spec.expands and spec.width is None and stage.width is not None:
                yield name, stage.width
            if spec.expands and not any(
                map(spec.is_followed_by, (new for e in stage.added.values() for new in e.specs))
            ):
                first = stage.chain or name
                yield first, (self.stages[first].spec.expect or 0) - spec.expect

    def made_of(self, names: Iterable[str]) -> dict[str, None]:
        """Stages of whose results those of these are made: themselves, and of those that they added."""
        found = dict.fromkeys(names)
        left = [*found]
        while left:
            for event in self.stages[left.pop()].added.values():
                new = [name for name in event.needs if name not in found]
                found |= dict.fromkeys(new)
                left += new
        return found

    def _depth(self, name: str) -> int:
        """By how many others, one after the other, a stage was added."""
        depth = 0
        while name := self.stages[name].origin:
            depth += 1
        return depth

    def _withdraw(self, stage: StageProgress, event: StagesAdded, now: float) -> None:
        """What a task has added is not part of the run any more: its result is lost, and it runs again."""
        gone, left = dict[str, None](), [spec.name for spec in event.specs]
        while left:
            gone[name := left.pop()] = None
            left += [spec.name for each in self.stages[name].added.values() for spec in each.specs]
        for name in gone:
            added = self.stages[name]
            waiting = {follower.spec.name for follower in self._let_on(added)}
            for follower in [self.stages[other] for other in added.followers if other not in gone]:
                if follower.spec.name not in waiting:
                    follower.before -= 1
                self._forget(added, follower)
                if stage.spec.name not in follower.spec.predecessors:
                    before = (*follower.spec.predecessors, stage.spec.name)
                    follower.spec = replace(follower.spec, predecessors=before)
                    stage.followers.append(follower.spec.name)
                    follower.before += 1
            added.orphaned = added.followed = True
            if added.state is not StageState.SKIPPED:
                added.close("what added it is lost", now)
            for names in (self.unexpanded, self.unlooked, self.delayed, self.growing):
                names.pop(name, None)
        self.unadded = {task: None for task in self.unadded if task[0] not in gone}

    def _driver_started(self, event: DriverStarted) -> None:
        """What runs goes on until its nodes say otherwise, but not in a lease. Stages that failed get another go."""
        self.drivers += 1
        for held in self.pool.held.values():
            held.bare = None
            self.pool.is_bare(held, event.at, gone=True)
            for stage, index in held.running if held.lender or not event.keeps else ():
                self.stages[stage].lose(index)
                self.stages[stage].leave(self.last)  # the driver before was last seen then
        self.pool.forget_nodes(self.last, event.keeps)
        self.wanted, self.full = NOTHING, None
        self.outcome, self.message, self.ended, self.cancelling, self.trouble = RunState.RUNNING, "", None, "", ""
        for progress in self.stages.values():
            before = [] if progress.state is StageState.DONE else self._let_on(progress)
            progress.reopen()
            for follower in before:
                follower.before += 1
        self.delayed.clear()
        self.growing.clear()
        for progress in self.stages.values():
            if progress.before and progress.state in (StageState.READY, StageState.RUNNING):
                progress.move("results lost")

    def _let_on(self, stage: StageProgress) -> list[StageProgress]:
        """Followers of a stage that was over which do not wait for it any more."""
        names = (name for name in stage.followers if name not in stage.held_back) if stage.followed else ()
        return [*map(self.stages.__getitem__, names)]

    def failure(self, name: str, index: int) -> Failed | None:
        """What stands for the result of a task that is over and not done, or None where it is done, or may yet be."""
        stage = self.stages[name]
        if stage.is_done(index) or not (stage.state.final or stage.undone):
            return None
        if (failed := stage.failed.get(index)) is not None:
            return failed
        if stage.state is StageState.FAILED and stage.tasks[index : index + 1] != bytes([TaskState.SKIPPED]):
            return Failed(name, index, stage.error)
        if stage.state is StageState.SKIPPED or stage.tasks[index : index + 1] == bytes([TaskState.SKIPPED]):
            cause = self._cause(stage, index)
            return Failed(name, index, f"skipped, as {cause}" if cause else "skipped: a stage before it failed")
        return None

    def _cause(self, stage: StageProgress, index: int) -> str:
        """Which task that failed kept a task from running, and how that failed, in words."""
        seen = {stage.spec.name}
        while True:
            parts = dict(stage.spec.parts)
            for name in stage.spec.predecessors:
                before = self.stages[name]
                if before.state is StageState.DONE or name in seen or index not in parts.get(name, (index,)):
                    continue
                place = index if name in stage.spec.alike else next(before.not_done, 0)
                if name in stage.spec.alike and before.is_done(index):
                    continue
                if (failed := before.failed.get(place)) is not None:
                    return f"task {place} of {name} failed: {failed.message}"
                if before.state is StageState.FAILED:
                    return f"stage {name} failed: {before.error}"
                stage, index = before, place
                seen.add(name)
                break
            else:
                return ""

    def _sift(self, stage: StageProgress) -> None:
        """Skip tasks of a stage that need what has failed; the others may run."""
        stage.sifted = True
        if stage.spec.accepts_failed or stage.open:
            return
        parts = dict(stage.spec.parts)
        for name in stage.spec.predecessors:
            before = self.stages[name]
            if before.state is not StageState.DONE:
                for index in before.not_done if name in stage.spec.alike else parts.get(name, ()):
                    if index < len(stage.tasks) and stage.tasks[index] == TaskState.WAITING:
                        stage.skip(index)

    def spoiled(self) -> tuple[tuple[str, int], ...]:
        """Tasks, as (stage, index), that are done with what stood for results which may yet come, and what follows."""
        found: dict[str, dict[int, None]] = {}
        for stage in self._order:
            name = stage.spec.name
            if not stage.done:
                continue
            parts, tasks = dict(stage.spec.parts), dict[int, None]()
            for other in stage.spec.predecessors:
                before, gone = self.stages[other], found.get(other, {})
                if stage.spec.accepts_failed and before.state is not StageState.DONE:
                    gone = gone | dict.fromkeys(before.not_done)
                    whole = before.width is None
                else:
                    whole = False
                if gone or whole:
                    needing = parts.get(other, gone if other in stage.spec.alike else range(len(stage.tasks)))
                    tasks |= {index: None for index in needing if stage.is_done(index)}
            if stage.origin in found:
                added = self.stages[stage.origin].added.items()
                if any(
                    name in (spec.name for spec in event.specs)
                    for index, event in added
                    if index in found[stage.origin]
                ):
                    tasks = {index: None for index in range(len(stage.tasks)) if stage.is_done(index)}
            if tasks:
                found[name] = tasks
        return tuple((name, index) for name, tasks in found.items() for index in tasks)

    def _retries_due(self, event: RetriesDue) -> None:
        stage = self.stages[event.stage]
        for index in event.tasks:
            if stage.later.pop(index, None) is not None:
                stage.again[index] = None
        stage.stirred[event.stage] = None
        if not stage.later:
            self.delayed.pop(event.stage, None)

    def _stage_grown(self, event: StageGrown) -> None:
        """A stage needs more from now on, also for tasks of it that have not begun."""
        stage = self.stages[event.stage]
        stage.outgrown.append((event.at, stage.spec))
        self.growing.pop(event.stage, None)
        self.launchable.drop(stage)
        stage.spec = replace(
            stage.spec,
            resources=event.resources,
            task=event.task,
            walltime_s=event.walltime_s,
            timeout_s=event.timeout_s,
        )
        stage.lacks, stage.grown, stage.bounded, stage.barren = {}, True, event.bounded, 0
        self.grown += 1
        stage.stirred[event.stage] = None

    def _width_chosen(self, event: WidthChosen) -> None:
        """The next job of a stage is of another size, or of the same: what was predicted of the last one is void."""
        stage, width = self.stages[event.stage], event.width
        if stage.launched:
            stage.outgrown.append((event.at, stage.spec))
        self.launchable.drop(stage)
        stage.spec = replace(
            stage.spec,
            resources=width.resources,
            task=width.task,
            walltime_s=width.walltime_s,
            run_time_s=width.run_time_s,
        )
        stage.predicted_wait_s = stage.soon_wait_s = stage.predicted_at = None
        stage.width_chosen, stage.why_width = event.at, event.why
        self.widths += 1
        stage.stirred[event.stage] = None

    def _lack(self, stage: StageProgress, what: str, had: Resources | None = None) -> None:
        """A task of a stage had too little of something that can be raised, unless it has been since it began."""
        spec = stage.spec
        given = {"memory": spec.resources.memory, "time": spec.timeout_s, "walltime": spec.walltime_s}.get(what)
        if what == "memory" and had is not None and (had.memory or 0) < (spec.task.memory or 0):
            return
        growing = spec.growth > 1 or (spec.learned is not None and spec.learned.covers(what))
        if given is not None and growing and not stage.open:
            stage.lacks[what] = None
            self.growing[stage.spec.name] = None

    def _results_lost(self, event: ResultsLost) -> None:
        """The tasks run again, and what has begun with their results waits for them."""
        self.outcome, self.message, self.ended = RunState.RUNNING, "", None
        lost = {name: self._let_on(self.stages[name]) for name, _ in event.tasks}
        added = [
            (self.stages[name], was)
            for name, index in sorted(event.tasks, key=lambda task: self._depth(task[0]), reverse=True)
            if (was := self.stages[name].added.get(index)) is not None and not self.stages[name].orphaned
        ]
        for name, index in event.tasks:
            self.stages[name].revoke(index)
            self.unadded.pop((name, index), None)
        for name, followers in lost.items():
            stage = self.stages[name]
            if stage.followed and not stage.state.final:
                stage.followed = False
                for follower in followers:
                    follower.before += 1
        for stage, was in added:  # those that others of them have added first, while that is known
            self._withdraw(stage, was, event.at)
        for stage in self.stages.values():
            lacking = not lost.keys().isdisjoint(stage.spec.predecessors)
            if lacking and stage.state in (StageState.READY, StageState.RUNNING):
                stage.move("results lost")

    def _run_ended(self, event: RunEnded) -> None:
        self.outcome, self.message, self.ended = event.state, event.message, event.at
        if event.state is RunState.SUCCEEDED:
            for stage in self.stages.values():
                if stage.open and not stage.state.final:
                    stage.close("all tasks done", event.at)

    def _submitting(self, event: Submitting) -> None:
        self.asked += 1
        for name in event.stages:
            stage = self.stages[name]
            self.touched[name] = None
            stage.attempts += not event.instead
            stage.predicted_wait_s = stage.soon_wait_s = None

    def _tasks_launched(self, event: TasksLaunched) -> bool:
        """Whether it is the first time for the stage: later ones change nothing that others look at."""
        if event.at > self.last:
            self.last = event.at
        stage, held = self.stages[event.stage], self.pool.held.get(event.allocation)
        if held is None or held.ending:
            return False  # what is given to an allocation that is on its way out never runs
        first = stage.state is not StageState.RUNNING
        self.touched[event.stage], self.pool.moved[held.key] = None, held
        if held.used is None:
            self.pool.idle_core_s += held.idle_core_s(event.at)
        for start, stop in event.ranges:
            stage.launch(start, stop, event.at)
            held.take(event.stage, start, stop, stage.spec.task, event.at, event.host)
            if event.host:
                stage.hosts[event.host] = stage.hosts.get(event.host, 0) + stop - start
        return first

    def _tasks_kept(self, event: TasksKept) -> None:
        """What the nodes of an allocation do not have any more waits again."""
        if (held := self.pool.held.get(event.allocation)) is None:
            return
        kept = set(event.tasks)
        for task in [task for task in held.unseen if task not in kept]:
            held.drop(task, event.at)
            self.stages[task[0]].lose(task[1])
            self.stages[task[0]].leave(event.at)
        held.unseen.clear()

    def _task_done(self, event: TaskDone) -> None:
        stage, index, now = self.stages[event.stage], event.index, event.at
        self.attempts.add(event, 0)
        if now > self.last:
            self.last = now
        if (held := self.pool.held.get(event.allocation)) is not None:
            if held.drop((event.stage, index), now, event.node) is not None:
                stage.leave(now)
            held.useful = True
            if stage.open and event.stage not in held.meant_for:  # calls of another size
                self.stages[held.stages[0]].barren = 0
            self.pool.moved[event.allocation] = held
        self.touched[event.stage] = None
        stage.took(event)
        stage.finish(index, now - event.started, now)
        if stage.spec.expands:
            self._is_unadded(stage, index)
        if stage.done >= stage.news_at or stage.state in _FINAL:
            stage.news_at = stage.done + max(1, (stage.width or 0) // _DONE_STEPS)
            self.changes += 1
            self._settle(now)

    def _tasks_done(self, event: TasksDone) -> bool:
        """Fold tasks together, if nothing but their number comes of it; else nothing is done. Whether it was."""
        stage, held = self.stages[event.stage], self.pool.held.get(event.allocation)
        if (
            held is None
            or stage.state is not StageState.RUNNING
            or stage.again
            or stage.errors
            or stage.paused
            or stage.open
            or stage.spec.expands
            or stage.width is None
            or stage.grown  # so that what some of them hold may not be what it needs now
            or stage.done + len(event) >= min(stage.news_at, stage.width - stage.undone)
            or len(event) >= stage.running
            or max(event.index) >= len(stage.tasks)
            or any(map(_NOT_RUNNING.__getitem__, map(stage.tasks.__getitem__, event.index)))
            or not held.drop_all(event, stage.spec.task)
        ):
            return False
        self.attempts.add_done(event)
        stage.finish_running(event)
        held.useful = True
        self.last = max(self.last, *event.at)
        return True

    def _task_failed(self, event: TaskFailed) -> None:
        stage, index, task = self.stages[event.stage], event.index, (event.stage, event.index)
        self.attempts.add(event, TaskOutcome.LOST if event.infrastructure else TaskOutcome.FAILED)
        stage.took(event)
        if not event.infrastructure:
            self.failed += 1
            if self.failed <= FAILURES_KEPT:
                self.failures.append(event)
        if not stage.is_done(index):
            stage.errors[index] = event.error
        held = self.pool.held.get(event.allocation)
        if held is None or (launched := held.running.get(task)) is None:
            return  # it counts as lost already, and waits or runs again
        began = held.runs_since(launched[1], event.at)
        guest = task in held.guests
        held.drop(task, event.at, event.node)
        stage.leave(event.at)
        if event.infrastructure:
            self._lose(stage, index, event.error, event.at - began)
            if guest:
                stage.ousted |= event.exit is not None
            elif (
                held.ends is None
                or event.at < held.ends - UNRESPONSIVE_S
                or not self._outlived(stage, index, event.at - began, event.at)
            ):
                held.lost[task] = began, event.at
            return
        held.useful = True  # it was the task that failed, not the allocation
        if stage.open:
            stage.give_up(index)
            return
        stage.lose(index)
        self._blame(stage, index, f"task {index} on node {event.node}: {event.error}", event.at, event, launched[0])

    def _task_paused(self, event: TaskPaused) -> None:
        """A task waits again, as if it had not ended, unless it gets on by nothing."""
        stage, index = self.stages[event.stage], event.index
        held = self.pool.held.get(event.allocation)
        if held is None or held.drop((event.stage, index), event.at, event.node) is None:
            return  # it waits or runs again already
        self.attempts.add(event, TaskOutcome.PAUSED)
        stage.leave(event.at)
        stage.lose(index)
        ran_s, paused = max(0.0, event.at - event.started), stage.paused.setdefault(index, PausedTask())
        stage.pauses += 1
        paused.ran_s += ran_s
        if event.saved != paused.saved:
            paused.saved, paused.stalled_s, paused.stalls = event.saved, 0.0, 0
            held.useful, stage.barren = True, 0
            return
        if event.lost and (held.ends is None or event.at < held.ends - UNRESPONSIVE_S):
            return  # it did not have the time that it should have had
        paused.stalled_s += ran_s
        paused.stalls += 1
        if paused.stalled_s >= STALLED_SHARE * stage.spec.walltime_s or paused.stalls >= STALLED_MOST:
            held.useful = True  # it was the task, not the allocation
            ran, had = brief(paused.stalled_s), "nothing" if not paused.saved else "nothing new"
            paused.stalled_s, paused.stalls = 0.0, 0
            reason = f"ran for {ran} and saved {had}, so it would never end: save more often, or raise walltime="
            self._blame(stage, index, f"task {index} on node {event.node}: it {reason}", event.at)

    def _lose(self, stage: StageProgress, index: int, reason: str, ran_s: float) -> None:
        """A task ended with its node: it runs again, but a call not if that would end in the same way."""
        if stage.open:
            stage.failures[index] = losses = stage.failures.get(index, 0) + 1
            if ran_s >= _NEARLY_ALL * stage.spec.walltime_s:
                reason = f"it ran for {brief(ran_s)}, and reached the wall time: raise walltime="
                stage.give_up(index, reason)
            elif losses > LOSSES_MOST:
                stage.give_up(index, f"it was lost {losses} times with its node; the last time: {reason}")
        stage.lose(index)

    def _blame(
        self,
        stage: StageProgress,
        index: int,
        reason: str,
        now: float,
        event: TaskFailed | None = None,
        had: Resources | None = None,
    ) -> None:
        """A task failed by its own fault, a reported one or by outliving its allocation: it is tried again, or it has
        failed for good when it has no retries left, and its stage with it unless that continues. `had` is what was
        asked for it."""
        stage.failures[index] = failures = stage.failures.get(index, 0) + 1
        if stage.tasks[index] != TaskState.WAITING:
            return
        lacks, learned = "walltime" if event is None else event.cause, stage.spec.learned
        raised = learned is not None and learned.covers(lacks) and not stage.bounded
        if failures <= stage.spec.retries + RAISED_MOST * raised:
            self._lack(stage, lacks, had)
            if stage.spec.retry_delay_s:
                stage.again.pop(index, None)
                delay_s = min(DELAY_MOST_S, stage.spec.retry_delay_s * 2.0 ** min(failures - 1, 64))
                stage.later[index] = now + delay_s
                self.delayed[stage.spec.name] = None
            return
        details, failed = "", Failed(stage.spec.name, index, reason.partition(": ")[2] or reason, failures)
        if event is not None:
            self._tails += 1
            details = _last_words(event)
            failed = replace(
                failed,
                message=event.error,
                node=event.node,
                exit=event.exit,
                tail=details if self._tails <= TAILS_KEPT else "",
                peak_memory=event.peak,
            )
        if stage.spec.continues and not stage.open:
            stage.fail_task(failed, now)
        else:
            stage.failed.setdefault(index, failed)
            stage.fail(reason, now, details)

    def _lease_ended(self, event: LeaseEnded) -> None:
        if held := self.pool.held.get(event.allocation):
            for name, index in held.running:
                self.stages[name].lose(index)
                self.stages[name].leave(event.at)

    def _job_ended(self, event: JobEnded | SubmitRefused) -> None:
        held = self.pool.held.get(event.allocation)
        if held is None:
            return
        if isinstance(event, SubmitRefused) and event.later:
            self._is_full(held, event)
            return
        if self.full is not None and held.handle is not None:
            self.full = replace(self.full, again=min(self.full.again, event.at))  # it has made room
        what = _how_ended(held, event)
        for (name, index), (_, launched) in held.running.items():
            self.stages[name].leave(event.at)
            began = held.runs_since(launched, event.at)
            if (name, index) in held.guests:  # it had what others left it, which may be no time at all
                self.stages[name].ousted = True
            else:
                held.lost[name, index] = began, event.at
            self._lose(self.stages[name], index, what, event.at - began)
        held.running, held.guests = {}, {}
        if isinstance(event, SubmitRefused) and (held.request.array or held.request.begin is not None):
            self._displace(held)  # it was the way to hold its place that the site refused, for all that is known
            return
        if isinstance(event, JobEnded):
            self._ends[event.allocation] = event
            if event.state is JobState.TIMEOUT:
                self._blame_longest(held, event.at)
            elif event.state is JobState.OUT_OF_MEMORY:
                for name, _ in held.lost:
                    self._lack(self.stages[name], "memory")
        stages = [self.stages[name] for name in held.stages]
        drained = held.released is not None and held.drains is not None and held.released >= held.drains
        if any(stage.open for stage in stages):
            of_use = held.useful or held.ending or bool(held.nodes)
        else:
            dismissed = held.ending and not drained and not held.deserted
            taken = isinstance(event, JobEnded) and event.state is JobState.PREEMPTED  # which says nothing of the stage
            of_use = held.useful or dismissed or taken or self._went_with_another(held, event)
            of_use |= self._was_replaced(held, event)
            of_use |= (twin := self.pool.held.get(held.twin)) is not None and not twin.ending
        withdrawn = _is_cancelled(event) and not held.ending and not self._went_with_another(held, event)
        if of_use and not withdrawn:
            return
        # Stages further on are skipped with the one that fails, unless the job was theirs alone.
        started = [stage for stage in stages if stage.state is not StageState.WAITING]
        for stage in started or (() if drained else stages):
            if withdrawn:
                self._count_withdrawn(stage, event, what)
            else:
                self._count_barren(stage, held, event, what)

    def _is_full(self, held: Held, event: SubmitRefused) -> None:
        """A job was not taken for lack of room: as if it had never been asked for."""
        array = held.request.array
        alike = [item for item in self.pool.held.values() if array and item.request.array == array and not item.handle]
        self.full = Full.after(self.full, event, max(1, len(alike)), self.asked)
        for name in held.stages:
            self.touched[name] = None
            self.stages[name].attempts -= not held.instead

    def _count_withdrawn(self, stage: StageProgress, event: JobEnded | SubmitRefused, what: str) -> None:
        """Somebody else cancelled an allocation: ask again, but not for ever."""
        stage.withdrawn += 1
        if stage.withdrawn >= CANCELLED_MOST:
            stage.fail(f"{CANCELLED_MOST} of its jobs were cancelled, not by the run; the last: {what}", event.at)

    def _was_replaced(self, held: Held, event: JobEnded | SubmitRefused) -> bool:
        """Whether a job had nothing to do to its end in a run that borrows: its tasks ran in leases."""
        timeout = isinstance(event, JobEnded) and event.state is JobState.TIMEOUT
        return timeout and held.used is None and self._borrowed

    def _displace(self, held: Held) -> None:
        """A job has lost its place in the queue, or has got none."""
        for name in held.stages:
            self.touched[name] = None
            self.stages[name].displaced += 1

    def _blame_longest(self, held: Held, now: float) -> None:
        """Tasks that had a whole wall time, and were not done in it, would not be the next time either."""
        for (name, index), (began, lost) in held.lost.items():
            if lost >= now - UNRESPONSIVE_S:  # not with a node that was lost before
                self._outlived(self.stages[name], index, lost - began, now)

    def _outlived(self, stage: StageProgress, index: int, ran_s: float, now: float) -> bool:
        """Blame a task that ran up to the end of its allocation, if it had nearly a whole wall time; whether it had."""
        ran = not stage.open and ran_s >= _NEARLY_ALL * stage.spec.walltime_s and not stage.is_done(index)
        late = ran and ran_s >= _NEARLY_ALL * stage.longest_wall_s
        if ran and not late:
            stage.short, stage.width_chosen = True, None  # it is no faster on so many cores as was expected
        if late:
            reason = f"ran for {brief(ran_s)} and reached the wall time: raise walltime="
            self._blame(stage, index, f"task {index} {reason}", now)
        return late

    def _went_with_another(self, held: Held, event: JobEnded | SubmitRefused) -> bool:
        """Whether a job is gone because of one that it waited for: no fault of its own stage.

        When all is well with the others as far as is known, no more jobs are made to wait for them.
        """
        refused = isinstance(event, SubmitRefused)
        if not held.after or held.started is not None or not (refused or _is_cancelled(event)):
            return False
        ends = [end.state if (end := self._ends.get(key)) else None for key in held.after]
        if all(state is JobState.COMPLETED for state in ends):
            return refused  # the other may have ended, and been forgotten, on the way
        if all(state in (None, JobState.COMPLETED) for state in ends):
            for key in held.after:
                if (other := self.pool.held.get(key)) is not None:
                    other.dependable = False
                    self.pool.moved[key] = other
        return True

    def _count_barren(self, stage: StageProgress, held: Held, event: JobEnded | SubmitRefused, what: str) -> None:
        """An allocation ended by itself before it was of use: ask again, but not for ever."""
        if isinstance(event, JobEnded) and event.state is JobState.LOST and held.handle is None:
            return  # the driver died before it was submitted
        stage.barren += 1
        if isinstance(event, SubmitRefused):
            stage.fail(what, event.at)
        elif stage.barren >= BARREN_MOST:
            stage.fail(
                f"{BARREN_MOST} allocations in a row ended before they finished a task; the last: {what}", event.at
            )

    def _settle(self, now: float) -> None:
        """Follow the order of the stages: ready, empty and done, skipped. What has not changed is not looked at."""
        todo = [self.stages[name].number for name in self._stirred]
        heapq.heapify(todo)
        while todo:
            stage = self._numbered[heapq.heappop(todo)]
            if stage.state is StageState.WAITING and not stage.before:
                if stage.ready is None:
                    ends = [self.stages[name].ended for name in stage.spec.predecessors]
                    stage.ready = max((end for end in ends if end is not None), default=now)
                stage.move("predecessors done")
                if stage.launched:
                    stage.move("tasks launched")
            self.unexpanded.pop(stage.spec.name, None)
            self.unlooked.pop(stage.spec.name, None)
            if stage.state in (StageState.READY, StageState.RUNNING):
                if not stage.sifted and stage.width is not None:
                    self._sift(stage)
                if stage.width is not None and stage.is_complete:
                    stage.complete(now)
                elif stage.width is None:
                    self.unexpanded[stage.spec.name] = None
                elif stage.spec.reuse and stage.looked < stage.width:
                    self.unlooked[stage.spec.name] = None
                else:
                    self.launchable.add(stage)
            if stage.state.final and not stage.followed:
                stage.followed, held_back = True, list[str]()
                if stage.running:  # what runs it may not be needed any more
                    self.pool.moved |= self.pool.held
                for follower in map(self.stages.__getitem__, stage.followers):
                    if _lets_on(stage, follower):
                        follower.before -= 1
                    else:
                        held_back.append(follower.spec.name)
                        if follower.state is StageState.WAITING:
                            follower.tolerated = follower.spec.continues
                            follower.close("predecessor failed", now)
                    if follower.state.final or not follower.before:
                        heapq.heappush(todo, follower.number)
                stage.held_back = frozenset(held_back)
                if stage.state is StageState.DONE and stage.width == 1 and stage.added and stage.added[0].needs:
                    for follower in [self.stages[name] for name in stage.followers]:
                        self._forget(stage, follower)
        self.touched |= self._stirred
        self._stirred.clear()

    def _note_wait(self, held: Held) -> None:
        """A job's wait became known."""
        if held.handle is None or held.started is None or held.requeued or held.taught:
            return
        freed = max((self._ends[key].at for key in held.after if key in self._ends), default=-math.inf)
        self.untaught[held.key] = Wait(
            held.request,
            held.stages[0],
            held.submitted,
            freed,
            held.started,
            held.predicted_wait_s,
            held.context,
            held.gated,
        )


def _number_of(stage: StageProgress) -> int:
    return stage.number


_APART = 256
"""Numbers of stages are so many binary digits apart, at first: there is room for others between them."""


def _lets_on(stage: StageProgress, follower: StageProgress) -> bool:
    """Whether a stage that is over does not keep one that needs it from running, or not as a whole."""
    if stage.state is StageState.DONE:
        return True
    name, spec = stage.spec.name, follower.spec
    if name in spec.lists:
        return False
    column = name in spec.alike or (follower.width is None and not (spec.alike or spec.lists))  # one needed whole, too
    if stage.width is None and column:
        return False  # it will never be known how many tasks the follower would have
    if spec.accepts_failed:
        return True
    apart = (name in spec.alike and stage.done > 0) or any(name == other for other, _ in spec.parts)
    return stage.tolerated and apart


def _is_cancelled(event: JobEnded | SubmitRefused) -> bool:
    return isinstance(event, JobEnded) and event.state is JobState.CANCELLED


def _how_ended(held: Held, event: JobEnded | SubmitRefused) -> str:
    if isinstance(event, SubmitRefused):
        return f"the batch system refused the job: {event.reason}"
    what = f"job {held.handle.job_id if held.handle else held.key} ended as {event.state.value}"
    what += f" ({event.reason})" if event.reason else ""
    return what + (
        f"; its output is in {held.request.output}" if held.request.output and held.started is not None else ""
    )


def _last_words(event: TaskFailed) -> str:
    """What a failed task printed."""
    text = "\n" + event.traceback.rstrip() if event.traceback else ""
    if event.stderr.strip():
        text += "\nlast lines of its output:\n" + event.stderr.rstrip()
    return text
