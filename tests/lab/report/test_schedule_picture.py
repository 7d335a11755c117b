"""A schedule on one page."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import asa.lab.report.schedule_picture
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import core_runs
from asa.lab.metrics.schedule import level
from asa.lab.report.schedule_picture import (
    BOXES_MOST,
    COLUMNS,
    FINER,
    NUMBERED_MOST,
    ROWS,
    STEPS_MOST,
    curve,
    draw_gantt,
    draw_queue,
    draw_utilisation,
    draw_waits,
    raster,
    save_schedule,
    schedule_figure,
    size_axis,
    wait_axis,
)
from tests.metrics.schedules import made, random_schedule, schedules

pytest.importorskip("matplotlib")

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure


@given(schedules())
@settings(max_examples=20)
def test_a_pixel_shows_who_held_the_core(schedule: Schedule) -> None:
    runs, cores = core_runs(schedule), schedule.cluster.cores
    start, end, span = schedule.start[runs.job], schedule.end[runs.job], 97.0
    image = raster(runs, start, end, cores, span)
    assert image.shape == (cores, COLUMNS, 3)
    rng = np.random.default_rng(0)
    for core, column in zip(rng.integers(0, cores, 30), rng.integers(0, COLUMNS, 30), strict=True):
        instants = (column * FINER + np.arange(FINER) + 0.5) * span / (COLUMNS * FINER)
        mine = (runs.first <= core) & (core <= runs.last)
        held = ((start[mine, None] <= instants) & (instants < end[mine, None])).any(axis=0)
        white = (image[core, column] == 255).all()
        assert white == (not held.any())


def test_machines_with_more_cores_than_rows_are_thinned() -> None:
    schedule = random_schedule(300, 2 * ROWS)
    runs = core_runs(schedule)
    image = raster(runs, schedule.start[runs.job], schedule.end[runs.job], 2 * ROWS, float(schedule.end.max()))
    assert image.shape[0] == ROWS
    busy = (image != 255).any(axis=2).mean()
    used = float((schedule.end - schedule.start) @ schedule.workload.cores) / schedule.end.max() / (2 * ROWS)
    assert busy == pytest.approx(used, abs=0.1)


def test_few_jobs_are_boxes_with_numbers_and_many_an_image() -> None:
    few, many = Figure().add_subplot(), Figure().add_subplot()
    draw_gantt(few, random_schedule(12, 4), 0.0)
    (boxes,) = few.collections
    assert isinstance(boxes, PolyCollection) and not few.images
    assert {text.get_text() for text in few.texts} <= {str(number) for number in range(1, 13)} and few.texts
    draw_gantt(many, random_schedule(BOXES_MOST + 1, 64), 0.0)
    assert len(many.images) == 1 and not many.collections
    assert many.get_ylim() == (64, 0)
    assert [label.get_text() for label in many.get_yticklabels()][:3] == ["0", "10", "20"]


def test_so_many_boxes_that_numbers_would_not_be_read_have_none() -> None:
    axes = Figure().add_subplot()
    draw_gantt(axes, random_schedule(NUMBERED_MOST + 1, 64), 0.0)
    assert len(axes.collections) == 1 and not axes.texts


def test_nodes_of_several_cores_are_numbered_at_their_middle() -> None:
    axes = Figure().add_subplot()
    draw_gantt(axes, random_schedule(20, 3, cores=8), 0.0)
    assert axes.get_yticks().tolist() == [4.0, 12.0, 20.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2"]


def test_few_steps_are_drawn_as_they_are_and_many_as_means() -> None:
    schedule = random_schedule(20, 8)
    steps = level(schedule.start, schedule.end, schedule.workload.cores)
    edges, cores = curve(*steps, 0.0, float(schedule.end.max()))
    assert edges.tolist() == steps[0].tolist() and cores.tolist() == steps[1][:-1].tolist()

    schedule = random_schedule(1000, 8)
    span = float(schedule.end.max())
    edges, cores = curve(*level(schedule.start, schedule.end, schedule.workload.cores), 0.0, span)
    assert len(edges) == STEPS_MOST + 1
    used = float((schedule.end - schedule.start) @ schedule.workload.cores)
    assert (cores * np.diff(edges)).sum() == pytest.approx(used)


def test_axes_say_what_they_show() -> None:
    schedule = made([0, 0, 5], [0, 10, 20], [10, 20, 30], [2, 2, 4], Cluster.of(4))
    upper, lower = Figure().subplots(2, 1)
    draw_utilisation(upper, schedule, 0.0, 30.0)
    draw_queue(lower, schedule, 0.0, 30.0)
    assert upper.get_ylabel() == "cores in use [%]" and upper.get_ylim() == (0, 100)
    assert "66.7 %" in upper.get_title(loc="right")
    assert upper.patches[0].get_data().values.tolist() == [50, 50, 100]
    assert lower.get_ylabel() == "jobs waiting"
    assert lower.get_title(loc="right") == "most at once: 2"


def test_nobody_waits() -> None:
    axes = Figure().add_subplot()
    draw_queue(axes, made([0], [0], [10], [1], Cluster.of(1)), 0.0, 10.0)
    assert axes.get_title(loc="right") == "most at once: 0"


def test_a_box_for_each_class_that_has_jobs() -> None:
    schedule = made([0] * 5, [0, 60, 120, 0, 7200], [9000] * 5, [1, 1, 1, 4, 4], Cluster.of(8))
    axes = Figure().add_subplot()
    draw_waits(axes, schedule)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1\n3", "3–4\n2"]
    means, longest = axes.lines[-2:]
    assert list(means.get_ydata()) == [60.0, 3600.0]
    assert list(longest.get_ydata()) == [120.0, 7200.0]
    assert len(axes.patches) == 2


@pytest.mark.parametrize(
    ("shortest", "longest", "expected"),
    [
        (0.0, 5.0, ["0", "1 min"]),
        (0.0, 9000.0, ["0", "1 min", "10 min", "1 h"]),
        (4000.0, 9000.0, ["1 h", "6 h"]),
        (100000.0, 5e6, ["1 d", "7 d", "30 d"]),
        (1e9, 1e9, ["30 d", "1 y"]),
    ],
)
def test_waits_have_units_and_two_ticks_at_least(shortest: float, longest: float, expected: list[str]) -> None:
    axes = Figure().add_subplot()
    wait_axis(axes, shortest, longest)
    assert [label.get_text() for label in axes.get_yticklabels()] == expected
    assert axes.get_ylim()[1] >= longest


def test_long_names_of_classes_do_not_overlap() -> None:
    figure = Figure(figsize=(7.2, 2), layout="constrained")
    axes = figure.add_subplot()
    size_axis(axes, range(10), [("65537-163840", 312826)] * 10)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def titles(schedule: object) -> list[str]:
    return [axes.get_title(loc="left").split(",")[0] for axes in schedule_figure(schedule).axes]  # type: ignore[arg-type]


def test_a_gantt_chart_where_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = random_schedule(40, 8)
    assert titles(schedule) == ["Utilisation", "Queue", "Jobs on nodes", "Wait by job size"]
    assert titles(replace(schedule, placements=None)) == ["Utilisation", "Queue", "Wait by job size"]
    monkeypatch.setattr(asa.lab.report.schedule_picture, "GANTT_JOBS_MOST", 39)
    assert titles(schedule) == ["Utilisation", "Queue", "Wait by job size"]


def test_time_has_a_unit_and_one_scale() -> None:
    schedule = made([1000], [1000], [1000 + 7200], [1], Cluster.of(1), placed=[(0, 0, 0, 1)])
    upper, queue, gantt, _ = schedule_figure(schedule, "a trace").axes
    assert gantt.get_xlabel() == "time since the first submission [h:min]"
    assert upper.get_xlim() == queue.get_xlim() == gantt.get_xlim() == (0, 7200)


def test_file_is_a_picture(tmp_path: Path) -> None:
    save_schedule(random_schedule(2000, 64, cores=4), tmp_path / "many.png", title="costs $5", dpi=50)
    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw() -> None:
    nothing = made([0], [np.nan], [np.nan], [1], Cluster.of(1), outcome=[JobState.PENDING])
    with pytest.raises(InvalidInput, match="no job of this schedule ran"):
        schedule_figure(nothing)
