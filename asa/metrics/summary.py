"""The numbers of a run, its stages and its jobs, as records.

All times are seconds since the epoch, all durations seconds, all core-hours cores times hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asa.core.event import RunStarted, RunState, TaskFailed
from asa.core.job import JobState
from asa.core.serial import to_json
from asa.core.stage import StageState
from asa.metrics.attempts import Attempts


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


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job of the run, whether it ever started or not.

    Parameters
    ----------
    token, job_id
        ASA's name for it, and the batch system's own; None when it was never taken.
    lender
        "" for a job of the run's own. Else the run of which part of a job was leased: nothing of that is charged here.
    runs
        From when to when it held its cores; more than one pair when it was requeued. A job that runs is counted up
        to now.
    started, ended
        Its first start, and when it ended for good.
    wait_s
        From submission to the first start [s]; None while it has not started.
    core_hours_charged
        Cores times the time it held them.
    core_hours_used
        Task cores times task run times, failed attempts included; tasks count once they have reported.
    overhead_core_hours
        Held idle because the job came early: cores times the time from its start to when the first of its stages
        became ready, less what tasks of other stages used in it meanwhile.
    reason
        Why it was cancelled or how it ended, in the words of the run or of the site.
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
        Time during which any stage was ready and had not begun [s]: the sum over the stages of a sequence, as in the
        paper; stages that wait at the same time count once.
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

    def to_json(self) -> dict[str, Any]:
        """JSON-able numbers of the run, its stages and its jobs. Unknown values are None, none is left out."""
        described = ("run", "workflow", "backend", "strategy", "executor", "pool", "site", "partition")
        numbers = (
            "message", "ended", "resumes", "makespan_s", "total_perceived_wait_s", "core_hours_charged",
            "core_hours_used", "core_hours_borrowed", "core_hours_wasted", "overhead_core_hours",
            "big_job_core_hours", "per_stage_core_hours", "failed_attempts",
        )  # fmt: skip
        return {
            "state": self.state.value,
            **{name: getattr(self.start, name) for name in described},
            "started": self.start.at,
            **{name: getattr(self, name) for name in numbers},
            "stages": [_plain(stage) for stage in self.stages],
            "jobs": [_plain(job) for job in self.jobs],
        }


def _plain(part: StageSummary | JobSummary) -> dict[str, Any]:
    return {name: to_json(getattr(part, name)) for name in part.__slots__}
