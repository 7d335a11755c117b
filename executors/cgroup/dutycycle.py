"""Quotas without any right to make groups: processes are stopped and continued, by the CPU time that they use."""

from __future__ import annotations

import json
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
from executors.cgroup import census, hierarchy
from executors.cgroup.group import Usage, unbounded

_CORES = "ASA_GROUP_CORES"
"""Environment variable: its limit at its start, for an agent that comes after one that died; empty for none."""
_CALM = 3
"""So many looks must find nobody: one whose program is just being loaded has no environment for a moment."""
_PATIENCE_S = 8.0
_ANSWER_S = 30.0
_ATTEMPTS = 4
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from executors.cgroup.throttle import main; main()"


_First = tuple[int, int]
"""The first process of a group, and its start time as /proc has it: numbers are given again."""


def _first(pid: int) -> _First | None:
    now = proc.stat(pid)
    return (pid, now.birth) if now else None


class DutyGroup:
    """The processes of one container: those that its first one started, and those whose environment names it.

    Parameters
    ----------
    link
        To the process that stops and continues them.
    name
        As given to `DutyCycle.group`.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link, self._name = link, name
        self._last = Usage(0.0, 0.0, 0, 0, 0.0, 0, None, 0, 0)

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that becomes `argv`, in the same process, with the group's name in its environment."""
        cores = self._link.cores(self._name)
        marks = (f"{census.MARK}={self._link.space}/{self._name}", f"{_CORES}={'' if cores is None else cores}")
        return (shutil.which("env") or "/usr/bin/env", *marks, *argv)

    def adopt(self, pid: int) -> None:
        """This process is its first."""
        self._link.adopt(self._name, pid)

    def limit(self, cores: float | None) -> None:
        """At most so many cores from now on; None for as many as there are."""
        self._link.limit(self._name, cores)

    def weigh(self, weight: float) -> None:
        """Nothing happens: there are no weights. Who wants more than there is gets what the kernel gives everybody."""

    def usage(self) -> Usage:
        """What they have used, as far as it was seen; after `close`, what was seen last."""
        if seen := self._link.ask(do="usage", name=self._name):
            self._last = Usage(
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
        """Never: its memory is not limited."""
        return False

    def pids(self) -> list[int]:
        """Its living processes."""
        return list(self._link.ask(do="look", name=self._name).get("pids", ()))

    def kill(self) -> None:
        """End all of its processes, those they start meanwhile too, before returning."""
        deadline, pause = time.monotonic() + _PATIENCE_S, 0.001
        while self._link.ask(do="kill", name=self._name).get("alive", 0) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def close(self) -> None:
        """Forget it; nothing happens when it is forgotten already."""
        self._link.drop(self._name)


class Link:
    """The throttle's process, and what it must be told again if somebody kills it. Safe between threads."""

    def __init__(self, space: str) -> None:
        self.space = space
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: dict[str, tuple[float | None, _First | None]] = {}

    def add(self, name: str, cores: float | None, pid: int | None, *, old: bool = False) -> None:
        """A new group, or an old one that has processes; with the first the throttle's process starts, in 30 ms."""
        with self._lock:
            if name in self._groups:
                raise StateError(f"there is a group {name} already: its name must be nobody else's")
            self._groups[name] = (cores, None if pid is None else _first(pid))
            try:
                if self._process is not None:
                    self._introduce(self._process, name, old=old)
            except (OSError, ValueError):
                self._stop()
            try:
                self.ask(do="usage", name=name)
            except StateError:
                del self._groups[name]
                raise

    def cores(self, name: str) -> float | None:
        """A group's limit."""
        with self._lock:
            return self._groups.get(name, (None, None))[0]

    def adopt(self, name: str, pid: int) -> None:
        """The first process of a group."""
        with self._lock:
            if name in self._groups and (first := _first(pid)):
                self._groups[name] = (self._groups[name][0], first)
                self.ask(do="adopt", name=name, first=first)

    def limit(self, name: str, cores: float | None) -> None:
        """A new limit for a group."""
        with self._lock:
            if name in self._groups:
                self._groups[name] = (cores, self._groups[name][1])
                self.ask(do="limit", name=name, cores=cores)

    def drop(self, name: str) -> None:
        """A group has ended. After the last of them the process ends, too."""
        with self._lock:
            if name in self._groups:
                self.ask(do="drop", name=name)
                del self._groups[name]
                if not self._groups:
                    self._stop()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Its answer; an empty one for a group that is not there. It is started where it does not run.

        Raises
        ------
        StateError
            When it does not answer, also after it was started again.
        """
        with self._lock:
            if request["name"] not in self._groups:
                return {}
            for _ in range(_ATTEMPTS):
                try:
                    return self._exchange(self._process or self._start(), request)
                except (OSError, ValueError) as error:
                    last = error
                    self._stop()
            raise StateError(
                f"the process that keeps quotas does not answer ({last}): containers have no limits until it can be "
                "started, which is tried again at each request"
            )

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={},
        )
        for name in self._groups:
            self._introduce(process, name, old=True)
        threading.Thread(target=self._mourn, args=[process], name="asa-quotas", daemon=True).start()
        return process

    def _introduce(self, process: subprocess.Popen[bytes], name: str, *, old: bool) -> None:
        cores, first = self._groups[name]
        whose = {"name": name, "mark": f"{self.space}/{name}", "first": first}
        self._exchange(process, {"do": "add", "cores": cores, "old": old} | whose)

    def _mourn(self, process: subprocess.Popen[bytes]) -> None:
        """When somebody kills it, what it held would be held for ever: another one lets it go on."""
        process.wait()
        with self._lock, suppress(StateError):
            if process is self._process and self._groups:
                self._stop()
                self.ask(do="usage", name=next(iter(self._groups)))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)
                return
            process.kill()

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(request).encode() + b"\n")
        answer, deadline = b"", time.monotonic() + _ANSWER_S
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise OSError("it has ended" if ready else f"it is silent for {_ANSWER_S:g} s")
            answer += data
        told = json.loads(answer)
        assert isinstance(told, dict)
        return told


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
        self._link = Link(hierarchy.checked(space))

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> DutyGroup:
        """A new group; see `executors.cgroup.group.Quotas`. The kernel is told neither weight nor memory."""
        self._link.add(hierarchy.checked(name), cores, None)
        return DutyGroup(self._link, name)

    def bound(self, cores: float) -> None:
        """Never: each container has a bucket of its own, and there is none for all of them."""
        raise unbounded(self.name)

    def recover(self, name: str, pid: int) -> DutyGroup | None:
        """The group that an earlier agent made, with the limit that it had at its start."""
        first = pid if census.mark(pid) == f"{self._link.space}/{hierarchy.checked(name)}" else None
        members = [first] if first is not None else census.marked(self._link.space).get(name, [])
        if not members:
            return None
        cores = None
        with suppress(ValueError):
            cores = float(census.variable(members[0], _CORES))
        self._link.add(name, cores, first, old=True)
        return DutyGroup(self._link, name)

    def sweep(self, keep: Collection[str]) -> None:
        """End what dead agents left behind under this name space, but for those in `keep`; let those go on."""
        deadline, calm = time.monotonic() + _PATIENCE_S, 0
        while calm < _CALM and time.monotonic() < deadline:
            left = census.marked(self._link.space)
            for pid in (pid for name in left.keys() & set(keep) for pid in left[name]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            doomed = [pid for name in left.keys() - set(keep) for pid in left[name]]
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            calm = 0 if doomed else calm + 1
            time.sleep(0.002)
