"""When one task of many fails: what goes on, what is skipped, what is tried again, and what the run comes to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asa
from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.core.event import ResultsLost, RetriesDue, RunState, StageGrown, Submitting, TaskFailed, TasksLaunched
from asa.core.run import DELAY_MOST_S, TaskState
from asa.core.stage import StageState
from asa.core.task import Failed, Task
from tests.waiting import until
from tests.workflows.world import Crash, World, check_clean, launches, picture

EXAMPLES = 2000 if settings.get_current_profile_name() == "long" else 60


def value(number: int, *inputs: Any) -> list[int]:
    """What a task makes of its inputs: how many of them there are, and how many have failed, and a list's length."""
    flat = [each for item in inputs for each in (item if isinstance(item, list) else [item])]
    return [number, len(flat), sum(isinstance(each, Failed) for each in flat), 0]


@asa.stage(walltime=60)
def align(x: int) -> int:
    return 10 * x


@asa.stage(walltime=60)
def call(y: int) -> int:
    return y + 1


@asa.stage(walltime=60, accepts_failed=True)
def table(ys: list[Any]) -> list[Any]:
    return [y.message if isinstance(y, Failed) else y for y in ys]


@asa.stage(walltime=60)
def total(ys: list[int]) -> int:
    return sum(ys)


def failing(*tasks: tuple[str, int], error: str = "no reads", times: int = 99) -> Any:
    """These fail, so many times."""
    return lambda task, attempt: error if (task.stage, task.index) in tasks and attempt <= times else None


def samples(count: int = 10) -> Any:
    called = call.map(align.map(range(count)))
    return [called, table(called), total(called)]


def tasks_of(world: World) -> dict[str, str]:
    """A letter for each task of each stage."""
    plan = world.replay()
    letters = {TaskState.DONE: "d", TaskState.FAILED: "f", TaskState.SKIPPED: "s", TaskState.WAITING: "."}
    return {name: "".join(letters[TaskState(state)] for state in stage.tasks) for name, stage in plan.stages.items()}


def states_of(world: World) -> dict[str, StageState]:
    return {name: stage.state for name, stage in world.replay().stages.items()}


# ---------------------------------------------------------------- nine of ten


@pytest.mark.parametrize("strategy", ["big-job", "per-stage", "asa:dependency=upfront", "auto"])
def test_nine_results_of_ten_pass_through_a_chain(tmp_path: Path, strategy: str) -> None:
    world = World(tmp_path, samples(), strategy, keep_going=True, fault=failing(("align", 3)))
    assert world.drive() is RunState.PARTIAL
    check_clean(world)
    assert tasks_of(world) == {"align": "dddfdddddd", "call": "dddsdddddd", "table": "d", "total": "."}
    assert states_of(world)["total"] is StageState.SKIPPED
    (found,) = map(asa_load, world.log.all_values("table"))
    assert found == [1, 11, 21, "skipped, as task 3 of align failed: RuntimeError: no reads", *range(41, 100, 10)]
    assert "1 of 10 tasks failed; the first: task 3 on node node: RuntimeError: no reads" in world.message
    assert "skipped because of it: total" in world.message and "1 of 10 tasks of call" in world.message
    asked = {name for event in world.events(Submitting) for name in event.stages}
    assert "total" not in asked or strategy != "per-stage", "nothing is asked for that is skipped"


def asa_load(stored: Any) -> Any:
    from asa.log.values import load

    return load(stored)


def test_without_being_asked_a_stage_stops_at_its_first_failure(tmp_path: Path) -> None:
    world = World(tmp_path, samples(), fault=failing(("align", 3)))
    assert "stage 'align' failed: task 3" in world.fail()
    assert states_of(world)["call"] is StageState.SKIPPED


def test_one_stage_continues_and_the_next_ones_follow_it(tmp_path: Path) -> None:
    called = call.map(align.options(on_error="continue").map(range(4)))
    world = World(tmp_path, [called, table(called)], fault=failing(("align", 0)))
    assert world.drive() is RunState.PARTIAL
    assert tasks_of(world) == {"align": "fddd", "call": "sddd", "table": "d"}


def test_a_run_of_which_nothing_is_done_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path, total(align.map(range(2))), keep_going=True, fault=failing(("align", 0), ("align", 1)))
    assert world.drive() is RunState.FAILED
    assert "2 of 2 tasks failed" in world.message


def test_a_stage_that_stops_fails_the_run_although_others_continue(tmp_path: Path) -> None:
    flow = [align.options(on_error="stop", name="strict").map(range(3)), align.map(range(3))]
    world = World(tmp_path, flow, keep_going=True, fault=failing(("strict", 0), ("align", 0)))
    assert world.drive() is RunState.FAILED
    assert tasks_of(world)["align"] == "fdd"


# ---------------------------------------------------------------- on again


def test_a_new_driver_tries_the_failed_and_the_skipped_again(tmp_path: Path) -> None:
    world = World(tmp_path, samples(), keep_going=True, fault=failing(("align", 3), times=1))
    assert world.drive() is RunState.PARTIAL
    before = launches(world)
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == [list(range(1, 100, 10)), list(range(1, 100, 10)), sum(range(1, 100, 10))]
    again = {task for task, count in launches(world).items() if count > before[task]}
    assert again == {("align", 3), ("call", 3), ("table", 0), ("total", 0)}
    (lost,) = world.events(ResultsLost)
    assert lost.tasks == (("table", 0),)


def test_what_follows_from_what_was_made_of_failures_runs_again_too(tmp_path: Path) -> None:
    made = table(align.map(range(4)))
    flow = [total.options(name="count")(made_length(made)), made]
    world = World(tmp_path, flow, keep_going=True, fault=failing(("align", 1), times=1))
    assert world.drive() is RunState.PARTIAL
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == [4, [0, 10, 20, 30]]
    assert launches(world)["count", 0] == 2


@asa.stage(walltime=60)
def made_length(ys: list[Any]) -> list[int]:
    return [len(ys)]


def test_a_crash_at_any_event_changes_nothing_of_the_end(tmp_path: Path) -> None:
    def world_in(directory: Path) -> World:
        directory.mkdir()
        return World(directory, samples(4), "per-stage", keep_going=True, fault=failing(("align", 1)))

    whole = world_in(tmp_path / "whole")
    assert whole.drive() is RunState.PARTIAL
    wanted = tasks_of(whole), states_of(whole), asa_load(whole.log.all_values("table")[0])
    for at in range(whole.logged):
        for after in (True, False):
            world = world_in(tmp_path / f"{at}-{after}")
            with pytest.raises(Crash):
                world.drive(at, after=after)
            assert picture(world.replay()) == picture(world.replay())
            assert world.drive() is RunState.PARTIAL, (at, after)
            check_clean_of_jobs(world)
            assert (tasks_of(world), states_of(world), asa_load(world.log.all_values("table")[0])) == wanted


def check_clean_of_jobs(world: World) -> None:
    assert all(status.state.final for _, status in world.batch.jobs())
    assert not world.replay().illegal


@pytest.mark.parametrize("strategy", ["asa:dependency=upfront", "hold:technique=array", "cascade", "auto"])
def test_what_accepts_failures_is_asked_for_when_only_a_failure_is_left_before_it(
    tmp_path: Path, strategy: str
) -> None:
    """The job of a stage before it was lost with the first driver; that of the one that failed has ended by then."""
    one, two = align.options(name="one")(1), align.options(name="two")(2)
    world = World(tmp_path, table.options(name="both")([one, two]), strategy, wait=10.0, fault=failing(("two", 0)))
    with pytest.raises(Crash):
        world.drive(2, after=False)
    assert world.drive() is RunState.FAILED
    assert tasks_of(world)["both"] == "d"


def test_what_is_mapped_over_a_stage_that_never_began_is_skipped(tmp_path: Path) -> None:
    listed = call.options(name="listed").map(align(1))
    both = asa.stage(taking_all, walltime=60, accepts_failed=True).map(listed, rest=listed)
    told = asa.stage(taking_all, name="told", walltime=60, accepts_failed=True)(listed, None)
    world = World(tmp_path, [both, told], keep_going=True, fault=failing(("align", 0)))
    assert world.drive() is RunState.PARTIAL
    assert states_of(world)["taking_all"] is StageState.SKIPPED
    assert isinstance(asa_load(world.log.value("told", 0)), Failed), "one, for it is not known of how many"


def taking_all(x: Any, rest: Any) -> Any:
    return x


# ---------------------------------------------------------------- any graph, against plain Python


@dataclass(frozen=True)
class Step:
    """A stage: how it takes which stages before it, and what it does about failures."""

    kind: str  # single, spread (mapped over numbers), alike, list (over one result), parts (over a list of results)
    sources: tuple[int, ...]
    extra: tuple[int, ...]
    width: int
    continues: bool
    accepts: bool
    failing: frozenset[int]


@st.composite
def steps(draw: st.DrawFn) -> tuple[Step, ...]:
    found: list[Step] = []
    for number in range(draw(st.integers(1, 7))):
        mapped = [place for place, step in enumerate(found) if step.kind != "single"]
        singles = [place for place, step in enumerate(found) if step.kind == "single"]
        kinds = ["single", "spread", *(["alike"] * 3 if mapped else []), *(["list", "parts"] if singles else [])]
        kind, sources = draw(st.sampled_from(kinds)), tuple[int, ...]()
        if kind == "alike":
            sources = (draw(st.sampled_from(mapped)),)
        elif kind == "list":
            sources = (draw(st.sampled_from(singles)),)
        elif kind == "parts":
            sources = tuple(draw(st.lists(st.sampled_from(singles), min_size=1, max_size=4)))
        elif kind == "single" and number:
            sources = tuple(draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)))
        extra = draw(st.lists(st.integers(0, number - 1), max_size=1)) if number and kind != "single" else []
        found.append(
            Step(
                kind,
                sources,
                tuple(each for each in extra if draw(st.integers(0, 3)) == 0),
                draw(st.integers(0, 5)),
                draw(st.integers(0, 4)) > 0,
                draw(st.integers(0, 2)) == 0,
                draw(st.frozensets(st.integers(0, 4), max_size=2)) if draw(st.booleans()) else frozenset(),
            )
        )
    return tuple(found)


LENGTH = 4
"""What `value` returns is a list of so many."""


@dataclass
class Expected:
    """What is to become of a stage: a letter for each task, None where that depends on when it was given up."""

    state: StageState
    tasks: str | None
    width: int | None
    tolerated: bool = True


def oracle(found: Sequence[Step]) -> list[Expected]:
    """What is to become of each stage, without any events."""
    ends: list[Expected] = []
    for step in found:
        how = step.kind if step.kind in ("alike", "list", "parts") else "whole"
        feeding = [(source, how) for source in step.sources]
        feeding += [(source, "whole") for source in step.extra]
        whole = {source for source, how in feeding if how in ("whole", "list")}
        widths = {"single": 1, "spread": step.width, "list": LENGTH, "parts": len(step.sources)}
        width = ends[step.sources[0]].width if step.kind == "alike" else widths[step.kind]
        skipped: set[int] = set()
        over = False
        for source, how in feeding:
            end = ends[source]
            if end.state is StageState.DONE:
                continue
            if how == "list" or (how == "alike" and end.width is None):
                over = True
            elif step.accepts:
                continue
            elif source in whole or not end.tolerated:
                over = True
            elif how == "alike":
                letters = end.tasks or ""
                skipped |= {index for index, letter in enumerate(letters) if letter != "d"}
                over = over or "d" not in letters
            else:
                skipped |= {index for index, other in enumerate(step.sources) if other == source}
        if over:
            known = width if step.kind != "list" else None
            ends.append(Expected(StageState.SKIPPED, None, known, step.continues))
            continue
        assert width is not None
        letters = "".join("s" if index in skipped else "f" if index in step.failing else "d" for index in range(width))
        if "f" in letters and not step.continues:
            ends.append(Expected(StageState.FAILED, None, width, False))
        elif set(letters) <= {"d"}:
            ends.append(Expected(StageState.DONE, letters, width))
        else:
            state = StageState.FAILED if "f" in letters else StageState.SKIPPED
            state = StageState.PARTIAL if "d" in letters else state
            ends.append(Expected(state, letters, width))
    return ends


def build(found: Sequence[Step]) -> list[Any]:
    nodes: list[Any] = []
    for number, step in enumerate(found):
        needs = {"on_error": "continue" if step.continues else "stop", "accepts_failed": step.accepts, "walltime": 600}
        make = asa.stage(**needs)(partial(taking, number)).options(name=f"s{number}")
        sources = [nodes[source] for source in step.sources]
        extra = {"extra": [nodes[source] for source in step.extra]} if step.extra else {}
        if step.kind == "single":
            nodes.append(make(*sources))
        elif step.kind == "spread":
            nodes.append(make.map(range(step.width), **extra))
        elif step.kind == "parts":
            nodes.append(make.map(sources, **extra))
        else:
            nodes.append(make.map(sources[0], **extra))
    return nodes


def taking(number: int, *sources: Any, extra: Sequence[Any] = ()) -> list[int]:
    return value(number, *sources, *extra)


STRATEGIES = ["big-job", "per-stage", "asa:dependency=upfront", "asa:dependency=none,grace_s=20", "auto:grace_s=30"]
STRATEGIES += ["hold:technique=array", "hold:technique=parked,grace_s=20", "cascade", "stagger:grace_s=30,spacing_s=20"]


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(found=steps(), strategy=st.sampled_from(STRATEGIES), waits=st.sampled_from([0.0, 30.0]), data=st.data())
def test_what_is_done_failed_and_skipped_is_what_plain_python_says(
    found: tuple[Step, ...], strategy: str, waits: float, data: st.DataObject
) -> None:
    bad = {(f"s{number}", index) for number, step in enumerate(found) for index in step.failing}
    with TemporaryDirectory() as place:
        world = World(Path(place), build(found), strategy, wait=waits, fault=failing(*bad))
        outcome = world.drive()
        check_outcome(world, found, outcome)
        check_clean(world)
        if outcome is not RunState.SUCCEEDED and data.draw(st.booleans()):
            assert world.drive() is outcome  # all is tried again, and ends in the same way
            check_outcome(world, found, outcome)
            check_clean_of_jobs(world)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(found=steps(), strategy=st.sampled_from(STRATEGIES), at=st.integers(0, 60), after=st.booleans())
def test_a_crash_changes_nothing_of_what_is_done_failed_and_skipped(
    found: tuple[Step, ...], strategy: str, at: int, after: bool
) -> None:
    bad = {(f"s{number}", index) for number, step in enumerate(found) for index in step.failing}
    with TemporaryDirectory() as place:
        world = World(Path(place), build(found), strategy, wait=10.0, fault=failing(*bad))
        try:
            outcome = world.drive(at, after=after)
        except Crash:
            outcome = world.drive()
        check_outcome(world, found, outcome)
        check_clean_of_jobs(world)


def check_outcome(world: World, found: Sequence[Step], outcome: RunState) -> None:
    wanted, plan, letters = oracle(found), world.replay(), tasks_of(world)
    assert not plan.illegal
    for number, (step, end) in enumerate(zip(found, wanted, strict=True)):
        stage = plan.stages[f"s{number}"]
        assert stage.state is end.state, (number, end)
        if end.tasks is not None:
            assert letters[f"s{number}"] == end.tasks, (number, end)
        if end.tasks is not None and stage.done and all(wanted[place].tasks is not None for place in step.sources):
            check_values(world, found, wanted, number)
    hard = any(end.state is StageState.FAILED and not step.continues for step, end in zip(found, wanted, strict=True))
    some_done = any(stage.done for stage in plan.stages.values())
    all_done = all(end.state is StageState.DONE for end in wanted)
    expected = RunState.FAILED if hard or not some_done else RunState.PARTIAL
    assert outcome is (RunState.SUCCEEDED if all_done else expected)


def check_values(world: World, found: Sequence[Step], wanted: Sequence[Expected], number: int) -> None:
    """Of stages that take others one by one, what each task was called with."""
    step = found[number]
    if step.kind not in ("alike", "parts") or step.extra:
        return
    for index in range(len(wanted[number].tasks or "")):
        if (wanted[number].tasks or "")[index] == "d":
            source, place = (step.sources[0], index) if step.kind == "alike" else (step.sources[index], 0)
            state = (wanted[source].tasks or "")[place]
            count = LENGTH if state == "d" else 1
            assert asa_load(world.log.value(f"s{number}", index)) == [number, count, int(state != "d"), 0]


# ---------------------------------------------------------------- tried again


def test_retries_wait_twice_as_long_each_time_and_an_hour_at_most(tmp_path: Path) -> None:
    stage = align.options(retries=4, retry_delay="20m", walltime="12h")
    world = World(tmp_path, stage.map(range(2)), fault=failing(("align", 1)))
    world.fail()
    failed = [event.at for event in world.events(TaskFailed)]
    began = [event.at for event in world.events(TasksLaunched) if (1, 2) in event.ranges][1:]
    delays = [later - before for before, later in zip(failed, began, strict=False)]
    assert delays == pytest.approx([1200.0, 2400.0, DELAY_MOST_S, DELAY_MOST_S], abs=1.0)
    assert all(event.tasks == (1,) for event in world.events(RetriesDue))


def test_a_driver_that_resumes_does_not_wait_for_what_failed(tmp_path: Path) -> None:
    stage = align.options(retries=1, retry_delay="1h")
    world = World(tmp_path, stage.map(range(2)), fault=failing(("align", 1), times=1))
    with pytest.raises(Crash):
        world.drive(first_failure(tmp_path / "other", stage), after=True)
    began = world.clock.now()
    assert world.drive() is RunState.SUCCEEDED
    assert world.clock.now() < began + 60


def first_failure(directory: Path, stage: Any) -> int:
    directory.mkdir()
    world = World(directory, stage.map(range(2)), fault=failing(("align", 1), times=1))
    world.drive()
    return next(number for number, event in world.log.read() if isinstance(event, TaskFailed)) - 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_task_killed_for_memory_is_tried_again_with_more(tmp_path: Path, strategy: str) -> None:
    def fault(task: Task, _attempt: int) -> str | None:
        short = task.stage == "align" and task.index == 1 and (task.resources.memory or 0) < 6 << 30
        return "MemoryError" if short else None

    stage = align.options(memory="4G", retries=1)
    world = World(tmp_path, total(call.map(stage.map(range(3)))), strategy, fault=fault)
    assert world.succeed() == sum(10 * x + 1 for x in range(3))
    (grown,) = world.events(StageGrown)
    assert grown.resources.memory == grown.task.memory == 6 << 30 and not grown.bounded
    assert 6 << 30 in [event.request.resources.memory for event in world.events(Submitting)]


def test_what_was_tried_with_all_that_there_is_says_so(tmp_path: Path) -> None:
    stage = align.options(walltime=100, retries=2)
    world = World(tmp_path, stage.map(range(1)), run_time=lambda _task: 1000.0, longest_s=120.0)
    world.fail()
    first, *others = world.events(StageGrown)
    assert first.walltime_s == 120.0 and "allows no wall time longer than 2 min" in first.bounded
    assert all(event.walltime_s == 120.0 for event in others)


def test_a_task_with_a_time_limit_is_ended_and_tried_again_with_more(tmp_path: Path) -> None:
    stage = align.options(timeout="10s", retries=2, walltime=600)
    world = World(tmp_path, stage.map(range(2)), run_time=lambda task: 20.0 if task.index else 1.0)
    assert world.succeed() == [0, 10]
    assert [event.timeout_s for event in world.events(StageGrown)] == [15.0, 22.5]
    assert [event.cause for event in world.events(TaskFailed)] == ["time", "time"]


def test_growth_may_be_declined(tmp_path: Path) -> None:
    stage = align.options(timeout="10s", retries=2, growth=1)
    world = World(tmp_path, stage.map(range(2)), run_time=lambda task: 20.0 if task.index else 1.0)
    assert "timed out after 10 s" in world.fail()
    assert world.events(StageGrown) == []


# ---------------------------------------------------------------- real processes


@asa.stage
def reading(x: int) -> int:
    print("reads", x, flush=True)
    if x == 1:
        raise ValueError("no reads")
    if x == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == 3:
        sys.exit(5)
    return x


@asa.stage(accepts_failed=True)
def facts(found: list[Any]) -> list[Any]:
    return [x if not isinstance(x, Failed) else (x.index, x.attempt, x.exit, x.message, bool(x.tail)) for x in found]


def finished(workflow: Any, state: Path, **options: Any) -> Any:
    run = asa.run(workflow, state=state, backend="local:cores=2", check=False, **options)
    run.wait()
    return run


def test_failures_of_real_processes_say_how_they_ended(tmp_path: Path) -> None:
    done = reading.map(range(5))
    run = finished([done, facts(done)], tmp_path, keep_going=True)
    assert run.status is RunState.PARTIAL
    values, told = run.results()
    assert [x for x in values if not isinstance(x, Failed)] == [0, 4] == run.results("reading")[::4]
    assert told[1] == (1, 1, None, "ValueError: no reads", True)
    assert told[2][:3] == (2, 1, -signal.SIGSEGV) and "Segmentation fault" in told[2][3]
    assert told[3] == (3, 1, 5, "SystemExit: 5", True)
    assert all("reads" in x.tail and x.node and x.peak_memory > 1 << 20 for x in values if isinstance(x, Failed))
    with pytest.raises(asa.RunFailed, match="3 of 5 tasks failed; the first: task 1") as raised:
        run.check()
    assert raised.value.run is run
    text = run.explain()
    assert "reading: partial, 2 tasks done, 3 failed" in text and "tasks: 3 done, 3 failed, 0 skipped" in text
    assert "reading[3] failed on " in text and ", attempt 1, exit code 5, peak memory " in text
    stage = run.summary.stages[0]
    assert (stage.failed, stage.skipped, stage.done) == (3, 0, 2)
    assert run.report(tmp_path / "report.html").read_text().count("3 failed") >= 1


def test_a_failure_that_two_tasks_share_is_printed_once(tmp_path: Path) -> None:
    text = finished(asa.stage(cores=2, on_error="continue")(lambda x: x / 0).map([1, 2]), tmp_path).explain()
    assert text.count("Traceback") == 1 and "[0] failed on" in text and "[1] failed on" in text, text


def test_a_task_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    def hang(x: int) -> int:
        if x:
            subprocess.Popen(["setsid", "sleep", "7654"])
            Path(f"pid{x}").write_text(str(os.getpid()))
            time.sleep(600)
        return x

    stage = asa.stage(hang, timeout="1s", on_error="continue")
    began = time.monotonic()
    run = finished(stage.map(range(3)), tmp_path, workdir=tmp_path)
    assert time.monotonic() - began < 60
    assert run.results()[0] == 0
    assert all("timed out after 1 s" in x.message and x.exit is None for x in run.results()[1:])
    pids = {int((tmp_path / f"pid{x}").read_text()) for x in (1, 2)}
    until(lambda: not pids & {*psutil.pids()})
    assert not [1 for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "7654"]]


def test_threads_and_dask_end_no_task_alone(tmp_path: Path) -> None:
    stage = asa.stage(abs, name="abs", timeout="1s")
    for executor in ("local:workers=threads", "dask"):
        with pytest.raises(InvalidInput, match="is to end tasks of 'abs' after timeout="):
            asa.run(stage(1), state=tmp_path, executor=executor)


def test_exit_code_3_and_what_the_command_line_says(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("flow.py").write_text(
        "import asa\n@asa.stage\ndef invert(x): return 1 / x\n"
        "@asa.stage\ndef double(x): return 2 * x\nworkflow = double.map(invert.map([1, 0, 2]))\n"
    )
    assert main(["run", "flow.py", "--keep-going", "--quiet"]) == 3
    said = capfd.readouterr()
    assert said.out.startswith("[2.0, Failed('double', 1, 'skipped, as task 1 of invert failed: ZeroDivisionError")
    assert "1 of 3 tasks failed" in said.err and "asa resume flow-" in said.err
    assert main(["runs"]) == 0 and " partial " in capfd.readouterr().out
    assert main(["status"]) == 0
    assert "tasks: 4 of 6 done, 0 running, 1 failed, 1 skipped" in capfd.readouterr().out
    assert main(["resume", "@last", "--quiet"]) == 3
    assert main(["run", "flow.py", "--quiet"]) == 1


def test_failures_are_never_reused_and_what_is_made_of_them_only_for_the_same(tmp_path: Path) -> None:
    def flaky(x: int) -> int:
        if x == 1 and Path("broken").exists():
            raise ValueError(Path("broken").read_text())
        return x

    source = asa.stage(flaky, on_error="continue").map(range(3))
    flow = [source, facts(call.map(source)), facts.options(name="direct")(source)]
    options: dict[str, Any] = {"reuse": True, "workdir": tmp_path}

    def reused(run: Any) -> dict[str, int]:
        return {stage.name: stage.reused for stage in run.summary.stages}

    (tmp_path / "broken").write_text("a")
    assert finished(flow, tmp_path, **options).status is RunState.PARTIAL
    again = finished(flow, tmp_path, **options)
    assert again.status is RunState.PARTIAL
    assert reused(again) == {"flaky": 2, "call": 2, "facts": 1, "direct": 1}, "they failed in the same way"
    (tmp_path / "broken").write_text("b")
    other = finished(flow, tmp_path, **options)
    assert reused(other) == {"flaky": 2, "call": 2, "facts": 0, "direct": 0}
    assert other.results("direct")[1][3] == "ValueError: b"
    (tmp_path / "broken").unlink()
    good = finished(flow, tmp_path, **options)
    assert good.status is RunState.SUCCEEDED and good.results("direct") == [0, 1, 2]
    assert reused(good) == {"flaky": 2, "call": 2, "facts": 0, "direct": 0}


# ---------------------------------------------------------------- virtual time


def test_delays_and_time_limits_pass_in_virtual_time(tmp_path: Path) -> None:
    slow = asa.stage(abs, name="slow", walltime="4h", run_time=lambda x: 3600.0 * x, timeout="90m", growth=1)
    tried = asa.stage(invert, walltime="4h", run_time=60.0, retries=2, retry_delay="10m")
    flow = [slow.map([1, 2]), tried.map([0, 1])]
    options: dict[str, Any] = {"keep_going": True, "pool": "per-stage", "check": False}
    run = asa.run(flow, backend="sim:nodes=4,cores=8", state=tmp_path, **options)
    run.wait()
    assert run.status is RunState.PARTIAL
    events = [event for _, event in run.events() if isinstance(event, TaskFailed)]
    late = next(event for event in events if event.stage == "slow")
    assert late.cause == "time" and late.at - late.started == 5400.0
    begun = [event.started for event in events if event.stage == "invert"]
    assert [after - before for before, after in pairwise(begun)] == pytest.approx([660.0, 1260.0], abs=30.0)
    assert [getattr(x, "attempt", x) for x in run.results("invert")] == [3, 1.0]


def invert(x: int) -> float:
    return 1 / x
