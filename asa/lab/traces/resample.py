"""Workloads made out of a log, as DRAS is trained with: sampled, real and synthetic jobs.

What the paper says is little; the rest is our reading, and marked as such below.

References
----------
Y. Fan et al.: Deep Reinforcement Agent for Scheduling in HPC. IPDPS 2021, sections III-C (the three phases) and IV-D
(100 jobsets for Theta: 9 sampled, 9 real weeks, 82 synthetic; 320,000 jobs together).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.patterns import Cycle, measure, span
from asa.lab.traces.site import draw, measure_classes


def sampled(log: Workload, jobs: int, *, seed: int, mean_pause_s: float | None = None) -> Workload:
    """Jobs picked from a log at random, arriving as a Poisson process: "the easiest learning environment".

    The paper: "randomly selecting jobs from the original training trace and modeling job arrival times as Poisson
    distribution following the average inter-arrival time of the original trace". Our reading: a job may be picked more
    than once; dependencies are dropped.

    Parameters
    ----------
    mean_pause_s
        Mean time between jobs [s]; > 0. Default: as in the log.
    """
    rng = np.random.default_rng(seed)
    pause = _pause(log, jobs, mean_pause_s)
    return _picked(log, rng.integers(len(log), size=jobs), _poisson(jobs, pause, rng))


def weeks(log: Workload, period_s: float = WEEK) -> list[Workload]:
    """The log cut into weeks, in order: "real" jobs. Each begins at time 0; the last may be shorter.

    The paper: "We split the original Theta training dataset into nine one-week jobsets". Two months have 8.4 weeks, so
    its last jobset is not whole either. Our reading: weeks begin with the log's first job, those without a job are left
    out, and so are dependencies on jobs of other weeks.

    Raises
    ------
    InvalidInput
        When the log has no job or the period is not above 0.
    """
    _need(log)
    if not 0 < period_s < np.inf:
        raise InvalidInput(f"a log cannot be cut every {period_s!r} s: a finite time above 0 expected")
    piece = np.floor((log.submit - log.submit[0]) / period_s).astype(np.int64)
    found = []
    for each in np.unique(piece):
        cut = log.take(piece == each)
        found.append(replace(cut, submit=cut.submit - (log.submit[0] + each * period_s)))
    return found


def synthetic(log: Workload, jobs: int, *, seed: int, mean_pause_s: float | None = None) -> Workload:
    """New jobs with the patterns of a log; time 0 is as the log's own (a multiple of weeks away from its zero).

    The paper: "synthetic jobsets that mimic Theta workload patterns in terms of hourly and daily job arrivals, and
    distributions of job sizes and runtimes", and, in Figure 3, of how accurate users' estimates are. Our reading:
    arrivals are a Poisson process whose rate is the product of the log's by hour of the day and by day of the week;
    jobs are drawn from the log's classes by size and request (`asa.lab.traces.site`), with run times between those
    of the log's jobs, so that there are jobs that the log has not. They have no users and no dependencies.

    Parameters
    ----------
    mean_pause_s
        Mean time between jobs [s]; > 0. Default: as in the log.
    """
    rng = np.random.default_rng(seed)
    pause = _pause(log, jobs, mean_pause_s)
    drawn = draw(measure_classes(log), jobs, rng)
    submit = pattern(log).clock(_poisson(jobs, pause, rng))
    return Workload.of(submit=submit, run=drawn.run, cores=drawn.cores, walltime=drawn.walltime)


def pattern(log: Workload) -> Cycle:
    """The weekly cycle of a log: its rate by hour of the day times that by day of the week."""
    hours = np.array(measure(log.submit, DAY, 24).weights)
    days = np.array(measure(log.submit, WEEK, 7).weights) if span(log) >= WEEK else np.ones(7)
    return Cycle(tuple(np.outer(days / days.mean(), hours / hours.mean()).ravel().tolist()), len(days) * 24 * HOUR)


def _need(log: Workload) -> None:
    if not len(log):
        raise InvalidInput("there is no job in the log to make others from")


def _pause(log: Workload, jobs: int, mean_pause_s: float | None) -> float:
    _need(log)
    pause = span(log) / max(len(log) - 1, 1) if mean_pause_s is None else mean_pause_s
    if jobs < 1 or not 0 < pause < np.inf:
        raise InvalidInput(
            f"no workload of {jobs} jobs with a mean of {pause:g} s between them: at least one job and a time above "
            "0 s expected; name mean_pause_s where the log's jobs come all at once"
        )
    return pause


def _poisson(jobs: int, pause: float, rng: np.random.Generator) -> Floats:
    return np.cumsum(rng.exponential(pause, jobs))


def _picked(log: Workload, rows: Ints, submit: Floats) -> Workload:
    """These jobs of the log, at these times."""
    changed: dict[str, Any] = {
        item.name: getattr(log, item.name)[rows]
        for item in fields(log)
        if item.name not in ("demands", "resources", "labels", "moldable")
    }
    changed |= {
        "submit": submit,
        "number": np.arange(1, len(rows) + 1),
        "after": np.full(len(rows), UNKNOWN),
        "think": np.zeros(len(rows)),
        "wait": np.full(len(rows), np.nan),
        "moldable": None if log.moldable is None else log.moldable.take(rows),
    }
    return replace(log, **changed)
