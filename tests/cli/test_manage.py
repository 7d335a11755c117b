"""Commands that end, summarise and remove runs, on real ones."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.event import AllocationStarted, DriverStarted, Event, RunEnded, RunStarted, RunState, Submitting, TaskDone
from asa.integrations.futures import PoolExecutor
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("state")

FLOW = """
import time, sys
from pathlib import Path
import asa

@asa.stage
def nap(x):
    while x and not Path("gate").exists():
        time.sleep(0.05)
    return x

@asa.stage
def fail(): raise ValueError("no")

@asa.stage(walltime="12h", run_time="1m")
def short(x): time.sleep(0.2)

workflow = nap.map([0, 1])
many = short.map(range(300))
quick = nap(0)
broken = fail()

if __name__ == "__main__":
    run = asa.submit(workflow, backend="local:cores=2", name="script")
    run.wait()
    print(run.status.value)
"""


def command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "asa", *words]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)


def begun(state: Path, *words: str, so_far: type[Event] = TaskDone) -> tuple[subprocess.Popen[str], RunDirectory]:
    """A process that drives a run in which so much has happened, its first task is done by default, and the run."""
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_there() -> bool:
        if not (found := list_runs(state)) or not found[-1].events.exists():
            return False
        with EventLog(found[-1].events) as log:
            return log.latest(so_far) is not None

    until(is_there, f"the first {so_far.__name__}")
    return driver, list_runs(state)[-1]


ASA_RUN = (sys.executable, "-m", "asa", "run", "flow.py", "--backend", "local:cores=2")


@pytest.mark.parametrize("words", [ASA_RUN, (sys.executable, "flow.py")])
def test_a_run_of_another_process_is_cancelled(state: Path, words: tuple[str, ...]) -> None:
    driver, run = begun(state, *words)
    done = command("cancel", run.name[:3])
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"run {run.name} is cancelled; to go on with it: asa resume {run.name}\n"
    out, _ = driver.communicate(timeout=60)
    assert (driver.returncode, out) == ((0, "cancelled\n") if words[1] == "flow.py" else (1, ""))
    again = command("cancel", "@last")
    assert again.returncode == 1 and "has been cancelled already: there is nothing to cancel" in again.stderr
    Path("gate").touch()
    assert asa.resume(run.name).result() == [0, 1]
    assert "has succeeded already" in command("cancel", run.name).stderr


def test_a_run_whose_driver_is_gone_is_cancelled_with_its_jobs(state: Path) -> None:
    driver, run = begun(state, *ASA_RUN)
    driver.kill()
    driver.communicate()
    said = command("status").stdout
    assert "\nstages: 1 stopped\n" in said and said.endswith(f"its driver is gone: asa resume {run.name}\n")
    refused = command("rm", run.name, "--yes")
    done = command("cancel", run.name)
    assert done.returncode == 0, done.stderr
    assert refused.returncode == 1 and "1 job that may still run, so it is not removed" in refused.stderr
    assert "is cancelled, with 1 job that it had left; to go on" in done.stdout
    with EventLog(run.events) as log:
        assert run.standing(log) is RunState.CANCELLED
    assert "\njobs: 1 cancelled; " in command("status").stdout
    removed = command("rm", run.name, "--yes")
    assert removed.returncode == 0, removed.stderr
    assert not run.path.exists()


def test_a_run_in_virtual_time_whose_driver_is_gone(state: Path) -> None:
    driver, run = begun(state, *ASA_RUN[:-1], "sim:nodes=1,cores=2", so_far=AllocationStarted)
    driver.kill()
    driver.communicate()
    assert command("status").stdout.endswith(
        "its driver is gone: it was in virtual time: run it again, it cannot be resumed\n"
    )
    cancelled = command("cancel", "@last")
    assert cancelled.returncode == 0 and "it cannot be resumed" in cancelled.stdout, cancelled
    with EventLog(run.events) as log:
        start, end = log.latest(RunStarted), log.latest(RunEnded)
    assert start is not None and end is not None and end.at - start.at < 3600.0, "its time is the queue's"
    assert "\njobs: 1 cancelled; " in command("status").stdout, "its queue ended with its driver"


def test_a_run_in_virtual_time_is_cancelled_but_not_held(state: Path) -> None:
    words = (*ASA_RUN[:4], "flow.py:many", "--backend", "sim:nodes=1,cores=2", "--strategy", "per-stage")
    driver, run = begun(state, *words, so_far=AllocationStarted)
    held = command("hold", "@last")
    assert held.returncode == 1 and "is in virtual time, which does not pass while nothing happens" in held.stderr
    done = command("cancel", "@last")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"run {run.name} is cancelled; it was in virtual time: run it again, it cannot be resumed\n"
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 1 and f"run {run.name}: cancelled by asa cancel" in said
    assert "running" not in command("status").stdout.splitlines()[3], "no job goes on"


def test_the_status_of_a_run(state: Path) -> None:
    assert "no run '@last'" in command("status").stderr
    driver, run = begun(state, *ASA_RUN)
    said = command("status", "--json", "status.json").stdout.splitlines()
    assert said[0].startswith(f"run {run.name}: running, ")
    assert said[0].endswith(f"driven by process {driver.pid} on {os.uname().nodename}")
    assert said[1:3] == ["stages: 1 running", "tasks: 1 of 2 done, 1 running"]
    assert said[3].startswith("jobs: 1 running; <0.001 core-hours")
    assert json.loads(Path("status.json").read_text())["tasks"] == 2
    Path("gate").touch()
    driver.communicate(timeout=60)
    assert command("status", run.name).stdout.splitlines()[1:3] == ["stages: 1 done", "tasks: 2 of 2 done, 0 running"]
    assert "energy" not in command("status", run.name).stdout
    declared = os.environ | {"ASA_NODE_POWER": "idle_w=100,busy_w=300,cores=4"}
    more = command("status", run.name, "--json", "status.json", env=declared).stdout
    assert re.search(r"^energy: [\d.e-]+ kWh modelled$", more, re.M)
    assert json.loads(Path("status.json").read_text())["energy_kwh"] > 0
    assert command("report", run.name, "-o", "run.html", env=declared).returncode == 0
    assert "kWh modelled</b><span>energy</span>" in Path("run.html").read_text()
    command("run", "flow.py:broken", "--quiet", "--name", "broken")
    assert "ValueError: no" in command("status").stdout.splitlines()[-1]


def test_runs_are_removed(state: Path) -> None:
    for name in ("one", "two", "three"):
        assert command("run", "flow.py:quick", "--quiet", "--name", name).returncode == 0
    one, two, three = list_runs(state)
    listed = command("runs", "--size", "--json", "runs.json")
    rows = json.loads(Path("runs.json").read_text())["rows"]
    taken = {row["run"]: row["bytes"] for row in rows}
    assert taken[one.name] == sum(512 * path.lstat().st_blocks for path in [one.path, *one.path.rglob("*")]) > 10_000
    assert "iB" in listed.stdout and listed.stdout.splitlines()[-1].startswith("all together: ")

    refused = command("rm", "one")
    assert refused.returncode == 1 and "no terminal to ask on, so nothing was removed: say --yes" in refused.stderr
    assert f"asa: removes run {one.name}, succeeded: " in refused.stderr and one.path.is_dir()
    done = command("rm", "one", "@last", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("removed 2 runs, ") and list_runs(state) == [two]
    assert not [name for name in os.listdir(state / "runs") if name != two.name], "nothing is left of them"
    assert three.name not in command("runs").stdout
    assert asa.open_run("two").result() == 0


def test_runs_are_removed_by_number_age_and_size(state: Path) -> None:
    for number in range(6):
        assert command("run", "flow.py:quick", "--quiet", "--name", f"r{number}").returncode == 0
    found = list_runs(state)
    for age, run in enumerate(reversed(found)):
        for path in run.path.iterdir():
            os.utime(path, (time.time() - 86400 * age,) * 2)
    assert "which runs? Name them, or say --older, --keep or --over" in command("rm").stderr
    assert "memory '7' has no unit" in command("rm", "--over", "7").stderr
    assert command("rm", "--keep", "6", "--older", "6d", "--over", "1T").stdout == "removed 0 runs, 0 B\n"
    done = command("rm", "--keep", "5", "--older", "4d12h", "--yes")
    assert list_runs(state) == found[1:] and done.stderr.startswith(f"asa: removes run {found[0].name}, succeeded: ")
    command("rm", "--older", "84h", "--yes")
    assert list_runs(state) == found[2:]
    each = found[5].size
    command("rm", "--over", f"{2 * each + each // 2}B", "--yes")
    assert list_runs(state) == found[4:]
    command("rm", "--over", "1B", "--yes")
    assert list_runs(state) == found[5:], "the newest run stays"


def test_a_policy_for_all_runs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes is printed; a run that goes on stays."""
    driver, run = begun(state, *ASA_RUN)
    for name in ("one", "two"):
        assert command("run", "flow.py:quick", "--quiet", "--name", name).returncode == 0
    monkeypatch.setenv("ASA_KEEP_RUNS", "runs=1,days=30")
    done = command("run", "flow.py:quick", "--quiet", "--name", "three")
    assert done.returncode == 0
    assert "asa: removes run one-" in done.stderr and f"run {run.name} is running, so it is not removed" in done.stderr
    assert [kept.name.partition("-")[0] for kept in list_runs(state)][1:] == ["two", "three"]
    Path("gate").touch()
    assert driver.wait(60) == 0
    for wrong in ("runs=few", "weeks=1", "days=-1"):
        monkeypatch.setenv("ASA_KEEP_RUNS", wrong)
        refused = command("run", "flow.py:quick")
        assert refused.returncode != 0 and "ASA_KEEP_RUNS: " in refused.stderr
    assert len(list_runs(state)) == 3


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("\n", 1)])
def test_on_a_terminal_it_asks(state: Path, answer: str, left: int) -> None:
    assert command("run", "flow.py:quick", "--quiet").returncode == 0
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "asa", "rm", "@last"]
    with subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, answer.encode())
        _, said = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert "remove 1 run, " in said and said.count("[y/N]") == 1
    assert process.returncode == left and len(list_runs(state)) == left


def test_a_run_that_goes_on_is_not_removed(state: Path) -> None:
    driver, run = begun(state, *ASA_RUN)
    done = command("rm", run.name, "--yes")
    assert done.returncode == 1
    assert f"run {run.name} is running, so it is not removed: asa cancel {run.name} ends it" in done.stderr
    Path("gate").touch()
    assert driver.wait(60) == 0


def test_a_damaged_run_can_be_removed(state: Path) -> None:
    assert command("run", "flow.py:quick", "--quiet").returncode == 0
    (run,) = list_runs(state)
    run.events.write_bytes(b"no database" * 1000)
    for suffix in ("-wal", "-shm"):
        Path(f"{run.events}{suffix}").unlink(missing_ok=True)
    done = command("rm", run.name, "--yes")
    assert done.returncode == 0, done.stderr
    assert "damaged" in done.stderr and not run.path.exists()


def test_a_request_that_came_too_late_cancels_no_later_driver(state: Path) -> None:
    assert command("run", "flow.py:broken", "--quiet").returncode == 1
    (run,) = list_runs(state)
    run.cancel_request.write_text("late")
    again = asa.resume(run.name)
    assert again.wait() and again.status is RunState.FAILED and not run.cancel_request.exists()


@pytest.mark.parametrize(
    ("word", "meant"),
    [("cancle", "cancel"), ("kill", "cancel"), ("stat", "status"), ("statsu", "status"), ("delete", "rm"),
     ("ls", "runs"), ("ps", "status"), ("explian", "explain"), ("resum", "resume"), ("submit", "run")],
)  # fmt: skip
def test_mistyped_commands_are_answered_with_the_right_one(word: str, meant: str) -> None:
    done = command(word)
    assert done.returncode == 2 and f"unknown command '{word}': did you mean '{meant}'?" in done.stderr
    assert "did you mean" not in command("xyzzy").stderr


STAGES = """
import time
from pathlib import Path
import asa

@asa.stage
def step(x):
    with open("ran", "a") as file:
        file.write(f"{x}\\n")
    while not Path("gate").exists():
        time.sleep(0.05)
    return x + 1

workflow = step(step(step(0)))
"""


def ran() -> list[str]:
    return Path("ran").read_text().split() if Path("ran").exists() else []


def test_a_run_is_held_and_released_by_other_processes(state: Path) -> None:
    Path("steps.py").write_text(STAGES)
    driver = subprocess.Popen(
        [sys.executable, "-m", "asa", "run", "steps.py", "--backend", "local:cores=2", "--strategy", "per-stage"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(ran, "the first task")
    run = list_runs(state)[-1].name
    held = command("hold", run)
    assert held.returncode == 0, held.stderr
    assert held.stdout.startswith(f"run {run} is held; 1 job that it has asked for may start")
    assert held.stdout.endswith(f"to go on: asa release {run}\n")
    assert command("hold", run).stdout.startswith(f"run {run} is already held")
    Path("gate").touch()  # the task that runs goes on, to its end

    def first_is_over() -> bool:
        return json.loads(command("status", run, "--json", "-").stdout)["tasks_done"] == 1

    until(first_is_over, "the first task's end")
    said = command("status", run)
    assert f"nothing new is submitted or launched: asa release {run}" in said.stdout and ran() == ["0"]
    assert f"the run is held, nothing new is submitted or launched: asa release {run}" in command("explain", run).stdout
    with EventLog(RunDirectory.open(state, run).events) as log:
        submitted = len(list(log.each(Submitting)))
    assert (ran(), submitted) == (["0"], 1)

    driver.kill()  # it stays held
    driver.communicate()
    assert "held" in command("status", run).stdout
    again = subprocess.Popen(
        [sys.executable, "-m", "asa", "resume", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: RunDirectory.open(state, run).is_driven(), "the next driver")
    with EventLog(RunDirectory.open(state, run).events) as log:
        until(lambda: len(list(log.each(DriverStarted))) == 2, "its first event")
    assert (ran(), again.poll()) == (["0"], None)
    assert command("release", run).stdout == f"run {run} goes on\n"
    assert command("release", run).stdout in (f"run {run} is not held\n", "")
    out, err = again.communicate(timeout=60)
    assert (again.returncode, out) == (0, "3\n") and f"run {run} is held" in err and f"run {run}: goes on" in err
    assert ran() == ["0", "1", "2"]
    assert "there is nothing to hold" in command("hold", run).stderr


def test_a_run_without_a_driver_is_held_until_it_is_released(state: Path) -> None:
    driver, run = begun(state, *ASA_RUN)
    driver.kill()
    driver.communicate()
    assert command("hold", run.name).returncode == 0
    assert "is already held" in command("hold", run.name).stdout
    assert command("release", run.name).returncode == 0
    Path("gate").touch()
    assert asa.resume(run.name).result() == [0, 1]


def test_a_run_is_held_from_python() -> None:
    Path("gate").touch()
    run = asa.submit(asa.stage(len)("abc"), name="held", backend="local:cores=2")
    run.hold()
    run.release()
    assert run.result() == 3


def test_what_is_no_workflow_s_run_is_not_held(state: Path) -> None:
    with PoolExecutor(backend="local:cores=1") as executor:
        executor.submit(len, "abc").result()
        refused = command("hold", "@last")
    assert refused.returncode == 1 and "is one of calls" in refused.stderr


def test_a_controller_that_does_not_answer(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started, and what to do is said."""
    for name, words in (
        ("sbatch", "echo slurm 22.05.8"),
        ("scontrol", "echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1"),
    ):
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    for more in ((), ("--dry-run",)):
        done = command("run", "flow.py:quick", "--backend", "slurm", *more)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("asa: error: the batch system does not answer, so nothing was started. Try again")
        assert done.stderr.endswith("Unable to contact slurm controller (connect failure)\n")
