"""Failures of some tasks on a real cluster: what goes on, what is ended, and what is asked for anew."""

from __future__ import annotations

import pytest

from asa.core.event import StageGrown, Submitting, TaskDone, TaskFailed
from asa.log.events import EventLog
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(300)]

FLOW = """
import os, signal, subprocess, time
from pathlib import Path

import asa

@asa.stage(cores=2, walltime="10m", timeout="3s")
def align(x):
    if x == 3: raise ValueError("no reads")
    if x == 4:
        subprocess.Popen(["setsid", "sleep", "8765"])
        time.sleep(600)
    return 10 * x

@asa.stage(cores=2, walltime="10m")
def call(y): return y + 1

@asa.stage(walltime="10m", accepts_failed=True)
def table(ys): return [y if not isinstance(y, asa.Failed) else y.message for y in ys]

@asa.stage(walltime="10m")
def total(ys): return sum(ys)

@asa.stage(walltime="10m", memory="100M", retries=1, retry_delay="1s")
def hungry(x):
    if not os.path.exists("tried"):
        Path("tried").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x

def workflow():
    called = call.map(align.map(range(10)))
    return [table(called), total(called), hungry(7)]
"""


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "big-job"])
def test_eight_of_ten_samples_and_a_task_that_needs_more(shell: Shell, strategy: str) -> None:
    (shell.folder / "flow.py").write_text(FLOW)
    done = shell.asa("run", "flow.py", "--keep-going", "--backend", "slurm", "--strategy", strategy, "--quiet")
    assert done.code == 3, done.err
    assert "2 of 10 tasks failed; the first: task 3" in done.err and "skipped because of it: total" in done.err
    assert "timed out after 3 s" in done.out and "skipped, as task 3 of align failed: ValueError" in done.out
    stages = {stage["name"]: stage for stage in done.data["stages"]}
    counts = {name: (stage["done"], stage["failed"], stage["skipped"]) for name, stage in stages.items()}
    one = {"table": (1, 0, 0), "total": (0, 0, 1), "hungry": (1, 0, 0)}
    assert counts == {"align": (8, 2, 0), "call": (8, 0, 2)} | one
    with EventLog(shell.state / "runs" / done.data["run"] / "events.db") as log:
        (grown,) = log.each(StageGrown)
        killed = next(event for event in log.each(TaskFailed) if event.stage == "hungry")
        asked = {event.request.token: event.request.resources.memory for event in log.each(Submitting)}
        (ran,) = (
            event.allocation for _, event in log.read() if isinstance(event, TaskDone) and event.stage == "hungry"
        )
    assert (killed.cause, killed.exit) == ("memory", -9) and killed.peak > 0
    assert grown.task.memory == 150 << 20
    assert asked[ran] is None or asked[ran] >= 150 << 20, "a job of its own, or one without a limit"
    assert "  align[4] failed on " in shell.asa("explain", done.data["run"]).out
