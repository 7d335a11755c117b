"""A table of replayed waits as a picture: errors beside the last wait's, and how well quantiles are met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.core.errors import InvalidInput
from asa.report.palette import LIGHT
from asa.report.write import PICTURES

if TYPE_CHECKING:
    from asa.studies.replay_table import Row, Table

_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 20, 50, 100)
_MARKERS = "osD^vPX*<>"


def draw(found: Table, path: str | Path) -> None:
    """Draw a table; the suffix of `path` decides the format.

    On the left, each estimator's mean absolute error over that of the last wait, a mark for each log with its interval,
    and a line for the geometric mean. On the right, the share of waits under each predicted quantile, for estimators
    that heed quantiles, in the mean over logs: on the diagonal where they are calibrated, above it where waits of
    exactly 0 are many.

    Raises
    ------
    InvalidInput
        When the name asks for no picture, or its directory does not exist.
    """
    path = Path(path)
    if path.suffix.lower() not in PICTURES or not path.parent.is_dir():
        raise InvalidInput(f"cannot draw {path}: end the name with {', '.join(PICTURES)}, in a directory that exists")
    from matplotlib.figure import Figure

    names = list(found.overall)
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    figure = Figure(figsize=(11, 2.4 + 0.36 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, trace in enumerate(traces):
        rows = [row for row in found.rows if row.trace == trace]
        at = np.array([names.index(row.estimator) for row in rows]) + 0.6 * ((place + 0.5) / len(traces) - 0.5)
        value = np.array([row.relative.value for row in rows])
        below, above = (np.abs(value - [_bound(row, which) for row in rows]) for which in ("low", "high"))
        left.errorbar(
            value, at, xerr=[below, above], fmt=_MARKERS[place % len(_MARKERS)], label=trace,
            color=LIGHT[place % len(LIGHT)], markersize=4, elinewidth=1,
        )  # fmt: skip
    for place, name in enumerate(names):
        left.vlines(found.overall[name].value, place - 0.4, place + 0.4, color="black", linewidth=1.5)
    left.axvline(1.0, color="grey", linewidth=0.8)
    left.set(xscale="log", xlabel="mean absolute error / that of the last wait", yticks=range(len(names)))
    low, high = left.get_xlim()
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_xticks([], minor=True)
    left.set_yticklabels(names)
    left.invert_yaxis()
    left.legend(fontsize="small", frameon=False)

    right.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for place, name in enumerate(names):
        shares = [row.means("calibration") for row in found.rows if row.estimator == name]
        known = [each for each in shares if each is not None]
        if known:
            mark = _MARKERS[place % len(_MARKERS)]
            right.plot(found.quantiles, np.mean(known, axis=0), marker=mark, markersize=4, label=name)
    right.set(xlim=(0, 1), ylim=(0, 1), xlabel="quantile", ylabel="share of waits under its prediction")
    if right.get_legend_handles_labels()[1]:
        right.legend(fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)


def _bound(row: Row, which: str) -> float:
    """An end of the interval; the value itself where there is none."""
    found = getattr(row.relative, which)
    return row.relative.value if found is None else float(found)
