"""Runs tasks in virtual time, on the nodes of a simulated queue's running jobs."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.event import CoresUnused, Event, NodeJoined, NodeLost, TaskDone, TaskFailed, TaskPaused
from asa.core.job import JobRequest, JobState, JobStatus, Resources
from asa.core.ports import Outcome, Report, RunContext, VirtualClock, Work
from asa.core.task import PAUSED, Task, lacks
from asa.core.units import brief


class SimulatedJobs(Protocol):
    """What the executor needs of the batch system it lives in."""

    @property
    def clock(self) -> VirtualClock: ...

    watch: Callable[[JobRequest, JobStatus], None]

    def end(self, token: str, exit_code: int = 0) -> None: ...

    def cores_on(self, token: str) -> tuple[int, ...]:
        """Cores that a running job has on each of its nodes."""


SEEN_S = 3.0
"""How long after its start it is seen what a task leaves idle [s]."""

_Need = tuple[int, int, int]
"""Cores, bytes of memory, GPUs."""


_Key = tuple[str, int, str]
"""A task with checkpoints, and where it keeps them."""


@dataclass
class _Saved:
    """How long a task ran before it was paused [s]; how it will end, if it was called, which happens once."""

    ran_s: float = 0.0
    outcome: Outcome | None = None


@dataclass
class _Node:
    """A node of an allocation: what it has, and what is free; what guests hold, and what they may of what others do."""

    name: str
    room: _Need
    free: list[int]
    guests: list[int] = field(default_factory=lambda: [0, 0])
    unused: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    def left(self, guest: bool) -> _Need:
        """What there is for one more task: guests take what others leave first."""
        cores = sum(each for _, each, _ in self.unused.values()) - self.guests[0]
        memory = sum(each for _, _, each in self.unused.values()) - self.guests[1]
        cores, memory = (cores, memory) if guest else (min(0, cores), min(0, memory))
        if guest and cores > 0 and not self.guests[0]:
            cores = self.room[0]  # the first one may ask for more than is idle
        return self.free[0] + cores, self.free[1] + memory, self.free[2]

    def unused_of(self, stage: str) -> tuple[int, int]:
        """Cores and memory that tasks of a stage leave idle."""
        found = [(cores, memory) for name, cores, memory in self.unused.values() if name == stage]
        return sum(cores for cores, _ in found), sum(memory for _, memory in found)

    def give(self, need: Sequence[int], sign: int = -1) -> None:
        for column, amount in enumerate(need):
            self.free[column] += sign * amount


@dataclass
class _Running:
    """A task under way: where, since when, and which attempt of all it is."""

    task: Task
    number: int
    parts: list[tuple[_Node, _Need]]
    started: float

    @property
    def key(self) -> _Key | None:
        """What a task with checkpoints goes on as, elsewhere: only when it is called with the same."""
        return None if (kept := self.task.checkpoints) is None else (self.task.stage, self.task.index, kept.directory)

    @property
    def node(self) -> str:
        return self.parts[0][0].name


@dataclass
class _Held:
    """One allocation's nodes, what waits for them, and what runs on them."""

    nodes: list[_Node]
    waiting: deque[Task] = field(default_factory=deque)
    running: dict[int, _Running] = field(default_factory=dict)


class VirtualExecutor:
    """Satisfies the Executor port. Tasks start strictly in turn, on the first nodes that have room.

    Notes
    -----
    A task whose run time is known beforehand is called when that is over, and not at all when its job ends first; one
    that takes as long as the call is called when it starts. One with checkpoints is paused when the time
    of its allocation is over, and goes on where it was in another one. Until then it has saved nothing.
    """

    def __init__(self, jobs: SimulatedJobs, work: Work) -> None:
        self._jobs, self._work, self._clock = jobs, work, jobs.clock
        self._held: dict[str, _Held] = {}
        self._saved: dict[_Key, _Saved] = {}
        self._numbers = itertools.count()
        self._post: Report | None = None

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """Words that only say whose job it is: nothing is started."""
        return ("virtual", allocation.key)

    def start(self, context: RunContext, post: Report) -> None:
        """Hear of jobs from now on."""
        self._post = post
        self._jobs.watch = self._on_job

    def recover(self, tasks: Sequence[Task], allocation: str, context: RunContext) -> Sequence[Event]:
        """Nothing: virtual time ends with its driver."""
        return ()

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        """No tasks, for the same reason."""

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        if (held := self._held.get(allocation)) is not None:
            held.waiting += tasks
            self._fill(allocation, held)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks with it."""
        if self._held.pop(allocation, None) is not None:
            with contextlib.suppress(InvalidInput):  # its job was cancelled at this very instant
                self._jobs.end(allocation)

    def close(self) -> None:
        """Hear no more."""
        self._post = None
        self._held.clear()

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        self._lose(request.token, f"its job is {status.state.value}")
        if status.state is JobState.RUNNING:
            # After the job watch, which hears of it at this very instant, has reported that the job started.
            join = partial(self._join, request, status)
            self._clock.call_at(self._clock.now(), join)

    def _join(self, request: JobRequest, status: JobStatus) -> None:
        whole, found = request.resources, list[_Node]()
        for name, cores in zip(status.nodes, self._jobs.cores_on(request.token), strict=True):
            memory = sys.maxsize if whole.memory is None else -(-whole.memory * cores // whole.cores)
            room = (cores, memory, whole.on_each(len(status.nodes)).gpus if whole.gpus else 0)
            found.append(_Node(name, room, list(room)))
        self._held[request.token] = _Held(found)
        now = self._clock.now()
        self._say([NodeJoined(now, request.token, node.name, node.room[0]) for node in found])

    def _lose(self, allocation: str, reason: str) -> None:
        """An allocation is gone with whatever ran or waited there, and was not released."""
        if (held := self._held.pop(allocation, None)) is None:
            return
        now = self._clock.now()
        begun = list(held.running.values())
        given = [(run.task, run.node, run.started) for run in begun if run.key is None]
        given += [(task, held.nodes[0].name, now) for task in held.waiting]
        lost: list[Event] = [self._paused(allocation, run, reason) for run in begun if run.key is not None]
        lost += [
            TaskFailed(now, task.stage, task.index, allocation, node, started, reason, infrastructure=True)
            for task, node, started in given
        ]
        self._say([*lost, *(NodeLost(now, allocation, node.name, reason) for node in held.nodes)])

    def _fill(self, allocation: str, held: _Held) -> None:
        """Start what there is room for; guests for which there is none let others pass."""
        passed: list[Task] = []
        while held.waiting:
            task = held.waiting[0]
            if not _parts(task.resources, [(node, node.room) for node in held.nodes]):
                held.waiting.popleft()
                self._fail_at_once(allocation, held, task)
            elif parts := _parts(task.resources, [(node, node.left(task.guest)) for node in held.nodes]):
                held.waiting.popleft()
                self._start(allocation, held, task, parts)
            elif task.guest:
                passed.append(held.waiting.popleft())
            else:
                break
        held.waiting.extendleft(reversed(passed))

    def _look(self, allocation: str, run: _Running, used: tuple[float, int]) -> None:
        """It is seen what a task leaves idle that shares."""
        held, ((node, (cores, memory, _)),) = self._held.get(allocation), run.parts
        if held is not None and run.number in held.running:
            node.unused[run.number] = run.task.stage, max(0, int(cores - used[0] + 0.25)), max(0, memory - used[1])
            self._say_unused(allocation, node, run.task.stage)

    def _say_unused(self, allocation: str, node: _Node, stage: str) -> None:
        self._say([CoresUnused(self._clock.now(), allocation, node.name, stage, *node.unused_of(stage))])

    def _start(self, allocation: str, held: _Held, task: Task, parts: list[tuple[_Node, _Need]]) -> None:
        now = self._clock.now()
        run = _Running(task, next(self._numbers), parts, now)
        held.running[run.number] = run
        self._count(run, -1)
        if task.shares and len(parts) == 1 and (used := self._work.used(task)) is not None:
            self._clock.call_at(now + SEEN_S, partial(self._look, allocation, run, used))
        saved = _Saved() if run.key is None else self._saved.setdefault(run.key, _Saved())
        outcome = saved.outcome
        try:
            seconds = self._work.seconds(task)
        except InvalidInput as error:
            outcome, seconds = Outcome(0.0, None, str(error)), 0.0
        if seconds is None:
            outcome = saved.outcome = outcome or self._work.call(task)
            seconds = outcome.seconds
        seconds = max(0.0, seconds - saved.ran_s)
        if task.timeout_s is not None and seconds > task.timeout_s:
            seconds = task.timeout_s
            late = f"timed out after {brief(seconds)}: raise timeout= where tasks may take that long"
            outcome = Outcome(seconds, None, late)
        if run.key is not None and task.ends is not None and now + seconds > task.ends:
            self._clock.call_at(task.ends, partial(self._pause, allocation, run, saved))
        else:
            self._clock.call_at(now + seconds, partial(self._end, allocation, run, outcome))

    def _leave(self, allocation: str, run: _Running) -> _Held | None:
        """Free what a task had; the allocation, unless it is gone, or started anew."""
        held = self._held.get(allocation)
        if held is None or held.running.pop(run.number, None) is None:
            return None
        self._count(run, +1)
        return held

    def _count(self, run: _Running, sign: int) -> None:
        """Note what a task holds, or has held."""
        for node, need in run.parts:
            if run.task.guest:
                node.guests = [node.guests[0] - sign * need[0], node.guests[1] - sign * need[1]]
            else:
                node.give(need, sign)
                node.unused.pop(run.number, None)

    def _pause(self, allocation: str, run: _Running, saved: _Saved) -> None:
        """The time of its allocation is over."""
        if (held := self._leave(allocation, run)) is not None:
            saved.ran_s += self._clock.now() - run.started
            self._say([self._paused(allocation, run)])
            self._fill(allocation, held)

    def _paused(self, allocation: str, run: _Running, lost: str = "") -> TaskPaused:
        assert run.key is not None
        task, ran_s = run.task, self._saved[run.key].ran_s
        saved = f"{ran_s:g} s" if ran_s else ""
        return TaskPaused(self._clock.now(), task.stage, task.index, allocation, run.node, run.started, saved, lost)

    def _end(self, allocation: str, run: _Running, outcome: Outcome | None) -> None:
        if (held := self._leave(allocation, run)) is None:
            return
        outcome = self._work.call(run.task) if outcome is None else outcome
        task, node, now = run.task, run.node, self._clock.now()
        if run.key is not None:
            saved = self._saved.pop(run.key)
            if outcome.value is None and saved.outcome is None:  # it is called again, for the time that is left
                self._saved[run.key] = _Saved(saved.ran_s + (now - run.started) * (outcome.cause == PAUSED))
        if outcome.value is None:
            late = task.timeout_s is not None and now - run.started >= task.timeout_s
            failed = TaskFailed(
                now,
                task.stage,
                task.index,
                allocation,
                node,
                run.started,
                outcome.error,
                outcome.traceback,
                infrastructure=outcome.cause == PAUSED,
                cause=outcome.cause or ("time" if late else lacks(outcome.error, None)),
            )
            self._say([failed])
        else:
            value = outcome.value
            data, path = (value, None) if isinstance(value, bytes) else (None, value)
            self._say([TaskDone(now, task.stage, task.index, allocation, node, run.started, data, path)])
        if task.shares and any(run.parts[0][0].unused_of(task.stage)):
            self._say_unused(allocation, run.parts[0][0], task.stage)
        self._fill(allocation, held)

    def _fail_at_once(self, allocation: str, held: _Held, task: Task) -> None:
        now, node = self._clock.now(), held.nodes[0]
        there = " + ".join(str(each.room[0]) for each in held.nodes[:8]) + (" ..." if len(held.nodes) > 8 else "")
        there += " cores"
        error = f"it needs {task.resources}, more than the nodes of its allocation have: {there}"
        self._say([TaskFailed(now, task.stage, task.index, allocation, node.name, now, error)])

    def _say(self, events: Sequence[Event]) -> None:
        if self._post is not None:
            self._post(events)


def _parts(task: Resources, nodes: Sequence[tuple[_Node, Sequence[int]]]) -> list[tuple[_Node, _Need]]:
    """What a task takes of which nodes, given what each has to give; [] when that is too little."""
    spans, unit = task.nodes or 1, task.unit
    each = task.on_each(spans) if unit is None else task.on_each(1)
    need = (each.cores, each.memory or 0, each.gpus)
    if unit is None:
        able = [node for node, room in nodes if all(a <= b for a, b in zip(need, room, strict=True))]
        return [(node, need) for node in able[:spans]] if len(able) >= spans else []
    left, found = task.cores // unit, list[tuple[_Node, _Need]]()
    for node, room in nodes:
        if count := min(left, room[0] // unit):
            found.append((node, (count * unit, (each.memory or 0) * count * unit // task.cores, 0)))
            left -= count
    return [] if left else found
