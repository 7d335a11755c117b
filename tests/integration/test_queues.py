"""Jobs that may go to one of several partitions of a real cluster, of which one gives way to another."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import AllocationStarted, JobEnded, Requeued, Submitting, TaskFailed, TaskPaused
from asa.core.job import JobState
from tests.cluster import host
from tests.cluster.cluster import Cluster, running
from tests.cluster.processes import wait_until
from tests.integration.shell import PATIENCE_S, Shell

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(400)]

FLOW = f"{Path(__file__).with_name('queue_flows.py')}:several"
SAVES = Path(__file__).with_name("checkpoint_flows.py")
CHEAP = ("--price", "core=1,long=1,low=0.1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes of four cores: two for `core` and `low`, two for `long`."""
    if (reason := host.obstacle()) is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("slurm"), cores_per_node=4, tiers=True)) as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    yield Shell(cluster, tmp_path)
    cluster.run("scancel", "--user=root", check=False)
    assert wait_until(lambda: not cluster.run("squeue", "--noheader").strip(), PATIENCE_S)


def occupy(cluster: Cluster, partition: str, seconds: float, minutes: int = 30) -> str:
    """A job of another one that has both nodes of a partition, and a wall time of so many minutes."""
    words = (f"--partition={partition}", "--nodes=2", "--exclusive", f"--time={minutes}", "--output=/dev/null")
    return cluster.run("sbatch", "--parsable", *words, f"--wrap=sleep {seconds}").strip()


def chosen(shell: Shell) -> dict[str, list[str]]:
    """Stage -> the partitions of its jobs, in order."""
    found: dict[str, list[str]] = {}
    for event in shell.events(Submitting):
        for stage in event.stages:
            found.setdefault(stage, []).append(dict(event.request.options)["partition"])
    return found


def test_what_is_seen_of_each_queue_decides(cluster: Cluster, shell: Shell) -> None:
    occupy(cluster, "core", 600, minutes=40)
    occupy(cluster, "long", 600, minutes=20)
    waits = occupy(cluster, "core", 600)
    assert wait_until(lambda: cluster.job(waits)["JobState"] == "PENDING", PATIENCE_S)
    with shell.started("run", FLOW, "--backend", "slurm:poll_s=1", "--ask-once", "--quiet") as process:
        (first,) = shell.await_events(Submitting)
        assert dict(first.request.options)["partition"] == "long", first.why
        assert 900 < first.context.planned_s <= 1200, "its own queue was looked at"
        assert "queue long: start in" in first.why and first.why.count("by its queue as it is seen") == 3
        cluster.run("scancel", "--user=root", "--name=wrap")
        outcome = shell.ended(process, 300)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("requeue", ["true", "false"])
def test_work_that_is_preempted_is_done_again(cluster: Cluster, shell: Shell, requeue: str) -> None:
    """It is requeued by Slurm where that may do so, and asked for again where not; no retry is used up."""
    words = ("--backend", f"slurm:poll_s=1,requeue={requeue}", *CHEAP, "--ask-once", "--quiet")
    with shell.started("run", FLOW, *words, "--set", "seconds=15") as process:
        assert wait_until(lambda: any(shell.folder.glob("began-*")), PATIENCE_S)
        assert chosen(shell)["work"] == ["low"]
        rival = occupy(cluster, "core", 20)
        assert wait_until(lambda: cluster.job(rival)["JobState"] == "RUNNING", PATIENCE_S), "it takes the nodes"
        outcome = shell.ended(process, 300)
    assert outcome.code == 0, outcome.err
    done = ast.literal_eval(outcome.out.strip().splitlines()[-1])
    assert [index for index, _ in done[0]] == [0, 1, 2, 3]
    preempted = [event for event in shell.events(JobEnded) if event.state is JobState.PREEMPTED]
    assert bool(shell.events(Requeued)) == (requeue == "true") and bool(preempted) == (requeue == "false")
    assert all(event.infrastructure for event in shell.events(TaskFailed))
    assert len(shell.events(AllocationStarted)) >= 3
    told = shell.asa("explain", shell.run).out
    assert "queue low: start in" in told and "preempted" in told and "price 0.1 a core-hour" in told


def test_what_was_saved_before_a_preemption_is_not_done_again(cluster: Cluster, shell: Shell) -> None:
    words = ("--backend", "slurm:poll_s=1,requeue=true", "--price", "low=0.1", "--ask-once", "--quiet")
    with shell.started("run", f"{SAVES}:yielding", *words) as process:
        saved = Path(shell.state, "runs")
        assert wait_until(lambda: any(saved.glob("*/checkpoints/**/state")), PATIENCE_S)
        time.sleep(2.0)
        occupy(cluster, "core", 10)
        outcome = shell.ended(process, 300)
    assert outcome.code == 0, outcome.err
    begun = ast.literal_eval(outcome.out.strip().splitlines()[-1])
    assert len(begun) == 2 and begun[0] == 0 < begun[1], "it went on from what it had saved"
    assert shell.events(Requeued) and shell.events(TaskPaused) and not shell.events(TaskFailed)


def test_a_queue_whose_limit_is_broken_is_left_out_by_name(cluster: Cluster, shell: Shell) -> None:
    words = ("--backend", "slurm:poll_s=1", *CHEAP, "--ask-once", "--quiet", "--set", "walltime=2h")
    outcome = shell.asa("run", FLOW, *words)
    assert outcome.code == 0, outcome.err
    assert set(chosen(shell)["work"]) <= {"core", "long"} and set(chosen(shell)["last"]) == {"low"}
    said = next(event.why for event in shell.events(Submitting) if "work" in event.stages)
    assert "low is left out" in said and "allows a wall time of 01:00:00, and the job asks for 02:00:00" in said


def test_a_dry_run_names_the_queues(cluster: Cluster, shell: Shell) -> None:
    outcome = shell.asa(
        "run", FLOW, "--backend", "slurm", "--dry-run", "--set", "walltime=2h", "--set", "queues=low|long"
    )
    assert outcome.code == 0, outcome.err
    work, *_ = outcome.data["rows"]
    assert "--partition=long" in work["commands"][0] and work["commands"][-1].startswith("# or in low: ")


def test_a_job_that_fits_no_queue_is_refused_with_the_limits(cluster: Cluster, shell: Shell) -> None:
    words = ("--backend", "slurm:poll_s=1", "--set", "walltime=2d")
    outcome = shell.asa("run", FLOW, *words)
    assert outcome.code != 0 and "Traceback" not in outcome.err
    for name, limit in (("core", "1-00:00:00"), ("long", "1-00:00:00"), ("low", "01:00:00")):
        assert f"queue '{name}'" in outcome.err and limit in outcome.err
    outcome = shell.asa("run", FLOW, "--backend", "slurm:poll_s=1", "--price", "cor=1,low=nan")
    assert outcome.code == 1 and "price['low']=nan" in outcome.err
    outcome = shell.asa("run", FLOW, "--backend", "slurm:poll_s=1", "--price", "cor=1")
    assert outcome.code == 1 and "price names 'cor'" in outcome.err and "core, long, low" in outcome.err
    assert not cluster.run("squeue", "--noheader", "--all").strip()


def test_of_two_requests_the_one_that_starts_second_is_withdrawn(cluster: Cluster, shell: Shell) -> None:
    for partition in ("core", "long"):
        occupy(cluster, partition, 600)
    with shell.started("run", FLOW, "--backend", "slurm:poll_s=1", "--quiet", "--set", "queues=core|long") as process:
        shell.await_events(Submitting, 2)
        first, second = (event for event in shell.events(Submitting) if "work" in event.stages)
        assert second.instead == first.allocation and second.request.options != first.request.options
        where = dict(second.request.options)["partition"]
        cluster.run("scancel", "--user=root", f"--partition={where}", "--name=wrap")
        (started, *_) = shell.await_events(AllocationStarted)
        assert started.allocation == second.allocation
        ended = shell.await_events(JobEnded)[0]
        assert (ended.allocation, ended.state) == (first.allocation, JobState.CANCELLED)
        cluster.run("scancel", "--user=root", "--name=wrap")
        outcome = shell.ended(process, 300)
    assert outcome.code == 0, outcome.err
    job = next(job for job in outcome.data["jobs"] if job["token"] == first.allocation)
    assert job["core_hours_charged"] == 0 and "started first" in job["reason"]
