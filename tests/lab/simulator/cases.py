"""Workloads and machines for the simulator's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings

SLOTS = 5


@st.composite
def workloads(draw: st.DrawFn, *, exact: bool = False, most: int = 12, slots: int = SLOTS) -> Workload:
    """A few jobs of single cores, crowded in time; run times equal wall times when `exact`."""
    count = draw(st.integers(1, most))
    numbers = st.integers(1, 9)
    submit = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    walltime = draw(st.lists(numbers, min_size=count, max_size=count))
    run = walltime if exact else [draw(st.integers(0, wall + 3)) for wall in walltime]
    cores = draw(st.lists(st.integers(1, slots), min_size=count, max_size=count))
    return Workload.of(submit=submit, run=run, cores=cores, walltime=walltime)


def whole_numbers(draw: st.DrawFn, count: int) -> Callable[[int, int], list[int]]:
    """Columns of so many whole numbers, from one to another."""
    return lambda low, high: draw(st.lists(st.integers(low, high), min_size=count, max_size=count))


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs of several kinds, and a machine of unequal nodes."""
    cluster = Cluster(np.array([[4, 8], [2, 2], [4, 4], [1, 8]]), ("cores", "memory"))
    count = draw(st.integers(1, 10))
    some = st.lists(st.integers(0, 6), min_size=count, max_size=count)
    walltime = [1 + wall for wall in draw(some)]
    jobs = Workload.of(
        submit=draw(some),
        run=[draw(st.integers(1, wall)) for wall in walltime],
        units=[1 + units % 3 for units in draw(some)],
        walltime=walltime,
        demands=[[1, 0], [2, 1], [1, 4]],
        kind=[kind % 3 for kind in draw(some)],
        per_node=[per_node % 3 for per_node in draw(some)],
    )
    return jobs, cluster


def pull(jobs: Workload, cluster: Cluster, rule: Any, **settings: Any) -> Schedule:
    """The pull loop, in Python, whatever the dispatcher."""
    engine = Engine(jobs, cluster, MachineSettings(**settings))
    while (view := engine.advance()) is not None:
        engine.apply(rule.decide(view))
    return engine.schedule()


class Readable:
    """A backfilling rule in its readable form, also for tables: decided on a `QueueView` made of the table."""

    def __init__(self, rule: Backfill) -> None:
        self.rule = rule

    def decide(self, view: Any) -> Any:
        from asa.core.view import QueueView

        return self.rule.decide(QueueView(view.now, view.capacity, view.queue, view.running))
