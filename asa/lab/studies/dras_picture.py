"""Figures 6 to 9 and Table IV of DRAS's paper as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.core.units import DAY, HOUR
from asa.lab.report.curves import Curve, draw_curve
from asa.lab.report.kiviat import save_comparison
from asa.lab.studies.dras_modes import MODES
from asa.report.palette import BUSY, series_colour
from asa.report.picture import LABEL_PT, WIDTH_IN, charts, heading, legend_above, new_figure, save_figure
from asa.report.words import shortened

if TYPE_CHECKING:
    from asa.lab.studies.dras_case import Compared

_ACROSS = 3


def draw_kiviat(found: Compared, path: str | Path) -> None:
    """Figure 6, with the numbers behind it; the graph itself is the simulator's own."""
    save_comparison([{**each.numbers, "dispatcher": each.dispatcher} for each in found.outcomes], path)


def draw_sizes(found: Compared, path: str | Path) -> None:
    """Figure 7: a chart for each dispatcher, a point for each job; colours are modes. All have the same axes."""
    rows = -(-len(found.outcomes) // _ACROSS)
    figure = new_figure(WIDTH_IN, 0.6 + 1.9 * rows)
    made = charts(figure, rows, _ACROSS, sharex=True, sharey=True)
    for axes, each in zip(made, found.outcomes, strict=False):
        for place, mode in enumerate(MODES):
            mine = each.mode == mode
            axes.plot(
                found.jobs.cores[mine], each.wait[mine] / DAY, ".", markersize=2, color=series_colour(place),
                alpha=0.5, label=mode, linestyle="none",
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        heading(axes, shortened(each.dispatcher, 30))
    for place, axes in enumerate(made):
        axes.set_visible(place < len(found.outcomes))
        axes.tick_params(labelbottom=place + _ACROSS >= len(found.outcomes))  # of the lowest chart of each column
    figure.supxlabel("job size [cores]", fontsize=LABEL_PT)
    figure.supylabel("wait [d]", fontsize=LABEL_PT)
    legend_above(figure, made[0].get_legend_handles_labels()[0], markerscale=4)
    save_figure(figure, path)


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
    figure = new_figure(WIDTH_IN, 4.2)
    above, below = charts(figure, 2, sharex=True, height_ratios=[1, 2])
    week, hours = found.jobs.weeks()
    there = np.flatnonzero(np.bincount(week))
    above.bar(there, hours[there] / 1e3, color=BUSY)
    above.set_ylabel("submitted\n[1000 core-hours]")
    for place, each in enumerate(found.outcomes):
        waits = [each.wait[week == one].mean() / HOUR for one in there]
        draw_curve(below, place, Curve(shortened(each.dispatcher, 40), there.tolist(), waits))
    below.set_ylabel("mean wait [h]")
    below.set_xlabel("week")
    below.locator_params(axis="x", integer=True)
    legend_above(figure, below.get_legend_handles_labels()[0])
    save_figure(figure, path)


def _grouped(found: Compared, path: str | Path, shown: dict[str, list[list[float]]]) -> None:
    """Charts of bars, grouped by mode, one for each dispatcher in each group."""
    figure = new_figure(WIDTH_IN, 2.8)
    width = 0.8 / len(found.outcomes)
    for axes, (title, heights) in zip(charts(figure, 1, len(shown), grid="y"), shown.items(), strict=True):
        for place, (each, mine) in enumerate(zip(found.outcomes, heights, strict=True)):
            at = np.arange(len(MODES)) + (place - (len(found.outcomes) - 1) / 2) * width
            axes.bar(at, mine, width, color=series_colour(place), label=shortened(each.dispatcher, 40))
        axes.set_xticks(range(len(MODES)), MODES)
        axes.set_ylabel(title)
    legend_above(figure, axes.get_legend_handles_labels()[0])
    save_figure(figure, path)
