"""The figures of the CP dispatching paper as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.lab.studies.cp_saved import pairs
from asa.report.palette import LINE, series_colour
from asa.report.picture import SMALL_PT, WIDTH_IN, charts, heading, legend_above, marker, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.lab.studies.cp_loop import LoopRow
    from asa.lab.studies.cp_saved import SavedRow


def draw_times(rows: Sequence[LoopRow], path: str | Path) -> None:
    """Draw Tables 1 and 2: the mean time of decisions, with a line up to the 99th percentile."""
    _bars(rows, path, [("dispatch time [ms], line: to the 99th percentile", "mean_s", "p99_s", 1e3)])


def draw_quality(rows: Sequence[LoopRow], path: str | Path) -> None:
    """Draw Figures 4 and 5: means, and a line up to one standard deviation above them."""
    slowdown = ("slowdown, line: + one standard deviation", "mean_slowdown", "std_slowdown", 1.0)
    wait = ("wait [min], line: + one standard deviation", "mean_wait_s", "std_wait_s", 1 / 60)
    _bars(rows, path, [slowdown, wait])


def draw_ratios(names: Sequence[str], rows: Sequence[SavedRow], path: str | Path) -> None:
    """Draw Figures 6 and 7: a mark for each decision, all dispatchers over the second one."""
    figure = new_figure(WIDTH_IN, 3.2)
    other = names[1]
    made = charts(figure, 1, 2)
    for axes, (what, title) in zip(made, (("variables", "variables"), ("cpu_s", "dispatch time (CPU)")), strict=True):
        marks = [
            _marks(axes, pairs(rows, name, other), what, (place, f"{name} / {other}"))
            for place, name in enumerate(names)
            if name != other
        ]
        if any(marks):
            axes.axhline(1.0, color=LINE, linewidth=0.6)
            axes.set(xscale="log", yscale="log")
            axes.set_xlabel("waiting jobs")
        else:
            axes.text(0.5, 0.5, "not told", ha="center", transform=axes.transAxes, fontsize=SMALL_PT)
            axes.set_axis_off()
        heading(axes, f"ratio of {title}")
    legend_above(figure, made[1].get_legend_handles_labels()[0], markerscale=2)
    save_figure(figure, path)


def _marks(axes: Axes, both: Sequence[tuple[Any, Any]], what: str, series: tuple[int, str]) -> int:
    """Draw what both tell of; how many marks that makes."""
    place, label = series
    known = [(one, two) for one, two in both if getattr(one, what) is not None and getattr(two, what)]
    axes.plot(
        [one.queue for one, _ in known],
        [getattr(one, what) / getattr(two, what) for one, two in known],
        marker(place),
        color=series_colour(place),
        markersize=2.5,
        alpha=0.6,
        label=label,
    )
    return len(known)


def _bars(rows: Sequence[LoopRow], path: str | Path, shown: Sequence[tuple[str, str, str, float]]) -> None:
    """A chart of horizontal bars for each (title, column, line, scale): a group for each dispatcher.

    The line ends at that column where it is a quantile (``p99_...``), else so far above the bar.
    """
    dispatchers = list(dict.fromkeys(row.dispatcher for row in rows))
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    figure = new_figure(WIDTH_IN, 1.2 + 0.22 * len(rows))
    height = 0.8 / len(predictors)
    for axes, (title, column, line, scale) in zip(
        charts(figure, 1, len(shown), grid="x", sharey=True), shown, strict=True
    ):
        for place, predictor in enumerate(predictors):
            chosen = [row for row in rows if row.predictor == predictor]
            values = np.array([getattr(row, column) for row in chosen]) * scale
            reach = np.array([getattr(row, line) for row in chosen]) * scale
            above = np.maximum(reach - values, 0) if line.startswith("p99") else reach
            axes.barh(
                [dispatchers.index(row.dispatcher) + (place - (len(predictors) - 1) / 2) * height for row in chosen],
                values,
                height,
                xerr=[np.zeros(len(chosen)), above],
                error_kw={"elinewidth": 0.6, "capsize": 1.5},
                color=series_colour(place),
                label=predictor,
            )
        axes.set_xlabel(title)
        axes.set_yticks(range(len(dispatchers)), dispatchers, parse_math=False)
    axes.invert_yaxis()
    legend_above(figure, axes.get_legend_handles_labels()[0])
    save_figure(figure, path)
