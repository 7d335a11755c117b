"""Curves in one chart: what is learned over time, by several learners or in several numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from asa.report.palette import LINE, series_colour
from asa.report.picture import WIDTH_IN, charts, legend_above, marker, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS, _FEW = 8, 30  # about so many on a curve, but all of a few points: they tell curves apart where colours do not


class Curve(NamedTuple):
    """A curve: its name, and where its points are; as many of `at` as of `values`."""

    name: str
    at: Sequence[float]
    values: Sequence[float]


def curves_figure(
    curves: Sequence[Curve],
    *,
    x: str,
    y: str,
    from_zero: bool = False,
    chosen: tuple[str, float] | None = None,
) -> Figure:
    """Curves with their names above them.

    Parameters
    ----------
    x, y
        What the axes are.
    from_zero
        Whether the y axis begins at 0.
    chosen
        What is chosen of the curves, in words, and where: a dashed vertical line.

    Raises
    ------
    InvalidInput
        When matplotlib is not installed.
    """
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


def draw_curve(axes: Axes, place: int, curve: Curve) -> None:
    """Draw a curve in the colour, and with the marks, of this place among others."""
    every = 1 if len(curve.at) <= _FEW else len(curve.at) // _MARKS
    axes.plot(
        curve.at, curve.values, label=curve.name, color=series_colour(place), linewidth=1,
        marker=marker(place), markersize=3, markevery=(place % every, every),
    )  # fmt: skip
