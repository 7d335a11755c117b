"""The plan of a run: a state machine without I/O.

`Plan.on` folds an event into the state and decides nothing; `Plan.decide` looks at the state and returns what should be
done, changing nothing. Every action, once done, comes back as an event. So a run can be replayed from its log by
folding alone, and the same plan runs on real clocks and in virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from asa.core.decision import Ask, Predict, StrategyDecision, Wake, Withdraw
from asa.core.event import (
    AllocationStarted,
    CancelAsked,
    DriverStarted,
    Event,
    JobEnded,
    Learned,
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
)
from asa.core.job import Capabilities, DependencyKind, JobState, QueueRegime
from asa.core.ports import Strategy
from asa.core.stage import StageState
from asa.core.units import brief
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.pool.lifetime import takes
from asa.pool.pool import Held, Pool
from asa.workflows.action import Action, AskWait, Cancel, Expand, Finish, Launch, Release, Submit, Teach
from asa.workflows.progress import BARREN_MOST, Progress

UNRESPONSIVE_S = 30.0
"""How long a released job may take to end before it is cancelled [s]."""

_DONE_STEPS = 20  # how often in the life of a stage the strategy looks at its progress


class Plan:
    """State of one run.

    Parameters
    ----------
    strategy
        Decides when to ask for which allocation.
    site
        What matters of the backend.
    shared
        Whether a ready task may run in any allocation with room; otherwise only in one meant for its stage.
    """

    def __init__(self, strategy: Strategy, site: Capabilities, *, shared: bool = True) -> None:
        self.strategy, self.site, self.shared = strategy, site, shared
        self.run = ""
        self.stages: dict[str, Progress] = {}
        self.pool = Pool()
        self.outcome: RunState = RunState.RUNNING
        self.message = ""
        self.cancelling = ""
        self.asked = 0
        self._ends: dict[str, JobEnded] = {}
        self._untaught: dict[str, Teach] = {}
        self._successors: dict[str, list[str]] = {}
        self._decisions: list[StrategyDecision] | None = None  # of the strategy, until something it looks at changes
        self._wake = math.inf  # when to ask it again although nothing changed

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left."""
        return self.outcome is not RunState.RUNNING and not self.pool.held

    # ---------------------------------------------------------------- folding

    def on(self, event: Event) -> None:
        """Fold one event into the state."""
        match event:
            case TaskDone():
                self._task_done(event)
                return
            case TasksLaunched():
                self._tasks_launched(event)
            case TaskFailed():
                self._task_failed(event)
            case JobEnded() | SubmitRefused():
                self._job_ended(event)
            case RunStarted():
                self._run_started(event)
            case DriverStarted():
                self._driver_started(event)
            case StageExpanded():
                self.stages[event.stage].width = event.width
            case StageFailed():
                self.stages[event.stage].fail(event.reason, event.at)
            case Predicted():
                self.stages[event.stage].predicted_wait_s = event.wait_s
            case Submitting():
                self.asked += 1
                for name in event.stages:
                    self.stages[name].attempts += 1
                    self.stages[name].predicted_wait_s = None
            case CancelAsked():
                self.cancelling = event.reason
            case Learned():
                self._untaught.pop(event.allocation, None)
            case RunEnded():
                self.outcome, self.message = event.state, event.message
        self.pool.on(event)
        if isinstance(event, AllocationStarted) and (held := self.pool.held.get(event.allocation)):
            self._note_wait(held)
        self._decisions = None
        self._settle(event.at)

    def _run_started(self, event: RunStarted) -> None:
        self.run = event.run
        for spec in event.stages:
            self.stages[spec.name] = Progress(spec, spec.width)
            for before in spec.predecessors:
                self._successors.setdefault(before, []).append(spec.name)

    def _driver_started(self, event: DriverStarted) -> None:
        """Workers are fresh: what ran runs again. Stages that failed get another go."""
        for held in self.pool.held.values():
            for stage, index in held.running:
                self.stages[stage].lose(index)
        self.pool.forget_nodes()
        self.outcome, self.message, self.cancelling = RunState.RUNNING, "", ""
        for progress in self.stages.values():
            progress.reopen()

    def _tasks_launched(self, event: TasksLaunched) -> None:
        stage, held = self.stages[event.stage], self.pool.held.get(event.allocation)
        for start, stop in event.ranges:
            stage.launch(start, stop, event.at)
            for index in range(start, stop):
                if held is None:
                    stage.lose(index)
                else:
                    held.take((event.stage, index), stage.spec.task, event.at)

    def _task_done(self, event: TaskDone) -> None:
        stage = self.stages[event.stage]
        if (held := self.pool.held.get(event.allocation)) is not None:
            held.drop((event.stage, event.index))
            held.useful = True
        stage.finish(event.index, event.at - event.started, event.at)
        if stage.state.final or stage.done % max(1, (stage.width or 0) // _DONE_STEPS) == 0:
            self._decisions = None
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

    def _job_ended(self, event: JobEnded | SubmitRefused) -> None:
        held = self.pool.held.get(event.allocation)
        if held is None:
            return
        for (name, index), (_, launched) in held.running.items():
            self.stages[name].lose(index)
            held.lost[name, index] = launched, event.at
        if isinstance(event, JobEnded):
            self._ends[event.allocation] = event
            if event.state is JobState.TIMEOUT:
                self._blame_longest(held, event.at)
        drained = held.released is not None and held.drains is not None and held.released >= held.drains
        if held.useful or (held.ending and not drained) or self._went_with_another(held, event):
            return
        # Stages further on are skipped with the one that fails, unless the job was theirs alone.
        stages = [self.stages[name] for name in held.stages]
        started = [stage for stage in stages if stage.state is not StageState.WAITING]
        for stage in started or (() if drained else stages):
            self._count_barren(stage, held, event)

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
        cancelled = isinstance(event, JobEnded) and event.state is JobState.CANCELLED
        if not held.after or held.started is not None or not (refused or cancelled):
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
            hopeless = event.state is JobState.CANCELLED and not held.ending
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

    # --------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[Action]:
        """What should be done now."""
        if self.outcome is not RunState.RUNNING or self.cancelling:
            return [*self._conclude(), *self._let_go(now), *self._untaught.values()]
        # Where there is no queue, learning waits until the result is out: it costs more than the whole of a short run.
        teach = () if self.site.regime is QueueRegime.IMMEDIATE else self._untaught.values()
        # Jobs come in the round after widths are known, tasks in the one after it is settled which allocations stay.
        changes = [*self._expand()] or [*self._ask(now), *self._let_go(now)]
        return changes or [*self._launch(now), *self._conclude(), *teach]

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""
        released = [held.released for held in self.pool.held.values() if held.released and held.cancelled is None]
        times = [self._wake, *(time + UNRESPONSIVE_S for time in released)]
        return min((time for time in times if time > now), default=math.inf)

    def view(self, now: float) -> WorkflowView:
        """What the strategy sees."""
        meant: dict[str, list[AllocationView]] = {}
        for held in self.pool.held.values():
            item = held.view(now)
            for name in held.stages:
                meant.setdefault(name, []).append(item)
        return WorkflowView(
            now=now,
            stages=tuple(
                StageView(
                    spec=stage.spec,
                    state=stage.state,
                    allocations=tuple(meant.get(name, ())),
                    started=stage.started,
                    ended=stage.ended,
                    expected_end=stage.expected_end(now),
                    predicted_wait_s=stage.predicted_wait_s,
                    attempts=stage.attempts,
                    unlaunched=stage.unlaunched > 0 or stage.state is StageState.WAITING or stage.width is None,
                )
                for name, stage in self.stages.items()
            ),
            regime=self.site.regime,
            dependencies=DependencyKind.AFTER_OK in self.site.dependencies,
            longest_s=math.inf if self.site.longest_s is None else self.site.longest_s,
        )

    def _note_wait(self, held: Held) -> None:
        """A job's wait became known: to be taught."""
        if held.handle is None or held.started is None or held.requeued or held.taught:
            return
        wait = max(0.0, held.started - held.handle.submitted)
        last = max((self._ends[key].at for key in held.after if key in self._ends), default=-math.inf)
        # A dependency that held the job to its very start says nothing of the queue.
        was_held = last > held.handle.submitted and held.started - last <= max(10.0, 0.05 * wait)
        self._untaught[held.key] = Teach(held.request, held.stages[0], wait, held.predicted_wait_s, was_held)

    def _expand(self) -> Iterator[Action]:
        for name, stage in self.stages.items():
            if stage.state is StageState.READY and stage.width is None:
                yield Expand(name)

    def _ask(self, now: float) -> Iterator[Action]:
        if self._decisions is None or now >= self._wake:
            self._decisions = list(self.strategy.decide(self.view(now)))
            wakes = [item.at for item in self._decisions if isinstance(item, Wake)]
            drains = [held.drains for held in self.pool.held.values() if held.drains is not None and held.drains > now]
            self._wake = min([*wakes, *drains], default=math.inf)
        number = self.asked
        for decision in self._decisions:
            match decision:
                case Ask():
                    before = [self.pool.held.get(key) for key in decision.after]
                    if all(held is None or held.handle is not None for held in before):
                        yield Submit(f"{self.run}.{number}", decision)
                        number += 1
                case Predict():
                    yield AskWait(decision.stage)
                case Withdraw():
                    held = self.pool.held.get(decision.allocation)
                    if held is not None and held.handle and not held.running and not held.ending:
                        yield Cancel(decision.allocation, decision.reason)

    def _let_go(self, now: float) -> Iterator[Action]:
        """Release allocations whose work is done, cancel pending ones nobody needs any more."""
        over = self.outcome is not RunState.RUNNING or bool(self.cancelling)
        for held in self.pool.held.values():
            if held.cancelled is not None or held.handle is None:
                continue
            if held.released is not None:
                if now >= held.released + UNRESPONSIVE_S:
                    yield Cancel(held.key, "it was released and did not end")
                continue
            wanted = not over and not all(self.stages[name].state.final for name in held.stages)
            live = not over and any(not self.stages[name].state.final for name, _ in held.running)
            if live or (wanted and not held.leaving(now) and not self._is_spent(held, now)):
                continue
            if held.started is not None:
                yield Release(held.key)  # its supervisor, which may yet join, ends it with code 0: dependants start
            elif over or not self._depended_on(held):
                yield Cancel(held.key, "no stage needs it any more")

    def _depended_on(self, held: Held) -> bool:
        """Whether cancelling a job would take others with it, which have their place in the queue through it."""
        return any(held.key in other.after for other in self.pool.held.values() if not other.ending)

    def _is_spent(self, held: Held, now: float) -> bool:
        """Whether an idle allocation has too little time left for any task that its stages wait with."""
        if held.running or not held.nodes or not held.useful:
            return False
        left = [stage for name in held.stages if not (stage := self.stages[name]).state.final]
        return all(stage.unlaunched and not self._may_take(held, stage.spec.name, stage, now) for stage in left)

    def _launch(self, now: float) -> list[Action]:
        """Fill every core first; only when all are busy let short tasks queue up in the allocations."""
        return self._fill(now, ahead=False) or self._fill(now, ahead=True)

    def _fill(self, now: float, *, ahead: bool) -> list[Action]:
        """Launches that use each allocation at most once, its own stages first."""
        launches: list[Action] = []
        used: set[str] = set()
        held = [item for item in self.pool.held.values() if item.nodes and item.ends and not item.leaving(now)]
        for name, stage in self.stages.items():
            if not stage.unlaunched:
                continue
            takers = [item for item in held if item.key not in used and self._may_take(item, name, stage, now)]
            takers.sort(key=lambda item: name not in item.stages)
            given = 0
            for position, item in enumerate(takers):
                waiting = stage.unlaunched - given
                count = min(waiting, item.room(stage.spec.task, stage.ahead if ahead else 0.0))
                if ahead:
                    count = min(count, math.ceil(waiting / (len(takers) - position)))
                if count:
                    launches.append(Launch(name, stage.next_ranges(count, given), item.key))
                    used.add(item.key)
                    given += count
        return launches

    def _may_take(self, held: Held, name: str, stage: Progress, now: float) -> bool:
        if not self.shared and name not in held.stages:
            return False
        assert held.ends is not None
        return takes(stage.longest_s, now, held.ends, held.request.walltime_s)

    def _conclude(self) -> Iterator[Action]:
        if self.outcome is not RunState.RUNNING:
            return
        if self.cancelling:
            yield Finish(RunState.CANCELLED, self.cancelling)
        elif all(stage.state.final for stage in self.stages.values()):
            failed = [name for name, stage in self.stages.items() if stage.state is StageState.FAILED]
            if not failed:
                yield Finish(RunState.SUCCEEDED)
                return
            skipped = [name for name, stage in self.stages.items() if stage.state is StageState.SKIPPED]
            message = "\n".join(f"stage {name!r} failed: {self.stages[name].error}" for name in failed)
            message += f"\nskipped because of it: {', '.join(skipped)}" if skipped else ""
            yield Finish(RunState.FAILED, message, failed[0])


def _last_words(event: TaskFailed) -> str:
    """What to tell of a failed task."""
    text = f"task {event.index} on node {event.node}: {event.error}"
    if event.traceback:
        text += "\n" + event.traceback.rstrip()
    if event.stderr.strip():
        text += "\nlast lines of standard error:\n" + event.stderr.rstrip()
    return text
