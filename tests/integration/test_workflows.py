"""Every example on a real cluster, under every strategy, among other people's jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.integration.conftest import leave_nothing
from tests.integration.examples import EXAMPLES, STRATEGIES
from tests.integration.load import BackgroundLoad
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

ENDED = {"COMPLETED", "CANCELLED"}
CASES = [
    *(("montage", strategy) for strategy in STRATEGIES),
    ("blast", "per-stage"),
    ("blast", "asa:dependency=predicted"),
    ("statistics", "asa:dependency=upfront"),
    ("statistics", "asa-naive"),
    ("synthetic", "big-job"),
]


@pytest.fixture(scope="module")
def desk(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One shell for all runs: they learn from one another, as a user's runs do."""
    shell = Shell(slurm_cluster, tmp_path_factory.mktemp("desk"))
    yield shell
    leave_nothing(shell)


@pytest.fixture(scope="module")
def busy(slurm_cluster: Cluster) -> Iterator[None]:
    with BackgroundLoad(slurm_cluster, seed=1, offered_load=0.75, mean_run_s=3, backlog_s=1):
        yield


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_it_gives_the_right_result_and_true_figures(desk: Shell, busy: None, name: str, strategy: str) -> None:
    example = EXAMPLES[name]
    if name == "blast" and not shutil.which("blastn"):
        pytest.skip("not on PATH: blastn (Debian package ncbi-blast+)")
    out = f"{name}-{strategy}".replace(":", "-")
    done = example.run(desk, out, strategy, "--set", "cores=4")
    assert done.code == 0, done.err
    example.check(desk, out, done.out)
    run, jobs = done.data, done.data["jobs"]
    assert [stage["state"] for stage in run["stages"]] == ["done"] * example.stages
    for job in jobs:
        check_job(desk.cluster, job)
    assert run["core_hours_charged"] == pytest.approx(sum(job["core_hours_charged"] for job in jobs))
    check_strategy(strategy, run, desk.cluster)


def check_job(cluster: Cluster, job: dict[str, Any]) -> None:
    """What the run says of a job is what Slurm says of it."""
    said = cluster.job(job["job_id"])
    assert said["JobName"] == job["token"]
    assert said["JobState"] in ENDED
    assert said["JobState"].lower() == job["state"]
    assert job["submitted"] == seconds(said["SubmitTime"])
    if job["started"] is None:
        assert (job["wait_s"], job["core_hours_charged"]) == (None, 0)
        return
    start, end = seconds(said["StartTime"]), seconds(said["EndTime"])
    assert (job["started"], job["ended"]) == (start, end)
    assert job["wait_s"] == start - job["submitted"]
    assert job["core_hours_charged"] == pytest.approx(int(said["NumCPUs"]) * (end - start) / 3600)


def check_strategy(strategy: str, run: dict[str, Any], cluster: Cluster) -> None:
    """The jobs were asked for when the strategy says; whole seconds are all that Slurm tells."""
    jobs = {job["token"]: job for job in run["jobs"]}
    stages = run["stages"]
    if strategy == "big-job":
        (job,) = jobs.values()
        assert job["stages"] == [stage["name"] for stage in stages]
    elif strategy == "per-stage":
        assert all(jobs[stage["job"]]["submitted"] >= stage["ready"] - 1 for stage in stages)
    elif strategy == "asa:dependency=upfront":
        assert all(job["submitted"] <= run["started"] + 10 for job in jobs.values())
        assert all(job["predicted_wait_s"] is None for job in jobs.values())
        if run["workflow"] == "montage":  # a chain
            assert all(before["ended"] <= job["started"] for before, job in pairwise(jobs.values()))
    else:
        assert all(job["predicted_wait_s"] is not None for job in jobs.values())


def seconds(time: str) -> float:
    """Slurm's local time as seconds since the epoch."""
    return datetime.fromisoformat(time).timestamp()
