"""A pool whose master, agents and frameworks are processes of their own, which may be killed at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from executors.mesos.driver import SchedulerDriver
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from tests.executors.cgroup.measured import described
from tests.executors.mesos import live
from tests.executors.mesos.ledger import Ledger
from tests.waiting import until

MORTAL = Path(__file__).parent / "programs" / "mortal.py"
PATIENCE_S = 40.0
MARK = "FAULTS_OF"
"""Variable of all processes of a pool: which one."""


class Bench:
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
        earlier = self.running.get(name)
        if earlier is not None and earlier.poll() is None:
            earlier.kill()
            earlier.wait()
        self._file(name).write_text(point) if point else self._file(name).unlink(missing_ok=True)
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
        process, file = self.running[name], self._file(name)
        with suppress(AssertionError):
            until(lambda: process.poll() is not None or _heeds(process.pid, signal.SIGUSR1))
            file.write_text(point)
            process.send_signal(signal.SIGUSR1)
            until(lambda: process.poll() is not None or not file.exists())
            if not file.exists():
                return
        found = self.explain(name)
        process.kill()
        raise AssertionError(f"{name} has not seen its point: {found}")

    def revive(self) -> None:
        """Start again what has died where it should not have; the test in which that was has said so."""
        for name, process in list(self.running.items()):
            if name != "framework" and process.poll() is not None:
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
        process = self.running[name]
        until(
            lambda: process.poll() is not None, lambda: f"the end of {name}: {self.explain(name)}", within_s=PATIENCE_S
        )
        assert process.returncode == -signal.SIGKILL, self.explain(name)

    def work(self, ledger: Ledger, driver: SchedulerDriver) -> None:
        """Wait for all work to be done, asking now and then how it stands."""
        deadline = time.monotonic() + PATIENCE_S
        asked = time.monotonic()
        while not ledger.done():
            assert time.monotonic() < deadline, f"{ledger.told}, {ledger.why}, {self.explain(*self.running)}"
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

    def explain(self, *names: str) -> str:
        """How processes stand that do not do what they should, and what all have logged."""
        found = []
        for name in names:
            process = self.running[name]
            if process.poll() is not None:
                found.append(f"{name} has ended with exit code {process.returncode}")
                continue
            found.append(f"{name} runs: {described(process.pid)}")
            if _heeds(process.pid, signal.SIGUSR2):
                logged = len(self.log())
                process.send_signal(signal.SIGUSR2)
                with suppress(AssertionError):
                    until(lambda since=logged: "most recent call first" in self.log()[since:], within_s=5.0)
                    time.sleep(0.2)  # for the rest of it
        return "\n".join([*found, self.log()])

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
        deadline = time.monotonic() + PATIENCE_S
        while (remaining := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.left = [" ".join(process.info["cmdline"] or ()) for process in remaining] + self.groups()
        for process in remaining:
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """Those that this pool has started, or that these have started."""
        found = psutil.process_iter(["environ", "cmdline", "ppid", "status"])
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
