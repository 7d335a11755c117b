"""Runs where an accounting database keeps the books and enforces limits, and the controller forgets soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import host
from tests.cluster.cluster import Cluster, running
from tests.cluster.processes import wait_until
from tests.integration.shell import FLOWS, Outcome, Shell
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
    assert len(agreed(accounted, outcome)) == 2


def agreed(cluster: Cluster, outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The jobs of a run, after its figures have been compared with the accounting's."""
    jobs: dict[str, dict[str, Any]] = {job["job_id"]: job for job in outcome.data["jobs"]}

    def records() -> dict[str, list[str]]:
        fields = "--format=JobID,JobName,State,AllocCPUS,Submit,Start,End"
        lines = cluster.run("sacct", "-X", "-P", "--noheader", f"--jobs={','.join(jobs)}", fields).splitlines()
        return {line.split("|")[0]: line.split("|")[1:] for line in lines}

    # The database gets a job's name, "allocation" until then, and its end one after the other.
    expected = {job_id: [job["token"], "COMPLETED"] for job_id, job in jobs.items()}
    assert wait_until(lambda: {job_id: record[:2] for job_id, record in records().items()} == expected, 30), records()
    for job_id, (_, _, cores, *times) in records().items():
        job, (submitted, start, end) = jobs[job_id], map(seconds, times)
        assert (job["submitted"], job["started"], job["ended"]) == (submitted, start, end)
        assert job["cores"] == int(cores)
        assert job["core_hours_charged"] == pytest.approx(int(cores) * (end - start) / 3600)
    return jobs


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes of four cores with two threads each; a job with more memory than 64 MiB for each CPU gets more CPUs."""
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    memory = {"SelectTypeParameters": "CR_Core_Memory", "DefMemPerCPU": "16", "MaxMemPerCPU": "64"}
    shape: dict[str, Any] = {"threads_per_core": 2, "whole": True, "settings": tuple(memory.items())}
    base = tmp_path_factory.mktemp("slurm")
    with running(host.configure(base, nodes=2, regime="multifactor", database=True, **shape)) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("needs", "backend", "given"),
    [
        ("cores=3", "slurm", 4),  # whole cores, of two threads
        ("cores=3 task_cores=3", "slurm", 4),
        ("cores=9 task_cores=3", "slurm", None),  # what the version makes of it
        ("cores=2", "slurm:hint=nomultithread", 4),
        ("cores=3", "slurm:partition=whole", 8),
        ("cores=3", "slurm:exclusive", 8),
        ("cores=10", "slurm:partition=whole", 16),  # two nodes
        ("cores=1 memory=200M", "slurm", 4),
    ],
)
def test_what_slurm_gives_is_charged_and_where_that_is_not_what_was_asked_for_it_is_said(
    uneven: Cluster, tmp_path: Path, needs: str, backend: str, given: int | None
) -> None:
    shell = Shell(uneven, tmp_path)
    words = [word for need in needs.split() for word in ("--set", need)]
    outcome = shell.asa("run", f"{FLOWS}:one", *words, "--quiet", "--backend", backend, "--report", "report.html")
    assert outcome.code == 0, outcome.err
    ((job_id, job),) = agreed(uneven, outcome).items()
    asked = int(needs.split()[0].removeprefix("cores="))
    assert job["asked_cores"] == asked
    if given is None:
        return
    assert job["cores"] == given
    if "whole" in backend or "exclusive" in backend:  # which is known before it is sent
        preview = shell.asa("run", f"{FLOWS}:one", *words, "--backend", backend, "--dry-run")
        assert f"{given} cores for 5 min, at most {given * 300 / 3600:.3g} core-hours" in preview.out
        graph = shell.asa("graph", f"{FLOWS}:one", *words, "--backend", backend)
        assert f"(charged {given})" in graph.out
    said = shell.asa("explain", shell.run).out
    cores = "1 core" if asked == 1 else f"{asked} cores"
    assert f"work: job {job_id} asked for {cores} and got {given}, which are charged" in said
    assert f"{given} ({asked} asked for)" in (tmp_path / "report.html").read_text()


def test_an_account_that_is_not_there_is_refused_in_the_site_s_words(accounted: Cluster, tmp_path: Path) -> None:
    outcome = Shell(accounted, tmp_path).asa("run", f"{FLOWS}:tasks", "--quiet", "--backend", "slurm:account=nobody")
    assert outcome.code == 1
    assert "stage 'work' failed: the batch system refused the job" in outcome.err
    assert "Invalid account or account/partition combination specified" in outcome.err
