"""Processes are killed at every point of a launch, or are away for long: no task is lost, or run twice, unreported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from tests.executors.mesos import live
from tests.executors.mesos.ledger import Ledger
from tests.executors.mesos.processes import Bench
from tests.waiting import until

# ---------------------------------------------------------------------- faults


pytestmark = pytest.mark.slow
MACHINE = "executors.mesos.master.machine:Master"
AGENT = "executors.mesos.agent.machine:NodeAgent"
WRITE = "executors.mesos.journal:Journal.write"
MASTER_POINTS = {
    "it hears ACCEPT": f"before {MACHINE}.call 'ACCEPT'",
    "before the tasks are journalled": f"before {WRITE} table='tasks'",
    "after the tasks are journalled": f"after {WRITE} table='tasks'",
    "RUN is about to go": "before asa.web.server:ResponseStream.put RUN",
    "it hears UPDATE": f"before {MACHINE}.from_agent TASK_RUNNING",
    "before the update is journalled": f"before {WRITE} table='tasks' TASK_RUNNING",
    "after the update is journalled": f"after {WRITE} table='tasks' TASK_RUNNING",
    "it hears ACKNOWLEDGE": f"before {MACHINE}.call 'ACKNOWLEDGE'",
    "it has passed ACKNOWLEDGE on": f"after {MACHINE}.call 'ACKNOWLEDGE'",
    "before the end is journalled": f"before {WRITE} TASK_FINISHED",
    "after the end is journalled": f"after {WRITE} TASK_FINISHED",
    "the task is forgotten": f"after {WRITE} table='tasks' row=None",
}
AGENT_POINTS = {
    "it hears RUN": f"before {AGENT}.from_master 'RUN'",
    "before its rows are kept": f"before {WRITE} table='tasks'",
    "after its rows are kept": f"after {WRITE} table='tasks'",
    "before the container is started": "before executors.mesos.agent.containers:NodeContainers.start argv",
    "after the container is started": f"before {AGENT}.started",
    "before RUNNING is kept": f"before {WRITE} TASK_RUNNING",
    "after RUNNING is kept": f"after {WRITE} TASK_RUNNING",
    "it hears ACKNOWLEDGE": f"before {AGENT}.from_master 'ACKNOWLEDGE'",
    "it has taken ACKNOWLEDGE": f"after {AGENT}.from_master 'ACKNOWLEDGE'",
    "the container has ended": f"before {AGENT}.exited",
    "before the end is kept": f"before {WRITE} TASK_FINISHED",
    "after the end is kept": f"after {WRITE} TASK_FINISHED",
    "the task is forgotten": f"after {WRITE} table='tasks' row=None",
}
DRIVER = "executors.mesos.driver:SchedulerDriver"
DRIVER_POINTS = {
    "before ACCEPT": f"before {DRIVER}.launchTasks task_id",
    "after ACCEPT": f"after {DRIVER}.launchTasks task_id",
    "it hears UPDATE": "before tests.executors.mesos.ledger:Ledger.statusUpdate TASK_RUNNING",
    "before ACKNOWLEDGE": f"before {DRIVER}.acknowledgeStatusUpdate TASK_RUNNING",
    "after ACKNOWLEDGE": f"after {DRIVER}.acknowledgeStatusUpdate TASK_RUNNING",
    "before the end is acknowledged": f"before {DRIVER}.acknowledgeStatusUpdate TASK_FINISHED",
}
WORK = ("a", "b", "c")
HEEDS = """
import signal, sys
from tests.executors.mesos.programs import mortal

def look(number, handler, install=signal.signal):
    if number == signal.SIGUSR1:
        sys.exit(" ".join(sys.modules))
    return install(number, handler)

signal.signal = look
mortal.main(*sys.argv[1:])
"""
"""Says which modules are there when the process begins to heed the signal."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One pool for all: whoever was killed is there again when the next test begins."""
    bench = Bench(tmp_path_factory.mktemp("faults"))
    bench.start("master")
    until(bench.directory.master, "the master")
    bench.start("agent")
    bench.ready("agent")
    yield bench
    bench.close()
    assert bench.left == [], "no process or cgroup is left behind"


def work_through(bench: Bench, ledger: Ledger, mortal: str, point: str) -> None:
    """Have work done while one of the processes is killed, and another takes its place."""
    bench.revive()
    bench.arm(mortal, point)
    driver = ledger.driver(bench.directory)
    driver.start()
    try:
        bench.killed(mortal)
    finally:
        bench.start(mortal)
    bench.work(ledger, driver)
    driver.stop()
    driver.join()
    ledger.check()


@pytest.mark.parametrize(("which", "points"), [("master", MASTER_POINTS), ("agent", AGENT_POINTS)])
def test_a_signal_is_heeded_once_all_that_a_point_may_name_is_loaded(
    tmp_path: Path, which: str, points: dict[str, str]
) -> None:
    command = [sys.executable, "-c", HEEDS, str(tmp_path / "none"), which]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(live.ROOT)}, stderr=subprocess.PIPE, text=True)
    assert {point.split()[1].partition(":")[0] for point in points.values()} <= set(done.stderr.split())


@pytest.mark.parametrize("mortal", ["master", "agent"])
def test_a_process_that_has_just_started_learns_its_point(bench: Bench, tmp_path: Path, mortal: str) -> None:
    bench.start(mortal)
    work_through(bench, Ledger(tmp_path / "ledger", WORK), mortal, f"before {WRITE} table='tasks'")


def test_a_process_that_does_not_do_what_it_should_is_explained(bench: Bench) -> None:
    told = bench.explain("master")
    assert "State:" in told and "loop_thread.py" in told


@pytest.mark.parametrize("point", MASTER_POINTS)
def test_the_master_is_killed_when(bench: Bench, tmp_path: Path, point: str) -> None:
    work_through(bench, Ledger(tmp_path / "ledger", WORK), "master", MASTER_POINTS[point])


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_the_agent_is_killed_when(bench: Bench, tmp_path: Path, point: str) -> None:
    work_through(bench, Ledger(tmp_path / "ledger", WORK), "agent", AGENT_POINTS[point])


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_the_driver_is_killed_when(bench: Bench, tmp_path: Path, point: str) -> None:
    words = str(bench.directory.path), str(tmp_path / "ledger"), *WORK
    bench.revive()
    bench.start("framework", *words, point=DRIVER_POINTS[point])
    bench.killed("framework")
    assert bench.start("framework", *words).wait(30) == 0, bench.log()
    Ledger(tmp_path / "ledger", ()).check()


@pytest.mark.parametrize(
    "point",
    [
        "it hears RUN",
        "after its rows are kept",
        "after the container is started",
        "before RUNNING is kept",
        "after RUNNING is kept",
        "it has taken ACKNOWLEDGE",
        "after the end is kept",
    ],
)
def test_the_agent_of_a_custom_executor_is_killed_when(bench: Bench, tmp_path: Path, point: str) -> None:
    ledger = Ledger(tmp_path / "ledger", WORK, executor=bench.executor())
    work_through(bench, ledger, "agent", AGENT_POINTS[point])


# ---------------------------------------------------------------------- partition


OPTIONS = MasterOptions(ping_s=0.5, pings=4)


class Network:
    """A network of its own for agents, with one cable to ours."""

    def __init__(self) -> None:
        number = os.getpid() % (1 << 14)
        self.name, self.cable = f"asa-{number}", f"asa{number}"
        net = f"10.{200 + number // (1 << 12)}.{number // 16 % 256}.{number % 16 * 16}"
        base, _, last = net.rpartition(".")
        self.ours, self.theirs = (f"{base}.{int(last) + host}" for host in (1, 2))
        self.before = ("ip", "netns", "exec", self.name)

    def __enter__(self) -> Network:
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self.cable, "type", "veth", "peer", "name", "inner", "netns", self.name)
            _ip("addr", "add", f"{self.ours}/28", "dev", self.cable)
            _ip("link", "set", self.cable, "up")
            _ip("-n", self.name, "addr", "add", f"{self.theirs}/28", "dev", "inner")
            for device in ("lo", "inner"):
                _ip("-n", self.name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for words in (("link", "del", self.cable), ("netns", "del", self.name)):
            with suppress(OSError):
                _ip(*words)

    def cut(self) -> None:
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self.cable, "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


Away = tuple[Bench, Callable[[], None], Callable[[], None]]
"""The pool, what makes its agent go away, and what brings it back."""


def running(bench: Bench, host: str) -> Iterator[Bench]:
    """A pool of one agent, whose master is here and loses patience soon."""
    with MasterService(bench.directory, OPTIONS, host=host):
        try:
            bench.start("agent")
            bench.ready("agent")
            yield bench
        finally:
            bench.close()
    assert bench.left == [], "no process or cgroup is left behind"


@pytest.fixture(params=[pytest.param("cut", marks=pytest.mark.root), "stopped"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Away]:
    if request.param == "stopped":
        bench = Bench(tmp_path)
        for _ in running(bench, "127.0.0.1"):
            tell = bench.running["agent"].send_signal
            yield bench, partial(tell, signal.SIGSTOP), partial(tell, signal.SIGCONT)
        return
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root")
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network())
        except OSError as error:
            pytest.skip(f"a network namespace cannot be made here: {error}")
        for bench in running(Bench(tmp_path, network.before), network.ours):
            yield bench, network.cut, network.mend


WAIT = "while [ ! -e {}/go ]; do sleep .02; done"


def test_its_tasks_come_back_or_are_ended(away: Away, tmp_path: Path) -> None:
    """Those of a framework that can tell go on; others are lost to theirs, and so they are ended, and run anew."""
    bench, leave, come_back = away
    script = WAIT.format(tmp_path)
    aware = Ledger(tmp_path / "aware", ["a", "b"], script)
    blind = Ledger(tmp_path / "blind", ["c"], script, aware=False)
    drivers = [ledger.driver(bench.directory) for ledger in (aware, blind)]
    for driver in drivers:
        driver.start()
    until(lambda: _reached(aware, "TASK_RUNNING") == {"a.0", "b.0"} and _reached(blind, "TASK_RUNNING") == {"c.0"})
    (first,) = _running(bench, "c.0")
    leave()
    until(lambda: _reached(aware, "TASK_UNREACHABLE") == {"a.0", "b.0"}, "the agent to be given up")
    until(lambda: _reached(blind, "TASK_LOST") == {"c.0"})
    assert first.is_running()
    come_back()
    until(lambda: not first.is_running(), "the task that was given up to be ended")
    until(lambda: _reached(blind, "TASK_RUNNING") == {"c.0", "c.1"}, "another in its place")
    until(lambda: all(aware.told[task][-1] == "TASK_RUNNING" for task in ("a.0", "b.0")), "the others to be back")
    (tmp_path / "go").touch()
    for ledger, driver in zip((aware, blind), drivers, strict=True):
        bench.work(ledger, driver)
        driver.stop()
        driver.join()
        ledger.check()
    assert set(aware.told) == {"a.0", "b.0"}, "none had to be launched again"
    assert set(blind.told) == {"c.0", "c.1"}


def test_what_has_happened_meanwhile_is_reported(away: Away, tmp_path: Path) -> None:
    """A task that has ended, and an executor that was killed, while the agent was away."""
    bench, leave, come_back = away
    ledger = Ledger(tmp_path / "ledger", ["a", "b"], WAIT.format(tmp_path))
    driver = ledger.driver(bench.directory)
    driver.start()
    until(lambda: _reached(ledger, "TASK_RUNNING") == {"a.0", "b.0"})
    leave()
    until(lambda: _reached(ledger, "TASK_UNREACHABLE") == {"a.0", "b.0"}, "the agent to be given up")
    (victim,) = _running(bench, "b.0")
    victim.kill()
    (tmp_path / "go").touch()
    until(lambda: not _running(bench, "a.0"), "the end of the other")
    come_back()
    bench.work(ledger, driver)
    driver.stop()
    driver.join()
    ledger.check()
    assert "TASK_FINISHED" in ledger.told["a.0"] and "TASK_FAILED" in ledger.told["b.0"]
    assert set(ledger.told) == {"a.0", "b.0", "b.1"}


def _reached(ledger: Ledger, state: str) -> set[str]:
    with ledger.lock:
        return {task for task, states in ledger.told.items() if state in states}


def _running(bench: Bench, task: str) -> list[psutil.Process]:
    """The shells of a task that live, without children, which have the same arguments until they execute their own."""
    shells = [item for item in bench.processes() if any(f"/{task}.ran;" in word for word in item.info["cmdline"] or ())]
    return [shell for shell in shells if shell.info["ppid"] not in {other.pid for other in shells}]
