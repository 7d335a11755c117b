"""How busy a machine was, and how many jobs waited for it, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from asa.core.units import brief
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.schedule import queued
from asa.lab.metrics.system import level, mean_level, utilisation
from asa.report.palette import BUSY, IDLE, LINE
from asa.report.picture import heading, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS_MOST = 400
"""Steps of a curve; finer ones are averaged."""


def draw_utilisation(axes: Axes, schedule: Schedule, zero: float, span: float) -> None:
    """Draw the share of the cores in use from time `zero` [s] on, for `span` [s], and its mean.

    A dotted line is where the last job was submitted: after it the machine drains.
    """
    ran, submit = schedule.ran, schedule.workload.submit
    start, end, cores = schedule.start[ran], schedule.end[ran], schedule.workload.cores[ran]
    times, used = level(start, end, cores)
    edges, busy = curve(times, used, zero, span)
    axes.stairs(100 * busy / schedule.cluster.cores, edges - zero, fill=True, color=BUSY)
    mean = utilisation(start, end, cores, schedule.cluster.cores, begin=zero, until=zero + span)
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
