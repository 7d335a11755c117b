"""A schedule as a Gantt chart by node: every job a colour, drawn on the cores that it held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import CoreRuns, core_runs, first_cores
from asa.report.palette import LIGHT
from asa.report.picture import heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    the mean colour over its time, white where nobody held the core; on machines with more cores than rows some cores
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
