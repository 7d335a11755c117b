"""Charts that several studies draw: curves, stacked bars in groups, and Kiviat graphs of schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.errors import InvalidInput
from asa.core.units import brief
from asa.lab.report.schedule_picture import size_axis, wait_axis
from asa.report.picture import (
    DPI,
    GRID,
    LIGHT,
    LINE,
    SMALL_PT,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    marker,
    new_figure,
    save_figure,
    series_colour,
    stage_colour,
    style_axes,
)
from asa.report.words import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes


_MARKS, _FEW = 8, 30  # about so many on a curve, but all of a few points: they tell curves apart where colours do not


class NamedCurve(NamedTuple):
    """A curve: its name, and where its points are; as many of `at` as of `values`."""

    name: str
    at: Sequence[float]
    values: Sequence[float]


def curves_figure(
    curves: Sequence[NamedCurve],
    *,
    x: str,
    y: str,
    from_zero: bool = False,
    chosen: tuple[str, float] | None = None,
) -> Figure:
    """Curves with their names above them."""
    made = new_figure(WIDTH_IN, 3.0)
    (axes,) = charts(made)
    for place, curve in enumerate(curves):
        draw_curve(axes, place, curve)
    if chosen is not None:
        axes.axvline(chosen[1], color=LINE, linewidth=0.7, linestyle="dashed", label=chosen[0])
    axes.set(xlabel=x, ylabel=y)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", integer=True)
    if from_zero:
        axes.set_ylim(bottom=0)
    legend_above(made, axes.get_legend_handles_labels()[0])
    return made


def draw_curve(axes: Axes, place: int, curve: NamedCurve) -> None:
    """Draw a curve in the colour, and with the marks, of this place among others."""
    every = 1 if len(curve.at) <= _FEW else len(curve.at) // _MARKS
    axes.plot(
        curve.at, curve.values, label=curve.name, color=series_colour(place), linewidth=1,
        marker=marker(place), markersize=3, markevery=(place % every, every),
    )  # fmt: skip


GROUND = "#d5d9df"
"""Colour of parts that have no colour of their own."""

_BAR = 0.78  # width of a bar, of the distance between two
_GAP = 0.9  # distance between groups, beyond that between bars


class BarPart(NamedTuple):
    """A part of a bar: how high it is, what it is called in the legend, and which colour of the palette it has."""

    height: float
    name: str
    colour: int | None = None


class Bar(NamedTuple):
    """A bar: the group it belongs to, what is written under it, its parts from the bottom up, and the interval of its
    height, or None."""

    group: str
    label: str
    parts: tuple[BarPart, ...]
    interval: tuple[float, float] | None = None

    @property
    def height(self) -> float:
        return sum(part.height for part in self.parts)


@dataclass(frozen=True)
class Panel:
    """One chart: its title, what its bars measure, and the bars; those of a group stand side by side."""

    title: str
    unit: str
    bars: Sequence[Bar] = field(default_factory=tuple)


def bar_places(bars: Sequence[Bar]) -> list[float]:
    """Where bars stand: one apart, and further where a new group begins.

    >>> bar_places([Bar("28", "a", ()), Bar("28", "b", ()), Bar("56", "a", ())])
    [0.0, 1.0, 2.9]
    """
    found: list[float] = []
    for bar, before in zip(bars, [None, *bars[:-1]], strict=True):
        if before is None:
            found.append(0.0)
        else:
            found.append(found[-1] + 1.0 + (_GAP if bar.group != before.group else 0.0))
    return found


def save_stacked(panels: Sequence[Sequence[Panel]], path: str | Path, *, title: str = "") -> None:
    """Draw rows of charts to a PNG, PDF or SVG file, as the name ends; see `stacked_figure`."""
    save_figure(stacked_figure(panels, title), path)


def stacked_figure(panels: Sequence[Sequence[Panel]], title: str = "") -> Figure:
    """Rows of charts, with one legend for all."""
    drawn = [panel for row in panels for panel in row if panel.bars]
    if not drawn:
        raise InvalidInput("there is nothing to draw: no bars")
    columns = max(len(row) for row in panels)
    made = new_figure(WIDTH_IN, 2.35 * len(panels) + 0.7)
    from matplotlib.patches import Patch

    axes = iter(charts(made, len(panels), columns, grid="y"))
    for row in panels:
        for place in range(columns):
            one = next(axes)
            if place < len(row) and row[place].bars:
                _draw_panel(one, row[place])
            else:
                one.set_visible(False)
    parts = [part for panel in drawn for bar in panel.bars for part in bar.parts]
    shown = {part.name: _colour(part) for part in sorted(parts, key=lambda part: part.colour is None)}
    handles = [Patch(facecolor=colour, label=shortened(name, 40)) for name, colour in shown.items()]
    legend_above(made, handles, title=title)
    return made


def _draw_panel(axes: Axes, panel: Panel) -> None:
    at = bar_places(panel.bars)
    top = max(max(bar.height, bar.interval[1] if bar.interval else 0.0) for bar in panel.bars)
    for place, bar in zip(at, panel.bars, strict=True):
        bottom = 0.0
        for part in bar.parts:
            axes.bar(place, part.height, _BAR, bottom, color=_colour(part), edgecolor="white", linewidth=0.25)
            bottom += part.height
        if bar.interval is not None:
            low, high = bar.interval
            axes.vlines(place, low, high, color="black", linewidth=0.8)
    small = min(6.0, 72 * 2.9 / (max(at) + 1) * 0.8)
    axes.set_xticks(at, [shortened(bar.label, 22) for bar in panel.bars], fontsize=small, rotation=90)
    groups = list(dict.fromkeys(bar.group for bar in panel.bars))
    for group in groups:
        inside = [place for place, bar in zip(at, panel.bars, strict=True) if bar.group == group]
        axes.text((inside[0] + inside[-1]) / 2, top * 1.09, group, fontsize=SMALL_PT, ha="center", va="center")
    axes.set_xlim(at[0] - 0.8, at[-1] + 0.8)
    axes.set_ylim(0, top * 1.17 or 1.0)
    axes.tick_params(axis="x", length=0, pad=1)
    heading(axes, panel.title)
    axes.set_ylabel(panel.unit)


def _colour(part: BarPart) -> str:
    return GROUND if part.colour is None else stage_colour(part.colour)


Rows = Sequence[Mapping[str, Any]]
"""What `asa.lab.metrics.schedule.summarise` returns for each dispatcher, with its name under "dispatcher"."""

AXES = {
    "mean_wait_s": "1 / mean wait",
    "max_wait_s": "1 / longest wait",
    "mean_bounded_slowdown": "1 / mean bounded\nslowdown",
    "mean_turnaround_s": "1 / mean\nturnaround",
    "utilisation": "utilisation",
}
"""Numbers along the axes of a Kiviat graph, and what is written there."""

_BARS = {
    "mean_wait_s": "mean wait",
    "max_wait_s": "longest wait",
    "mean_bounded_slowdown": "mean bounded slowdown",
    "mean_turnaround_s": "mean turnaround",
    "utilisation": "utilisation",
}

DISPATCHERS_MOST = len(LIGHT)
"""Dispatchers that a picture tells apart by colour."""

_RADIUS = 0.15  # of the circle for the worst: at 0, a dispatcher that is worst in everything would be a dot


def kiviat(rows: Rows) -> npt.NDArray[np.float64]:
    """How good each dispatcher is in each of `AXES`, shape (dispatchers, axes): 1 the best of these, 0 the worst.

    Numbers of which less is better count by their reciprocals. Those are then stretched from 0 to 1 among the
    dispatchers; where all are equal, all get 1. So a graph says which of *these* dispatchers is better, not by how
    much.

    Deviations from the paper: slowdown is bounded, and times below a second count as a second, for there the
    reciprocal says nothing (and has none at 0).

    Raises
    ------
    InvalidInput
        When a row lacks one of the numbers, because no job ran.

    References
    ----------
    Y. Fan, Z. Lan, T. Childers, P. Rich, W. Allcock and M. E. Papka, "Deep reinforcement agent for scheduling in HPC",
    IPDPS 2021, Figure 6.

    Examples
    --------
    >>> worst = dict.fromkeys(AXES, 100.0) | {"dispatcher": "a", "utilisation": 0.5}
    >>> best = dict.fromkeys(AXES, 50.0) | {"dispatcher": "b", "utilisation": 0.6}
    >>> kiviat([worst, best]).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]]
    """
    for row in rows:
        if missing := [name for name in AXES if row.get(name) is None]:
            raise InvalidInput(f"dispatcher {row['dispatcher']!r} has no {missing[0]}: no job ran under it")
    values = np.array([[row[name] for name in AXES] for row in rows], dtype=np.float64)
    less = [name != "utilisation" for name in AXES]
    values[:, less] = 1 / np.maximum(values[:, less], 1.0)
    low, high = values.min(axis=0), values.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    good: npt.NDArray[np.float64] = np.where(high > low, (values - low) / spread, 1.0)
    return good


def save_comparison(rows: Rows, path: str | Path, *, title: str = "", dpi: int = DPI) -> None:
    """Draw dispatchers side by side to a PNG, PDF or SVG file, as the name ends; see `comparison_figure`."""
    save_figure(comparison_figure(rows, title), path, dpi=dpi)


def comparison_figure(rows: Rows, title: str = "") -> Figure:
    """A Kiviat graph, bars of the numbers behind it, and mean waits by job size.

    Raises
    ------
    InvalidInput
        When matplotlib is not installed, there are fewer than 2 or more than `DISPATCHERS_MOST` dispatchers, or no job
        ran under one of them.
    """
    if not 2 <= len(rows) <= DISPATCHERS_MOST:
        raise InvalidInput(f"a comparison shows 2 to {DISPATCHERS_MOST} dispatchers, not {len(rows)}")
    good = kiviat(rows)
    height = 3.8 + 0.5 * max(0, len(rows) - 4)
    made = new_figure(WIDTH_IN, height + 2.4)
    from matplotlib.patches import Patch
    from matplotlib.projections.polar import PolarAxes

    grid = made.add_gridspec(2, 2, height_ratios=[height, 2.4], width_ratios=[1.1, 1.0])
    polar = made.add_subplot(grid[0, 0], projection="polar")
    assert isinstance(polar, PolarAxes)
    _draw_kiviat(polar, good)
    bars = grid[0, 1].subgridspec(len(AXES), 1)
    for place, name in enumerate(AXES):
        _draw_bars(made.add_subplot(bars[place]), rows, name)
    _draw_waits(made.add_subplot(grid[1, :]), rows)
    handles = [Patch(color=series_colour(k), label=shortened(row["dispatcher"], 40)) for k, row in enumerate(rows)]
    legend_above(made, handles, title=title)
    return made


def _draw_kiviat(axes: PolarAxes, good: npt.NDArray[np.float64]) -> None:
    angles = np.linspace(0, 2 * math.pi, len(AXES), endpoint=False)
    axes.set_theta_offset(math.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(-_RADIUS / (1 - _RADIUS), 1)
    for k, values in enumerate(good):
        around = np.append(angles, angles[0]), np.append(values, values[0])
        axes.plot(*around, color=series_colour(k), linewidth=1.6)
        axes.fill(*around, color=series_colour(k), alpha=0.12)
    axes.set_xticks(angles, list(AXES.values()), fontsize=SMALL_PT)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        side = math.sin(angle)
        label.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    axes.set_yticks([0, 0.5, 1], ["worst", "", "best"], fontsize=6, color=LINE)
    axes.set_rlabel_position(36)
    axes.tick_params(pad=1)
    axes.grid(color=GRID, linewidth=0.6)
    axes.spines["polar"].set_color(GRID)


def _draw_bars(axes: Axes, rows: Rows, name: str) -> None:
    values = [row[name] for row in rows]
    places = range(len(rows))
    axes.barh(places, values, color=[series_colour(k) for k in places], height=0.75)
    for place, value in zip(places, values, strict=True):
        axes.text(value, place, f" {_words(name, value)}", fontsize=SMALL_PT, va="center")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, max(values) * 1.35 or 1.0)
    axes.set_xticks([])
    axes.set_yticks([])
    style_axes(axes, "")
    axes.spines["bottom"].set_visible(False)
    axes.set_title(_BARS[name], fontsize=SMALL_PT, loc="left", pad=2)


def _words(name: str, value: float) -> str:
    if name == "utilisation":
        return f"{100 * value:.1f} %"
    return brief(value) if name.endswith("_s") else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _draw_waits(axes: Axes, rows: Rows) -> None:
    classes = {entry["cores"]: entry["jobs"] for row in rows for entry in row["by_size"]}
    order = sorted(classes, key=lambda name: int(name.partition("-")[0]))
    waits = []
    style_axes(axes, "y")
    for k, row in enumerate(rows):
        mean = {entry["cores"]: entry["mean_wait_s"] for entry in row["by_size"]}
        found = [(place, mean[name]) for place, name in enumerate(order) if name in mean]
        waits += [wait for _, wait in found]
        axes.plot(*zip(*found, strict=True), "o-", color=series_colour(k), markersize=3.5, linewidth=1.2)
    wait_axis(axes, min(waits), max(waits))
    axes.set_ylabel("mean wait")
    size_axis(axes, range(len(order)), [(name, classes[name]) for name in order])
