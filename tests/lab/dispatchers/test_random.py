from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.random import Random
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines, pools
from tests.lab.dispatchers.views import Job, slot_view


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
def test_on_nodes_no_job_that_would_fit_is_left(view: TableView, seed: int) -> None:
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
