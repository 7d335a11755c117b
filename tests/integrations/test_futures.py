"""The executor, held against `concurrent.futures`: what holds for a pool of processes holds for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from asa.core.errors import GraphError, InvalidInput, RunFailed, Unpicklable
from asa.core.event import (
    Event,
    JobEnded,
    NodeJoined,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    Submitting,
    TaskCancelled,
    TasksLaunched,
)
from asa.integrations.call import RemoteTraceback
from asa.integrations.futures import PoolExecutor
from asa.log.events import EventLog
from asa.workflows.run import resume
from tests.waiting import until


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state", numbered=True)


@pytest.fixture(scope="module")
def executor(state: Path) -> Iterator[PoolExecutor]:
    with PoolExecutor("local:cores=2", state=state) as executor:
        yield executor


@pytest.fixture(scope="module")
def processes() -> Iterator[futures.Executor]:
    with futures.ProcessPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(params=["executor", "processes"])
def either(request: pytest.FixtureRequest) -> futures.Executor:
    found: futures.Executor = request.getfixturevalue(request.param)
    return found


def divide(a: int, b: int = 1) -> float:
    return a / b


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class Fragile(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_values_come_back(either: futures.Executor) -> None:
    assert either.submit(divide, 6, b=3).result() == 2
    assert list(either.map(divide, range(20), [2] * 20)) == [number / 2 for number in range(20)]


def test_exceptions_come_back_with_where_they_were_raised(either: futures.Executor) -> None:
    error = either.submit(divide, 1, 0).exception()
    assert isinstance(error, ZeroDivisionError) and "return a / b" in str(error.__cause__)
    assert isinstance(either.submit(sys.exit, 3).exception(), SystemExit)
    with pytest.raises(ZeroDivisionError):
        list(either.map(divide, [1, 2], [1, 0]))


def test_callbacks_and_waiting(either: futures.Executor) -> None:
    called: list[object] = []
    both = [either.submit(divide, 4, 2), either.submit(divide, 9, 3)]
    both[0].add_done_callback(called.append)
    done, left = futures.wait(both, timeout=30)
    assert not left and {future.result() for future in done} == {2, 3}
    until(lambda: called == [both[0]], "the callback")
    assert set(futures.as_completed(both)) == set(both)


@pytest.mark.parametrize("kind", ["executor", "processes"])
def test_what_has_not_begun_can_be_cancelled(kind: str, state: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"  # of its own: an executor that knows calls to be short gives them away early
    with PoolExecutor("local:cores=2", state=state) if kind == "executor" else futures.ProcessPoolExecutor(2) as fresh:
        running = [fresh.submit(wait_for, gate) for _ in range(6)]
        until(lambda: sum(future.running() for future in running) >= 2, "two calls to run")
        cancelled = running[-1].cancel(), running[-1].cancelled(), running[0].cancel()
        gate.touch()
        done, _ = futures.wait(running, timeout=30)
        assert cancelled == (True, True, False)
        assert len(done) == 6
        with pytest.raises(futures.CancelledError):
            running[-1].result()


def test_it_serves_asyncio(either: futures.Executor) -> None:
    async def gather() -> list[float]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(either, divide, number) for number in range(5)))

    assert asyncio.run(gather()) == [0, 1, 2, 3, 4]


def test_functions_travel_as_they_are(executor: PoolExecutor) -> None:
    number = 3
    assert executor.submit(lambda x: x + number, 4).result() == 7


def test_large_values_travel_and_are_not_kept(executor: PoolExecutor) -> None:
    assert len(executor.submit(bytes, 1 << 20).result()) == 1 << 20
    assert executor.submit(len, bytes(1 << 20)).result() == 1 << 20
    until(lambda: not os.listdir(executor.directory.values), "the files to be gone")


def test_what_cannot_travel_fails_its_future(executor: PoolExecutor) -> None:
    error = executor.submit(print, threading.Lock()).exception()
    assert isinstance(error, Unpicklable) and "a call of print" in str(error)
    error = executor.submit(threading.Lock).exception()
    assert isinstance(error, RunFailed) and "keeping the result" in str(error)


def test_an_exception_that_cannot_travel_becomes_a_runtime_error(executor: PoolExecutor) -> None:
    def fail() -> None:
        raise Fragile(1, 2)

    error = executor.submit(fail).exception()
    assert isinstance(error, RuntimeError) and str(error) == "Fragile: 1 and 2"
    assert isinstance(error.__cause__, RemoteTraceback)


@pytest.mark.slow
def test_only_the_call_whose_process_died_fails(executor: PoolExecutor) -> None:
    dead = executor.submit(lambda: os._exit(3))
    others = executor.map(divide, range(10))
    error = dead.exception()
    assert isinstance(error, RunFailed) and "exit code 3" in str(error) and error.stage == "calls"
    assert len(list(others)) == 10


def test_the_log_has_calls_but_not_their_values(state: Path) -> None:
    with PoolExecutor("local:cores=2", state=state) as executor:
        assert executor.slots == 2
        list(executor.map(divide, range(5)))
    with EventLog(executor.directory.events) as log:
        events = [event for _, event in log.read()]
        assert [*log.all_values("calls")] == []
    widths = [event.width for event in events if isinstance(event, StageExpanded)]
    assert widths[-1] == 5 and widths == sorted(widths)
    launched = [event.ranges for event in events if isinstance(event, TasksLaunched)]
    assert sum(stop - start for ranges in launched for start, stop in ranges) == 5
    assert [event.state for event in events if isinstance(event, RunEnded)] == [RunState.SUCCEEDED]
    assert len([event for event in events if isinstance(event, Submitting)]) == 1
    assert isinstance(events[-1], JobEnded)
    with pytest.raises(GraphError, match=r"asa\.integrations\.futures"):
        resume(executor.name, state=state)


@pytest.mark.slow
def test_after_shutdown_no_calls_are_taken(state: Path, tmp_path: Path) -> None:
    executor = PoolExecutor("local:cores=1", state=state)
    running = executor.submit(wait_for, tmp_path / "gate")
    waiting = [executor.submit(divide, 1) for _ in range(3)]
    until(running.running, "the first call to run")
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(divide, 1)
    (tmp_path / "gate").touch()
    executor.shutdown()
    assert running.result() is None
    with EventLog(executor.directory.events) as log:
        assert [event.index for _, event in log.read() if isinstance(event, TaskCancelled)] == [1, 2, 3]


def test_workers_are_ended_at_once(state: Path, tmp_path: Path) -> None:
    executor = PoolExecutor("local:cores=1", state=state)
    running, waiting = (executor.submit(wait_for, tmp_path / "no gate") for _ in range(2))
    until(running.running, "the first call to run")
    executor.terminate_workers()
    assert waiting.cancelled()
    with pytest.raises(RunFailed, match="the executor was shut down"):
        running.result(0)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(divide, 1)


class Unbootable:
    """An executor whose jobs end at once."""

    def bootstrap(self, *_: object) -> tuple[str, ...]:
        return ("false",)

    def start(self, *_: object) -> None: ...
    def launch(self, *_: object) -> None: ...
    def release(self, *_: object) -> None: ...
    def close(self) -> None: ...


class Unstartable(Unbootable):
    """One that cannot listen anywhere."""

    def start(self, *_: object) -> None:
        raise OSError("no port can be had")


def refusal(executor: PoolExecutor) -> str:
    """Why calls are refused, or "" while they are not."""
    try:
        executor.submit(divide, 1)
    except RuntimeError as error:
        return str(error)
    return ""


def test_a_refused_job_fails_waiting_and_new_calls(state: Path) -> None:
    with PoolExecutor("local:cores=1", state=state, executor=Unbootable()) as executor:
        error = executor.submit(divide, 1).exception(timeout=60)
        assert isinstance(error, RunFailed) and "no allocation is of use" in str(error)
        assert "no allocation is of use" in until(lambda: refusal(executor), "calls to be refused")


def test_an_executor_that_does_not_start_refuses_calls(state: Path) -> None:
    with PoolExecutor("local:cores=1", state=state, executor=Unstartable()) as executor:
        assert "after shutdown: no port can be had" in until(lambda: refusal(executor), "calls to be refused")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backend": "local:cores=2", "cores": 4}, "more than local ever gives"),
        ({"maximum": 0}, "maximum >= 1"),
        ({"launcher": "srun"}, "neither a launcher"),
        ({"coers": 1}, "unknown option"),
        ({"backend": "sim:nodes=1,cores=1", "executor": "local"}, "brings an executor of its own"),
        ({"backend": "sim:nodes=1,cores=1,compute=false"}, "stage 'calls' has no run time"),
    ],
)
def test_a_refused_executor_leaves_nothing_behind(options: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=said):
        PoolExecutor(**options, state=tmp_path)  # type: ignore[arg-type]
    assert not os.listdir(tmp_path / "runs")


def test_a_working_directory_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="workdir '/nonexistent': there is no such directory"):
        PoolExecutor("local:cores=1", workdir="/nonexistent", state=tmp_path)
    assert not os.listdir(tmp_path)


def test_any_name_will_do_and_calls_run_in_the_working_directory(state: Path, tmp_path: Path) -> None:
    with PoolExecutor("local:cores=1", name="größe/2", workdir=tmp_path, state=state) as executor:
        assert executor.name.startswith("gr--e-2-")
        assert executor.submit(os.getcwd).result() == str(tmp_path)


@pytest.mark.slow
def test_gpus_bound_the_calls_at_once(tmp_path: Path) -> None:
    needs = {"cores": 4, "gpus": 1, "run_time": "1h", "walltime": "2h", "maximum": 3}
    with PoolExecutor("sim:nodes=4,cores=4,gpus=1", **needs, state=tmp_path) as executor:
        assert (executor.slots, executor.most) == (1, 3)
        assert list(executor.map(divide, range(3))) == [0, 1, 2]
    with EventLog(executor.directory.events) as log:
        assert sum(isinstance(event, Submitting) for _, event in log.read()) == 3


def test_hours_of_virtual_time_do_not_pass_here(state: Path) -> None:
    with PoolExecutor("sim:nodes=2,cores=4", cores=4, run_time="2h", walltime="5h", maximum=2, state=state) as executor:
        assert list(executor.map(divide, range(8))) == list(range(8))
    with EventLog(executor.directory.events) as log:
        events = [event for _, event in log.read()]
    assert isinstance(events[0], RunStarted)
    assert (events[0].strategy, events[0].executor, events[0].pool) == ("elastic", "virtual", "shared")
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert 2 * 3600 <= ended.at - events[0].at < 4.5 * 3600


def test_in_virtual_time_calls_need_not_be_made(state: Path) -> None:
    with PoolExecutor("sim:nodes=1,cores=2,compute=false", run_time="2h", walltime="5h", state=state) as executor:
        assert executor.submit(os.abort).result() is None


@pytest.mark.slow
def test_a_program_that_ends_waits_for_its_calls(tmp_path: Path) -> None:
    text = f"""
from asa.integrations.futures import PoolExecutor
def write(name): open(name, "w").close()
PoolExecutor("local:cores=1", state={str(tmp_path)!r}).submit(write, {str(tmp_path / "done")!r})
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=100)
    assert (tmp_path / "done").exists()


def events_of(executor: PoolExecutor) -> list[Event]:
    with EventLog(executor.directory.events) as log:
        return [event for _, event in log.read()]


def test_calls_of_another_size_share_the_allocation(state: Path) -> None:
    with PoolExecutor("local:cores=4", state=state, memory="2G") as executor:
        wide = executor.sized("wide", cores=3, memory="512M")
        assert executor.sized("wide", cores=3, memory="512M").submit(divide, 8, 2).result() == 4
        assert list(wide.map(divide, range(5))) == list(range(5))
        assert executor.submit(divide, 6, 3).result() == 2
        with pytest.raises(InvalidInput, match="'wide' is the name of calls of 3 cores"):
            executor.sized("wide", cores=2)
        with pytest.raises(InvalidInput, match="one task needs 5 cores"):
            executor.sized("wider", cores=5)
        late = executor.sized("late", timeout=0.5).submit(time.sleep, 60)
        assert "timed out" in str(late.exception())
        wide.shutdown()
        assert wide.submit(divide, 1).result() == 1
    events = events_of(executor)
    assert len([event for event in events if isinstance(event, Submitting)]) == 1
    assert {event.stage for event in events if isinstance(event, TasksLaunched)} == {"calls", "wide", "late"}


def test_memory_can_follow_the_cores(state: Path) -> None:
    with PoolExecutor("local:cores=4", state=state, memory_per_core="100M") as executor:
        assert executor.spec.resources.memory == 400 * 2**20
    with PoolExecutor("local:cores=4", state=state, memory="1G", memory_per_core="100M") as executor:
        assert executor.spec.resources.memory == 2**30


def test_an_allocation_is_there_when_calls_that_were_announced_come(state: Path) -> None:
    with PoolExecutor("local:cores=2", state=state) as executor:
        executor.expect((0.0, 1), (60.0, {"calls": 4}))
        until(lambda: any(isinstance(event, NodeJoined) for event in events_of(executor)), 30.0)
        assert executor.submit(divide, 4, 2).result() == 2
    assert len([event for event in events_of(executor) if isinstance(event, Submitting)]) == 1
