"""Run times of queued jobs, for dispatchers: as users ask, as their last two jobs, or as it will be.

Each is a `asa.core.ports.JobPredictor`. The one that compares jobs is in `asa.lab.dispatchers.predictors_datadriven`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from asa.core.decision import JobKey
from asa.core.errors import InvalidInput
from asa.core.view import QueuedJob

Runs = Mapping[JobKey, float] | Mapping[int, float] | Mapping[str, float] | Sequence[float] | npt.NDArray[np.float64]


class UserEstimate:
    """The wall time that the user asked for.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> UserEstimate().predict(QueuedJob("17", Resources(), walltime_s=3600.0, submitted=0.0))
    3600.0
    """

    def predict(self, job: QueuedJob) -> float:
        """Expected run time [s].

        Raises
        ------
        InvalidInput
            When the job has no wall time.
        """
        return walltime(job, "choose a predictor that does without (oracle), or one that can be given a default")

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Nothing is learned."""


class LastTwo:
    """Mean run time of the user's last two jobs that have ended, at most the wall time.

    As in Tsafrir et al., the wall time is predicted until two jobs of the user have ended. Jobs of unknown users have
    no history. What becomes of a prediction that its job outlives is not decided here.

    Parameters
    ----------
    default_s
        What is predicted [s] where there is neither a history nor a wall time.

    References
    ----------
    D. Tsafrir, Y. Etsion and D. G. Feitelson, "Backfilling using system-generated predictions rather than user runtime
    estimates", IEEE TPDS 18(6), 2007.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> job = QueuedJob("17", Resources(), walltime_s=3600.0, submitted=0.0, user="ann")
    >>> predictor = LastTwo()
    >>> predictor.learn(job, 100.0)
    >>> predictor.predict(job)
    3600.0
    >>> predictor.learn(job, 300.0)
    >>> predictor.predict(job)
    200.0
    """

    def __init__(self, default_s: float | None = None) -> None:
        self._default = checked_default(default_s)
        self._last: dict[str, tuple[float, ...]] = {}

    def predict(self, job: QueuedJob) -> float:
        """Expected run time [s].

        Raises
        ------
        InvalidInput
            When the job has no wall time, its user no history, and there is no default.
        """
        last = self._last.get(job.user, ())
        if len(last) < 2:
            return fallback(job, self._default)
        return capped(sum(last) / 2, job)

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """`job` ran for `run_time_s` [s]."""
        if job.user:
            self._last[job.user] = (*self._last.get(job.user, ()), run_time_s)[-2:]


class Oracle:
    """The run time that the job will have.

    Parameters
    ----------
    runs
        Run times [s] by the keys of the jobs; for the jobs of a simulated workload, its column of run times.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> Oracle([60.0, 5.0]).predict(QueuedJob(1, Resources(), walltime_s=3600.0, submitted=0.0))
    5.0
    """

    def __init__(self, runs: Runs) -> None:
        self._runs: Mapping[JobKey, float] = dict(runs.items() if isinstance(runs, Mapping) else enumerate(runs))

    def predict(self, job: QueuedJob) -> float:
        """Run time [s].

        Raises
        ------
        InvalidInput
            When nobody told it that of this job.
        """
        if job.key not in self._runs:
            raise InvalidInput(f"the oracle was not told how long job {job.key!r} runs: give it the run times of all")
        return float(self._runs[job.key])

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Nothing is learned."""


def walltime(job: QueuedJob, advice: str) -> float:
    """The wall time of a job [s].

    Raises
    ------
    InvalidInput
        When it has none; says what to do instead.
    """
    if not math.isfinite(job.walltime_s):
        raise InvalidInput(f"job {job.key!r} has no wall time, so nobody knows how long it may run: {advice}")
    return job.walltime_s


def fallback(job: QueuedJob, default_s: float | None) -> float:
    """What to predict where nothing was learned [s]: the wall time, or the default where there is none.

    Raises
    ------
    InvalidInput
        When there is neither.
    """
    if default_s is not None and not math.isfinite(job.walltime_s):
        return default_s
    return walltime(job, "give the predictor a default (default_s), or choose the oracle")


def capped(run_time_s: float, job: QueuedJob) -> float:
    """A prediction [s] that is not above the wall time, where there is one."""
    return run_time_s if math.isnan(job.walltime_s) else min(run_time_s, job.walltime_s)


def checked_default(default_s: float | None) -> float | None:
    """A default prediction [s].

    Raises
    ------
    InvalidInput
        When it is not a finite time above 0 s.
    """
    if default_s is not None and not 0 < default_s < math.inf:
        raise InvalidInput(f"default_s must be a finite time above 0 s, not {default_s!r}")
    return default_s
