"""Pictures of runs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.event import AllocationStarted
from asa.metrics.workflow import summarise
from asa.report.gantt import figure, save
from asa.report.picture import (
    DARK,
    LIGHT,
    SMALL_PT,
    charts,
    heading,
    legend,
    legend_above,
    legend_columns,
    new_figure,
    note,
    save_figure,
    style_axes,
    ticks,
    ticks_at,
)
from tests.runlogs import job_asked, montage, run_begins, run_log, stage_spec

pytest.importorskip("matplotlib")


def test_all_charts_have_the_same_axes() -> None:
    left, right = charts(new_figure(4, 2), 1, 2, sharey=True)
    for axes in (left, right):
        assert [name for name, spine in axes.spines.items() if spine.get_visible()] == ["left", "bottom"]
        axes.set_xlabel("time [s]")
        axes.set_xscale("log")
        assert axes.xaxis.label.get_fontsize() == 8
        assert axes.get_xticklabels()[0].get_fontsize() == SMALL_PT


@pytest.mark.parametrize(("lines", "seen"), [("x", [True, False]), ("both", [True, True]), ("", [False, False])])
def test_lines_across(lines: str, seen: list[bool]) -> None:
    (axes,) = charts(new_figure(2, 2), grid="y")
    style_axes(axes, lines)  # type: ignore[arg-type]
    shown = [axis.get_gridlines()[0].get_visible() for axis in (axes.xaxis, axes.yaxis)]
    assert shown == seen


def test_headings_and_notes_stand_side_by_side_and_are_no_formulas(tmp_path: Path) -> None:
    figure = new_figure(4, 2)
    (axes,) = charts(figure)
    axes.plot([1, 2], label="costs $5 or $_6$")
    heading(axes, "a job of $_$")
    note(axes, "dashed: mean")
    legend(axes)
    save_figure(figure, tmp_path / "a.png", dpi=40)
    assert (axes.get_title("left"), axes.get_title("right")) == ("a job of $_$", "dashed: mean")


def test_ticks_at_what_is_shown() -> None:
    (axes,) = charts(new_figure(2, 2))
    axes.set(xscale="log", xlim=(30, 0.4))
    ticks_at(axes.xaxis, (0.1, 0.5, 1, 2, 10, 50))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.5", "1", "2", "10"]
    assert axes.get_xlim() == (30, 0.4)
    assert not len(axes.get_xticks(minor=True))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(40, 200))
def test_columns_of_a_legend_are_as_many_as_there_is_room_for(widths: list[int], room: int) -> None:
    import numpy as np

    def fits(columns: int) -> bool:
        return sum(max(part) for part in np.array_split(widths, columns)) <= room

    found = legend_columns(widths, room)
    assert fits(found)
    lower = -(-len(widths) // found) - 1  # no lower legend fits
    assert lower == 0 or not fits(-(-len(widths) // lower))


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_legend_above_is_never_cut(count: int, tmp_path: Path) -> None:
    from matplotlib.patches import Patch

    figure = new_figure(7.2, 3)
    charts(figure)
    names = [f"dispatcher-{k}:option={'w' * 24}" for k in range(count)]
    legend_above(figure, [Patch(label=name) for name in names], title="costs $5 or $_6$")
    save_figure(figure, tmp_path / "a.png", dpi=100)
    (made,) = figure.legends
    assert [text.get_text() for text in made.get_texts()] == names
    box = made.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= 720
    assert box.width > 100


def test_no_legend_of_nothing() -> None:
    figure = new_figure(2, 2)
    legend_above(figure, [])
    assert figure.legends == []


@pytest.mark.parametrize(
    ("name", "said"), [("a.txt", "end the name with .png, .pdf, .svg"), ("no/a.png", "there is no directory")]
)
def test_files_that_cannot_be_written(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=said):
        save_figure(new_figure(1, 1), tmp_path / name)


# Machado, Oliveira, Fernandes 2009: full protanopia and deuteranopia, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "red-blind": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "green-blind": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(channels: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ np.clip(channels, 0, 1) / [0.9505, 1, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(("colours", "least"), [(LIGHT, 15), (DARK, 26)], ids=["light", "dark"])
def test_any_two_colours_are_distinct(colours: tuple[str, ...], least: float, sight: str) -> None:
    seen = [lab(SIGHTS[sight] @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) >= least


@pytest.mark.parametrize("colour", DARK)
def test_contrast_on_dark_ground(colour: str) -> None:
    bright, ground = (float(TO_XYZ[1] @ linear(each)) + 0.05 for each in (colour, "#14161a"))
    assert bright / ground >= 3


@given(st.floats(1e-3, 1e8), st.integers(1, 150))
def test_ticks_are_even_few_and_inside(span_s: float, about: int) -> None:
    made = ticks(span_s, about)
    assert made.at[0] == 0.0 and made.at[-1] <= span_s * (1 + 1e-6)
    assert len(made.at) <= about + 1
    assert len(set(made.labels)) == len(made.labels), "no two ticks read the same"


@pytest.mark.parametrize(
    ("span_s", "about", "unit", "labels"),
    [
        (0.5, 5, "s", ("0", "0.1", "0.2")),
        (90, 3, "s", ("0", "30", "60")),
        (600, 20, "min:s", ("0:00", "0:30", "1:00")),
        (9000, 300, "h:min:s", ("0:00:00", "0:00:30", "0:01:00")),
        (3000, 5, "min", ("0", "10", "20")),
        (30000, 10, "h", ("0", "1", "2")),
        (864000, 5, "d", ("0", "2", "4")),
    ],
)
def test_units_fit_the_steps(span_s: float, about: int, unit: str, labels: tuple[str, ...]) -> None:
    made = ticks(span_s, about)
    assert made.unit == unit and made.labels[:3] == labels


pytest.importorskip("matplotlib")


def test_rows_have_names_and_time_a_unit() -> None:
    made = figure(summarise(run_log(montage())))
    stages, jobs, pool = made.axes
    assert [label.get_text() for label in stages.get_yticklabels()][:2] == ["mProject · 112 cores", "mImgtbl · 1 core"]
    assert "810003 mDiff · 84 cores" in [label.get_text() for label in jobs.get_yticklabels()]
    assert pool.get_xlabel() == "time since the start [min]"
    assert "node fail" in [text.get_text().strip() for text in jobs.texts]


def test_file_is_a_picture(tmp_path: Path) -> None:
    save(summarise(run_log(montage(8))), tmp_path / "run.png", dpi=60)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["costs $5 or $6", "Größe", "<&>"])
def test_names_are_no_formulas(tmp_path: Path, name: str) -> None:
    events = [*run_begins(stage_spec(name, 1, 1)), *job_asked(0.0, "j0", 1, name), AllocationStarted(5.0, "j0", 5.0)]
    save(summarise(events, now=9.0), tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 0


def test_run_that_has_hardly_begun(tmp_path: Path) -> None:
    save(summarise(run_begins(stage_spec("a", 1, 1))), tmp_path / "run.png", dpi=40)
    assert (tmp_path / "run.png").stat().st_size > 0
