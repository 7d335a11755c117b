"""A run in a drawn future: its own plan in virtual time, in a queue in which each job waits as drawn.

Nothing is decided here: what to ask for, and when, is the plan's and its strategy's. This is the world around them, as
far as a quote needs it: jobs that wait, start and end, and tasks that take their time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import assert_never

from asa.core.decision import Amend, Cancel, Predict
from asa.core.errors import StateError
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    Predicted,
    Released,
    RetriesDue,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    StageGrown,
    StageLookedUp,
    StagesAdded,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TaskPaused,
    TasksLaunched,
    Wanted,
)
from asa.core.job import JobHandle, JobRequest, JobState, QueueRegime, Reason, Resources
from asa.core.ports import RunContext
from asa.core.stage import StageSpec, Width
from asa.workflows.plan import (
    Action,
    Add,
    Expand,
    Finish,
    Grow,
    LaunchTasks,
    LookUp,
    Mold,
    Plan,
    Release,
    Retry,
    Submit,
    Teach,
    Want,
)
from asa.workflows.runner import ROUNDS_MOST, job_request

STEPS_MOST = 100_000
"""Moments at which something happens, after which a future is given up."""

Wait = Callable[[Resources, float, float], float]
"""How long a job of this size and wall time [s] that is submitted then [s since the epoch] waits in this future [s]."""

Predicts = Callable[[Resources, float, float, Sequence[float | None]], Sequence[float]]
"""What the run's estimator says of such a job: waits [s], one for each quantile."""

Takes = Callable[[StageSpec, int], float]
"""How long a task runs in this future [s], by its stage, as that is asked for, and index."""


class Endless(StateError):
    """A future in which nothing happens any more although the run is not over, or in which it never ends."""


@dataclass
class _DrawnJob:
    """A job of the run: how long the queue makes it wait [s], since when that counts, and what runs in it."""

    request: JobRequest
    handle: JobHandle
    wait_s: float
    since: float | None
    after: tuple[str, ...]
    parked: bool = False
    state: JobState = JobState.PENDING
    started: float = math.inf
    ended: float = math.inf
    cores: int = 0
    free: int = 0
    waiting: deque[tuple[str, int]] = field(default_factory=deque)
    running: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.request.token


@dataclass(frozen=True)
class Ended:
    """How a run ended in a drawn future: when [s since the epoch], how, and the core-hours charged."""

    at: float
    state: RunState
    core_hours: float


class DrawnRun:
    """One future of a run, from its first event on.

    Parameters
    ----------
    plan
        Decides; a new one.
    start
        The run's first event.
    wait, takes, predicts
        What is drawn, and what the run's estimator says.
    width
        Number of tasks of a stage of which only the run would tell.
    """

    def __init__(
        self,
        plan: Plan,
        start: RunStarted,
        wait: Wait,
        takes: Takes,
        predicts: Predicts,
        width: Callable[[str], int] = lambda _stage: 1,
    ) -> None:
        self._plan, self._start, self.now = plan, start, start.at
        self._wait, self._takes, self._predicts, self._width = wait, takes, predicts, width
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._jobs: dict[str, _DrawnJob] = {}
        self._open: dict[str, _DrawnJob] = {}  # those that have not ended
        self._throttles: dict[str, int] = {}
        self._like: dict[str, str] = {}  # stage that was added -> the one that it is like
        self._left: dict[tuple[str, int], float] = {}  # task that goes on elsewhere -> how long it runs yet [s]
        self._context = RunContext(start.run, Path(), ".", ())
        self._retry = False

    def run(self) -> Ended:
        """Let it happen, until the run is over and its jobs have ended.

        Raises
        ------
        Endless
            When it does not end.
        """
        self._say(self._start)
        for _ in range(STEPS_MOST):
            self._decide()
            if self._plan.closed:
                break
            self._start_jobs()
            until = self._plan.wake_at(self.now)
            if self._calls:
                until = min(until, self._calls[0][0])
            if until == math.inf:
                raise Endless("nothing happens any more in a drawn future, and the run is not over")
            self.now = max(self.now, until)
            while self._calls and self._calls[0][0] <= self.now:
                heapq.heappop(self._calls)[2]()
        else:
            raise Endless(f"a drawn future has no end after {STEPS_MOST:,} moments")
        charged = sum(job.cores * (job.ended - job.started) for job in self._jobs.values() if job.started < math.inf)
        assert self._plan.ended is not None, "it is closed"
        return Ended(self._plan.ended, self._plan.outcome, charged / 3600.0)

    def _say(self, event: Event) -> None:
        self._plan.on(event)

    def _at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (max(when, self.now), next(self._order), call))

    def _decide(self) -> None:
        """Carry out what the plan decides, until that is nothing."""
        for _ in range(ROUNDS_MOST):
            if not (actions := self._plan.decide(self.now)):
                return
            for action in sorted(actions, key=lambda action: not isinstance(action, Release)):
                self._do(action)
        raise AssertionError("the plan keeps deciding the same: " + repr(actions[:3]))

    def _do(self, action: Action) -> None:
        now = self.now
        match action:
            case Submit():
                self._submit(action)
            case LaunchTasks():
                self._launch(action)
            case Release():
                self._say(Released(now, action.allocation, action.reason))
                self._end(self._jobs[action.allocation], JobState.COMPLETED)
            case Cancel():
                self._say(Cancelled(now, action.allocation, action.reason, action.displaced))
                self._end(self._jobs[action.allocation], JobState.CANCELLED)
            case Amend():
                self._amend(action)
            case Predict():
                spec = self._plan.stages[action.stage].spec
                quantiles = [action.late] if action.soon is None else [action.soon, action.late]
                *soon, late = self._predicts(spec.resources, spec.walltime_s, now, quantiles)
                self._say(Predicted(now, action.stage, late, *soon))
            case Expand():
                self._say(StageExpanded(now, action.stage, self._width(action.stage)))
            case Add():
                self._add(action)
            case LookUp():
                self._say(StageLookedUp(now, action.stage, action.stop))
            case Retry():
                self._say(RetriesDue(now, action.stage, action.tasks))
            case Grow():
                needs = action.resources, action.task, action.walltime_s, action.timeout_s
                self._say(StageGrown(now, action.stage, *needs, action.bounded))
            case Mold():
                self._say(action.chosen(now, self._waits_for))
            case Teach():
                wait = action.wait
                learned = wait.request.token, wait.stage, action.wait_s, wait.predicted_s, action.censored
                self._say(Learned(now, *learned))
            case Want():
                self._say(Wanted(now, action.task, action.count))
            case Finish():
                self._say(RunEnded(now, action.state, action.message, action.stage))
            case _:
                assert_never(action)

    def _waits_for(self, width: Width) -> float:
        (wait_s,) = self._predicts(width.resources, width.walltime_s, self.now, [None])
        return wait_s

    def _add(self, action: Add) -> None:
        """Of a stage that is expected to be followed by others like it, one by one, the next one."""
        spec, now = self._plan.stages[action.stage].spec, self.now
        if not spec.rounds or action.index:
            self._say(StagesAdded(now, action.stage, action.index))
            return
        name = f"{action.stage}[{action.index}].{spec.name.rpartition('.')[2]}"
        self._like[name] = self._like.get(action.stage, action.stage)
        more = replace(spec, name=name, expect=spec.rounds - 1, predecessors=(), alike=(), parts=(), lists=(), width=1)
        self._say(StagesAdded(now, action.stage, action.index, (more,), (name,)))

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _submit(self, action: Submit) -> None:
        now, ask = self.now, action.ask
        after = [self._jobs[key].handle for key in ask.after if key in self._jobs]
        request = job_request(action, after, (), self._context, "", now)
        index = sum(job.request.array == ask.array for job in self._jobs.values()) if ask.array else None
        handle = JobHandle(action.token, action.token, now, index)
        wait_s = self._wait(ask.resources, ask.walltime_s, now)
        job = _DrawnJob(request, handle, wait_s, None, tuple(each.token for each in after))
        job.since = now if self._ages(job) else None
        self._jobs[job.key] = self._open[job.key] = job
        predicted = ask.predicted_wait_s, ask.soon_wait_s
        self._say(Submitting(now, job.key, request, ask.stages, ask.after, *predicted, why=ask.why))
        self._say(Submitted(now, job.key, handle))

    def _ages(self, job: _DrawnJob) -> bool:
        """Whether it keeps its place in the queue while it waits for others."""
        regime = self._plan.site.regime
        aged = regime is QueueRegime.MULTIFACTOR and job.request.begin is not None
        return regime.dependents_age or aged or not job.after

    def _start_jobs(self) -> None:
        """Start those whose time has come, the ones that were there before this instant first: tasks may start in these
        before the others do. Of those that wait on, note when that will be."""
        due = {job.key: self._due(job) for job in list(self._open.values()) if job.state is JobState.PENDING}
        ready = [self._jobs[key] for key, at in due.items() if at is not None and at <= self.now]
        first = [job for job in ready if job.handle.submitted < self.now] or ready
        for job in first:
            self._begin(job)
        for key, at in due.items():
            if at is not None and self._jobs[key] not in first:
                self._at(at, lambda: None)

    def _due(self, job: _DrawnJob) -> float | None:
        """When it starts [s since the epoch], as things are; None while something but the queue holds it."""
        others = [self._jobs[key] for key in job.after]
        if any(other.state.final and other.state is not JobState.COMPLETED for other in others):
            self._say(JobEnded(self.now, job.key, JobState.CANCELLED, None, None, Reason.NEVER))
            self._close(job, JobState.CANCELLED)
            self._at(self.now, lambda: None)
            return None
        if job.parked or any(not other.state.final for other in others):
            return None
        if job.since is None:
            job.since = self.now
        if array := job.request.array:
            alike = [other for other in self._open.values() if other.request.array == array]
            running = sum(other.state is JobState.RUNNING for other in alike)
            first = next(other for other in alike if other.state is JobState.PENDING)
            if first is not job or running >= self._throttles.get(array, 1):
                return None
        most, site = self._plan.site.largest, self._plan.site
        if site.regime is QueueRegime.IMMEDIATE and most is not None:  # there are none but one's own jobs
            busy = sum(other.cores for other in self._open.values() if other.state is JobState.RUNNING)
            if busy and busy + job.request.resources.cores > most.cores:
                return None
        return max(job.since + job.wait_s, job.request.begin or -math.inf)

    def _begin(self, job: _DrawnJob) -> None:
        """It starts, and its nodes join after what that takes."""
        now, needs = self.now, job.request.resources
        job.state, job.started, job.cores = JobState.RUNNING, now, self._plan.site.charged(needs)
        per_node = self._plan.site.cores_per_node
        nodes = needs.nodes or (1 if needs.unit is not None or per_node is None else -(-needs.cores // per_node))
        names = [f"{job.key}/{number}" for number in range(nodes)]
        self._say(AllocationStarted(now, job.key, now, tuple(names), job.cores))
        self._at(now + self._start.fixed_s[nodes > 1], partial(self._join, job, names))
        self._at(now + job.request.walltime_s, partial(self._time_out, job))

    def _join(self, job: _DrawnJob, names: Sequence[str]) -> None:
        if job.state is JobState.RUNNING:
            job.free = job.request.resources.cores
            each, more = divmod(job.free, len(names))
            for number, name in enumerate(names):
                self._say(NodeJoined(self.now, job.key, name, each + (number < more)))

    def _time_out(self, job: _DrawnJob) -> None:
        if job.state is JobState.RUNNING:
            for (stage, index), end in list(job.running.items()):
                self._cut(job, stage, index, end)
            for stage, index in job.waiting:
                self._say(self._lost(job, stage, index, self.now))
            self._say(JobEnded(self.now, job.key, JobState.TIMEOUT, job.started, None, Reason.TIME_LIMIT, job.cores))
            self._close(job, JobState.TIMEOUT)

    def _cut(self, job: _DrawnJob, stage: str, index: int, end: float) -> None:
        """A task is under way when its job's wall time is over."""
        if not self._plan.stages[stage].spec.checkpoint:
            self._say(self._lost(job, stage, index, self.now))
            return
        left_s = self._left[stage, index] = end - self.now
        self._say(TaskPaused(self.now, stage, index, job.key, f"{job.key}/0", job.started, f"{left_s:.3f} s left"))

    def _lost(self, job: _DrawnJob, stage: str, index: int, started: float) -> TaskFailed:
        node = f"{job.key}/0"
        return TaskFailed(self.now, stage, index, job.key, node, started, "its job timed out", infrastructure=True)

    def _end(self, job: _DrawnJob, state: JobState) -> None:
        if not job.state.final:
            started = job.started if job.started < math.inf else None
            state = state if started is not None else JobState.CANCELLED
            self._say(JobEnded(self.now, job.key, state, started, 0, "", job.cores or None))
            self._close(job, state)

    def _close(self, job: _DrawnJob, state: JobState) -> None:
        job.state, job.ended = state, self.now
        job.running.clear()
        job.waiting.clear()
        del self._open[job.key]

    def _amend(self, action: Amend) -> None:
        now, job = self.now, self._jobs[action.allocation]
        size = action.resources, action.walltime_s
        change = Amending(now, job.key, action.after, action.throttle, action.parked, *size)
        self._say(change)
        if job.state is not JobState.PENDING and action.throttle is None:
            self._say(Amended(now, job.key, f"job {job.key} is {job.state.value}"))
            return
        job.request = change.changed(job.request)
        job.after = job.after if action.after is None else action.after
        job.parked = job.parked if action.parked is None else action.parked
        if action.throttle is not None:
            self._throttles[job.request.array] = action.throttle
        self._say(Amended(now, job.key))

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _launch(self, action: LaunchTasks) -> None:
        job = self._jobs[action.allocation]
        self._say(TasksLaunched(self.now, action.stage, action.ranges, action.allocation))
        job.waiting += [(action.stage, index) for start, stop in action.ranges for index in range(start, stop)]
        self._fill(job)

    def _fill(self, job: _DrawnJob) -> None:
        """Start tasks in turn, as there is room."""
        while job.waiting:
            stage, index = job.waiting[0]
            spec = self._plan.stages[stage].spec
            cores = spec.task.cores
            if cores > job.free and job.running:
                return
            job.waiting.popleft()
            job.free -= cores
            seconds = self._left.pop((stage, index), None)
            if seconds is None:
                seconds = self._takes(replace(spec, name=self._like.get(stage, stage)), index)
            end = self.now + seconds
            job.running[stage, index] = end
            self._at(end, partial(self._done, job, stage, index, cores, self.now))

    def _done(self, job: _DrawnJob, stage: str, index: int, cores: int, started: float) -> None:
        if job.running.pop((stage, index), None) is not None:
            job.free += cores
            self._say(TaskDone(self.now, stage, index, job.key, f"{job.key}/0", started))
            self._fill(job)
