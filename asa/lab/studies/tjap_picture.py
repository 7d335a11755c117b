"""The figures of the topology-aware allocation paper as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.lab.studies.tjap_published import FIGURE_6
from asa.lab.studies.tjap_tables import CHANGE, PUBLISHED, gain_table, loop_table, windows_table
from asa.report.palette import BUSY, LINE, series_colour
from asa.report.picture import WIDTH_IN, charts, heading, legend_above, new_figure, save_figure

if TYPE_CHECKING:
    from asa.lab.studies.interval import Estimate


def draw_change(rows: Sequence[Any], path: str | Path) -> None:
    """Draw the closed loop, or tables III and IV: how much less than the first one all cost, with intervals."""
    is_loop = hasattr(rows[0], "geometry")
    lines = loop_table(rows) if is_loop else windows_table(rows)
    groups = list(dict.fromkeys(line.get("geometry", "") for line in lines))
    names = list(dict.fromkeys(line["dispatcher" if is_loop else "method"] for line in lines))
    figure = new_figure(WIDTH_IN, 0.9 + 0.24 * len(names))
    made = charts(figure, 1, len(groups), sharey=True)
    for axes, group in zip(made, groups, strict=True):
        here = [line for line in lines if line.get("geometry", "") == group]
        middle, reach = _reach([line[CHANGE] for line in here])
        style = {"elinewidth": 0.7, "capsize": 1.5}
        axes.barh(range(len(here)), middle, 0.7, xerr=reach, color=BUSY, error_kw=style)
        if known := [(line[PUBLISHED], at) for at, line in enumerate(here) if line.get(PUBLISHED) is not None]:
            axes.plot(*zip(*known, strict=True), "D", color=LINE, markersize=4, label="published", clip_on=False)
        axes.set_xlabel(f"cost against {names[1 if is_loop else 0]} [%]")
        axes.set_yticks(range(len(here)), names, parse_math=False)
        heading(axes, group and f"geometry: {group}")
    made[0].invert_yaxis()
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def draw_figure_6(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 6: cost and wait of each epoch as boxes, and the means that were published as marks."""
    names = list(dict.fromkeys(row.dispatcher for row in rows))
    figure = new_figure(WIDTH_IN, 2.9)
    made = charts(figure, 1, 2, grid="y")
    for place, (axes, what, title) in enumerate(
        zip(made, ("job_cost", "wait_s"), ("cost of hops of a job", "wait [s]"), strict=True)
    ):
        boxes = [[getattr(row, what) for row in rows if row.dispatcher == name] for name in names]
        axes.boxplot(boxes, widths=0.5, medianprops={"color": series_colour(0)}, flierprops={"markersize": 3})
        published = [FIGURE_6[name][place] for name in names]
        axes.plot(
            range(1, len(names) + 1), published, "D", color=series_colour(1), markersize=4, label="published mean"
        )
        axes.set_xticks(range(1, len(names) + 1), [name.replace("nwp ", "") for name in names])
        axes.set_xlabel("dispatcher, or window of nwp")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        heading(axes, title)
        axes.set_ylim(bottom=0)
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def draw_gain(rows: Sequence[Any], path: str | Path) -> None:
    """Draw figure 5: the neural method's cost over that of plain annealing, by iterations."""
    lines = gain_table(rows)
    middle, reach = _reach([line[CHANGE] for line in lines])
    figure = new_figure(WIDTH_IN / 2, 2.6)
    (axes,) = charts(figure)
    look: dict[str, Any] = {"color": series_colour(0), "markersize": 4, "linewidth": 1}
    axes.errorbar([line["iterations"] for line in lines], middle, reach, fmt="o-", capsize=2, **look)
    axes.axhline(0.0, color=LINE, linewidth=0.6)
    axes.set_xlabel("iterations of nsa; sa has twice as many")
    axes.set_ylabel("change of cost [%]")
    save_figure(figure, path)


def _reach(changes: Sequence[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Values, and how far intervals reach below and above them."""
    ends = [(each.value if end is None else end) - each.value for each in changes for end in (each.low, each.high)]
    return [each.value for each in changes], [[-end for end in ends[::2]], ends[1::2]]
