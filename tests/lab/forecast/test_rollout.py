"""A dispatcher that tries rules on futures: what it knows, what it decides, and that it gains by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.forecast.rollout import JobHistory, Rollout
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from tests.lab.simulator.validate import violations

CORES = 64
OFTEN: dict[str, Any] = {"every": "30m", "futures": 2}


def busy(jobs: int, seed: int = 3) -> Workload:
    """More jobs than the machine can serve at once, by eight users who ask for too much."""
    made = lublin(jobs=jobs, cores=CORES, seed=seed, load=1.0, estimates="uniform:5")
    users = np.random.default_rng(seed).integers(0, 8, len(made))
    return Workload.of(submit=made.submit, run=made.run, cores=made.cores, walltime=made.walltime, user=users)


def starts(work: Workload, **options: Any) -> Floats:
    return simulate(work, Cluster.of(CORES), Rollout(**(OFTEN | options))).start


def test_the_same_seed_decides_the_same_and_another_one_does_not() -> None:
    work = busy(200)
    first = starts(work, seed=1)
    np.testing.assert_array_equal(first, starts(work, seed=1))
    assert (first != starts(work, seed=2)).any()


@settings(max_examples=4, deadline=None)
@given(share=st.floats(0.3, 0.8), change=st.sampled_from([0.1, 0.5, 2.0]))
def test_run_times_of_jobs_that_have_not_ended_change_nothing(share: float, change: float) -> None:
    work = busy(200)
    found = simulate(work, Cluster.of(CORES), Rollout(**OFTEN))
    moment = float(np.quantile(work.submit, share))
    run = np.maximum(1.0, np.minimum(work.run * change, work.walltime))
    # Those that run on beyond the moment go on running beyond it.
    run = np.where(found.start < moment, np.maximum(run, moment - found.start), run)
    run = np.where(found.end <= moment, work.run, run)
    other = Workload.of(submit=work.submit, run=run, cores=work.cores, walltime=work.walltime, user=work.user)
    assert (run != work.run).any()
    begun = found.start < moment
    np.testing.assert_array_equal(starts(other)[begun], found.start[begun])


def test_jobs_that_have_not_been_submitted_change_nothing() -> None:
    work = busy(200)
    alone = starts(work.take(np.arange(150)))
    before = alone < work.submit[150]
    np.testing.assert_array_equal(starts(work)[:150][before], alone[before])


@pytest.mark.parametrize("machine", [Cluster.of(CORES), Cluster.of(nodes=8, cores=8)])
def test_its_schedules_keep_the_laws_of_the_machine(machine: Cluster) -> None:
    found = simulate(busy(200), machine, Rollout(**OFTEN))
    assert found.ran.all()
    assert violations(found) == []


def test_waits_are_shorter_than_those_of_easy() -> None:
    work = busy(800)
    easy = simulate(work, Cluster.of(CORES), "easy").wait
    found = simulate(work, Cluster.of(CORES), Rollout()).wait
    assert found.mean() < 0.9 * easy.mean()


def test_a_view_without_a_table_is_served_as_by_sjf() -> None:
    waiting = tuple(QueuedJob(f"{hours}", Resources(4), hours * 3600.0, 0.0) for hours in (3, 1, 2))
    view = QueueView(10.0, Resources(8), waiting, (RunningJob("r", Resources(4), 600.0),))
    assert Rollout().decide(view) == Easy(order="sjf", threshold="60h").decide(view)


def test_run_times_are_drawn_from_the_most_alike_jobs_and_are_longer_than_what_has_run() -> None:
    history, rng = JobHistory(), np.random.default_rng(0)
    for key in range(40):
        user, share = ("ann", 0.1 + 0.2 * (key % 2)) if key < 20 else ("bob", 0.9)
        history.learn(QueuedJob(key, Resources(), 100.0, 0.0, user), share * 100.0)
    drawn = history.draw(["ann"] * 100, np.full(100, 1000.0), np.zeros(100), rng)
    assert set(drawn.round().tolist()) == {100.0, 300.0}
    running = history.draw(["ann"] * 100, np.full(100, 1000.0), np.full(100, 200.0), rng)
    assert set(running.round().tolist()) == {300.0}
    unlike = history.draw(["ann"] * 100, np.full(100, 1000.0), np.full(100, 950.0), rng)
    assert 950.0 <= unlike.min() < unlike.max() <= 1000.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"futures": 0}, "futures=0: a whole number of at least 1"),
        ({"work": 0}, "work=0"),
        ({"longest": 0.0}, "longest=0.0"),
        ({"slowdown": -1.0}, "slowdown=-1.0"),
        ({"every": "soon"}, "every"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Rollout(**options)
