"""Drivers that do not end with their terminal, and commands that attach to their runs: real processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from asa.core.errors import StateError
from asa.core.event import DriverStarted, Event, NodeJoined, RunState, TaskDone, TaskFailed
from asa.log import proc
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from asa.workflows.driver import detach
from asa.workflows.run import open_run, prepare
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("state")

FLOW = """
import time
from pathlib import Path
import asa

@asa.stage
def nap(x):
    with open(f"began-{x}", "a") as file:
        file.write("x")
    while x and not Path("gate").exists():
        time.sleep(0.05)
    return x

@asa.stage
def fail(x):
    if x == 1:
        raise ValueError("no")
    return x

workflow = nap.map([0, 1])
quick = nap(0)
broken = fail.map([0, 1])
"""


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "asa", *words]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=100
    )


def detached(*words: str) -> RunDirectory:
    done = command("run", *words, "--backend", "local:cores=2", "--detach")
    assert done.returncode == 0, done.stderr
    (run,) = list_runs(Path("state").absolute())
    assert done.stdout == f"{run.name}\n", "a script can take it"
    assert f"asa attach {run.name} shows how it gets on, asa cancel {run.name} ends it" in done.stderr
    return run


def driver_of(run: RunDirectory) -> int:
    holder = run.lock().holder()
    assert holder is not None
    return holder.pid


def test_a_detached_driver_is_on_its_own_and_attach_shows_its_run_to_the_end() -> None:
    run = detached("flow.py", "--json", "started.json")
    pid = driver_of(run)
    assert json.loads(Path("started.json").read_text()) == {
        "run": run.name, "driver": f"process {pid} on {os.uname().nodename}",
    }  # fmt: skip
    assert os.getsid(pid) == pid != os.getsid(0)
    assert os.stat(f"/proc/{pid}/fd/1").st_ino == os.stat(f"/proc/{pid}/fd/2").st_ino == run.driver_output.stat().st_ino
    assert run.driver_output.stat().st_mode & 0o777 == 0o600
    attached = subprocess.Popen(argv("attach"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert attached.stderr is not None
    assert attached.stderr.readline() == f"run {run.name}\n"
    assert "1 stage" in attached.stderr.readline(), "what happened before it was attached is shown first"
    Path("gate").touch()
    out, err = attached.communicate(timeout=60)
    assert (attached.returncode, out) == (0, "[0, 1]\n"), err
    assert f"run {run.name}: succeeded after" in err and "core-hours charged" in err
    until(lambda: not run.is_driven(), "the driver's end")
    assert "[0, 1]" in run.driver_output.read_text()
    again = command("attach", run.name, "--report", "run.json", "--quiet")
    assert (again.returncode, again.stdout) == (0, "[0, 1]\n")
    assert json.loads(Path("run.json").read_text())["state"] == "succeeded"


def test_ctrl_c_detaches_again_and_again_and_the_run_goes_on() -> None:
    run = detached("flow.py")
    attached = subprocess.Popen(argv("attach"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert attached.stderr is not None
    said = [attached.stderr.readline(), attached.stderr.readline()]
    for _ in range(3):
        attached.send_signal(signal.SIGINT)
        time.sleep(0.02)
    out, err = attached.communicate(timeout=60)
    assert (attached.returncode, out) == (130, ""), said
    assert err.endswith(f"asa: detached; run {run.name} goes on: asa attach {run.name}, asa cancel {run.name}\n")
    assert "Traceback" not in err
    assert run.is_driven() and open_run(run.name).status is RunState.RUNNING
    cancelled = command("cancel", run.name)
    assert cancelled.returncode == 0, cancelled.stderr
    assert command("attach", run.name).returncode == 1, "as `asa run` ends when its run is cancelled"


def test_it_outlives_the_terminal(state: Path) -> None:
    """Of a shell that sends SIGHUP to all that it has started."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, argv("run", "flow.py", "--backend", "local:cores=2", "--detach"))
    until(lambda: bool(list_runs(state)) and list_runs(state)[0].is_driven(), "the driver")
    os.waitpid(pid, 0)
    (run,) = list_runs(state)
    driver = driver_of(run)
    os.close(terminal)  # the kernel hangs the session up
    os.kill(driver, signal.SIGHUP)  # and so does a shell
    time.sleep(0.5)
    assert driver_of(run) == driver
    Path("gate").touch()
    assert command("attach").stdout == "[0, 1]\n"


def test_exit_codes_are_those_of_the_run() -> None:
    run = detached("flow.py:broken", "--keep-going")
    attached = command("attach", run.name, "--quiet")
    assert attached.returncode == 3, attached.stderr
    assert "Failed" in attached.stdout


def test_without_a_driver_attach_says_how_to_go_on(state: Path) -> None:
    run = detached("flow.py")
    attached = subprocess.Popen(argv("attach"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert attached.stderr is not None
    attached.stderr.readline()
    os.kill(driver_of(run), signal.SIGKILL)
    out, err = attached.communicate(timeout=60)
    assert (attached.returncode, out) == (1, "")
    assert f"no driver here\n(`asa resume {run.name}` runs only what is not done)" in err
    Path("gate").touch()
    resumed = command("resume", run.name, "--detach")
    assert (resumed.returncode, resumed.stdout) == (0, f"{run.name}\n"), resumed.stderr
    assert command("attach", run.name).stdout == "[0, 1]\n"
    with EventLog(run.events) as log:
        assert len([event for _, event in log.read() if isinstance(event, DriverStarted)]) == 2


def test_why_a_driver_has_not_started_is_said(state: Path) -> None:
    refused = command("run", "flow.py", "--backend", "nowhere", "--detach")
    assert (refused.returncode, refused.stdout) == (2, "") and "nowhere" in refused.stderr
    assert list_runs(state) == []
    virtual = command("run", "flow.py", "--backend", "sim:nodes=2,cores=2", "--detach")
    assert virtual.returncode == 1 and "a run in virtual time is driven where it is started" in virtual.stderr
    assert "Traceback" not in virtual.stderr
    for driver, why in (("job", "needs a batch system"), ("jobb", "'job' expected"), ("job:wal=1h", "wal")):
        refused = command("run", "flow.py", "--driver", driver)
        assert refused.returncode != 0 and why in refused.stderr, refused
    assert list_runs(state) == []
    run = detached("flow.py")
    twice = command("resume", run.name, "--detach")
    assert twice.returncode == 1 and f"has a driver, process {driver_of(run)} on" in twice.stderr


def test_what_the_driver_itself_says_is_passed_on(state: Path) -> None:
    """One that fails in its own process, after all was checked in ours."""
    import asa

    run = prepare(asa.stage(len)([1]), backend="local:cores=1", state=state)
    run.settings.write_bytes(run.settings.read_bytes()[:-3])
    with pytest.raises(StateError, match=r"^.*settings is damaged: nothing goes on with run"):
        detach(run, [])


def test_a_resumed_run_may_give_another_notice(state: Path) -> None:
    run = detached("flow.py", "--notify", "touch first")
    os.kill(driver_of(run), signal.SIGKILL)
    until(lambda: not run.is_driven(), "the driver's death")
    assert "no program 'nowhere-to-be-found'" in command("resume", run.name, "--notify", "nowhere-to-be-found").stderr
    killed = subprocess.Popen(argv("resume", run.name, "--notify", "touch second"), stderr=subprocess.DEVNULL)
    until(run.is_driven, "the second driver")
    killed.kill()
    killed.wait()
    Path("gate").touch()
    assert command("resume", run.name).returncode == 0
    assert not Path("first").exists()
    assert Path("second").exists() and Path(run.name).exists() and Path("succeeded").exists()


def events(run: RunDirectory, kind: type[Event]) -> list[Event]:
    with EventLog(run.events) as log:
        return [event for _, event in log.read() if isinstance(event, kind)]


def test_of_two_drivers_that_believe_to_be_alone_the_earlier_one_does_nothing_more() -> None:
    """It is stopped, the file system forgets its lock, another one takes the run over; then it goes on."""
    run = detached("flow.py", "--orphan-grace", "10m")
    until(lambda: bool(events(run, TaskDone)), "the first task")
    stopped = driver_of(run)
    os.kill(stopped, signal.SIGSTOP)
    try:
        (run.path / "driver.lock").unlink()
        resumed = command("resume", run.name, "--detach")
        assert resumed.returncode == 0, resumed.stderr
        second = driver_of(run)
        assert second != stopped
        until(lambda: len(events(run, NodeJoined)) == 2, "the node, which the stopped driver does not let go")
        assert not events(run, TaskFailed)
        Path("gate").touch()
        os.kill(stopped, signal.SIGCONT)
        until(lambda: (found := proc.stat(stopped)) is None or found.state == "Z", "the end of the earlier one")
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    assert command("attach", run.name).stdout == "[0, 1]\n"
    assert "another driver has gone on with this run" in run.driver_output.read_text()
    assert [Path(f"began-{x}").read_text() for x in (0, 1)] == ["x", "x"], "no task was started again"
    assert len(events(run, DriverStarted)) == len(events(run, TaskDone)) == 2
    assert not events(run, TaskFailed)
