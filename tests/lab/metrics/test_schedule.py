from __future__ import annotations

import gzip
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.metrics.schedule import STARVED_S, queued, refused, summarise
from tests.metrics.schedules import made, random_schedule, schedules

ORACLE = Path(__file__).parents[3] / "shared" / "data" / "oracle"
NAN = math.nan


@given(schedules())
def test_numbers_are_what_they_say(schedule: Schedule) -> None:
    numbers = summarise(schedule)
    jobs = list(zip(schedule.workload.submit, schedule.start, schedule.end, schedule.workload.cores, strict=True))
    waits = [float(start - submit) for submit, start, _, _ in jobs]
    slowdowns = [max(1.0, float((end - submit) / max(end - start, 10.0))) for submit, start, end, _ in jobs]
    makespan = float(max(end for _, _, end, _ in jobs) - jobs[0][0])
    assert numbers["jobs"] == numbers["jobs_ran"] == len(jobs)
    assert numbers["mean_wait_s"] == pytest.approx(statistics.fmean(waits))
    assert numbers["max_wait_s"] == max(waits)
    assert numbers["mean_bounded_slowdown"] == pytest.approx(statistics.fmean(slowdowns))
    assert numbers["makespan_s"] == makespan
    if makespan:
        used = sum(float((end - start) * cores) for _, start, end, cores in jobs)
        assert numbers["utilisation"] == pytest.approx(used / makespan / schedule.cluster.cores)
        assert numbers["mean_queue_length"] == pytest.approx(sum(waits) / makespan), "Little's law"
    else:
        assert numbers["utilisation"] is None
    assert sum(row["jobs"] for row in numbers["by_size"]) == len(jobs)


def test_jobs_that_never_ran_are_counted_and_nothing_else() -> None:
    schedule = made(
        submit=[0, 0, 10, 20, 30],
        start=[0, NAN, 10, NAN, NAN],
        end=[40, NAN, 50, 60, NAN],
        cores=[1, 99, 1, 1, 2],
        cluster=Cluster.of(2),
        outcome=[JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED, JobState.PENDING],
    )
    numbers = summarise(schedule, starved_s=25.0)
    assert numbers["jobs"] == 5 and numbers["jobs_ran"] == 2 and numbers["refused"] == 1
    assert numbers["outcomes"] == {"pending": 1, "completed": 1, "timeout": 1, "cancelled": 1, "refused": 1}
    assert numbers["mean_wait_s"] == 0.0
    assert numbers["makespan_s"] == 50.0
    assert numbers["starved"] == 2, "one waited 40 s and was cancelled, one waits for ever: from 30 s to 60 s"
    assert numbers["max_queue_age_s"] == 40.0
    assert numbers["max_queue_length"] == 2
    assert refused(schedule).tolist() == [False, True, False, False, False]


def test_held_jobs_are_not_in_the_queue() -> None:
    schedule = made([0, 0], [0, 100], [100, 200], [1, 1], Cluster.of(1), after=[-1, 0])
    held = replace(schedule, eligible=np.array([0.0, 100.0]))
    assert summarise(schedule)["max_queue_age_s"] == 100.0
    assert summarise(held)["max_queue_age_s"] == 0.0
    assert summarise(held)["max_wait_s"] == 100.0, "its wait is from its submission all the same"
    since, left = queued(held)
    assert since.tolist() == left.tolist() == [0.0, 100.0]


def test_a_failed_job_that_had_started_was_not_refused() -> None:
    schedule = made([0], [0], [9], [1], Cluster.of(1), outcome=[JobState.FAILED])
    assert summarise(schedule)["outcomes"] == {"failed": 1}


def test_fairness_is_over_users() -> None:
    schedule = made([0, 0, 0], [0, 90, 10], [10, 100, 20], [1, 1, 1], Cluster.of(1), user=[1, 2, -1])
    numbers = summarise(schedule)
    assert numbers["users"] == 2
    assert numbers["mean_user_bounded_slowdown"] == 5.5
    assert numbers["max_user_bounded_slowdown"] == 10.0
    assert numbers["jain_index"] == pytest.approx(11**2 / (2 * 101))


def test_all_of_it_is_json() -> None:
    nothing = made([], [], [], [], Cluster.of(1))
    for schedule in (random_schedule(50, 8), nothing, replace(random_schedule(5, 8), seconds=NAN)):
        numbers = summarise(schedule)
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert summarise(nothing)["mean_wait_s"] is None
    assert {"jobs", "mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "utilisation", "makespan_s", "seconds",
            "jobs_per_second", "peak_memory_mb"} <= set(numbers)  # fmt: skip


def test_speed_and_memory() -> None:
    numbers = summarise(replace(random_schedule(50, 8), seconds=0.25))
    assert numbers["jobs_per_second"] == 200.0
    assert 10 < numbers["peak_memory_mb"] < 1e5
    assert STARVED_S == 7 * 24 * 3600


@pytest.mark.shared
@pytest.mark.parametrize(("log", "slowdown"), [("KTH-SP2", 92.58), ("CTC-SP2", 49.57)])
def test_average_bounded_slowdown_of_pyss(log: str, slowdown: float) -> None:
    """The schedules are pyss's own, and so are the averages that it printed."""
    path = ORACLE / f"pyss-EASY-result_{log}.swf.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt") as file:
        rows = np.array([line.split() for line in file if line.strip() and not line.startswith(";")], dtype=float)
    _, submit, wait, run, cores = rows[:, :5].T
    workload = Workload.of(submit=submit, run=run, cores=cores, wait=wait)
    start = workload.submit + workload.wait
    done = np.full(len(rows), OUTCOMES.index(JobState.COMPLETED), dtype=np.int8)
    schedule = Schedule(
        workload,
        Cluster.of(int(cores.max())),
        workload.submit,
        start,
        start + workload.run,
        done,
        np.zeros(len(rows), np.int64),
    )
    assert round(summarise(schedule)["mean_bounded_slowdown"], 2) == slowdown
