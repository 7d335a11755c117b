"""The runner: carries out what the plan decides, and reports to it what happened.

It is a loop around three steps: take the events that came in, log them, fold them into the plan; then do what the plan
decides, logging what is about to be done *before* it is done. Whatever is in the log can be resumed. Only a lesson is
given first: each job teaches once, however often that is tried."""

from __future__ import annotations

import logging
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from asa.allocations.watch import JobWatch
from asa.core.allocation import Allocation
from asa.core.clock import SystemClock
from asa.core.decision import Amend, Cancel, Predict
from asa.core.errors import AsaError, InvalidInput, StateError
from asa.core.event import (
    REPLACED,
    AllocationStarted,
    Amended,
    Amending,
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    ExpectationMissed,
    HoldAsked,
    JobEnded,
    Learned,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Predicted,
    Released,
    Requeued,
    ResultsLost,
    RetriesDue,
    RunEnded,
    StageExpanded,
    StageFailed,
    StageGrown,
    StageLookedUp,
    StagesAdded,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskFailed,
    TaskPaused,
    TaskResult,
    TasksKept,
    TasksLaunched,
    Trouble,
    Wanted,
    WidthChosen,
)
from asa.core.job import Capabilities, Dependency, JobChanges, JobHandle, JobRequest, JobState, Resources, queue_name
from asa.core.ports import Clock, Executor, RunContext, Sharing
from asa.core.queues import QueueTerms
from asa.core.run import FoldedRun, Held, Pool, StageProgress
from asa.core.stage import Width
from asa.core.task import PAUSED, Task
from asa.workflows.learned import Contexts, Queues, WaitBook
from asa.workflows.plan import (
    Action,
    Add,
    Expand,
    Finish,
    Grow,
    LaunchTasks,
    LookUp,
    Mold,
    Release,
    Retry,
    Submit,
    Teach,
    Want,
)
from asa.workflows.reuse import Reuse


class Inbox:
    """Filled from any thread, emptied by the runner; `signal` is set while there is something in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._logged: list[Callable[[], None]] = []
        self.signal = threading.Event()

    def post(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        """Hand events over, and what to call once they are logged; returns at once."""
        with self._lock:
            self._events.extend(events)
            if logged is not None:
                self._logged.append(logged)
        self.signal.set()

    def take(self) -> tuple[list[Event], list[Callable[[], None]]]:
        """All events that have come in since the last call, and what to call once they are logged."""
        with self._lock:
            self.signal.clear()
            events, self._events = self._events, []
            logged, self._logged = self._logged, []
        return events, logged


CLOSING_S = 60.0
"""How long a run whose outcome is known waits for its jobs to end [s]; `asa clean` finds those that did not."""

ENDING_S = 0.25
"""How long a job takes to end, about, once it is released [s]: before that there is no point in asking for it."""

LATEST_S = 600.0
"""How long it waits where the batch system has not yet taken a cancellation [s]: a parked job never ends by itself."""

_LOOK_S = 0.05
_LEAST_S = 0.001

_ANSWER_S = 10.0
"""How long a driver that is to hand over waits for the batch system's answers [s]."""

_ABANDON_S = 10.0
"""How long a run whose directory is gone waits for the cancellation of its jobs [s]."""

ROUNDS_MOST = 10_000

_log = logging.getLogger(__name__)


class Decider(Protocol):
    """What the runner asks of a plan: fold what happened, say what is to be done; neither does the other's work."""

    @property
    def pool(self) -> Pool:
        """Allocations that have not ended."""

    @property
    def stages(self) -> Mapping[str, StageProgress]:
        """What it names in `LaunchTasks` and `Predict`, by name."""

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left."""

    def on(self, event: Event) -> None:
        """Fold an event, which is in the log by now."""

    def spoiled(self) -> tuple[tuple[str, int], ...]:
        """Tasks, as (stage, index), that are done with what stood for results which may yet come, and what follows."""

    def decide(self, now: float) -> Sequence[Action]:
        """What should be done now [s since the epoch]; asked again until that is nothing."""

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]; infinite when there is no need."""


class Log(Protocol):
    """What the runner needs of the event log."""

    def append(self, events: Sequence[Event]) -> None: ...


class TaskMaker(Protocol):
    """What the runner needs of the workflow's payloads."""

    def width(self, name: str) -> int: ...
    def task(self, name: str, index: int, resources: Resources) -> Task: ...


Effect = Callable[[], None]


@dataclass
class Runner:
    """One run, driven to its end on the caller's thread.

    Parameters
    ----------
    plan
        Decides; has folded what an earlier driver logged.
    payloads
        Makes the tasks.
    executor, watch
        Run tasks; look after jobs. Both post to `inbox`.
    log
        Where every event goes first.
    waits
        What has been learned about the queue.
    context
        The run, for the executor.
    outputs
        Directory for the jobs' output files.
    reuse
        Finds results of earlier runs, and tells later ones of this run's; None where neither is of use.
    site, terms, patience
        What is known of the queues that jobs may go to, prices and risks as the user said them, and what an hour of the
        user's time is worth [core-hours].
    add
        Says which stages a task, by stage and index, adds to the run, at a time [s since the epoch]; None where none
        does.

    Attributes
    ----------
    decided
        Set once the outcome is known, or this driver has let go of the run.
    handed_over
        Whether it has let go for another driver, which waits.
    """

    plan: Decider
    payloads: TaskMaker
    executor: Executor
    watch: JobWatch
    log: Log
    waits: WaitBook
    clock: Clock
    context: RunContext
    outputs: str
    inbox: Inbox = field(default_factory=Inbox)
    reuse: Reuse | None = None
    site: Capabilities = field(default_factory=lambda: Capabilities(""))
    terms: QueueTerms = field(default_factory=QueueTerms)
    patience: float | None = None
    add: Callable[[str, int, float], StagesAdded] | None = None
    decided: threading.Event = field(default_factory=threading.Event)
    handed_over: bool = False
    _deadline: float = math.inf
    _leaving: bool = False
    _joined: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._contexts = Contexts(self.plan.pool, self.watch.seen)
        self._queues = Queues(self.plan, self.site, self.waits, self._contexts, self.terms, self.patience)

    def start_executor(self) -> None:
        """Begin to listen for nodes. On real clocks the first job may be on its way already."""
        self.executor.start(self.context, self.inbox.post)

    def run(self) -> None:
        """Drive the plan until its outcome is known and its jobs have ended, or until `leave`.

        When the program ends first, the jobs that are left need only have been asked to end.

        Raises
        ------
        StateError
            When the log cannot be written; the run can be resumed once it can.
        """
        try:
            self._drive()
        except StateError as error:
            if self.context.directory.is_dir():
                raise
            self._abandon()
            raise StateError(
                f"run {self.context.run}: its folder {self.context.directory} was deleted or moved while it ran, so "
                "nothing that it does can be kept; its jobs are cancelled: run the workflow again"
            ) from error

    def _abandon(self) -> None:
        """Cancel what is left of a run that cannot be resumed, as far as that goes."""
        self.watch.withdraw()
        for item in list(self.plan.pool.held.values()):
            try:
                self._release(item.key)
            except (AsaError, OSError) as error:
                _log.warning("job %s could not be released: %s", item.key, error)
        if isinstance(self.clock, SystemClock):
            until = self.clock.now() + _ABANDON_S
            while self.watch.busy and self.clock.now() < until:
                time.sleep(_LOOK_S)

    def _drive(self) -> None:
        self._adopt()
        while True:
            now = self._act()
            if now is not None:
                until = self.plan.wake_at(now)
                if self.decided.is_set():
                    deadline = self._deadline + (LATEST_S - CLOSING_S if self.watch.busy else 0.0)
                    until = min(until, deadline)
                    if self.plan.closed or now >= deadline or self._may_leave():
                        return
                    if isinstance(self.clock, SystemClock):
                        until = min(until, now + _LOOK_S)
                if self.reuse is not None:
                    until = min(until, now + self.reuse.tend())
                self.clock.wait(self.inbox.signal, until)
            if self._leaving and not self.handed_over:
                return
            events, logged = self.inbox.take()
            self._record(self._with_kept(events))
            if self._leaving:
                return
            for call in logged:
                call()

    def _may_leave(self) -> bool:
        """Whether the program has ended, and what is left ends by itself: its nodes know, or its job is cancelled."""
        if threading.main_thread().is_alive() or self.watch.busy:
            return False
        left = [item for item in self.plan.pool.held.values() if not item.lender]
        for item in left:
            all_know = self.context.pool is None or (item.nodes and item.nodes.keys() >= item.hosts.keys())
            if item.cancelled is None and (item.released is None or not all_know):
                return False
        for item in left:
            if item.released is not None and item.key not in self._joined:
                with suppress(InvalidInput):  # the executor did not start
                    self.executor.release(item.key)
        names = ", ".join(item.handle.job_id if item.handle else item.key for item in left)
        _log.info("the program ends; jobs %s end by themselves", names)
        return True

    def cancel(self, reason: str) -> None:
        """Ask for the end of the run; may be called from any thread."""
        self.inbox.post([CancelAsked(self.clock.now(), reason)])

    def hold(self, held: bool) -> None:
        """Ask that nothing new is submitted or launched, or that it may be again; may be called from any thread."""
        self.inbox.post([HoldAsked(self.clock.now(), held)])

    def leave(self) -> None:
        """Stop driving it, whatever its state, as if this process had died; may be called from any thread."""
        self._leaving = True
        self.inbox.signal.set()

    def hand_over(self, to: str) -> None:
        """As `leave`, for a driver that waits, of the generation in these words; from any thread but the run's own.

        What the batch system has been asked for is known first, if it answers soon.
        """
        if not to.isdecimal() or int(to) <= self.context.generation or self.decided.is_set():
            return
        _log.info("the run is handed over to driver %s", to)
        until = self.clock.now() + _ANSWER_S
        while self.watch.busy and self.clock.now() < until:
            time.sleep(_LOOK_S)
        self.handed_over = True
        self.leave()

    def _adopt(self) -> None:
        """Take over whatever an earlier driver of this run left."""
        self._record([DriverStarted(self.clock.now(), os.getpid(), socket.gethostname(), keeps=True)])
        if spoiled := self.plan.spoiled():
            self._record([ResultsLost(self.clock.now(), spoiled, "what it was made of had failed, and is tried again")])
        for item in list(self.plan.pool.held.values()):
            if item.unseen:
                self._record(self._with_kept(self.executor.recover(self._unseen(item), item.key, self.context)))
        held = self.plan.pool.held.values()
        self.watch.adopt(
            {item.key: item.handle for item in held if item.handle is not None},
            {item.key: item.asked for item in held if item.handle is None},  # of leases none is left
            {item.key for item in held if item.started is not None},
            {item.key for item in held if item.gated},
        )
        for item in held:  # logged before it was done, so it may not have been
            if item.cancelled is not None and item.handle is not None:
                self.watch.cancel(item.handle)

    def _with_kept(self, events: Sequence[Event]) -> list[Event]:
        """These events; before the end of a job whose nodes never found this driver, what they have kept.

        What takes a task with checkpoints along does not end it: that is a pause.
        """
        found: list[Event] = []
        for event in events:
            if isinstance(event, TaskFailed) and event.infrastructure and self.plan.stages[event.stage].spec.checkpoint:
                found.append(self._paused(event))
                continue
            if isinstance(event, JobEnded | LeaseEnded) and (held := self.plan.pool.held.get(event.allocation)):
                if held.unseen and held.key not in {each.allocation for each in found if isinstance(each, TasksKept)}:
                    found += self._with_kept(self.executor.recover(self._unseen(held), held.key, self.context))
                ended = {(each.stage, each.index) for each in found if isinstance(each, TaskFailed | TaskPaused)}
                ended |= {(result.stage, result.task) for each in found for result in each.results}
                found += self._cut_off(held, event, ended)
            found.append(event)
        return found

    def _cut_off(self, held: Held, event: JobEnded | LeaseEnded, ended: Collection[tuple[str, int]]) -> Iterator[Event]:
        """Tasks with checkpoints that ran when their allocation ended, but for those that `ended` just before."""
        node = next(iter(held.hosts), "")
        for (stage, index), (_, launched) in held.running.items():
            if self.plan.stages[stage].spec.checkpoint and (stage, index) not in ended:
                began, reason = held.runs_since(launched, event.at), event.reason or "its allocation ended"
                lost = "" if isinstance(event, JobEnded) and event.state is JobState.TIMEOUT else reason
                failed = TaskFailed(event.at, stage, index, held.key, node, began, lost, cause="" if lost else PAUSED)
                yield self._paused(failed)

    def _paused(self, event: TaskFailed) -> TaskPaused:
        """The same for a task that goes on, with what it has saved by now."""
        from asa.log.running import progress  # here: few runs have such tasks

        saved = ""
        with suppress(InvalidInput, StateError, KeyError):  # it is said when the task is launched again
            task = self.payloads.task(event.stage, event.index, self.plan.stages[event.stage].spec.task)
            saved = "" if task.checkpoints is None else progress(task.checkpoints.directory)
        lost, began = "" if event.cause == PAUSED else event.error, event.started
        held = self.plan.pool.held.get(event.allocation)
        if began >= event.at and held is not None and (key := (event.stage, event.index)) in held.running:
            began = held.runs_since(held.running[key][1], event.at)  # not known of a lost node
        return TaskPaused(event.at, event.stage, event.index, event.allocation, event.node, began, saved, lost)

    def _record(self, events: Sequence[Event]) -> None:
        """Log events, then fold them."""
        if not events:
            return
        self.log.append(events)
        debug = _log.isEnabledFor(logging.DEBUG)
        for event in events:
            if debug:
                _log.debug("event %s", event)
            _note(event)
            self.plan.on(event)
            if (result := event.result) is not None:
                if self.plan.stages[result.stage].spec.checkpoint:
                    self._forget_checkpoints(result)
                if self.reuse is not None:
                    self.reuse.done(result)
            elif isinstance(event, NodeJoined):
                self._welcome(event.allocation)
            elif isinstance(event, Trouble) and event.error == REPLACED:  # by one that may have died before it began
                raise StateError(f"run {self.context.run}: {REPLACED}, and this one ends: asa attach shows the run")
            elif isinstance(event, Released):
                self.watch.hurry(ENDING_S)
            elif isinstance(event, Cancelled):
                self.watch.hurry()
            elif isinstance(event, JobEnded):
                self._release(event.allocation)
            elif isinstance(event, RunEnded):
                self._deadline = event.at + CLOSING_S
                self.watch.wind_up()
                if self.reuse is not None:  # the next run may be started as soon as this one's outcome is known
                    self.reuse.flush()
                self.decided.set()

    def _welcome(self, allocation: str) -> None:
        """A node has joined; it leaves again if its allocation was released, or its job has ended, before it came."""
        first = allocation not in self._joined
        self._joined.add(allocation)
        self.watch.hurry()
        held = self.plan.pool.held.get(allocation)
        if held is None or held.released is not None:
            self._release(allocation)
        elif first:
            tasks = self._unseen(held)
            self.executor.adopt(tasks, allocation, held.away)
            if held.unseen and not tasks:  # what they were called with is not there any more
                self.inbox.post([TasksKept(self.clock.now(), allocation, ())])

    def _forget_checkpoints(self, result: TaskResult) -> None:
        """A task is done, and in the log as that: what it has saved on the way is of no more use."""
        with suppress(InvalidInput, StateError, KeyError):
            task = self.payloads.task(result.stage, result.task, self.plan.stages[result.stage].spec.task)
            if task.checkpoints is not None:
                shutil.rmtree(task.checkpoints.directory, ignore_errors=True)

    def _unseen(self, held: Held) -> list[Task]:
        """What an earlier driver gave to an allocation, and was not reported."""
        tasks: list[Task] = []
        for stage, index in held.unseen:
            with suppress(InvalidInput, StateError, KeyError):  # it is said when the task is launched, or runs again
                spec, guest = self.plan.stages[stage].spec, (stage, index) in held.guests
                task = self.payloads.task(stage, index, spec.task)
                tasks.append(replace(task, shares=bool(spec.shares) and not guest, guest=guest))
        return tasks

    def _release(self, allocation: str) -> None:
        if allocation in self._joined:  # otherwise when it joins; until one has, the executor may still be starting
            self.executor.release(allocation)

    def _act(self) -> float | None:
        """Do what the plan decides, until that is nothing; as of when it does [s since the epoch].

        What was due after that has not been looked at, however long the effects took. None if something came in between
        two lessons: a store on a slow disk takes long for each, and nodes are not kept waiting for all of them.
        """
        for _ in range(ROUNDS_MOST):
            now = self.clock.now()
            actions = self.plan.decide(now)
            if not actions:
                return now
            if _log.isEnabledFor(logging.DEBUG):
                for action in actions:
                    _log.debug("action %s", action)
            # Allocations are charged for until they are released; to make up a request may take a while.
            self._carry_out([action for action in actions if isinstance(action, Release)])
            self._carry_out([action for action in actions if not isinstance(action, Release | Teach)])
            for action in actions:
                if isinstance(action, Teach):
                    self._carry_out([action])
                    if self.inbox.signal.is_set():
                        return None
        raise AssertionError("the plan keeps deciding the same: " + repr(actions[:3]))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        """Log what is about to be done, and do it."""
        steps = [self._perform(action, actions) for action in actions]
        events = [event for event, _ in steps]
        if isinstance(self.plan, FoldedRun):
            events += [missed for event in events if (missed := self.plan.missed(event)) is not None]
        self._record(events)
        if requests := [event.request for event in events if isinstance(event, Submitting)]:
            self.watch.submit(requests)  # together: elements of a job array are submitted as one
        for _, effect in steps:
            effect()

    def _perform(self, action: Action, actions: Sequence[Action]) -> tuple[Event, Effect]:
        """What to log of one of these actions, and what to do once that is logged."""
        now = self.clock.now()
        match action:
            case Submit():
                return self._submit(action, actions, now)
            case LaunchTasks():
                return self._launch(action, now)
            case Release():
                return Released(now, action.allocation, action.reason), lambda: self._release(action.allocation)
            case Cancel():
                handle = self.plan.pool.held[action.allocation].handle
                return (
                    Cancelled(now, action.allocation, action.reason, action.displaced),
                    _nothing if handle is None else lambda: self.watch.cancel(handle),
                )
            case Amend():
                return self._amend(action, now)
            case Expand():
                try:
                    return StageExpanded(now, action.stage, self.payloads.width(action.stage)), _nothing
                except InvalidInput as error:
                    return StageFailed(now, action.stage, str(error)), _nothing
            case Add():
                assert self.add is not None, "only tasks of a workflow add stages to it"
                return self.add(action.stage, action.index, now), _nothing
            case LookUp():
                return self._look_up(action, now), _nothing
            case Retry():
                return RetriesDue(now, action.stage, action.tasks), _nothing
            case Grow():
                return self._grow(action, now), _nothing
            case Mold():
                return self._mold(action, now), _nothing
            case Predict():
                return self._predict(action, now), _nothing
            case Teach():
                return self._teach(action, now), _nothing
            case Want():
                return Wanted(now, action.task, action.count), lambda: self._want(action)
            case Finish():
                return RunEnded(now, action.state, action.message, action.stage), _nothing

    def _grow(self, action: Grow, now: float) -> Event:
        needs = action.resources, action.task, action.walltime_s, action.timeout_s
        return StageGrown(now, action.stage, *needs, action.bounded)

    def _mold(self, action: Mold, now: float) -> Event:
        def wait_s(width: Width) -> float:
            (found,) = self._queues.predict(width, [action.stage], now, [None], by_plan=not action.estimated)
            return found

        return action.chosen(now, wait_s)

    def _predict(self, action: Predict, now: float) -> Event:
        spec = self.plan.stages[action.stage].spec
        quantiles = [action.late] if action.soon is None else [action.soon, action.late]
        *soon, late = self._queues.predict(spec, [action.stage], now, quantiles)
        return Predicted(now, action.stage, late, *soon)

    def _submit(self, action: Submit, actions: Sequence[Action], now: float) -> tuple[Event, Effect]:
        ask, held = action.ask, self.plan.pool.held
        handles = [held[key].handle for key in ask.after if key in held]
        program = self.executor.bootstrap(Allocation(action.token, ask.resources, ask.walltime_s), self.context)
        after = [handle for handle in handles if handle is not None]
        alike = [
            other.ask for other in actions if isinstance(other, Submit) and ask.array and other.ask.array == ask.array
        ]
        request = job_request(action, after, program, self.context, self.outputs, now)
        request, second, why = replace(request, queue=action.queue), None, ask.why
        if action.instead:
            why = f"queue {queue_name(request.options)}, beside {action.instead}: what starts first is used"
        elif (choice := self._queues.choose(ask, ask.stages, now, alike, ask.array)) is not None:
            request, why = replace(request, queue=choice.ranked[0]), "; ".join(filter(None, (why, choice.why)))
            is_bound = ask.array or ask.after or ask.delay_s or ask.lives_s is not None
            second = None if is_bound else self._queues.second(choice)
        there = replace(ask.resources, options=request.options)
        context = self._contexts.of(there, ask.walltime_s, now)
        if context.queue is not None:  # kept until the wait is known: not as a table, which changes
            context = replace(context, queue=context.queue.plain())
        event = Submitting(
            now,
            action.token,
            request,
            ask.stages,
            ask.after,
            predicted_wait_s=ask.predicted_wait_s,
            soon_wait_s=ask.soon_wait_s,
            context=context,
            why=why,
            second=second,
            instead=action.instead,
        )
        return event, _nothing

    def _amend(self, change: Amend, now: float) -> tuple[Event, Effect]:
        held = self.plan.pool.held
        handle, dependencies = held[change.allocation].handle, None
        assert handle is not None, "the plan changes jobs that were submitted"
        if change.after is not None:
            handles = [held[key].handle for key in change.after if key in held]
            dependencies = tuple(Dependency(other) for other in handles if other is not None)
        changes = JobChanges(
            walltime_s=change.walltime_s,
            resources=change.resources,
            dependencies=dependencies,
            throttle=change.throttle,
            parked=change.parked,
        )
        event = Amending(
            now,
            change.allocation,
            change.after,
            change.throttle,
            change.parked,
            change.resources,
            change.walltime_s,
        )
        return event, lambda: self.watch.amend(handle, changes)

    def _launch(self, action: LaunchTasks, now: float) -> tuple[Event, Effect]:
        tasks: list[Task] = []
        spec = self.plan.stages[action.stage].spec
        try:
            for start, stop in action.ranges:
                tasks += [self.payloads.task(action.stage, index, spec.task) for index in range(start, stop)]
        except InvalidInput as error:
            return StageFailed(now, action.stage, str(error)), _nothing
        held = self.plan.pool.held[action.allocation]
        ends = held.drains if spec.checkpoint else held.ends  # time to say so, and to end the job well, is left
        if spec.timeout_s is not None or ends is not None:
            tasks = [replace(task, timeout_s=self._timeout_s(action.stage, task.index), ends=ends) for task in tasks]
        if spec.shares:
            tasks = [replace(task, shares=not action.host, guest=bool(action.host)) for task in tasks]
        if self.reuse is not None:
            self.reuse.launching(action.stage, [task.index for task in tasks])
        event = TasksLaunched(now, action.stage, action.ranges, action.allocation, action.host)
        return event, lambda: self.executor.launch(tasks, action.allocation)

    def _timeout_s(self, name: str, index: int) -> float | None:
        """How long a task may run from now on [s], all its allocations together; None without a limit."""
        stage = self.plan.stages[name]
        if stage.spec.timeout_s is None or (paused := stage.paused.get(index)) is None:
            return stage.spec.timeout_s
        return max(_LEAST_S, stage.spec.timeout_s - paused.ran_s)

    def _look_up(self, action: LookUp, now: float) -> Event:
        """Results of earlier runs for tasks that are not done; none where the run knows of none."""
        stage, event = self.plan.stages[action.stage], StageLookedUp(now, action.stage, action.stop)
        if self.reuse is None:
            return event
        left = [index for index in range(action.start, action.stop) if stage.is_wanted(index)]
        return self.reuse.look_up(event, left)

    def _want(self, action: Want) -> None:
        assert isinstance(self.executor, Sharing), "only with one that can is the run's pool a named one"
        self.executor.want(action.task, action.count)

    def _teach(self, action: Teach, now: float) -> Event:
        wait = action.wait
        if not action.censored:
            self.waits.learn(wait.request, action.wait_s, wait.predicted_s, wait.context)
        return Learned(now, wait.request.token, wait.stage, action.wait_s, wait.predicted_s, action.censored)


def job_request(
    action: Submit, after: Sequence[JobHandle], program: tuple[str, ...], context: RunContext, outputs: str, now: float
) -> JobRequest:
    """The job that the plan wants submitted, after these, with its output in a file of the directory `outputs`."""
    ask = action.ask
    return JobRequest(
        token=action.token,
        resources=ask.resources,
        walltime_s=ask.walltime_s,
        argv=program,
        withheld=context.secrets,
        workdir=context.workdir,
        output=f"{outputs}/{action.token}.out",
        dependencies=tuple(map(Dependency, after)),
        begin=now + ask.delay_s if ask.delay_s else None,
        deadline=None if ask.lives_s is None else now + ask.lives_s,
        array=ask.array,
    )


def _note(event: Event) -> None:
    """Write what people look for first into the log of messages."""
    match event:
        case TaskFailed():
            again = "it will run again" if event.infrastructure else "its own fault"
            _log.info("task %d of %s failed on %s (%s): %s", event.index, event.stage, event.node, again, event.error)
        case TaskPaused():
            why = event.lost or "the time of its allocation is over"
            _log.info("task %d of %s paused on %s (%s)", event.index, event.stage, event.node, why)
        case SubmitRefused():
            how = "was refused for now, and is submitted again later" if event.later else "was refused"
            _log.warning("job %s %s: %s", event.allocation, how, event.reason)
        case Amended(refused=str(reason)) if reason:
            _log.info("a change of job %s was refused: %s", event.allocation, reason)
        case StageGrown():
            why = f"; {event.bounded}" if event.bounded else ""
            said = "stage %s asks for %s, %g s from now on%s"
            level = logging.WARNING if why else logging.INFO
            _log.log(level, said, event.stage, event.resources, event.walltime_s, why)
        case WidthChosen():
            _log.info("stage %s: %s", event.stage, event.why)
        case StagesAdded(refused=str(reason)) if reason:
            _log.warning("task %d of %s adds no stages: %s", event.index, event.stage, reason)
        case ExpectationMissed():
            _log.info("of stage %s %d were expected, and %d came", event.stage, event.expected, event.came)
        case StageFailed():
            _log.warning("stage %s failed: %s", event.stage, event.reason)
        case Submitting():
            request = event.request
            _log.info(
                "job %s for %s: %s, %g s",
                event.allocation,
                ", ".join(event.stages),
                request.resources,
                request.walltime_s,
            )
        case Submitted():
            _log.info("job %s is the batch system's %s", event.allocation, event.handle.job_id)
        case AllocationStarted() | NodeJoined() | NodeLost() | Requeued() | Released() | Cancelled():
            _log.info("%s: %s%s", event.allocation, type(event).__name__, _reason(event))
        case JobEnded():
            _log.info("job %s ended: %s%s", event.allocation, event.state.value, _reason(event))
        case TasksKept():
            _log.info("%s: %d tasks of an earlier driver go on", event.allocation, len(event.tasks))
        case HoldAsked():
            _log.info("nothing new is started: the run is held" if event.held else "the run is no longer held")
        case DriverStarted():
            _log.info("driver %d on %s", event.pid, event.host)
        case RunEnded():
            _log.info("the run %s%s", event.state.value, f": {event.message}" if event.message else "")


def _reason(event: Event) -> str:
    reason = getattr(event, "reason", "")
    return f" ({reason})" if reason else ""


def _nothing() -> None:
    """No effect beyond the event itself."""
