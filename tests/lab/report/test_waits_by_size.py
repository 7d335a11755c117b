from __future__ import annotations

import itertools

import pytest

from asa.lab.core.cluster import Cluster
from asa.lab.report.waits_by_size import draw_waits, size_axis, wait_axis
from tests.metrics.schedules import made

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure


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
