from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.schedule import summarise
from asa.lab.report.schedule_words import comparison, in_words, title
from tests.metrics.schedules import made


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
