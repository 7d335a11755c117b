"""A run in trouble on a real cluster: nothing is lost, nothing is done twice, no job is left, and it says why."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import AllocationStarted, DriverStarted, Submitted, TaskDone, TaskFailed, TasksKept, TasksLaunched
from asa.log.rundir import list_runs
from tests.cluster import faults, host
from tests.cluster.cluster import Cluster, running
from tests.cluster.processes import wait_until
from tests.integration.conftest import leave_nothing
from tests.integration.flows import traces
from tests.integration.shell import ASA, FLOWS, Outcome, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

LongRuns = dict[str, tuple[Shell, subprocess.Popen[str]]]

RIGHT = sum(range(6))
TASKS = ("run", f"{FLOWS}:tasks", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")


def assert_done(shell: Shell, outcome: Outcome) -> None:
    """The right result, by every task once; those that were lost in the middle were started again."""
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[-1] == str(RIGHT)
    assert outcome.data["state"] == "succeeded"
    assert traces(shell.folder, "ended") == dict.fromkeys(range(6), 1)
    assert shell.queue() == []


def jobs_of(outcome: Outcome, stage: str) -> list[dict[str, Any]]:
    return [job for job in outcome.data["jobs"] if stage in job["stages"]]


def kill_driver(shell: Shell, *words: object, after: int = 2) -> str:
    """Start a run and kill -9 its driver when some tasks are done: the job."""
    with shell.started(*TASKS, *words) as driver:
        shell.await_events(TaskDone, after)
        driver.kill()
        driver.wait()
    (submitted,) = shell.events(Submitted)
    job: str = submitted.handle.job_id
    return job


class TestDriver:
    def test_within_the_grace_another_driver_takes_the_running_allocation_over(self, shell: Shell) -> None:
        job = kill_driver(shell)
        outcome = shell.asa("resume", shell.run, "--quiet")
        assert_done(shell, outcome)
        assert [item["job_id"] for item in jobs_of(outcome, "work")] == [job]
        assert shell.cluster.job(job)["JobState"] == "COMPLETED"
        assert set(traces(shell.folder).values()) == {1}, "what ran when the driver died goes on"
        assert outcome.data["resumes"] == 1

    def test_long_tasks_go_on_while_there_is_no_driver_and_after(self, shell: Shell) -> None:
        """Some end before there is another driver, some later; a node of several is the last to say what it has."""
        with shell.started("run", f"{FLOWS}:nodes", "--set", "count=3", "--set", "seconds=8", *TASKS[2:]) as driver:
            shell.await_events(TasksLaunched)
            assert wait_until(lambda: len(traces(shell.folder)) == 3, 30)
            driver.kill()
            driver.wait()
        outcome = shell.asa("resume", shell.run, "--quiet")
        assert outcome.code == 0, outcome.err
        assert set(traces(shell.folder).values()) == {1}
        (kept,) = shell.events(TasksKept)
        assert sorted(kept.tasks) == [("place", index) for index in range(3)]
        assert shell.queue() == []

    def test_after_the_grace_the_job_has_ended_and_another_is_asked_for(self, shell: Shell) -> None:
        job = kill_driver(shell, "--orphan-grace", "3s")
        shell.await_job(job, "FAILED")
        outcome = shell.asa("resume", shell.run, "--quiet")
        assert_done(shell, outcome)
        assert jobs_of(outcome, "work")[0]["job_id"] == job
        assert len(jobs_of(outcome, "work")) == 2
        assert set(traces(shell.folder).values()) == {1}, "what ended within the grace is not lost"

    def test_clean_lists_its_jobs_and_cancels_those_of_resumable_runs_only_when_forced(self, shell: Shell) -> None:
        job = kill_driver(shell)
        (row,) = shell.asa("clean").data["rows"]
        assert row == {"run": shell.run, "job": job, "state": "running", "resumable": True, "cancelled": False}
        (row,) = shell.asa("clean", "--cancel").data["rows"]
        assert not row["cancelled"]
        assert shell.cluster.job(job)["JobState"] == "RUNNING"
        (row,) = shell.asa("clean", "--cancel", "--force").data["rows"]
        assert row["cancelled"]
        shell.await_job(job, "CANCELLED")
        assert shell.asa("clean").data["rows"] == []
        assert_done(shell, shell.asa("resume", shell.run, "--quiet"))

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted_it_leaves_no_job_and_can_be_resumed(self, shell: Shell, number: signal.Signals) -> None:
        with shell.started(*TASKS, "--strategy", "asa:dependency=upfront") as driver:
            shell.await_events(TaskDone, 2)
            driver.send_signal(number)
            interrupted = shell.ended(driver)
        assert interrupted.code == 130
        assert "interrupted" in interrupted.err
        assert shell.queue() == []
        assert_done(shell, shell.asa("resume", shell.run, "--quiet"))

    def test_held_it_starts_nothing_with_this_driver_or_the_next_until_it_is_released(self, shell: Shell) -> None:
        with shell.started(*TASKS, "--set", "seconds=2") as driver:
            shell.await_events(TaskDone, 1)
            held = shell.beside("hold", shell.run)
            assert held.code == 0 and held.data["held"], held.err
            begun = len(traces(shell.folder))
            assert wait_until(lambda: len(traces(shell.folder, "ended")) == begun, 60), "what runs goes on to its end"
            (job,) = shell.queue()
            time.sleep(6)
            assert (len(traces(shell.folder)), shell.queue()) == (begun, [job]) and begun < 6
            assert "is held" in shell.beside("explain", shell.run).out
            driver.kill()
            driver.wait()
        with shell.started("resume", shell.run, "--quiet") as driver:
            shell.await_events(DriverStarted, 2)
            time.sleep(6)
            assert (len(traces(shell.folder)), shell.queue()) == (begun, [job])
            assert shell.beside("release", shell.run).code == 0
            outcome = shell.ended(driver)
        assert_done(shell, outcome)
        assert [item["job_id"] for item in jobs_of(outcome, "work")] == [job], "its job was kept"


LATE = """
import sys
from pathlib import Path
import asa
from asa.backends.slurm.backend import Slurm

@asa.stage(walltime="5m")
def answer():
    return 42

script = "#!/bin/sh\\n{{directives}}\\n(\\n{{program}}\\n)\\nsleep 600\\n"
run = asa.run(answer(), backend=Slurm(template=script), strategy="per-stage", workdir=sys.argv[1])
print(run.result())
"""


QUICK = """
import sys
import asa

@asa.stage(nodes=3, tasks_per_node=1, walltime="5m")
def same(x):
    return x

run = asa.run(same.map(range(3)), backend="slurm:poll_s=15", strategy="per-stage", workdir=sys.argv[1])
print(run.result())
"""


class TestEnd:
    def test_the_program_does_not_wait_for_jobs_that_know_that_it_is_over(self, shell: Shell) -> None:
        argv = [sys.executable, "-c", LATE, str(shell.folder)]
        ended = subprocess.run(argv, env=shell.env, cwd=shell.folder, capture_output=True, text=True, timeout=100)
        assert (ended.returncode, ended.stdout) == (0, "42\n"), ended.stderr
        (job,) = shell.queue()
        assert shell.cluster.job(job)["JobState"] == "RUNNING"
        (directory,) = list_runs(shell.state)
        assert f"jobs {job} end by themselves" in directory.log.read_text()
        shell.cluster.run("scancel", job)

    def test_nodes_that_come_when_the_program_has_ended_end_well(self, shell: Shell) -> None:
        argv = [sys.executable, "-c", QUICK, str(shell.folder)]
        ended = subprocess.run(argv, env=shell.env, cwd=shell.folder, capture_output=True, text=True, timeout=100)
        assert (ended.returncode, ended.stdout) == (0, "[0, 1, 2]\n"), ended.stderr
        (submitted,) = shell.events(Submitted)
        shell.await_job(submitted.handle.job_id, "COMPLETED")

    def test_the_command_line_prints_the_result_first(self, shell: Shell) -> None:
        argv = [str(ASA), "run", f"{FLOWS}:tasks", *TASKS[3:], "--set", "seconds=0"]
        with subprocess.Popen(
            argv, env=shell.env, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout and process.stderr
            assert process.stdout.readline() == f"{RIGHT}\n"
            assert process.poll() is None, "numbers of jobs come later"
            assert "core-hours charged" in process.stderr.read()
        assert wait_until(lambda: not shell.queue(), 60)


class TestOperator:
    @pytest.mark.parametrize("done", [0, 2])
    def test_a_job_that_is_cancelled_is_asked_for_again(self, shell: Shell, done: int) -> None:
        with shell.started(*TASKS, "--set", "seconds=5") as driver:
            shell.await_events(TaskDone if done else AllocationStarted, max(done, 1))
            (submitted,) = shell.events(Submitted)
            shell.cluster.run("scancel", submitted.handle.job_id)
            outcome = shell.ended(driver, 120)
        assert_done(shell, outcome)
        assert [job["state"] for job in jobs_of(outcome, "work")] == ["cancelled", "completed"]

    def test_a_partition_that_is_not_there_is_refused_before_anything_is_submitted(self, shell: Shell) -> None:
        refused = shell.asa(*TASKS, "--backend", "slurm:partition=nowhere")
        assert refused.code == 1
        assert refused.err == "asa: error: Slurm has no partition 'nowhere': choose one of main, share\n"

    def test_what_the_site_refuses_is_shown_in_its_words(self, shell: Shell) -> None:
        refused = shell.asa(*TASKS, "--backend", "slurm:reservation=nowhere")
        assert refused.code == 1
        assert "stage 'work' failed: the batch system refused the job" in refused.err
        assert "Requested reservation is invalid" in refused.err
        assert "asa resume" not in refused.err, "it would be refused again"


class TestBudget:
    def test_six_runs_keep_to_one_budget(self, shell: Shell) -> None:
        """Counted in the logs of the runs: each command, when, and by which run."""
        limits = {"ASA_SCHEDULER_BUDGET": "query=6,submit=2,burst=10"}
        with ExitStack() as stack:
            stack.enter_context(pytest.MonkeyPatch.context()).setenv(*limits.popitem())
            beside = [Shell(shell.cluster, shell.folder, f".{number}") for number in range(6)]
            drivers = [stack.enter_context(each.started(*TASKS, "--set", "count=2")) for each in beside]
            for each, driver in zip(beside, drivers, strict=True):
                outcome = each.ended(driver, 250)
                assert outcome.code == 0, outcome.err
        calls: dict[str, list[float]] = {"question": [], "sbatch": []}
        kinds = {"squeue ": "question", "sacct ": "question", "sinfo ": "question", "sacctmgr ": "question"}
        kinds |= {"scontrol show ": "question", "scontrol --all ": "question", "sbatch ": "sbatch"}
        for log in (shell.state / "runs").glob("*/asa.log"):
            for line in log.read_text().splitlines():
                for command, kind in kinds.items():
                    if f" asa.backends.batch: {command}" in line and "--version" not in line:
                        at, _, part = line[:23].partition(".")
                        calls[kind].append(time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S")) + int(part) / 1000)
        for kind, every_s in (("question", 6.0), ("sbatch", 2.0)):
            found = sorted(calls[kind])
            assert len(found) >= 10, "it was counted"
            rate = (600.0 / every_s - 10) / 600.0
            for first, start in enumerate(found):
                for last in range(first, len(found)):  # a command takes some time: it is noted when it has ended
                    # and each run may take its turn up to 30 s late
                    allowed = 10 + rate * (found[last] - start + 2.0) + len(beside)
                    if kind == "question":  # a run that starts asks what the site is like, however many there are
                        allowed += 3 * len(beside)
                    assert last - first + 1 <= allowed, (kind, found)


class TestController:
    @pytest.mark.parametrize(("kill9", "seconds"), [(False, 3), (True, 7)])
    def test_it_restarts_during_a_run(self, shell: Shell, kill9: bool, seconds: int) -> None:
        with shell.started(*TASKS, "--set", f"seconds={seconds}") as driver:
            if kill9:  # else it would not know that the job has started, and start it again
                shell.await_events(AllocationStarted, 1)
                faults.await_saved(shell.cluster)
            shell.await_events(TaskDone, 2)
            faults.restart_controller(shell.cluster, kill9=kill9)
            outcome = shell.ended(driver, 120)
        shell.cluster.await_nodes()
        assert_done(shell, outcome)


class TestNodes:
    def test_one_task_on_each(self, shell: Shell) -> None:
        outcome = shell.asa("run", f"{FLOWS}:nodes", "--quiet", "--backend", "slurm:poll_s=1")
        assert outcome.code == 0, outcome.err
        (job,) = outcome.data["jobs"]
        assert (job["cores"], len(job["nodes"])) == (8, 2)
        assert all(f"'{node}'" in outcome.out for node in job["nodes"])

    def test_one_crashes_and_its_tasks_run_elsewhere_at_no_cost_to_their_retries(
        self, own_cluster: Cluster, tmp_path: Path
    ) -> None:
        shell = Shell(own_cluster, tmp_path)
        with shell.started(*TASKS, "--set", "seconds=3") as driver:
            shell.await_events(TaskDone, 2)
            (started,) = shell.events(AllocationStarted)
            faults.kill_node(own_cluster, started.nodes[0])
            outcome = shell.ended(driver, 120)
        assert_done(shell, outcome)
        first, second = jobs_of(outcome, "work")
        assert (first["state"], second["state"]) == ("node_fail", "completed")
        assert first["nodes"] != second["nodes"]
        failures = shell.events(TaskFailed)
        assert failures
        assert all(failure.infrastructure for failure in failures)


class TestWallTime:
    def test_a_task_that_is_too_long_for_it_fails_the_stage(self, long_runs: LongRuns) -> None:
        shell, driver = long_runs["too long"]
        outcome = shell.ended(driver, 190)
        assert outcome.code == 1
        assert "stage 'work' failed: task" in outcome.err
        assert "reached the wall time: raise walltime=" in outcome.err
        assert [job["state"] for job in jobs_of(outcome, "work")] == ["timeout"], "another would be of no use"

    def test_before_it_ends_an_allocation_drains_and_another_takes_over(self, long_runs: LongRuns) -> None:
        shell, driver = long_runs["many"]
        outcome = shell.ended(driver, 150)
        assert outcome.code == 0, outcome.err
        assert outcome.out.splitlines()[-1] == str(sum(range(16)))
        assert traces(shell.folder) == dict.fromkeys(range(16), 1)  # none was cut off
        assert [job["state"] for job in jobs_of(outcome, "work")] == ["completed", "completed"]


@pytest.fixture(scope="class")
def long_runs(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongRuns]:
    """Two runs side by side: one with tasks that take longer than the wall time, and one with 64 s of tasks for an
    allocation that drains after 57 s.

    A task is to blame when it had nine tenths of the wall time: to start may take a busy machine 12 s.
    """
    long = {"too long": ("walltime=2m", "seconds=300", "count=2"), "many": ("walltime=1m", "seconds=8", "count=16")}
    with ExitStack() as stack:
        runs = {}
        for name, sizes in long.items():
            shell = Shell(slurm_cluster, tmp_path_factory.mktemp("long"))
            words = (word for size in sizes for word in ("--set", size))
            runs[name] = shell, stack.enter_context(shell.started(*TASKS, *words))
        yield runs
    leave_nothing(shell)


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes that soon notices when one is gone."""
    if (reason := host.obstacle()) is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("own"), nodes=2, cores_per_node=4, node_timeout=5)) as cluster:
        yield cluster
