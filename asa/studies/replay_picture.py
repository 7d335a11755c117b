"""A table of replayed waits as a picture: errors beside the last wait's, and how well quantiles are met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.report.outputs import check_picture
from asa.report.palette import stage_colour
from asa.report.picture import marker, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.studies.replay_table import Row, Table

_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 20, 50, 100)


def draw(found: Table, path: str | Path) -> None:
    """Draw a table; the suffix of `path` decides the format.

    On the left, each estimator's mean absolute error over that of the last wait, a mark for each log with its interval,
    and a line for the geometric mean. On the right, the share of waits under each predicted quantile, for estimators
    that heed quantiles, in the mean over logs: on the diagonal where they are calibrated, above it where waits of
    exactly 0 are many.

    Raises
    ------
    InvalidInput
        When the picture cannot be written, or matplotlib is not installed.
    """
    check_picture("picture", path)
    figure = new_figure(11, 2.4 + 0.36 * len(found.overall))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _errors(left, found)
    _calibration(right, found)
    figure.savefig(path, dpi=150)


def _errors(axes: Axes, found: Table) -> None:
    names = list(found.overall)
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    for place, trace in enumerate(traces):
        rows = [row for row in found.rows if row.trace == trace]
        at = np.array([names.index(row.estimator) for row in rows]) + 0.6 * ((place + 0.5) / len(traces) - 0.5)
        value = np.array([row.relative.value for row in rows])
        below, above = (np.abs(value - [_bound(row, which) for row in rows]) for which in ("low", "high"))
        axes.errorbar(
            value, at, xerr=[below, above], fmt=marker(place), label=trace, color=stage_colour(place), markersize=4,
            elinewidth=1,
        )  # fmt: skip
    for place, name in enumerate(names):
        axes.vlines(found.overall[name].value, place - 0.4, place + 0.4, color="black", linewidth=1.5)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="mean absolute error / that of the last wait", yticks=range(len(names)))
    low, high = axes.get_xlim()
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    axes.legend(fontsize="small", frameon=False)


def _calibration(axes: Axes, found: Table) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for place, name in enumerate(found.overall):
        shares = [row.means("calibration") for row in found.rows if row.estimator == name]
        known = [each for each in shares if each is not None]
        if known:
            axes.plot(found.quantiles, np.mean(known, axis=0), marker=marker(place), markersize=4, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="quantile", ylabel="share of waits under its prediction")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small", frameon=False)


def _bound(row: Row, which: str) -> float:
    """An end of the interval; the value itself where there is none."""
    found = getattr(row.relative, which)
    return row.relative.value if found is None else float(found)
