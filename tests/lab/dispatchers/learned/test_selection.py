from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Reserve, Start
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.selection import Memory, Mode, QueueColumns, Selection, Turns, queue_of
from asa.lab.simulator.engine import Engine
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dispatchers.views import Job, node_view, queue_view

ONE = Resources(cores=1)


def test_a_table_and_objects_say_the_same() -> None:
    engine = Engine(Workload.of(submit=[0, 3], run=[9, 9], cores=[3, 2], walltime=[10, 20]), Cluster.of(4))
    engine.advance()
    engine.apply([Start(0)])
    table = engine.advance()
    assert table is not None
    objects = QueueView(table.now, table.capacity, table.queue, table.running)
    for found in (queue_of(table), queue_of(objects)):
        assert (found.now, list(found.keys), found.free, found.total) == (3.0, [1], 1, 4)
        columns = (found.size, found.estimate, found.wait, found.priority, found.ends, found.held)
        assert [column.tolist() for column in columns] == [[2], [20], [0], [0], [10], [3]]


def test_an_overdue_job_ends_now() -> None:
    view = QueueView(50.0, Resources(cores=2), (), (RunningJob("R", ONE, 40.0),))
    assert queue_of(view).ends.tolist() == [50.0]


def test_what_it_does_not_know() -> None:
    with pytest.raises(InvalidInput, match="equal nodes"):
        queue_of(node_view([Job(1)], [[8, 4]], demands=((1, 1),)))
    with pytest.raises(InvalidInput, match="job 1 has no wall time"):
        queue_of(queue_view([Job(1), Job(1, estimate=np.nan)], free=1, total=2))
    greedy = QueuedJob("A", Resources(cores=1, gpus=1), 60.0, 0.0)
    with pytest.raises(InvalidInput, match="memory or GPUs"):
        queue_of(QueueView(0.0, Resources(cores=4, gpus=4), (greedy,), ()))


def queue(*jobs: tuple[int, float], free: int = 4, running: tuple[tuple[float, int], ...] = ()) -> QueueColumns:
    """Jobs A, B, ... of (size, estimate) at time 100; what runs as (end, nodes)."""
    size, estimate = np.array([job[0] for job in jobs]), np.array([float(job[1]) for job in jobs])
    ends, held = np.array([float(end) for end, _ in running]), np.array([nodes for _, nodes in running], dtype=int)
    zeros = np.zeros(len(jobs))
    keys = "ABCDEFGHIJ"[: len(jobs)]
    return QueueColumns(100.0, list(keys), size, estimate, zeros, zeros, free, free + int(held.sum()), ends, held)


def test_two_levels() -> None:
    """B starts, the blocked A is reserved for; what does not delay A fills the gaps: D by its end, E by its size."""
    found = queue((6, 50), (2, 10), (2, 999), (1, 30), (1, 999), free=4, running=((130, 3),))
    selection = Selection(found, 5, Memory())
    assert selection.places.tolist() == [0, 1, 2, 3, 4] and selection.mask.all()
    assert selection.select(1) == (1, Mode.READY)
    assert selection.places.tolist() == [0, 2, 3, 4] and selection.mask.tolist() == [True] * 4 + [False]
    assert selection.select(0) == (0, Mode.RESERVED)
    assert selection.decisions == [Start("B"), Reserve("A", 130.0)]
    # At 130 seven nodes are free: one is spare. C would take two.
    assert selection.places.tolist() == [3, 4]
    assert selection.select(1) == (4, Mode.BACKFILLED)
    assert selection.places.tolist() == [3]  # the spare node is gone, but D ends in time
    assert selection.select(0) == (3, Mode.BACKFILLED)
    assert selection.over and selection.waiting.tolist() == [True, False, True, False, False]


def test_the_job_that_was_selected_is_reserved_for_not_the_first_one() -> None:
    memory = Memory()
    selection = Selection(queue((5, 10), (6, 10), free=4, running=((130, 1), (150, 1))), 2, memory)
    selection.select(1)
    assert selection.decisions == [Reserve("B", 150.0)] and memory.reserved == "B"


def test_level_2_looks_at_the_whole_queue() -> None:
    found = queue((5, 10), (5, 10), (5, 10), (1, 10), free=4, running=((130, 1),))
    selection = Selection(found, 2, Memory())
    assert selection.places.tolist() == [0, 1]
    selection.select(0)
    assert selection.places.tolist() == [3]


def test_a_reservation_holds() -> None:
    memory = Memory(reserved="B")
    selection = Selection(queue((5, 10), (6, 10), (1, 10), free=4, running=((130, 2),)), 3, memory)
    assert selection.decisions == [Reserve("B", 130.0)] and selection.places.tolist() == [2]
    selection = Selection(queue((5, 10), (6, 10), free=7), 3, memory)
    assert selection.decisions == [Start("B")] and memory.reserved is None
    assert selection.places.tolist() == [0]
    assert Selection(queue((5, 10)), 3, Memory(reserved="Z")).decisions == []  # it was cancelled


def test_patience() -> None:
    """Two reservations for others; then only the head of the queue is left to select."""
    memory = Memory(Turns(patience=2))
    for passed in (1, 2):
        selection = Selection(queue((6, 10), (5, 10), free=4, running=((130, 2),)), 2, memory)
        assert selection.places.tolist() == [0, 1]
        selection.select(1)
        assert memory.passed == passed
        memory.reserved = None  # it has started
    selection = Selection(queue((6, 10), (5, 10), free=4, running=((130, 2),)), 2, memory)
    assert selection.places.tolist() == [0]
    selection.select(0)
    assert memory.passed == 0


def waited(*hours: float) -> QueueColumns:
    """A cannot start before 130; B, C and D can."""
    found = queue((6, 10), (2, 10), (1, 10), (1, 10), free=4, running=((130, 2),))
    return replace(found, wait=3600.0 * np.array(hours))


def test_overdue_jobs_come_first_at_both_levels() -> None:
    selection = Selection(waited(3, 1, 3, 3), 4, Memory(Turns(threshold=7200.0)))
    assert selection.places.tolist() == [0]
    assert selection.select(0).mode is Mode.RESERVED
    assert selection.places.tolist() == [2]
    selection.select(0)
    assert selection.places.tolist() == [3]
    selection.select(0)
    assert selection.places.tolist() == [1]
    assert Selection(waited(2, 1, 1, 1), 4, Memory(Turns(threshold=7200.0))).places.tolist() == [0, 1, 2, 3]


def test_a_reservation_need_not_hold() -> None:
    memory = Memory(Turns(keeps=False), reserved="A")
    selection = Selection(waited(0, 0, 0, 0), 4, memory)
    assert selection.decisions == [] and memory.reserved is None and selection.places.tolist() == [0, 1, 2, 3]


def test_without_levels_what_does_not_fit_is_masked() -> None:
    selection = Selection(queue((6, 10), (3, 10), (2, 10), free=4, running=((130, 2),)), 2, Memory(), levels=False)
    assert selection.places.tolist() == [0, 1] and selection.mask.tolist() == [False, True]
    assert selection.select(1).mode is Mode.READY
    assert selection.over and selection.decisions == [Start("B")]


def test_a_job_larger_than_the_machine_is_passed_over() -> None:
    assert Selection(queue((9, 10), free=4), 3, Memory()).over


def test_what_is_refused() -> None:
    selection = Selection(queue((1, 10)), 3, Memory())
    for action in (-1, 1, 3):
        with pytest.raises(InvalidInput, match=r"masked: \[0\] are"):
            selection.select(action)
    with pytest.raises(InvalidInput, match="at least 1 job"):
        Selection(queue((1, 10)), 0, Memory())
    for patience in (-1.0, float("nan")):
        with pytest.raises(InvalidInput, match="patience"):
            Turns(patience)
    for threshold in (0.0, float("nan")):
        with pytest.raises(InvalidInput, match="threshold"):
            Turns(threshold=threshold)


SIZES = st.tuples(st.integers(1, 9), st.sampled_from([5.0, 20.0, 50.0, 200.0]))


@UNTIMED
@given(
    st.lists(SIZES, min_size=1, max_size=10),
    st.lists(st.tuples(st.sampled_from([110.0, 120.0, 150.0]), st.integers(1, 3)), max_size=4),
    st.integers(0, 6),
    st.integers(1, 12),
    st.booleans(),
    st.data(),
)
def test_whatever_is_selected(jobs, running, free, window, levels, data) -> None:
    """Only actions of the mask are taken; what starts fits; and the reserved job is not delayed, by brute force."""
    found = queue(*jobs, free=free, running=tuple(running))
    selection = Selection(found, window, Memory(), levels=levels)
    while not selection.over:
        assert selection.mask.shape == (window,) and selection.mask.sum() <= len(selection.places)
        masked = np.flatnonzero(~selection.mask).tolist()
        if masked:
            with pytest.raises(InvalidInput, match="masked"):
                selection.select(data.draw(st.sampled_from(masked)))
        selection.select(data.draw(st.sampled_from(np.flatnonzero(selection.mask).tolist())))
    started = {found.keys.index(each.job) for each in selection.decisions if isinstance(each, Start)}
    assert len(started) == sum(isinstance(each, Start) for each in selection.decisions)
    assert found.size[sorted(started)].sum() <= free
    promises = [each for each in selection.decisions if isinstance(each, Reserve)]
    assert len(promises) <= levels
    for promise in promises:
        place = found.keys.index(promise.job)
        ends = [*running, *((100 + found.estimate[one], found.size[one]) for one in started)]
        there = {at: free - found.size[sorted(started)].sum() + sum(n for end, n in ends if end <= at)
                 for at in (end for end, _ in ends)}  # fmt: skip
        assert there[promise.at] >= found.size[place]
        before = [end for end, _ in running if end < promise.at]
        alone = free + sum(n for end, n in running if end in before)
        ready = selection.decisions[: selection.decisions.index(promise)]
        alone -= sum(
            found.size[found.keys.index(e.job)]
            for e in ready
            if 100 + found.estimate[found.keys.index(e.job)] >= promise.at
        )
        assert alone < found.size[place]  # it could not have been promised an earlier time
