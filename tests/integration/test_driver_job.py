"""A driver in a batch job, followed by others: no task starts twice, whatever becomes of the jobs."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from asa.allocations.budget import CallLimits
from asa.core.event import DriverStarted, RunEnded, Submitted, TaskDone, TaskFailed
from asa.log.rundir import RunDirectory, list_runs
from tests.cluster.processes import wait_until
from tests.integration.flows import traces
from tests.integration.shell import FLOWS, PATIENCE_S, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

SECRET = "correct-horse-battery-staple"
HIDDEN = """
import os, time, asa
from pathlib import Path

@asa.stage(cores=2, walltime="10m", secrets=["LICENSE"])
def licensed(index, folder):
    assert len(os.environ["LICENSE"]) == 28
    with Path(folder, f"task-{index}").open("a") as file:
        file.write("started\\n")
    time.sleep(15.0)
    return index

workflow = licensed.map(range(6), folder=os.getcwd())
"""


def started(shell: Shell, *words: object) -> RunDirectory:
    options = ("--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")
    outcome = shell.asa("run", *words, *options)
    assert outcome.code == 0, outcome.err
    (directory,) = list_runs(shell.state)
    assert outcome.out == f"{directory.name}\n"
    return directory


def process_of(run: RunDirectory) -> int | None:
    holder = run.lock().holder()
    return holder.pid if holder is not None else None


def driver_jobs(shell: Shell, run: RunDirectory) -> dict[str, str]:
    """Ids of the jobs of drivers that wait or run, by their names."""
    lines = shell.cluster.run("squeue", "--noheader", "--format=%j %A").splitlines()
    return {name: job for name, job in map(str.split, lines) if name.startswith(f"{run.name}.driver-")}


def test_it_is_followed_by_another_job_before_its_wall_time_ends(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a secret, which is in no script, no command line, no file and no log, and reaches each driver."""
    monkeypatch.setenv("LICENSE", SECRET)
    (shell.folder / "hidden.py").write_text(HIDDEN)
    run = started(shell, "hidden.py", "--driver=job:walltime=1m,partition=share")
    (job, following) = sorted(driver_jobs(shell, run).values(), key=int)
    assert shell.cluster.job(following)["Dependency"].startswith(f"afterany:{job}"), "both were submitted at once"
    script = subprocess.run(
        ["scontrol", "write", "batch_script", job, "-"], env=shell.env, capture_output=True, text=True, check=True
    )
    assert f"{run.name}.driver-2" in script.stdout and "resume" in script.stdout
    assert SECRET not in script.stdout and SECRET.encode().hex() not in script.stdout
    assert shell.cluster.job(job)["Partition"] == "share" and shell.cluster.job(job)["NumCPUs"] == "1"
    assert wait_until(lambda: process_of(run) is not None, PATIENCE_S)
    pid = process_of(run)
    assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    attached = shell.asa("attach", run.name)
    assert (attached.code, attached.out.splitlines()[-1]) == (0, "[0, 1, 2, 3, 4, 5]"), attached.err
    assert set(traces(shell.folder).values()) == {1}, "no task was started again"
    assert len(shell.events(DriverStarted)) >= 2, "45 s of work on two cores take more than half a minute"
    assert len(shell.events(RunEnded)) == 1
    assert wait_until(lambda: not driver_jobs(shell, run), 60), "the job that was to follow is cancelled"
    exposed = [path for path in shell.state.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert exposed == []


def test_cancelled_before_its_driver_has_started_it_has_none(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_SCHEDULER_BUDGET", "burst=10")
    shell.cluster.run("scontrol", "update", "PartitionName=share", "State=DOWN")
    try:
        run = started(shell, f"{FLOWS}:tasks", "--driver=job:walltime=5m,partition=share")
        (job, _) = sorted(driver_jobs(shell, run).values(), key=int)
        left, _ = json.loads((shell.state / "scheduler-budget.json").read_bytes())["submit"]
        assert left < CallLimits().burst - 1, "two submissions are counted"
        status = shell.asa("status", run.name)
        assert f"it has no driver until job {job} starts" in status.out
        with shell.started("attach", run.name) as attached:
            assert attached.stderr is not None
            assert f"job {job} drives the run once it starts" in attached.stderr.readline()
            time.sleep(1.0)
            assert attached.poll() is None, "it waits for the driver"
            attached.send_signal(signal.SIGINT)
            assert attached.wait(60) == 130
        cancelled = shell.asa("cancel", run.name)
        assert cancelled.code == 0, cancelled.err
        assert wait_until(lambda: not driver_jobs(shell, run), 60)
    finally:
        shell.cluster.run("scontrol", "update", "PartitionName=share", "State=UP")
    assert shell.asa("attach", run.name).code == 1


@pytest.mark.parametrize("seed", range(int(os.environ.get("ASA_TEST_DRIVERS_KILLED", "1"))))
def test_killed_at_any_moment_it_is_followed_by_the_next_one(shell: Shell, seed: int) -> None:
    """With SIGKILL, up to three times, at moments of chance, handovers among them."""
    chance = random.Random(seed)
    run = started(shell, f"{FLOWS}:tasks", "--set", "count=8", "--set", "seconds=8", "--driver=job:walltime=1m")
    killed = 0
    until = time.monotonic() + 400
    while killed < 3 and not shell.events(RunEnded) and time.monotonic() < until:
        if not wait_until(lambda: process_of(run) is not None or bool(shell.events(RunEnded)), PATIENCE_S):
            break
        if chance.random() < 0.4:  # as soon as the next one has asked for it, or another has it
            generation = run.generation
            wait_until(lambda: run.handover_request.exists() or run.generation > generation, 45)  # noqa: B023
        time.sleep(chance.choice([0.0, 0.3, chance.uniform(0.0, 10.0)]))
        if (pid := process_of(run)) is not None:
            with suppress(ProcessLookupError):  # it has handed over meanwhile
                os.kill(pid, signal.SIGKILL)
                killed += 1
            assert wait_until(lambda: process_of(run) != pid, PATIENCE_S)
    assert killed, "there was a driver"
    attached = shell.asa("attach", run.name, "--quiet")
    assert (attached.code, attached.out.splitlines()[-1]) == (0, str(sum(range(8)))), attached.err
    assert set(traces(shell.folder, "ended").values()) == {1}
    assert set(traces(shell.folder).values()) == {1}, "tasks go on while there is no driver"
    assert not shell.events(TaskFailed)
    assert len(shell.events(TaskDone)) == 9
    assert wait_until(lambda: not driver_jobs(shell, run), 90)


@pytest.mark.parametrize("after_s", [0.0, 0.4, 0.8])
def test_killed_in_its_first_second_it_is_followed(shell: Shell, after_s: float) -> None:
    """Before it drives the run, or just after; the next one's job is in the queue already.

    Of a signal to the whole of a job Slurm makes a cancellation, with SIGTERM first: that does not end the run.
    """
    run = started(shell, f"{FLOWS}:tasks", "--set", "count=2", "--set", "seconds=5", "--driver=job:walltime=5m")
    first = min(driver_jobs(shell, run).values(), key=int)
    assert wait_until(lambda: shell.cluster.job(first)["JobState"] == "RUNNING", PATIENCE_S)
    time.sleep(after_s)
    shell.cluster.run("scancel", "--signal=KILL", "--full", first)
    attached = shell.asa("attach", run.name, "--quiet")
    assert (attached.code, attached.out.splitlines()[-1]) == (0, str(sum(range(2)))), attached.err
    assert shell.cluster.job(first)["JobState"] in ("FAILED", "CANCELLED")
    assert len(shell.events(DriverStarted)) in (1, 2)
    assert set(traces(shell.folder).values()) == {1}, "no task is started again"
    assert wait_until(lambda: not driver_jobs(shell, run), 60)


LATE = """#!/bin/sh
# The first job of a run is submitted late, when somebody says so; held, so that it does not end by itself.
case "$*" in
*--job-name=*.0\\ *)
    touch "{folder}/asked"
    while [ ! -e "{folder}/go" ]; do sleep 0.1; done
    exec "{sbatch}" --hold "$@";;
esac
exec "{sbatch}" "$@"
"""


def test_two_drivers_that_believe_to_be_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is stopped while it submits a job; the file system forgets its lock, and the run is resumed.

    Then that job comes after all: the second driver cancels it. The first one, when it goes on, ends.
    """
    commands = shell.folder / "commands"
    commands.mkdir()
    real = shutil.which("sbatch")
    assert real is not None
    (commands / "sbatch").write_text(LATE.format(folder=shell.folder, sbatch=real))
    (commands / "sbatch").chmod(0o755)
    words = ("--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")
    with monkeypatch.context() as slower:
        slower.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        first = shell.started("run", f"{FLOWS}:tasks", "--set", "seconds=5", *words)
        stopped = first.__enter__()
    try:
        assert wait_until((shell.folder / "asked").exists, PATIENCE_S)
        (run,) = list_runs(shell.state)
        assert wait_until((run.path / "rendezvous.json").exists, PATIENCE_S), "it listens"
        time.sleep(2.0)
        stopped.send_signal(signal.SIGSTOP)
        for lock in ("driver.lock", "pool/master.lock"):
            (run.path / lock).unlink()
        other = replace(shell, suffix=".beside")
        with other.started("resume", run.name, *words[:1]) as second:
            assert wait_until(lambda: len(shell.events(Submitted)) == 1, PATIENCE_S)
            (submitted,) = shell.events(Submitted)
            assert submitted.allocation == f"{run.name}.1", "what was not found within 30 s is taken for lost"
            (shell.folder / "go").touch()

            def late() -> list[str]:
                return shell.cluster.run("squeue", "--noheader", f"--name={run.name}.0", "--format=%A").split()

            assert wait_until(lambda: bool(late()), 30)
            (job,) = late()
            came = time.monotonic()
            assert wait_until(lambda: not late(), 30), "it is found by its name and cancelled"
            print(f"cancelled {time.monotonic() - came:.1f} s after it came")
            assert shell.cluster.job(job)["JobState"] == "CANCELLED"
            stopped.send_signal(signal.SIGCONT)
            ended = shell.ended(stopped)
            assert ended.code == 1 and "another driver has gone on with this run" in ended.err
            outcome = other.ended(second)
    finally:
        stopped.send_signal(signal.SIGCONT)
        first.__exit__(None, None, None)
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[-1] == str(sum(range(6)))
    assert set(traces(shell.folder).values()) == {1}
    assert shell.queue() == [] or wait_until(lambda: not shell.queue(), 60)
