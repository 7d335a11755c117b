from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import core_runs
from asa.lab.report.schedule_gantt import BOXES_MOST, COLUMNS, FINER, NUMBERED_MOST, ROWS, draw_gantt, raster
from tests.metrics.schedules import random_schedule, schedules

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
