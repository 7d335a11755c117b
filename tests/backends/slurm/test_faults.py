"""A real cluster in trouble, and what its own messages and records make of a job."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from asa.backends.batch import key
from asa.backends.slurm.backend import Slurm
from asa.core.errors import BackendError
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    QueueRegime,
    Refused,
    Resources,
)
from tests.cluster import daemons, faults, host
from tests.cluster.cluster import Cluster, running

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = pytest.mark.slurm

PATIENCE_S = 40.0
ONE_CORE = Resources()

Connect = Callable[..., Slurm]


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with accounting that enforces limits, forgets ended jobs soon and gives up unanswered calls soon."""
    reason = host.obstacle(database=True)
    if reason is not None:
        pytest.skip(reason)
    settings = (("EnforcePartLimits", "ALL"), ("MessageTimeout", "3"))
    base = tmp_path_factory.mktemp("slurm")
    config = host.configure(base, nodes=2, regime="limits", database=True, min_job_age=2, settings=settings)
    with running(config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without accounting that forgets ended jobs soon."""
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("slurm"), nodes=1, min_job_age=2)) as cluster:
        yield cluster


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes a backend for a cluster; in the end no job is left on it."""
    clusters: list[Cluster] = []
    with pytest.MonkeyPatch.context() as patch:

        def connected(cluster: Cluster, partition: str = "main", **options: Any) -> Slurm:
            clusters.append(cluster)
            patch.setenv("SLURM_CONF", str(cluster.config.slurm_conf))
            return Slurm(partition, **options)

        yield connected
    for cluster in clusters:
        cluster.run("scancel", f"--user={os.geteuid()}")


def request(
    shell: str, *dependencies: Dependency, resources: Resources = ONE_CORE, begin: float | None = None, output: str = ""
) -> JobRequest:
    return JobRequest(
        token=f"fault-{secrets.token_hex(4)}",
        resources=resources,
        walltime_s=300.0,
        argv=("sh", "-c", shell),
        workdir="/",
        output=output or None,
        dependencies=dependencies,
        begin=begin,
    )


def submit(backend: Slurm, job: JobRequest) -> JobHandle:
    (outcome,) = backend.submit([job])
    assert isinstance(outcome, JobHandle), outcome
    return outcome


def refusal(backend: Slurm, job: JobRequest) -> str:
    (outcome,) = backend.submit([job])
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


def status(backend: Slurm, handle: JobHandle) -> JobStatus:
    return backend.query([handle])[0]


def reach(backend: Slurm, handle: JobHandle, *states: JobState) -> JobStatus:
    """Wait until a job is in one of these states; fail at once if it ends in another."""

    def there() -> bool:
        found = status(backend, handle)
        assert found.state in states or not found.state.final, found
        return found.state in states

    until(there)
    return status(backend, handle)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(0.1)


def forgotten(cluster: Cluster, *handles: JobHandle) -> None:
    """Wait until the controller has purged these jobs."""
    until(lambda: not any(cluster.job(handle.job_id) for handle in handles))


def recorded(backend: Slurm, *handles: JobHandle) -> list[JobStatus]:
    """How jobs ended that the controller has purged, once the accounting has been told: on a busy machine that lags."""
    until(lambda: all(found.state is not JobState.LOST for found in backend.query(handles)))
    return backend.query(handles)


class TestController:
    @pytest.mark.parametrize("kill9", [False, True])
    def test_a_restart_harms_no_job(self, slurm_cluster: Cluster, connect: Connect, kill9: bool) -> None:
        backend = connect(slurm_cluster)
        handle = submit(backend, request("sleep 20"))
        started = reach(backend, handle, JobState.RUNNING).started
        faults.await_saved(slurm_cluster)
        faults.restart_controller(slurm_cluster, kill9=kill9)
        found = reach(backend, handle, JobState.COMPLETED)
        assert (found.started, found.restarts) == (started, 0)

    def test_a_job_that_a_killed_controller_lost_is_not_taken_for_another(
        self, slurm_cluster: Cluster, connect: Connect
    ) -> None:
        backend = connect(slurm_cluster)
        backend.capabilities()
        kept = submit(backend, request("true", begin=time.time() + 3600))
        faults.await_saved(slurm_cluster)  # it will not again for some seconds
        lost = submit(backend, request("true", begin=time.time() + 3600))
        faults.restart_controller(slurm_cluster, kill9=True)
        later = submit(backend, request("true", begin=time.time() + 3600))
        assert later.job_id == lost.job_id, "the controller had saved the job: this test proves nothing"
        assert [found.state for found in backend.query([lost, later])] == [JobState.LOST, JobState.PENDING]
        assert list(backend.find([lost.token, later.token])) == [later.token]
        backend.cancel([lost])
        assert status(backend, later).state is JobState.PENDING
        backend.cancel([kept, later])
        assert status(backend, later).state is JobState.CANCELLED

    def test_a_controller_that_is_down_may_be_asked_again(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        handle = submit(backend, request("true"))
        daemons.stop(accounted.config, ["slurmctld"], grace=10)
        for call in (
            lambda: backend.query([handle]),
            lambda: backend.submit([request("true")]),
            lambda: backend.find([handle.token]),
        ):
            with pytest.raises(BackendError) as caught:
                call()
            assert caught.value.transient
        faults.restart_controller(accounted)
        reach(backend, handle, JobState.COMPLETED)

    def test_a_submission_without_an_answer_is_found(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        backend.capabilities()
        job = request("true", begin=time.time() + 3600)
        controller = daemons.noted(accounted.config)["slurmctld"]
        controller.signal(signal.SIGSTOP)
        try:
            with pytest.raises(BackendError, match="timed out") as caught:
                backend.submit([job])
        finally:
            controller.signal(signal.SIGCONT)
        assert caught.value.transient
        until(lambda: job.token in backend.find([job.token]))  # it was taken all the same
        names = accounted.run("squeue", "--noheader", "--format=%j").split()
        assert names.count(job.token) == 1
        assert status(backend, backend.find([job.token])[job.token]).state is JobState.PENDING


class TestNodes:
    def test_a_job_whose_node_goes_down_has_failed(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        handle = submit(backend, request("sleep 60"))
        (node,) = reach(backend, handle, JobState.RUNNING).nodes
        accounted.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        found = reach(backend, handle, JobState.NODE_FAIL)
        assert found.nodes == (node,)
        assert found.ended is not None
        accounted.await_nodes()

    def test_a_requeued_job_waits_and_runs_again(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted, requeue=True)
        handle = submit(backend, request("sleep 60"))
        first = reach(backend, handle, JobState.RUNNING)
        (node,) = first.nodes
        accounted.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        waiting = reach(backend, handle, JobState.PENDING)
        assert (waiting.restarts, waiting.started) == (1, None)
        again = reach(backend, handle, JobState.RUNNING)
        assert again.restarts == 1
        assert again.started is not None and first.started is not None
        assert again.started > first.started
        backend.cancel([handle])
        assert reach(backend, handle, JobState.CANCELLED).ended is not None
        accounted.await_nodes()

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_node_that_crashes(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        handle = submit(backend, request("sleep 100"))
        (node,) = reach(backend, handle, JobState.RUNNING).nodes
        faults.kill_node(accounted, node)
        reach(backend, handle, JobState.NODE_FAIL)
        faults.revive_node(accounted, node)


class TestRecords:
    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_the_accounting_remembers_what_the_controller_forgot(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        done, failed = submit(backend, request("true")), submit(backend, request("exit 3"))
        stopped = submit(backend, request("sleep 60"))
        never = submit(backend, request("true", begin=time.time() + 3600))
        reach(backend, stopped, JobState.RUNNING)
        accounted.run("scancel", stopped.job_id, never.job_id)
        handles = [done, failed, stopped, never]
        forgotten(accounted, *handles)
        found = recorded(backend, *handles)
        assert [item.state for item in found] == [
            JobState.COMPLETED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.CANCELLED,
        ]
        assert [item.exit_code for item in found[:2]] == [0, 3]
        assert [item.started is None for item in found] == [False, False, False, True]
        assert "cancelled by uid 0" in found[2].reason
        found = backend.find([item.token for item in handles])
        assert {token: key(item) for token, item in found.items()} == {item.token: key(item) for item in handles}
        backend.cancel(handles)
        assert "which ended as failed" in refusal(backend, request("true", Dependency(failed)))
        submit(backend, request("true", Dependency(done), Dependency(failed, DependencyKind.AFTER_ANY)))

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_without_accounting_a_forgotten_job_is_lost(self, forgetful: Cluster, connect: Connect) -> None:
        backend = connect(forgetful)
        assert backend.capabilities().poll_s == 1.0
        handle = submit(backend, request("true"))
        reach(backend, handle, JobState.COMPLETED)
        forgotten(forgetful, handle)
        found = status(backend, handle)
        assert found.state is JobState.LOST
        assert handle.token in found.reason
        assert backend.find([handle.token]) == {}

    def test_an_operator_cancels(self, slurm_cluster: Cluster, connect: Connect) -> None:
        backend = connect(slurm_cluster)
        running_, waiting = submit(backend, request("sleep 60")), submit(backend, request("true", begin=2e9))
        started = reach(backend, running_, JobState.RUNNING).started
        slurm_cluster.run("scancel", running_.job_id, waiting.job_id)
        assert reach(backend, running_, JobState.CANCELLED).started == started
        assert reach(backend, waiting, JobState.CANCELLED).started is None


class TestSite:
    def test_its_own_words_when_it_refuses(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted)
        assert "More processors requested" in refusal(backend, request("true", resources=Resources(24, nodes=3)))
        assert "More processors requested" in refusal(backend, request("true", resources=Resources(1000)))
        assert "Invalid account" in refusal(connect(accounted, account="nobody"), request("true"))
        assert "Invalid partition name" in refusal(connect(accounted, partition="nosuch"), request("true"))
        assert "unrecognized option" in refusal(connect(accounted, no_such_flag=True), request("true"))

    def test_a_job_that_would_wait_for_ever_is_refused(self, slurm_cluster: Cluster, connect: Connect) -> None:
        reason = refusal(connect(slurm_cluster), request("true", resources=Resources(33)))
        assert "room for 32 cores, 4 nodes" in reason

    def test_capabilities_of_a_cluster(self, slurm_cluster: Cluster, accounted: Cluster, connect: Connect) -> None:
        found = connect(slurm_cluster).capabilities()
        assert (found.site, found.partition, found.regime) == ("asa", "main", QueueRegime.FIFO)
        assert found.largest == Resources(32, nodes=4, memory=4 * slurm_cluster.config.memory_per_node)
        assert (found.cores_per_node, found.longest_s) == (8, 86400)
        assert found.details["SelectType"] == "select/cons_tres"
        assert connect(accounted).capabilities().regime is QueueRegime.LIMITS

    def test_a_cluster_may_be_named(self, accounted: Cluster, connect: Connect) -> None:
        backend = connect(accounted, clusters="asa")
        assert backend.capabilities().site == "asa"
        handle = submit(backend, request("true"))
        reach(backend, handle, JobState.COMPLETED)
        assert [key(item) for item in backend.find([handle.token]).values()] == [key(handle)]

    def test_a_waiting_job_has_a_planned_start(self, slurm_cluster: Cluster, connect: Connect) -> None:
        backend = connect(slurm_cluster)
        first = submit(backend, request("sleep 100", resources=Resources(32)))
        second = submit(backend, request("true", resources=Resources(32)))
        started = reach(backend, first, JobState.RUNNING).started
        # Both come with a round of the scheduler, but not in one go.
        until(lambda: status(backend, second).reason in ("Resources", "Priority"))
        until(lambda: status(backend, second).planned is not None)
        found = status(backend, second)
        assert found.state is JobState.PENDING
        assert found.planned is not None and started is not None
        assert found.planned >= started + 300 - 1

    @pytest.mark.parametrize("resources", [Resources(16, nodes=2), Resources(16)])
    def test_the_program_runs_once_on_each_node(
        self, slurm_cluster: Cluster, connect: Connect, resources: Resources, tmp_path: Path
    ) -> None:
        backend = connect(slurm_cluster)
        output = tmp_path / "output"
        shell = "echo program $SLURMD_NODENAME $SLURM_CPUS_ON_NODE"
        handle = submit(backend, request(shell, resources=resources, output=str(output)))
        found = reach(backend, handle, JobState.COMPLETED)
        assert len(found.nodes) == 2
        printed = [line for line in output.read_text().splitlines() if line.startswith("program")]
        assert sorted(printed) == [f"program {node} 8" for node in found.nodes]

    def test_flags_setup_and_template(self, slurm_cluster: Cluster, tmp_path: Path) -> None:
        template = "#!/bin/bash\n{{directives}}\n{{setup}}\necho {{cores}} cores\n{{program}}\n"
        output = tmp_path / "output"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
            patch.setenv("SBATCH_PARTITION", "main")  # what is given in Python wins over the environment
            backend = Slurm("share", template=template, setup="export WORD=hello", comment="two words", nice=10)
            handle = submit(backend, request("echo $WORD", output=str(output)))
            reach(backend, handle, JobState.COMPLETED)
        shown = slurm_cluster.run("scontrol", "--oneliner", "show", "job", handle.job_id)
        assert "Comment=two words" in shown and "Nice=10" in shown and "Partition=share" in shown
        assert output.read_text() == "1 cores\nhello\n"
