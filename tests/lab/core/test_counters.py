from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.job import Resources
from asa.core.view import Counters, QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.engine import Engine

jobs = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 8), st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=30
)


@given(jobs, st.integers(0, 600))
def test_a_table_and_a_plain_view_count_the_same(made: list[tuple[int, int, int, int]], until: int) -> None:
    submit, cores, walltime, run = (list(column) for column in zip(*made, strict=True))
    workload = Workload.of(submit=submit, cores=cores, walltime=walltime, run=run)
    engine = Engine(workload, Cluster.of(nodes=2, cores=4))
    engine.dispatch(Easy().native, until=until)
    table = engine.view()
    view = table.plain()
    assert astuple(table.counters()) == pytest.approx(astuple(view.counters()))
    assert table.counters().free_cores == table.slots


def test_what_nobody_knows_counts_for_nothing() -> None:
    one = Resources(1)
    waiting = QueuedJob("a", one, math.nan, 0.0), QueuedJob("b", one, math.inf, 5.0)
    view = QueueView(10.0, one, waiting, (RunningJob("c", one, math.inf),))
    assert view.counters() == Counters(0.0, 2, 0, 10.0, 0.0)


def test_a_machine_that_shrank_has_no_free_cores_and_jobs_past_their_time_no_work() -> None:
    view = QueueView(10.0, Resources(1), (), (RunningJob("a", Resources(3), 5.0),))
    assert view.counters() == Counters(0.0, 0, 0, 0.0, 0.0)


def test_a_context_that_has_looked_keeps_what_it_knew() -> None:
    view = QueueView(10.0, Resources(4), (), (RunningJob("a", Resources(3), 18.0),))
    context = Context(10.0, cores=2, walltime_s=60.0, pending_s=7.0).looked(view)
    assert (context.cores, context.walltime_s, context.pending_s) == (2, 60.0, 7.0)
    assert (context.free_cores, context.left_s, context.queued, context.queue) == (1, 6.0, 0, view)


def test_what_was_seen_stays_as_it_was() -> None:
    columns = {"submit": [0, 1], "run": [100, 50], "cores": [4, 4], "walltime": [200, 80]}
    engine = Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4))
    engine.dispatch(Easy().native, until=10.0)
    seen = engine.view().plain()
    before = (seen.now, seen.queue, seen.running)
    engine.dispatch(Easy().native)
    assert (seen.now, seen.queue, seen.running) == before
    assert [job.ends for job in seen.running] == [200.0], "by its wall time, not by its run time"
    assert seen.plain() is seen


def test_a_plain_view_needs_no_numpy() -> None:
    code = (
        "import sys; from asa.core.view import QueueView; from asa.core.job import Resources; "
        "QueueView(0.0, Resources(1), (), ()).counters(); "
        "print('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
