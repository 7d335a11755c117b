"""The figures of the topology-aware allocation paper as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.report.outputs import check_picture
from asa.report.palette import GRID, LINE, stage_colour
from asa.report.picture import WIDTH_IN, new_figure
from asa.studies.tjap_published import FIGURE_6
from asa.studies.tjap_tables import CHANGE, PUBLISHED, gain_table, loop_table, windows_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.studies.interval import Estimate


def draw_change(rows: Sequence[Any], path: str | Path) -> None:
    """Draw the closed loop, or tables III and IV: how much less than the first one all cost, with intervals."""
    check_picture("picture", path)
    is_loop = hasattr(rows[0], "geometry")
    lines = loop_table(rows) if is_loop else windows_table(rows)
    groups = list(dict.fromkeys(line.get("geometry", "") for line in lines))
    names = list(dict.fromkeys(line["dispatcher" if is_loop else "method"] for line in lines))
    figure = new_figure(WIDTH_IN, 0.9 + 0.24 * len(names))
    charts = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for place, (axes, group) in enumerate(zip(charts, groups, strict=True)):
        here = [line for line in lines if line.get("geometry", "") == group]
        middle, reach = _reach([line[CHANGE] for line in here])
        style = {"elinewidth": 0.7, "capsize": 1.5}
        axes.barh(range(len(here)), middle, 0.7, xerr=reach, color=stage_colour(place + 1), error_kw=style)
        if known := [(line[PUBLISHED], at) for at, line in enumerate(here) if line.get(PUBLISHED) is not None]:
            axes.plot(*zip(*known, strict=True), "D", color=LINE, markersize=4, label="published")
            axes.legend(fontsize=7, frameon=False)
        axes.set_xlabel(f"{group or 'cost'}: change to {names[1 if is_loop else 0]} [%]", fontsize=6.5)
        axes.set_yticks(range(len(here)), names, fontsize=6.5)
        _plain(axes)
    charts[0].invert_yaxis()
    figure.savefig(path, dpi=110)


def draw_figure_6(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 6: cost and wait of each epoch as boxes, and the means that were published as marks."""
    check_picture("picture", path)
    names = list(dict.fromkeys(row.dispatcher for row in rows))
    figure = new_figure(WIDTH_IN, 2.9)
    charts = figure.subplots(1, 2)
    for place, (axes, what, title) in enumerate(
        zip(charts, ("job_cost", "wait_s"), ("cost of hops of a job", "wait [s]"), strict=True)
    ):
        boxes = [[getattr(row, what) for row in rows if row.dispatcher == name] for name in names]
        axes.boxplot(boxes, widths=0.5, medianprops={"color": stage_colour(0)}, flierprops={"markersize": 3})
        published = [FIGURE_6[name][place] for name in names]
        axes.plot(range(1, len(names) + 1), published, "D", color=stage_colour(6), markersize=4, label="published mean")
        axes.set_xticks(range(1, len(names) + 1), [name.replace("nwp ", "") for name in names], fontsize=7)
        axes.set_title(title, fontsize=8, fontweight="bold")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, frameon=False, loc="lower left")
        _plain(axes)
    figure.savefig(path, dpi=110)


def draw_gain(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 5: the neural method's cost over that of plain annealing, by iterations."""
    check_picture("picture", path)
    lines = gain_table(rows)
    middle, reach = _reach([line[CHANGE] for line in lines])
    figure = new_figure(WIDTH_IN / 2, 2.6)
    axes = figure.subplots()
    axes.errorbar([line["iterations"] for line in lines], middle, reach, fmt="o-", capsize=2)
    axes.axhline(0.0, color=LINE, linewidth=0.6)
    axes.set_xlabel("iterations of nsa; sa has twice as many", fontsize=7)
    axes.set_ylabel("change of cost [%]", fontsize=7)
    _plain(axes)
    figure.savefig(path, dpi=110)


def _reach(changes: Sequence[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Values, and how far intervals reach below and above them."""
    ends = [(each.value if end is None else end) - each.value for each in changes for end in (each.low, each.high)]
    return [each.value for each in changes], [[-end for end in ends[::2]], ends[1::2]]


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=6.5, length=2)
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
