from __future__ import annotations

from hypothesis import given

from asa.core.decision import Start
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.binpacking import BinPacking
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines, pools
from tests.lab.dispatchers.views import Job, slot_view


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
