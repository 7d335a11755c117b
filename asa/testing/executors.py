"""Conformance suite of executors: what a run may count on, whatever runs its tasks.

Subclass it in a test module and give it the fixture ``bench``::

    class TestMine(ExecutorConformance):
        @pytest.fixture
        def bench(self, tmp_path):
            context = RunContext("mine", tmp_path / "run", str(tmp_path), tuple(sys.path))
            with Bench(Mine, context) as bench:
                yield bench

Programs of allocations start on this machine, unless the bench starts them in another way. It takes two cores' worth of
tasks, but they may share a core.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import pytest

from asa.core.allocation import Allocation
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed, TasksKept
from asa.core.job import Resources
from asa.core.ports import Executor, RunContext
from asa.core.task import Input, Task, Value
from asa.log import proc
from asa.security.files import private_directory, write_private
from asa.testing import tasks

PATIENCE_S = 30.0
"""How long anything may take before a test fails [s]."""


class TestProgram(Protocol):
    """A job's program that was started on a node. `subprocess.Popen` is one."""

    def wait(self, timeout: float | None = None) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


def start_here(argv: Sequence[str], node: str, workdir: str) -> TestProgram:
    """Start a job's program on this machine, which poses as `node`."""
    environment = os.environ | {"SLURMD_NODENAME": node}
    return subprocess.Popen(argv, env=environment, cwd=workdir, stdin=subprocess.DEVNULL)


class ExecutorDriver:
    """The driver's side of a run: an executor, and what it has reported.

    Parameters
    ----------
    tasks, nodes
        What an earlier driver gave to allocation ``"a"``, and the nodes of that.
    """

    def __init__(
        self, executor: Executor, context: RunContext, tasks: Sequence[Task] = (), nodes: Sequence[str] = ("n1",)
    ) -> None:
        self.executor, self.context = executor, context
        self.events: list[Event] = []
        self.given: list[Task] = []
        self._news = threading.Condition()
        self._adopted: set[str] = set()
        self._tasks, self._nodes = tasks, nodes
        self.events += executor.recover(tasks, "a", context)
        executor.start(context, self._post)

    def launch(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        *,
        allocation: str = "a",
        stage: str = "s",
        resources: Resources | None = None,
        inputs: tuple[Value, ...] = (),
    ) -> None:
        """One task for each tuple of arguments; indices count from 0."""
        file = private_directory(self.context.directory) / f"{stage}-{id(function):x}.function"
        write_private(file, cloudpickle.dumps(function))
        given = [
            Task(stage, index, str(file), pickle.dumps((call, {})), inputs, resources or Resources(), None, f"{call}")
            for index, call in enumerate(calls)
        ]
        self.given += given
        self.executor.launch(given, allocation)

    def until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        """All events, once there are `enough`; the test fails when that takes too long."""
        with self._news:
            assert self._news.wait_for(lambda: enough(self.events), PATIENCE_S), f"nothing more came: {self.events}"
            return list(self.events)

    def joined(self, count: int = 1) -> list[NodeJoined]:
        """The nodes that have joined, once there are so many."""
        self.until(lambda events: sum(isinstance(event, NodeJoined) for event in events) >= count)
        return [event for event in self.events if isinstance(event, NodeJoined)]

    def kept(self) -> tuple[tuple[str, int], ...]:
        """What goes on of an earlier driver's tasks."""
        events = self.until(lambda events: any(isinstance(event, TasksKept) for event in events))
        return next(event for event in events if isinstance(event, TasksKept)).tasks

    def lost(self) -> NodeLost:
        events = self.until(lambda events: any(isinstance(event, NodeLost) for event in events))
        return next(event for event in events if isinstance(event, NodeLost))

    def ended(self, count: int, stage: str = "s") -> dict[int, TaskDone | TaskFailed]:
        """How the stage's first `count` tasks to end have ended, by index."""

        def of_stage(events: list[Event]) -> list[TaskDone | TaskFailed]:
            return [event for event in events if isinstance(event, TaskDone | TaskFailed) and event.stage == stage]

        return {event.index: event for event in of_stage(self.until(lambda events: len(of_stage(events)) >= count))}

    def values(self, count: int, stage: str = "s") -> list[Any]:
        """What the stage's `count` tasks have returned, in order; the test fails when one has failed."""
        ended = self.ended(count, stage)
        return [value_of(ended[index]) for index in range(count)]

    def failure(self, stage: str = "s") -> TaskFailed:
        """How the stage's only task has failed."""
        (event,) = self.ended(1, stage).values()
        assert isinstance(event, TaskFailed), event
        return event

    def _post(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        with self._news:
            self.events += events
            self._news.notify_all()
        if logged is not None:
            logged()
        for event in events:
            if isinstance(event, NodeJoined) and event.allocation not in self._adopted:
                self._adopted.add(event.allocation)
                mine = self._tasks if event.allocation == "a" else ()
                self.executor.adopt(mine, event.allocation, self._nodes if mine else [])


def value_of(event: Event) -> Any:
    """What a task returned."""
    assert isinstance(event, TaskDone), event
    return pickle.loads(Path(event.path).read_bytes() if event.path else event.value or b"")


@dataclass
class Bench:
    """Where an executor is tried: drivers and nodes, all ended at the end.

    Parameters
    ----------
    start
        Starts a job's program: its arguments, the node's name, the working directory.
    """

    make: Callable[[], Executor]
    context: RunContext
    start: Callable[[Sequence[str], str, str], TestProgram] = start_here
    drivers: list[ExecutorDriver] = field(default_factory=list)
    programs: list[TestProgram] = field(default_factory=list)

    def driver(self, tasks: Sequence[Task] = (), nodes: Sequence[str] = ("n1",)) -> ExecutorDriver:
        """A driver, which takes over these `tasks` of an earlier one in allocation ``"a"``, which had these nodes."""
        private_directory(self.context.directory)
        self.drivers.append(ExecutorDriver(self.make(), self.context, tasks, nodes))
        return self.drivers[-1]

    def node(
        self, key: str = "a", resources: Resources | None = None, name: str = "n1", grace_s: float | None = None
    ) -> TestProgram:
        """A node of this allocation, which looks for a driver for `grace_s` [s] if that is not to be the context's."""
        allocation = Allocation(key, resources or Resources(cores=2), 3600.0)
        context = self.context if grace_s is None else replace(self.context, orphan_grace_s=grace_s)
        argv = self.make().bootstrap(allocation, context)
        self.programs.append(self.start(argv, name, self.context.workdir))
        return self.programs[-1]

    def directory(self, name: str) -> str:
        """An empty directory for tasks."""
        return str(private_directory(Path(self.context.workdir, name)))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        for driver in self.drivers:
            driver.executor.close()
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.wait(PATIENCE_S)


class ExecutorConformance:
    """What every executor must do."""

    @pytest.fixture
    def bench(self) -> Bench:
        raise NotImplementedError("a subclass says where")

    def test_a_node_joins_with_its_cores(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node("first", Resources(cores=2))
        (event,) = driver.joined()
        assert (event.allocation, event.cores) == ("first", 2)

    def test_a_job_may_start_before_its_driver_listens(self, bench: Bench) -> None:
        bench.node()
        time.sleep(0.3)
        driver = bench.driver()
        driver.joined()

    def test_values_return(self, bench: Bench) -> None:
        given = [None, 7, "text", b"bytes", Path("/a/b"), [1, {"two": (3.0, {4})}], "x" * 200_000]
        driver = bench.driver()
        driver.launch(tasks.echo, [(value,) for value in given])
        bench.node()
        assert driver.values(len(given)) == given

    def test_functions_travel_by_value(self, bench: Bench) -> None:
        driver, factor = bench.driver(), 6
        driver.launch(lambda number: lambda: number * factor, [(7,)])
        bench.node()
        assert driver.values(1)[0]() == 42

    def test_inputs_take_their_places(self, bench: Bench) -> None:
        file = Path(bench.context.workdir, "three.pkl")
        file.write_bytes(pickle.dumps(3))
        inputs = (pickle.dumps(1), pickle.dumps(2), str(file))
        driver = bench.driver()
        driver.launch(tasks.echo, [([Input(2), {"all": Input(0, 2)}, "4"],)], inputs=inputs)
        bench.node()
        assert driver.values(1) == [[3, {"all": [1, 2]}, "4"]]

    def test_tasks_run_in_the_working_directory(self, bench: Bench) -> None:
        driver = bench.driver()
        driver.launch(tasks.where, [()])
        bench.node()
        ((directory, pid),) = driver.values(1)
        assert os.path.samefile(directory, bench.context.workdir) and pid != os.getpid()

    def test_tasks_say_how_much_memory_they_took(self, bench: Bench) -> None:
        driver, mib = bench.driver(), 1 << 20
        bench.node(resources=Resources(cores=1))
        found = {}
        for stage, task, size in (
            ("small", tasks.hold, 1), ("large", tasks.hold, 200 * mib), ("after", tasks.hold, 1),
            ("program", tasks.start_and_hold, 300 * mib), ("then", tasks.hold, 1),
        ):  # fmt: skip
            driver.launch(task, [(size,)], stage=stage)
            ((event),) = driver.ended(1, stage).values()
            assert isinstance(event, TaskDone) and event.source in ("rusage", "proc"), event
            found[stage] = event.peak
        assert 0 < found["small"] < 190 * mib, found
        assert 200 * mib <= found["large"] < 400 * mib, found
        assert 300 * mib <= found["program"] < 500 * mib, found
        for stage in ("after", "then"):  # what ran before on the same worker is not theirs
            assert 0 < found[stage] < found["small"] + 50 * mib, found

    def test_tasks_say_how_long_processors_worked_for_them(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node(resources=Resources(cores=1))
        driver.launch(tasks.spin, [(2, 0.5)], stage="two")
        driver.launch(time.sleep, [(0.5,)], stage="none")
        (two,), (none,) = driver.ended(1, "two").values(), driver.ended(1, "none").values()
        assert isinstance(two, TaskDone) and isinstance(none, TaskDone)
        assert 1.0 <= two.cpu_s < 1.5, two
        # how many threads really ran at once depends on what else the machine does
        assert two.cpu_s / (two.at - two.started) == pytest.approx(value_of(two), rel=0.2, abs=0.1)
        assert none.cpu_s < 0.25, none

    def test_tasks_say_what_they_were_given(self, bench: Bench) -> None:
        file = Path(bench.context.workdir, "given")
        file.write_bytes(b"x" * 100_000)
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.echo, [("given",), (str(file),), ("x" * 5000,), ("absent",)])
        sizes = {index: event.given for index, event in driver.ended(4).items()}
        assert 100_000 < sizes[0] < 100_500 and 100_000 < sizes[1] < 101_000
        assert 5000 < sizes[2] < 5500 and 0 < sizes[3] < 500

    def test_many_tasks_are_reported_once_each(self, bench: Bench) -> None:
        driver, count = bench.driver(), 500
        bench.node()
        driver.launch(tasks.echo, [(number,) for number in range(count)], stage="many")
        assert driver.values(count, "many") == list(range(count))
        driver.launch(tasks.echo, [("last",)])
        assert driver.values(1) == ["last"]
        assert sum(isinstance(event, TaskDone) for event in driver.events) == count + 1

    def test_times_and_places_are_told(self, bench: Bench) -> None:
        driver, began = bench.driver(), time.time()
        bench.node(name="n7")
        driver.launch(time.sleep, [(0.2,)])
        (event,) = driver.ended(1).values()
        assert (event.allocation, event.stage, event.index) == ("a", "s", 0)
        assert event.node == driver.joined()[0].node
        assert began < event.started <= event.at - 0.2 <= time.time()

    def test_tasks_run_side_by_side_as_cores_allow(self, bench: Bench) -> None:
        driver, place = bench.driver(), bench.directory("meeting")
        bench.node()
        driver.launch(tasks.meet, [(place, number, 2) for number in range(2)])
        assert driver.values(2) == [True, True]

    def test_a_task_has_its_cores_to_itself(self, bench: Bench) -> None:
        driver, place = bench.driver(), bench.directory("room")
        bench.node()
        driver.launch(tasks.alone, [(place, 0.03)] * 4, resources=Resources(cores=2))
        assert driver.values(4) == [True] * 4

    def test_allocations_are_apart(self, bench: Bench) -> None:
        driver = bench.driver()
        driver.launch(tasks.echo, [("second",)], allocation="b", stage="two")
        bench.node("a", name="n1")
        driver.launch(tasks.echo, [("first",)], allocation="a", stage="one")
        assert driver.values(1, "one") == ["first"]
        assert not any(isinstance(event, TaskDone) and event.stage == "two" for event in driver.events)
        bench.node("b", name="n2")
        (event,) = driver.ended(1, "two").values()
        assert value_of(event) == "second" and event.allocation == "b"

    def test_an_exception_is_told_in_its_own_words(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.fail, [("no such band: 7",)])
        failed = driver.failure()
        assert "ValueError: no such band: 7" in failed.error
        assert "fail" in failed.traceback and not failed.infrastructure

    def test_the_last_words_on_standard_error_are_kept(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.shout, [("x" * 10_000 + "the end",)])
        failed = driver.failure()
        assert failed.stderr.rstrip().endswith("the end") and len(failed.stderr) <= 4096

    def test_a_result_that_cannot_travel_is_named(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.lock, [()])
        failed = driver.failure()
        assert "lock" in failed.error and "pickle" in failed.error and not failed.infrastructure

    def test_a_dead_worker_costs_one_task(self, bench: Bench) -> None:
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.die, [(3,)])
        failed = driver.failure()
        assert "3" in failed.error and not failed.infrastructure
        driver.launch(tasks.echo, [(number,) for number in range(20)], stage="after")
        assert driver.values(20, "after") == list(range(20))

    def test_release_ends_the_job_well(self, bench: Bench) -> None:
        driver, program = bench.driver(), bench.node()
        file = Path(bench.context.workdir, "pid")
        driver.launch(tasks.linger, [(str(file),)])
        pid = wait_for(file)
        driver.executor.release("a")
        assert program.wait(PATIENCE_S) == 0
        assert is_gone(pid)
        assert not any(isinstance(event, NodeLost) for event in driver.events)

    def test_release_is_heard_by_a_node_that_comes_late(self, bench: Bench) -> None:
        driver = bench.driver()
        driver.executor.release("a")
        assert bench.node().wait(PATIENCE_S) == 0

    def test_release_is_heard_when_the_driver_is_gone(self, bench: Bench) -> None:
        driver = bench.driver()
        driver.executor.release("a")
        driver.executor.close()
        assert bench.node().wait(PATIENCE_S) == 0

    def test_release_then_close(self, bench: Bench) -> None:
        driver, program = bench.driver(), bench.node()
        driver.joined()
        driver.executor.release("a")
        driver.executor.close()
        assert program.wait(PATIENCE_S) == 0

    def test_a_lost_node_is_told_and_not_blamed_on_its_tasks(self, bench: Bench) -> None:
        driver, program = bench.driver(), bench.node()
        file = Path(bench.context.workdir, "pid")
        driver.launch(tasks.linger, [(str(file),)])
        pid = wait_for(file)
        program.kill()
        assert driver.lost().allocation == "a"
        assert is_gone(pid)
        assert all(event.infrastructure for event in driver.events if isinstance(event, TaskFailed))

    def test_a_new_driver_takes_over(self, bench: Bench) -> None:
        first, program = bench.driver(), bench.node()
        file = Path(bench.context.workdir, "pid")
        first.launch(tasks.linger, [(str(file),)])
        pid = wait_for(file)
        first.executor.close()
        second = bench.driver()
        second.launch(tasks.echo, [("again",)])
        assert second.values(1) == ["again"]
        assert is_gone(pid), "what ran for the first driver has ended"
        second.executor.release("a")
        assert program.wait(PATIENCE_S) == 0

    def test_a_task_that_runs_is_the_next_drivers_or_ends(self, bench: Bench) -> None:
        first, program = bench.driver(), bench.node()
        files = [str(Path(bench.context.workdir, name)) for name in ("pid", "go")]
        first.launch(tasks.await_file, [tuple(files)])
        pid = wait_for(Path(files[0]))
        first.executor.close()
        second = bench.driver(first.given)
        if second.kept():
            Path(files[1]).touch()
            assert second.values(1) == [pid], "it has not begun again"
        else:
            assert is_gone(pid)
        second.executor.release("a")
        assert program.wait(PATIENCE_S) == 0

    def test_without_a_driver_the_job_ends_itself(self, bench: Bench) -> None:
        driver, program = bench.driver(), bench.node(grace_s=0.5)
        driver.joined()
        driver.executor.close()
        assert program.wait(PATIENCE_S) != 0


def wait_for(file: Path) -> int:
    """The number in a file, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was never written"
        time.sleep(0.005)
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether this process ends within a while."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = proc.stat(pid)
        if found is None or found.ended:
            return True
        time.sleep(0.005)
    return False
