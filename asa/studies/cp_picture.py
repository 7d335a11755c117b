"""The figures of the CP dispatching paper as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.report.outputs import check_picture
from asa.report.palette import GRID, stage_colour
from asa.report.picture import WIDTH_IN, marker, new_figure
from asa.studies.cp_saved import pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.studies.cp_loop import LoopRow
    from asa.studies.cp_saved import SavedRow


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
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 3.2)
    other = names[1]
    charts = figure.subplots(1, 2)
    for axes, (what, title) in zip(charts, (("variables", "variables"), ("cpu_s", "dispatch time (CPU)")), strict=True):
        marks = [
            _marks(axes, pairs(rows, name, other), what, (place, f"{name} / {other}"))
            for place, name in enumerate(names)
            if name != other
        ]
        if any(marks):
            axes.axhline(1.0, color="grey", linewidth=0.6)
            axes.set(xscale="log", yscale="log")
            axes.set_xlabel("waiting jobs", fontsize=7)
        else:
            axes.text(0.5, 0.5, "not told", ha="center", transform=axes.transAxes, fontsize=8)
        axes.set_title(f"ratio of {title}", fontsize=8, fontweight="bold")
        _plain(axes)
    handles, labels = charts[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def _marks(axes: Axes, both: Sequence[tuple[Any, Any]], what: str, series: tuple[int, str]) -> int:
    """Draw what both tell of; how many marks that makes."""
    place, label = series
    known = [(one, two) for one, two in both if getattr(one, what) is not None and getattr(two, what)]
    axes.plot(
        [one.queue for one, _ in known],
        [getattr(one, what) / getattr(two, what) for one, two in known],
        marker(place),
        color=stage_colour(place),
        markersize=2.5,
        alpha=0.6,
        label=label,
    )
    return len(known)


def _bars(rows: Sequence[LoopRow], path: str | Path, charts: Sequence[tuple[str, str, str, float]]) -> None:
    """A chart of horizontal bars for each (title, column, line, scale): a group for each dispatcher.

    The line ends at that column where it is a quantile (``p99_...``), else so far above the bar.
    """
    check_picture("picture", path)
    dispatchers = list(dict.fromkeys(row.dispatcher for row in rows))
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    figure = new_figure(WIDTH_IN, 1.2 + 0.22 * len(rows))
    height = 0.8 / len(predictors)
    for axes, (title, column, line, scale) in zip(
        figure.subplots(1, len(charts), sharey=True, squeeze=False)[0], charts, strict=True
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
                color=stage_colour(place),
                label=predictor,
            )
        axes.set_xlabel(title, fontsize=7)
        axes.set_yticks(range(len(dispatchers)), dispatchers, fontsize=7)
        _plain(axes)
    axes.invert_yaxis()
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(predictors), fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=6.5, length=2)
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
