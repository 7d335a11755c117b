"""What is written beside and under the parts of a report."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from asa.core.event import Quoted, RunState
from asa.core.registry import parse_spec
from asa.core.stage import StageState
from asa.core.units import brief, share
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary


def span_words(seconds: float | None) -> str:
    """A duration [s] as people say it, or a dash for one that is not known.

    >>> span_words(125), span_words(0.0), span_words(None)
    ('2 min 5 s', '0 s', '–')
    """
    return "–" if seconds is None else brief(seconds)


def since_start(time: float | None, run: RunSummary) -> str:
    """When something happened, counted from the start of the run, or a dash."""
    return span_words(None if time is None else max(0.0, time - run.start.at))


def core_hours(amount: float) -> str:
    """Core-hours, with as many digits as matter.

    >>> core_hours(0.0123), core_hours(26.23), core_hours(12345.6), core_hours(3e-5)
    ('0.012', '26.2', '12,346', '<0.001')
    """
    if 0 < amount < 1e-3:
        return "<0.001"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}" if amount >= 10 else f"{amount:.2g}"


def moment(time: float, now: float, *, virtual: bool = False) -> str:
    """A time [s since the epoch] as people say it `now`: of the day, with the day where that is another one; counted
    from now on where time is `virtual`, or beyond the calendar.

    >>> moment(7200.0, 0.0, virtual=True), moment(1e15, 0.0)
    ('in 2 h', 'in 11574074074 d 1 h')
    """
    from_now = f"in {brief(max(0.0, time - now))}"
    if virtual:
        return from_now
    try:
        there, here = (datetime.datetime.fromtimestamp(each) for each in (time, now))
    except (ValueError, OverflowError, OSError):
        return from_now
    days = (there.date() - here.date()).days
    return there.strftime("%H:%M" if not days else "%a %H:%M" if 0 < days < DAYS_OF_WEEK else "%Y-%m-%d %H:%M")


DAYS_OF_WEEK = 7
SOON_S = 900.0
"""What is over within so long is not said by the clock [s]."""


def _is_soon(quoted: Quoted) -> bool:
    return quoted.high - quoted.at < SOON_S


def expected(quoted: Quoted, *, virtual: bool = False) -> str:
    """When a run was expected to be done, with the interval, and what it is charged.

    >>> expected(Quoted(0.0, 7200.0, 3600.0, 10800.0, 12.0, (3600.0, 10800.0), 100), virtual=True)
    'in 2 h [1 h, 3 h], 12.0 core-hours'
    >>> from asa.core.event import WAITS_UNKNOWN
    >>> expected(Quoted(0.0, 7200.0, 3600.0, 10800.0, 12.0, (0.0, 0.0), 100, (WAITS_UNKNOWN,)), virtual=True)
    'in 2 h at the earliest, as waits are not known, 12.0 core-hours'
    >>> from asa.core.event import WALLTIMES_ONLY
    >>> expected(Quoted(0.0, 7200.0, 3600.0, 10800.0, 12.0, (0.0, 0.0), 100, (WALLTIMES_ONLY,)), virtual=True)
    'in 3 h at most, as only wall times are known, 12.0 core-hours'
    """
    virtual = virtual or _is_soon(quoted)
    ends = [moment(each, quoted.at, virtual=virtual).removeprefix("in ") for each in (quoted.low, quoted.high)]
    done = moment(quoted.done, quoted.at, virtual=virtual)
    when = done if {*ends} == {done.removeprefix("in ")} else f"{done} [{', '.join(ends)}]"
    if quoted.least and quoted.most:
        when = "at a time that is not known, as neither waits nor run times are"
    elif quoted.least:
        when = f"{done} at the earliest, as waits are not known"
    elif quoted.most:
        when = f"{moment(quoted.high, quoted.at, virtual=virtual)} at most, as only wall times are known"
    return f"{when}, {core_hours(quoted.core_hours)} core-hours"


def quote_words(
    quoted: Quoted | None, state: RunState, ended: float | None, now: float, *, virtual: bool = False
) -> str:
    """What a run's quote was, and what became of it by `now` [s since the epoch]; "" where there was none."""
    if quoted is None:
        return ""
    virtual = virtual or _is_soon(quoted)
    said = f"done {expected(quoted, virtual=virtual)}"
    if ended is None:
        late = now > quoted.high and not quoted.least
        return said + (f"; {brief(now - quoted.high)} later than that by now" if late else "")
    if state is not RunState.SUCCEEDED:
        return f"{said}; but the run {_ENDED.get(state, 'has failed')}"
    when = f"after {brief(ended - quoted.at)}" if virtual else f"at {moment(ended, quoted.at)}"
    if quoted.least or quoted.most:
        return f"{said}; was done {when}"
    off = ended - quoted.done
    how = f"{brief(abs(off))} {'after' if off > 0 else 'before'} the median"
    where = "inside" if quoted.low <= ended <= quoted.high else "outside"
    return f"{said}; was done {when}, {where} the interval, {how}"


_ENDED = {RunState.CANCELLED: "has been cancelled", RunState.PARTIAL: "is partial"}


def stage_state(stage: StageSummary, run: RunSummary) -> str:
    """State of a stage; one that a run left behind is not "running" for ever."""
    if stage.state.final or (run.ended is None and run.state is not RunState.INTERRUPTED):
        return stage.state.value
    return "not run" if stage.started is None else "stopped"


def counted(number: int, noun: str) -> str:
    """A number and what is counted.

    >>> counted(1, "core"), counted(12345, "task")
    ('1 core', '12,345 tasks')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], 2), listed(["a"], 2)
    ('a, b and 1 more', 'a')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shortened(name: str, most: int) -> str:
    """A name cut to a number of letters.

    >>> shortened("mProject", 8), shortened("mProject", 5)
    ('mProject', 'mPro…')
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def stage_words(stage: StageSummary) -> tuple[str, str]:
    """A stage's name and its size."""
    return stage.name, counted(stage.cores, "core")


def lost_words(stage: StageSummary) -> str:
    """How many tasks of a stage failed and were skipped, or ""."""
    counts = ((stage.failed, "failed"), (stage.skipped, "skipped"))
    return ", ".join(f"{number:,} {what}" for number, what in counts if number)


def stage_title(stage: StageSummary) -> str:
    """All about a stage, in lines."""
    width = "? tasks" if stage.tasks is None else counted(stage.tasks, "task")
    lines = [f"{stage.name}: {stage.state.value}, {counted(stage.cores, 'core')}, {width}"]
    if stage.perceived_wait_s is not None:
        lines.append(f"waited {brief(stage.perceived_wait_s)} after the stages before it")
    if stage.wait_s is not None:
        lines.append(f"its job waited {brief(stage.wait_s)} in the queue")
    if stage.predicted_wait_s is not None:
        lines.append(f"predicted: {brief(stage.predicted_wait_s)}")
    if stage.run_time_s is not None:
        lines.append(f"ran {brief(stage.run_time_s)}")
    if lost := lost_words(stage):
        lines.append(lost)
    if stage.state in (StageState.FAILED, StageState.PARTIAL) and stage.error:
        lines.append(stage.error)
    return "\n".join(lines)


def job_words(job: JobSummary) -> tuple[str, str]:
    """A job's name, what it is for, and its size."""
    if job.lender:
        return f"lent by {job.lender}", counted(job.cores, "core")
    what = job.stages[0] if len(job.stages) == 1 else counted(len(job.stages), "stage")
    return f"{job.job_id or job.token} {what}", counted(job.cores, "core")


def cores_words(job: JobSummary) -> str:
    """A job's cores, and how many it asked for where it was given others."""
    return f"{job.cores:,}" + (f" ({job.asked_cores:,} asked for)" if job.asked_cores not in (0, job.cores) else "")


def purpose(job: JobSummary) -> str:
    """The stages that a job is for, or that it is a lease."""
    return f"lent by {job.lender}" if job.lender else listed(job.stages, 6)


def job_title(job: JobSummary) -> str:
    """All about a job, in lines."""
    lines = [
        f"lease {job.token}, {purpose(job)}"
        if job.lender
        else f"job {job.job_id or '(never taken)'} ({job.token}) for {purpose(job)}",
        f"{job.state.value}" + (f": {job.reason}" if job.reason else ""),
        *([] if job.lender else [f"{cores_words(job)} cores, waited {span_words(job.wait_s)} in the queue"]),
        f"charged {core_hours(job.core_hours_charged)} core-hours, used {core_hours(job.core_hours_used)}, "
        f"idle because it came early {core_hours(job.overhead_core_hours)}",
    ]
    if job.nodes:
        lines.append(
            "on " + ", ".join(job.nodes[:8]) + (f" and {len(job.nodes) - 8} more" if len(job.nodes) > 8 else "")
        )
    return "\n".join(lines)


def allowed(run: RunSummary) -> str:
    """What share of Per-Stage's core-hours a run may lose by coming early, if that is limited, and what it lost."""
    given = parse_spec(run.start.strategy)[1].get("max_overhead")
    if given is None or not run.per_stage_core_hours:
        return ""
    lost = run.overhead_core_hours / run.per_stage_core_hours
    return f" ({100 * lost:.2g} % of Per-Stage; {100 * share(given, most=math.inf):.3g} % allowed)"


def last_words(words: str, most: int = 2000) -> str:
    """The end of a long text: what matters of a traceback or of standard error comes last.

    >>> last_words("abcdef", 3), last_words("abc", 3)
    ('… def', 'abc')
    """
    return words if len(words) <= most else "… " + words[-most:]
