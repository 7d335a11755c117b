"""A schedule on one page: utilisation, queue, Gantt chart where it can be read, wait by job size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import InvalidInput
from asa.lab.core.schedule import Schedule
from asa.lab.report.schedule_gantt import draw_gantt
from asa.lab.report.utilisation import draw_queue, draw_utilisation
from asa.lab.report.waits_by_size import draw_waits
from asa.report.axis import ticks
from asa.report.picture import DPI, TITLE_PT, WIDTH_IN, charts, new_figure, save_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GANTT_JOBS_MOST = 20_000
"""Schedules of more jobs have no Gantt chart: its boxes would be narrower than the lines of a pen."""


def save_schedule(schedule: Schedule, path: str | Path, *, title: str = "", dpi: int = DPI) -> None:
    """Draw a schedule to a PNG, PDF or SVG file, as the name ends.

    Raises
    ------
    InvalidInput
        When the file cannot be written, matplotlib is not installed, or no job ran.
    """
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
