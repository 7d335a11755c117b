from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.metrics.cores import core_runs, first_cores
from tests.metrics.schedules import made, random_schedule, schedules


def cores_of(schedule: Schedule, row: int) -> list[int]:
    runs = core_runs(schedule)
    mine = runs.job == row
    pairs = zip(runs.first[mine].tolist(), runs.last[mine].tolist(), strict=True)
    return [core for first, last in pairs for core in range(first, last + 1)]


@given(schedules())
def test_a_job_has_its_cores_for_itself_on_its_nodes(schedule: Schedule) -> None:
    assert schedule.placements is not None
    cut = first_cores(schedule)
    held = [cores_of(schedule, row) for row in range(len(schedule))]
    for row, cores in enumerate(held):
        on_nodes = [0] * schedule.cluster.nodes
        for core in cores:
            on_nodes[int(np.searchsorted(cut, core, side="right")) - 1] += 1
        placed = [0] * schedule.cluster.nodes
        for run in schedule.placements.of(row):
            for node in range(run.first, run.last + 1):
                placed[node] += run.units
        assert on_nodes == placed
        for other in range(row):
            together = schedule.start[row] < schedule.end[other] and schedule.start[other] < schedule.end[row]
            lasting = schedule.end[row] > schedule.start[row] and schedule.end[other] > schedule.start[other]
            assert not (together and lasting and set(cores) & set(held[other]))


@given(schedules())
def test_runs_are_as_long_as_can_be(schedule: Schedule) -> None:
    runs = core_runs(schedule)
    order = np.lexsort((runs.first, runs.job))
    assert order.tolist() == list(range(len(runs)))
    assert not ((runs.job[1:] == runs.job[:-1]) & (runs.first[1:] <= runs.last[:-1] + 1)).any()


def test_single_cores_are_the_nodes() -> None:
    schedule = made([0, 0], [0, 0], [9, 9], [3, 1], Cluster.of(8), placed=[(0, 0, 1, 1), (0, 5, 5, 1), (1, 7, 7, 1)])
    assert cores_of(schedule, 0) == [0, 1, 5]
    assert cores_of(schedule, 1) == [7]


def test_units_have_several_cores() -> None:
    schedule = made([0], [0], [9], [1], Cluster.of(3, 4), placed=[(0, 1, 2, 1)], demands=None)
    wide = replace(schedule, workload=replace(schedule.workload, units=np.array([2]), demands=np.array([[3]])))
    assert cores_of(wide, 0) == [4, 5, 6, 8, 9, 10]


def test_cores_that_are_shared_are_counted_from_the_lowest() -> None:
    cluster = Cluster.of(1, 4)
    schedule = made([0, 0], [0, 0], [9, 9], [3, 3], cluster, placed=[(0, 0, 0, 3), (1, 0, 0, 3)])
    assert cores_of(schedule, 0) == [0, 1, 2]
    assert cores_of(schedule, 1) == [0, 1, 3]


def test_nobody_wrote_it_down() -> None:
    schedule = replace(random_schedule(5, 4), placements=None)
    assert len(core_runs(schedule)) == 0


def test_jobs_that_did_not_run_hold_nothing() -> None:
    schedule = made([0, 0], [0, np.nan], [9, np.nan], [2, 2], Cluster.of(4), placed=[(0, 0, 1, 1)])
    assert cores_of(schedule, 1) == []
