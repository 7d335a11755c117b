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
from asa.core.view import StageView, WorkflowView
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
        self._job_ends: dict[str, float] = {}
        self._untaught: dict[str, Teach] = {}
        self._successors: dict[str, list[str]] = {}
        self._decisions: list[StrategyDecision] | None = None  # of the strategy, until something it looks at changes
        self._wake = math.inf

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
        if (held := self.pool.held.get(event.allocation)) is not None:
            held.drop((event.stage, event.index))
        stage = self.stages[event.stage]
        if event.infrastructure:
            stage.lose(event.index)
        else:
            self._blame(stage, event.index, _last_words(event), event.at)

    def _blame(self, stage: Progress, index: int, reason: str, now: float) -> None:
        """A task failed by its own fault: try again while it has retries left."""
        stage.failures[index] = failures = stage.failures.get(index, 0) + 1
        if failures > stage.spec.retries:
            stage.fail(reason, now)
        else:
            stage.lose(index)

    def _job_ended(self, event: JobEnded | SubmitRefused) -> None:
        held = self.pool.held.get(event.allocation)
        if held is None:
            return
        self._job_ends[event.allocation] = event.at
        for (name, index), (_, launched) in held.running.items():
            stage = self.stages[name]
            timed_out = isinstance(event, JobEnded) and event.state is JobState.TIMEOUT
            if timed_out and event.at - launched >= 0.9 * stage.spec.walltime_s:
                reason = f"task {index} ran for {brief(event.at - launched)} and reached the wall time: raise walltime="
                self._blame(stage, index, reason, event.at)
            else:
                stage.lose(index)
        if held.ending or held.useful:
            return
        for name in held.stages:
            self._count_barren(self.stages[name], held, event)

    def _count_barren(self, stage: Progress, held: Held, event: JobEnded | SubmitRefused) -> None:
        """An allocation ended by itself before it was of use: ask again, but not for ever."""
        if isinstance(event, SubmitRefused):
            what, hopeless = f"the batch system refused the job: {event.reason}", not held.after
        elif event.state is JobState.LOST and held.handle is None:
            return  # the driver died before it was submitted
        else:
            what = f"job {held.handle.job_id if held.handle else held.key} ended as {event.state.value}"
            what += f" ({event.reason})" if event.reason else ""
            what += f"; its output is in {held.request.output}" if held.request.output and held.started else ""
            by_dependency = bool(held.after) and held.started is None
            hopeless = event.state is JobState.CANCELLED and not by_dependency
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
        changes = [*self._expand(), *self._ask(now), *self._let_go(now)]
        # Tasks come in the next round, when it is settled which allocations stay.
        return changes or [*self._launch(now), *self._conclude(), *teach]

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""
        times = [self._wake]
        for held in self.pool.held.values():
            if held.released is not None:
                if held.cancelled is None:
                    times.append(held.released + UNRESPONSIVE_S)
            elif held.drains is not None and held.cancelled is None:
                times.append(held.drains)
        return min((time for time in times if time > now), default=math.inf)

    def view(self, now: float) -> WorkflowView:
        """What the strategy sees."""
        meant: dict[str, list[Held]] = {}
        for held in self.pool.held.values():
            for name in held.stages:
                meant.setdefault(name, []).append(held)
        return WorkflowView(
            now=now,
            stages=tuple(
                StageView(
                    spec=stage.spec,
                    state=stage.state,
                    allocations=tuple(held.view(now) for held in meant.get(name, ())),
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
        if held.handle is None or held.started is None or held.requeued:
            return
        wait = max(0.0, held.started - held.handle.submitted)
        last = max((self._job_ends[key] for key in held.after if key in self._job_ends), default=-math.inf)
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
            self._wake = min((item.at for item in self._decisions if isinstance(item, Wake)), default=math.inf)
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
                    if held is not None and not held.running and not held.ending:
                        yield Cancel(decision.allocation, decision.reason)

    def _let_go(self, now: float) -> Iterator[Action]:
        """Release allocations whose work is done, cancel pending ones nobody needs any more."""
        over = self.outcome is not RunState.RUNNING or bool(self.cancelling)
        for held in self.pool.held.values():
            if held.cancelled is not None:
                continue
            if held.released is not None:
                if now >= held.released + UNRESPONSIVE_S:
                    yield Cancel(held.key, "it was released and did not end")
                continue
            wanted = not over and not all(self.stages[name].state.final for name in held.stages)
            live = not over and any(not self.stages[name].state.final for name, _ in held.running)
            if live or (wanted and not held.leaving(now)):
                continue
            if held.started is not None:
                yield Release(held.key)  # its supervisor, which may yet join, ends it with code 0: dependants start
            elif held.handle is not None and (over or not self._depended_on(held)):
                yield Cancel(held.key, "no stage needs it any more")

    def _depended_on(self, held: Held) -> bool:
        """Whether cancelling a job would take others with it, which have their place in the queue through it."""
        return any(held.key in other.after for other in self.pool.held.values() if not other.ending)

    def _launch(self, now: float) -> list[Action]:
        """Fill every core first; only when all are busy let short tasks queue up in the allocations."""
        return self._fill(now, ahead=False) or self._fill(now, ahead=True)

    def _fill(self, now: float, *, ahead: bool) -> list[Action]:
        """Launches that use each allocation at most once, its own stages first."""
        launches: list[Action] = []
        used: set[str] = set()
        held = [item for item in self.pool.held.values() if item.nodes and not item.leaving(now)]
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
