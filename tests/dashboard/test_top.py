from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from asa.core.event import HoldAsked, RunEnded, RunState, Trouble
from asa.dashboard.feed import RunModel, View
from asa.dashboard.tasks import TaskQuery
from asa.dashboard.top import first, screen
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


def shown(model: RunModel, rows: int = 60, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen(View(model.document(model.last), model.bars, model.last), rows, width))
    return console.export_text()


def model(events: Any) -> RunModel:
    found = RunModel()
    for event in events:
        found.on(event)
    return found


def test_a_run_that_waits() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 4), stage_spec("b", 2, None, "a")),
        *job_asked(10.0, "j", 2, "a", predicted=30.0),
    ]
    text = shown(model([*log, Trouble(40.0, "no answer")]))
    assert "ready, waits for an allocation; job J has been in the queue" in text.replace("\n", " ")
    assert "0/?" in text
    assert "the batch system does not answer: no answer" in text


def test_a_large_run_fits_the_screen() -> None:
    stages = tuple(MadeStage(f"s{number}", 2, 2, 5, () if number == 0 else (f"s{number - 1}",)) for number in range(60))
    log = run_log(stages)
    text = shown(model(log), rows=40)
    assert len(text.splitlines()) <= 40
    assert "more stages" in text
    assert "more jobs" in text


def test_a_run_that_failed_says_why() -> None:
    log = [*run_begins(stage_spec("a", 2, 4)), RunEnded(9.0, RunState.FAILED, "stage 'a' failed: no such band", "a")]
    assert "stage 'a' failed: no such band" in shown(model(log))


def test_a_run_that_is_held_says_so_until_it_is_released() -> None:
    log = [*run_begins(stage_spec("a", 2, 4)), HoldAsked(9.0, True)]
    held = model(log)
    assert "held, nothing new is submitted or launched: asa release" in shown(held)
    assert held.document(9.0)["run"]["held"] is True
    assert "held, nothing" not in shown(model([*log, HoldAsked(12.0, False)]))
    assert "held, nothing" not in shown(model([*log, RunEnded(20.0, RunState.CANCELLED, "enough")]))


def test_nothing_has_begun() -> None:
    assert "not begun" in shown(RunModel())


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_narrow_screens_do_not_break_it(width: int) -> None:
    assert "s0" in shown(model(run_log((MadeStage("s0", 2, 2, 5),))), width=width)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 1.0])
def test_at_sixty_columns_every_stage_and_job_is_one_whole_line(share: float) -> None:
    log = run_log(montage(8))
    found = model(log[: int(share * len(log))])
    text = shown(found, width=60)
    lines = text.splitlines()
    assert all(len(line) <= 60 for line in lines) and "…" not in text
    assert found.plan is not None
    for stage in found.plan.in_order:
        (line,) = [line for line in lines if line[2:].startswith(f"{stage.spec.name} ") and "/" in line]
        assert f" {stage.done}/{stage.width}" in line
    assert sum(line[2:6] == "8100" for line in lines) == len(found.document(found.last)["jobs"])


def test_tasks_fit_sixty_columns_too() -> None:
    found = model(run_log(montage(8))[:400])
    tasks = found.tasks(found.last, True)
    assert tasks is not None
    console = Console(width=60, record=True, file=io.StringIO())
    view = View(found.document(found.last), found.bars, found.last)
    console.print(screen(view, 30, 60, tasks.page(TaskQuery("mDiff"))))
    lines = console.export_text().splitlines()
    assert all(len(line) <= 60 for line in lines) and len(lines) <= 30
    assert sum(line[2:].startswith("mDiff[") for line in lines) > 10


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (TaskQuery(), "5 tasks: 3 waiting, 2 done"),
        (TaskQuery("late"), "3 tasks: 3 waiting"),
        (TaskQuery(state="done"), "2 of 5 tasks: 3 waiting, 2 done"),
        (TaskQuery("late", state="done"), "0 of 3 tasks: 3 waiting"),
        (TaskQuery("no such thing"), "0 tasks"),
    ],
)
def test_it_says_how_many_tasks_it_shows_and_of_how_many(query: TaskQuery, said: str) -> None:
    log = run_log((MadeStage("a", 2, 2, 5), MadeStage("late", 2, 3, 5, after=("a",), wait_s=600.0)))
    found = model(event for event in log if event.at < 1_700_000_600.0)  # the other waits for its job
    tasks = found.tasks(found.last, True)
    assert tasks is not None
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(View(found.document(found.last), found.bars, found.last), 60, 100, tasks.page(query)))
    lines = console.export_text().splitlines()
    assert said in lines
    assert sum(line[2:].startswith(("a[", "late[")) for line in lines) == int(said.split()[0])


@pytest.mark.parametrize("width", [60, 120])
def test_what_a_task_takes_as_time_goes_on_is_a_line_each(width: int) -> None:
    found = model(run_log(montage(8)))
    tasks = found.tasks(found.last, True)
    assert tasks is not None
    points = [[5.0 * (number + 1), 5.0, number << 20, 0.5] for number in range(50)]
    curve = {"attempt": 1, "memory": [49 << 20, 24 << 20], "cores": [0.5, 0.5], "points": points}
    console = Console(width=width, record=True, file=io.StringIO())
    view = View(found.document(found.last), found.bars, found.last)
    console.print(screen(view, 30, width, tasks.page(TaskQuery("mDiff[3]")) | {"curves": [curve]}))
    lines = [line.strip() for line in console.export_text().splitlines() if "attempt 1" in line]
    assert [line.split()[2] for line in lines] == ["memory", "cores"]
    assert "█ 49 MiB at most, mean 24 MiB" in lines[0] and "█ 0.5 at most, mean 0.5" in lines[1]


def test_what_is_over_makes_room_first() -> None:
    items = [(str(number), {"over": number < 6}) for number in range(10)]
    assert [name for name, _ in first(items, 5, lambda row: row["over"])] == ["5", "6", "7", "8", "9"]
    assert [name for name, _ in first(items, 2, lambda row: row["over"])] == ["6", "7"]
