from __future__ import annotations

import numpy as np
import pytest

from asa.lab.core.cluster import Cluster
from asa.lab.metrics.system import level
from asa.lab.report.utilisation import STEPS_MOST, curve, draw_queue, draw_utilisation
from tests.metrics.schedules import made, random_schedule

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure


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
