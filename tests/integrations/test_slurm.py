"""Doors over a real cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import JobEnded, Learned, Submitting
from asa.core.job import JobState
from asa.integrations.futures import PoolExecutor
from asa.log.events import EventLog
from tests.cluster.cluster import Cluster

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def cluster(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
    yield slurm_cluster
    slurm_cluster.run("scancel", f"--user={os.geteuid()}")


def job(_number: int) -> str:
    time.sleep(0.3)
    return os.environ["SLURM_JOB_ID"]


@pytest.mark.parametrize("executor", ["local", "mesos"])
def test_calls_run_in_jobs_that_come_and_go(executor: str, tmp_path: Path) -> None:
    options = {"cores": 4, "walltime": "5m", "maximum": 2, "executor": executor}
    with PoolExecutor("slurm:partition=main", state=tmp_path, **options) as calls:
        assert len(set(calls.map(job, range(40)))) == 2
    with EventLog(calls.directory.events) as log:
        events = [event for _, event in log.read()]
    assert [event.state for event in events if isinstance(event, JobEnded)] == [JobState.COMPLETED] * 2
    assert len([event for event in events if isinstance(event, Submitting)]) == 2
    assert len([event for event in events if isinstance(event, Learned)]) == 2


def test_a_dask_cluster_adapts_within_its_jobs(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from distributed import Client

    from asa.integrations.dask import ASACluster

    with ASACluster("slurm:partition=main", cores=4, walltime="5m", maximum=2, state=tmp_path) as cluster:
        cluster.adapt(minimum=0, maximum=8, target_duration="1s")
        with Client(cluster) as client:
            for _ in range(3):
                client.gather(client.map(time.sleep, [0.5] * 24, pure=False))
                time.sleep(4.0)
    with EventLog(cluster.executor.directory.events) as log:
        assert sum(isinstance(event, Submitting) for _, event in log.read()) <= 2
