"""A schedule in words and as CSV."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.schedule import summarise
from asa.lab.report.schedule_text import COLUMNS, comparison, in_words, interval_sets, title, write_csv
from tests.metrics.schedules import made, random_schedule, schedules


def row_of(schedule: Schedule, dispatcher: str = "easy") -> dict[str, Any]:
    cluster = schedule.cluster
    return {"dispatcher": dispatcher, "trace": "a.swf", "nodes": cluster.nodes, "cores": cluster.cores} | summarise(
        schedule
    )


def test_numbers_are_said_with_their_units() -> None:
    schedule = made([0, 0], [0, 3600], [3600, 7200], [8, 2], Cluster.of(2, 4), user=[1, 2])
    said = in_words(row_of(schedule))
    assert said.startswith("easy: a.swf on 2 nodes, 8 cores\n")
    for words in (
        "2: 2 completed",
        "mean 30 min, median 30 min, 90 % within 54 min, longest 1 h",
        "mean 1.50",
        "62.5 %",
        "2 h, 1.00 jobs an hour",
        "Jain's index 0.90",
        "0.50 s, 4.00 jobs a second",
    ):
        assert words in said
    assert said.splitlines()[-2].split() == ["2", "1", "1", "h", "1", "h", "2.00"]


def test_what_is_not_known_is_a_dash() -> None:
    nothing = made([0], [math.nan], [math.nan], [4], Cluster.of(1), outcome=[JobState.FAILED])
    said = in_words(row_of(replace(nothing, seconds=math.nan)))
    assert "1: 1 refused" in said
    assert "mean -, median -" in said
    assert said.endswith("no job ran")


def test_dispatchers_are_rows() -> None:
    schedule = made([0, 0], [0, 1e6], [1e6, 2e6], [1, 1], Cluster.of(1))
    lines = comparison([row_of(schedule, "fcfs"), row_of(schedule, "easy")]).splitlines()
    assert lines[0].split()[:2] == ["dispatcher", "mean_wait_s"]
    assert [line.split()[:3] for line in lines[1:]] == [["fcfs", "500000", "1000000"], ["easy", "500000", "1000000"]]


def test_one_node_is_no_nodes() -> None:
    assert title({"trace": "a.swf", "nodes": 1, "cores": 28}) == "a.swf on 1 node, 28 cores"


def numbers_in(text: str) -> list[int]:
    """The resources of an interval set, read as evalys does."""
    pairs = [part.partition("-") for part in text.split()]
    return [number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)]


def test_pandas_reads_back_what_was_written(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    schedule = random_schedule(300, 6, cores=4)
    write_csv(schedule, tmp_path / "jobs.csv", "my log")
    table = pandas.read_csv(tmp_path / "jobs.csv", dtype={"allocated_resources": str})
    assert tuple(table.columns) == COLUMNS
    jobs = schedule.workload
    for column, values in {
        "job_id": jobs.number,
        "submission_time": jobs.submit,
        "requested_number_of_resources": jobs.cores,
        "requested_time": jobs.walltime,
        "starting_time": schedule.start,
        "execution_time": schedule.end - schedule.start,
        "finish_time": schedule.end,
        "waiting_time": schedule.wait,
        "turnaround_time": schedule.end - jobs.submit,
        "stretch": (schedule.end - jobs.submit) / (schedule.end - schedule.start),
    }.items():
        assert (table[column] == values).all(), column
    assert (table["success"] == 1).all() and (table["final_state"] == "COMPLETED_SUCCESSFULLY").all()
    assert (table["workload_name"] == "my log").all()
    assert table["allocated_resources"].map(numbers_in).map(len).tolist() == jobs.cores.tolist()


def test_states_are_those_of_batsim(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    states = [JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED, JobState.FAILED, JobState.CANCELLED,
              JobState.CANCELLED, JobState.NODE_FAIL, JobState.PENDING]  # fmt: skip
    nan = math.nan
    start = [0, 0, 0, nan, nan, 0, 0, nan]
    end = [0, 9, 9, nan, 5, 9, 9, nan]
    write_csv(made([0] * 8, start, end, [1] * 8, Cluster.of(9), outcome=states), tmp_path / "jobs.csv")
    table = pandas.read_csv(tmp_path / "jobs.csv")
    assert table["final_state"].tolist() == [
        "COMPLETED_SUCCESSFULLY",
        "COMPLETED_WALLTIME_REACHED",
        "COMPLETED_FAILED",
        "REJECTED",
        "REJECTED",
        "COMPLETED_KILLED",
        "COMPLETED_KILLED",
        "SUBMITTED",
    ]
    assert table["success"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert table["starting_time"].isna().tolist() == [math.isnan(time) for time in start]
    assert math.isnan(table["stretch"][0]), "it ran for no time"
    assert table["allocated_resources"].isna().all() and table["requested_time"].isna().all()


def test_names_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    schedule = made([0, 0], [0, 0], [1, 1], [1, 1], Cluster.of(2), name=[0, -1], labels={"name": ('a,"b"',)})
    write_csv(schedule, tmp_path / "jobs.csv", "w,1")
    table = pandas.read_csv(tmp_path / "jobs.csv", keep_default_na=False)
    assert table["profile"].tolist() == ['a,"b"', ""] and table["workload_name"].tolist() == ["w,1", "w,1"]


@given(schedules())
def test_interval_sets_hold_as_many_cores_as_the_job(schedule: Schedule) -> None:
    sets = list(interval_sets(schedule))
    assert [len(set(numbers_in(text))) for text in sets] == schedule.workload.cores.tolist()
    assert list(interval_sets(replace(schedule, placements=None))) == [""] * len(schedule)


def test_an_interval_set_is_written_as_evalys_reads_it() -> None:
    schedule = made([0], [0], [9], [5], Cluster.of(9), placed=[(0, 7, 7, 1), (0, 0, 3, 1)])
    assert list(interval_sets(schedule)) == ["0-3 7"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written: No such file or directory"):
        write_csv(random_schedule(2, 2), tmp_path / "nowhere" / "jobs.csv")


def test_an_empty_schedule_has_a_header(tmp_path: Path) -> None:
    write_csv(made([], [], [], [], Cluster.of(1)), tmp_path / "jobs.csv")
    assert (tmp_path / "jobs.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_times_keep_all_their_digits(tmp_path: Path) -> None:
    at = 1700000000.1234567
    write_csv(made([at], [at], [at + 1 / 3], [1], Cluster.of(1)), tmp_path / "jobs.csv")
    cells = (tmp_path / "jobs.csv").read_text().splitlines()[1].split(",")
    assert float(cells[COLUMNS.index("submission_time")]) == at
    assert float(cells[COLUMNS.index("finish_time")]) == np.float64(at + 1 / 3)
