"""Curves, stacked bars and Kiviat graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.metrics.schedule import summarise
from asa.lab.report.charts import (
    AXES,
    DISPATCHERS_MOST,
    GROUND,
    Bar,
    BarPart,
    NamedCurve,
    Panel,
    bar_places,
    comparison_figure,
    curves_figure,
    kiviat,
    save_comparison,
    save_stacked,
    stacked_figure,
)
from asa.report.picture import stage_colour
from tests.metrics.schedules import made, random_schedule

pytest.importorskip("matplotlib")


def test_curves_are_named_above_and_axes_say_what_they_are() -> None:
    curves = [NamedCurve("one", [0, 1000], [2.0, 1.0]), NamedCurve("two", [0, 2000], [3.0, 2.5])]
    made = curves_figure(curves, x="actions", y="cost [%]", from_zero=True, chosen=("kept", 1000))
    (axes,) = made.axes
    assert [line.get_xydata().tolist() for line in axes.lines[:2]] == [[[0, 2], [1000, 1]], [[0, 3], [2000, 2.5]]]
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["one", "two", "kept"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_ylim()[0]) == ("actions", "cost [%]", 0)
    assert set(axes.lines[2].get_xdata()) == {1000}
    made.draw_without_rendering()
    assert "2,000" in [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize("points", [1, 30, 31, 1000])
def test_curves_have_marks_that_tell_them_apart(points: int) -> None:
    at = list(range(points))
    (axes,) = curves_figure([NamedCurve(str(k), at, at) for k in range(3)], x="", y="").axes
    for line in axes.lines:
        first, every = line.get_markevery()
        marked = at[first::every]
        assert len(marked) == points if points <= 30 else 5 <= len(marked) <= 16
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 3


BARS = (
    Bar("28 cores", "big-job", (BarPart(3.0, "wait 1", 0), BarPart(20.0, "running")), (20.0, 30.0)),
    Bar("28 cores", "asa", (BarPart(1.0, "wait 1", 0), BarPart(12.0, "running"), BarPart(2.0, "wait 2", 1))),
    Bar("56 cores", "asa", (BarPart(0.0, "wait 1", 0),)),
)


def test_parts_are_stacked_in_their_order() -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("montage", "[min]", BARS)]])
    patches = figure.axes[0].patches
    assert [(patch.get_y(), patch.get_height()) for patch in patches[2:5]] == [(0, 1), (1, 12), (13, 2)]
    assert {patch.get_x() for patch in patches[:2]} != {patch.get_x() for patch in patches[2:5]}
    assert figure.axes[0].get_ylim()[1] > 30


def test_one_legend_names_every_part_once_and_what_has_no_colour_last() -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("a", "", BARS), Panel("b", "", BARS[:1])]], "title")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["wait 1", "wait 2", "running"]
    assert legend.get_title().get_text() == "title"
    from matplotlib.colors import to_hex

    colours = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert colours == [stage_colour(0), stage_colour(1), GROUND]


def test_rows_of_unequal_length_and_empty_charts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("a", "", BARS), Panel("b", "")], [Panel("c", "", BARS)]])
    assert [axes.get_visible() for axes in figure.axes] == [True, False, True, False]
    save_stacked([[Panel("a", "", BARS)]], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing to draw"):
        stacked_figure([[Panel("a", "")]])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_bars_never_overlap_and_groups_stand_apart(groups: list[str]) -> None:
    found = bar_places([Bar(group, "", ()) for group in groups])
    for k in range(1, len(found)):
        assert found[k] - found[k - 1] == pytest.approx(1.0 if groups[k] == groups[k - 1] else 1.9)


numbers = st.lists(st.floats(1.0, 1e6), min_size=len(AXES), max_size=len(AXES))


def rows_of(names: list[str]) -> list[dict[str, Any]]:
    return [{"dispatcher": name} | summarise(random_schedule(60, 16, seed=k)) for k, name in enumerate(names)]


@given(st.lists(numbers, min_size=1, max_size=5))
def test_the_best_is_1_and_the_worst_0(table: list[list[float]]) -> None:
    rows = [dict(zip(AXES, values, strict=True)) | {"dispatcher": "x"} for values in table]
    good = kiviat(rows)
    assert ((good >= 0) & (good <= 1)).all()
    for column, name in enumerate(AXES):
        values = [row[name] for row in rows]
        best, worst = (max, min) if name == "utilisation" else (min, max)
        assert good[values.index(best(values)), column] == 1
        if len(set(values)) > 1:
            assert good[values.index(worst(values)), column] in (0, 1)  # 1 where the reciprocals are the same float
    assert (kiviat(rows[::-1]) == good[::-1]).all()


def test_no_wait_is_no_division_by_zero() -> None:
    rows = [dict.fromkeys(AXES, 0.0) | {"dispatcher": "x"}, dict.fromkeys(AXES, 2.0) | {"dispatcher": "y"}]
    assert kiviat(rows)[:, 0].tolist() == [1.0, 0.0]


def test_a_dispatcher_that_ran_nothing_is_named() -> None:
    nothing = made([0], [np.nan], [np.nan], [1], Cluster.of(1), outcome=[JobState.PENDING])
    with pytest.raises(InvalidInput, match="dispatcher 'lazy' has no mean_wait_s"):
        kiviat([*rows_of(["easy"]), {"dispatcher": "lazy"} | summarise(nothing)])


@pytest.mark.parametrize("count", [1, DISPATCHERS_MOST + 1])
def test_too_few_or_too_many(count: int) -> None:
    with pytest.raises(InvalidInput, match="2 to 9 dispatchers"):
        comparison_figure([{"dispatcher": str(k)} for k in range(count)])


def test_everything_is_in_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = rows_of(["fcfs", "easy", "backfill:depth=10,order=sjf"])
    made = comparison_figure(rows, title="three of them")
    polar, *bars, lower = made.axes
    assert [label.get_text() for label in polar.get_xticklabels()] == list(AXES.values())
    assert len(bars) == len(AXES)
    assert all(len(axes.patches) == 3 for axes in bars)
    assert len(lower.lines) == 3
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == [row["dispatcher"] for row in rows]
    save_comparison(rows, tmp_path / "three.png", dpi=60)
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")


def test_dispatchers_that_are_all_alike_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    idle = made([0, 0], [0, 0], [10, 10], [1, 1], Cluster.of(2))
    rows = [{"dispatcher": name} | summarise(replace(idle)) for name in ("a", "b")]
    assert (kiviat(rows) == 1).all()
    save_comparison(rows, tmp_path / "alike.svg")
    assert (tmp_path / "alike.svg").stat().st_size > 0
