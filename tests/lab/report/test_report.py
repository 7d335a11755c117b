"""Schedules, placements and comparisons, in words and as pictures."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import asa.lab.report.schedule_picture
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import core_runs
from asa.lab.metrics.schedule import level, summarise
from asa.lab.placement.tjap.instance import grouped
from asa.lab.placement.tjap.seq import Sequential
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
from asa.lab.report.schedule_picture import (
    BOXES_MOST,
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
from asa.lab.report.schedule_picture import COLUMNS as PICTURE_COLUMNS
from asa.lab.report.schedule_text import COLUMNS, comparison, in_words, interval_sets, title, write_csv
from asa.lab.report.switches import JOBS_NAMED, NODES_MOST, placement_figure, save_placement
from asa.report.picture import LIGHT, stage_colour
from tests.metrics.schedules import made, random_schedule, schedules

# -- Schedule text ----------------------------------------------------------------------------------------------------


def row_of(schedule: Schedule, dispatcher: str = "easy") -> dict[str, Any]:
    cluster = schedule.cluster
    return {"dispatcher": dispatcher, "trace": "a.swf", "nodes": cluster.nodes, "cores": cluster.cores} | summarise(
        schedule
    )


def test_numbers_are_said_with_their_units() -> None:
    schedule = made([0, 0], [0, 3600], [3600, 7200], [8, 2], Cluster.of(2, 4), user=[1, 2])
    said = in_words(row_of(schedule))
    assert said.startswith("easy: a.swf on 2 nodes, 8 cores\n")
    for words in (
        "2: 2 completed",
        "mean 30 min, median 30 min, 90 % within 54 min, longest 1 h",
        "mean 1.50",
        "62.5 %",
        "2 h, 1.00 jobs an hour",
        "Jain's index 0.90",
        "0.50 s, 4.00 jobs a second",
    ):
        assert words in said
    assert said.splitlines()[-2].split() == ["2", "1", "1", "h", "1", "h", "2.00"]
    assert "requeued" not in said
    assert "2 completed; requeued 3 times\n" in in_words(row_of(replace(schedule, restarts=np.array([1, 2]))))


def test_what_is_not_known_is_a_dash() -> None:
    nothing = made([0], [math.nan], [math.nan], [4], Cluster.of(1), outcome=[JobState.FAILED])
    said = in_words(row_of(replace(nothing, seconds=math.nan)))
    assert "1: 1 refused" in said
    assert "mean -, median -" in said
    assert said.endswith("no job ran")


def test_dispatchers_are_rows() -> None:
    schedule = made([0, 0], [0, 1e6], [1e6, 2e6], [1, 1], Cluster.of(1))
    lines = comparison([row_of(schedule, "fcfs"), row_of(schedule, "easy")]).splitlines()
    assert lines[0].split()[:2] == ["dispatcher", "mean_wait_s"]
    assert [line.split()[:3] for line in lines[1:]] == [["fcfs", "500000", "1000000"], ["easy", "500000", "1000000"]]


def test_one_node_is_no_nodes() -> None:
    assert title({"trace": "a.swf", "nodes": 1, "cores": 28}) == "a.swf on 1 node, 28 cores"


def numbers_in(text: str) -> list[int]:
    """The resources of an interval set, read as evalys does."""
    pairs = [part.partition("-") for part in text.split()]
    return [number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)]


def test_pandas_reads_back_what_was_written(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    schedule = random_schedule(300, 6, cores=4)
    write_csv(schedule, tmp_path / "jobs.csv", "my log")
    table = pandas.read_csv(tmp_path / "jobs.csv", dtype={"allocated_resources": str})
    assert tuple(table.columns) == COLUMNS
    jobs = schedule.workload
    for column, values in {
        "job_id": jobs.number,
        "submission_time": jobs.submit,
        "requested_number_of_resources": jobs.cores,
        "requested_time": jobs.walltime,
        "starting_time": schedule.start,
        "execution_time": schedule.end - schedule.start,
        "finish_time": schedule.end,
        "waiting_time": schedule.wait,
        "turnaround_time": schedule.end - jobs.submit,
        "stretch": (schedule.end - jobs.submit) / (schedule.end - schedule.start),
    }.items():
        assert (table[column] == values).all(), column
    assert (table["success"] == 1).all() and (table["final_state"] == "COMPLETED_SUCCESSFULLY").all()
    assert (table["workload_name"] == "my log").all()
    assert table["allocated_resources"].map(numbers_in).map(len).tolist() == jobs.cores.tolist()


def test_states_are_those_of_batsim(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    states = [JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED, JobState.FAILED, JobState.CANCELLED,
              JobState.CANCELLED, JobState.NODE_FAIL, JobState.PENDING]  # fmt: skip
    nan = math.nan
    start = [0, 0, 0, nan, nan, 0, 0, nan]
    end = [0, 9, 9, nan, 5, 9, 9, nan]
    write_csv(made([0] * 8, start, end, [1] * 8, Cluster.of(9), outcome=states), tmp_path / "jobs.csv")
    table = pandas.read_csv(tmp_path / "jobs.csv")
    assert table["final_state"].tolist() == [
        "COMPLETED_SUCCESSFULLY",
        "COMPLETED_WALLTIME_REACHED",
        "COMPLETED_FAILED",
        "REJECTED",
        "REJECTED",
        "COMPLETED_KILLED",
        "COMPLETED_KILLED",
        "SUBMITTED",
    ]
    assert table["success"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert table["starting_time"].isna().tolist() == [math.isnan(time) for time in start]
    assert math.isnan(table["stretch"][0]), "it ran for no time"
    assert table["allocated_resources"].isna().all() and table["requested_time"].isna().all()


def test_names_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    schedule = made([0, 0], [0, 0], [1, 1], [1, 1], Cluster.of(2), name=[0, -1], labels={"name": ('a,"b"',)})
    write_csv(schedule, tmp_path / "jobs.csv", "w,1")
    table = pandas.read_csv(tmp_path / "jobs.csv", keep_default_na=False)
    assert table["profile"].tolist() == ['a,"b"', ""] and table["workload_name"].tolist() == ["w,1", "w,1"]


@given(schedules())
def test_interval_sets_hold_as_many_cores_as_the_job(schedule: Schedule) -> None:
    sets = list(interval_sets(schedule))
    assert [len(set(numbers_in(text))) for text in sets] == schedule.workload.cores.tolist()
    assert list(interval_sets(replace(schedule, placements=None))) == [""] * len(schedule)


def test_an_interval_set_is_written_as_evalys_reads_it() -> None:
    schedule = made([0], [0], [9], [5], Cluster.of(9), placed=[(0, 7, 7, 1), (0, 0, 3, 1)])
    assert list(interval_sets(schedule)) == ["0-3 7"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written: No such file or directory"):
        write_csv(random_schedule(2, 2), tmp_path / "nowhere" / "jobs.csv")


def test_an_empty_schedule_has_a_header(tmp_path: Path) -> None:
    write_csv(made([], [], [], [], Cluster.of(1)), tmp_path / "jobs.csv")
    assert (tmp_path / "jobs.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_times_keep_all_their_digits(tmp_path: Path) -> None:
    at = 1700000000.1234567
    write_csv(made([at], [at], [at + 1 / 3], [1], Cluster.of(1)), tmp_path / "jobs.csv")
    cells = (tmp_path / "jobs.csv").read_text().splitlines()[1].split(",")
    assert float(cells[COLUMNS.index("submission_time")]) == at
    assert float(cells[COLUMNS.index("finish_time")]) == np.float64(at + 1 / 3)


# -- Schedule picture -------------------------------------------------------------------------------------------------


@given(schedules())
@settings(max_examples=20)
def test_a_pixel_shows_who_held_the_core(schedule: Schedule) -> None:
    runs, cores = core_runs(schedule), schedule.cluster.cores
    start, end, span = schedule.start[runs.job], schedule.end[runs.job], 97.0
    image = raster(runs, start, end, cores, span)
    assert image.shape == (cores, PICTURE_COLUMNS, 3)
    rng = np.random.default_rng(0)
    for core, column in zip(rng.integers(0, cores, 30), rng.integers(0, PICTURE_COLUMNS, 30), strict=True):
        instants = (column * FINER + np.arange(FINER) + 0.5) * span / (PICTURE_COLUMNS * FINER)
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


def test_a_queue_without_waits_is_drawn() -> None:
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


# -- Charts -----------------------------------------------------------------------------------------------------------


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


# -- Switches ---------------------------------------------------------------------------------------------------------

matplotlib = pytest.importorskip("matplotlib")


def drawn(window):
    """Colours of nodes and of bars in the picture, row by row, and the words of its key."""
    made = placement_figure(window, Sequential().place(window), "title")
    from matplotlib.colors import to_hex

    rows = [[(to_hex(each.get_facecolor()), each.get_height()) for each in axes.patches] for axes in made.axes]
    return rows, [text.get_text() for text in made.legends[0].get_texts()]


def test_nodes_have_the_colours_of_their_jobs():
    rows, words = drawn(grouped([0, 1, 5, 6, 7, 12], [2, 3], below=[4, 8]))
    colours = [colour for colour, height in rows[0] if height == rows[0][-1][1]]
    assert colours == [LIGHT[0]] * 2 + [LIGHT[1]] * 3 + ["#ffffff"]
    assert len(rows[0]) - len(colours) == 3 + 2 + 1  # switches: three leaf switches, two pods, the root
    assert words == ["job 0: 2 nodes", "job 1: 3 nodes", "stay idle"]


def test_many_switches_take_several_rows():
    rows, words = drawn(grouped(np.arange(0, 400, 2), [1] * 40, below=[2, 20]))
    assert len(rows) == 4 and len(words) == JOBS_NAMED + 1 and words[0] == "job 0: 1 node"


def test_a_single_switch():
    rows, words = drawn(grouped([0, 1], [2], below=[]))
    assert len(rows) == 1 and words == ["job 0: 2 nodes"]


def test_what_is_no_picture(tmp_path):
    for nodes in (0, NODES_MOST + 1):
        window = grouped(np.arange(nodes), [], below=[10])
        with pytest.raises(InvalidInput, match=f"not {nodes}"):
            save_placement(window, Sequential().place(window), tmp_path / "x.png")


def test_it_is_written(tmp_path):
    window = grouped([0, 1, 5], [2], below=[4])
    save_placement(window, Sequential().place(window), tmp_path / "x.svg", title="cost")
    assert "<svg" in (tmp_path / "x.svg").read_text()
