from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import NodeRun, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import Capability, Capacity, Waiting
from asa.lab.core.table import TableView
from asa.lab.dispatchers.knapsack import Knapsack, best_set
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines, pools
from tests.lab.dispatchers.views import Job, node_view, slot_view

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
