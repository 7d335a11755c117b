from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.learned.compact_sight import AHEAD_S, COLUMNS, Shares, rows_of
from asa.lab.dispatchers.learned.queue import Queue
from asa.lab.dispatchers.learned.selection import Memory, Selection

QUEUE = Queue(
    now=1000.0,
    keys=["A", "B", "C"],
    size=np.array([4, 1, 2]),
    estimate=np.array([3600.0, 60.0, 86400.0]),
    wait=np.array([600.0, 60.0, 0.0]),
    priority=np.zeros(3),
    free=2,
    total=8,
    ends=np.array([4600.0, 1060.0]),
    held=np.array([4, 2]),
)


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """Jobs that wait, and jobs that run on a machine of 16."""
    count, running = draw(st.integers(1, 9)), draw(st.integers(0, 4))
    held = np.array(draw(st.lists(st.integers(1, 4), min_size=running, max_size=running)), dtype=np.int64)
    times = st.lists(st.integers(1, 10**5).map(float), min_size=count, max_size=count)
    ends = draw(st.lists(st.integers(100, 10**5).map(float), min_size=running, max_size=running))
    return Queue(
        now=100.0,
        keys=list(range(count)),
        size=np.array(draw(st.lists(st.integers(1, 16), min_size=count, max_size=count))),
        estimate=np.array(draw(times)),
        wait=np.array(draw(times)),
        priority=np.zeros(count),
        free=16 - int(held.sum()),
        total=16,
        ends=np.array(ends, dtype=np.float64),
        held=held,
    )


def test_a_machine_by_hand() -> None:
    row = rows_of(Selection(QUEUE, 3, Memory()))[0]
    ahead = [4 / 8 if seconds < 3600 else 1.0 for seconds in AHEAD_S.tolist()]
    assert row[:8].tolist() == [2 / 8, *ahead]
    assert row[8:11].tolist() == [0, 0, 0]
    assert row[11] == pytest.approx(math.log(4) / 6)
    work = (4 * 3600 + 60 + 2 * 86400) / (8 * 3600)
    assert row[12] == pytest.approx(math.log1p(work) / 5)
    assert row[13] == pytest.approx(2 / 3)
    assert row[14:] == pytest.approx([math.log1p(10) / 8, math.log1p(90060 / 3 / 60) / 8])


def test_jobs_by_hand_while_something_is_reserved_for() -> None:
    selection = Selection(QUEUE, 3, Memory())
    before = rows_of(selection)[1:]
    assert before[:, 7].tolist() == [0, 1, 1] and before[:, 8].tolist() == [1, 1, 1]
    assert before[:, 13] == pytest.approx([math.log1p(1) / 8, 0, 0])  # A fits once B's two nodes are back, in a minute
    assert before[:, 6] == pytest.approx([1, 0.1, 0]) and before[:, 11] == pytest.approx([2 / 3, 1 / 3, 1])
    selection.select(0)
    machine, *jobs = rows_of(selection)
    assert machine[8:11] == pytest.approx([1, math.log1p(1) / 8, 0])  # what is free at 1060, A takes
    assert selection.places.tolist() == [1]
    (job,) = jobs
    assert job[:4] == pytest.approx([1, 1 / 8, math.log(1 / 8) / 8, math.log(1 / 60) / 4])
    assert job[4:7] == pytest.approx([math.log1p(1) / 8, math.log1p(1) / 5, 0.1])
    assert job[7:10].tolist() == [1, 1, 0]
    assert job[14:] == pytest.approx([1 / 8, 1 / 3])


@given(queues(), st.integers(2, 50))
def test_the_size_of_the_machine_does_not_matter(queue: Queue, times: int) -> None:
    """The same shares of a larger machine look the same."""
    larger = replace(
        queue, size=times * queue.size, free=times * queue.free, total=times * queue.total, held=times * queue.held
    )
    one, other = (Selection(each, 8, Memory()) for each in (queue, larger))
    while not one.over:
        assert np.array_equal(rows_of(one), rows_of(other))
        last = int(np.flatnonzero(one.mask)[-1])
        one.select(last)
        other.select(last)


@given(queues(), st.integers(1, 12))
def test_rows_are_filled_up_with_zeros(queue: Queue, window: int) -> None:
    selection, sight = Selection(queue, window, Memory()), Shares(window)
    seen, rows = sight(selection), rows_of(selection)
    assert seen.shape == sight.shape(16) == (1 + window, COLUMNS) and seen.dtype == np.float32
    assert np.array_equal(seen[: len(rows)], rows) and not seen[len(rows) :].any()
    assert np.isfinite(seen).all() and (np.abs(seen) <= 4).all()
    assert seen[1:, 0].astype(bool).tolist() == selection.mask.tolist()


def test_a_window_of_no_jobs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        Shares(0)
