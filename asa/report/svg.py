"""A chart as SVG for a page: names in one picture, the plot in another that can be made wider than the page.

Positions along time are percentages, so a wider plot stretches time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from asa.core.arrays import Floats
from asa.core.job import JobState
from asa.core.run import TaskOutcome
from asa.core.stage import StageState
from asa.core.units import brief
from asa.report.axis import ticks
from asa.report.chart import Chart, Curve, JobRow, Span, StageRow, TaskBox
from asa.report.palette import LIGHT
from asa.report.words import counted, job_title, job_words, shortened, stage_title, stage_words

ZOOMS = (1, 2, 4, 8, 16)
LABEL_WIDTH = 210  # px; names are cut to what fits
LABEL_LETTERS = 28

_MARGIN = 1.5  # % of the plot kept free on the right, for the last tick's label
_STAGE_HEIGHT, _HEADING_HEIGHT, _AXIS_HEIGHT, _POOL_HEIGHT = 22, 30, 22, 120
_DECIMALS = 3

PATTERNS = (
    '<svg width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>'
    '<pattern id="early" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<line x1="0" y1="0" x2="0" y2="5" class="early-hatch"/></pattern></defs></svg>'
)


@dataclass(frozen=True, slots=True)
class Pictures:
    """SVG elements of the names (`LABEL_WIDTH` px wide) and of the plot; both `height` px high."""

    labels: str
    plot: str
    height: int


def draw(chart: Chart) -> Pictures:
    """A chart as two pictures that stand side by side."""
    labels: list[str] = []
    plot: list[str] = []
    y = _AXIS_HEIGHT
    for heading, rows in (("Stages", chart.stages), ("Jobs", chart.jobs)):
        labels.append(_text(0, y + 20, heading, "heading"))
        y += _HEADING_HEIGHT
        for row in rows:
            height = _STAGE_HEIGHT if isinstance(row, StageRow) else _job_height(row)
            drawn = _stage(row, chart, y) if isinstance(row, StageRow) else _job(row, chart, y, height)
            words = stage_words(row.stage) if isinstance(row, StageRow) else job_words(row.job)
            labels.append(_label(y + height / 2 + 4, *words))
            plot.extend(drawn)
            y += height + 4
    labels.append(_text(0, y + 20, "Pool", "heading"))
    y += _HEADING_HEIGHT
    plot.extend(_pool(chart, y))
    labels.append(_text(LABEL_WIDTH - 8, y + 8, counted(chart.peak, "core"), "muted end"))
    labels.append(_text(LABEL_WIDTH - 8, y + _POOL_HEIGHT, "0", "muted end"))
    bottom = y + _POOL_HEIGHT
    height = bottom + _AXIS_HEIGHT
    grid = "".join(_grid(chart, zoom, bottom) for zoom in ZOOMS)
    return Pictures(
        f'<svg width="{LABEL_WIDTH}" height="{height}">{"".join(labels)}</svg>',
        f'<svg width="100%" height="{height}" role="img" aria-label="Gantt chart">{grid}{"".join(plot)}</svg>',
        height,
    )


def _stage(row: StageRow, chart: Chart, y: float) -> Iterator[str]:
    colour = f"s{row.position % len(LIGHT)}"
    yield f"<g><title>{escape(stage_title(row.stage))}</title>"
    if row.wait:
        yield _rect(row.wait, chart, y + 4, _STAGE_HEIGHT - 8, "wait")
    if row.span:
        yield _rect(row.span, chart, y + 1, _STAGE_HEIGHT - 2, f"{colour} faint")
        yield from (_rect(span, chart, y + 1, _STAGE_HEIGHT - 2, colour) for span in row.active)
        assert row.stage.run_time_s is not None
        failed = row.stage.state is StageState.FAILED
        words = brief(row.stage.run_time_s) + (", failed" if failed else "")
        yield _beside(row.span, row.wait or row.span, chart, y + 15, words, kind="bad" if failed else "muted")
    yield "</g>"


def _job_height(row: JobRow) -> int:
    return int(np.clip(row.job.cores * (2.2 if row.tasks else 1.5), 16, 106 if row.tasks else 72))


def _job(row: JobRow, chart: Chart, y: float, height: float) -> Iterator[str]:
    yield f"<g><title>{escape(job_title(row.job))}</title>"
    yield _rect(row.queued, chart, y + height / 2 - 5, 10, "wait")
    yield from (_rect(span, chart, y, height, "held") for span in row.runs)
    yield from (_rect(span, chart, y, height, "early") for span in row.early)
    yield from (_curve(curve, chart, y, height, row.job.cores) for curve in row.curves)
    yield from (_task(task, chart, y, height / row.job.cores) for task in row.tasks)
    if row.predicted is not None:
        x = _x(row.predicted, chart)
        yield f'<line x1="{x}%" x2="{x}%" y1="{y:g}" y2="{y + height:g}" class="predicted"/>'
    if row.job.state not in (JobState.COMPLETED, JobState.RUNNING):
        last = row.runs[-1] if row.runs else row.queued
        words = row.job.state.value.replace("_", " ")
        yield _beside(last, row.queued, chart, y + height / 2 + 4, words, kind="bad")
    yield "</g>"


def _task(task: TaskBox, chart: Chart, y: float, lane: float) -> str:
    kind = f"s{task.position % len(LIGHT)} task" + ("" if task.outcome is TaskOutcome.DONE else " failed")
    words = f"{chart.stages[task.position].stage.name if task.position < len(chart.stages) else 'task'} {task.index}"
    words += f", {brief(task.span[1] - task.span[0])}" + (
        "" if task.outcome is TaskOutcome.DONE else f", {task.outcome.name.lower()}"
    )
    return _rect(task.span, chart, y + task.lane * lane, lane * task.cores, kind, words=words)


def _curve(curve: Curve, chart: Chart, y: float, height: float, cores: int) -> str:
    path = _steps(curve.times, curve.level, height, cores)
    span = (float(curve.times[0]), float(curve.times[-1]))
    return _stretched(span, chart, y, height, kind=f"s{curve.colour}", path=path)


def _pool(chart: Chart, y: float) -> Iterator[str]:
    if not len(chart.held):
        return
    span = (float(chart.pool_times[0]), float(chart.pool_times[-1]))
    for kind, level in (("idle", chart.held), ("busy", chart.busy)):
        path = _steps(chart.pool_times, level, _POOL_HEIGHT, max(1, chart.peak))
        yield _stretched(span, chart, y, _POOL_HEIGHT, kind=kind, path=path)


def _stretched(span: Span, chart: Chart, y: float, height: float, *, kind: str, path: str) -> str:
    """A path drawn in seconds and px, stretched over its time."""
    x, width = _x(span[0], chart), _x(span[1], chart) - _x(span[0], chart)
    return (
        f'<svg x="{x}%" y="{y:g}" width="{width:g}%" height="{height:g}" preserveAspectRatio="none" '
        f'viewBox="0 0 {max(span[1] - span[0], 1e-9):g} {height:g}"><path class="{kind}" d="{path}"/></svg>'
    )


def _steps(times: Floats, level: Floats, height: float, most: float) -> str:
    """Area below a step function: time from its first step, height in px."""
    parts, last = [f"M0 {height:g}"], ""
    for start, value in zip(times[:-1] - times[0], level, strict=True):
        top = f"{height * (1 - value / most):.2f}"
        if top != last:
            parts.append(f"H{start:.7g}V{top}")
        last = top
    return "".join(parts) + f"H{times[-1] - times[0]:.7g}V{height:g}Z"


def _grid(chart: Chart, zoom: int, bottom: float) -> str:
    axis = ticks(chart.span_s, 9 * zoom)
    parts = [f'<g class="grid z{zoom}">']
    for time, label in zip(axis.at, axis.labels, strict=True):
        x = _x(time, chart)
        anchor = "" if time == 0 else " middle"
        parts.append(f'<line x1="{x}%" x2="{x}%" y1="{_AXIS_HEIGHT - 4}" y2="{bottom}"/>')
        parts += [f'<text x="{x}%" y="{y}" class="tick{anchor}">{label}</text>' for y in (13, bottom + 15)]
    return "".join(parts) + "</g>"


def unit_names(chart: Chart) -> Iterable[tuple[int, str]]:
    """The unit of the time axis at each zoom."""
    return ((zoom, ticks(chart.span_s, 9 * zoom).unit) for zoom in ZOOMS)


def _x(time: float, chart: Chart) -> float:
    return round((100 - _MARGIN) * min(max(time / chart.span_s, 0.0), 1.0), _DECIMALS)


def _rect(span: Span, chart: Chart, y: float, height: float, kind: str, *, words: str = "") -> str:
    x, width = _x(span[0], chart), max(_x(span[1], chart) - _x(span[0], chart), 0.02)
    title = f"<title>{escape(words)}</title>" if words else ""
    shape = f'<rect x="{x:g}%" y="{y:g}" width="{width:.4g}%" height="{max(height, 0.5):g}" class="{kind}"'
    return f"{shape}>{title}</rect>" if title else f"{shape}/>"


def _beside(span: Span, first: Span, chart: Chart, y: float, words: str, *, kind: str) -> str:
    """Words to the right of a bar, or to the left of the row's first one where there is no room."""
    x = _x(span[1], chart)
    if x < 86:
        return f'<text x="{x}%" dx="6" y="{y:g}" class="{kind}">{escape(words)}</text>'
    return f'<text x="{_x(first[0], chart)}%" dx="-6" y="{y:g}" class="{kind} end">{escape(words)}</text>'


def _label(y: float, name: str, detail: str) -> str:
    short = shortened(name, LABEL_LETTERS - len(detail))
    return (
        f'<text x="10" y="{y:g}"><title>{escape(name)}</title>{escape(short)} '
        f'<tspan class="muted">{escape(detail)}</tspan></text>'
    )


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'
