"""What a run came to: waits, core-hours and what they bought, from its event log."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.event import Event
from asa.core.units import HOUR
from asa.metrics.attempts import Attempts
from asa.metrics.summary import JobSummary, RunSummary, StageSummary
from asa.metrics.timeline import JobLife, StageLife, Timeline

__all__ = ["JobSummary", "RunSummary", "StageSummary", "summarise", "summary"]


def summarise(events: Iterable[Event], now: float | None = None) -> RunSummary:
    """Numbers of a run from its events, in the order of the log.

    Parameters
    ----------
    now
        Up to when jobs and stages without an end are counted [s since the epoch]; the time of the last event when not
        given, as befits a log that nobody writes any more.

    Raises
    ------
    InvalidInput
        When the log does not say what was run.
    """
    timeline = Timeline()
    for event in events:
        timeline.on(event)
    return summary(timeline, now)


def summary(timeline: Timeline, now: float | None = None) -> RunSummary:
    """Numbers of a run as far as `timeline` knows it; see `summarise`."""
    start = timeline.start
    if start is None:
        raise InvalidInput(
            "these events do not say what was run: give all events of a run's log, from the first (RunStarted)"
        )
    now = timeline.last if now is None else now
    attempts = timeline.attempts.freeze()
    jobs = tuple(_job(token, job, timeline, attempts, now) for token, job in timeline.jobs.items())
    meant: dict[str, list[JobSummary]] = {name: [] for name in timeline.stages}
    for job in jobs:
        for name in job.stages:
            meant[name].append(job)
    stages = tuple(_stage(stage, timeline, meant[name], now) for name, stage in timeline.stages.items())
    charged, used = sum(job.core_hours_charged for job in jobs), float(attempts.core_seconds().sum()) / HOUR
    borrowed = sum(job.core_hours_used for job in jobs if job.lender)
    run_times = [stage.run_time_s or 0.0 for stage in stages]
    return RunSummary(
        start=start,
        state=timeline.state,
        message=timeline.message,
        ended=timeline.ended,
        now=now,
        resumes=max(0, timeline.drivers - 1),
        makespan_s=_finish(timeline, now) - start.at,
        total_perceived_wait_s=_total_wait(stages),
        core_hours_charged=charged,
        core_hours_used=used,
        core_hours_borrowed=borrowed,
        core_hours_wasted=charged - (used - borrowed),
        overhead_core_hours=sum(job.overhead_core_hours for job in jobs),
        big_job_core_hours=max((stage.cores for stage in stages), default=0) * sum(run_times) / HOUR,
        per_stage_core_hours=sum(stage.cores * time for stage, time in zip(stages, run_times, strict=True)) / HOUR,
        stages=stages,
        jobs=jobs,
        failed_attempts=timeline.failed,
        failures=tuple(timeline.failures),
        attempts=attempts,
    )


def _total_wait(stages: Iterable[StageSummary]) -> float:
    """Time during which any stage was ready and had not begun [s]."""
    total, until = 0.0, -math.inf
    waits = ((stage.ready, stage.perceived_wait_s or 0.0) for stage in stages if stage.ready is not None)
    for ready, wait in sorted(waits):
        total += max(0.0, ready + wait - max(until, ready))
        until = max(until, ready + wait)
    return total


def _finish(timeline: Timeline, now: float) -> float:
    """Where the makespan ends [s since the epoch]."""
    if timeline.ended is None:
        return now
    ends = (timeline.ended if stage.ended is None else stage.ended for stage in timeline.stages.values())
    return max(ends, default=timeline.ended)


def _job(token: str, job: JobLife, timeline: Timeline, attempts: Attempts, now: float) -> JobSummary:
    runs = [*job.runs, (job.since, max(job.since, now))] if job.since is not None else job.runs
    submitted = job.asked if job.handle is None else job.handle.submitted
    started = runs[0][0] if runs else None
    cores = job.request.resources.cores
    inside = attempts.take(attempts.rows_of(token))
    readies = [timeline.stages[name].ready for name in job.stages]
    needed = min((ready for ready in readies if ready is not None), default=np.inf)
    early = [(start, min(end, needed)) for start, end in runs if start < needed]
    idle = sum(cores * (end - start) - float(inside.core_seconds(start, end).sum()) for start, end in early)
    return JobSummary(
        token=token,
        job_id=None if job.handle is None else job.handle.job_id,
        stages=job.stages,
        state=job.state,
        cores=cores,
        nodes=tuple(job.nodes),
        walltime_s=job.request.walltime_s,
        submitted=submitted,
        started=started,
        ended=job.ended,
        runs=tuple(runs),
        predicted_wait_s=job.predicted_wait_s,
        wait_s=None if started is None or job.lender else max(0.0, started - submitted),
        core_hours_charged=0.0 if job.lender else cores * sum(end - start for start, end in runs) / HOUR,
        core_hours_used=float(inside.core_seconds().sum()) / HOUR,
        overhead_core_hours=0.0 if job.lender else max(0.0, idle) / HOUR,
        reason=job.reason,
        lender=job.lender,
    )


def _since(start: float | None, now: float) -> float:
    return 0.0 if start is None else max(0.0, now - start)


def _stage(stage: StageLife, timeline: Timeline, meant: list[JobSummary], now: float) -> StageSummary:
    """`meant` are the jobs meant for it, in the order they were asked for."""
    job = next((job for job in reversed(meant) if job.runs), meant[-1] if meant else None)
    over = now if timeline.ended is None else timeline.ended
    until = over if stage.ended is None else stage.ended
    waited_until = until if stage.started is None else stage.started
    return StageSummary(
        name=stage.spec.name,
        state=stage.state,
        cores=stage.spec.resources.cores,
        tasks=stage.width,
        done=stage.done,
        running=stage.underway,
        launched=stage.launched,
        job=job.token if job else None,
        submitted=job.submitted if job else None,
        ready=stage.ready,
        started=stage.started,
        ended=stage.ended,
        predicted_wait_s=job.predicted_wait_s if job else None,
        wait_s=job.wait_s if job else None,
        perceived_wait_s=None if stage.ready is None else max(0.0, waited_until - stage.ready),
        run_time_s=None if stage.started is None else stage.active_s + _since(stage.since, now),
        error=stage.error,
    )
