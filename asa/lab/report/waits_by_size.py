"""How long jobs of each size waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from asa.lab.core.schedule import Schedule
from asa.lab.metrics.job import class_names, size_classes
from asa.report.palette import BAD
from asa.report.picture import SMALL_PT, heading, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = (
    (0.0, "0"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (6 * 3600.0, "6 h"),
    (86400.0, "1 d"),
    (7 * 86400.0, "7 d"),
    (30 * 86400.0, "30 d"),
    (365 * 86400.0, "1 y"),
)
_PLOT_IN = 6.3  # width of the axes in a picture of `WIDTH_IN`
_BOX, _EDGE = "#cfe0f3", "#2b6cb0"


def draw_waits(axes: Axes, schedule: Schedule) -> None:
    """Draw quartiles, 5th and 95th percentile, mean and longest wait of each size class that has jobs."""
    ran = schedule.ran
    wait, cores = schedule.wait[ran], schedule.workload.cores[ran]
    bounds = size_classes(schedule.cluster.cores)
    classes = np.minimum(np.searchsorted(bounds, cores), len(bounds) - 1)
    sizes, boxes, means, longest = [], [], [], []
    for number, name in enumerate(class_names(bounds)):
        values = wait[classes == number]
        if len(values):
            low, first, middle, third, high = np.percentile(values, (5, 25, 50, 75, 95)).tolist()
            boxes.append({"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high, "fliers": []})
            means.append(float(values.mean()))
            longest.append(float(values.max()))
            sizes.append((name, len(values)))
    places = range(1, len(boxes) + 1)
    axes.bxp(
        boxes,
        positions=places,
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": _BOX, "edgecolor": _EDGE, "linewidth": 0.7},
        medianprops={"color": _EDGE, "linewidth": 1.6},
        whiskerprops={"color": _EDGE, "linewidth": 0.7},
        capprops={"color": _EDGE, "linewidth": 0.7},
        manage_ticks=False,
    )
    axes.plot(places, means, "o", markersize=3, color="black", label="mean", linestyle="none")
    axes.plot(places, longest, "x", markersize=4, color=BAD, label="longest", linestyle="none")
    wait_axis(axes, min((box["whislo"] for box in boxes), default=0.0), max(longest, default=60.0))
    size_axis(axes, list(places), sizes)
    note(axes, "box: quartiles; whiskers: 5th and 95th percentile; dot: mean; cross: longest")


def size_axis(axes: Axes, places: Sequence[int], sizes: Sequence[tuple[str, int]]) -> None:
    """Make the x axis one of size classes: their names, and how many jobs each has."""
    room_pt = 72 * (_PLOT_IN / max(len(sizes), 1) - 0.06)
    widest = max((len(name) for name, _ in sizes), default=1)
    axes.set_xticks(
        places,
        [f"{name.replace('-', '–')}\n{jobs:,}" for name, jobs in sizes],
        fontsize=min(SMALL_PT, room_pt / (0.64 * widest)),
    )
    axes.set_xlim(places[0] - 0.6, places[-1] + 0.6)
    axes.set_xlabel("job size [cores], and how many jobs")
    heading(axes, "Wait by job size")


def wait_axis(axes: Axes, shortest: float, longest: float) -> None:
    """Make the y axis one of waits between these [s]: logarithmic, but linear up to a minute so that there is a 0."""
    longest = max(longest, 60.0)
    bottom = max(at for at, _ in _TICKS[:-1] if at <= max(shortest, 0.0))
    top = min(at for at, _ in _TICKS if at > bottom)  # two ticks at least
    axes.set_yscale("symlog", linthresh=60.0, linscale=0.4)
    shown = [(at, label) for at, label in _TICKS if bottom <= at <= max(longest, top)]
    axes.set_yticks([at for at, _ in shown], [label for _, label in shown])
    axes.minorticks_off()
    axes.set_ylim(bottom * 0.9 if bottom else -2.0, max(longest * 1.6, top))
    axes.set_ylabel("wait")
