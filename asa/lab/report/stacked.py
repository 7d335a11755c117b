"""Bars of stacked parts, in groups, several charts in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asa.core.errors import InvalidInput
from asa.report.palette import stage_colour
from asa.report.picture import SMALL_PT, WIDTH_IN, charts, heading, legend_above, new_figure, save_figure
from asa.report.words import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUND = "#d5d9df"
"""Colour of parts that have no colour of their own."""

_BAR = 0.78  # width of a bar, of the distance between two
_GAP = 0.9  # distance between groups, beyond that between bars


class Part(NamedTuple):
    """A part of a bar: how high it is, what it is called in the legend, and which colour of the palette it has."""

    height: float
    name: str
    colour: int | None = None


class Bar(NamedTuple):
    """A bar: the group it belongs to, what is written under it, its parts from the bottom up, and the interval of its
    height, or None."""

    group: str
    label: str
    parts: tuple[Part, ...]
    interval: tuple[float, float] | None = None

    @property
    def height(self) -> float:
        """Sum of its parts."""
        return sum(part.height for part in self.parts)


@dataclass(frozen=True)
class Panel:
    """One chart: its title, what its bars measure, and the bars; those of a group stand side by side."""

    title: str
    unit: str
    bars: Sequence[Bar] = field(default_factory=tuple)


def places(bars: Sequence[Bar]) -> list[float]:
    """Where bars stand: one apart, and further where a new group begins.

    >>> places([Bar("28", "a", ()), Bar("28", "b", ()), Bar("56", "a", ())])
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
    """Rows of charts, with one legend for all.

    Raises
    ------
    InvalidInput
        When there is no bar to draw, or matplotlib is not installed.
    """
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
                _draw(one, row[place])
            else:
                one.set_visible(False)
    parts = [part for panel in drawn for bar in panel.bars for part in bar.parts]
    shown = {part.name: _colour(part) for part in sorted(parts, key=lambda part: part.colour is None)}
    handles = [Patch(facecolor=colour, label=shortened(name, 40)) for name, colour in shown.items()]
    legend_above(made, handles, title=title)
    return made


def _draw(axes: Axes, panel: Panel) -> None:
    at = places(panel.bars)
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


def _colour(part: Part) -> str:
    return GROUND if part.colour is None else stage_colour(part.colour)
