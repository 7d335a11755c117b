"""Quotas without any right to make groups: processes are stopped and continued, by the CPU time that they use."""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from asa.core.errors import StateError
from asa.log import proc
from executors.cgroup import kernel, throttle
from executors.cgroup.group import GroupUsage, unbounded

log = logging.getLogger(__name__)

_CORES = "ASA_GROUP_CORES"
"""Environment variable: its limit at its start, for an agent that is started after one that died; empty for none."""
_CALM = 3
"""So many scans must find no process: while a program is being loaded it has no environment for a moment."""
PATIENCE_S = 8.0
ANSWER_S = 30.0
_ATTEMPTS = 4
_ROOT = str(Path(__file__).parents[2])
PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from executors.cgroup.throttle import main; main()"


_First = tuple[int, int]
"""The first process of a group, and its start time as in /proc: process numbers are reused."""


def _first(pid: int) -> _First | None:
    now = proc.stat(pid)
    return (pid, now.birth) if now else None


class DutyGroup:
    """The processes of one container: those that its first one started, and those whose environment names it.

    Parameters
    ----------
    throttle_process
        The process that stops and continues them.
    name
        As given to `DutyCycle.group`.
    """

    gates: tuple[str, ...] | None = None

    def __init__(self, throttle_process: ThrottleProcess, name: str) -> None:
        self._throttle, self._name = throttle_process, name
        self._last = GroupUsage(0.0, 0.0, 0, 0, 0.0, 0, None, 0, 0)

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        cores = self._throttle.cores(self._name)
        marks = (f"{throttle.MARK}={self._throttle.space}/{self._name}", f"{_CORES}={'' if cores is None else cores}")
        return (shutil.which("env") or "/usr/bin/env", *marks, *argv)

    def adopt(self, pid: int) -> None:
        self._throttle.adopt(self._name, pid)

    def limit(self, cores: float | None) -> None:
        self._throttle.limit(self._name, cores)

    def weigh(self, weight: float) -> None:
        """Does nothing: there are no weights here."""

    def hold_memory(self, memory: int | None) -> None:
        """Does nothing: memory is not limited here."""

    def usage(self) -> GroupUsage:
        """As `Group.usage`, as far as it was seen; after `close`, the last figures."""
        if seen := self._throttle.ask(do="usage", name=self._name):
            self._last = GroupUsage(
                user_s=seen["user_s"],
                system_s=seen["system_s"],
                periods=seen["periods"],
                throttled=seen["throttled"],
                throttled_s=seen["throttled_s"],
                memory=seen["memory"],
                memory_limit=None,
                processes=len(seen["pids"]),
                threads=seen["threads"],
            )
        return self._last

    def starved(self) -> bool:
        """False: its memory is not limited."""
        return False

    def pids(self) -> list[int]:
        return list(self._throttle.ask(do="look", name=self._name).get("pids", ()))

    def kill(self) -> None:
        deadline, pause = time.monotonic() + PATIENCE_S, 0.001
        while self._throttle.ask(do="kill", name=self._name).get("alive", 0) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def close(self) -> None:
        self._throttle.drop(self._name)


class ThrottleProcess:
    """Starts the program of `executors.cgroup.throttle`, again with all groups if it is killed. Thread-safe."""

    def __init__(self, space: str) -> None:
        self.space = space
        self._lock = threading.RLock()
        self.process: subprocess.Popen[bytes] | None = None
        self.groups: dict[str, tuple[float | None, _First | None]] = {}

    def add(self, name: str, cores: float | None, pid: int | None, *, old: bool = False) -> None:
        """A new group, or an old one that has processes; with the first the process starts, in 30 ms."""
        with self._lock:
            if name in self.groups:
                raise StateError(f"there is a group {name} already: each group has a name of its own")
            self.groups[name] = (cores, None if pid is None else _first(pid))
            try:
                if self.process is not None:
                    self._introduce(self.process, name, old=old)
            except (OSError, ValueError):
                self._stop()
            try:
                self.ask(do="usage", name=name)
            except StateError:
                del self.groups[name]
                raise

    def cores(self, name: str) -> float | None:
        with self._lock:
            return self.groups.get(name, (None, None))[0]

    def adopt(self, name: str, pid: int) -> None:
        with self._lock:
            if name in self.groups and (first := _first(pid)):
                self.groups[name] = (self.groups[name][0], first)
                self.ask(do="adopt", name=name, first=first)

    def limit(self, name: str, cores: float | None) -> None:
        with self._lock:
            if name in self.groups:
                self.groups[name] = (cores, self.groups[name][1])
                self.ask(do="limit", name=name, cores=cores)

    def drop(self, name: str) -> None:
        """Forget a group; after the last of them the process ends, too."""
        with self._lock:
            if name in self.groups:
                self.ask(do="drop", name=name)
                del self.groups[name]
                if not self.groups:
                    self._stop()

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer; empty for an unknown group. The process is started where it does not run.

        Raises
        ------
        StateError
            When it does not answer, also after it was started again.
        """
        with self._lock:
            if request["name"] not in self.groups:
                return {}
            for _ in range(_ATTEMPTS):
                try:
                    return self._exchange(self.process or self._start(), request)
                except (OSError, ValueError) as error:
                    log.warning("the throttle does not answer %s: %s", request["do"], error)
                    last = error
                    self._stop()
            raise StateError(
                f"the process that keeps quotas does not answer ({last}): containers have no limits until it can be "
                "started, which is tried again at each request"
            )

    def _start(self) -> subprocess.Popen[bytes]:
        self.process = process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={},
        )
        log.info("throttle started as process %d for %d groups", process.pid, len(self.groups))
        for name in self.groups:
            self._introduce(process, name, old=True)
        threading.Thread(target=self._restart, args=[process], name="asa-quotas", daemon=True).start()
        return process

    def _introduce(self, process: subprocess.Popen[bytes], name: str, *, old: bool) -> None:
        cores, first = self.groups[name]
        whose = {"name": name, "mark": f"{self.space}/{name}", "first": first}
        self._exchange(process, {"do": "add", "cores": cores, "old": old} | whose)

    def _restart(self, process: subprocess.Popen[bytes]) -> None:
        """If it is killed, what it had stopped would be stopped for ever: another one continues that."""
        code = process.wait()
        log.info("throttle %d has ended with exit code %d", process.pid, code)
        with self._lock, suppress(StateError):
            if process is self.process and self.groups:
                self._stop()
                self.ask(do="usage", name=next(iter(self.groups)))

    def _stop(self) -> None:
        process, self.process = self.process, None
        if process:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                return
            process.kill()

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(request).encode() + b"\n")
        answer, deadline = b"", time.monotonic() + ANSWER_S
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise OSError("it has ended" if ready else f"it is silent for {ANSWER_S:g} s")
            answer += data
        found = json.loads(answer)
        assert isinstance(found, dict)
        return found


class DutyCycle:
    """Quotas by SIGSTOP and SIGCONT: for users who may not make groups; memory is not limited.

    A shell that watches its jobs sees them stop, and between two looks (50 ms) a process may escape that leaves its
    parent, its session and its environment behind. When the agent dies, its containers run on without quotas until
    another one recovers them.

    Parameters
    ----------
    space
        Whose groups these are: no two agents of a node may share it.
    """

    name = "duty cycle"
    why = "stops and continues processes: needs no rights, sees no further than /proc, limits no memory"

    def __init__(self, space: str) -> None:
        self.program = ThrottleProcess(kernel.checked_name(space))

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> DutyGroup:
        """As `Quotas.group`; weight and memory are ignored."""
        self.program.add(kernel.checked_name(name), cores, None)
        return DutyGroup(self.program, name)

    def bound(self, cores: float) -> None:
        """Always raises: each container has a bucket of its own, and there is none for all of them."""
        raise unbounded(self.name)

    def recover(self, name: str, pid: int) -> DutyGroup | None:
        """As `Quotas.recover`, with the limit that the group had at its start."""
        first = pid if throttle.mark(pid) == f"{self.program.space}/{kernel.checked_name(name)}" else None
        members = [first] if first is not None else throttle.marked(self.program.space).get(name, [])
        if not members:
            return None
        cores = None
        with suppress(ValueError):
            cores = float(throttle.variable(members[0], _CORES))
        self.program.add(name, cores, first, old=True)
        return DutyGroup(self.program, name)

    def sweep(self, keep: Collection[str]) -> None:
        """As `Quotas.sweep`; processes of groups in `keep` are continued."""
        deadline, calm = time.monotonic() + PATIENCE_S, 0
        while calm < _CALM and time.monotonic() < deadline:
            left = throttle.marked(self.program.space)
            for pid in (pid for name in left.keys() & set(keep) for pid in left[name]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            doomed = [pid for name in left.keys() - set(keep) for pid in left[name]]
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            calm = 0 if doomed else calm + 1
            time.sleep(0.002)
