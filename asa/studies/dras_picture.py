"""Figures 6 to 9 and Table IV of DRAS's paper as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.core.units import DAY, HOUR
from asa.report.kiviat import save_comparison
from asa.report.outputs import check_picture
from asa.report.palette import BUSY, GRID, stage_colour
from asa.report.picture import WIDTH_IN, marker, new_figure
from asa.report.words import shortened
from asa.studies.dras_modes import MODES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.studies.dras_case import Compared

_ACROSS = 3


def draw_kiviat(found: Compared, path: str | Path) -> None:
    """Figure 6, with the numbers behind it; the graph itself is the simulator's own."""
    save_comparison([{**each.numbers, "dispatcher": each.dispatcher} for each in found.outcomes], path, dpi=110)


def draw_sizes(found: Compared, path: str | Path) -> None:
    """Figure 7: a chart for each dispatcher, a point for each job; colours are modes. All have the same axes."""
    check_picture("picture", path)
    rows = -(-len(found.outcomes) // _ACROSS)
    figure = new_figure(WIDTH_IN, 0.6 + 1.9 * rows)
    charts = figure.subplots(rows, _ACROSS, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, each in zip(charts, found.outcomes, strict=False):
        for place, mode in enumerate(MODES):
            mine = each.mode == mode
            axes.plot(
                found.jobs.cores[mine], each.wait[mine] / DAY, ".", markersize=2, color=stage_colour(3 * place),
                alpha=0.5, label=mode, linestyle="none",
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_title(shortened(each.dispatcher, 32), fontsize=7, fontweight="bold")
        _plain(axes)
    for axes in charts[len(found.outcomes) :]:
        axes.set_visible(False)
    figure.supxlabel("job size [cores]", fontsize=7)
    figure.supylabel("wait [d]", fontsize=7)
    handles, labels = charts[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=7, frameon=False, markerscale=4)
    figure.savefig(path, dpi=110)


def draw_modes(found: Compared, path: str | Path) -> None:
    """Figure 8: mean wait of each mode, a bar for each dispatcher."""
    means = [each.means(found.jobs) for each in found.outcomes]
    _grouped(found, path, {"mean wait [h]": [[mean[mode][2] / HOUR for mode in MODES] for mean in means]})


def draw_shares(found: Compared, path: str | Path) -> None:
    """Table IV: shares of jobs and of core-hours."""
    means = [each.means(found.jobs) for each in found.outcomes]
    shares = {
        "jobs [%]": [[100 * mean[mode][0] for mode in MODES] for mean in means],
        "core-hours [%]": [[100 * mean[mode][1] for mode in MODES] for mean in means],
    }
    _grouped(found, path, shares)


def draw_weeks(found: Compared, path: str | Path) -> None:
    """Figure 9: core-hours submitted above, mean waits below, week by week."""
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 4.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    week, hours = found.jobs.weeks()
    there = np.flatnonzero(np.bincount(week))
    above.bar(there, hours[there] / 1e3, color=BUSY)
    above.set_ylabel("submitted\n[1000 core-hours]", fontsize=7)
    for place, each in enumerate(found.outcomes):
        waits = [each.wait[week == one].mean() / HOUR for one in there]
        name = shortened(each.dispatcher, 40)
        below.plot(there, waits, marker(place) + "-", markersize=3, color=stage_colour(place), linewidth=1, label=name)
    below.set_ylabel("mean wait [h]", fontsize=7)
    below.set_xlabel("week", fontsize=7)
    below.locator_params(axis="x", integer=True)
    below.legend(fontsize=6, frameon=False)
    for axes in (above, below):
        _plain(axes)
    figure.savefig(path, dpi=110)


def _grouped(found: Compared, path: str | Path, charts: dict[str, list[list[float]]]) -> None:
    """Charts of bars, grouped by mode, one for each dispatcher in each group."""
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 2.8)
    width = 0.8 / len(found.outcomes)
    for axes, (title, heights) in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts.items(), strict=True):
        for place, (each, mine) in enumerate(zip(found.outcomes, heights, strict=True)):
            at = np.arange(len(MODES)) + (place - (len(found.outcomes) - 1) / 2) * width
            axes.bar(at, mine, width, color=stage_colour(place), label=shortened(each.dispatcher, 32))
        axes.set_xticks(range(len(MODES)), MODES)
        axes.set_ylabel(title, fontsize=7)
        _plain(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=6.5, length=2)
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
