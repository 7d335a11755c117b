"""The conformance suite over a real cluster."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from asa.backends.batch import key
from asa.backends.slurm import array
from asa.backends.slurm.array import NOT_RUN
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import SlurmOptions
from asa.core.clock import SystemClock
from asa.core.job import JobChanges, JobHandle, JobRequest, JobState, Refused, Resources
from asa.testing.backends import BatchSemantics, RealPrograms, TestedSite
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running
from tests.cluster.config import ORDINARY_USERS
from tests.cluster.processes import wait_until

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = pytest.mark.slurm


@pytest.fixture
def site(slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestedSite]:
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
    backend = Slurm(partition="main", poll_s=0.1)
    yield TestedSite(
        backend, SystemClock(), tmp_path, run_s=1.2, resolution_s=1.0, walltime_s=120, shortest_s=60, patience_s=60
    )
    slurm_cluster.run("scancel", f"--user={os.geteuid()}")
    backend.close()


@pytest.fixture
def slurm(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
    yield Slurm(partition="main")
    slurm_cluster.run("scancel", f"--user={os.geteuid()}")


def element(folder: Path, name: str, resources: Resources, shell: str, walltime_s: float = 60.0) -> JobRequest:
    token = f"{name}-{secrets.token_hex(4)}"
    argv = ("sh", "-c", shell)
    return JobRequest(token, resources, walltime_s, argv, str(folder), str(folder / name), array="stages")


def test_elements_of_an_array_are_jobs_of_their_own(slurm: Slurm, slurm_cluster: Cluster, tmp_path: Path) -> None:
    size = "echo $SLURM_NTASKS $SLURM_JOB_NAME"
    requests = [
        element(tmp_path, "one", Resources(8, nodes=1), size),
        element(tmp_path, "two", Resources(8, nodes=2), size, walltime_s=120.0),
        element(tmp_path, "bad", Resources(2), "exit 3"),
        element(tmp_path, "never", Resources(3, nodes=3), "echo never"),
    ]
    handles = [outcome for outcome in slurm.submit(requests) if isinstance(outcome, JobHandle)]
    found = slurm.find([request.token for request in requests])
    assert {token: key(handle) for token, handle in found.items()} == {handle.token: key(handle) for handle in handles}
    assert wait_until(lambda: all(status.ages_since for status in slurm.query(handles)), 20), "before the first starts"
    limits = [slurm_cluster.job(f"{handle.job_id}_{handle.array_index}")["TimeLimit"] for handle in handles]
    assert limits == ["00:01:00", "00:02:00", "00:01:00", "00:01:00"]
    assert wait_until(lambda: all(status.state.final for status in slurm.query(handles)), 60)
    ended = slurm.query(handles)
    assert [status.exit_code for status in ended] == [0, 0, 3, NOT_RUN]
    assert [len(status.nodes) for status in ended] == [1, 2, 1, 3]
    assert (tmp_path / "one").read_text() == f"8 {requests[0].token}\n"
    assert (tmp_path / "two").read_text().count(f"2 {requests[1].token}\n") == 2, "one task on each node"
    assert "element 2 of this job array did not end well (exit code 3)" in (tmp_path / "never").read_text()


def test_a_throttle_lets_elements_run_side_by_side(slurm: Slurm, tmp_path: Path) -> None:
    requests = [element(tmp_path, name, Resources(2), "sleep 60") for name in ("one", "two", "three")]
    handles = [outcome for outcome in slurm.submit(requests) if isinstance(outcome, JobHandle)]

    def running() -> list[bool]:
        return [status.state is JobState.RUNNING for status in slurm.query(handles)]

    assert wait_until(lambda: slurm.query(handles)[1].reason == "JobArrayTaskLimit", 20)
    assert running() == [True, False, False]
    slurm.update(handles[0], JobChanges(throttle=2))
    assert wait_until(lambda: running() == [True, True, False], 20)
    slurm.cancel(handles[:2])
    assert wait_until(lambda: running()[2], 30), "those that were cancelled keep nobody back"


def test_an_edit_that_slurm_refuses_leaves_nothing(slurm: Slurm, slurm_cluster: Cluster, tmp_path: Path) -> None:
    fine = element(tmp_path, "fine", Resources(1), "true")
    wide = element(tmp_path, "wide", Resources(400, nodes=400), "true")
    slurm = Slurm(partition="main", qos="any")  # with a QOS, limits are left to Slurm
    first, second = slurm.submit([fine, wide])
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert first.reason == second.reason != ""
    assert slurm_cluster.run("squeue", "--noheader", f"--name={fine.token}") == ""


def test_an_ordinary_user_may_make_every_edit() -> None:
    if (reason := host.obstacle()) is not None:
        pytest.skip(reason)
    sizes = [Resources(4, nodes=1), Resources(4, nodes=2, memory=2**30), Resources(3), Resources(8, nodes=1)]
    requests = [
        JobRequest(f"element-{at}", size, 60.0 * (1 + at), ("true",), "/", None, array="stages")
        for at, size in enumerate([replace(size, memory=2**28 * size.cores) for size in sizes])
    ]
    options, _ = array.submission(requests, SlurmOptions(), time.time() + 60)
    user = ORDINARY_USERS[0]
    config = host.configure(None, nodes=2, users=(user,))  # the user has to be able to enter all directories above
    try:
        with running(config) as cluster:
            job = cluster.run("sbatch", "--parsable", *options, "--wrap=true", user=user).strip()
            for at, settings in array.edits(requests, SlurmOptions()):
                cluster.run("scontrol", "update", f"JobId={job}_{at}", *settings, user=user)
            for setting in ("ExcNodeList=" + ",".join(cluster.nodes), "ExcNodeList="):
                cluster.run("scontrol", "update", f"JobId={job}_1", setting, user=user)
            cluster.run("scontrol", "update", f"JobId={job}", "ArrayTaskThrottle=2", user=user)
            found = [cluster.job(f"{job}_{at}") for at in range(4)]
    finally:
        layout.remove(config)
    assert [fields["JobName"] for fields in found] == [request.token for request in requests]
    assert [fields["NumTasks"] for fields in found] == ["4", "4", "3", "8"]
    assert [fields["MinCPUsNode"] for fields in found] == ["4", "2", "1", "8"]
    assert [fields["TimeLimit"] for fields in found] == [f"00:0{minutes}:00" for minutes in (1, 2, 3, 4)]


class TestSlurm(BatchSemantics, RealPrograms):
    def test_an_element_that_fails_does_not_stop_the_next(self, site: TestedSite) -> None:
        """Slurm would go on to it; the job script does not, because nobody else may be there to stop it."""
        first, second = site.submit_array(site.request(exit_code=1), site.request())
        assert site.reach(second, JobState.FAILED).exit_code == NOT_RUN
        assert site.status(first).exit_code == 1

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_job_that_reaches_its_wall_time_is_ended(self, site: TestedSite) -> None:
        super().test_a_job_that_reaches_its_wall_time_is_ended(site)

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_job_out_of_wall_time_leaves_no_process(self, site: TestedSite) -> None:
        super().test_a_job_out_of_wall_time_leaves_no_process(site)
