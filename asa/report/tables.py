"""The tables of a run's report, as parts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from asa.core.event import TaskFailed
from asa.core.stage import StageState
from asa.core.units import brief
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary
from asa.report.palette import LIGHT
from asa.report.words import core_hours, counted, last_words, listed, purpose, since_start, span_words, stage_state

ROWS_MOST = 300
"""Rows of a table; what is beyond is counted, and is in the JSON report."""

FAILURES_MOST = 30


def stages_section(run: RunSummary) -> str:
    """The stages, with their waits as predicted, in the queue and as perceived."""
    waits = [(stage.predicted_wait_s, stage.wait_s, stage.perceived_wait_s) for stage in run.stages]
    scale = max((wait for three in waits for wait in three if wait), default=0.0)
    head = (
        "Stage", "State", "Cores", "Tasks", "Job submitted", "Ready", "Started", "Ended", "Run time",
        "Wait predicted", "in the queue", "perceived", "Waits, side by side",
    )  # fmt: skip
    rows = []
    for number, stage in enumerate(run.stages):
        tasks = "?" if stage.tasks is None else f"{stage.tasks:,}"
        done = tasks if stage.done == stage.tasks else f"{stage.done:,} of {tasks}"
        state = stage_state(stage, run)
        rows.append(
            (
                _dot(number) + escape(stage.name),
                f'<span class="{"bad" if stage.state is StageState.FAILED else state}">{escape(state)}</span>',
                f"{stage.cores:,}",
                done,
                *(since_start(time, run) for time in (stage.submitted, stage.ready, stage.started, stage.ended)),
                *(
                    span_words(span)
                    for span in (stage.run_time_s, stage.predicted_wait_s, stage.wait_s, stage.perceived_wait_s)
                ),
                _waits(stage, scale),
            )
        )
    text = (
        '<p class="muted">Job submitted, ready, started and ended count from the start of the run. A stage is ready '
        "when the last stage before it has ended; from then to its first task is its perceived wait. In the last "
        "column: predicted (outlined), in the queue (hatched), perceived (full).</p>"
    )
    return f"<section><h2>Stages</h2>{text}{_table(head, rows, set(range(2, 12)), 'stages', wide={0})}</section>"


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
        f"{job.cores:,}",
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


def failures_section(run: RunSummary) -> str:
    """Stages and attempts that failed, with their last words; empty when there are none."""
    broken = [stage for stage in run.stages if stage.state is StageState.FAILED]
    if not run.failed_attempts and not broken:
        return ""
    parts = [
        f"<p><b>Stage {escape(stage.name)}</b> failed. {escape(last_words(stage.error))}</p>"
        for stage in broken[:FAILURES_MOST]
    ]
    parts += [_failure(event) for event in run.failures[:FAILURES_MOST]]
    if (more := run.failed_attempts - min(len(run.failures), FAILURES_MOST)) > 0:
        parts.append(f'<p class="muted">{counted(more, "more failed attempt")}</p>')
    return f"<section><h2>Failures</h2>{''.join(parts)}</section>"


def _failure(event: TaskFailed) -> str:
    said = (("traceback", event.traceback), ("standard error", event.stderr))
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
