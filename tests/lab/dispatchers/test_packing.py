from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import NodeRun, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import Capability, Capacity, Waiting
from asa.lab.core.table import TableView
from asa.lab.dispatchers.packing import BinPacking, Knapsack, Random, best_set
from asa.lab.dispatchers.room import columns, room_of
from asa.lab.placement.nodes import BestFit
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines, pools
from tests.lab.dispatchers.views import Job, node_view, queue_view, slot_view


def by_definition(jobs: list[Job], free: int) -> list[Start]:
    """The largest job that fits, again and again."""
    waiting, starts = dict(enumerate(jobs)), []
    while fitting := [row for row, job in waiting.items() if job.units <= free]:
        largest = max(fitting, key=lambda row: (waiting[row].units, -row))
        free -= waiting.pop(largest).units
        starts.append(Start(largest))
    return starts


@UNTIMED
@given(pools())
def test_it_starts_the_largest_that_fits_until_none_does(case: tuple[list[Job], int, QueueView | TableView]) -> None:
    jobs, free, view = case
    assert BinPacking().decide(view) == by_definition(jobs, free)


@UNTIMED
@given(machines())
def test_on_nodes_no_job_that_would_fit_is_left(view: TableView) -> None:
    starts = BinPacking().decide(view)
    left = left_over(view, starts)
    assert not any(holds(view, left, row) for row in {*range(len(view.waiting))} - {start.job for start in starts})


@UNTIMED
@given(machines())
def test_on_nodes_each_start_is_of_the_largest_job_that_fits(view: TableView) -> None:
    starts = BinPacking().decide(view)
    waiting = list(range(len(view.waiting)))
    for done, start in enumerate(starts):
        left = left_over(view, starts[:done])
        fitting = [row for row in waiting if holds(view, left, row)]
        assert start.job == max(fitting, key=lambda row: (view.jobs[row]["cores"], -row))
        waiting.remove(start.job)


def test_nothing_starts_on_a_full_machine() -> None:
    assert BinPacking().decide(slot_view([Job(1)], free=0, total=4)) == []


ITEMS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), max_size=9)


@UNTIMED
@given(ITEMS, st.integers(0, 40), st.sampled_from([1, 3]))
def test_the_set_is_the_best_one_and_of_equal_ones_the_earliest(
    items: list[tuple[int, int]], room: int, factor: int
) -> None:
    values, sizes = [value for value, _ in items], [size * factor for _, size in items]
    sets = [
        chosen
        for chosen in product([True, False], repeat=len(items))
        if sum(size for size, taken in zip(sizes, chosen, strict=True) if taken) <= room
    ]
    # The first of equally good ones: sets are listed with those first that take the earliest items.
    best = max(sets, key=lambda chosen: sum(value for value, taken in zip(values, chosen, strict=True) if taken))
    assert best_set(values, sizes, room).tolist() == list(best)


def worth(objective: str, jobs: list[Job], chosen: tuple[int, ...], total: int) -> float:
    """The objective as a sum over jobs, from the paper's equations; now is 100."""
    if objective == "capacity":
        return sum(1 / jobs[row].estimate for row in chosen)
    longest = max(100.0 - job.submit for job in jobs) or 1.0
    return sum((100.0 - jobs[row].submit) / longest + 2 * jobs[row].units / total for row in chosen) / 3


@UNTIMED
@given(pools(), st.sampled_from(["capability", "capacity"]), st.integers(1, 9))
def test_it_starts_what_is_worth_most_of_the_window(
    case: tuple[list[Job], int, QueueView | TableView], objective: str, window: int
) -> None:
    jobs, free, view = case
    started = tuple(start.job for start in Knapsack(objective, window=window).decide(view))
    assert all(row < window for row in started) and sorted(started) == list(started)
    assert sum(jobs[row].units for row in started) <= free
    if jobs:
        sets = [
            tuple(row for row, taken in enumerate(chosen) if taken)
            for chosen in product([True, False], repeat=min(window, len(jobs)))
        ]
        most = max(
            worth(objective, jobs, chosen, view.capacity.cores)
            for chosen in sets
            if sum(jobs[row].units for row in chosen) <= free
        )
        assert worth(objective, jobs, started, view.capacity.cores) == pytest.approx(most)


@UNTIMED
@given(machines(), st.sampled_from(["capability", "capacity"]))
def test_on_nodes_no_job_of_the_window_that_would_fit_is_left(view: TableView, objective: str) -> None:
    starts = Knapsack(objective, window=5).decide(view)
    left = left_over(view, starts)
    window = {*range(min(5, len(view.waiting)))}
    assert {start.job for start in starts} <= window
    assert not any(holds(view, left, row) for row in window - {start.job for start in starts})


def test_jobs_that_have_waited_longest_weigh_most() -> None:
    view = slot_view([Job(2, submit=90.0), Job(2, submit=0.0)], free=2, total=8)
    assert Knapsack("capability").decide(view) == [Start(1)]
    assert Knapsack(Capability(wait=0.0)).decide(view) == [Start(0)]


def test_what_fits_for_want_of_no_core_but_of_memory_leaves_room_for_others() -> None:
    cluster = Cluster(np.array([[9, 4]]), ("cores", "memory"))
    jobs = [Job(1, kind=0), Job(1, kind=0), Job(1, kind=1)]
    view = node_view(jobs, [[9, 4]], demands=[[4, 3], [1, 1]], cluster=cluster)
    assert [start.job for start in Knapsack().decide(view)] == [0, 2]


class OnNeighbours:
    """A placement that refuses jobs of two units which do not fit on neighbours."""

    def choose(self, free: np.ndarray, need: np.ndarray, units: int, per_node: int) -> tuple[NodeRun, ...]:
        pairs = [node for node in range(len(free) - 1) if min(free[node, 0], free[node + 1, 0]) >= need[0]]
        if units == 1:
            node = int(free[:, 0].argmax())
            return (NodeRun(node, node, 1),)
        return (NodeRun(pairs[0], pairs[0] + 1, 1),) if pairs else ()


def test_a_job_that_a_placement_refuses_leaves_room_for_others() -> None:
    view = node_view([Job(2), Job(1), Job(1)], [[1], [0], [1]])
    assert [start.job for start in Knapsack(placement=OnNeighbours()).decide(view)] == [1, 2]


class Worthless:
    """An objective for which every start is a loss."""

    def reward(self, queue: Waiting, selected: object, started: object = None) -> float:
        return 0.0

    def gains(self, queue: Waiting) -> np.ndarray:
        return -np.ones(len(queue.wait))


def test_what_is_worth_nothing_is_not_started() -> None:
    assert all(Knapsack(Worthless()).decide(slot_view([Job(3)] * 2, free, 8)) == [] for free in (4, 8))


def test_without_estimates_capacity_cannot_be_weighed() -> None:
    view = slot_view([Job(1), Job(1, estimate=np.nan)], free=2, total=2)
    with pytest.raises(InvalidInput, match="at place 1 of the queue has no wall time"):
        Knapsack(Capacity()).decide(view)
    assert len(Knapsack("capability").decide(view)) == 2


def test_options_out_of_bounds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        Knapsack(window=0)
    with pytest.raises(UnknownName, match="did you mean 'capacity'"):
        Knapsack("capcity")


@UNTIMED
@given(pools(), st.integers(0, 99))
def test_it_starts_what_fits_until_nothing_does(case: tuple[list[Job], int, QueueView | TableView], seed: int) -> None:
    jobs, free, view = case
    started = [start.job for start in Random(seed).decide(view)]
    left = free - sum(jobs[row].units for row in started)
    assert len(set(started)) == len(started) and left >= 0
    assert all(job.units > left for row, job in enumerate(jobs) if row not in started)


@UNTIMED
@given(machines(), st.integers(0, 99))
def test_on_nodes_no_job_that_would_fit_is_left_random(view: TableView, seed: int) -> None:
    starts = Random(seed).decide(view)
    left = left_over(view, starts)
    assert not any(holds(view, left, row) for row in {*range(len(view.waiting))} - {start.job for start in starts})


def test_each_job_that_fits_has_the_same_chance() -> None:
    view = slot_view([Job(3), Job(9), Job(2), Job(3), Job(1)], free=3, total=8)
    dispatcher = Random(seed=5)
    counts = Counter(tuple(start.job for start in dispatcher.decide(view)) for _ in range(4000))
    # By drawing one after the other: 0 and 3 fill the machine alone; beside 2 only 4 fits; after 4 only 2 does.
    expected = {(0,): 1 / 4, (3,): 1 / 4, (2, 4): 1 / 4, (4, 2): 1 / 4}
    assert counts.keys() == expected.keys()
    for drawn, chance in expected.items():
        assert abs(counts[drawn] / 4000 - chance) < 4 * (chance * (1 - chance) / 4000) ** 0.5


def test_the_same_seed_makes_the_same_choices_and_another_does_not() -> None:
    view = slot_view([Job(1)] * 30, free=10, total=10)
    first, second, other = Random(7), Random(7), Random(8)
    choices = [[dispatcher.decide(view) for _ in range(3)] for dispatcher in (first, second, other)]
    assert choices[0] == choices[1] != choices[2]
    assert choices[0][0] != choices[0][1]


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
