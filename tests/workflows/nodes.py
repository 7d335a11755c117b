"""Nodes and workers in virtual time, for tests: they belong to the outside world and outlive a test's driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from asa.core.allocation import Allocation
from asa.core.clock import ManualClock
from asa.core.event import CoresUnused, Event, NodeJoined, TaskDone, TaskFailed, TasksKept
from asa.core.job import JobRequest, JobState, JobStatus
from asa.core.ports import Report, RunContext
from asa.core.task import PAUSED, Task, lacks
from asa.core.units import brief
from asa.log.running import Checkpoint
from asa.testing.backend_fake import FakeBatch

_Key = tuple[str, int]


@dataclass
class _Worker:
    """One allocation's node: what waits for its cores, what runs, and what ended and is not logged.

    Until it is `settled`, it is not known what of that the driver wants.
    """

    cores: int
    waiting: list[Task] = field(default_factory=list)
    running: dict[_Key, Task] = field(default_factory=dict)
    ended: dict[_Key, tuple[str, Event]] = field(default_factory=dict)
    settled: bool = True

    def room(self) -> int:
        """Cores for another task; guests use what others leave first, of which a task that shares uses one core."""
        own = [task for task in self.running.values() if not task.guest]
        guests = sum(task.resources.cores for task in self.running.values() if task.guest)
        spare = sum(task.resources.cores - 1 for task in own if task.shares)
        return self.cores - sum(task.resources.cores for task in own) - max(0, guests - spare)


class FakeNodes:
    """The nodes of a `FakeBatch`'s running jobs, and the supervisors on them.

    Parameters
    ----------
    clock, batch
        The world they live in; `batch.watch` is taken over.
    call
        Runs a task and returns its pickled value; what it raises is the task's failure.
    run_time
        How long a task takes [s], in virtual time.
    """

    def __init__(
        self,
        clock: ManualClock,
        batch: FakeBatch,
        call: Callable[[Task], bytes],
        run_time: Callable[[Task], float] = lambda _task: 1.0,
    ) -> None:
        self._clock, self._batch, self._call, self._run_time = clock, batch, call, run_time
        self._workers: dict[str, _Worker] = {}
        self._files: dict[str, dict[_Key, tuple[str, Event]]] = {}
        self._post: Report | None = None
        self.done: list[_Key] = []
        self.begun: list[_Key] = []
        batch.watch = self._on_job

    def attach(self, post: Report) -> None:
        """A driver listens from now on: every node joins."""
        self._post = post
        for key, worker in self._workers.items():
            self._say([NodeJoined(self._clock.now(), key, "node", worker.cores)])

    def detach(self) -> None:
        """The driver is gone: what runs goes on, what ends is kept."""
        self._post = None
        for key, worker in self._workers.items():
            worker.waiting.clear()
            worker.settled = False
            self._files.setdefault(key, {}).update(worker.ended)

    def recover(self, tasks: Sequence[Task], allocation: str) -> list[Event]:
        """What of these has ended without a driver."""
        files = self._files.get(allocation, {})
        kept = [files.get((task.stage, task.index), ("", None)) for task in tasks]
        return [
            event for task, (identity, event) in zip(tasks, kept, strict=True) if event and identity == task.identity
        ]

    def adopt(self, tasks: Sequence[Task], allocation: str) -> None:
        """The driver wants these of an earlier one's tasks, as far as they are still there; the others end."""
        if (worker := self._workers.get(allocation)) is None:
            return
        wanted = {(task.stage, task.index): task.identity for task in tasks}
        worker.running = {key: task for key, task in worker.running.items() if wanted.get(key) == task.identity}
        worker.ended = {key: kept for key, kept in worker.ended.items() if wanted.get(key) == kept[0]}
        worker.settled = True
        if tasks:
            self._say([TasksKept(self._clock.now(), allocation, (*worker.running, *worker.ended))])
        for key in list(worker.ended):
            self._report(worker, key)
        self._fill(allocation, worker)
        for stage in {task.stage for task in worker.running.values() if task.shares}:
            self._say_unused(allocation, worker, stage)

    def _say_unused(self, allocation: str, worker: _Worker, stage: str) -> None:
        """Guests may use all but one core, and half of the memory, of each task of a stage that shares."""
        there = [task.resources for task in worker.running.values() if task.shares and task.stage == stage]
        if self._workers.get(allocation) is worker and worker.settled and there:
            left = sum(task.cores - 1 for task in there), sum((task.memory or 0) // 2 for task in there)
            self._say([CoresUnused(self._clock.now(), allocation, "node", stage, *left)])

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        if (worker := self._workers.get(allocation)) is not None:
            worker.waiting += tasks
            self._fill(allocation, worker)

    def release(self, allocation: str) -> None:
        if self._workers.pop(allocation, None) is not None:
            self._batch.end(allocation)

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        if status.state is JobState.RUNNING:
            self._workers[request.token] = _Worker(request.resources.cores)
            self._say([NodeJoined(self._clock.now(), request.token, "node", request.resources.cores)])
        else:
            self._workers.pop(request.token, None)

    def _fill(self, allocation: str, worker: _Worker) -> None:
        while worker.waiting and (worker.waiting[0].guest or worker.waiting[0].resources.cores <= worker.room()):
            task = worker.waiting.pop(0)
            if task.shares:
                self._clock.call_at(self._clock.now() + 1.0, partial(self._say_unused, allocation, worker, task.stage))
            key, now = (task.stage, task.index), self._clock.now()
            worker.running[key] = task
            self.begun.append(key)
            most = math.inf if task.timeout_s is None else task.timeout_s
            needs_s = self._run_time(task) - _ran_s(task)
            if task.checkpoints is not None and task.ends is not None and now + needs_s > task.ends:
                self._clock.call_at(task.ends, partial(self._pause, allocation, worker, task, now))
                continue
            self._clock.call_at(
                now + min(most, needs_s), partial(self._end, allocation, worker, task, now, needs_s > most)
            )

    def _pause(self, allocation: str, worker: _Worker, task: Task, started: float) -> None:
        """The time of its allocation is over: what it has run is saved."""
        if self._workers.get(allocation) is worker and worker.running.get((task.stage, task.index)) is task:
            assert task.checkpoints
            ran_s = _ran_s(task) + self._clock.now() - started
            with Checkpoint(Path(task.checkpoints.directory)).save() as folder:
                (folder / "ran").write_text(repr(ran_s))
            self._end(allocation, worker, task, started, paused=True)

    def _end(
        self, allocation: str, worker: _Worker, task: Task, started: float, late: bool = False, paused: bool = False
    ) -> None:
        key, now = (task.stage, task.index), self._clock.now()
        if self._workers.get(allocation) is not worker or worker.running.get(key) is not task:
            return  # the allocation ended while the task ran, or a driver did not want it
        del worker.running[key]
        event: Event
        try:
            if paused:
                raise InterruptedError("the time of its allocation is over")
            if late:
                raise TimeoutError(f"timed out after {brief(task.timeout_s or 0.0)}")
            value = self._call(task)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            cause = PAUSED if paused else "time" if late else lacks(words, None)
            event = TaskFailed(
                now, task.stage, task.index, allocation, "node", started, words, infrastructure=paused, cause=cause
            )
        else:
            self.done.append(key)
            event = TaskDone(now, task.stage, task.index, allocation, "node", started, value)
        worker.ended[key] = task.identity, event
        if self._post is None:
            self._files.setdefault(allocation, {})[key] = worker.ended[key]
        elif worker.settled:
            self._report(worker, key)
        self._say_unused(allocation, worker, task.stage)
        self._fill(allocation, worker)

    def _report(self, worker: _Worker, key: _Key) -> None:
        kept = worker.ended[key]

        def logged() -> None:
            if worker.ended.get(key) is kept:
                del worker.ended[key]

        self._say([kept[1]], logged)

    def _say(self, events: list[Event], logged: Callable[[], None] | None = None) -> None:
        if self._post is not None:
            self._post(events, logged)


def _ran_s(task: Task) -> float:
    """How long a task ran in earlier allocations, as it has saved it [s]."""
    last = None if task.checkpoints is None else Checkpoint(Path(task.checkpoints.directory)).last
    return 0.0 if last is None else float((last / "ran").read_text())


class FakeExecutor:
    """The driver's side of `FakeNodes`; satisfies the Executor port."""

    def __init__(self, nodes: FakeNodes) -> None:
        self._nodes = nodes

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """A program that only the fake batch system understands."""
        return ("supervisor", allocation.key)

    def start(self, context: RunContext, post: Report) -> None:
        self._nodes.attach(post)

    def recover(self, tasks: Sequence[Task], allocation: str, context: RunContext) -> Sequence[Event]:
        return self._nodes.recover(tasks, allocation)

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        self._nodes.adopt(tasks, allocation)

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        self._nodes.launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        self._nodes.release(allocation)

    def close(self) -> None:
        self._nodes.detach()
