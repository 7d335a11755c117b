"""Rows of the page's tables. Times are seconds since the epoch, cut to milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from asa.core.context import geometry_of
from asa.core.event import Learned, RunState
from asa.core.job import Resources, explained
from asa.core.run import ATTEMPT, AttemptLog, FoldedRun, Held, StageProgress
from asa.core.stage import StageSpec
from asa.dashboard.document import plain
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary
from asa.report.words import last_words, quote_words, stage_state
from asa.workflows.explain import Reasons

Row = dict[str, Any]
Bar = list[float]
"""A run of a task: stage, index, job and node (see the table `names`), cores, start and end [s since the run's start],
outcome (`asa.core.run.TaskOutcome`)."""

TaskUse = tuple[Resources, float]
"""What a task uses, and when it was launched [s since the epoch]."""

WORDS_MOST = 600
"""Letters of an error or a reason that are shown; the end of it, which matters."""
NODES_MOST = 64
"""Names of nodes that a job's row has."""


def run_row(run: RunSummary, trouble: str) -> Row:
    """The run, by field."""
    start = run.start
    described = ("run", "workflow", "backend", "strategy", "executor", "pool", "site", "partition")
    hours = ("charged", "used", "borrowed", "wasted")
    return {
        **{name: getattr(start, name) for name in described},
        "state": run.state.value,
        "held": run.on_hold is not None,
        "message": last_words(run.message, WORDS_MOST),
        "trouble": last_words(trouble, WORDS_MOST),
        "quote": quote_words(run.quoted, run.state, run.ended, run.now, virtual=start.is_virtual),
        "started": plain(start.at),
        "ended": plain(run.ended),
        "resumes": run.resumes,
        "failed_attempts": run.failed_attempts,
        "makespan_s": plain(run.makespan_s),
        "total_perceived_wait_s": plain(run.total_perceived_wait_s),
        **{f"core_hours_{name}": plain(getattr(run, f"core_hours_{name}"), 5) for name in hours},
        **{f"{name}_core_hours": plain(getattr(run, f"{name}_core_hours"), 5) for name in _COMPARED},
    }


def expected_end(run: FoldedRun, now: float) -> float | None:
    """When a run that goes on is expected to be over, at a time [s since the epoch]; None of one that does not.

    Each stage begins when those before it have ended and its job is expected to have started. It takes as long as is
    predicted or, once a fifth of its tasks is done, as these make likely; where nothing is known, its wall time.
    """
    if run.outcome is not RunState.RUNNING:
        return None
    ends: dict[str, float] = {}
    for stage in run.in_order:
        ready = max([now, *(ends[name] for name in stage.spec.predecessors if name in ends)])
        waits = [
            now if held.started is not None else held.asked + (held.predicted_wait_s or 0.0)
            for held in run.pool.held.values()
            if stage.spec.name in held.stages and not held.ending
        ]
        if stage.state.final:
            ends[stage.spec.name] = now
        elif (running := stage.expected_end(now)) is not None:
            ends[stage.spec.name] = running
        else:
            ends[stage.spec.name] = max([ready, *([min(waits)] if waits else [])]) + stage.spec.run_time_s
    return max(ends.values(), default=now)


_COMPARED = ("overhead", "big_job", "per_stage")


def stage_row(position: int, stage: StageSummary, run: RunSummary, progress: StageProgress) -> Row:
    """The stage at this position of the workflow; `state` as reports say it. It is after the one that added it, too."""
    spec, added_by = progress.spec, [progress.origin] if progress.origin else []
    times = ("ready", "started", "ended", "predicted_wait_s", "wait_s", "perceived_wait_s", "run_time_s")
    return {
        "position": position,
        "state": stage_state(stage, run),
        "after": list(dict.fromkeys([*added_by, *spec.predecessors])),
        "cores": stage.cores,
        "task_cores": spec.task.cores,
        "tasks": stage.tasks,
        "done": stage.done,
        "running": stage.running,
        "job": stage.job,
        **{name: plain(getattr(stage, name)) for name in times},
        "error": last_words(stage.error, WORDS_MOST),
    }


def job_row(job: JobSummary, held: Held, run: RunState) -> Row:
    """A job, or a lease, of a run in this state; of one that runs, the last of `runs` has no end.

    `predicted` is when it was to start.
    """
    runs: list[list[float | None]] = [[plain(start), plain(end)] for start, end in job.runs]
    ends = held.ends if job.ended is None else None
    if ends is not None:
        runs[-1][1] = None
    predicted = None if job.predicted_wait_s is None else plain(job.submitted + job.predicted_wait_s)
    busy = min(held.cores_busy, job.cores) if job.ended is None else 0
    return {
        "id": job.job_id,
        "for": list(job.stages),
        "state": "unknown" if run is RunState.INTERRUPTED and job.ended is None else job.state.value,
        "leaving": held.ending,
        "cores": job.cores,
        "busy": busy,
        "nodes": list(job.nodes[:NODES_MOST]),
        "after": list(held.after) if job.ended is None else [],
        "walltime_s": job.walltime_s,
        "submitted": plain(job.submitted),
        "predicted": predicted,
        "wait_s": plain(job.wait_s),
        "runs": runs,
        "ends": plain(ends),
        "ended": plain(job.ended),
        "charged": plain(job.core_hours_charged, 5),
        "used": plain(job.core_hours_used, 5),
        "early": plain(job.overhead_core_hours, 5),
        "reason": last_words(job.reason, WORDS_MOST),
        "queue": explained(held.reason) if job.ended is None and held.reason else "",
        "lender": job.lender,
    }


def begun(held: Held) -> Iterator[tuple[tuple[str, int], TaskUse]]:
    """Tasks that an allocation has and that have not reported: those that came first, as many as have room at a time.
    Further ones wait for it there."""
    if held.started is None and not held.lender:
        return
    room = held.cores
    for key, use in held.running.items():
        room -= use[0].cores
        if room < 0:
            break
        yield key, use


def underway(held: Held, numbers: Mapping[str, int]) -> list[list[float]]:
    """Those tasks as numbers: place of the stage in the workflow, index, cores, and when it was given out."""
    return [
        [numbers[stage], index, needs.cores, round(launched, 3)] for (stage, index), (needs, launched) in begun(held)
    ]


def node_rows(held: Mapping[str, Held]) -> dict[str, Row]:
    """The nodes that take part now, by allocation and name."""
    return {
        f"{key} {node}": {"job": key, "node": node, "cores": cores}
        for key, item in held.items()
        for node, cores in item.nodes.items()
    }


def wait_row(event: Learned, run: FoldedRun) -> Row:
    """A wait that became known, and what had been said of it."""
    return {
        "at": plain(event.at),
        "stage": event.stage,
        "geometry": geometry(event, run),
        "wait_s": plain(event.wait_s),
        "predicted_s": plain(event.predicted_s),
        "censored": event.censored,
    }


def geometry(event: Learned, run: FoldedRun) -> str | None:
    """Of the job whose wait became known; None where the log does not have its submission."""
    job, start = run.pool.ever.get(event.allocation), run.start
    if job is None or start is None:
        return None
    return str(geometry_of(start.site, start.partition, job.request.resources.cores, job.request.walltime_s))


def why_rows(why: Reasons) -> dict[str, str]:
    """Why stages are not running, by stage; what the strategy says of itself has the key ""."""
    words = ({"": why.strategy} if why.strategy else {}) | why.stages
    return {key: last_words(text, WORDS_MOST) for key, text in words.items()}


def bars(log: AttemptLog, spec: Callable[[str], StageSpec], first: int, last: int | None, zero: float) -> list[Bar]:
    """Runs of tasks from the row `first` to before `last`, or all; see `Bar`."""
    end = None if last is None else last * ATTEMPT.size
    cores, found = [spec(name).task.cores for name in log.stages], list[Bar]()
    for stage, index, job, node, outcome, *times in ATTEMPT.iter_unpack(log.records[first * ATTEMPT.size : end]):
        started, ended = (round(time - zero, 3) for time in times)
        found.append([stage, index, job, node, cores[stage], started, ended, outcome])
    return found
