"""Makespans against extra core-hours as a picture: a mark for each strategy, and the front among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asa.lab.studies.compare_row import ORACLE
from asa.report.palette import LINE, series_colour
from asa.report.picture import charts, heading, legend_above, marker, new_figure, save_figure, ticks_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.lab.studies.interval import Estimate
    from asa.lab.studies.pareto import Point

_NEAR = 3.0
"""The horizontal axis is linear up to here [% of Per-Stage's core-hours], and logarithmic beyond."""
_TICKS = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def draw(points: Sequence[Point], path: str | Path) -> None:
    """Draw a chart for each system; the suffix of `path` decides the format.

    A mark is a strategy, a colour and shape one kind of it, with lines for the intervals; a stepped line joins those on
    the front.

    Raises
    ------
    InvalidInput
        When the name asks for no picture, its directory does not exist, or matplotlib is not installed.
    """
    systems = list(dict.fromkeys(point.system for point in points))
    kinds = list(dict.fromkeys(kind(point.strategy) for point in points))
    figure = new_figure(3.4 * len(systems) + 1.4, 3.8)
    made = charts(figure, 1, len(systems), grid="")
    for axes, system in zip(made, systems, strict=True):
        _chart(axes, [point for point in points if point.system == system], kinds)
        heading(axes, system or "all systems")
    made[0].set_ylabel("makespan / Big Job's")
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def kind(strategy: str) -> str:
    """What points of a strategy are called in the legend: its name, and which option is not the default.

    >>> kind("hold"), kind("stagger:late=0.3"), kind("stagger:outstanding=1,spacing_s=600")
    ('hold', 'stagger: late', 'stagger: outstanding, spacing_s')
    """
    name, _, options = strategy.partition(":")
    changed = ", ".join(option.partition("=")[0] for option in options.split(",") if option)
    return f"{name}: {changed}" if changed else name


def _chart(axes: Axes, points: Sequence[Point], kinds: Sequence[str]) -> None:
    axes.axhline(1.0, color=LINE, linewidth=0.6)
    axes.axvline(0.0, color=LINE, linewidth=0.6)
    for place, name in enumerate(kinds):
        chosen = [point for point in points if kind(point.strategy) == name]
        axes.errorbar(
            [100 * point.extra.value for point in chosen],
            [point.makespan.value for point in chosen],
            xerr=[[100 * each for each in side] for side in _sides([point.extra for point in chosen])],
            yerr=_sides([point.makespan for point in chosen]),
            fmt=marker(place),
            color="black" if name == ORACLE else series_colour(place),
            markersize=4.5 if ":" in name else 6,
            elinewidth=0.5,
            alpha=0.9,
            label=name,
        )
    steps = sorted((100 * point.extra.value, point.makespan.value) for point in points if point.efficient)
    axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color="black", linewidth=0.9, zorder=1)
    axes.set_xscale("symlog", linthresh=_NEAR)
    axes.set_xlabel("core-hours beyond Per-Stage's [%]")
    ticks_at(axes.xaxis, _TICKS)


def _sides(found: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """How far the intervals reach below and above their values."""
    below = [0.0 if each.low is None else max(0.0, each.value - each.low) for each in found]
    above = [0.0 if each.high is None else max(0.0, each.high - each.value) for each in found]
    return below, above
