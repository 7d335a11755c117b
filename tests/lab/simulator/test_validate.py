"""The oracle of schedules must itself be tried: each law, broken by a schedule made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Placements, Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.simulator.validate import violations

COMPLETED, TIMEOUT = OUTCOMES.index(JobState.COMPLETED), OUTCOMES.index(JobState.TIMEOUT)
WORK = Workload.of(submit=[0, 2], run=[5, 5], cores=[2, 2], walltime=[9, 9], number=[11, 12])
MACHINE = Cluster(np.array([[2], [1]]), names=("big", "small"))
LATER = [[0, 0, 2], [0, 0, 2]]
"""Nodes of the two jobs, one after the other."""


def made(
    start: list[float], end: list[float], *, where: list[list[int]] | None = None, outcome: int = COMPLETED
) -> Schedule:
    """A schedule of the two jobs, written by hand."""
    return Schedule(
        WORK, MACHINE, WORK.submit, np.array(start), np.array(end), np.full(2, outcome, dtype=np.int8),
        np.zeros(2, dtype=np.int64), None if where is None else Placements(np.array([0, 1]), np.array(where)),
    )  # fmt: skip


def test_a_good_one_breaks_none() -> None:
    assert violations(made([0, 5], [5, 10], where=LATER)) == []


@pytest.mark.parametrize(
    ("start", "end", "broken"),
    [
        ([6, 1], [11, 6], "job 12 starts at 1 s, before it is submitted"),
        ([0, 5], [4, 10], "job 11 completed after 4 s instead of 5 s"),
        ([0, 8], [6.5, 13], "job 11 completed after 6.5 s instead of 5 s"),
        ([0, 4], [5, 9], "4 cores are in use at 4 s: there are 3"),
    ],
)
@pytest.mark.parametrize("where", [None, [[0, 0, 2], [0, 0, 2]]], ids=["times", "places"])
def test_a_broken_law_is_told(start: list[float], end: list[float], broken: str, where: list[list[int]] | None) -> None:
    found = violations(made(start, end, where=where))
    assert broken in found
    crowded = "are in use" in broken and where is not None
    assert found == [broken, "node big gives 4 cores at 4 s: it has 2"][: 1 + crowded]


def test_all_broken_laws_are_told() -> None:
    assert violations(made([-1, 1], [5, 6])) == [
        "job 11 starts at -1 s, before it is submitted",
        "job 12 starts at 1 s, before it is submitted",
        "job 11 completed after 6 s instead of 5 s",
        "4 cores are in use at 1 s: there are 3",
    ]


def test_nobody_ends_before_the_start() -> None:
    assert violations(made([0, 5], [4, 3], outcome=TIMEOUT)) == ["job 12 ends at 3 s, before it starts"]


def test_whoever_was_ended_need_not_have_run_for_its_run_time() -> None:
    assert violations(made([0, 5], [4, 10], outcome=TIMEOUT)) == []


def test_jobs_that_never_ran_break_no_law() -> None:
    nobody = np.full(2, OUTCOMES.index(JobState.PENDING))
    only = Placements(np.array([0]), np.array([[0, 0, 2]]))
    never = made([0, np.nan], [5, np.nan])
    assert violations(replace(never, outcome=nobody, placements=only)) == []
    assert violations(never) == ["job 12 completed after nan s instead of 5 s"]


@pytest.mark.parametrize(
    ("where", "broken"),
    [
        ([[0, 0, 2], [0, 0, 1]], "job 12 holds 1 units: it asked for 2"),
        ([[0, 0, 2], [0, 1, 2]], "job 12 holds 4 units: it asked for 2"),
        ([[0, 0, 2], [1, 1, 2]], "node small gives 2 cores at 5 s: it has 1"),
        ([[0, 0, 2], [2, 2, 2]], "job 12 holds nodes 2 to 2: nodes go from 0 to 1"),
        ([[0, 0, 2], [-1, 0, 1]], "job 12 holds nodes -1 to 0: nodes go from 0 to 1"),
    ],
)
def test_so_are_places_that_cannot_be(where: list[list[int]], broken: str) -> None:
    assert broken in violations(made([0, 5], [5, 10], where=where))


def test_units_of_a_job_on_a_node_are_counted_over_all_its_runs() -> None:
    work = Workload.of(submit=[0], run=[1], walltime=[1], units=[3], per_node=[2])
    schedule = simulate(work, Cluster.of(nodes=2, cores=4))
    assert violations(schedule) == []
    twice = Placements(np.array([0, 0]), np.array([[0, 0, 2], [0, 0, 1]]))
    assert violations(replace(schedule, placements=twice)) == ["job 1 has 3 units on node n0: 2 at most"]


def test_every_resource_is_looked_at_but_those_that_are_shared() -> None:
    jobs = Workload.of(submit=[0, 0], run=[5, 5], walltime=[5, 5], units=[1, 1], demands=[[1, 6]])
    schedule = simulate(jobs, Cluster.of(nodes=1, cores=4, memory=12))
    assert violations(schedule) == []
    small = Cluster.of(nodes=1, cores=1, memory=8)
    assert violations(replace(schedule, cluster=small)) == [
        "2 cores are in use at 0 s: there are 1",
        "12 memory are in use at 0 s: there are 8",
        "node n0 gives 2 cores at 0 s: it has 1",
        "node n0 gives 12 memory at 0 s: it has 8",
    ]
    shared = replace(small, shareable=frozenset({"cores"}))
    assert violations(replace(schedule, cluster=shared)) == [
        "12 memory are in use at 0 s: there are 8",
        "node n0 gives 12 memory at 0 s: it has 8",
    ]
    unsaid = Cluster.of(nodes=1, cores=2)  # its memory is not counted
    assert violations(replace(schedule, cluster=unsaid)) == []
