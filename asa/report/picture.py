"""What all pictures have in common: how large they are, their axes, headings and legends, and how they are saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from asa.core.units import DAY, HOUR
from asa.report.outputs import check_matplotlib, check_picture

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
    """An empty figure of this size [in]."""
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def charts(figure: Figure, rows: int = 1, columns: int = 1, *, grid: Lines = "both", **layout: Any) -> list[Axes]:
    """Empty charts with axes as all have them, row by row.

    Parameters
    ----------
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
    """Name what has a label inside a chart, where there is most room, or where options of ``Axes.legend`` say."""
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


# Colours that colour-blind readers can tell apart, on white and on dark ground. The nine stage colours on white are
# Paul Tol's scheme "muted". Those on dark ground have about the same hues; lightness and saturation were searched so
# that any two stay well apart (26 or more in CIELAB, for normal, red-blind and green-blind sight as simulated by
# Machado et al. 2009) and each has a contrast of at least 3 to the ground.

LIGHT = ("#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499")
DARK = ("#8b4ae4", "#29b6ff", "#d1efe6", "#4af77d", "#d7d219", "#92832a", "#ef818c", "#904e6c", "#a144a1")

BUSY, IDLE = "#8fbbe3", "#f0c27b"
"""Cores in use; what waits, or is held and not used."""
LINE, GRID = "#5d6570", "#d9dce1"
"""Lines and words beside the data; lines of the grid."""
BAD = "#b3261e"
"""What failed, and the worst."""

_TELLING = (0, 6, 2, 5, 1, 7, 3, 8, 4)  # of the stage colours, so that a few differ most


def stage_colour(position: int) -> str:
    """Colour of the stage at this position of the workflow, on white; they repeat after nine.

    >>> stage_colour(0), stage_colour(9)
    ('#332288', '#332288')
    """
    return LIGHT[position % len(LIGHT)]


def series_colour(position: int) -> str:
    """Colour of what is compared, at this position, on white: neighbours differ most; they repeat after nine.

    >>> series_colour(0), series_colour(1), series_colour(9)
    ('#332288', '#cc6677', '#332288')
    """
    return LIGHT[_TELLING[position % len(_TELLING)]]


_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Where an axis has its ticks [s], what is written there, and in what unit."""

    at: tuple[float, ...]
    labels: tuple[str, ...]
    unit: str


def ticks(span_s: float, about: int) -> Ticks:
    """Ticks of an axis from 0 to `span_s` [s], `about` that many, never many more.

    >>> ticks(3000, 6)
    Ticks(at=(0.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0), labels=('0', '10', '20', '30', '40', '50'), unit='min')
    >>> ticks(5400, 3).labels, ticks(5400, 3).unit
    (('0:00', '0:30', '1:00', '1:30'), 'h:min')
    """
    step = _step(max(span_s, 1e-9) / about)
    at = tuple(step * position for position in range(math.floor(span_s / step + 1e-9) + 1))
    unit = _unit(step, span_s)
    return Ticks(at, tuple(_write(time, unit) for time in at), unit)


def _step(least_s: float) -> float:
    """The next round step [s] not below `least_s`: decimal below a second and above a day, clock-like in between."""
    for step in _STEPS_S:
        if 0.5 < least_s <= step:
            return float(step)
    base = DAY if least_s > 0.5 else 1.0
    power = 10.0 ** math.floor(math.log10(least_s / base))
    return next(base * power * digit for digit in (1, 2, 5, 10) if least_s <= base * power * digit * (1 + 1e-9))


def _unit(step: float, span_s: float) -> str:
    if step < 60:
        return "s" if span_s < 180 else "min:s" if span_s < 7200 else "h:min:s"
    if step < 3600:
        return "min" if span_s < 5400 else "h:min"
    return "h" if step < DAY else "d"


def _write(time: float, unit: str) -> str:
    whole = round(time)
    match unit:
        case "min:s":
            return f"{whole // 60}:{whole % 60:02d}"
        case "h:min:s":
            return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        case "h:min":
            return f"{whole // 3600}:{whole // 60 % 60:02d}"
    return f"{time / {'s': 1, 'min': 60, 'h': HOUR, 'd': DAY}[unit]:g}"
