"""A run's report as one HTML page: nothing is loaded, no script runs, every text of the run is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from asa.core.units import brief
from asa.metrics.workflow import RunSummary
from asa.report.chart import chart
from asa.report.style import style_sheet
from asa.report.svg import PATTERNS, ZOOMS, draw, unit_names
from asa.report.tables import core_hours_section, failures_section, jobs_section, stages_section
from asa.report.words import allowed, core_hours, counted, last_words


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
