from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.ports import JobPredictor
from asa.core.view import QueuedJob
from asa.lab.dispatchers.predictors import DataDriven, LastTwoOfUser, Oracle, UserEstimate
from tests.lab.traces.shared import swf_columns

HOUR = 3600.0
JOB = QueuedJob(0, Resources(cores=4), walltime_s=HOUR, submitted=0.0, user="ann", name="fold")


@dataclass(frozen=True)
class Record:
    """A job of a log, and what became of it."""

    job: QueuedJob
    wait: float
    run: float


def errors(log: Sequence[Record], predictor: JobPredictor) -> np.ndarray:
    """Predictions and run times [s], shape (n, 2); each is predicted from the jobs that had ended by its submission."""
    ended: list[tuple[float, int]] = []
    found = []
    for number, record in enumerate(log):
        while ended and ended[0][0] <= record.job.submitted:
            past = log[heapq.heappop(ended)[1]]
            predictor.learn(past.job, past.run)
        found.append((predictor.predict(record.job), record.run))
        heapq.heappush(ended, (record.job.submitted + record.wait + record.run, number))
    return np.array(found)


def mean_error(found: np.ndarray) -> float:
    return float(np.abs(found[:, 0] - found[:, 1]).mean())


def accuracy(found: np.ndarray) -> float:
    """Tsafrir et al.'s: the smaller of prediction and run time as a share of the larger, on average."""
    return float((np.maximum(found.min(axis=1), 1.0) / np.maximum(found.max(axis=1), 1.0)).mean())


def made_up_log(seed: int = 3) -> list[Record]:
    """Three users who alternate between two programs each, ask for far too much, and number their jobs."""
    draw = np.random.default_rng(seed)
    log, now = [], 0.0
    for key in range(600):
        now += float(draw.exponential(600.0))
        user, program = int(draw.integers(3)), int(draw.integers(2))
        usual = 300.0 * (1 + user) * (10 if program else 1)
        job = QueuedJob(
            key,
            Resources(cores=4),
            walltime_s=8 * HOUR,
            submitted=now,
            user=f"u{user}",
            name=f"{'long' if program else 'short'}{key}",
        )
        log.append(Record(job, float(draw.exponential(300.0)), float(usual * draw.uniform(0.8, 1.2))))
    return log


def test_the_more_is_known_the_smaller_the_errors() -> None:
    log = made_up_log()
    oracle = Oracle([record.run for record in log])
    user, last_two, data_driven, known = (
        mean_error(errors(log, predictor)) for predictor in (UserEstimate(), LastTwoOfUser(), DataDriven(), oracle)
    )
    assert known == 0.0 < data_driven < 0.5 * last_two < last_two < 0.25 * user


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "user", "last_two"),
    [("KTH-SP2-1996-2", (4820.2, 0.473), (5257.9, 0.534)), ("HPC2N-2002-2.2-cln", (27924.8, 0.472), (13267.2, 0.567))],
)
def test_errors_on_real_logs(name: str, user: tuple[float, float], last_two: tuple[float, float]) -> None:
    """Mean absolute error [s] and accuracy. On KTH-SP2 a better accuracy goes with a larger error."""
    rows = swf_columns(name)
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    rows = rows[(rows[:, 2] >= 0) & (rows[:, 3] >= 0) & (rows[:, 8] > 0)]
    log = [
        Record(
            QueuedJob(key, Resources(), walltime_s=row[8], submitted=row[1], user=f"{row[11]:g}"),
            wait=row[2],
            run=min(row[3], row[8]),
        )
        for key, row in enumerate(rows.tolist())
    ]
    for predictor, expected in ((UserEstimate(), user), (LastTwoOfUser(), last_two)):
        found = errors(log, predictor)
        assert (mean_error(found), accuracy(found)) == (
            pytest.approx(expected[0], 1e-4),
            pytest.approx(expected[1], 2e-3),
        )
    assert accuracy(errors(log, DataDriven())) == pytest.approx(user[1], 2e-3), "a log without names teaches it nothing"


@pytest.mark.parametrize("make", [UserEstimate, LastTwoOfUser, DataDriven])
def test_what_nobody_knows_is_the_wall_time(make: type[JobPredictor]) -> None:
    assert make().predict(JOB) == HOUR


@pytest.mark.parametrize("predictor", [UserEstimate(), LastTwoOfUser(), DataDriven()])
@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_a_job_without_wall_time_and_history_is_named(predictor: JobPredictor, unknown: float) -> None:
    with pytest.raises(InvalidInput, match=r"job 17 has no wall time.*oracle"):
        predictor.predict(replace(JOB, key=17, walltime_s=unknown))


@pytest.mark.parametrize("make", [LastTwoOfUser, DataDriven])
def test_a_default_stands_in_for_a_wall_time_only(make: type[LastTwoOfUser] | type[DataDriven]) -> None:
    assert make(default_s=600.0).predict(replace(JOB, walltime_s=math.nan)) == 600.0
    assert make(default_s=600.0).predict(JOB) == HOUR
    with pytest.raises(InvalidInput, match="default_s must be a finite time above 0 s, not 0"):
        make(default_s=0)


@pytest.mark.parametrize("make", [LastTwoOfUser, DataDriven])
def test_history_does_without_a_wall_time(make: type[JobPredictor]) -> None:
    predictor, job = make(), replace(JOB, walltime_s=math.nan)
    predictor.learn(job, 50.0)
    predictor.learn(job, 50.0)
    assert predictor.predict(job) == 50.0


@pytest.mark.parametrize("make", [LastTwoOfUser, DataDriven])
@given(runs=st.lists(st.floats(0, 1e5), max_size=5), walltime=st.floats(1, 1e5))
def test_no_prediction_is_above_the_wall_time(make: type[JobPredictor], runs: list[float], walltime: float) -> None:
    predictor = make()
    for run in runs:
        predictor.learn(JOB, run)
    assert 0 <= predictor.predict(replace(JOB, walltime_s=walltime)) <= walltime


@given(st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.floats(0, HOUR)), max_size=12))
def test_last_two_are_the_last_two_of_the_user(ends: list[tuple[str, float]]) -> None:
    predictor = LastTwoOfUser()
    for user, run in ends:
        predictor.learn(replace(JOB, user=user), run)
    mine = [run for user, run in ends if user == "ann"]
    expected = (mine[-2] + mine[-1]) / 2 if len(mine) > 1 else HOUR
    assert predictor.predict(JOB) == pytest.approx(expected)


@pytest.mark.parametrize("make", [LastTwoOfUser, DataDriven])
def test_unknown_users_are_not_one_user(make: type[JobPredictor]) -> None:
    predictor, job = make(), replace(JOB, user="")
    predictor.learn(job, 5.0)
    predictor.learn(job, 5.0)
    assert predictor.predict(job) == HOUR


RULES = [
    replace(JOB, user="bob"),
    replace(JOB, name="fold3", resources=Resources(cores=8), walltime_s=60.0),  # 6: the name but for its number
    replace(JOB, resources=Resources(cores=8), walltime_s=60.0),  # 5: the name
    replace(JOB, name="fold_9", resources=Resources(cores=8)),  # 4: 6, and the wall time
    replace(JOB, resources=Resources(cores=8)),  # 3: 5, and the wall time
    replace(JOB, name="fold07"),  # 2: 6, the wall time and the resources
    JOB,  # 1: all
]


def test_the_rule_that_asks_for_most_wins() -> None:
    """Each job looks more like the last one of the list than the one before it, and is learned before it."""
    predictor = DataDriven()
    assert predictor.predict(JOB) == HOUR
    for run, past in enumerate(RULES):
        predictor.learn(past, float(run))
        assert predictor.predict(JOB) == (run or HOUR)
    for past in reversed(RULES[:-1]):
        predictor.learn(past, 999.0)
    assert predictor.predict(JOB) == 6.0, "what is less alike does not count, however late"


@pytest.mark.parametrize(
    ("past", "new", "alike"),
    [
        ("job1", "job2", True),
        ("job1", "job", True),
        ("run-2_7", "run-2_11", True),
        ("run-2_7", "run-3_7", False),
        ("12", "13", False),
        ("12", "12", True),
        ("", "", False),
        ("a", "b", False),
    ],
)
def test_names_are_alike_but_for_the_number_at_their_end(past: str, new: str, alike: bool) -> None:
    predictor = DataDriven()
    predictor.learn(replace(JOB, name=past), 7.0)
    assert predictor.predict(replace(JOB, name=new)) == (7.0 if alike else HOUR)


def test_of_jobs_that_are_alike_the_last_to_end_counts() -> None:
    predictor = DataDriven()
    predictor.learn(JOB, 7.0)
    predictor.learn(replace(JOB, key=1, submitted=-50.0), 8.0)
    assert predictor.predict(JOB) == 8.0


@pytest.mark.parametrize("runs", [[5.0, 6.0], np.array([5.0, 6.0]), {0: 5.0, 1: 6.0}])
def test_the_oracle_knows_run_times_by_key(runs: object) -> None:
    oracle = Oracle(runs)  # type: ignore[arg-type]
    oracle.learn(JOB, 99.0)
    assert (oracle.predict(JOB), oracle.predict(replace(JOB, key=1))) == (5.0, 6.0)


def test_the_oracle_may_know_jobs_by_name_and_names_those_it_does_not_know() -> None:
    oracle = Oracle({"j1": 5.0})
    assert oracle.predict(replace(JOB, key="j1")) == 5.0
    with pytest.raises(InvalidInput, match="no run time of job 'j2'"):
        oracle.predict(replace(JOB, key="j2"))
