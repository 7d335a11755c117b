"""What is known of a run: folded from its events, and nothing else.

Replaying a run's log through `State.on` gives the run's state again, so that is all there is to resuming it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from asa.allocations.pool import Held, Pool
from asa.core.context import Context
from asa.core.event import (
    AllocationStarted,
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    Predicted,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    StageFailed,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
    Trouble,
    Wanted,
)
from asa.core.job import JobRequest, JobState, Resources
from asa.core.stage import StageState
from asa.core.units import brief
from asa.workflows.progress import BARREN_MOST, Progress

UNRESPONSIVE_S = 30.0
"""How long a released job may take to end before it is cancelled [s]."""

NOTHING: tuple[Resources | None, int] = (None, 0)
"""What a run wants from others when no task of it waits for room."""

HELD_S, HELD_SHARE = 10.0, 0.05
"""A job that started so soon after what it depended on [s], or after such a share of its wait, was held by that."""

_DONE_STEPS = 20  # how often in the life of a stage its progress counts as news


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

        Where dependent jobs do not age, a wait begins when what the job depended on has ended.
        """
        depended = self.freed > self.submitted
        since = self.freed if depended and not dependents_age else self.submitted
        wait_s = max(0.0, self.started - since)
        held = depended and self.started - self.freed <= max(HELD_S, HELD_SHARE * wait_s)
        return wait_s, held or self.gated


class State:
    """A run as far as its events tell.

    Attributes
    ----------
    stages
        Name -> how far it has come, in topological order.
    pool
        Allocations that have not ended.
    outcome, message
        How the run ended.
    cancelling
        Why somebody wants it to end, or "".
    trouble
        What the batch system last failed with, if it does not answer; else "".
    asked
        Jobs asked for so far.
    untaught
        Token -> a job's wait that no estimator was told of.
    wanted
        How many more tasks of which size the executor was last told of.
    changes
        How often something changed that a strategy looks at.
    """

    def __init__(self) -> None:
        self.run = ""
        self.stages: dict[str, Progress] = {}
        self.pool = Pool()
        self.outcome: RunState = RunState.RUNNING
        self.message = ""
        self.cancelling = ""
        self.trouble = ""
        self.asked = 0
        self.untaught: dict[str, Wait] = {}
        self.wanted = NOTHING
        self.changes = 0
        self._ends: dict[str, JobEnded] = {}
        self._borrowed = False

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left; leases end by themselves."""
        return self.outcome is not RunState.RUNNING and all(held.lender for held in self.pool.held.values())

    def on(self, event: Event) -> None:
        """Fold one event into the state."""
        if isinstance(event, TaskDone):
            self._task_done(event)
            return
        if isinstance(event, TasksLaunched) and not self._tasks_launched(event):
            return
        self._fold(event)
        self.pool.on(event)
        if isinstance(event, AllocationStarted) and (held := self.pool.held.get(event.allocation)):
            self._note_wait(held)
        self.changes += 1
        self._settle(event.at)

    def _fold(self, event: Event) -> None:
        """What changes outside the pool; the pool is as it was before the event."""
        match event:
            case TaskFailed():
                self._task_failed(event)
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
            case StageExpanded():
                self.stages[event.stage].width = event.width
            case StageFailed():
                self.stages[event.stage].fail(event.reason, event.at)
            case Predicted():
                stage = self.stages[event.stage]
                stage.predicted_wait_s, stage.soon_wait_s, stage.predicted_at = event.wait_s, event.soon_s, event.at
            case Submitting():
                self._submitting(event)
            case Cancelled(displaced=True):
                if held := self.pool.held.get(event.allocation):
                    self._displace(held)
            case CancelAsked():
                self.cancelling = event.reason
            case Trouble():
                self.trouble = event.error
            case Learned():
                self.untaught.pop(event.allocation, None)
            case RunEnded():
                self.outcome, self.message = event.state, event.message

    def _run_started(self, event: RunStarted) -> None:
        self.run = event.run
        for spec in event.stages:
            self.stages[spec.name] = Progress(spec, spec.width)

    def _driver_started(self, event: DriverStarted) -> None:
        """Workers are fresh: what ran runs again. Stages that failed get another go."""
        for held in self.pool.held.values():
            for stage, index in held.running:
                self.stages[stage].lose(index)
        self.pool.forget_nodes()
        self.wanted = NOTHING
        self.outcome, self.message, self.cancelling, self.trouble = RunState.RUNNING, "", "", ""
        for progress in self.stages.values():
            progress.reopen()

    def _submitting(self, event: Submitting) -> None:
        self.asked += 1
        for name in event.stages:
            stage = self.stages[name]
            stage.attempts += 1
            stage.predicted_wait_s = stage.soon_wait_s = None

    def _tasks_launched(self, event: TasksLaunched) -> bool:
        """Whether it is the first time for the stage: later ones change nothing that others look at."""
        stage, held = self.stages[event.stage], self.pool.held[event.allocation]
        first = stage.state is not StageState.RUNNING
        for start, stop in event.ranges:
            stage.launch(start, stop, event.at)
            for index in range(start, stop):
                held.take((event.stage, index), stage.spec.task, event.at)
        return first

    def _task_done(self, event: TaskDone) -> None:
        stage = self.stages[event.stage]
        if (held := self.pool.held.get(event.allocation)) is not None:
            held.drop((event.stage, event.index))
            held.useful = True
        stage.finish(event.index, event.at - event.started, event.at)
        if stage.state.final or stage.done % max(1, (stage.width or 0) // _DONE_STEPS) == 0:
            self.changes += 1
            self._settle(event.at)

    def _task_failed(self, event: TaskFailed) -> None:
        task, held = (event.stage, event.index), self.pool.held.get(event.allocation)
        if held is None or (launched := held.drop(task)) is None:
            return  # it counts as lost already, and waits or runs again
        stage = self.stages[event.stage]
        stage.lose(event.index)
        if event.infrastructure:
            held.lost[task] = launched, event.at
        else:
            held.useful = True  # it was the task that failed, not the allocation
            self._blame(stage, event.index, _last_words(event), event.at)

    def _blame(self, stage: Progress, index: int, reason: str, now: float) -> None:
        """A task failed by its own fault: the stage fails with it when it has no retries left."""
        stage.failures[index] = failures = stage.failures.get(index, 0) + 1
        if failures > stage.spec.retries:
            stage.fail(reason, now)

    def _lease_ended(self, event: LeaseEnded) -> None:
        if held := self.pool.held.get(event.allocation):
            for name, index in held.running:
                self.stages[name].lose(index)

    def _job_ended(self, event: JobEnded | SubmitRefused) -> None:
        held = self.pool.held.get(event.allocation)
        if held is None:
            return
        for (name, index), (_, launched) in held.running.items():
            self.stages[name].lose(index)
            held.lost[name, index] = launched, event.at
        if isinstance(event, SubmitRefused) and (held.request.array or held.request.begin is not None):
            self._displace(held)  # it was the way to hold its place that the site refused, for all that is known
            return
        if isinstance(event, JobEnded):
            self._ends[event.allocation] = event
            if event.state is JobState.TIMEOUT:
                self._blame_longest(held, event.at)
        drained = held.released is not None and held.drains is not None and held.released >= held.drains
        stopped = _is_cancelled(event) and not held.ending and held.started is not None  # somebody wants it to stop
        of_use = held.useful or (held.ending and not drained) or self._went_with_another(held, event)
        of_use |= self._was_replaced(held, event)
        if of_use and not stopped:
            return
        # Stages further on are skipped with the one that fails, unless the job was theirs alone.
        stages = [self.stages[name] for name in held.stages]
        started = [stage for stage in stages if stage.state is not StageState.WAITING]
        for stage in started or (() if drained else stages):
            self._count_barren(stage, held, event)

    def _was_replaced(self, held: Held, event: JobEnded | SubmitRefused) -> bool:
        """Whether a job had nothing to do to its end in a run that borrows: its tasks ran in leases."""
        timeout = isinstance(event, JobEnded) and event.state is JobState.TIMEOUT
        return timeout and held.used is None and self._borrowed

    def _displace(self, held: Held) -> None:
        """A job has lost its place in the queue, or has got none."""
        for name in held.stages:
            self.stages[name].displaced += 1

    def _blame_longest(self, held: Held, now: float) -> None:
        """Tasks that had a whole wall time, and were not done in it, would not be the next time either."""
        for (name, index), (launched, lost) in held.lost.items():
            stage, ran = self.stages[name], lost - launched
            at_the_end = lost >= now - UNRESPONSIVE_S  # not with a node that was lost before
            if at_the_end and ran >= 0.9 * stage.spec.walltime_s and not stage.is_finished(index):
                reason = f"task {index} ran for {brief(ran)} and reached the wall time: raise walltime="
                self._blame(stage, index, reason, now)

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
                if key in self.pool.held:
                    self.pool.held[key].dependable = False
        return True

    def _count_barren(self, stage: Progress, held: Held, event: JobEnded | SubmitRefused) -> None:
        """An allocation ended by itself before it was of use: ask again, but not for ever."""
        if isinstance(event, SubmitRefused):
            what, hopeless = f"the batch system refused the job: {event.reason}", True
        elif event.state is JobState.LOST and held.handle is None:
            return  # the driver died before it was submitted
        else:
            what = f"job {held.handle.job_id if held.handle else held.key} ended as {event.state.value}"
            what += f" ({event.reason})" if event.reason else ""
            what += f"; its output is in {held.request.output}" if held.request.output and held.started else ""
            hopeless = _is_cancelled(event) and not held.ending
        stage.barren += 1
        if hopeless:
            stage.fail(what, event.at)
        elif stage.barren >= BARREN_MOST:
            stage.fail(
                f"{BARREN_MOST} allocations in a row ended before they finished a task; the last: {what}", event.at
            )

    def _settle(self, now: float) -> None:
        """Follow the order of the stages: ready, empty and done, skipped."""
        for stage in self.stages.values():
            if stage.state is StageState.WAITING:
                before = [self.stages[other].state for other in stage.spec.predecessors]
                if any(state in (StageState.FAILED, StageState.SKIPPED) for state in before):
                    stage.state, stage.ended = StageState.SKIPPED, now
                elif all(state is StageState.DONE for state in before):
                    stage.state = StageState.RUNNING if stage.launched else StageState.READY
            if stage.state in (StageState.READY, StageState.RUNNING) and stage.done == stage.width:
                stage.state, stage.ended = StageState.DONE, now

    def _note_wait(self, held: Held) -> None:
        """A job's wait became known."""
        if held.handle is None or held.started is None or held.requeued or held.taught:
            return
        freed = max((self._ends[key].at for key in held.after if key in self._ends), default=-math.inf)
        self.untaught[held.key] = Wait(
            held.request,
            held.stages[0],
            held.handle.submitted,
            freed,
            held.started,
            held.predicted_wait_s,
            held.context,
            held.gated,
        )


def _is_cancelled(event: JobEnded | SubmitRefused) -> bool:
    return isinstance(event, JobEnded) and event.state is JobState.CANCELLED


def _last_words(event: TaskFailed) -> str:
    """What to tell of a failed task."""
    text = f"task {event.index} on node {event.node}: {event.error}"
    if event.traceback:
        text += "\n" + event.traceback.rstrip()
    if event.stderr.strip():
        text += "\nlast lines of standard error:\n" + event.stderr.rstrip()
    return text
