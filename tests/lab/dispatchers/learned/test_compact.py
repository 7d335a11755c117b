from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.compact import Compact, greedy
from asa.lab.dispatchers.learned.compact_network import COLUMNS
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.compact_networks import by_column, drawn
from tests.lab.dispatchers.learned.policies import NODES, workloads

MACHINE = Cluster.of(NODES)
FEW = settings(deadline=None, max_examples=25)


@given(st.lists(st.booleans(), min_size=1, max_size=9).filter(any), st.integers(0, 99))
def test_a_masked_job_is_never_chosen(there: list[bool], seed: int) -> None:
    mask, policy = np.array(there), greedy(drawn(seed))
    observation = np.random.default_rng(seed).normal(size=(1 + len(mask), COLUMNS)).astype(np.float32)
    assert mask[policy(observation, mask)]


@FEW
@given(workloads(), st.integers(0, 9))
def test_every_job_starts(jobs: Workload, seed: int) -> None:
    assert np.isfinite(simulate(jobs, MACHINE, Compact(drawn(seed))).start).all()


@FEW
@given(workloads())
def test_where_all_jobs_are_overdue_at_once_it_does_what_easy_does(jobs: Workload) -> None:
    """But for jobs that have just come, of which it takes the first, too."""
    one = simulate(jobs, MACHINE, Compact(by_column(15, -1.0), threshold=1e-9))
    assert one.start.tolist() == simulate(jobs, MACHINE, "easy").start.tolist()


@FEW
@given(workloads(), st.sampled_from([5.0, 40.0, 1e6]))
def test_a_network_that_sees_lengths_does_what_easy_does_with_the_shortest_first(jobs: Workload, limit: float) -> None:
    one = simulate(jobs, MACHINE, Compact(by_column(3, -1.0), threshold=limit))
    assert one.start.tolist() == simulate(jobs, MACHINE, f"easy:order=sjf,threshold={limit}").start.tolist()


def test_a_trivial_queue_is_solved() -> None:
    """All at once on one node: shortest first is best, and a network that sees lengths does it."""
    run = np.array([50.0, 10.0, 40.0, 20.0, 30.0])
    jobs = Workload.of(submit=np.zeros(5), run=run, cores=[1] * 5, walltime=run)
    found = simulate(jobs, Cluster.of(1), Compact(by_column(3, -1.0)))
    assert np.argsort(found.start).tolist() == [1, 3, 4, 2, 0]
    assert found.wait.sum() == 10 * 4 + 20 * 3 + 30 * 2 + 40


@FEW
@given(workloads(), st.integers(2, 9), st.integers(0, 9))
def test_a_larger_machine_with_larger_jobs_is_the_same(jobs: Workload, times: int, seed: int) -> None:
    larger = Workload.of(submit=jobs.submit, run=jobs.run, cores=times * jobs.cores, walltime=jobs.walltime)
    one, other = Compact(drawn(seed)), Compact(drawn(seed))
    start = simulate(jobs, MACHINE, one).start.tolist()
    assert simulate(larger, Cluster.of(times * NODES), other).start.tolist() == start


def starving(count: int) -> Workload:
    """A long job of the whole machine, and short ones that cannot run side by side, more than there is time for."""
    submit = np.array([0.0] * 5 + [1.0] + [250.0 * k for k in range(1, count + 1)])
    long = submit == 1.0
    run = np.where(long, 36000.0, 300.0)
    return Workload.of(submit=submit, run=run, cores=np.where(long, NODES, NODES // 2 + 1), walltime=2 * run)


def test_the_model_that_ships_lets_nobody_starve_but_where_the_threshold_is_infinite() -> None:
    waits = {
        limit: [simulate(starving(count), MACHINE, f"compact:threshold={limit}").wait[5] for count in (60, 90)]
        for limit in ("1h", "inf")
    }
    assert waits["1h"][0] == waits["1h"][1] < waits["inf"][0] < waits["inf"][1]


def test_the_model_that_ships_prefers_short_jobs() -> None:
    run = np.array([86400.0, 60.0, 3600.0])
    mixed = Workload.of(submit=np.zeros(3), run=run, cores=[NODES] * 3, walltime=run)
    assert np.argsort(simulate(mixed, MACHINE, "compact").start).tolist() == [1, 2, 0]


def test_the_same_again() -> None:
    draw = np.random.default_rng(3)
    run = draw.integers(1, 50, 80)
    jobs = Workload.of(submit=np.arange(80), run=run, cores=draw.integers(1, 9, 80), walltime=run)
    one, same = (simulate(jobs, MACHINE, "compact").start.tolist() for _ in range(2))
    assert one == same


def test_what_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="asa train compact"):
        DISPATCHERS.create(f"compact:model={tmp_path / 'none'}")
    for threshold in (0, -1.0, "soon"):
        with pytest.raises(InvalidInput, match=r"threshold .* is not a positive duration"):
            DISPATCHERS.create(f"compact:threshold={threshold}")
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        DISPATCHERS.create("compact:window=0")
