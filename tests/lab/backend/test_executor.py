"""Tasks in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.core.ports import Outcome, RunContext
from asa.core.task import Task
from asa.lab.backend.simulated import Simulated
from asa.lab.simulator import operations

DONE = Outcome(3.0, b"done")


@dataclass
class Ground:
    """A queue, an executor, and work of known run time that remembers when it was called."""

    queue: Simulated = field(default_factory=lambda: Simulated(nodes=4, cores=8, memory="32G", gpus=1, warmup=0.01))
    seconds_of: Callable[[Task], float | None] = lambda _task: 10.0
    outcome: Outcome = DONE

    def __post_init__(self) -> None:
        self.events: list[Event] = []
        self.called: list[tuple[int, float]] = []
        self.executor = self.queue.executor(self)
        self.executor.start(RunContext("run", Path(), ".", ()), self.events.extend)
        self.began = self.queue.clock.now()

    def seconds(self, task: Task) -> float | None:
        return self.seconds_of(task)

    def call(self, task: Task) -> Outcome:
        self.called.append((task.index, self.queue.clock.now() - self.began))
        return self.outcome

    def allocate(self, needs: Resources, token: str = "a", walltime_s: float = 100.0) -> JobHandle:
        argv = self.executor.bootstrap(Allocation(token, needs, walltime_s), RunContext("run", Path(), ".", ()))
        (handle,) = self.queue.submit([JobRequest(token, needs, walltime_s, argv)])
        assert isinstance(handle, JobHandle), handle
        self.queue.sleep(0)
        return handle

    def launch(self, count: int, allocation: str = "a", **needs: Any) -> None:
        tasks = [Task("stage", index, "", b"", (), Resources(**needs)) for index in range(count)]
        self.executor.launch(tasks, allocation)

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> list[tuple[int, float]]:
        return [(event.index, event.at - self.began) for event in self.told(TaskDone)]


def test_nodes_join_when_the_job_starts_and_tasks_take_their_time() -> None:
    ground = Ground()
    ground.allocate(Resources(4, nodes=2))
    assert [(event.node, event.cores) for event in ground.told(NodeJoined)] == [("n0", 2), ("n1", 2)]
    ground.launch(6)
    ground.queue.sleep(60)
    assert ground.ends() == [(0, 10), (1, 10), (2, 10), (3, 10), (4, 20), (5, 20)]
    assert ground.called == ground.ends(), "what is known to take so long is called when it is over"
    first = ground.told(TaskDone)[0]
    assert (first.node, first.started, first.value, first.path) == ("n0", ground.began, b"done", None)


def test_a_task_of_unknown_run_time_takes_as_long_as_its_call() -> None:
    ground = Ground(seconds_of=lambda _task: None)
    ground.allocate(Resources(1))
    ground.launch(2)
    ground.queue.sleep(60)
    assert ground.ends() == [(0, 3), (1, 6)]
    assert ground.called == [(0, 0), (1, 3)]


def test_a_large_task_is_not_overtaken() -> None:
    ground = Ground()
    ground.allocate(Resources(4))
    ground.launch(1, cores=3)
    ground.launch(1, cores=4)
    ground.launch(1, cores=1)
    ground.queue.sleep(60)
    assert [at for _, at in ground.ends()] == [10, 20, 30]


def test_memory_and_gpus_count() -> None:
    ground = Ground()
    ground.allocate(Resources(4, memory=2**30, gpus=1))
    ground.launch(2, memory=2**29 + 1)
    ground.queue.sleep(30)
    assert [at for _, at in ground.ends()] == [10, 20]
    ground.launch(2, gpus=1)
    ground.queue.sleep(30)
    assert [at for _, at in ground.ends()] == [10, 20, 40, 50]


def test_a_task_spans_nodes() -> None:
    ground = Ground()
    ground.allocate(Resources(8, nodes=4))
    ground.launch(3, cores=4, nodes=2)
    ground.queue.sleep(30)
    assert [event.node for event in ground.told(TaskDone)] == ["n0", "n2", "n0"]
    assert [at for _, at in ground.ends()] == [10, 10, 20]


def test_a_task_that_no_node_holds_fails_at_once_and_the_next_one_runs() -> None:
    ground = Ground()
    ground.allocate(Resources(4, nodes=2))
    ground.launch(1, cores=4)
    ground.launch(1)
    ground.queue.sleep(30)
    (failed,) = ground.told(TaskFailed)
    assert "4 cores" in failed.error and "2 x 2 cores" in failed.error
    assert not failed.infrastructure
    assert len(ground.ends()) == 1


def test_what_a_task_raised_is_reported() -> None:
    ground = Ground(outcome=Outcome(1.0, None, "ValueError: no", "Traceback ..."))
    ground.allocate(Resources(1))
    ground.launch(1)
    ground.queue.sleep(30)
    (failed,) = ground.told(TaskFailed)
    assert (failed.error, failed.traceback, failed.infrastructure) == ("ValueError: no", "Traceback ...", False)
    assert failed.at == ground.began + 10


def test_a_run_time_that_cannot_be_told_is_the_tasks_failure() -> None:
    def fail(_task: Task) -> float:
        raise InvalidInput("run_time of stage 'stage' raised")

    ground = Ground(seconds_of=fail)
    ground.allocate(Resources(1))
    ground.launch(1)
    ground.queue.sleep(30)
    assert ground.told(TaskFailed)[0].error == "run_time of stage 'stage' raised"
    assert not ground.called


def test_the_wall_time_takes_tasks_along() -> None:
    ground = Ground()
    handle = ground.allocate(Resources(1), walltime_s=15.0)
    ground.launch(3)
    ground.queue.sleep(60)
    assert ground.queue.query([handle])[0].state is JobState.TIMEOUT
    assert ground.called == [(0, 10)], "what is not over is never called"
    lost = ground.told(TaskFailed)
    assert [(event.index, event.infrastructure, event.at - ground.began) for event in lost] == [
        (1, True, 15),
        (2, True, 15),
    ]
    kinds = [type(event) for event in ground.events]
    assert kinds == [NodeJoined, TaskDone, TaskFailed, TaskFailed, NodeLost]


def test_a_released_allocation_ends_well_and_reports_nothing_more() -> None:
    ground = Ground()
    handle = ground.allocate(Resources(2))
    ground.launch(3)
    ground.queue.sleep(5)
    ground.executor.release("a")
    ground.executor.release("a")
    ground.queue.sleep(60)
    status = ground.queue.query([handle])[0]
    assert (status.state, status.exit_code, status.ended) == (JobState.COMPLETED, 0, ground.began + 5)
    assert [type(event) for event in ground.events] == [NodeJoined]


def test_a_requeued_job_loses_its_node_and_gets_another() -> None:
    ground = Ground()
    handle = ground.allocate(Resources(1))
    ground.launch(1)
    ground.queue.sleep(5)
    operations.requeue(ground.queue.engine, int(handle.job_id))
    ground.queue.sleep(0)
    assert [type(event) for event in ground.events] == [NodeJoined, TaskFailed, NodeLost, NodeJoined]
    ground.launch(1)
    ground.queue.sleep(60)
    assert ground.ends() == [(0, 15)], "and the one that was lost does not end"


def test_an_allocation_that_is_not_there_takes_nothing() -> None:
    ground = Ground()
    ground.launch(1, "nobody")
    ground.executor.release("nobody")
    ground.queue.sleep(60)
    assert ground.events == []


def test_a_closed_executor_hears_nothing() -> None:
    ground = Ground()
    ground.executor.close()
    ground.allocate(Resources(1))
    ground.queue.sleep(60)
    assert ground.events == []


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_cores_are_never_overcommitted(cores: int) -> None:
    ground = Ground(seconds_of=lambda task: 1.0 + task.index % 3)
    ground.allocate(Resources(8), walltime_s=1000.0)
    ground.launch(20, cores=cores)
    ground.queue.sleep(500)
    done = ground.told(TaskDone)
    assert len(done) == 20
    for at in {event.started for event in done}:
        assert sum(cores for event in done if event.started <= at < event.at) <= 8
