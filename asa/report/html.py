"""A run's report as one HTML page: nothing is loaded, no script runs, every text of the run is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np

from asa.core.arrays import Floats
from asa.core.event import TaskFailed
from asa.core.job import JobState
from asa.core.run import WELL, TaskOutcome
from asa.core.stage import StageState
from asa.core.units import brief, size
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary
from asa.report.chart import Chart, Curve, JobRow, Span, StageRow, TaskBox, chart
from asa.report.picture import DARK, LIGHT, ticks
from asa.report.words import (
    allowed,
    core_hours,
    cores_words,
    counted,
    job_title,
    job_words,
    last_words,
    listed,
    lost_words,
    purpose,
    quote_words,
    shortened,
    since_start,
    span_words,
    stage_state,
    stage_title,
    stage_words,
)


def render(run: RunSummary) -> str:
    """The page: a Gantt chart with the pool over time, stages with their waits, core-hours, jobs, failures."""
    title = f"{run.start.workflow} · {run.start.run}"
    sections = (
        _head(run),
        _figures(run),
        _gantt(run),
        stages_section(run),
        core_hours_section(run),
        jobs_section(run),
        failures_section(run),
    )
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{style_sheet()}</style></head>\n<body>{PATTERNS}",
            *sections,
            "</body></html>\n",
        )
    )


def _head(run: RunSummary) -> str:
    start = run.start
    state = run.state.value
    kind = "failed-state" if state == "failed" else state
    began = datetime.fromtimestamp(start.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = f"{start.site}, partition {start.partition}" if start.partition else start.site
    facts = [
        f"started {began}",
        f"{start.backend} at {where}",
        f"strategy {start.strategy}",
        f"executor {start.executor}",
        f"pool {start.pool}",
    ]
    if run.resumes:
        facts.append(f"resumed {counted(run.resumes, 'time')}")
    if run.on_hold is not None:
        facts.append(f"held for {brief(max(0.0, run.now - run.on_hold))}: nothing new is started")
    if words := quote_words(run.quoted, run.state, run.ended, run.now, virtual=start.is_virtual):
        facts.append(f"quoted: {words}")
    if run.ended is None:
        facts.append(f"not ended; as of {brief(max(0.0, run.now - start.at))} after the start")
    message = f'<div class="message">{escape(last_words(run.message))}</div>' if run.message else ""
    return (
        f'<h1>{escape(start.workflow)}<span class="badge {kind}">{state}</span></h1>'
        f'<p class="muted">run {escape(start.run)} · {escape(" · ".join(facts))}</p>{message}'
    )


def _figures(run: RunSummary) -> str:
    share = f" ({100 * run.core_hours_used / run.core_hours_charged:.0f} %)" if run.core_hours_charged else ""
    figures = (
        (brief(run.makespan_s), "makespan" if run.ended else "since the start"),
        (brief(run.total_perceived_wait_s), "total perceived wait"),
        (core_hours(run.core_hours_charged), "core-hours charged"),
        (core_hours(run.core_hours_used), f"core-hours used{share}"),
        (core_hours(run.overhead_core_hours), f"core-hours overhead: idle, came early{allowed(run)}"),
        (counted(len(run.attempts), "run"), f"of tasks, {run.failed_attempts:,} failed"),
        *([(str(energy), "energy")] if (energy := run.energy) else []),
    )
    cards = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in figures)
    return f'<div class="figures">{cards}</div>'


def _gantt(run: RunSummary) -> str:
    drawn = chart(run)
    pictures = draw(drawn)
    radios = "".join(
        f'<input type="radio" class="zoom" name="zoom" id="zoom{zoom}"{" checked" if zoom == 1 else ""}>'
        for zoom in ZOOMS
    )
    labels = "".join(f'<label for="zoom{zoom}">{zoom}×</label>' for zoom in ZOOMS)
    units = "".join(f'<span class="unit z{zoom}">{unit}</span>' for zoom, unit in unit_names(drawn))
    left_out = [
        f"{number:,} more {noun} not drawn"
        for number, noun in ((drawn.stages_left_out, "stages"), (drawn.jobs_left_out, "jobs"))
        if number
    ]
    if run.ended is None:
        left_out.append("tasks are drawn once they have ended")
    note = f'<p class="muted">{", ".join(left_out).capitalize()}.</p>' if left_out else ""
    return (
        f'<section>{radios}<div class="zooms"><h2>What ran when</h2><span>zoom {labels}</span></div>'
        f'<p class="legend">Time since the start [{units}]{_legend()}</p>'
        f'<div class="chart">{pictures.labels}<div class="scroll">{pictures.plot}</div></div>{note}</section>'
    )


def _legend() -> str:
    def key(kind: str, words: str) -> str:
        shape = f'<rect width="16" height="11" class="{kind}"/>'
        return f'<svg class="key" width="16" height="11">{shape}</svg>{words}'

    line = '<svg class="key" style="width:3px" height="11"><line x1="1" x2="1" y2="11" class="predicted"/></svg>'
    return (
        key("wait", "waits")
        + f"{line}start as predicted"
        + key("held", "cores held")
        + key("early", "held too early")
        + key("s0", "tasks, in their stage's colour")
        + key("busy", "cores busy")
        + key("idle", "cores idle")
    )


# The style sheet: light or dark as the reader's system is set; nothing is loaded from anywhere.

_BASE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f6f7f9; --line: #d9dce1; --text: #1b1e23;
  --muted: #5d6570; --hatch: #8b93a0; --held: #e3e6eb; --early: #b35900; --busy: #2b6cb0; --idle: #f0c27b;
  --good: #13703c; --bad: #b3261e; --other: #aab2bd; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --card: #1d2025; --line: #363b43; --text: #e8eaed;
  --muted: #a0a8b3; --hatch: #7d8693; --held: #2b3037; --early: #ffad5c; --busy: #6fb1f0; --idle: #8a6427;
  --good: #6fd39a; --bad: #ff8a80; --other: #565e69; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 24px; background: var(--ground); color: var(--text);
  font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 32px 0 10px; }
p { margin: 4px 0; } .muted { color: var(--muted); fill: var(--muted); } .bad { color: var(--bad); fill: var(--bad); }
.badge { font-size: 13px; font-weight: 600; padding: 2px 10px; border-radius: 10px; border: 1px solid;
  vertical-align: 3px; margin-left: 8px; }
.succeeded, .done, .completed { color: var(--good); } .failed-state, .partial, .cancelled { color: var(--bad); }
.message { white-space: pre-wrap; border-left: 3px solid var(--bad); padding: 6px 12px; margin: 12px 0;
  background: var(--card); font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-x: auto; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 16px 0; }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; }
.figures b { display: block; font-size: 18px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--muted); font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 12px; vertical-align: bottom; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.wide { white-space: normal; min-width: 160px; overflow-wrap: anywhere; }
.num { text-align: right; } .scroll { overflow-x: auto; }
svg { display: block; } svg text { font-size: 12px; fill: var(--text); } svg .muted { fill: var(--muted); }
svg .bad { fill: var(--bad); } svg text.heading { font-weight: 600; font-size: 13px; } .end { text-anchor: end; }
.middle { text-anchor: middle; } svg text.tick { font-size: 11px; fill: var(--muted); }
.grid line { stroke: var(--line); stroke-width: 1; } .grid { display: none; }
.hatch { stroke: var(--hatch); stroke-width: 2.4; } .early-hatch { stroke: var(--early); stroke-width: 1.8; }
rect.wait { fill: url(#wait); stroke: var(--hatch); stroke-width: .8; }
rect.held { fill: var(--held); stroke: var(--hatch); stroke-width: .6; }
.predicted { stroke: var(--text); stroke-width: 1; }
rect.early { fill: url(#early); }
.idle { fill: var(--idle); } .busy { fill: var(--busy); } .other { fill: var(--other); }
.early-fill { fill: var(--early); } .faint { opacity: .3; }
rect.task { stroke: var(--ground); stroke-width: .5; } rect.failed { fill: var(--bad); }
.key { display: inline-block; width: 16px; height: 11px; margin: 0 5px 0 16px; vertical-align: -1px; }
.legend { color: var(--muted); font-size: 12px; margin: 6px 0; } .legend svg { display: inline-block; }
.chart { display: flex; border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
.chart > svg { flex: none; } .chart .scroll { flex: 1; min-width: 0; }
.zoom { position: absolute; opacity: 0; } .zooms { display: flex; justify-content: space-between;
  align-items: baseline; color: var(--muted); font-size: 13px; } .zooms h2 { color: var(--text); }
.zooms label { border: 1px solid var(--line); padding: 1px 9px; margin-left: 4px; border-radius: 4px; cursor: pointer; }
.unit { display: none; } details { margin: 6px 0; } summary { cursor: pointer; }
pre { background: var(--card); padding: 10px; overflow-x: auto; font-size: 12px; margin: 6px 0; }
@media print { .zooms span { display: none; } body { max-width: none; } }
"""


def style_sheet() -> str:
    """All of it as CSS text."""
    parts = [_BASE, f".chart > svg {{ width: {LABEL_WIDTH}px; }}"]
    parts += [f".s{number} {{ fill: {colour}; }}" for number, colour in enumerate(LIGHT)]
    dark = " ".join(f".s{number} {{ fill: {colour}; }}" for number, colour in enumerate(DARK))
    parts.append(f"@media (prefers-color-scheme: dark) {{ {dark} }}")
    for zoom in ZOOMS:
        chosen = f"#zoom{zoom}:checked ~"
        parts.append(f"{chosen} .chart .scroll > svg {{ width: {100 * zoom}%; }}")
        parts.append(f"{chosen} .chart .z{zoom}, {chosen} .legend .z{zoom} {{ display: inline; }}")
        parts.append(f"{chosen} .zooms label[for=zoom{zoom}] {{ border-color: var(--text); color: var(--text); }}")
        parts.append(f"#zoom{zoom}:focus-visible ~ .zooms label[for=zoom{zoom}] {{ outline: 2px solid var(--busy); }}")
    return "\n".join(parts)


# A chart as SVG: names in one picture, the plot in another that can be made wider than the page. Positions along time
# are percentages, so a wider plot stretches time and nothing else.

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
            drawn = _stage(row, chart, y) if isinstance(row, StageRow) else _job_shape(row, chart, y, height)
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
        failed = row.stage.state in _BROKEN
        words = brief(row.stage.run_time_s) + (f", {row.stage.state.value}" if failed else "")
        yield _beside(row.span, row.wait or row.span, chart, y + 15, words, kind="bad" if failed else "muted")
    yield "</g>"


def _job_height(row: JobRow) -> int:
    return int(np.clip(row.job.cores * (2.2 if row.tasks else 1.5), 16, 106 if row.tasks else 72))


def _job_shape(row: JobRow, chart: Chart, y: float, height: float) -> Iterator[str]:
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
    kind = f"s{task.position % len(LIGHT)} task" + ("" if task.outcome in WELL else " failed")
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


ROWS_MOST = 300
"""Rows of a table; what is beyond is counted, and is in the JSON report."""

FAILURES_MOST = 30


def stages_section(run: RunSummary) -> str:
    """The stages, with their waits as predicted, in the queue and as perceived."""
    waits = [(stage.predicted_wait_s, stage.wait_s, stage.perceived_wait_s) for stage in run.stages]
    scale = max((wait for three in waits for wait in three if wait), default=0.0)
    head = (
        "Stage", "State", "Cores", "Tasks", "Job submitted", "Ready", "Started", "Ended", "Run time",
        "Most memory of a task", "Processor time", "Wait predicted", "in the queue", "perceived", "Waits, side by side",
    )  # fmt: skip
    rows = []
    for number, stage in enumerate(run.stages):
        tasks = "?" if stage.tasks is None else f"{stage.tasks:,}"
        done = tasks if stage.done == stage.tasks else f"{stage.done:,} of {tasks}"
        done += f", {stage.reused:,} reused" if stage.reused else ""
        done += f", {lost}" if (lost := lost_words(stage)) else ""
        state = stage_state(stage, run)
        rows.append(
            (
                _dot(number) + escape(stage.name),
                f'<span class="{"bad" if stage.state in _BROKEN else state}">{escape(state)}</span>',
                f"{stage.cores:,}",
                done,
                *(since_start(time, run) for time in (stage.submitted, stage.ready, stage.started, stage.ended)),
                span_words(stage.run_time_s),
                size(stage.peak) if stage.peak else "–",
                span_words(stage.cpu_s or None),
                *(span_words(span) for span in (stage.predicted_wait_s, stage.wait_s, stage.perceived_wait_s)),
                _waits(stage, scale),
            )
        )
    text = (
        '<p class="muted">Job submitted, ready, started and ended count from the start of the run. A stage is ready '
        "when the last stage before it has ended; from then to its first task is its perceived wait. In the last "
        "column: predicted (outlined), in the queue (hatched), perceived (full).</p>"
    )
    return f"<section><h2>Stages</h2>{text}{_table(head, rows, set(range(2, 14)), 'stages', wide={0})}</section>"


def _dot(position: int) -> str:
    shape = f'<rect width="11" height="11" class="s{position % len(LIGHT)}"/>'
    return f'<svg class="key" style="margin-left:0" width="11" height="11">{shape}</svg>'


def _waits(stage: StageSummary, scale: float) -> str:
    bars = (
        (stage.predicted_wait_s, 'fill="none" class="predicted"'),
        (stage.wait_s, 'class="wait"'),
        (stage.perceived_wait_s, 'class="early-fill"'),
    )
    drawn = "".join(
        f'<rect x="0.5" y="{1 + 8 * row}" width="{max(1.0, 148 * wait / scale):.1f}" height="6" {kind}/>'
        for row, (wait, kind) in enumerate(bars)
        if wait
    )
    return f'<svg width="150" height="25">{drawn}</svg>'


def core_hours_section(run: RunSummary) -> str:
    """What was charged, what for, and what the two classical strategies would have been charged."""
    early = run.overhead_core_hours
    idle = max(0.0, run.core_hours_wasted - early)
    most = max(run.core_hours_charged, run.big_job_core_hours, run.per_stage_core_hours, 1e-9)
    mine = (
        (run.core_hours_used, "busy", "used"),
        (early, "early", "idle (came early)"),
        (idle, "idle", "idle (otherwise)"),
    )
    bars = (
        ("This run", mine, run.core_hours_charged),
        ("Big Job", ((run.big_job_core_hours, "other", "would be charged"),), run.big_job_core_hours),
        ("Per-Stage", ((run.per_stage_core_hours, "other", "would be charged"),), run.per_stage_core_hours),
    )
    rows = []
    for name, parts, total in bars:
        x, shapes = 0.0, []
        for amount, kind, words in parts:
            width = 100 * amount / most
            shapes.append(
                f'<rect x="{x:.3f}%" width="{width:.3f}%" height="18" class="{kind}">'
                f"<title>{words}: {core_hours(amount)} core-hours</title></rect>"
            )
            x += width
        bar = f'<svg width="100%" height="18" style="min-width:300px">{"".join(shapes)}</svg>'
        words = ", ".join(f"{words} {core_hours(amount)}" for amount, _, words in parts) if len(parts) > 1 else ""
        rows.append((name, bar, core_hours(total), words))
    text = (
        "<p class=\"muted\">Big Job: the largest stage's cores for the sum of the stages' run times. Per-Stage: each "
        "stage's cores for its own run time. Both with the run times measured here, and without idle time.</p>"
    )
    head = ("", "", "Core-hours", "")
    return f"<section><h2>Core-hours</h2>{text}{_table(head, rows, {2}, 'bars', wide={1})}</section>"


def jobs_section(run: RunSummary) -> str:
    """All jobs, those that never started too."""
    head = (
        "Job", "For", "State", "Cores", "Nodes", "Submitted", "Waited", "Held", "Wall time",
        "Core-hours", "used", "idle, early", "Why it ended",
    )  # fmt: skip
    rows = [_job(job, run) for job in run.jobs]
    wide = {1, 4, 12}
    return f"<section><h2>Jobs</h2>{_table(head, rows, {3, 5, 6, 7, 8, 9, 10, 11}, 'jobs', wide)}</section>"


def _job(job: JobSummary, run: RunSummary) -> tuple[str, ...]:
    held = sum(end - start for start, end in job.runs)
    kind = "completed" if job.state.value == "completed" else ("bad" if job.state.final else "")
    return (
        f'<span title="{escape(job.token)}">{escape(job.job_id or job.token)}</span>',
        escape(purpose(job)),
        f'<span class="{kind}">{escape(job.state.value.replace("_", " "))}</span>',
        cores_words(job),
        escape(listed(job.nodes, 4)),
        since_start(job.submitted, run),
        span_words(job.wait_s),
        span_words(held if job.runs else None),
        span_words(job.walltime_s),
        core_hours(job.core_hours_charged),
        core_hours(job.core_hours_used),
        core_hours(job.overhead_core_hours),
        escape(last_words(job.reason, 300)),
    )


_BROKEN = (StageState.FAILED, StageState.PARTIAL)


def failures_section(run: RunSummary) -> str:
    """Stages and attempts that failed, with their last words; empty when there are none."""
    broken = [stage for stage in run.stages if stage.state is StageState.FAILED or stage.failed]
    if not run.failed_attempts and not broken:
        return ""
    parts = [
        f"<p><b>Stage {escape(stage.name)}</b> {stage.state.value}. {escape(last_words(stage.error))}</p>"
        for stage in broken[:FAILURES_MOST]
    ]
    parts += [_failure(event) for event in run.failures[:FAILURES_MOST]]
    if (more := run.failed_attempts - min(len(run.failures), FAILURES_MOST)) > 0:
        parts.append(f'<p class="muted">{counted(more, "more failed attempt")}</p>')
    return f"<section><h2>Failures</h2>{''.join(parts)}</section>"


def _failure(event: TaskFailed) -> str:
    said = (("traceback", event.traceback), ("output", event.stderr))
    more = "".join(
        f'<p class="muted">{name}</p><pre>{escape(last_words(words))}</pre>' for name, words in said if words.strip()
    )
    head = (
        f"{event.stage} {event.index} on {event.node}, after {brief(max(0.0, event.at - event.started))}: {event.error}"
    )
    return f"<details><summary>{escape(last_words(head, 500))}</summary>{more}</details>"


def _table(
    head: Sequence[str], rows: Sequence[Iterable[str]], numbers: set[int], noun: str, wide: Iterable[int] = ()
) -> str:
    """Rows of cells that are HTML already."""

    def cells(tag: str, row: Iterable[str]) -> Iterator[str]:
        for column, cell in enumerate(row):
            kind = ' class="num"' if column in numbers else ' class="wide"' if column in wide else ""
            yield f"<{tag}{kind}>{cell}</{tag}>"

    body = "".join(f"<tr>{''.join(cells('td', row))}</tr>\n" for row in rows[:ROWS_MOST])
    more = len(rows) - ROWS_MOST
    note = f'<p class="muted">{more:,} more {noun} not shown.</p>' if more > 0 else ""
    return (
        f'<div class="scroll"><table><thead><tr>{"".join(cells("th", head))}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
