"""A pool whose master, agents and frameworks are processes of their own, which may be killed at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil

from executors.mesos.driver import SchedulerDriver
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.ledger import Ledger
from tests.executors.mesos.scripted import until

MORTAL = Path(__file__).parent / "programs" / "mortal.py"
PATIENCE_S = 20.0
MARK = "FAULTS_OF"
"""Variable of all processes of a pool: which one."""


class Ground:
    """The pool. Processes have names; one that is started again under its name takes over what the first has left.

    Parameters
    ----------
    before
        What agents' command lines begin with.
    """

    def __init__(self, path: Path, before: Sequence[str] = ()) -> None:
        self.before = before
        self.path, self.mark = path, uuid.uuid4().hex
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *more: str, point: str = "") -> subprocess.Popen[bytes]:
        """A ``master``, a ``framework``, or else an agent, that is killed when it comes to a point (see `mortal`)."""
        if point:
            self._file(name).write_text(point)
        first: Sequence[str] = ()
        words = ["--directory", str(self.directory.path)]
        if name == "framework":
            kind, words = name, list(more)
        elif name == "master":
            kind, words = name, [*words, "--host", "127.0.0.1", *more]
        else:
            kind, first, words = (
                "agent",
                self.before,
                [*words, "--host", "127.0.0.1", "--name", "127.0.0.1", "--cores", "2", *more],
            )
            words += ["--memory", str(1 << 29), "--attribute", f"node={name}", "--work", str(self.path / name)]
        own = {MARK: self.mark, "PYTHONPATH": str(live.ROOT)}
        with open(self.path / "log", "a") as log:
            process = subprocess.Popen(
                [*first, sys.executable, str(MORTAL), str(self._file(name)), kind, *words],
                stderr=log,
                env=os.environ | own,
            )
        self.running[name] = process
        return process

    def arm(self, name: str, point: str) -> None:
        """Have a process that runs be killed when it comes to this point; one that was just started is waited for."""
        until(lambda: _heeds(self.running[name].pid, signal.SIGUSR1), f"{name} to heed a signal: {self.log()}")
        self._file(name).write_text(point)
        self.running[name].send_signal(signal.SIGUSR1)
        try:
            until(lambda: not self._file(name).exists(), lambda: f"{name} to see its point: {self.log()}")
        except AssertionError as error:
            code = self.running[name].poll()
            self.running[name].kill()
            raise AssertionError(f"{name}: {'it runs' if code is None else f'exit code {code}'}: {error}") from error

    def revive(self) -> None:
        """Start again what has died where it should not have; the test in which that was has said so."""
        for name, process in list(self.running.items()):
            if name != "framework" and process.poll() is not None:
                self._file(name).unlink(missing_ok=True)
                self.start(name)

    def ready(self, *agents: str) -> None:
        """Wait for agents to be registered."""
        until(self.directory.master, "the master")
        with Operator(self.directory, READER) as operator:
            until(
                lambda: len(operator.get_agents()) == len(agents),
                lambda: f"{agents}, there are {[agent['agent_info'] for agent in operator.get_agents()]}: {self.log()}",
            )

    def killed(self, name: str) -> None:
        """Wait for a process to have come to its point."""
        assert self.running[name].wait(PATIENCE_S) == -signal.SIGKILL, self.log()

    def work(self, ledger: Ledger, driver: SchedulerDriver) -> None:
        """Wait for all work to be done, asking now and then how it stands."""
        deadline = time.monotonic() + PATIENCE_S
        asked = time.monotonic()
        while not ledger.done():
            assert time.monotonic() < deadline, f"{ledger.told}, {ledger.why}, {self.log()}"
            if time.monotonic() > asked + 0.5:
                asked = time.monotonic()
                ledger.reconcile(driver)
            time.sleep(0.01)

    def executor(self, point: str = "") -> str:
        """The command of a custom executor; the first to be started is killed when it comes to the point."""
        file = self._file("executor")
        file.write_text(point) if point else file.unlink(missing_ok=True)
        return f"exec {sys.executable} {MORTAL} {file} executor"

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.point"

    def log(self) -> str:
        return (self.path / "log").read_text()

    def containers(self) -> list[str]:
        """The ids of all containers that there ever were, as their sandboxes say."""
        return [path.name for path in self.path.glob("*/sandboxes/slaves/*/frameworks/*/executors/*/runs/*")]

    def close(self) -> None:
        """End all that runs; what remains, nobody has ended: it is ended here, and told by `left`."""
        for name in sorted(self.running, key=lambda name: name == "master"):
            if self.running[name].poll() is None:
                self.running[name].send_signal(signal.SIGCONT)
                self.running[name].terminate()
                self.running[name].wait(PATIENCE_S)
        deadline = time.monotonic() + 5.0
        while (remaining := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.left = [" ".join(process.info["cmdline"] or ()) for process in remaining] + self.groups()
        for process in remaining:
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """Those that this pool has started, or that these have started."""
        found = psutil.process_iter(["environ", "cmdline", "status"])
        return [item for item in found if (item.info["environ"] or {}).get(MARK) == self.mark and _lives(item)]

    def groups(self) -> list[str]:
        """Control groups of containers."""
        names = set(self.containers())
        return [path for path, _, _ in os.walk("/sys/fs/cgroup") if path.rpartition("/")[2] in names]


def _heeds(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _lives(process: psutil.Process) -> bool:
    return process.info["status"] not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
