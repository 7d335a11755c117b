"""Runs where an accounting database keeps the books and enforces limits, and the controller forgets soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import host
from tests.cluster.cluster import Cluster, running
from tests.cluster.processes import wait_until
from tests.integration.shell import FLOWS, Shell
from tests.integration.test_workflows import seconds

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    base = tmp_path_factory.mktemp("slurm")
    with running(host.configure(base, nodes=1, regime="limits", database=True, min_job_age=2)) as cluster:
        yield cluster


@pytest.mark.parametrize("strategy", ["asa", "per-stage"])
def test_figures_agree_with_the_accounting(accounted: Cluster, tmp_path: Path, strategy: str) -> None:
    shell = Shell(accounted, tmp_path)
    outcome = shell.asa("run", f"{FLOWS}:tasks", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", strategy)
    assert outcome.code == 0, outcome.err
    jobs = {job["job_id"]: job for job in outcome.data["jobs"]}
    assert len(jobs) == 2

    def records() -> dict[str, list[str]]:
        fields = "--format=JobID,JobName,State,AllocCPUS,Submit,Start,End"
        lines = accounted.run("sacct", "-X", "-P", "--noheader", f"--jobs={','.join(jobs)}", fields).splitlines()
        return {line.split("|")[0]: line.split("|")[1:] for line in lines}

    # The database gets a job's name, "allocation" until then, and its end one after the other.
    expected = {job_id: [job["token"], "COMPLETED"] for job_id, job in jobs.items()}
    assert wait_until(lambda: {job_id: record[:2] for job_id, record in records().items()} == expected, 30), records()
    for job_id, (_, _, cores, *times) in records().items():
        job, (submitted, start, end) = jobs[job_id], map(seconds, times)
        assert (job["submitted"], job["started"], job["ended"]) == (submitted, start, end)
        assert job["core_hours_charged"] == pytest.approx(int(cores) * (end - start) / 3600)


def test_an_account_that_is_not_there_is_refused_in_the_site_s_words(accounted: Cluster, tmp_path: Path) -> None:
    outcome = Shell(accounted, tmp_path).asa("run", f"{FLOWS}:tasks", "--quiet", "--backend", "slurm:account=nobody")
    assert outcome.code == 1
    assert "stage 'work' failed: the batch system refused the job" in outcome.err
    assert "Invalid account or account/partition combination specified" in outcome.err
