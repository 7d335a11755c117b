"""An agent is away for longer than its pings last, and comes back: its network was cut, or it was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from tests.executors.mesos.ledger import Ledger
from tests.executors.mesos.processes import Ground
from tests.executors.mesos.scripted import until

pytestmark = pytest.mark.slow

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


Away = tuple[Ground, Callable[[], None], Callable[[], None]]
"""The pool, what makes its agent go away, and what brings it back."""


def running(ground: Ground, host: str) -> Iterator[Ground]:
    """A pool of one agent, whose master is here and loses patience soon."""
    with MasterService(ground.directory, OPTIONS, host=host):
        try:
            ground.start("agent")
            ground.ready("agent")
            yield ground
        finally:
            ground.close()
    assert ground.left == [], "no process or cgroup is left behind"


@pytest.fixture(params=[pytest.param("cut", marks=pytest.mark.root), "stopped"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Away]:
    if request.param == "stopped":
        ground = Ground(tmp_path)
        for _ in running(ground, "127.0.0.1"):
            tell = ground.running["agent"].send_signal
            yield ground, partial(tell, signal.SIGSTOP), partial(tell, signal.SIGCONT)
        return
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root")
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network())
        except OSError as error:
            pytest.skip(f"a network namespace cannot be made here: {error}")
        for ground in running(Ground(tmp_path, network.before), network.ours):
            yield ground, network.cut, network.mend


WAIT = "while [ ! -e {}/go ]; do sleep .02; done"


def test_its_tasks_come_back_or_are_ended(away: Away, tmp_path: Path) -> None:
    """Those of a framework that can tell go on; others are lost to theirs, and so they are ended, and run anew."""
    ground, leave, come_back = away
    script = WAIT.format(tmp_path)
    aware = Ledger(tmp_path / "aware", ["a", "b"], script)
    blind = Ledger(tmp_path / "blind", ["c"], script, aware=False)
    drivers = [ledger.driver(ground.directory) for ledger in (aware, blind)]
    for driver in drivers:
        driver.start()
    until(lambda: _reached(aware, "TASK_RUNNING") == {"a.0", "b.0"} and _reached(blind, "TASK_RUNNING") == {"c.0"})
    (first,) = _running(ground, "c.0")
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
        ground.work(ledger, driver)
        driver.stop()
        driver.join()
        ledger.check()
    assert set(aware.told) == {"a.0", "b.0"}, "none had to be launched again"
    assert set(blind.told) == {"c.0", "c.1"}


def test_what_has_happened_meanwhile_is_told(away: Away, tmp_path: Path) -> None:
    """A task that has ended, and an executor that was killed, while the agent was away."""
    ground, leave, come_back = away
    ledger = Ledger(tmp_path / "ledger", ["a", "b"], WAIT.format(tmp_path))
    driver = ledger.driver(ground.directory)
    driver.start()
    until(lambda: _reached(ledger, "TASK_RUNNING") == {"a.0", "b.0"})
    leave()
    until(lambda: _reached(ledger, "TASK_UNREACHABLE") == {"a.0", "b.0"}, "the agent to be given up")
    (victim,) = _running(ground, "b.0")
    victim.kill()
    (tmp_path / "go").touch()
    until(lambda: not _running(ground, "a.0"), "the end of the other")
    come_back()
    ground.work(ledger, driver)
    driver.stop()
    driver.join()
    ledger.check()
    assert "TASK_FINISHED" in ledger.told["a.0"] and "TASK_FAILED" in ledger.told["b.0"]
    assert set(ledger.told) == {"a.0", "b.0", "b.1"}


def _reached(ledger: Ledger, state: str) -> set[str]:
    with ledger.lock:
        return {task for task, states in ledger.told.items() if state in states}


def _running(ground: Ground, task: str) -> list[psutil.Process]:
    """The shells of a task that live."""
    return [item for item in ground.processes() if any(f"/{task}.ran;" in word for word in item.info["cmdline"] or ())]
