"""A schedule on one page: utilisation, queue, Gantt chart where it can be read, wait by job size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asa.core.errors import InvalidInput
from asa.core.units import brief
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import CoreRuns, core_runs, first_cores
from asa.lab.metrics.schedule import class_names, level, mean_level, queued, size_classes, utilisation
from asa.report.picture import (
    BAD,
    BUSY,
    DPI,
    IDLE,
    LIGHT,
    LINE,
    SMALL_PT,
    TITLE_PT,
    WIDTH_IN,
    charts,
    heading,
    new_figure,
    note,
    save_figure,
    style_axes,
    ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BOXES_MOST = 1500
"""Boxes that are drawn one by one; more become an image."""

NUMBERED_MOST = 60
"""Jobs that carry their number, where it fits."""

ROWS, COLUMNS, FINER = 720, 1400, 4
"""Pixels of an image, and how often each is looked at along time."""

_NODE_TICKS_MOST = 9
_TINT = 0.25  # share of white in the colours: large areas need less of them


def draw_gantt(axes: Axes, schedule: Schedule, zero: float) -> None:
    """Draw who held which cores when; time counts from `zero` [s].

    Neighbouring jobs in order of submission have different colours, which repeat after nine. In an image, a pixel is
    the mean colour over its time, white where no job held the core; on machines with more cores than rows some cores
    stand for their neighbours.
    """
    runs, cut = core_runs(schedule), first_cores(schedule)
    start, end = schedule.start[runs.job] - zero, schedule.end[runs.job] - zero
    cores = int(cut[-1])
    if len(runs) <= BOXES_MOST:
        _boxes(axes, schedule, runs, start, end)
    else:
        span = float(end.max())
        image = raster(runs, start, end, cores, span)
        axes.imshow(image, extent=(0, span, cores, 0), aspect="auto", interpolation="nearest")
    axes.set_ylim(cores, 0)
    axes.set_yticks(*_node_ticks(cut))
    axes.set_ylabel("node")
    thinned = f" (one core in {cores / ROWS:.0f} drawn)" if len(runs) > BOXES_MOST and cores >= 1.5 * ROWS else ""
    heading(axes, f"Jobs on nodes{thinned}")


def raster(
    runs: CoreRuns, start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], cores: int, span: float
) -> npt.NDArray[np.uint8]:
    """Colours of runs of cores from time 0 to `span` [s], shape (rows, `COLUMNS`, 3), core 0 uppermost.

    Each row shows the core at its middle. A pixel averages `FINER` instants.
    """
    rows = min(cores, ROWS)
    shown = ((np.arange(rows) + 0.5) * cores / rows).astype(np.int64)
    instants = (np.arange(COLUMNS * FINER) + 0.5) * span / (COLUMNS * FINER)
    up, down = np.searchsorted(shown, runs.first), np.searchsorted(shown, runs.last, side="right")
    left, right = np.searchsorted(instants, start), np.searchsorted(instants, end)
    seen = (down > up) & (right > left)
    grid = np.zeros((rows, COLUMNS * FINER), dtype=np.uint8)
    boxes = zip(*(each[seen].tolist() for each in (runs.job % len(LIGHT) + 1, up, down, left, right)), strict=True)
    for colour, top, bottom, begin, until in boxes:
        grid[top:bottom, begin:until] = colour
    palette = np.array([(1.0, 1.0, 1.0), *_colours()], dtype=np.float32)
    image = np.empty((rows, COLUMNS, 3), dtype=np.uint8)
    for row, line in enumerate(grid):  # one by one: all pixels at once would take a hundred megabytes
        image[row] = palette[line].reshape(COLUMNS, FINER, 3).mean(axis=1) * 255
    return image


def _boxes(
    axes: Axes, schedule: Schedule, runs: CoreRuns, start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> None:
    from matplotlib.collections import PolyCollection

    top, bottom = runs.first.astype(float), runs.last + 1.0
    corners = np.stack([start, top, start, bottom, end, bottom, end, top], axis=1).reshape(-1, 4, 2)
    colours = _colours()[runs.job % len(LIGHT)]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=0.3))
    span, cores = float(end.max(initial=1.0)), float(bottom.max(initial=1.0))
    axes.set_xlim(0, span)
    if len(np.unique(runs.job)) > NUMBERED_MOST:
        return
    numbers = schedule.workload.number[runs.job]
    roomy = ((end - start) > 0.03 * span) & ((bottom - top) > 0.06 * cores)
    for row in np.flatnonzero(roomy).tolist():
        dark = colours[row] @ (0.3, 0.59, 0.11) < 0.55
        middle = ((start[row] + end[row]) / 2, (top[row] + bottom[row]) / 2)
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": "white" if dark else "black"}
        axes.text(*middle, str(numbers[row]), fontsize=6, clip_on=True, **look)


def _colours() -> npt.NDArray[np.float64]:
    full = np.array([[int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)] for colour in LIGHT])
    return full * (1 - _TINT) + _TINT


def _node_ticks(cut: npt.NDArray[np.int64]) -> tuple[list[float], list[str]]:
    """Round node numbers, at the middle of their cores.

    >>> _node_ticks(np.arange(0, 41, 4))[1]
    ['0', '2', '4', '6', '8']
    """
    nodes = len(cut) - 1
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    step = next(step for step in steps if (nodes - 1) // step < _NODE_TICKS_MOST)
    shown = range(0, nodes, step)
    return [(int(cut[node]) + int(cut[node + 1])) / 2 for node in shown], [f"{node:,}" for node in shown]


STEPS_MOST = 400
"""Steps of a curve; finer ones are averaged."""


def draw_utilisation(axes: Axes, schedule: Schedule, zero: float, span: float) -> None:
    """Draw the share of the cores in use from time `zero` [s] on, for `span` [s], and its mean.

    A dotted line is where the last job was submitted: after it the machine drains.
    """
    submit, pieces = schedule.workload.submit, schedule.used
    times, used = level(*pieces)
    edges, busy = curve(times, used, zero, span)
    axes.stairs(100 * busy / schedule.cluster.cores, edges - zero, fill=True, color=BUSY)
    mean = utilisation(*pieces, schedule.cluster.cores, begin=zero, until=zero + span)
    axes.axhline(100 * mean, color=LINE, linewidth=0.8, linestyle="--")
    axes.axvline(float(submit[-1]) - zero, color="black", linewidth=1.0, linestyle=":")
    axes.set_ylim(0, max(100.0, 100 * float(busy.max(initial=0.0)) / schedule.cluster.cores))
    axes.set_ylabel("cores in use [%]")
    heading(axes, f"Utilisation{_averaged(times, edges)}")
    note(axes, f"dashed: mean, {100 * mean:.1f} %; dotted: last submission")


def draw_queue(axes: Axes, schedule: Schedule, zero: float, span: float) -> None:
    """Draw how many jobs waited from time `zero` [s] on, for `span` [s]."""
    from matplotlib.ticker import MaxNLocator

    since, left = queued(schedule)
    times, jobs = level(since, left)
    edges, waiting = curve(times, jobs, zero, span)
    axes.stairs(waiting, edges - zero, fill=True, color=IDLE)
    axes.set_ylim(0, max(1.0, 1.05 * float(waiting.max(initial=0.0))))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("jobs waiting")
    heading(axes, f"Queue{_averaged(times, edges)}")
    note(axes, f"most at once: {int(jobs.max(initial=0)):,}")


def curve(
    times: npt.NDArray[np.float64], sums: npt.NDArray[np.int64], zero: float, span: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A `level` as edges [s], shape (k + 1,), and what is between them, shape (k,): its own steps, or means over
    `STEPS_MOST` equal ones where they are more."""
    if 1 < len(times) <= STEPS_MOST:
        return times, sums[:-1].astype(np.float64)
    edges = zero + np.linspace(0.0, span, STEPS_MOST + 1)
    return edges, mean_level(times, sums, edges)


def _averaged(times: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> str:
    return f", means over {brief(float(edges[1] - edges[0]))}" if len(times) > STEPS_MOST else ""


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


GANTT_JOBS_MOST = 20_000
"""Schedules of more jobs have no Gantt chart: its boxes would be narrower than the lines of a pen."""


def save_schedule(schedule: Schedule, path: str | Path, *, title: str = "", dpi: int = DPI) -> None:
    """Draw a schedule to a PNG, PDF or SVG file, as the name ends."""
    save_figure(schedule_figure(schedule, title), path, dpi=dpi)


def schedule_figure(schedule: Schedule, title: str = "") -> Figure:
    """Utilisation, queue, and Gantt chart on one time axis; below them the waits.

    Raises
    ------
    InvalidInput
        When matplotlib is not installed, or no job ran.
    """
    if not schedule.ran.any():
        raise InvalidInput("there is nothing to draw: no job of this schedule ran")
    zero = float(schedule.workload.submit[0])
    span = max(float(schedule.end[schedule.ran].max()) - zero, 1e-3)
    gantt = schedule.placements is not None and schedule.ran.sum() <= GANTT_JOBS_MOST
    heights = [1.3, 0.9, *([3.0] if gantt else []), 2.0]
    made = new_figure(WIDTH_IN, sum(heights) + 0.45 * len(heights) + 0.5)
    axes = charts(made, len(heights), grid="x", height_ratios=heights)
    style_axes(axes[-1], "y")
    draw_utilisation(axes[0], schedule, zero, span)
    draw_queue(axes[1], schedule, zero, span)
    if gantt:
        draw_gantt(axes[2], schedule, zero)
    draw_waits(axes[-1], schedule)
    axis = ticks(span, 8)
    for each in axes[:-1]:
        each.set_xlim(0, span)
        each.set_xticks(axis.at, axis.labels)
    axes[-2].set_xlabel(f"time since the first submission [{axis.unit}]")
    if title:
        made.suptitle(title, fontsize=TITLE_PT, parse_math=False)
    return made
