"""Run times of queued jobs, for dispatchers: as users ask, as earlier jobs, by a heuristic, or as it will be.

Each is a `asa.core.ports.JobPredictor`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from asa.core.decision import JobKey
from asa.core.errors import InvalidInput
from asa.core.units import check_number
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
        return walltime(job, "choose a predictor that does without (oracle), or one that can be given a default")

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Nothing is learned."""


class LastTwoOfUser:
    """Mean run time of the user's last two jobs that have ended, at most the wall time.

    As in Tsafrir et al., the wall time is predicted until two jobs of the user have ended. Jobs of unknown users have
    no history. What becomes of a prediction that its job outlives is not decided here.

    References
    ----------
    D. Tsafrir, Y. Etsion and D. G. Feitelson, "Backfilling using system-generated predictions rather than user runtime
    estimates", IEEE TPDS 18(6), 2007.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> job = QueuedJob("17", Resources(), walltime_s=3600.0, submitted=0.0, user="ann")
    >>> predictor = LastTwoOfUser()
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
        last = self._last.get(job.user, ())
        if len(last) < 2:
            return fallback(job, self._default)
        return capped(sum(last) / 2, job)

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        if job.user:
            self._last[job.user] = (*self._last.get(job.user, ()), run_time_s)[-2:]


class AlikeJobs:
    """Geometric mean of the run times of the user's last four jobs that look most alike, at most the wall time.

    Alike are jobs of the same name, wall time and resources; if none has ended, of the same name and wall time; then of
    the same wall time; then all of the user's. Without any, the wall time is predicted. The mean is geometric because
    run times of one user differ by factors.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from asa.core.job import Resources
    >>> job = QueuedJob("17", Resources(), walltime_s=3600.0, submitted=0.0, user="ann", name="fold")
    >>> predictor = AlikeJobs()
    >>> for run_time_s in (10.0, 1000.0):
    ...     predictor.learn(job, run_time_s)
    >>> round(predictor.predict(job)), round(predictor.predict(replace(job, name="other", walltime_s=60.0)))
    (100, 60)
    """

    def __init__(self, default_s: float | None = None, last: int = 4) -> None:
        check_number("last", last, 1, whole=True)
        self._default, self._most = checked_default(default_s), last
        self._last: dict[Hashable, tuple[float, ...]] = {}

    def predict(self, job: QueuedJob) -> float:
        for likeness in self._likenesses(job):
            if logarithms := self._last.get(likeness):
                return capped(math.exp(sum(logarithms) / len(logarithms)), job)
        return fallback(job, self._default)

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Less than a second counts as one."""
        logarithm = math.log(max(run_time_s, 1.0))
        for likeness in self._likenesses(job):
            self._last[likeness] = (*self._last.get(likeness, ()), logarithm)[-self._most :]

    def _likenesses(self, job: QueuedJob) -> Iterator[Hashable]:
        """What others have in common with this job, most first; nothing where its user is not known."""
        if job.user:
            walltime_s = repr(job.walltime_s)  # as text, NaN equals itself
            yield job.user, job.name, walltime_s, job.resources
            yield job.user, job.name, walltime_s
            yield job.user, walltime_s
            yield job.user


class NearestJobs:
    """Mean run time of the jobs nearest to this one, of the last that have ended, at most the wall time.

    The distance of two jobs is 3 if they are of two users, and 2 if of two names; and the logarithm of the ratio of
    their wall times, and half that of their cores. It grows by 1 while `last` others end. What is not known of both is
    equal. Weights in the mean fall by e with each 0.5 of distance. The wall time is predicted until one job has ended.

    The mean is arithmetic because it decides which job goes first: with the geometric one, jobs that often fail at once
    look short, and mean waits on KTH SP2 are longer by some tenth. Jobs that wait are predicted again when one of their
    user's ends (`renews`). The distance is ours; sites also know queues and groups, which dispatchers do not see.

    Parameters
    ----------
    nearest
        How many jobs make the mean; >= 1.
    last
        How many jobs are remembered; >= 1.

    References
    ----------
    N. H. Kapadia, J. A. B. Fortes and C. E. Brodley, "Predictive application-performance modeling in a computational
    grid environment", HPDC 1999, for nearest neighbours; W. Smith, I. Foster and V. Taylor, "Predicting application run
    times with historical information", JPDC 64(9), 2004, for what makes jobs look alike.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from asa.core.job import Resources
    >>> job = QueuedJob("17", Resources(), walltime_s=3600.0, submitted=0.0, user="ann", name="fold")
    >>> predictor = NearestJobs(nearest=1)
    >>> predictor.learn(job, 100.0)
    >>> predictor.learn(replace(job, name="other"), 1000.0)
    >>> predictor.predict(job), predictor.predict(replace(job, walltime_s=60.0))
    (100.0, 60.0)
    """

    renews = True

    def __init__(self, default_s: float | None = None, nearest: int = 8, last: int = 4000) -> None:
        for name, value in (("nearest", nearest), ("last", last)):
            check_number(name, value, 1, whole=True)
        self._default, self._nearest, self._last = checked_default(default_s), nearest, last
        self._codes: dict[str, int] = {"": 0}
        self._jobs, self._count = np.zeros((5, last)), 0  # codes of user and name; logarithms; run time [s]
        self._made: dict[tuple[float, ...], float] = {}  # predictions since the last end

    def predict(self, job: QueuedJob) -> float:
        if not self._count:
            return fallback(job, self._default)
        mine = self._features(job)
        if mine not in self._made:
            self._made[mine] = self._mean(mine)
        return capped(self._made[mine], job)

    def _mean(self, mine: tuple[float, ...]) -> float:
        """Weighted mean run time of the nearest jobs [s]."""
        user, name, walltime_s, cores, runs = self._jobs[:, : min(self._count, self._last)]
        far = (self._count - 1 - np.arange(len(runs))) % self._last / self._last
        far += 3.0 * (user != mine[0]) + 2.0 * (name != mine[1])
        far += np.abs(walltime_s - mine[2]) + 0.5 * np.abs(cores - mine[3])
        near = np.argpartition(far, self._nearest)[: self._nearest] if len(far) > self._nearest else np.arange(len(far))
        return float(np.average(runs[near], weights=np.exp(2.0 * (far.min() - far[near]))))

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Less than a second counts as one."""
        self._jobs[:, self._count % self._last] = *self._features(job), max(run_time_s, 1.0)
        self._count += 1
        self._made.clear()

    def _features(self, job: QueuedJob) -> tuple[float, ...]:
        """Codes of user and name, and logarithms of wall time and cores; 0 for what is not known."""
        user, name = (self._codes.setdefault(text, len(self._codes)) for text in (job.user, job.name))
        walltime_s = math.log(job.walltime_s) if math.isfinite(job.walltime_s) else 0.0
        return user, name, walltime_s, math.log(job.resources.cores)


class Oracle:
    """The run time that the job will have.

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
            When the run time of this job was not given.
        """
        if job.key not in self._runs:
            raise InvalidInput(f"the oracle has no run time of job {job.key!r}: give it the run times of all jobs")
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
        raise InvalidInput(f"job {job.key!r} has no wall time, so it is not known how long it may run: {advice}")
    return job.walltime_s


def fallback(job: QueuedJob, default_s: float | None) -> float:
    """What to predict where nothing was learned [s]: the wall time, or the default where there is none."""
    if default_s is not None and not math.isfinite(job.walltime_s):
        return default_s
    return walltime(job, "give the predictor a default, as in last-two:default_s=3600, or choose the oracle")


def capped(run_time_s: float, job: QueuedJob) -> float:
    """A prediction [s] that is not above the wall time, where there is one."""
    return run_time_s if math.isnan(job.walltime_s) else min(run_time_s, job.walltime_s)


def checked_default(default_s: float | None) -> float | None:
    """A default prediction [s]."""
    if default_s is not None and not 0 < default_s < math.inf:
        raise InvalidInput(f"default_s must be a finite time above 0 s, not {default_s!r}")
    return default_s


# -- The data-driven heuristic ----------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[-_.]*\d+$")


class DataDriven:
    """The run time of the user's last job that has ended and looks most alike, at most the wall time.

    Users run much the same again and again. Rules are tried in turn, each on the jobs of the same user, and the first
    that finds one gives the prediction:

    1. the same name, wall time and resources;
    2. the same, but for the number at the end of the name (``job1``, ``job2``);
    3. the same name and wall time;
    4. the same, but for the number at the end of the name;
    5. the same name;
    6. the same, but for the number at the end of the name;
    7. none: the wall time.

    Jobs without a name, or of unknown users, are like no other. Deviations: rules 1 to 4 of the paper also ask for the
    same queue, which dispatchers do not see. What is meant by the prefix of a name follows its reason ("the same job
    name followed by a number"); the authors' later program takes any common beginning, the longest first.

    References
    ----------
    C. Galleguillos, A. Sîrbu, Z. Kiziltan, O. Babaoglu, A. Borghesi and T. Bridi, "Data-driven job dispatching in HPC
    systems", MOD 2017; used by C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher
    for modern HPC systems and applications", 2020, section 4. The rules are spelled out in the authors' cp_dispatchers.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> old = QueuedJob("1", Resources(cores=4), walltime_s=3600.0, submitted=0.0, user="ann", name="fold7")
    >>> new = QueuedJob("2", Resources(cores=4), walltime_s=3600.0, submitted=0.0, user="ann", name="fold8")
    >>> predictor = DataDriven()
    >>> predictor.predict(new)
    3600.0
    >>> predictor.learn(old, 70.0)
    >>> predictor.predict(new)
    70.0
    """

    def __init__(self, default_s: float | None = None) -> None:
        self._default = checked_default(default_s)
        self._last: dict[Hashable, float] = {}

    def predict(self, job: QueuedJob) -> float:
        for likeness in _likenesses(job):
            if (run_time_s := self._last.get(likeness)) is not None:
                return capped(run_time_s, job)
        return fallback(job, self._default)

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        self._last.update(dict.fromkeys(_likenesses(job), run_time_s))


def _likenesses(job: QueuedJob) -> Iterator[Hashable]:
    """What other jobs must have in common with this one, most first; equal when they have."""
    if not (job.user and job.name):
        return
    stem = _NUMBER.sub("", job.name) or job.name  # a name that is all number is a name
    walltime_s = repr(job.walltime_s)  # as text, NaN equals itself
    for rule, alike in enumerate(((walltime_s, job.resources), (walltime_s,), ())):
        yield rule, "name", job.user, job.name, *alike
        yield rule, "stem", job.user, stem, *alike
