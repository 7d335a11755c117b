"""Edits of a simulated queue that the table of `test_queue_age` does not cover."""

from __future__ import annotations

import pytest

from asa.core.cluster import Cluster
from asa.core.errors import InvalidInput
from asa.core.job import DependencyKind
from asa.core.workload import Workload
from asa.dispatchers.backfill import Fcfs
from asa.simulator import edits
from asa.simulator.engine import Engine
from asa.simulator.settings import Settings


def machine() -> Engine:
    """A free machine of four cores."""
    return Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(4), Settings())


def until(engine: Engine, at: float) -> None:
    rule = Fcfs().native
    assert rule is not None
    while engine.now < at:
        engine.drive(rule, until=at)


def elements(engine: Engine, count: int, array: int, run: float = 10.0) -> list[int]:
    return [edits.submit(engine, run=run, walltime=100.0, units=1, array=array) for _ in range(count)]


def test_an_element_that_is_cancelled_before_it_is_there_makes_no_room() -> None:
    engine = machine()
    rows = elements(engine, 4, edits.new_array(engine, limit=1))
    edits.cancel(engine, rows[1])
    until(engine, 100)
    assert engine.state.jobs["started"][[rows[0], rows[2], rows[3]]].tolist() == [0.0, 10.0, 20.0]


def test_an_element_that_can_never_start_makes_no_room() -> None:
    engine = machine()
    gone = edits.submit(engine, run=10.0, walltime=100.0, units=1)
    edits.cancel(engine, gone)
    array = edits.new_array(engine, limit=1)
    after = [(gone, DependencyKind.AFTER_OK)]
    edits.submit(engine, run=10.0, walltime=100.0, units=1, array=array, after=after)
    rows = elements(engine, 3, array)
    until(engine, 100)
    assert engine.state.jobs["started"][rows].tolist() == [0.0, 10.0, 20.0]


def test_a_throttle_becomes_wider_and_not_narrower() -> None:
    engine = machine()
    array = edits.new_array(engine, limit=1)
    rows = elements(engine, 4, array)
    until(engine, 5)
    edits.set_throttle(engine, array, 2)
    until(engine, 8)
    with pytest.raises(InvalidInput, match="throttled to 1: 2 of its elements go already"):
        edits.set_throttle(engine, array, 1)
    until(engine, 100)
    assert engine.state.jobs["started"][rows].tolist() == [0.0, 5.0, 10.0, 15.0]
