"""A run's Gantt chart as a picture for papers: PNG, PDF or SVG by the file's name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.core.job import JobState
from asa.core.run import WELL
from asa.metrics.workflow import RunSummary
from asa.report.chart import Chart, JobRow, Span, StageRow, chart
from asa.report.picture import (
    BAD,
    DPI,
    IDLE,
    SMALL_PT,
    WIDTH_IN,
    charts,
    heading,
    legend,
    new_figure,
    save_figure,
    stage_colour,
    ticks,
)
from asa.report.words import job_words, shortened, stage_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WAIT, _HELD, _EARLY, _BUSY = "#6b7280", "#e3e6eb", "#b35900", "#2b6cb0"


def save(run: RunSummary, path: Path, *, dpi: int = DPI) -> None:
    """Draw a run to a file."""
    save_figure(figure(run), path, dpi=dpi)


def figure(run: RunSummary) -> Figure:
    """Stages, jobs with their tasks, and the pool, one below the other on one time axis."""
    drawn = chart(run)
    heights = [_stages_height(drawn), _jobs_height(drawn), 1.0]
    made = new_figure(WIDTH_IN, sum(heights) + 0.9)
    axes = charts(made, 3, grid="x", sharex=True, height_ratios=heights)
    _draw_stages(axes[0], drawn)
    _draw_jobs(axes[1], drawn)
    _draw_pool(axes[2], drawn)
    axis = ticks(drawn.span_s, 8)
    axes[2].set_xticks(axis.at, axis.labels)
    axes[2].set_xlim(0, drawn.span_s * 1.01)
    axes[2].set_xlabel(f"time since the start [{axis.unit}]")
    return made


def _stages_height(drawn: Chart) -> float:
    return 0.3 + 0.19 * len(drawn.stages)


def _jobs_height(drawn: Chart) -> float:
    return 0.3 + 0.16 * sum(_tall(row) for row in drawn.jobs)


def _tall(row: JobRow) -> float:
    """Height of a job's row in rows of one core."""
    return float(np.clip(row.job.cores / 16, 1.0, 3.0))


def _draw_stages(axes: Axes, drawn: Chart) -> None:
    for y, row in enumerate(drawn.stages):
        _draw_stage(axes, row, y)
    axes.set_yticks(
        range(len(drawn.stages)), [_label(*stage_words(row.stage)) for row in drawn.stages], parse_math=False
    )
    axes.set_ylim(max(len(drawn.stages), 1) - 0.4, -0.6)
    heading(axes, "Stages")


def _draw_stage(axes: Axes, row: StageRow, y: float) -> None:
    if row.wait:
        _bars(axes, [row.wait], y - 0.2, 0.4, facecolor="none", edgecolor=_WAIT, hatch="//////", linewidth=0.4)
    if row.span:
        colour = stage_colour(row.position)
        _bars(axes, [row.span], y - 0.38, 0.76, facecolor=colour, alpha=0.3)
        _bars(axes, row.active, y - 0.38, 0.76, facecolor=colour)


def _draw_jobs(axes: Axes, drawn: Chart) -> None:
    y, middles = 0.0, []
    for row in drawn.jobs:
        tall = _tall(row)
        _draw_job(axes, row, y, tall)
        middles.append(y + tall / 2)
        y += tall + 0.25
    axes.set_yticks(middles, [_label(*job_words(row.job)) for row in drawn.jobs], parse_math=False)
    axes.set_ylim(max(y, 1.0), -0.2)
    heading(axes, "Jobs")


def _draw_job(axes: Axes, row: JobRow, y: float, tall: float) -> None:
    wait = min(tall, 1.0) * 0.5
    _bars(
        axes,
        [row.queued],
        y + (tall - wait) / 2,
        wait,
        facecolor="none",
        edgecolor=_WAIT,
        hatch="//////",
        linewidth=0.4,
    )
    _bars(axes, row.runs, y, tall, facecolor=_HELD, edgecolor=_WAIT, linewidth=0.4)
    _bars(axes, row.early, y, tall, facecolor="none", edgecolor=_EARLY, hatch="\\\\\\\\\\", linewidth=0)
    for curve in row.curves:
        top = y + tall * (1 - curve.level / row.job.cores)
        axes.stairs(top, curve.times, baseline=y + tall, fill=True, color=stage_colour(curve.colour), linewidth=0)
    lane = tall / row.job.cores
    for task in row.tasks:
        colour = stage_colour(task.position) if task.outcome in WELL else BAD
        look = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.2}
        _bars(axes, [task.span], y + task.lane * lane, lane * task.cores, **look)
    if row.predicted is not None:
        axes.plot([row.predicted] * 2, [y, y + tall], color="black", linewidth=0.8)

    if row.job.state not in (JobState.COMPLETED, JobState.RUNNING):
        last = row.runs[-1] if row.runs else row.queued
        words = " " + row.job.state.value.replace("_", " ")
        axes.text(last[1], y + tall / 2, words, fontsize=SMALL_PT, color=BAD, verticalalignment="center")


def _draw_pool(axes: Axes, drawn: Chart) -> None:
    if len(drawn.held):
        axes.stairs(drawn.held, drawn.pool_times, fill=True, color=IDLE, label="held, idle")
        axes.stairs(drawn.busy, drawn.pool_times, fill=True, color=_BUSY, label="busy")
        legend(axes, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("cores")
    heading(axes, "Pool")


def _label(name: str, detail: str) -> str:
    return f"{shortened(name, 28)} · {detail}"


def _bars(axes: Axes, spans: Iterable[Span], y: float, height: float, **look: Any) -> None:
    axes.broken_barh([(start, end - start) for start, end in spans], (y, height), **look)
