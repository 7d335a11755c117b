"""Whole runs against a simulated queue, from `asa.run` to the report."""

from __future__ import annotations

import queue as queues
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.cli.main import main
from asa.core.errors import GraphError, InvalidInput, RunFailed, RunNotFound
from asa.core.event import (
    AllocationStarted,
    JobEnded,
    RunStarted,
    RunState,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TaskPaused,
)
from asa.core.job import JobState
from asa.core.registry import STRATEGIES
from asa.lab.backend.simulated import Simulated
from asa.lab.simulator import operations
from asa.log.database import LearnedStore
from asa.workflows.run import Run, open_run, resume

BUSY = "sim:nodes=4,cores=8,load=0.9,seed=2,warmup=2.5,days=4"
EMPTY = "sim:nodes=4,cores=8"


@asa.stage(cores=8, walltime="1h", run_time="10m")
def square(x: int) -> int:
    return x * x


@asa.stage(cores=4, walltime="30m", run_time=lambda xs: 60.0 * len(xs))
def total(xs: list[int]) -> int:
    return sum(xs)


@asa.stage(run_time=1.0)
def numbers(count: int) -> list[int]:
    return list(range(count))


@asa.stage(run_time=1.0, retries=1)
def fail(x: int) -> int:
    raise ValueError(f"no {x}")


def go(workflow: Any, directory: Path, backend: Any = EMPTY, **options: Any) -> Run:
    run = asa.run(workflow, backend=backend, state=directory, check=False, **options)
    run.wait()
    return run


def happened(run: Run, *kinds: type[Any]) -> list[Any]:
    return [event for _, event in run.events() if isinstance(event, kinds)]


def course(run: Run) -> list[tuple[str, float]]:
    """What happened and when."""
    return [(type(event).__name__, event.at) for _, event in run.events()]


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_every_strategy_reaches_the_result(tmp_path: Path, strategy: str) -> None:
    run = go(total(square.map(numbers(20))), tmp_path, BUSY, strategy=strategy)
    assert run.result() == sum(x * x for x in range(20))
    states = {event.state for event in happened(run, JobEnded)}
    if strategy in ("asa-naive", "stagger"):  # by their own rule they return what came too early
        states -= {JobState.CANCELLED}
    assert states == {JobState.COMPLETED}
    assert run.summary.makespan_s >= 1 + 3 * 600 + 20 * 60
    assert happened(run, RunStarted)[0].executor == "virtual"


def test_tasks_take_the_time_that_their_stage_declares(tmp_path: Path) -> None:
    run = go(total(square.map(range(20))), tmp_path)
    assert run.summary.makespan_s == 3 * 600 + 20 * 60
    assert {event.at - event.started for event in happened(run, TaskDone)} == {600.0, 1200.0}


def test_the_same_queue_gives_the_same_run(tmp_path: Path) -> None:
    runs = [go(total(square.map(range(20))), tmp_path / str(k), BUSY, strategy="per-stage") for k in range(2)]
    assert course(runs[0]) == course(runs[1])


def test_without_a_declared_time_tasks_take_as_long_as_their_call(tmp_path: Path) -> None:
    @asa.stage
    def plain(x: int) -> int:
        return x * x

    run = go(plain.map(range(3)), tmp_path)
    assert run.result() == [0, 1, 4]
    assert all(0 <= event.at - event.started < 60 for event in happened(run, TaskDone))


def test_tasks_take_as_long_as_they_once_did(tmp_path: Path) -> None:
    @asa.stage
    def plain(x: int) -> int:
        return x

    first = go(square.options(name="plain", run_time=lambda x: 10.0 + x).map(range(3)), tmp_path)
    for times in (first.name, first.directory.path, first.directory.events):
        run = go(plain.map(range(4)), tmp_path, Simulated(nodes=4, cores=8, times=str(times)))
        assert run.result() == [0, 1, 2, 3]
        assert [event.at - event.started for event in happened(run, TaskDone)] == [10.0, 11.0, 12.0, 11.0]
    with pytest.raises(RunNotFound):
        go(plain(1), tmp_path, f"{EMPTY},times=unknown")


def test_functions_need_not_be_called(tmp_path: Path) -> None:
    run = go(fail.options(run_time="1h", walltime="2h").map(range(3)), tmp_path, f"{EMPTY},compute=false")
    assert run.result() == [None] * 3
    assert run.summary.makespan_s == 3 * 3600


def test_without_calls_run_times_and_widths_must_be_declared(tmp_path: Path) -> None:
    @asa.stage
    def plain(x: int) -> int:
        return x

    with pytest.raises(InvalidInput, match="stage 'plain' has no run time"):
        go(plain(1), tmp_path, f"{EMPTY},compute=false")
    with pytest.raises(InvalidInput, match="how many tasks stage 'square' has"):
        go(square.map(numbers(3)), tmp_path, f"{EMPTY},compute=false")


def test_a_task_that_fails_fails_the_run(tmp_path: Path) -> None:
    run = go(fail(7), tmp_path)
    with pytest.raises(RunFailed, match="ValueError: no 7") as caught:
        run.result()
    assert "cannot be resumed" in str(caught.value)
    assert "in fail" in happened(run, TaskFailed)[0].traceback
    assert len(happened(run, TaskFailed)) == 2
    with pytest.raises(InvalidInput, match="cannot be resumed"):
        resume(run.name, state=tmp_path)


def test_a_run_time_that_is_none_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="run_time of stage 'square' returned -1"):
        go(square.options(run_time=lambda x: -1.0)(3), tmp_path).result()
    with pytest.raises(RunFailed, match="run_time of stage 'square' raised TypeError"):
        go(square.options(run_time=lambda: 1.0)(3), tmp_path).result()


def test_a_run_time_that_is_no_time_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidInput, match="stage 'plain': run_time 'soon'"):

        @asa.stage(run_time="soon")
        def plain() -> None: ...


def test_other_needs_leave_the_run_time_as_it_is() -> None:
    assert square.options(cores=2).needs.run_time == 600.0
    assert square.options(run_time=5).needs.run_time == 5.0


def test_a_large_result_travels_through_a_file(tmp_path: Path) -> None:
    @asa.stage(run_time=1.0)
    def large() -> bytes:
        return b"x" * 10**6

    @asa.stage(run_time=1.0)
    def length(data: bytes, more: dict[str, Any]) -> int:
        return len(data) + len(more["data"][0])

    node = large()
    run = go(length(node, {"data": (node,)}), tmp_path)
    assert run.result() == 2 * 10**6
    assert len(list(run.directory.values.glob("large-0-*.pkl"))) == 1


def test_ranks_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="srun in virtual time"):
        go(square.options(launcher="srun", retries=0)(3), tmp_path).result()


def test_tasks_run_in_the_working_directory(tmp_path: Path) -> None:
    @asa.stage(run_time=1.0)
    def where() -> str:
        import os

        return os.getcwd()

    (tmp_path / "work").mkdir()
    before = Path.cwd()
    assert go(where(), tmp_path / "state", workdir=tmp_path / "work").result() == str(tmp_path / "work")
    assert Path.cwd() == before


def test_a_run_that_succeeded_is_looked_at_and_resumed_like_any_other(tmp_path: Path) -> None:
    run = go(total(square.map(range(4))), tmp_path)
    again = resume(run.name, state=tmp_path)
    assert again.result() == open_run(run.name, state=tmp_path).result() == 14
    assert again.now() == run.now() == course(run)[-1][1]
    assert "done, 4 tasks" in again.explain()


def test_waits_are_learned_apart_from_real_ones(tmp_path: Path) -> None:
    go(square(3), tmp_path, BUSY)
    keys = LearnedStore(tmp_path / "learned.db").keys()
    assert any(key.startswith("waits sim-4x8-load0.9/") for key in keys)
    assert all("sim-" in key for key in keys)


def test_another_executor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="leave executor= out"):
        go(square(3), tmp_path, executor="local")
    assert not list((tmp_path / "runs").iterdir())


def test_a_stage_larger_than_the_machine_is_refused_before_anything_runs(tmp_path: Path) -> None:
    queue = Simulated(nodes=2, cores=2)
    with pytest.raises(GraphError, match="more than sim-2x2"):
        go(square(3), tmp_path, queue)
    assert go(numbers(2), tmp_path, queue).result() == [0, 1], "and the queue is free for the next run"


def test_a_job_that_comes_after_others_have_left_says_so(tmp_path: Path) -> None:
    queue = Simulated(nodes=4, cores=8, load=0.5, warmup=1, days=1)
    queue.sleep(90_000)
    run = go(square(3), tmp_path, queue)
    assert happened(run, SubmitRefused)
    with pytest.raises(RunFailed, match="more days="):
        run.result()


def test_runs_on_one_queue_follow_one_another(tmp_path: Path) -> None:
    queue = Simulated(nodes=4, cores=8, load=0.9, seed=1, warmup=2, days=9)
    first = asa.run(total(square.map(range(20))), backend=queue, state=tmp_path, strategy="asa")
    second = asa.run(total(square.map(range(20))), backend=queue, state=tmp_path, strategy="asa")
    second.wait()
    assert first.result() == second.result()
    assert course(first)[-1][1] <= course(second)[0][1]


@asa.stage(run_time=60, expect=6)
def measure(x: int) -> int:
    return x


def test_where_no_cores_are_given_as_many_tasks_are_asked_for_as_are_expected(tmp_path: Path) -> None:
    """Then as many as there are, which the next run expects; no more than the machine holds."""

    def asked(**needs: Any) -> list[int]:
        run = go(total(measure.options(**needs).map(numbers(9))), tmp_path, strategy="auto")
        assert run.result() == 36
        return [event.request.resources.cores for event in happened(run, Submitting) if needs["name"] in event.stages]

    assert asked(name="measure") == [6]
    assert asked(name="measure") == [9], "as it has learned"
    assert asked(name="other", expect=99) == [32]
    assert asked(name="wide", cpus=4, expect=3, memory="1G") == [12]
    assert asked(name="narrow", cores=2) == [2]
    (known,) = {event.request.resources.cores for event in happened(go(measure.map(range(9)), tmp_path), Submitting)}
    assert known == 1, "what is known from the start has one task's"
    run = go(total(measure.options(name="late").map(numbers(9))), tmp_path, strategy="per-stage")
    assert [event.request.resources.cores for event in happened(run, Submitting)] == [1, 9, 4]


@asa.stage(cores=8, task_cores=8, walltime="1h", run_time="5h", checkpoint=True)
def simulate(x: int) -> int:
    assert asa.checkpoint().last is None and asa.time_left() == float("inf"), "it is called once, for all its time"
    return x + 1


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_a_task_goes_on_in_the_next_allocation(tmp_path: Path, strategy: str) -> None:
    run = go(square(simulate(6)), tmp_path, BUSY, strategy=strategy)
    assert run.result() == 49
    pauses, (done, _) = happened(run, TaskPaused), happened(run, TaskDone)
    assert not happened(run, TaskFailed), "no retry is used up: it has none"
    assert sum(each.at - each.started for each in [*pauses, done]) == pytest.approx(5 * 3600), "its time adds up"
    most_s = 2 * 3600 if strategy == "big-job" else 3600
    assert all(each.at - each.started <= most_s - 30.0 and not each.lost for each in pauses)
    if strategy in ("auto", "hold", "big-job"):  # the next was asked for ahead, and is there when the first starts
        first, asked = happened(run, AllocationStarted)[0], happened(run, Submitting)
        assert sum(each.at <= first.at for each in asked) > len(pauses) and done.started == pauses[-1].at


def test_what_a_task_ran_since_it_was_paused_is_lost_with_its_node(tmp_path: Path) -> None:
    queue = Simulated(nodes=1, cores=8)
    begin = queue.clock.now()
    operations.fail_node(queue.engine, 0, at=begin + 5400, back=begin + 5460)
    run = go(simulate(6), tmp_path, queue, strategy="per-stage")
    assert run.result() == 7
    first, lost, *others = happened(run, TaskPaused)
    assert (first.saved, lost.saved) == ("3570 s", "3570 s") and lost.lost and not any(each.lost for each in others)
    ran_s = sum(each.at - each.started for each in [first, *others, *happened(run, TaskDone)])
    assert ran_s == pytest.approx(5 * 3600)


@asa.stage(walltime="1h", checkpoint=True)
def part(most: int) -> list[str]:
    saved = asa.checkpoint()
    done = (saved.last / "done").read_text().split() if saved.last else []
    if len(done) < most:
        with saved.save() as folder:
            (folder / "done").write_text(" ".join([*done, "x"]))
        asa.pause()
    return done


def test_a_task_that_pauses_by_itself_is_called_again(tmp_path: Path) -> None:
    run = go(part.options(run_time="3h")(2), tmp_path, strategy="per-stage")
    assert run.result() == ["x", "x"]
    ran = [each.at - each.started for each in [*happened(run, TaskPaused), *happened(run, TaskDone)]]
    assert sum(ran) == pytest.approx(3 * 3600) and len(ran) == 6
    run = go(part(2), tmp_path)  # as long as the calls really take: within one wall time
    assert run.result() == ["x", "x"] and len(happened(run, TaskPaused)) == 2


def test_a_run_can_be_cancelled(tmp_path: Path) -> None:
    queue = Simulated(nodes=4, cores=8)
    runs: queues.Queue[Run] = queues.Queue()
    begin = queue.clock.now()
    queue.clock.call_at(begin + 900, lambda: runs.get().cancel("enough"))
    run = asa.submit(total(square.map(range(20))), backend=queue, state=tmp_path, strategy="per-stage")
    runs.put(run)
    run.wait()
    assert run.status is RunState.CANCELLED
    assert course(run)[-1][1] == begin + 900
    with pytest.raises(RunFailed, match="enough"):
        run.result()


def test_an_error_of_the_simulation_comes_through(tmp_path: Path) -> None:
    class Broken:
        def decide(self, view: Any) -> Any:
            raise ArithmeticError("out of order")

    with pytest.raises(ArithmeticError):
        go(square(3), tmp_path, Simulated(nodes=8, dispatcher=Broken())).result()


def test_a_log_without_nodes(tmp_path: Path) -> None:
    rows = [f"{n} {3600 * n} 0 1800 30 -1 -1 30 3600 -1 1 1 1 1 1 1 -1 -1" for n in range(96)]
    (tmp_path / "log.swf").write_text("; MaxProcs: 32\n" + "\n".join(rows) + "\n")
    backend = f"sim:trace={tmp_path / 'log.swf'},warmup=1,days=2"
    run = go(square.options(task_cores=4).map(range(4)), tmp_path, backend)
    assert run.result() == [0, 1, 4, 9]
    assert run.summary.makespan_s == 1800 + 2 * 600, "it waits for the job of that hour, and runs two at a time"


@pytest.mark.shared
def test_a_real_log(tmp_path: Path) -> None:
    log = Path(__file__).parents[3] / "shared" / "data" / "swf" / "KTH-SP2-1996-2.swf.gz"
    if not log.exists():
        pytest.skip(f"no {log}")
    run = go(total(square.map(range(20))), tmp_path, f"sim:trace={log},warmup=30")
    assert run.result() == sum(x * x for x in range(20))
    assert run.summary.total_perceived_wait_s > 0


FILE = """
import asa

@asa.stage(cores=8, walltime="1h", run_time="10m")
def square(x):
    return x * x

workflow = square.map(range(20))
"""


@pytest.fixture
def handlers() -> Iterator[None]:
    """The command line's signal handlers are gone after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "squares.py").write_text(FILE)
    page = tmp_path / "report.html"
    assert main(["run", str(tmp_path / "squares.py"), "--backend", EMPTY, "--report", str(page)]) == 0
    printed = capsys.readouterr()
    assert "[0, 1, 4, 9" in printed.out
    assert "makespan 30 min" in printed.err
    assert "1970" not in printed.err and "years" not in printed.err
    assert "square" in page.read_text()
    (name,) = [path.name for path in (tmp_path / "state" / "runs").iterdir()]
    assert main(["explain", name]) == 0
    assert "square: done, 20 tasks" in capsys.readouterr().out
    assert main(["clean"]) == 0
