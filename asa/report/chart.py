"""What a Gantt chart of a run shows, before it is drawn. Times are seconds from the start of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asa.core.arrays import Floats, Ints
from asa.core.run import TaskOutcome
from asa.metrics.attempts import Attempts
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary, pool_size, steps
from asa.report.picture import LIGHT

Span = tuple[float, float]

LANES_MOST = 48
"""Jobs with more cores show how many are busy, not which task is on which."""

TASKS_DRAWN = 1500
"""Tasks drawn one by one in a chart; jobs beyond that show how many cores are busy."""

ROWS_DRAWN = 120
"""Rows of stages, and of jobs, in a chart."""

BINS = 240
CURVE_POINTS = 20_000
"""Steps of a curve, and of all curves of jobs in a chart, at most; finer ones are averaged."""


@dataclass(frozen=True, slots=True)
class TaskBox:
    """A task in its allocation: lanes `lane` to `lane + cores - 1`; `position` is its stage's."""

    span: Span
    lane: int
    cores: int
    position: int
    index: int
    outcome: TaskOutcome


@dataclass(frozen=True, eq=False)
class Curve:
    """Cores busy with tasks of one colour and of those below it: `level[i]` on average from `times[i]` to
    `times[i + 1]`, shapes (n + 1,) and (n,)."""

    colour: int
    times: Floats
    level: Floats


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage: its perceived wait, from first launch to end, and when its tasks ran within that."""

    stage: StageSummary
    position: int
    wait: Span | None
    span: Span | None
    active: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: its wait in the queue, when it held its cores, which of that came too early; tasks or curves within.
    `predicted` is when it was expected to start."""

    job: JobSummary
    queued: Span
    runs: tuple[Span, ...]
    early: tuple[Span, ...]
    predicted: float | None
    tasks: tuple[TaskBox, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True, eq=False)
class Chart:
    """Rows of stages and jobs, and the pool below them, on one time axis from 0 to `span_s` [s].

    Parameters
    ----------
    pool_times, held, busy
        Cores in the pool from each time to the next, on average, shapes (n + 1,), (n,) and (n,).
    peak
        Most cores held at any time.
    stages_left_out, jobs_left_out
        Rows there was no room for; jobs that never started are left out first.
    """

    span_s: float
    stages: tuple[StageRow, ...]
    jobs: tuple[JobRow, ...]
    stages_left_out: int
    jobs_left_out: int
    pool_times: Floats
    held: Floats
    busy: Floats
    peak: int


def chart(run: RunSummary) -> Chart:
    """Lay a run out."""
    zero = run.start.at
    last = max([run.makespan_s, *(job.runs[-1][1] - zero for job in run.jobs if job.runs)])
    span_s = max(last, 1e-3)
    rows = tuple(_job_rows(run))
    stages = tuple(_stage_row(stage, run, position) for position, stage in enumerate(run.stages[:ROWS_DRAWN]))
    size = pool_size(run)
    times = size.times - zero
    return Chart(
        span_s=span_s,
        stages=stages,
        jobs=rows,
        stages_left_out=len(run.stages) - len(stages),
        jobs_left_out=len(run.jobs) - len(rows),
        pool_times=_edges(times, 2 * BINS),
        held=_average(times, size.held, _edges(times, 2 * BINS)),
        busy=_average(times, size.busy, _edges(times, 2 * BINS)),
        peak=int(size.held.max(initial=0)),
    )


def _job_rows(run: RunSummary) -> Iterator[JobRow]:
    zero = run.start.at
    positions = {stage.name: position for position, stage in enumerate(run.stages)}
    ready = {stage.name: stage.ready for stage in run.stages}
    jobs = sorted(run.jobs, key=lambda job: (not job.runs, job.submitted))[:ROWS_DRAWN]
    budget = TASKS_DRAWN
    bins = min(BINS, CURVE_POINTS // max(1, len(jobs) * min(len(LIGHT), len(run.stages))))
    for job in sorted(jobs, key=lambda job: job.submitted):
        inside = run.attempts.take(run.attempts.rows_of(job.token))
        singly = job.cores <= LANES_MOST and len(inside) <= budget
        budget -= len(inside) if singly else 0
        readies = [time for name in job.stages if (time := ready[name]) is not None]
        needed = -np.inf if job.lender else min(readies, default=np.inf)
        over = run.now if job.ended is None else job.ended
        yield JobRow(
            job,
            queued=(job.submitted - zero, max(job.submitted, over if job.started is None else job.started) - zero),
            runs=tuple((start - zero, end - zero) for start, end in job.runs),
            early=tuple((start - zero, min(end, needed) - zero) for start, end in job.runs if start < needed),
            predicted=None if job.predicted_wait_s is None else job.submitted - zero + job.predicted_wait_s,
            tasks=_boxes(inside, job.cores, zero, positions) if singly else (),
            curves=() if singly else _curves(inside, zero, positions, bins),
        )


def _stage_row(stage: StageSummary, run: RunSummary, position: int) -> StageRow:
    zero = run.start.at
    over = run.now if run.ended is None else run.ended
    end = over if stage.ended is None else stage.ended
    wait = span = None
    if stage.ready is not None and stage.perceived_wait_s:
        wait = (stage.ready - zero, stage.ready - zero + stage.perceived_wait_s)
    if stage.started is not None:
        span = (stage.started - zero, max(stage.started, end) - zero)
    names = run.attempts.stage_names
    rows = np.flatnonzero(run.attempts.stage == (names.index(stage.name) if stage.name in names else -1))
    return StageRow(stage, position, wait, span, _busy_spans(run.attempts.take(rows), zero, run.makespan_s))


def _busy_spans(attempts: Attempts, zero: float, span_s: float) -> tuple[Span, ...]:
    """When any of these ran; gaps too small to be seen are closed."""
    order = np.argsort(attempts.started, kind="stable")
    started, ended = attempts.started[order] - zero, np.maximum.accumulate(attempts.ended[order]) - zero
    new = np.flatnonzero(started[1:] > ended[:-1] + span_s / 1000) + 1
    firsts, lasts = np.concatenate([[0], new])[: len(started)], np.concatenate([new - 1, [-1]])
    return tuple((float(started[first]), float(ended[last])) for first, last in zip(firsts, lasts, strict=False))


def _boxes(inside: Attempts, cores: int, zero: float, positions: dict[str, int]) -> tuple[TaskBox, ...]:
    lanes = pack(inside.started, inside.ended, inside.cores, cores)
    return tuple(
        TaskBox(
            (attempt.started - zero, attempt.ended - zero),
            int(lane),
            min(attempt.cores, cores),
            positions[attempt.stage],
            attempt.index,
            attempt.outcome,
        )
        for attempt, lane in zip(inside, lanes, strict=True)
    )


def _curves(inside: Attempts, zero: float, positions: dict[str, int], most: int) -> tuple[Curve, ...]:
    """Stacked curves of at most `most` steps, the uppermost first."""
    if not len(inside):
        return ()
    colours = np.array([positions[name] % len(LIGHT) for name in inside.stage_names])[inside.stage]
    edges = _edges(np.union1d(inside.started, inside.ended), most)
    curves, below = [], np.zeros(len(edges) - 1)
    for colour in np.unique(colours):
        part = inside.take(np.flatnonzero(colours == colour))
        below = below + _average(*steps(part.started, part.ended, part.cores), edges)
        curves.append(Curve(int(colour), edges - zero, below))
    return tuple(reversed(curves))


def _edges(times: Floats, most: int) -> Floats:
    """The step times themselves, or as many equal steps as there may be."""
    return times if len(times) <= most + 1 else np.linspace(times[0], times[-1], most + 1)


def _average(times: Floats, level: Ints, edges: Floats) -> Floats:
    """Mean of a step function between neighbouring edges, shape (n - 1,)."""
    if len(edges) < 2:
        return np.empty(0)
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.asarray(np.diff(np.interp(edges, times, area)) / np.diff(edges))


def pack(
    started: NDArray[np.float64], ended: NDArray[np.float64], cores: NDArray[np.int64], lanes: int
) -> NDArray[np.int64]:
    """The lowest of the neighbouring lanes that each task gets, shape (n,).

    Tasks take the lowest lanes that are free. Where none are free side by side (cores are handed out in any order, and
    clocks differ), a task gets those that are free soonest.

    Parameters
    ----------
    started, ended
        [s], shape (n,) each.
    cores
        Lanes that each task takes, shape (n,); cut to `lanes`.
    lanes
        Number of lanes.

    Examples
    --------
    >>> pack(np.array([0.0, 0.0, 5.0]), np.array([9.0, 4.0, 8.0]), np.array([1, 2, 1]), 3).tolist()
    [0, 1, 1]
    """
    free = np.zeros(lanes) - np.inf
    lowest = np.zeros(len(started), dtype=np.int64)
    for task in np.argsort(started, kind="stable"):
        width = min(int(cores[task]), lanes)
        ready = np.lib.stride_tricks.sliding_window_view(free, width).max(axis=1)
        room = np.flatnonzero(ready <= started[task] + 1e-6)
        lowest[task] = lane = room[0] if len(room) else ready.argmin()
        free[lane : lane + width] = ended[task]
    return lowest
