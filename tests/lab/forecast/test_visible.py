from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asa.core.units import DAY
from asa.lab.dispatchers.backfill import Easy
from asa.lab.forecast.visible import SHORTEST_S, visible
from tests.lab.forecast.queues import jobs, machine, queue, running, waiting


@given(jobs, st.integers(0, 600))
def test_a_table_and_a_plain_view_show_the_same(made: list[tuple[int, int, int, int]], until: int) -> None:
    engine = machine(made)
    engine.drive(Easy().native, until=until)
    table, view = visible(engine.view()), visible(engine.view().plain())
    assert (table.now, table.cores, table.running, table.waiting) == (view.now, view.cores, view.running, view.waiting)
    for column in ("running_cores", "left_s", "waiting_cores", "walltime_s", "submitted"):
        assert getattr(table, column).tolist() == getattr(view, column).tolist()
    assert np.isnan(view.started).all(), "a user does not see when jobs started"
    assert (table.started <= table.now).all()


def test_a_table_is_copied() -> None:
    engine = machine([(0, 8, 100, 50), (0, 8, 100, 50)])
    engine.drive(Easy().native, until=10)
    seen = visible(engine.view())
    before = seen.started.tolist(), seen.walltime_s.tolist(), seen.running_cores.tolist()
    engine.drive(Easy().native)
    assert (seen.started.tolist(), seen.walltime_s.tolist(), seen.running_cores.tolist()) == before


def test_a_job_past_its_wall_time_is_about_to_end() -> None:
    seen = visible(queue(100.0, runs=(running("a", 1, 40.0),)))
    assert seen.left_s.tolist() == [SHORTEST_S]


def test_unknown_wall_times_are_the_longest_seen() -> None:
    seen = visible(queue(0.0, (waiting("a", 1, math.nan), waiting("b", 1, 500.0)), (running("c", 1, math.inf),)))
    assert seen.walltime_s.tolist() == [500.0, 500.0]
    assert seen.left_s.tolist() == [500.0]
    assert visible(queue(0.0, (waiting("a", 1, math.inf),))).walltime_s.tolist() == [DAY]


def test_an_empty_queue_has_no_columns() -> None:
    seen = visible(queue(5.0))
    assert (seen.running, seen.waiting, seen.left_s.shape, seen.walltime_s.shape) == ((), (), (0,), (0,))
