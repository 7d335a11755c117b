from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console

from asa.core.clock import ManualClock
from asa.core.event import (
    AllocationStarted,
    Event,
    HoldAsked,
    JobEnded,
    RunEnded,
    RunState,
    TaskDone,
    TasksLaunched,
    Trouble,
)
from asa.core.job import JobState
from asa.metrics.workflow import summarise
from asa.report.progress import ROWS_MOST, ProgressDisplay, changes, follow, stage_lines, standing, table
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


def two_stages() -> list[Event]:
    return [
        *run_begins(stage_spec("a", 2, 4), stage_spec("b", 8, 1, "a")),
        *job_asked(0.0, "j0", 2, "a", predicted=120.0),
        AllocationStarted(60.0, "j0", 60.0, ("n1",)),
        TasksLaunched(60.0, "a", ((0, 2),), "j0"),
        TaskDone(70.0, "a", 0, "j0", "n1", 60.0),
        *job_asked(75.0, "j1", 8, "b"),
        AllocationStarted(80.0, "j1", 80.0, ("n2",)),
    ]


@pytest.mark.parametrize(
    ("events", "now", "a", "b"),
    [
        (2, 0.0, "no job asked for yet", "no job asked for yet"),
        (4, 30.0, "job J0 in the queue for 30 s, 2 min predicted", "no job asked for yet"),
        (7, 70.0, "job J0, 2 cores on n1", "no job asked for yet"),
        (9, 77.0, "job J0, 2 cores on n1", "job J1 in the queue for 2 s"),
        (10, 85.0, "job J0, 2 cores on n1", "job J1 holds 8 cores already"),
    ],
)
def test_note_says_what_a_stage_waits_for(events: int, now: float, a: str, b: str) -> None:
    lines = stage_lines(summarise(two_stages()[:events], now))
    assert (lines[0].note, lines[1].note) == (a, b)


def test_a_run_that_is_held_says_so() -> None:
    before, held = summarise(two_stages(), 85.0), summarise([*two_stages(), HoldAsked(85.0, True)], 90.0)
    assert standing(held).partition(" · ")[0].endswith(": running, held")
    assert changes(before, held) == ["[1 min 30 s] run run-1: held: nothing new is started"]
    after = summarise([*two_stages(), HoldAsked(85.0, True), HoldAsked(91.0, False)], 95.0)
    assert changes(held, after) == ["[1 min 35 s] run run-1: goes on"]
    assert (held.on_hold, after.on_hold) == (85.0, None)


def test_line_counts_tasks_and_the_wait_so_far() -> None:
    line = stage_lines(summarise(two_stages()[:4], 30.0))[0]
    assert (line.state, line.done, line.tasks, line.wait_s) == ("ready", 0, 4, 30.0)
    line = stage_lines(summarise(two_stages(), 90.0))[0]
    assert (line.state, line.done, line.running, line.wait_s) == ("running", 1, 1, 60.0)


def test_lost_job_is_shown_until_there_is_another() -> None:
    events = [*two_stages()[:7], JobEnded(72.0, "j0", JobState.NODE_FAIL)]
    assert stage_lines(summarise(events, 73.0))[0].note == "job J0 ended: node fail"


def test_stage_of_a_cancelled_run_has_stopped() -> None:
    events = [*two_stages()[:7], RunEnded(72.0, RunState.CANCELLED, "enough")]
    assert [line.state for line in stage_lines(summarise(events))] == ["stopped", "not run"]


def test_changes_are_printed_once() -> None:
    events = two_stages()
    early, late = summarise(events[:4], 30.0), summarise(events[:7], 70.0)
    assert changes(None, early) == [
        "[30 s] run run-1: 2 stages",
        "[30 s] job J0 for a: pending",
        "[30 s] stage a: ready, 0 of 4 tasks done (job J0 in the queue for 30 s, 2 min predicted)",
    ]
    assert changes(early, late) == [
        "[1 min 10 s] job J0 for a: running, waited 1 min",
        "[1 min 10 s] stage a: running, 1 of 4 tasks done (job J0, 2 cores on n1)",
    ]
    assert changes(late, late) == []


def test_lines_where_there_is_no_terminal() -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text)) as display:
        for event in run_log(montage(8), start=0.0):
            display.update([event], event.at)
    lines = text.getvalue().splitlines()
    assert lines[0] == "[0 s] run montage-3fa1: 9 stages"
    assert "run montage-3fa1: succeeded after 34 min" in lines[-1]
    assert sum("job 810004 for mFitplane: node fail (NodeFail)" in line for line in lines) == 1
    assert sum("stage mProject:" in line for line in lines) == 6, "ready, running, three quarters, done"


def test_bars_in_a_terminal() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=140)
    with ProgressDisplay(console) as display:
        display.update([], 0.0)
        display.update(two_stages(), 90.0)
    shown = text.getvalue()
    for words in ("1/4", "1 under way", "waited 1 min", "job J1 holds 8 cores already", "10 cores held"):
        assert words in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_a_batch_system_that_does_not_answer_is_reported(terminal: bool) -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, force_terminal=terminal, width=140)) as display:
        display.update([*two_stages(), Trouble(81.0, "sbatch: [down]")], 82.0)
        display.update([Trouble(90.0, "")], 91.0)
    assert "the batch system does not answer: sbatch: [down]" in text.getvalue()
    assert "it answers again" in text.getvalue()


def test_names_are_not_taken_for_markup() -> None:
    name = "[red]stage[/nothing]"
    text = io.StringIO()
    console = Console(file=text, width=140)
    console.print(table(summarise(run_begins(stage_spec(name, 1, 1)))))
    with ProgressDisplay(console) as display:
        display.update(run_begins(stage_spec(name, 1, 1)), 0.0)
    assert text.getvalue().count(name) == 2


@pytest.mark.parametrize("width", [40, 60, 79, 140])
def test_each_stage_has_one_line_in_a_narrow_terminal(width: int) -> None:
    stages = [MadeStage("the_first_stage_of_all", 8), MadeStage("next", 1, after=("the_first_stage_of_all",))]
    events = run_log(stages)
    for number in range(1, len(events) + 1):
        text = io.StringIO()
        run = summarise(events[:number])
        Console(file=text, width=width, height=200).print(table(run, width))
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        assert lines[0].startswith("the_") and lines[1].startswith("next"), lines
        assert run.stages[0].state.value in lines[0] and max(map(len, lines)) <= width
        assert ("…" in lines[0]) <= (width < 140)


def test_of_very_many_stages_those_under_way_are_shown() -> None:
    stages = [MadeStage(f"s{n}", 1, after=(f"s{n - 1}",) if n else ()) for n in range(ROWS_MOST * 2)]
    events = run_log(stages)
    reached = next(
        number for number, event in enumerate(events) if isinstance(event, TasksLaunched) and event.stage == "s60"
    )
    text = io.StringIO()
    Console(file=text, width=140, height=200).print(table(summarise(events[: reached + 1])))
    assert "s60 " in text.getvalue() and f"{ROWS_MOST} more stages" in text.getvalue()


def test_follow_reads_each_event_once_and_ends_when_stopped() -> None:
    events = list(enumerate(run_log(montage(8), start=0.0), start=1))
    clock, stop = ManualClock(), threading.Event()
    asked: list[int] = []

    def read(after: int) -> Iterator[tuple[int, Event]]:
        asked.append(after)
        return ((number, event) for number, event in events[after:] if event.at <= clock.now())

    text = io.StringIO()
    clock.call_at(events[-1][1].at, stop.set)
    with ProgressDisplay(Console(file=text)) as display:
        follow(read, display, clock, stop, every_s=60.0)
    assert asked == sorted(asked) and asked[0] == 0
    assert "succeeded after" in text.getvalue()
