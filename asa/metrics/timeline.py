"""When what happened to each stage and each job of a run, folded from its events.

Knows nothing of plans and strategies: what a log says is enough, be it of a run that goes on, died, failed or was
taken over by another driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeJoined,
    Released,
    Requeued,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    StageFailed,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobHandle, JobRequest, JobState
from asa.core.stage import StageSpec, StageState
from asa.metrics.attempts import AttemptLog

FAILURES_KEPT = 100
"""Failures kept with all their words; of further ones only the number is known."""


@dataclass
class StageLife:
    """A stage so far.

    `ready`, `started` (first task launched) and `ended` are times [s since the epoch]. `underway` of its tasks were
    given to an allocation and have not reported, some of them at any time since `since`; `active_s` [s] is how long
    that was so before.
    """

    spec: StageSpec
    width: int | None
    state: StageState = StageState.WAITING
    ready: float | None = None
    started: float | None = None
    ended: float | None = None
    error: str = ""
    launched: int = 0
    underway: int = 0
    since: float | None = None
    active_s: float = 0.0
    done: int = 0
    finished: bytearray = field(default_factory=bytearray)
    failures: dict[int, int] = field(default_factory=dict)

    def launch(self, count: int, now: float) -> None:
        self.launched += count
        self.underway += count
        self.since = now if self.since is None else self.since
        self.started = now if self.started is None else self.started
        if self.state is StageState.READY:
            self.state = StageState.RUNNING

    def leave(self, count: int, now: float) -> None:
        """That many tasks have reported or are lost."""
        self.underway -= count
        if self.underway == 0 and self.since is not None:
            self.active_s += max(0.0, now - self.since)
            self.since = None

    def finish(self, index: int) -> None:
        """A task is done; the first time counts."""
        if len(self.finished) <= index:
            self.finished.extend(bytes(max(index + 1, self.width or 0) - len(self.finished)))
        self.done += not self.finished[index]
        self.finished[index] = 1

    def close(self, state: StageState, now: float, error: str = "") -> None:
        if not self.state.final:
            self.state, self.ended, self.error = state, now, error

    def reopen(self) -> None:
        """A new driver gives a stage that failed, or was skipped, another go."""
        self.failures.clear()
        if self.state in (StageState.FAILED, StageState.SKIPPED):
            self.state = StageState.WAITING if self.ready is None else StageState.READY
            self.state = StageState.RUNNING if self.started is not None else self.state
            self.ended, self.error = None, ""


@dataclass
class JobLife:
    """A job so far, or a lease of part of a job of another run, the `lender`.

    `since` is when it last started [s since the epoch] if it runs; `runs` are the times (start, end) it ran before;
    `leaving` says that it was told to end and takes no more tasks;
    `underway` counts the tasks of each stage it was given that have not reported.
    """

    request: JobRequest
    stages: tuple[str, ...]
    asked: float
    predicted_wait_s: float | None
    handle: JobHandle | None = None
    state: JobState = JobState.PENDING
    since: float | None = None
    runs: list[tuple[float, float]] = field(default_factory=list)
    ended: float | None = None
    leaving: bool = False
    amending: Amending | None = None
    reason: str = ""
    nodes: dict[str, None] = field(default_factory=dict)
    underway: dict[str, int] = field(default_factory=dict)
    lender: str = ""

    def start(self, at: float) -> None:
        self.state, self.since = JobState.RUNNING, at

    def stop(self, state: JobState, now: float) -> None:
        if self.since is not None:
            self.runs.append((self.since, max(self.since, now)))
        self.state, self.since = state, None

    def end(self, state: JobState, now: float, reason: str) -> None:
        self.stop(state, now)
        self.ended, self.leaving, self.reason = now, True, self.reason or reason


class Timeline:
    """A run so far; `on` folds one more event in, at a cost that does not grow with the run."""

    def __init__(self) -> None:
        self.start: RunStarted | None = None
        self.last = 0.0
        self.drivers = 0
        self.state = RunState.RUNNING
        self.message = ""
        self.ended: float | None = None
        self.stages: dict[str, StageLife] = {}
        self.successors: dict[str, list[str]] = {}
        self.jobs: dict[str, JobLife] = {}
        self.attempts = AttemptLog()
        self.failures: list[TaskFailed] = []
        self.failed = 0

    def on(self, event: Event) -> None:
        """Fold an event; those of jobs whose submission the log does not hold change nothing."""
        match event:
            case TaskDone() | TaskFailed():
                self._task_ended(event)
            case TasksLaunched():
                self._launched(event)
            case Submitting():
                self.jobs[event.allocation] = JobLife(event.request, event.stages, event.at, event.predicted_wait_s)
            case Leased():
                self.jobs[event.allocation] = life = JobLife(event.request, (), event.at, None, lender=event.lender)
                life.start(event.at)
            case StageExpanded():
                self.stages[event.stage].width = event.width
                self._settle([event.stage], event.at)
            case StageFailed():
                self.stages[event.stage].close(StageState.FAILED, event.at, event.reason)
                self._settle([event.stage], event.at)
            case RunStarted():
                self._run_started(event)
            case DriverStarted():
                self._driver_started(event)
            case RunEnded():
                self._run_ended(event)
            case _:
                self._job_changed(event)
        self.last = max(self.last, event.at)

    def _run_started(self, event: RunStarted) -> None:
        if self.start is None:
            self.start = event
            self.stages = {spec.name: StageLife(spec, spec.width) for spec in event.stages}
            self.successors = {name: [] for name in self.stages}
            for spec in event.stages:
                for before in spec.predecessors:
                    self.successors[before].append(spec.name)
            self._settle(self.stages, event.at)

    def _driver_started(self, event: DriverStarted) -> None:
        """Workers are fresh: what ran is given out again, and stages that failed get another go."""
        self.drivers += 1
        self.state, self.message, self.ended = RunState.RUNNING, "", None
        for job in self.jobs.values():
            self._lose(job, self.last)  # the driver before was last seen then
            if job.lender and job.ended is None:
                job.end(JobState.LOST, self.last, "the driver was gone")
        for stage in self.stages.values():
            stage.reopen()
        self._settle(self.stages, event.at)

    def _launched(self, event: TasksLaunched) -> None:
        count = sum(stop - start for start, stop in event.ranges)
        job = self.jobs.get(event.allocation)
        if job is not None and not job.leaving:  # what is given to a job that was told to end never runs
            job.underway[event.stage] = job.underway.get(event.stage, 0) + count
            self.stages[event.stage].launch(count, event.at)

    def _lose(self, job: JobLife, now: float) -> None:
        """Whatever runs in this job will not report."""
        for name, count in job.underway.items():
            self.stages[name].leave(count, now)
        job.underway.clear()

    def _task_ended(self, event: TaskDone | TaskFailed) -> None:
        stage = self.stages[event.stage]
        self.attempts.add(event, stage.spec.task.cores)
        job = self.jobs.get(event.allocation)
        if job is not None and job.underway.get(event.stage, 0):  # not one that was taken for lost
            job.underway[event.stage] -= 1
            stage.leave(1, event.at)
        if isinstance(event, TaskDone):
            stage.finish(event.index)
            if stage.done == stage.width:
                self._settle([event.stage], event.at)
            return
        if event.infrastructure:
            return
        self.failed += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(event)
        stage.failures[event.index] = times = stage.failures.get(event.index, 0) + 1
        if times > stage.spec.retries:
            stage.close(StageState.FAILED, event.at, f"task {event.index} on node {event.node}: {event.error}")
            self._settle([event.stage], event.at)

    def _job_changed(self, event: Event) -> None:
        job = self.jobs.get(getattr(event, "allocation", ""))
        if job is None:
            return
        match event:
            case Submitted():
                job.handle = event.handle
            case Amending():
                job.amending = event
            case Amended():
                if job.amending is not None and not event.refused:
                    job.request = job.amending.changed(job.request)
            case NodeJoined():
                job.nodes[event.node] = None
                if job.since is None:  # the batch system has not said so yet
                    job.start(event.at)
            case AllocationStarted():
                job.start(event.started)
                job.nodes |= dict.fromkeys(event.nodes)
            case Requeued():
                self._lose(job, event.at)
                job.stop(JobState.PENDING, event.at)
                job.nodes.clear()
            case Released():
                job.leaving = True
            case Cancelled():
                job.leaving, job.reason = True, event.reason
            case SubmitRefused():
                job.end(JobState.FAILED, event.at, event.reason)
            case JobEnded():
                self._lose(job, event.at)
                if event.started is not None:
                    job.start(event.started)
                job.end(event.state, event.at, event.reason)
            case LeaseEnded():
                self._lose(job, event.at)
                job.end(JobState.FAILED if event.reason else JobState.COMPLETED, event.at, event.reason)

    def _run_ended(self, event: RunEnded) -> None:
        self.state, self.message, self.ended = event.state, event.message, event.at
        if event.state is not RunState.FAILED:
            return
        # A run fails when every stage is done, failed or skipped. Why a stage failed need not be an event of its own
        # (jobs refused, or ended again and again): then its predecessors tell the two apart, and the run's own word.
        for name, stage in self.stages.items():
            if name == event.stage and stage.state is StageState.SKIPPED:
                stage.state = StageState.FAILED
            before = [self.stages[other].state for other in stage.spec.predecessors]
            failed = name == event.stage or all(state is StageState.DONE for state in before)
            stage.close(StageState.FAILED if failed else StageState.SKIPPED, event.at)

    def _settle(self, names: Iterable[str], now: float) -> None:
        """Follow the order of the stages, from these on: done, skipped, ready."""
        todo = deque(names)
        while todo:
            stage = self.stages[todo.popleft()]
            self._advance(stage, now)
            if stage.state.final:
                todo.extend(name for name in self.successors[stage.spec.name] if not self.stages[name].state.final)

    def _advance(self, stage: StageLife, now: float) -> None:
        if stage.state is StageState.WAITING:
            before = [self.stages[name] for name in stage.spec.predecessors]
            if any(other.state in (StageState.FAILED, StageState.SKIPPED) for other in before):
                stage.close(StageState.SKIPPED, now)
            elif all(other.state is StageState.DONE for other in before):
                stage.ready = max((other.ended for other in before if other.ended is not None), default=now)
                stage.state = StageState.READY if stage.started is None else StageState.RUNNING
        if stage.state in (StageState.READY, StageState.RUNNING) and stage.done == stage.width:
            stage.close(StageState.DONE, now)
