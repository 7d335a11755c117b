"""Nodes and workers in virtual time, for tests: they belong to the outside world and outlive a test's driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from asa.core.allocation import Allocation
from asa.core.clock import ManualClock
from asa.core.event import Event, NodeJoined, TaskDone, TaskFailed
from asa.core.job import JobRequest, JobState, JobStatus
from asa.core.ports import Post, RunContext
from asa.core.task import Task
from asa.testing.backend_fake import FakeBatch


@dataclass
class _Worker:
    """One allocation's node: how many cores are taken, and what waits for them."""

    cores: int
    waiting: list[Task]
    busy: int = 0
    incarnation: int = 0


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
        self._post: Post | None = None
        self._driver = 0
        self.done: list[tuple[str, int]] = []
        batch.watch = self._on_job

    def attach(self, post: Post) -> None:
        """A driver listens from now on: every node joins, with fresh workers."""
        self._post, self._driver = post, self._driver + 1
        for key, worker in self._workers.items():
            worker.waiting.clear()
            worker.busy, worker.incarnation = 0, self._driver
            self._say([NodeJoined(self._clock.now(), key, "node", worker.cores)])

    def detach(self) -> None:
        """The driver is gone: whatever runs is lost."""
        self._post = None
        self._driver += 1

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Queue tasks in an allocation."""
        if (worker := self._workers.get(allocation)) is not None:
            worker.waiting += tasks
            self._fill(allocation, worker)

    def release(self, allocation: str) -> None:
        """End an allocation's job with exit code 0."""
        if self._workers.pop(allocation, None) is not None:
            self._batch.end(allocation)

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        if status.state is JobState.RUNNING:
            self._workers[request.token] = _Worker(request.resources.cores, [], 0, self._driver)
            self._say([NodeJoined(self._clock.now(), request.token, "node", request.resources.cores)])
        else:
            self._workers.pop(request.token, None)

    def _fill(self, allocation: str, worker: _Worker) -> None:
        while worker.waiting and worker.busy + worker.waiting[0].resources.cores <= worker.cores:
            task = worker.waiting.pop(0)
            worker.busy += task.resources.cores
            now = self._clock.now()
            self._clock.call_at(
                now + self._run_time(task), partial(self._end, allocation, worker, task, now, self._driver)
            )

    def _end(self, allocation: str, worker: _Worker, task: Task, started: float, driver: int) -> None:
        if self._workers.get(allocation) is not worker or driver != self._driver:
            return  # the allocation ended, or the driver died, while the task ran
        worker.busy -= task.resources.cores
        now = self._clock.now()
        try:
            value = self._call(task)
        except Exception as error:
            failed = TaskFailed(
                now, task.stage, task.index, allocation, "node", started, f"{type(error).__name__}: {error}"
            )
            self._say([failed])
        else:
            self.done.append((task.stage, task.index))
            self._say([TaskDone(now, task.stage, task.index, allocation, "node", started, value)])
        self._fill(allocation, worker)

    def _say(self, events: list[Event]) -> None:
        if self._post is not None:
            self._post(events)


class FakeExecutor:
    """The driver's side of `FakeNodes`; satisfies the Executor port."""

    def __init__(self, nodes: FakeNodes) -> None:
        self._nodes = nodes

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """A program that only the fake batch system understands."""
        return ("supervisor", allocation.key)

    def start(self, context: RunContext, post: Post) -> None:
        """Listen."""
        self._nodes.attach(post)

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run tasks."""
        self._nodes.launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """Let go of an allocation."""
        self._nodes.release(allocation)

    def close(self) -> None:
        """Stop listening."""
        self._nodes.detach()
