"""Stages of one workflow in two partitions: each runs in its own, waits are learned for each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from asa.core.context import Geometry
from asa.core.event import Believed
from tests.cluster.cluster import Cluster
from tests.cluster.config import PARTITIONS
from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]
MAIN, SHARE = PARTITIONS


@pytest.mark.parametrize("strategy", ["auto", "big-job", "asa:dependency=predicted", "hold"])
def test_a_stage_runs_in_its_own_partition(slurm_cluster: Cluster, tmp_path: Path, strategy: str) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    outcome = shell.asa("run", f"{FLOWS}:two_partitions", "--backend", "slurm:poll_s=1", "--strategy", strategy)
    assert outcome.code == 0, outcome.err
    cpu, gpu = ast.literal_eval(outcome.out.strip().splitlines()[-1])
    assert cpu == [(MAIN, "", "cpu")] * 2
    assert gpu == (SHARE, "yes", "")
    jobs = [(stage, job["job_id"]) for job in outcome.data["jobs"] for stage in job["stages"]]
    said = {stage: slurm_cluster.job(job_id)["Partition"] for stage, job_id in jobs}
    assert said == {"cpu": MAIN, "gpu": SHARE, "all": SHARE}
    learned = {Geometry.parse(event.geometry).partition for event in shell.events(Believed)}
    assert learned <= {MAIN, SHARE}
    if strategy.startswith("asa"):
        assert learned == {MAIN, SHARE}


def test_a_partition_that_is_not_there_is_refused_before_anything_runs(slurm_cluster: Cluster, tmp_path: Path) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    words = ("run", f"{FLOWS}:two_partitions", "--backend", "slurm:poll_s=1", "--set", "second=gpus")
    outcome = shell.asa(*words)
    assert outcome.code != 0
    assert "stage 'gpu'" in outcome.err and "gpus" in outcome.err
    assert "Traceback" not in outcome.err
