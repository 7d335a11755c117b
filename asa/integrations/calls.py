"""Calls that come as they come, and the allocations they run in: what is known of them, folded from events."""

from __future__ import annotations

import math

from asa.allocations.pool import Held, Pool
from asa.core.event import (
    AllocationStarted,
    CancelAsked,
    Event,
    JobEnded,
    Learned,
    NodeJoined,
    RunEnded,
    RunState,
    StageExpanded,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState
from asa.core.stage import StageSpec
from asa.core.units import brief
from asa.workflows.progress import BARREN_MOST, Progress
from asa.workflows.state import Wait

LOSSES_MOST = 3
"""How often a call may be lost with its node before it is given up: it may be what kills the nodes."""

_NEARLY_ALL = 0.9


class Calls:
    """All calls are of one size, that of the tasks of one stage.

    Parameters
    ----------
    spec
        The size of an allocation and of a call; its name stands for all calls.

    Attributes
    ----------
    pool
        Allocations that have not ended.
    progress
        How long calls take.
    waiting
        Calls that run nowhere, in order.
    width
        How many have come.
    asked
        How many jobs were asked for.
    idle
        Allocation -> since when it has run nothing [s since the epoch].
    untaught
        Allocation -> a wait that no estimator was told of.
    outcome
        How it ended.
    cancelling, broken
        Why it is to end: somebody wants it, no allocation is of use; "" otherwise.
    """

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec
        self.pool, self.progress = Pool(), Progress(spec, None)
        self.waiting: dict[int, None] = {}
        self.width = self.asked = 0
        self.idle: dict[str, float] = {}
        self.untaught: dict[str, Wait] = {}
        self.outcome, self.cancelling, self.broken = RunState.RUNNING, "", ""
        self._losses: dict[int, int] = {}

    @property
    def slots(self) -> int:
        """Calls that run at once in one allocation."""
        whole, one = self.spec.resources, self.spec.task
        counts = [whole.cores // one.cores]
        if one.memory and whole.memory:
            counts.append(whole.memory // one.memory)
        if one.gpus:
            counts.append(whole.gpus // one.gpus)
        return min(counts)

    @property
    def unfinished(self) -> int:
        """Calls that have not ended."""
        return len(self.waiting) + sum(len(held.running) for held in self.pool.held.values())

    def on(self, event: Event) -> dict[int, str]:
        """Fold an event: the calls that are given up with it, and why."""
        given_up = self._fold(event)
        self.pool.on(event)
        if isinstance(event, NodeJoined):
            self.idle.setdefault(event.allocation, event.at)
        elif isinstance(event, AllocationStarted):
            self._note_wait(event.allocation)
        return given_up

    def _fold(self, event: Event) -> dict[int, str]:
        match event:
            case StageExpanded():
                self.waiting |= dict.fromkeys(range(self.width, event.width))
                self.width = event.width
            case Submitting():
                self.asked += 1
            case TasksLaunched():
                self._launched(event)
            case TaskDone():
                self._drop(event, useful=True)
                self.progress.finish(event.index, event.at - event.started, event.at)
            case TaskFailed():
                launched = self._drop(event, useful=not event.infrastructure)
                if launched is not None and event.infrastructure:
                    return self._lose(event.index, event.error, event.at - launched)
            case JobEnded() | SubmitRefused():
                if held := self.pool.held.get(event.allocation):
                    return self._ended(event, held)
            case Learned():
                self.untaught.pop(event.allocation, None)
            case CancelAsked():
                self.cancelling = event.reason
            case RunEnded():
                self.outcome = event.state
        return {}

    def _launched(self, event: TasksLaunched) -> None:
        held = self.pool.held[event.allocation]
        self.idle.pop(event.allocation, None)
        for start, stop in event.ranges:
            for index in range(start, stop):
                self.waiting.pop(index, None)
                held.take((event.stage, index), self.spec.task, event.at)

    def _drop(self, event: TaskDone | TaskFailed, *, useful: bool) -> float | None:
        """A call does not run any more where it was; when it was launched there [s since the epoch], if it was."""
        if (held := self.pool.held.get(event.allocation)) is None:
            return None
        launched = held.drop((event.stage, event.index))
        held.useful |= useful
        if not held.running:
            self.idle.setdefault(event.allocation, event.at)
        return launched

    def _ended(self, event: JobEnded | SubmitRefused, held: Held) -> dict[int, str]:
        """An allocation is gone, and with it what ran there and was not told of."""
        self.idle.pop(event.allocation, None)
        what = f"the batch system refused the job: {event.reason}"
        if isinstance(event, JobEnded):
            what = f"its job ended as {event.state.value}" + (f" ({event.reason})" if event.reason else "")
        given_up: dict[int, str] = {}
        for (_, index), (_, launched) in list(held.running.items()):
            given_up |= self._lose(index, what, event.at - launched)
        if held.ending or held.useful or held.nodes:
            return given_up
        self.progress.barren += 1
        hopeless = isinstance(event, SubmitRefused) or event.state is JobState.CANCELLED
        if hopeless or self.progress.barren >= BARREN_MOST:
            what += f"; its output is in {held.request.output}" if held.started and held.request.output else ""
            self.broken = f"no allocation is of use; the last: {what}"
            given_up |= dict.fromkeys(self.waiting, self.broken)
            self.waiting.clear()
        return given_up

    def _lose(self, index: int, reason: str, ran_s: float) -> dict[int, str]:
        """A call ended with its node: it runs again, first of all, unless that would end in the same way."""
        self._losses[index] = losses = self._losses.get(index, 0) + 1
        if ran_s >= _NEARLY_ALL * self.spec.walltime_s:
            return {index: f"it ran for {brief(ran_s)}, and reached the wall time: raise walltime="}
        if losses > LOSSES_MOST:
            return {index: f"it was lost {losses} times with its node; the last time: {reason}"}
        self.waiting = {index: None} | self.waiting
        return {}

    def _note_wait(self, allocation: str) -> None:
        """A job's wait became known."""
        held = self.pool.held.get(allocation)
        if held and held.handle and held.started is not None and not (held.requeued or held.taught):
            since = held.handle.submitted
            self.untaught[allocation] = Wait(
                held.request, self.spec.name, since, -math.inf, held.started, None, held.context
            )
