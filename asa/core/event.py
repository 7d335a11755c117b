"""Everything that happens in a run, one frozen dataclass per kind. The log of them is the truth.

`at` is always the time it happened [s since the epoch]. An *allocation* is named by its job's token, a task by its
stage and index.
"""

from __future__ import annotations

import enum
import math
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from asa.core.context import Context
from asa.core.job import JobHandle, JobRequest, JobState, Options, QueueRegime, Resources
from asa.core.serial import from_json, to_json
from asa.core.stage import StageSpec, Width
from asa.core.task import SOURCES

VERSION = 8
"""Of logs that are written now: it changes with what is in them. Older ones can be read, but their runs not resumed."""


VIRTUAL = "virtual"
"""What the log calls the executor of runs in virtual time."""


class RunState(enum.Enum):
    """How a run stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"  # some tasks failed, and the others went on, as was asked
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # without an outcome, and without a driver; never logged


class TaskResult(NamedTuple):
    """What a task returned: pickled, or in a file at `path`."""

    stage: str
    task: int
    value: bytes | None
    path: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time [s since the epoch]."""

    at: float
    kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        Event.kinds[cls.__name__] = cls

    @property
    def result(self) -> TaskResult | None:
        """What a task returned, in the event that reports it."""
        return None

    @property
    def results(self) -> Sequence[TaskResult]:
        """What is to be stored with the event."""
        return () if (result := self.result) is None else (result,)

    @property
    def void(self) -> Sequence[tuple[str, int]]:
        """Tasks, as (stage, index), whose stored results do not count any more."""
        return ()


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The first event of every log: what is to be run, and how; from `regime` to `most_jobs` it is the site's.

    `version` is that of the log: 1 where nothing is said, `VERSION` in what is written now. `fixed_s` is as in
    `WorkflowView`.
    """

    run: str
    workflow: str
    stages: tuple[StageSpec, ...]
    backend: str
    strategy: str
    executor: str
    pool: str
    site: str
    partition: str
    regime: QueueRegime = QueueRegime.LIMITS
    arrays: bool = False
    parks: bool = False
    unordered: str = ""
    most_jobs: int | None = None
    version: int = 1
    fixed_s: tuple[float, float] = (0.0, 0.0)

    @property
    def is_virtual(self) -> bool:
        """Whether the run is in virtual time."""
        return self.executor == VIRTUAL


@dataclass(frozen=True, slots=True)
class DriverStarted(Event):
    """A driver took the run over: once at the start and once per resume.

    With `keeps`, tasks in flight stay so until `TasksKept` or their job's end; logs of older versions, without, have
    them run again.
    """

    pid: int
    host: str
    keeps: bool = False


REPLACED = "the run has another driver"
"""The trouble of a driver that has been replaced: the run's log does not take it from that one."""


@dataclass(frozen=True, slots=True)
class Trouble(Event):
    """The batch system does not answer, in its own words; ``""`` once it does again."""

    error: str


@dataclass(frozen=True, slots=True)
class CallsAdded(Event):
    """Calls of other sizes than those known until now are stages of their own."""

    stages: tuple[StageSpec, ...]


@dataclass(frozen=True, slots=True)
class StageExpanded(Event):
    """A stage's number of tasks became known."""

    stage: str
    width: int


@dataclass(frozen=True, slots=True)
class StagesAdded(Event):
    """What a task of a stage that expands has returned was looked at: it adds these `specs` to the run, maybe none.

    What stands for its result is made of those of the stages in `needs`, for which all that follows it waits; with
    `alike` it is the list that a single one of them, which is parallel, returns. `refused` says why the stages cannot
    be part of the run, or "": the task has failed then.
    """

    stage: str
    index: int
    specs: tuple[StageSpec, ...] = ()
    needs: tuple[str, ...] = ()
    alike: bool = False
    refused: str = ""

    @property
    def void(self) -> Sequence[tuple[str, int]]:
        return [(self.stage, self.index)] if self.refused else ()


@dataclass(frozen=True, slots=True)
class ExpectationMissed(Event):
    """Of what stages were declared to be likely to do, as `StageSpec.expect` has it, something else came."""

    stage: str
    expected: int
    came: int


@dataclass(frozen=True, slots=True)
class StageLookedUp(Event):
    """Results of earlier runs were looked for that stand for tasks of a stage, for those below `stop` by now.

    They stand for the tasks in `reused`, half-open ranges by the run they are of, and are stored with the event.
    `trouble` says why some were not looked for, or "".
    """

    stage: str
    stop: int
    reused: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    trouble: str = ""
    found: tuple[TaskResult, ...] = field(default=(), repr=False, metadata={"logged": False})

    @property
    def results(self) -> Sequence[TaskResult]:
        return self.found


@dataclass(frozen=True, slots=True)
class Predicted(Event):
    """The estimator was asked how long a stage's job would wait [s], and how long at least, if that was asked."""

    stage: str
    wait_s: float
    soon_s: float | None = None


WALLTIMES_ONLY = "no history, and no run time is declared"
"""How the note of a quote begins that knows wall times only."""
WAITS_UNKNOWN = "no waits of such jobs have been learned here, and the queue cannot be seen: as if no job waited"
"""The note of a quote that knows nothing of waits."""

LEAST_MISS_S = 60.0
"""A quote need not be right to the minute [s]."""


@dataclass(frozen=True, slots=True)
class Quoted(Event):
    """When the run is expected to be `done`, in the median of its drawn futures; it should be so between `low` and
    `high` in 80 % of cases [s since the epoch]. `core_hours` are charged, in the median.

    `drawn` are the ends of the interval before it was corrected by the errors of earlier quotes. `notes` say in plain
    words what was not known; if `WAITS_UNKNOWN` is one of them, it is done at these times at the earliest; if
    one begins with `WALLTIMES_ONLY`, its run times are bounded by wall times only, and `high` is the one to go by.
    """

    done: float
    low: float
    high: float
    core_hours: float
    drawn: tuple[float, float]
    draws: int
    notes: tuple[str, ...] = ()

    @property
    def least(self) -> bool:
        """Whether it is done at these times at the earliest."""
        return WAITS_UNKNOWN in self.notes

    @property
    def most(self) -> bool:
        """Whether of some run times only a bound is known."""
        return any(note.startswith(WALLTIMES_ONLY) for note in self.notes)

    def missed(self, ended: float) -> float:
        """How far outside the interval that was drawn a run ended [s since the epoch], below 0 inside: the difference
        of the logarithms of the durations from the quote on, to which `LEAST_MISS_S` are added."""
        low, high, real = (math.log(max(0.0, each - self.at) + LEAST_MISS_S) for each in (*self.drawn, ended))
        return max(low - real, real - high)


@dataclass(frozen=True, slots=True)
class Submitting(Event):
    """A job for these `stages` is about to be submitted; if the driver dies now, its token finds the job again.

    It depends on the allocations in `after`. `predicted_wait_s` is the wait it was planned with [s], `soon_wait_s` how
    soon it may be over; None when no prediction was asked. `context` is what was known of it and of the queue, or None
    where the queue is not looked at. `why` says in plain words why it is for several stages, or is not, and why in this
    queue, or "". With `second` the same is to be asked for in that queue, too; that job is submitted `instead` of the
    one of this name, if it starts first.
    """

    allocation: str
    request: JobRequest
    stages: tuple[str, ...]
    after: tuple[str, ...] = ()
    predicted_wait_s: float | None = None
    soon_wait_s: float | None = None
    context: Context | None = None
    why: str = ""
    second: Options | None = None
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """The batch system took the job."""

    allocation: str
    handle: JobHandle


@dataclass(frozen=True, slots=True)
class SubmitRefused(Event):
    """The batch system turned the job down, in its own words; `later`: for now, and through no fault of the job."""

    allocation: str
    reason: str
    later: bool = False


@dataclass(frozen=True, slots=True)
class Amending(Event):
    """A job that was submitted is about to be changed, as `asa.core.decision.Amend` says."""

    allocation: str
    after: tuple[str, ...] | None = None
    throttle: int | None = None
    parked: bool | None = None
    resources: Resources | None = None
    walltime_s: float | None = None

    def changed(self, request: JobRequest) -> JobRequest:
        """The request as it is once the change is made, apart from what it waits for."""
        resources, walltime_s = self.resources or request.resources, self.walltime_s or request.walltime_s
        return replace(request, resources=resources, walltime_s=walltime_s)


@dataclass(frozen=True, slots=True)
class Amended(Event):
    """The batch system made the change; `refused` has its words when it did not."""

    allocation: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Queued(Event):
    """Why a job whose place is held waits, in the batch system's words, and since when it ages [s since the epoch]."""

    allocation: str
    reason: str
    ages_since: float | None = None


@dataclass(frozen=True, slots=True)
class AllocationStarted(Event):
    """The job runs since `started` [s since the epoch]; requeued jobs start more than once.

    `cores` are what it holds, as the batch system counts them; None where it does not say, and in older logs: as asked.
    `submitted` is when it was submitted by the same clock [s since the epoch], where the batch system reports it.
    """

    allocation: str
    started: float
    nodes: tuple[str, ...] = ()
    cores: int | None = None
    submitted: float | None = None


@dataclass(frozen=True, slots=True)
class Requeued(Event):
    """The job was running and waits again."""

    allocation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Learned(Event):
    """A job's wait [s] became known; `censored` when a dependency held it, so that it taught nothing."""

    allocation: str
    stage: str
    wait_s: float
    predicted_s: float | None = None
    censored: bool = False


@dataclass(frozen=True, slots=True)
class Believed(Event):
    """What the estimator believes of a geometry's waits from now on: waits [s] and their weights, if it has such.
    So many `jobs` of all runs have taught it, the last with `last_wait_s` [s]; it says `predicted_s` [s]."""

    geometry: str
    estimator: str
    jobs: int = 0
    last_wait_s: float | None = None
    predicted_s: float | None = None
    weights: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeJoined(Event):
    """A node of an allocation is ready for tasks."""

    allocation: str
    node: str
    cores: int


@dataclass(frozen=True, slots=True)
class NodeLost(Event):
    """A node of an allocation is gone, with whatever ran there."""

    allocation: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """A container: its CPU quota, None for none; cores in use and the share of the quota's periods in which it was
    throttled, both since the look before, None where that is not counted."""

    container: str
    node: str
    limit_cores: float | None = None
    used_cores: float | None = None
    throttled: float | None = None


@dataclass(frozen=True, slots=True)
class ContainersSeen(Event):
    """With agents: the run's containers that are new or have changed, and the names of those that are gone."""

    seen: tuple[ContainerUse, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted(Event):
    """In a named pool: about so many more tasks of this size could run now if there were room for them, beside those
    that leases on their way will take; None when no task waits for room."""

    task: Resources | None
    count: int = 0


@dataclass(frozen=True, slots=True)
class Leased(Event):
    """In a named pool: `resources` of another run, `lender`, are this run's `until` then at most [s since the epoch].
    `allocation` is the lease's name: tasks are given to it as to an allocation."""

    allocation: str
    resources: Resources
    lender: str
    until: float

    @property
    def request(self) -> JobRequest:
        """The request that stands for it where a job is expected; it is never submitted."""
        return JobRequest(self.allocation, self.resources, max(0.0, self.until - self.at), argv=())


@dataclass(frozen=True, slots=True)
class Recalled(Event):
    """A lease takes no more tasks, and ends with those it has."""

    allocation: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseEnded(Event):
    """A lease is over; `reason` is "" when it was returned."""

    allocation: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Released(Event):
    """The allocation was released: its job exits with code 0. Older logs have no reason."""

    allocation: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """The job was cancelled by the run; `displaced` because it did not keep its place in the queue."""

    allocation: str
    reason: str
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class JobEnded(Event):
    """The job has ended, however; its cores, as in `AllocationStarted`, are no longer charged.

    `energy_j` is what its last run drew [J]; None where the batch system has not measured it, and in logs before 8.
    """

    allocation: str
    state: JobState
    started: float | None = None
    exit_code: int | None = None
    reason: str = ""
    cores: int | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class TasksLaunched(Event):
    """Tasks of one stage were given to an allocation, as half-open index ranges.

    With a `host` they are guests: they run on cores that tasks of that stage hold there, and leave idle.
    """

    stage: str
    ranges: tuple[tuple[int, int], ...]
    allocation: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class CoresUnused(Event):
    """Of the cores and the memory [bytes] that tasks of a stage hold on a node, guests may use so much from now on,
    until one of these tasks ends."""

    allocation: str
    node: str
    stage: str
    cores: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class TasksKept(Event):
    """Of the tasks, as (stage, index), that an earlier driver gave to an allocation, its nodes have these still.

    They run on, or have ended and will be reported; the others run again.
    """

    allocation: str
    tasks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TaskDone(Event):
    """A task returned. Its result travels with the event and is stored beside it: `value`, or a file at `path`.

    What it took: processor time [s], the most memory [bytes], and what it was given [bytes], as `source`, one of
    `SOURCES`, has measured it; 0 for what is not known.
    """

    stage: str
    index: int
    allocation: str
    node: str
    started: float
    value: bytes | None = field(default=None, repr=False, metadata={"logged": False})
    path: str | None = field(default=None, metadata={"logged": False})
    cpu_s: float = 0.0
    peak: int = 0
    given: int = 0
    source: str = ""

    @property
    def result(self) -> TaskResult | None:
        """None when the event was read from a log."""
        absent = self.value is None and self.path is None
        return None if absent else TaskResult(self.stage, self.index, self.value, self.path)


@dataclass(frozen=True, slots=True)
class TasksDone:
    """Several `TaskDone` in a row, of one stage, on one node of one allocation: columns of the same length.

    It is no event: in this form a log keeps them, and a run is folded from them, at a fraction of the cost. Columns of
    what they took are empty where nothing is known of any of them.
    """

    stage: str
    allocation: str
    node: str
    index: tuple[int, ...]
    at: tuple[float, ...]
    started: tuple[float, ...]
    cpu_s: tuple[float, ...] = ()
    peak: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    source: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def took(self) -> Iterator[tuple[float, int, int, str]]:
        """What each of them took."""
        if self.source:
            return zip(self.cpu_s, self.peak, self.given, self.source, strict=True)
        return repeat((0.0, 0, 0, ""), len(self))

    def events(self) -> Iterator[TaskDone]:
        """One by one, without results, as from a log."""
        for index, at, started, took in zip(self.index, self.at, self.started, self.took, strict=True):
            yield TaskDone(at, self.stage, index, self.allocation, self.node, started, None, None, *took)


TOGETHER_MOST = 1000
"""Tasks in one `TasksDone`: what damage to one of them takes along."""


_TIMES_OF = attrgetter("index", "at", "started")
_COLUMNS_OF = attrgetter("index", "at", "started", "cpu_s", "peak", "given", "source")


def packed(events: Iterable[Event]) -> Iterator[Event | TasksDone]:
    """Events in the same order, `TaskDone`s that belong together as `TasksDone`."""
    for where, group in groupby(events, _where):
        if where is None:
            yield from group
            continue
        tasks: Any = list(group)
        for first in range(0, len(tasks), TOGETHER_MOST):
            some = tasks[first : first + TOGETHER_MOST]
            if len(some) == 1:
                yield some[0]
                continue
            known = any(task.source or task.given or task.cpu_s or task.peak for task in some)
            columns = zip(*map(_COLUMNS_OF if known else _TIMES_OF, some), strict=True)
            yield TasksDone(*where, *columns)


def _where(event: Event) -> tuple[str, str, str] | None:
    if type(event) is not TaskDone or event.source not in SOURCES:
        return None
    return event.stage, event.allocation, event.node


@dataclass(frozen=True, slots=True)
class ResultsLost(Event):
    """What these tasks, as (stage, index), returned is damaged or gone: they run again; `reason` is that of the first.

    Stages that had begun with their results wait for them again.
    """

    tasks: tuple[tuple[str, int], ...]
    reason: str

    @property
    def void(self) -> Sequence[tuple[str, int]]:
        return self.tasks


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A task did not return.

    `error` is one line: the exception, or what happened to the process; `traceback` is the last part of that, `stderr`
    of what the task printed, on standard output as well, or "".

    `infrastructure` is True when the task is not to blame (node lost, wall time, driver restart): no retry is used up.
    `cause` is "memory" or "time" where it had too little of that. `exit` is the exit code of its process or program,
    negative for a signal. What it took is as in `TaskDone`.
    """

    stage: str
    index: int
    allocation: str
    node: str
    started: float
    error: str
    traceback: str = ""
    stderr: str = ""
    infrastructure: bool = False
    cause: str = ""
    exit: int | None = None
    peak: int = 0
    cpu_s: float = 0.0
    given: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class TaskPaused(Event):
    """A task with checkpoints did not end in its allocation: it goes on in another one, as the same task.

    `saved` stands for what it has saved until then, or is ""; when it is what it was the time before, the task has got
    on by nothing. `lost` says what took it along; "" when it was ended because the time of its allocation was over, or
    paused by itself.
    """

    stage: str
    index: int
    allocation: str
    node: str
    started: float
    saved: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class RetriesDue(Event):
    """Tasks that failed have waited long enough to be tried again."""

    stage: str
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageGrown(Event):
    """What a stage needs from now on, since a task of it had too little; `bounded` says what has kept it from more."""

    stage: str
    resources: Resources
    task: Resources
    walltime_s: float
    timeout_s: float | None = None
    bounded: str = ""


@dataclass(frozen=True, slots=True)
class WidthChosen(Event):
    """How wide the next job of a stage is to be, which may have one of several sizes; `why` says so in plain words."""

    stage: str
    width: Width
    why: str = ""


@dataclass(frozen=True, slots=True)
class TaskCancelled(Event):
    """The user cancelled a call; one that runs already runs on."""

    stage: str
    index: int


@dataclass(frozen=True, slots=True)
class StageFailed(Event):
    """A stage cannot run, whatever its tasks do: its input is not a list, lengths differ, it cannot be sent."""

    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelAsked(Event):
    """The run is to end, on request: nothing more is started, pending jobs are cancelled, running ones released."""

    reason: str


@dataclass(frozen=True, slots=True)
class HoldAsked(Event):
    """On request, nothing new is submitted or launched from now on, or, with `held` False, that is over."""

    held: bool


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The outcome is known; only ends of jobs follow. `stage` is the one that failed first, if one did."""

    state: RunState
    message: str = ""
    stage: str = ""


def encode(event: Event | TasksDone) -> tuple[str, dict[str, Any]]:
    """Kind and JSON-able fields of an event; columns are packed: to write and read millions of numbers takes long."""
    if isinstance(event, TasksDone):
        columns = struct.pack(_COLUMNS.format(len(event)), *event.index, *event.at, *event.started)
        where = {"stage": event.stage, "allocation": event.allocation, "node": event.node}
        fields = {**where, "columns": b2a_base64(columns, newline=False).decode()}
        if event.source:
            taken = struct.pack(
                _TAKEN.format(len(event)), *event.cpu_s, *event.peak, *event.given, *map(SOURCES.index, event.source)
            )
            fields["taken"] = b2a_base64(taken, newline=False).decode()
        return TasksDone.__name__, fields
    return type(event).__name__, to_json(event)


def decode(kind: str, fields: dict[str, Any]) -> Event | TasksDone:
    """Inverse of `encode`."""
    if kind == TasksDone.__name__:
        data = a2b_base64(fields["columns"])
        count = len(data) // struct.calcsize(_COLUMNS.format(1))
        found = struct.unpack(_COLUMNS.format(count), data)
        columns = [found[:count], found[count : 2 * count], found[2 * count :]]
        if "taken" in fields:
            taken = struct.unpack(_TAKEN.format(count), a2b_base64(fields["taken"]))
            columns += [taken[first : first + count] for first in range(0, 3 * count, count)]
            columns.append(tuple([SOURCES[number] for number in taken[3 * count :]]))
        return TasksDone(fields["stage"], fields["allocation"], fields["node"], *columns)
    event: Event = from_json(Event.kinds[kind], fields)
    return event


_COLUMNS, _TAKEN = "<{0}q{0}d{0}d", "<{0}d{0}q{0}q{0}B"
