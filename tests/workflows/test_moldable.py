"""Stages that may have several widths: which one is chosen, when, and that it stays."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asa
from asa.core.errors import GraphError, InvalidInput
from asa.core.event import AllocationStarted, JobEnded, Submitting, TaskDone, TasksLaunched, WidthChosen
from asa.core.history import Usage
from asa.core.job import Capabilities, JobState, QueueRegime, Resources
from asa.core.stage import Width
from asa.core.width import (
    DECLARED,
    UNKNOWN,
    PricedWidth,
    choose,
    for_tasks,
    measured,
    on_narrowest,
    sizes,
    stretched,
    time_on,
)
from asa.log.history import HISTORY, UsageHistory
from asa.workflows.assemble import preview
from asa.workflows.explain import explain
from asa.workflows.graph import make_graph
from asa.workflows.learned import LearnedWaits
from asa.workflows.settings import Settings
from tests.waiting import until
from tests.workflows.world import Crash, World, check_clean, picture

EXAMPLES = 1000 if settings.get_current_profile_name() == "long" else 60
HPC = Capabilities("site", largest=Resources(64), cores_per_node=32, regime=QueueRegime.FIFO)


@asa.stage(cores=(2, 8), walltime=600, run_time=300, speedup=0.9)
def solve(x: int) -> int:
    return 10 * x


@asa.stage(cores=(2, 8), walltime=600)
def align(x: int) -> int:
    return x + 1


def priced(cores: Sequence[int], times: Sequence[float], waits: Sequence[float]) -> list[PricedWidth]:
    return [
        PricedWidth(Width(Resources(n), Resources(n), 2 * time, time), n, 1.0, wait)
        for n, time, wait in zip(cores, times, waits, strict=True)
    ]


seconds = st.floats(0.0, 1e6)
one = st.tuples(st.integers(1, 512), seconds, seconds)
some = st.lists(one, min_size=1, max_size=6, unique_by=lambda each: each[0])


@given(some, seconds, st.floats(1e-3, 1e6), st.floats(1.0, 1e3))
@settings(max_examples=EXAMPLES, deadline=None)
def test_more_patience_means_sooner_and_dearer(found: Any, ready_s: float, patience: float, more: float) -> None:
    options = priced(*zip(*sorted(found), strict=True))
    first, why = choose(options, ready_s, patience)
    second, _ = choose(options, ready_s, patience * more)
    assert first in options and second in options and str(first.width.resources.cores) in why
    assert second.end_s(ready_s) <= first.end_s(ready_s) * (1 + 1e-9) + 1e-9
    assert second.core_s >= first.core_s * (1 - 1e-9) - 1e-9 or second.end_s(ready_s) == first.end_s(ready_s)


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
@pytest.mark.parametrize("place", ["time", "ready", "patience", "wait"])
def test_numbers_that_are_none_are_refused(place: str, bad: float) -> None:
    numbers = {"time": 1.0, "ready": 0.0, "patience": 1.0, "wait": 0.0} | {place: bad}
    options = priced([4], [numbers["time"]], [numbers["wait"]])
    if place == "wait" and bad == math.inf:  # it would never start
        assert choose(options, 0.0, 1.0)[0] is options[0]
        return
    with pytest.raises(InvalidInput, match="finite numbers expected"):
        choose(options, numbers["ready"], numbers["patience"])


def test_what_would_never_start_is_not_taken() -> None:
    options = priced([4, 8], [100.0, 1.0], [5.0, math.inf])
    assert choose(options, 0.0, 1e6)[0] is options[0]


@given(st.integers(1, 64), st.integers(2, 4096), st.integers(1, 8))
def test_widths_of_a_range_are_multiples_from_the_least_to_the_most(least: int, more: int, unit: int) -> None:
    most = least + more
    found = sizes((least * unit, most * unit), unit)
    assert found[0] == least * unit and found[-1] == most * unit and [*found] == sorted(set(found))
    assert all(cores % unit == 0 for cores in found)


@given(st.floats(0.0, 1.0), st.integers(1, 512), st.integers(1, 512))
def test_by_amdahls_law_wider_is_never_slower(fraction: float, few: int, more: int) -> None:
    assert time_on(few + more, fraction) <= time_on(few, fraction)


@given(st.integers(1, 200), st.lists(st.integers(1, 64), min_size=2, max_size=6, unique=True))
def test_rounds_of_tasks(tasks: int, cores: list[int]) -> None:
    plain = stretched([Width(Resources(n), Resources(), 6e5, 3e5) for n in sorted(cores)], [1.0] * len(cores))
    found = for_tasks(plain, tasks)
    rounds = [-(-tasks // width.resources.cores) for width in found]
    assert found[0].resources == plain[0].resources and rounds == sorted(set(rounds), reverse=True)
    for width, count in zip(found, rounds, strict=True):
        assert width.run_time_s == pytest.approx(3e5 * count / rounds[0])
        assert width.run_time_s <= width.walltime_s
        assert on_narrowest(width.run_time_s, plain, width.resources.cores, tasks) == pytest.approx(3e5)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"cores": (16, 8)}, "a tuple of the least and the most"),
        ({"cores": (16,)}, "a tuple of the least and the most"),
        ({"cores": (0, 8)}, "at least 1"),
        ({"cores": [8]}, "allows 1 sizes"),
        ({"cores": ("4", "8")}, "whole numbers"),
        ({"cores": (6, 16), "task_cores": 4}, "6 is no multiple of task_cores=4"),
        ({"cores": (4, 8), "nodes": 2}, "does not go with nodes=2"),
        ({"cores": (4, 8), "gpus": 1}, "does not go with gpus=1"),
        ({"cores": (4, 8), "checkpoint": True}, "does not go with checkpoint=True"),
        ({"cores": 8, "speedup": 0.9}, "give cores= as a range"),
        ({"cores": (4, 8), "speedup": 1.5}, "from 0 to 1"),
        ({"cores": (4, 8), "speedup": {4: 10.0}}, "at least two numbers of cores"),
        ({"cores": (4, 8), "speedup": {4: 10.0, 8: math.nan}}, "at least two numbers of cores"),
    ],
)
def test_what_cannot_be_is_refused(needs: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match="stage 'align'") as error:
        align.options(cores=1).options(**needs)
    assert words in str(error.value)


def test_other_needs_leave_the_choice_as_it_is() -> None:
    assert solve.options(walltime=60).needs.widths == (2, 4, 8)
    assert solve.options(cores=4).needs.widths == () and solve.options(cores=4).needs.speedup is None
    with pytest.raises(InvalidInput, match="no multiple of task_cores=3"):
        solve.options(task_cores=3)


def test_what_each_width_holds_there() -> None:
    bent = align.options(cores=(8, 128), task_cores=4, memory="8G", speedup=0.5)
    mapped, wide = make_graph([bent.map(range(64)), bent(1)]).specs(HPC)
    assert [width.resources.cores for width in mapped.widths] == [8, 16, 32, 64], "no job may have more"
    assert [width.resources.memory for width in mapped.widths] == [(8 << 30) * n for n in (1, 2, 4, 8)]
    assert {width.task.cores for width in mapped.widths} == {4} and mapped.speedup == ""
    assert [width.task.cores for width in wide.widths] == [8, 16, 32], "a task is on one node"
    assert {width.resources.memory for width in wide.widths} == {8 << 30} and wide.speedup == DECLARED
    assert all(width.resources == width.task or width.resources.unit for width in wide.widths)
    ranks = make_graph(bent.options(launcher="srun")(1)).specs(HPC)[0]
    assert [width.task.cores for width in ranks.widths] == [8, 16, 32, 64], "ranks are on any"
    assert make_graph(align.options(cores=(8, 16))(1)).specs(HPC)[0].speedup == UNKNOWN


def test_a_least_width_above_the_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(GraphError, match=r"asks for 128 cores, more than site ever gives to one job .64 cores"):
        make_graph(align.options(cores=(128, 256))(1)).check(HPC)


@pytest.mark.parametrize("strategy", ["per-stage", "auto", "stagger", "asa", "big-job", "hold", "cascade"])
def test_every_strategy_asks_for_the_width_that_was_chosen(tmp_path: Path, strategy: str) -> None:
    found = World(tmp_path, align.map([solve(1), 5, 7]), strategy, run_time=lambda _task: 20.0)
    assert found.succeed() == [11, 6, 8]
    chosen = {event.stage: event.width for event in found.events(WidthChosen)}
    assert set(chosen) == {"solve", "align"}
    assert chosen["solve"].task.cores == chosen["solve"].resources.cores
    assert chosen["align"].task.cores == 1
    for event in found.events(Submitting):
        assert event.request.resources.cores == max(chosen[name].resources.cores for name in event.stages)
    for event in found.events(TasksLaunched):
        assert found.runner.plan.stages[event.stage].spec.task == chosen[event.stage].task


def test_long_waits_of_wide_jobs_make_it_narrow(tmp_path: Path) -> None:
    found = World(tmp_path, solve(1))
    found.waits.predict = lambda resources, *_: [1e5 * (resources.cores > 2)]  # type: ignore[method-assign]
    found.succeed()
    (event,) = found.events(WidthChosen)
    assert event.width.resources.cores == 2 and event.width.walltime_s == 600.0
    assert event.why.startswith("2 of 2 to 8 cores: to end in 10 min for 0.333 core-hours; on 8 in ")
    assert f"solve: {event.why}; its speed-up is as its speedup= says" in explain(found.replay(), 1e4)


def test_patience_is_the_users_number(tmp_path: Path) -> None:
    chosen = []
    for number, strategy in enumerate(("auto:patience=0.01", "auto", "auto:patience=1000")):
        found = World(tmp_path / str(number), solve(1), strategy)
        found.succeed()
        chosen.append(found.events(WidthChosen)[-1].width.resources.cores)
    assert chosen == sorted(chosen) and (chosen[0], chosen[-1]) == (2, 8)


def test_it_may_change_until_the_job_is_asked_for_and_not_after(tmp_path: Path) -> None:
    """It is thought of long before the second stage's job is due, and chosen anew meanwhile; then it stays."""
    long = solve.options(walltime=20000)
    found = World(tmp_path, solve(long(1)), "stagger", run_time=lambda task: 6000.0 if task.stage == "solve" else 60.0)
    found.waits.predict = lambda resources, *_: [100.0]  # type: ignore[method-assign]
    found.succeed()
    asked = [event for event in found.events(Submitting) if event.stages == ("solve-2",)]
    before = [event for event in found.events(WidthChosen) if event.stage == "solve-2" and event.at <= asked[0].at]
    assert len(before) > 1, "it was thought of long before"
    later = [event for event in found.events(WidthChosen) if event.stage == "solve-2" and event.at > asked[0].at]
    ended = [event.at for event in found.events(JobEnded)]
    assert all(any(at <= event.at for at in ended) for event in later)


@pytest.mark.parametrize("strategy", ["per-stage", "auto"])
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_at_any_event_keeps_the_width(tmp_path: Path, strategy: str, after: bool) -> None:
    workflow = align.map([solve(1), 5, 7, 9])
    whole = World(tmp_path / "whole", workflow, strategy, run_time=lambda _task: 20.0)
    assert whole.succeed() == [11, 6, 8, 10]
    for at in range(whole.logged):
        torn = World(tmp_path / str(at), workflow, strategy, run_time=lambda _task: 20.0)
        with suppress(Crash):
            torn.drive(at, after=after)
        said = torn.events(WidthChosen)
        assert picture(torn.replay()) == picture(torn.replay())
        for event in said:
            assert torn.replay().stages[event.stage].spec.resources == event.width.resources
        torn.waits.predict = lambda resources, *_: [1e5 * (resources.cores > 2)]  # type: ignore[method-assign]
        assert torn.succeed() == [11, 6, 8, 10], "although wide jobs wait for long by now"
        ended = {event.allocation: event.at for event in torn.events(JobEnded)}
        for event in torn.events(WidthChosen)[len(said) :]:
            jobs = [job for job in torn.events(Submitting) if event.stage in job.stages and job.at < event.at]
            assert all(ended[job.allocation] <= event.at for job in jobs), "its job was in the queue already"
        check_clean(torn)


def test_a_job_that_was_too_short_gets_the_whole_wall_time(tmp_path: Path) -> None:
    """The declared speed-up promises too much: on eight cores it takes as long as on two."""
    found = World(tmp_path, solve.options(speedup=1.0)(1), run_time=lambda _task: 500.0, predicted_wait_s=0.0)
    found.succeed()
    assert [event.request.walltime_s for event in found.events(Submitting)] == [150.0, 600.0]
    assert JobState.TIMEOUT.value in found.states()


def test_two_runs_show_that_a_declared_speedup_is_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = make_graph(solve(1)).specs(HPC)[0]

    def known() -> Any:
        return LearnedWaits(tmp_path / "learned.db", "context", HPC).measured(spec)

    def add(cores: int, seconds: float, at: float) -> None:
        history = UsageHistory(tmp_path / HISTORY)
        history.add([Usage("solve", "", "site", 1, cores, cores, seconds, None, None, None, None, "ok", at, "")])
        history.close()

    assert known() == spec
    add(8, 300.0, 1.0)
    assert known() == replace(spec, tried=8), "the second run measures another width"
    add(4, 310.0, 2.0)
    found = known()
    assert "measured in 2 runs on 4, 8 cores: 8 cores are 1 times as fast as 4, not 1.5 times as its" in found.speedup
    assert found.speedup in caplog.text and "which is not used any more" in caplog.text
    assert [width.run_time_s for width in found.widths] == [600.0, 300.0, pytest.approx(290.3, abs=0.1)]


def test_a_wrong_speedup_is_found_out_in_two_runs_on_a_real_machine(tmp_path: Path) -> None:
    @asa.stage(cores=[1, 2, 4], walltime=60, speedup=0.99)
    def sleepy() -> int:
        import time

        time.sleep(0.6)
        return 1

    taken: list[int] = []

    def kept() -> list[Usage]:
        history = UsageHistory(tmp_path / HISTORY)
        try:
            return history.of("sleepy")
        finally:
            history.close()

    def once() -> tuple[int, str]:
        run = asa.run(sleepy(), backend="local:cores=4", state=tmp_path)
        run.wait()
        (chosen,) = (event for _, event in run.events() if isinstance(event, WidthChosen))
        taken.append(chosen.width.resources.cores)
        assert until(lambda: len(kept()) == len(taken)), "the driver keeps it as it ends"
        return chosen.width.resources.cores, run.explain()

    (first, _), (second, _), (third, said) = once(), once(), once()
    assert (first, second) == (4, 2), "what it promises, then another one, to see"
    assert third == 2, "it is not worth more cores"
    assert re.search(
        r"measured in 2 runs on 2, 4 cores: 4 cores are (1|1\.\d|0\.\d+) times as fast as 2, not 2 ti", said
    )


def test_a_declared_speedup_that_fits_what_was_measured_stays() -> None:
    widths = stretched([Width(Resources(n), Resources(n), 600.0, 300.0) for n in (2, 4, 8)], [0.55, 0.325, 0.2125])
    assert measured(widths, {2: [290.0], 8: [120.0, 110.0]}, declared=True) == (widths, None, "")
    found, _, said = measured(widths, {2: [290.0], 8: [120.0, 110.0]}, declared=False)
    assert said == "measured in 3 runs on 2, 8 cores" and found[2].run_time_s == pytest.approx(300 * 115 / 290)


def test_the_width_is_what_a_function_finds(tmp_path: Path) -> None:
    @asa.stage(cores=(2, 4), speedup=0.99)
    def threads() -> str:
        import os

        return os.environ["OMP_NUM_THREADS"]

    run = asa.run(threads(), backend="local:cores=4", state=tmp_path)
    assert run.result() == "4"
    (chosen,) = (event for _, event in run.events() if isinstance(event, WidthChosen))
    assert chosen.width.task.cores == 4 and "4 of 2 to 4 cores" in run.explain()


def test_a_preview_shows_widths_as_if_nothing_waited(tmp_path: Path) -> None:
    graph = make_graph(align.map([solve(1), 5, 7]))
    jobs = preview(graph, Settings(graph.result, "run", "sim:nodes=4,cores=8", "per-stage"), tmp_path)
    assert [(job.stages, job.at_once, job.cores) for job in jobs] == [(("solve",), True, 8), (("align",), False, 2)]


def test_in_virtual_time_a_wide_task_takes_as_long_as_is_declared(tmp_path: Path) -> None:
    run = asa.run(
        [solve(1), align.options(run_time=60).map(range(8))], backend="sim:nodes=4,cores=8,seed=1", state=tmp_path
    )
    run.wait()
    events = [event for _, event in run.events()]
    widths = {event.stage: event.width for event in events if isinstance(event, WidthChosen)}
    took = {event.stage: event.at - event.started for event in events if isinstance(event, TaskDone)}
    cores = widths["solve"].resources.cores
    assert cores > 2 and took["solve"] == pytest.approx(300 * time_on(cores, 0.9) / time_on(2, 0.9))
    assert took["align"] == pytest.approx(60.0), "the width says only how many run at a time"
    assert len([event for event in events if isinstance(event, AllocationStarted)]) == 2
