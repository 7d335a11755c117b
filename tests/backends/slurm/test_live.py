"""The conformance suite over a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.backends.slurm.backend import Slurm
from asa.core.clock import SystemClock
from asa.testing.backends import BatchSemantics, RealPrograms, Site
from tests.cluster.cluster import Cluster

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = pytest.mark.slurm


@pytest.fixture
def site(slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
    backend = Slurm(partition="main", poll_s=0.1)
    yield Site(
        backend, SystemClock(), tmp_path, run_s=1.2, resolution_s=1.0, walltime_s=120, shortest_s=60, patience_s=60
    )
    slurm_cluster.run("scancel", f"--user={os.geteuid()}")
    backend.close()


class TestSlurm(BatchSemantics, RealPrograms):
    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_job_that_reaches_its_wall_time_is_ended(self, site: Site) -> None:
        super().test_a_job_that_reaches_its_wall_time_is_ended(site)

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_job_out_of_wall_time_leaves_no_process(self, site: Site) -> None:
        super().test_a_job_out_of_wall_time_leaves_no_process(site)
