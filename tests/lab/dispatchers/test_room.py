from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from asa.core.decision import NodeRun, Start
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import columns, room_of
from asa.lab.placement.bestfit import BestFit
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines
from tests.lab.dispatchers.views import Job, node_view, queue_view, slot_view

GIB = 2**30


def view(capacity: Resources, *needs: Resources, running: tuple[Resources, ...] = ()) -> QueueView:
    queue = tuple(QueuedJob(f"J{k}", need, 60.0, 0.0) for k, need in enumerate(needs))
    return QueueView(0.0, capacity, queue, tuple(RunningJob(f"R{k}", need, 9.0) for k, need in enumerate(running)))


@pytest.mark.parametrize("make", [queue_view, slot_view])
def test_a_pool_counts_what_is_started(make) -> None:
    room = room_of(make([Job(2), Job(3), Job(1)], free=3, total=8))
    assert (room.free, room.total, room.sizes.tolist()) == (3, 8, [2, 3, 1])
    assert room.fitting().tolist() == [True, True, True]
    assert room.start(0) == Start(0)
    assert room.start(1) is None
    assert room.start(2) == Start(2)
    assert room.free == 0 and not room.fitting().any()


@pytest.mark.parametrize("make", [queue_view, slot_view])
def test_an_empty_queue_is_no_trouble(make) -> None:
    room = room_of(make([], free=3, total=8))
    assert len(room.sizes) == len(room.fitting()) == 0


def test_memory_and_gpus_count_as_well() -> None:
    machine = Resources(cores=8, memory=4 * GIB, gpus=1)
    large, small = Resources(cores=1, memory=3 * GIB), Resources(cores=1, memory=1 * GIB, gpus=1)
    room = room_of(view(machine, large, small, small, running=(Resources(cores=2, memory=GIB // 2),)))
    assert room.free == 6
    assert room.start(0) is not None
    assert room.start(1) is None, "no memory is left"
    room = room_of(view(machine, small, small))
    assert room.start(0) is not None and room.start(1) is None, "no GPU is left"


def test_memory_that_the_machine_does_not_state_is_unlimited() -> None:
    room = room_of(view(Resources(cores=2), Resources(cores=1, memory=10**15), Resources(cores=1)))
    assert room.start(0) and room.start(1)


def test_a_machine_that_holds_more_than_it_has_has_nothing_free() -> None:
    room = room_of(view(Resources(cores=2), Resources(cores=1), running=(Resources(cores=3),)))
    assert room.free == 0 and room.start(0) is None


def test_on_nodes_a_job_must_fit_on_them_and_not_only_in_sum() -> None:
    room = room_of(node_view([Job(1)], free=[[3], [3]], demands=[[4]]))
    assert not room.fitting().any() and room.start(0) is None


def test_nodes_are_named_by_the_method_of_the_machine_or_by_the_one_given() -> None:
    free = [[4], [2], [3]]
    assert room_of(node_view([Job(2)], free)).start(0) == Start(0, (NodeRun(0, 0, 2),))
    assert room_of(node_view([Job(2)], free, placement=1)).start(0) == Start(0, (NodeRun(1, 1, 2),))
    assert room_of(node_view([Job(2)], free, placement=-1)).start(0) == Start(0, (NodeRun(0, 0, 2),))
    assert room_of(node_view([Job(2)], free), BestFit()).start(0) == Start(0, (NodeRun(1, 1, 2),))


def test_a_job_stays_in_its_partition() -> None:
    cluster = Cluster(np.full((3, 1), 4), partitions={"a": (0,), "b": (1, 2)})
    room = room_of(node_view([Job(5, partition=0), Job(5, partition=1), Job(4)], [[4], [4], [4]], cluster=cluster))
    assert room.start(0) is None
    assert room.start(1) == Start(1, (NodeRun(1, 1, 4), NodeRun(2, 2, 1)))
    assert room.start(2) == Start(2, (NodeRun(0, 0, 4),)), "without a partition, the first one"


def test_what_is_shared_is_not_used_up() -> None:
    cluster = Cluster(np.array([[4, 4]]), ("cores", "memory"), shareable=frozenset({"cores"}))
    jobs = [Job(4), Job(3), Job(1)]
    room = room_of(node_view(jobs, [[-2, 4]], demands=[[1, 0], [1, 1]], cluster=cluster))
    assert room.start(0) and room.start(1) and room.start(2)


@UNTIMED
@given(machines())
def test_a_room_of_nodes_tells_the_truth(table: TableView) -> None:
    room = room_of(table)
    starts: list[Start] = []
    for place in range(len(table.waiting)):
        left = left_over(table, starts)
        fitting = holds(table, left, place)
        assert room.free == np.maximum(left[:, 0], 0).sum()
        assert room.fitting()[place] == fitting
        if start := room.start(place):
            starts.append(start)
        assert (start is not None) == fitting


def test_columns_are_the_same_for_both_kinds_of_views() -> None:
    jobs = [Job(2, submit=5.0, estimate=7.0), Job(4, submit=6.0)]
    for found, expected in zip(columns(queue_view(jobs, 1, 8)), columns(slot_view(jobs, 1, 8)), strict=True):
        assert found.tolist() == expected.tolist() and found.dtype == expected.dtype


def test_a_method_of_ones_own_may_find_no_place() -> None:
    class Nowhere:
        def choose(self, free: object, need: object, units: int, per_node: int) -> tuple[NodeRun, ...]:
            return ()

    room = room_of(node_view([Job(2)], [[4], [2]]), Nowhere())
    assert room.start(0) is None
    assert room.free == 6
