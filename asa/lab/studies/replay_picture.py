"""A table of replayed waits as a picture: errors beside the last wait's, and how well quantiles are met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.report.palette import LINE, series_colour
from asa.report.picture import charts, legend, marker, new_figure, save_figure, ticks_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.lab.studies.replay_table import Row, Table

_WIDTH_IN = 9.0
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
    figure = new_figure(_WIDTH_IN, 1.8 + 0.3 * len(found.overall))
    left, right = charts(figure, 1, 2, width_ratios=(3, 2))
    _errors(left, found)
    _calibration(right, found)
    save_figure(figure, path)


def _errors(axes: Axes, found: Table) -> None:
    names = list(found.overall)
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    for place, trace in enumerate(traces):
        rows = [row for row in found.rows if row.trace == trace]
        at = np.array([names.index(row.estimator) for row in rows]) + 0.6 * ((place + 0.5) / len(traces) - 0.5)
        value = np.array([row.relative.value for row in rows])
        below, above = (np.abs(value - [_bound(row, which) for row in rows]) for which in ("low", "high"))
        axes.errorbar(
            value, at, xerr=[below, above], fmt=marker(place), label=trace, color=series_colour(place), markersize=4,
            elinewidth=1,
        )  # fmt: skip
    for place, name in enumerate(names):
        axes.vlines(found.overall[name].value, place - 0.4, place + 0.4, color="black", linewidth=1.5)
    axes.axvline(1.0, color=LINE, linewidth=0.8)
    axes.set(xscale="log", xlabel="mean absolute error / that of the last wait")
    ticks_at(axes.xaxis, _TICKS)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=max(1, min(len(traces), 5)))


def _calibration(axes: Axes, found: Table) -> None:
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=0.8)
    for place, name in enumerate(found.overall):
        shares = [row.means("calibration") for row in found.rows if row.estimator == name]
        known = [each for each in shares if each is not None]
        if known:
            axes.plot(
                found.quantiles, np.mean(known, axis=0), label=name, color=series_colour(place), linewidth=1,
                marker=marker(place), markersize=4, clip_on=False,
            )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="quantile", ylabel="share of waits under its prediction")
    if axes.get_legend_handles_labels()[1]:
        legend(axes, loc="lower right")


def _bound(row: Row, which: str) -> float:
    """An end of the interval; the value itself where there is none."""
    found = getattr(row.relative, which)
    return row.relative.value if found is None else float(found)
