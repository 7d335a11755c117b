"""Run times of queued jobs from the last job of the same user that looks alike: the data-driven heuristic."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator

from asa.core.view import QueuedJob
from asa.lab.dispatchers.predictors import capped, checked_default, fallback

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

    Parameters
    ----------
    default_s
        What is predicted [s] where there is neither such a job nor a wall time.

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
        """Expected run time [s].

        Raises
        ------
        InvalidInput
            When no rule finds a job, this one has no wall time, and there is no default.
        """
        for likeness in _likenesses(job):
            if (run_time_s := self._last.get(likeness)) is not None:
                return capped(run_time_s, job)
        return fallback(job, self._default)

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """`job` ran for `run_time_s` [s]."""
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
