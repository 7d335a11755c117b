"""The background jobs: repeatable, of the sizes that were asked for, and gone afterwards."""

from __future__ import annotations

import statistics
from itertools import islice
from random import Random

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until
from tests.integration.load import BackgroundLoad, sleepers

pytest_plugins = ("tests.cluster.fixtures",)


def test_the_same_seed_gives_the_same_jobs() -> None:
    first, again, other = (list(islice(sleepers(Random(seed), 10.0, 8), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_sizes_run_times_and_wall_times() -> None:
    jobs = list(islice(sleepers(Random(1), 90.0, 8), 5000))
    assert {job.cores for job in jobs} == set(range(1, 9))
    assert statistics.mean(job.run_s for job in jobs) == pytest.approx(90.0, rel=0.05)
    assert all(job.run_s <= 60 * job.walltime_min < 5 * job.run_s + 60 for job in jobs)


@pytest.mark.slurm
@pytest.mark.root
def test_it_fills_the_cluster_at_once_and_leaves_nothing(slurm_cluster: Cluster) -> None:
    def cores(state: str) -> int:
        return sum(map(int, slurm_cluster.run("squeue", "--noheader", f"--states={state}", "--format=%C").split()))

    size = len(slurm_cluster.nodes) * slurm_cluster.config.cores_per_node
    with BackgroundLoad(slurm_cluster, seed=1, mean_run_s=60, backlog_s=30) as load:
        assert wait_until(lambda: cores("running") >= 0.9 * size, 10)
        assert cores("pending") > 0
        filled = load.submitted
        assert wait_until(lambda: load.submitted > filled, 30)
    assert wait_until(lambda: cores("running,pending") == 0, 10)


@pytest.mark.slurm
@pytest.mark.root
def test_it_is_bounded_in_number_and_time(slurm_cluster: Cluster) -> None:
    with BackgroundLoad(slurm_cluster, seed=1, offered_load=50, mean_run_s=5, backlog_s=0, most_jobs=60) as load:
        assert wait_until(lambda: load.submitted == 60, 30)
    with BackgroundLoad(slurm_cluster, seed=1, offered_load=50, mean_run_s=5, backlog_s=0, most_s=0) as load:
        filled = load.submitted
    assert load.submitted == filled
