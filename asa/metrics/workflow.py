"""What a run came to: waits, core-hours and what they bought, of the run, its stages and its jobs.

All times are seconds since the epoch, all durations seconds, all core-hours cores times hours.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.energy import KWH, NodePower
from asa.core.errors import AsaError, InvalidInput
from asa.core.event import Event, Quoted, RunStarted, RunState, TaskFailed, TasksDone
from asa.core.intensity import Intensity
from asa.core.job import JobState
from asa.core.run import FoldedRun, Held, StageProgress
from asa.core.serial import to_json
from asa.core.stage import StageState
from asa.core.units import HOUR, brief
from asa.metrics.attempts import Attempts, attempts_of
from asa.metrics.intensity import intensity_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage.

    Parameters
    ----------
    cores
        Cores that it asks for.
    tasks
        Number of tasks, or None while it is not known.
    done, running, launched
        Tasks that returned, that are under way (or were when the log ends), and that were given out in all, reruns
        included.
    job
        Token of the last job meant for it that ran, or of the last one asked for; None when there is none.
    submitted
        When that job was submitted.
    ready
        When its last predecessor ended; the start of the run for a stage without predecessors.
    started, ended
        When its first task was launched, and when its last one returned or it was given up.
    predicted_wait_s
        The queue wait that its job was planned with [s]; None when no prediction was asked.
    wait_s
        The queue wait of its job [s], from submission to (first) start; None while the job has not started, and for a
        stage that ran in other stages' allocations only.
    perceived_wait_s
        From `ready` to `started` [s]: what the workflow really waited. For a stage that is ready and was not started
        the wait up to now, or until it was given up; None for a stage that never became ready.
    run_time_s
        How long tasks of it were under way [s]: from `started` to `ended`, or up to now, less the times in between
        when all allocations it had were gone.
    error
        Why it failed, or "".
    reused
        Tasks for which results of earlier runs stand; they are counted as done.
    failed, skipped
        Tasks that failed for good, and that did not run because one failed that they need.
    peak, cpu_s
        The most memory that an attempt at a task has had [bytes], and processor time of all of them [s]; 0 where that
        is not known.
    """

    name: str
    state: StageState
    cores: int
    tasks: int | None
    done: int
    running: int
    launched: int
    job: str | None
    submitted: float | None
    ready: float | None
    started: float | None
    ended: float | None
    predicted_wait_s: float | None
    wait_s: float | None
    perceived_wait_s: float | None
    run_time_s: float | None
    error: str
    reused: int = 0
    failed: int = 0
    skipped: int = 0
    peak: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job of the run, whether it ever started or not.

    Parameters
    ----------
    token, job_id
        ASA's name for it, and the batch system's own; None when it was never taken.
    lender
        "" for a job of the run's own. Else the run of which part of a job was leased: nothing of that is charged here.
    cores, asked_cores
        Cores that it holds, or held last, where the batch system has said how many; else, and in `asked_cores`, those
        that it asked for.
    runs
        From when to when it held its cores; more than one pair when it was requeued. A job that runs is counted up
        to now; one that was cancelled with a run without a driver, up to the end of the run.
    started, ended
        Its first start, and when it ended for good.
    wait_s
        From submission to the first start [s]; None while it has not started.
    core_hours_charged
        Cores that it held, as the batch system counts them, times the time it held them.
    core_hours_used
        Task cores times task run times, failed attempts included; tasks count once they have reported.
    overhead_core_hours
        Held idle because the job came early: cores times the time from its start to when the first of its stages
        became ready, less what tasks of other stages used in it meanwhile.
    reason
        Why it was cancelled or how it ended, in the words of the run or of the site.
    energy_j
        What it drew, as the batch system measured it [J]; None where it did not, and of a job that was requeued.
    """

    token: str
    job_id: str | None
    stages: tuple[str, ...]
    state: JobState
    cores: int
    nodes: tuple[str, ...]
    walltime_s: float
    submitted: float
    started: float | None
    ended: float | None
    runs: tuple[tuple[float, float], ...]
    predicted_wait_s: float | None
    wait_s: float | None
    core_hours_charged: float
    core_hours_used: float
    overhead_core_hours: float
    reason: str
    lender: str = ""
    asked_cores: int = 0
    energy_j: float | None = None


@dataclass(frozen=True, eq=False)
class RunSummary:
    """One run.

    Parameters
    ----------
    start
        What was run, and how.
    now
        Up to when the log was looked at.
    resumes
        How often another driver took the run over.
    makespan_s
        From the start of the run to the end of its last stage [s]; up to now while it runs, to its end when it was
        cancelled before all stages had ended. Time between a driver's end and the next one's start counts.
    total_perceived_wait_s
        How long nothing of the critical path ran, though it could have [s]: the perceived waits of the stage that ended
        last, of that which it waited for longest, and so on. In a sequence these are all stages, as in the paper; what
        waits beside a path that runs does not count. Of a run that goes on, the path to the stage that began first.
    core_hours_charged, core_hours_used, overhead_core_hours
        Sums over the jobs.
    core_hours_borrowed
        That part of the used ones which other runs are charged for.
    core_hours_wasted
        Charged less used, what was borrowed aside; the overhead is a part of it. Slightly below zero only when clocks
        differ.
    big_job_core_hours
        What one allocation of the largest stage's cores would have been charged, the paper's equation (1), with the
        stages' run times as measured.
    per_stage_core_hours
        What an allocation per stage that holds exactly the stage's cores while it runs would have been charged, the
        paper's equation (2). The run itself can be charged less: in a shared pool a stage need not run on the cores
        it asked for.
    failures
        The first failed attempts, those lost to the infrastructure not among them; `failed_attempts` counts all.
    attempts
        Every task's runs.
    on_hold
        Since when nothing new is submitted or launched, on request; None when it is, or may be.
    quoted
        When it was expected to be done, or None.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", sections 2.2 and 4.1.
    """

    start: RunStarted
    state: RunState
    message: str
    ended: float | None
    now: float
    resumes: int
    makespan_s: float
    total_perceived_wait_s: float
    core_hours_charged: float
    core_hours_used: float
    core_hours_borrowed: float
    core_hours_wasted: float
    overhead_core_hours: float
    big_job_core_hours: float
    per_stage_core_hours: float
    stages: tuple[StageSummary, ...]
    jobs: tuple[JobSummary, ...]
    failed_attempts: int
    failures: tuple[TaskFailed, ...]
    attempts: Attempts
    on_hold: float | None = None
    quoted: Quoted | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-able numbers of the run, its stages and its jobs. Unknown values are None, only energy is left out."""
        described = ("run", "workflow", "backend", "strategy", "executor", "pool", "site", "partition")
        numbers = (
            "message", "ended", "resumes", "makespan_s", "total_perceived_wait_s", "core_hours_charged",
            "core_hours_used", "core_hours_borrowed", "core_hours_wasted", "overhead_core_hours",
            "big_job_core_hours", "per_stage_core_hours", "failed_attempts", "on_hold",
        )  # fmt: skip
        return {
            "state": self.state.value,
            **{name: getattr(self.start, name) for name in described},
            "started": self.start.at,
            **{name: getattr(self, name) for name in numbers},
            **(energy.to_json() if (energy := self.energy) else {}),
            "quoted": None if self.quoted is None else to_json(self.quoted),
            "stages": [_plain(stage) for stage in self.stages],
            "jobs": [_plain(job) for job in self.jobs],
        }

    @property
    def energy(self) -> RunEnergy | None:
        """What its jobs drew, those that go on up to now; None where nothing is measured and no model is declared."""
        own = [job for job in self.jobs if job.runs and not job.lender]
        return RunEnergy.of(own, declared_power(), declared_intensity(), self.now)

    def __repr__(self) -> str:
        return (
            f"<{self.start.run}: {self.state.value}, makespan {brief(self.makespan_s)}, waited "
            f"{brief(self.total_perceived_wait_s)}, {self.core_hours_charged:.3g} core-hours charged, "
            f"{self.core_hours_used:.3g} used>"
        )

    def _repr_html_(self) -> str:
        rows = [
            [
                escape(stage.name),
                escape(stage.state.value),
                f"{stage.done:,} of {'?' if stage.tasks is None else format(stage.tasks, ',')}",
                *("–" if time is None else brief(time) for time in (stage.perceived_wait_s, stage.run_time_s)),
            ]
            for stage in self.stages[:ROWS_MOST]
        ]
        more = f" and {len(self.stages) - len(rows)} more stages" if len(rows) < len(self.stages) else ""
        return html_table(("stage", "state", "tasks done", "waited", "ran"), rows, escape(repr(self)[1:-1]) + more)


@dataclass(frozen=True)
class RunEnergy:
    """The energy of a run's jobs.

    Parameters
    ----------
    measured_kwh, measured_jobs
        What the batch system measured, and of how many jobs.
    modelled_kwh, modelled_jobs
        What the declared model says of the others: their cores' share of idle nodes, and what busy cores add.
    unknown_jobs
        Jobs of which neither is known.
    co2_kg
        What the measured and the modelled energy stands for in the grid [kg]; None where its intensity is not known.
    """

    measured_kwh: float = 0.0
    measured_jobs: int = 0
    modelled_kwh: float = 0.0
    modelled_jobs: int = 0
    unknown_jobs: int = 0
    co2_kg: float | None = None

    @classmethod
    def of(
        cls, jobs: Sequence[JobSummary], model: tuple[NodePower, int] | None, grid: Intensity | None, now: float
    ) -> RunEnergy | None:
        """That of jobs that have started, up to now [s]; None where there is nothing to say.

        Parameters
        ----------
        model
            Of nodes, and their cores, for jobs that were not measured.
        grid
            On a clock that counts seconds since 1970. A job is taken to draw the same power from its start to its end.
        """
        known = [(job, job.energy_j) for job in jobs if job.energy_j is not None]
        rest = [job for job in jobs if job.energy_j is None]
        modelled: list[tuple[JobSummary, float]] = []
        if model is not None:
            power, cores = model
            modelled = [
                (job, power.joules(cores, HOUR * job.core_hours_charged, HOUR * job.core_hours_used)) for job in rest
            ]
        if not known and not modelled:
            return None
        measured_kwh, modelled_kwh = (sum(joules for _, joules in each) / KWH for each in (known, modelled))
        return cls(
            measured_kwh,
            len(known),
            modelled_kwh,
            len(modelled),
            len(rest) - len(modelled),
            None if grid is None else _co2_kg([*known, *modelled], grid, now),
        )

    def to_json(self) -> dict[str, Any]:
        """`energy_kwh` of all jobs, None where it is not known of some; its parts, named `energy_...`; and `co2_kg`
        where it is known."""
        parts = {f"energy_{name}": value for name, value in asdict(self).items() if name != "co2_kg"}
        whole = None if self.unknown_jobs else self.measured_kwh + self.modelled_kwh
        return {"energy_kwh": whole} | parts | ({} if self.co2_kg is None else {"co2_kg": self.co2_kg})

    def __str__(self) -> str:
        parts = [
            f"{amount:.3g} kWh {how}" + (f" ({jobs} of {self.jobs} jobs)" if jobs < self.jobs else "")
            for amount, how, jobs in (
                (self.measured_kwh, "measured", self.measured_jobs),
                (self.modelled_kwh, "modelled", self.modelled_jobs),
            )
            if jobs
        ]
        return ", ".join(parts + ([] if self.co2_kg is None else [f"{self.co2_kg:.3g} kg CO2"]))

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.measured_jobs + self.modelled_jobs + self.unknown_jobs


def _co2_kg(drawn: Sequence[tuple[JobSummary, float]], grid: Intensity, now: float) -> float | None:
    """CO2 of what jobs drew [J] until they ended, or until now [s]; None where the grid's times do not reach so far."""
    starts = np.array([job.started or now for job, _ in drawn])
    ends = np.maximum([job.ended or now for job, _ in drawn], starts + 1e-3)
    try:
        mean_g = (grid.integral(ends) - grid.integral(starts)) / (ends - starts)
    except InvalidInput as error:
        _log.warning("%s: %s", INTENSITY_VARIABLE, error)
        return None
    return float(mean_g @ [joules for _, joules in drawn]) / KWH / 1000


POWER_VARIABLE, INTENSITY_VARIABLE = "ASA_NODE_POWER", "ASA_GRID_INTENSITY"


def declared_power(environ: Mapping[str, str] = os.environ) -> tuple[NodePower, int] | None:
    """The model of nodes that the environment declares, and their cores; None where it declares none.

    One that cannot be read is said in the log, and passed over: it must spoil no report.
    """
    text = environ.get(POWER_VARIABLE, "").strip()
    if not text:
        return None
    try:
        return NodePower.of_cores(text)
    except AsaError as error:
        _log.warning("%s: %s", POWER_VARIABLE, error)
        return None


def declared_intensity(environ: Mapping[str, str] = os.environ) -> Intensity | None:
    """How much CO2 a kilowatt-hour stands for, as the environment declares it; None where it declares nothing.

    It is a number [g/kWh], or a file as `asa.metrics.intensity.read_intensity` takes it. What cannot be read is said in
    the log, and passed over.
    """
    text = environ.get(INTENSITY_VARIABLE, "").strip()
    if not text:
        return None
    try:
        return intensity_of(text, epoch=0.0)
    except AsaError as error:
        _log.warning("%s: %s", INTENSITY_VARIABLE, error)
        return None


ROWS_MOST = 100
"""Stages that a notebook shows of a summary."""


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]], below: str) -> str:
    """A table for a notebook, in the colours of the page around it, of HTML in cells and in a line below it."""
    cell = 'style="text-align:left;padding:1px 12px 1px 0"'
    body = "".join(f"<tr>{''.join(f'<td {cell}>{each}</td>' for each in row)}</tr>" for row in rows)
    top = "".join(f"<th {cell}>{each}</th>" for each in heads)
    head = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f'<div style="color:inherit"><table>{head}<tbody>{body}</tbody></table><b>{below}</b></div>'


def _plain(part: StageSummary | JobSummary) -> dict[str, Any]:
    made = {name: to_json(getattr(part, name)) for name in part.__slots__}
    return {name: value for name, value in made.items() if name != "energy_j" or value is not None}


def summarise(events: Iterable[Event | TasksDone], now: float | None = None, *, driven: bool = True) -> RunSummary:
    """Numbers of a run from its events, in the order of the log.

    Parameters
    ----------
    now
        Up to when jobs and stages without an end are counted [s since the epoch]; the time of the last event when not
        given, as befits a log that is complete.
    driven
        Whether the run's driver is alive; without one, a run that has no outcome is interrupted.

    Raises
    ------
    InvalidInput
        When the log does not say what was run.
    """
    run = FoldedRun()
    for event in events:
        run.on(event)
    return summary(run, now, driven=driven)


def summary(run: FoldedRun, now: float | None = None, *, driven: bool = True) -> RunSummary:
    """Numbers of a run so far; see `summarise`."""
    start = run.start
    if start is None:
        raise InvalidInput(
            "these events do not say what was run: give all events of a run's log, from the first (RunStarted)"
        )
    now = run.last if now is None else now
    attempts = attempts_of(run)
    jobs = tuple(_job(token, job, run, attempts, now, driven) for token, job in run.pool.ever.items())
    meant: dict[str, list[JobSummary]] = {name: [] for name in run.stages}
    for job in jobs:
        for name in job.stages:
            meant[name].append(job)
    stages = tuple(_stage(stage, run, meant[stage.spec.name], now) for stage in run.in_order)
    charged, used = sum(job.core_hours_charged for job in jobs), float(attempts.core_seconds().sum()) / HOUR
    borrowed = sum(job.core_hours_used for job in jobs if job.lender)
    run_times = [stage.run_time_s or 0.0 for stage in stages]
    return RunSummary(
        start=start,
        state=RunState.INTERRUPTED if run.outcome is RunState.RUNNING and not driven else run.outcome,
        message=run.message,
        ended=run.ended,
        now=now,
        resumes=max(0, run.drivers - 1),
        makespan_s=_finish(run, now) - start.at,
        total_perceived_wait_s=_total_wait(stages, run, now),
        core_hours_charged=charged,
        core_hours_used=used,
        core_hours_borrowed=borrowed,
        core_hours_wasted=charged - (used - borrowed),
        overhead_core_hours=sum(job.overhead_core_hours for job in jobs),
        big_job_core_hours=max((stage.cores for stage in stages), default=0) * sum(run_times) / HOUR,
        per_stage_core_hours=sum(stage.cores * time for stage, time in zip(stages, run_times, strict=True)) / HOUR,
        stages=stages,
        jobs=jobs,
        failed_attempts=run.failed,
        failures=tuple(run.failures),
        attempts=attempts,
        on_hold=run.on_hold if run.outcome is RunState.RUNNING else None,
        quoted=run.quoted,
    )


def _total_wait(stages: Iterable[StageSummary], run: FoldedRun, now: float) -> float:
    """The perceived waits on the critical path [s]."""

    def lateness(stage: StageSummary) -> tuple[float, ...]:
        end = now if stage.ended is None else stage.ended
        return end, -math.inf if stage.started is None else -stage.started, -(stage.ready or 0.0)

    total, ready = 0.0, {stage.name: stage for stage in stages if stage.ready is not None}
    last = max(ready.values(), key=lateness, default=None)
    while last is not None:
        total += last.perceived_wait_s or 0.0
        stage = run.stages[last.name]
        before = [ready[name] for name in (*stage.spec.predecessors, stage.origin) if name in ready]
        last = max(before, key=lateness, default=None)
    return total


def _finish(run: FoldedRun, now: float) -> float:
    """Where the makespan ends [s since the epoch]."""
    if run.ended is None:
        return now
    ends = (run.ended if stage.ended is None else stage.ended for stage in run.stages.values())
    return max(ends, default=run.ended)


def _job(token: str, job: Held, run: FoldedRun, attempts: Attempts, now: float, driven: bool) -> JobSummary:
    # Its end, which no driver has seen, is for the next one to find: until then it counts as that of the run.
    unseen = not driven and run.outcome is RunState.CANCELLED and job.ended is None
    ended = run.ended if unseen else job.ended
    runs = list(job.runs)
    if job.started is not None and job.ended is None:
        runs.append((job.started, max(job.started, now if ended is None else ended), job.cores))
    submitted = job.submitted
    started = runs[0][0] if runs else None
    inside = attempts.take(attempts.rows_of(token))
    readies = [run.stages[name].ready for name in job.stages]
    needed = min((ready for ready in readies if ready is not None), default=np.inf)
    early = [(start, min(end, needed), cores) for start, end, cores in runs if start < needed]
    idle = sum(cores * (end - start) - float(inside.core_seconds(start, end).sum()) for start, end, cores in early)
    return JobSummary(
        token=token,
        job_id=None if job.handle is None else job.handle.job_id,
        stages=job.stages,
        state=JobState.CANCELLED if unseen else job.job,
        cores=job.cores if job.allocated or not runs else runs[-1][2],
        nodes=tuple(job.hosts),
        walltime_s=job.request.walltime_s,
        submitted=submitted,
        started=started,
        ended=ended,
        runs=tuple((start, end) for start, end, _ in runs),
        predicted_wait_s=job.predicted_wait_s,
        wait_s=None if started is None or job.lender else max(0.0, started - submitted),
        core_hours_charged=0.0 if job.lender else sum(cores * (end - start) for start, end, cores in runs) / HOUR,
        core_hours_used=float(inside.core_seconds().sum()) / HOUR,
        overhead_core_hours=0.0 if job.lender else max(0.0, idle) / HOUR,
        reason=job.why_ended,
        lender=job.lender,
        asked_cores=job.request.resources.cores,
        energy_j=job.energy_j if len(runs) == 1 and not job.lender else None,
    )


def _since(start: float | None, now: float) -> float:
    return 0.0 if start is None else max(0.0, now - start)


def _stage(stage: StageProgress, run: FoldedRun, meant: list[JobSummary], now: float) -> StageSummary:
    """`meant` are the jobs meant for it, in the order they were asked for."""
    job = next((job for job in reversed(meant) if job.runs), meant[-1] if meant else None)
    over = now if run.ended is None else run.ended
    until = over if stage.ended is None else stage.ended
    waited_until = until if stage.started is None else stage.started
    if stage.reused and stage.reused == stage.width:
        waited_until = -math.inf  # for nothing
    return StageSummary(
        name=stage.spec.name,
        state=stage.state,
        cores=stage.spec.resources.cores,
        tasks=stage.width,
        done=stage.done,
        running=stage.running,
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
        reused=stage.reused,
        failed=len(stage.failed),
        skipped=stage.skipped,
        peak=stage.peak,
        cpu_s=stage.cpu_s,
    )


@dataclass(frozen=True, eq=False)
class PoolSize:
    """Steps: from `times[i]` to `times[i + 1]` the pool held `held[i]` cores, of which tasks used `busy[i]`.

    Parameters
    ----------
    times
        Ascending [s since the epoch], shape (n,).
    held, busy
        Cores, shape (n,) each; 0 at the end.
    """

    times: Floats
    held: Ints
    busy: Ints


def pool_size(run: RunSummary) -> PoolSize:
    """The pool of a run; jobs that run count up to the summary's `now`. ``held`` integrates to the core-hours charged
    and those that leases held, ``busy`` to those used; a job that was requeued counts with the cores it held last."""
    spans = [(start, end, job.cores) for job in run.jobs for start, end in job.runs]
    table = np.array(spans, dtype=np.float64).reshape(-1, 3)
    held = steps(table[:, 0], table[:, 1], table[:, 2].astype(np.int64))
    busy = steps(run.attempts.started, run.attempts.ended, run.attempts.cores)
    times = np.union1d(held[0], busy[0])
    return PoolSize(times, level_at(times, *held), level_at(times, *busy))


def steps(started: Floats, ended: Floats, amount: Ints) -> tuple[Floats, Ints]:
    """Times, shape (m,), and the sum of the amounts that are on from each to the next, shape (m,).

    >>> times, level = steps(np.array([0.0, 2.0]), np.array([4.0, 6.0]), np.array([3, 5]))
    >>> times.tolist(), level.tolist()
    ([0.0, 2.0, 4.0, 6.0], [3, 8, 5, 0])
    """
    times, where = np.unique(np.concatenate([started, ended]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, where, np.concatenate([amount, -amount]))
    return times, np.cumsum(change)


def level_at(when: Floats, times: Floats, level: Ints) -> Ints:
    """Levels of a step function at other times, shape as `when`; 0 before its first step."""
    return np.concatenate([np.zeros(1, dtype=np.int64), level])[np.searchsorted(times, when, side="right")]
