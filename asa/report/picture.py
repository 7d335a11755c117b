"""What all pictures have in common: how large they are, their axes, headings and legends, and how they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from asa.report.outputs import check_matplotlib, check_picture
from asa.report.palette import GRID, LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH_IN = 7.2
"""Two columns of most journals [in]."""
DPI = 200
"""Pixels of a PNG file [1/in]."""
SMALL_PT, LABEL_PT, TITLE_PT = 7.0, 8.0, 9.0
"""Letters at ticks and in legends, at axes and above charts, and above the whole [pt]."""

_MARKERS = "osD^vPX*<>"
_HANDLE = 4.8  # what a legend has beside each name, in heights of its letters
_WIDER = 1.08  # letters on pixels than on paper, at most

Lines = Literal["x", "y", "both", ""]
"""From the ticks of which axis lines go across a chart."""


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure of this size [in].

    Raises
    ------
    InvalidInput
        When matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def charts(figure: Figure, rows: int = 1, columns: int = 1, *, grid: Lines = "both", **layout: Any) -> list[Axes]:
    """Empty charts with axes as all have them, row by row.

    Parameters
    ----------
    grid
        See `style_axes`.
    layout
        What else matplotlib's ``Figure.subplots`` takes: axes that are shared, ratios of widths and heights.
    """
    made: list[Axes] = figure.subplots(rows, columns, squeeze=False, **layout).ravel().tolist()
    for axes in made:
        style_axes(axes, grid)
    return made


def style_axes(axes: Axes, grid: Lines = "both") -> None:
    """Give axes small letters, two spines, and thin lines behind the data; what is written there comes later."""
    axes.tick_params(labelsize=SMALL_PT, length=2)
    axes.xaxis.label.set_fontsize(LABEL_PT)
    axes.yaxis.label.set_fontsize(LABEL_PT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(visible=False)
    if grid:
        axes.grid(axis=grid, color=GRID, linewidth=0.5)


def ticks_at(axis: Axis, values: Sequence[float]) -> None:
    """Give an axis, mostly a logarithmic one, ticks at those of the values that it shows, and none in between."""
    low, high = sorted(axis.get_view_interval())
    shown = [value for value in values if low <= value <= high]
    axis.set_ticks(shown, [f"{value:g}" for value in shown])
    axis.set_ticks([], minor=True)


def heading(axes: Axes, text: str) -> None:
    """Write what a chart shows above it, on the left."""
    axes.set_title(text, fontsize=LABEL_PT, loc="left", fontweight="bold", parse_math=False)


def note(axes: Axes, text: str) -> None:
    """Write what its signs mean above a chart, on the right."""
    axes.set_title(text, fontsize=SMALL_PT, loc="right", color=LINE)


def legend(axes: Axes, **where: Any) -> None:
    """Name what has a label inside a chart, where there is most room or as matplotlib's ``Axes.legend`` is told."""
    made = axes.legend(fontsize=SMALL_PT, frameon=False, **where)
    for text in made.get_texts():
        text.set_parse_math(False)


def legend_above(figure: Figure, handles: Sequence[Any], *, title: str = "", **look: Any) -> None:
    """Name what all charts of a figure share, if anything, above them, in as few lines as there is room for."""
    if not handles:
        return
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    labels, font = [str(handle.get_label()) for handle in handles], FontProperties(size=SMALL_PT)
    widths = [text_to_path.get_text_width_height_descent(label, font, False)[0] for label in labels]
    columns = legend_columns([_HANDLE * SMALL_PT + _WIDER * width for width in widths], 72 * figure.get_figwidth())
    made = figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, fontsize=SMALL_PT, frameon=False,
        title=title or None, title_fontsize=TITLE_PT, **look,
    )  # fmt: skip
    for text in (*made.get_texts(), made.get_title()):
        text.set_parse_math(False)


def legend_columns(widths: Sequence[float], room: float) -> int:
    """How many columns a legend has, filled one after the other, so that it is low and no wider than there is room.

    Parameters
    ----------
    widths
        Of the entries, in their order, in the unit of `room`.

    Examples
    --------
    >>> legend_columns([4, 4, 4], 12), legend_columns([4, 4, 4], 11), legend_columns([40], 11)
    (3, 2, 1)
    """
    for rows in range(1, len(widths)):
        columns = -(-len(widths) // rows)
        if sum(float(part.max()) for part in np.array_split(np.array(widths), columns)) <= room:
            return columns
    return 1


def marker(position: int) -> str:
    """Shape of the points of the series at this position; they repeat after ten.

    >>> marker(0), marker(10)
    ('o', 'o')
    """
    return _MARKERS[position % len(_MARKERS)]


def save_figure(figure: Figure, path: str | Path, *, dpi: int = DPI) -> None:
    """Write a figure to a PNG, PDF or SVG file, as the name ends.

    Raises
    ------
    InvalidInput
        When the name ends otherwise, or the file cannot be written.
    """
    check_picture("picture", path)
    figure.savefig(path, dpi=dpi)
