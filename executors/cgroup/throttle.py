"""The process that stops and continues others, so that each container uses no more CPU time than it may.

It is a program of its own (`main`), started by `executors.cgroup.dutycycle` with a pipe to its standard input: so the
agent's other work does not delay it, and when the agent dies, by SIGKILL too, the pipe ends, and it continues every
process before it ends. It reads a request per line and answers each with a line, both JSON.

Which processes belong to which container, and the CPU time that they have used, is found in /proc alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from asa.log.proc import Stat, environment, living, pids, stat

MARK = "ASA_GROUP"
"""Environment variable, ``SPACE/NAME``: whatever a container starts inherits it."""
TICKS = os.sysconf("SC_CLK_TCK")

_KTHREADD = 2


def clock(pid: int) -> float | None:
    """CPU time of a process and its ended threads [s], to the nanosecond: the kernel has a clock for each.

    Its number is what clock_getcpuclockid(3) makes of the process's.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def mark(pid: int) -> str | None:
    """The container named by a process's environment; "" when that names none, None without an environment (yet)."""
    return None if environment(pid) == b"" else variable(pid, MARK)


def variable(pid: int, name: str) -> str:
    """A variable of the environment that a process started with; "" when it is not set or cannot be read."""
    text = b"\0" + (environment(pid) or b"")
    return text.partition(f"\0{name}=".encode())[2].partition(b"\0")[0].decode(errors="replace")


@dataclass(slots=True)
class TrackedProcess:
    """A process of a container, as it was seen last."""

    pid: int
    stat: Stat
    clock: float
    credit: float = 0.0
    """Time of its ended children that was counted while they lived, and will appear among its own times [ticks]."""

    def signal(self, number: int) -> None:
        """Send it a signal, unless its number now belongs to another process."""
        now = stat(self.pid)
        if now and now.birth == self.stat.birth:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


@dataclass(slots=True)
class ContainerProcesses:
    """The processes of one container, and the CPU time that they have used.

    A process belongs to it when its parent or session does, or when its environment names the container: so a daemon
    that has left both is found as well. One that changes all three between two scans is not found.
    """

    mark: str
    members: dict[int, TrackedProcess] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)
    """Sessions that its members lead or have led and that still have members: other session numbers are reused."""
    user: float = 0.0
    system: float = 0.0

    def spent(self) -> float:
        """CPU time since the last call of this or of `ProcessTable.scan`, of processes that are known [s]."""
        total = 0.0
        for pid, member in self.members.items():
            if (now := clock(pid)) is not None and now > member.clock:
                total += now - member.clock
                member.clock = now
        return total

    def living(self) -> list[TrackedProcess]:
        """Members that are not zombies."""
        return [member for member in self.members.values() if not member.stat.ended]

    def join(self, pid: int, seen: Stat, most_s: float) -> float:
        """Add a process; its CPU time so far [s], at most `most_s` [s]."""
        used = clock(pid) or 0.0
        self.members[pid] = TrackedProcess(pid, seen, used)
        if seen.session == pid:
            self.sessions.add(pid)
        self.user += seen.user + seen.children_user
        self.system += seen.system + seen.children_system
        return min(used + (seen.children_user + seen.children_system) / TICKS, most_s)

    def update(self, alive: Collection[int]) -> float:
        """Read every member again; CPU time of ended children that was not counted yet [s]."""
        gone = [member for pid, member in self.members.items() if pid not in alive]
        for member in gone:
            own = max(member.clock * TICKS, member.stat.user + member.stat.system)
            self.user += own - member.stat.user - member.stat.system  # since its last look, by whichever of the two
            if heir := self._heir(member, alive):
                heir.credit += own + member.stat.children_user + member.stat.children_system + member.credit
        for member in gone:
            del self.members[member.pid]
        return sum(self._look_at(member) for member in list(self.members.values())) / TICKS

    def _look_at(self, member: TrackedProcess) -> float:
        """CPU time of one member's ended children that was not counted yet [ticks]."""
        now, before = stat(member.pid), member.stat
        if now is None or now.birth != before.birth:
            del self.members[member.pid]
            return 0.0
        member.stat = now
        self.user += now.user - before.user
        self.system += now.system - before.system
        user, system = now.children_user - before.children_user, now.children_system - before.children_system
        if user + system <= 0:
            return 0.0
        known = min(member.credit, user + system)
        member.credit -= known
        share = 1 - known / (user + system)
        self.user += share * user
        self.system += share * system
        return share * (user + system)

    def _heir(self, member: TrackedProcess, alive: Collection[int]) -> TrackedProcess | None:
        """The nearest living ancestor: ended children's time is added to that of the parent that waited for them."""
        at = self.members.get(member.stat.parent)
        while at and at.pid not in alive:
            at = self.members.get(at.stat.parent)
        return at


class ProcessTable:
    """Assigns the machine's processes to containers in each scan; the environment of each is read once only.

    Parameters
    ----------
    families
        The containers' processes by container name; may change between two scans.
    """

    def __init__(self, families: dict[str, ContainerProcesses]) -> None:
        self._families = families
        self._strangers: set[int] = set()
        self._last_scan = time.monotonic()

    def forget(self) -> None:
        """Read all environments again in the next scan, for a new container that has processes already."""
        self._strangers.clear()

    def adopt(self, name: str, pid: int, birth: int) -> None:
        """Make this process a container's first, whatever its environment says; `birth` as in `Stat`.

        Nothing happens when it has ended: its number may belong to another process.
        """
        self._strangers.discard(pid)
        seen = stat(pid)
        if pid not in self._families[name].members and seen and seen.birth == birth:
            self._families[name].join(pid, seen, 0.0)

    def scan(self) -> dict[str, float]:
        """Find new members, remove ended ones; CPU time that `ContainerProcesses.spent` has not counted [s] by name."""
        alive = set(pids())
        spent = {name: family.update(alive) + family.spent() for name, family in self._families.items()}
        self._strangers &= alive
        known = {pid for family in self._families.values() for pid in family.members}
        new = {pid: found for pid in sorted(alive - self._strangers - known) if (found := stat(pid))}
        now = time.monotonic()
        most_s = (now - self._last_scan) * (os.cpu_count() or 1)
        self._last_scan = now
        joined = True
        while joined:  # a child may have a smaller number than its parent
            joined = False
            for pid, seen in list(new.items()):
                if (name := self._whose(pid, seen)) is not None:
                    spent[name] += self._families[name].join(pid, seen, most_s)
                    del new[pid]
                    joined = True
        for family in self._families.values():
            family.sessions &= {member.stat.session for member in family.members.values()}
        self._strangers |= {pid for pid, seen in new.items() if seen.parent == _KTHREADD or mark(pid) is not None}
        return spent

    def _whose(self, pid: int, seen: Stat) -> str | None:
        for name, family in self._families.items():
            if seen.parent in family.members or seen.session in family.sessions:
                return name
        if seen.parent == _KTHREADD:
            return None
        named = mark(pid)
        return next((name for name, family in self._families.items() if family.mark == named), None)


def marked(space: str) -> dict[str, list[int]]:
    """Container name -> living processes, of a name space."""
    found: dict[str, list[int]] = {}
    for pid, _ in living():
        named = mark(pid)
        if named and named.startswith(f"{space}/"):
            found.setdefault(named[len(space) + 1 :], []).append(pid)
    return found


PERIOD_S = 0.1
"""Periods are counted as the kernel counts those of a quota [s]."""

_SLOT = 0.25
"""CPU time that is saved up before a container goes on, in parts of what it may have in a period."""
_LEAST_SLOT_S = 0.004
_SCAN_S, _LATEST_SCAN_S, _IDLE_SCAN_S = 0.05, 0.4, 1.0
_SCAN_COST = 0.02
"""A scan of all processes may cost this part of a core, unless scans would be over `_LATEST_SCAN_S` [s] apart."""
_FROZEN_ROUNDS = 20


@dataclass(slots=True)
class ThrottledContainer:
    """One container: a bucket that fills with CPU time as its quota grants it and empties as its processes run.

    Parameters
    ----------
    family
        Its processes.
    cores
        At most so many; None for no limit.
    budget
        What may be used now [s]; what was used too much is owed, so that the mean is kept.
    """

    family: ContainerProcesses
    cores: float | None
    budget: float = 0.0
    stopped: dict[int, TrackedProcess] = field(default_factory=dict)
    is_held: bool = False
    is_doomed: bool = False
    periods: float = 0.0
    throttled: int = 0
    throttled_s: float = 0.0
    touched: bool = False
    """Whether it was stopped in the present period."""

    def slot(self) -> float:
        return max(_LEAST_SLOT_S, _SLOT * PERIOD_S * (self.cores or 0.0))

    def charge(self, used_s: float, elapsed_s: float) -> None:
        """Take the CPU time used in the elapsed time [s] from the budget."""
        if self.cores is None:
            return
        # What it does not want is not saved up; what it was held back from, because we came late, is, within bounds.
        most = 2 * self.slot() if self.is_held else max(self.slot(), self.budget)
        self.budget = min(most, self.budget + self.cores * elapsed_s - used_s)
        before = int(self.periods)
        self.periods += elapsed_s / PERIOD_S
        if self.is_held:
            self.throttled_s += elapsed_s
        self.touched |= self.is_held
        if int(self.periods) > before:
            self.throttled += min(int(self.periods) - before, 1) if self.touched else 0
            self.touched = self.is_held

    def decide(self) -> float:
        """Stop or continue it; when to decide again [s from now] at the latest."""
        if self.is_doomed:
            return _IDLE_SCAN_S
        if self.cores is None:
            self.resume()
            return _IDLE_SCAN_S
        if self.is_held and self.budget >= self.slot() * 0.999:
            self.resume()
        elif not self.is_held and self.budget <= 0:
            self.is_held = self.touched = True
        if self.is_held:
            self.hold()
            return (self.slot() - self.budget) / self.cores
        busy = min(os.cpu_count() or 1, sum(member.stat.threads for member in self.family.members.values()))
        return self.budget / (busy - self.cores) if busy > self.cores else _SCAN_S

    def hold(self) -> None:
        """Stop its processes, again if another process continued them, except those that others have stopped."""
        for pid, member in self.family.members.items():
            if pid in self.stopped or member.stat.state not in "TtZX":
                self.stopped[pid] = member  # before it is: SIGTERM may come between the two
                member.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue what we have stopped."""
        self.is_held = False
        for member in self.stopped.values():
            member.signal(signal.SIGCONT)
            member.stat = member.stat._replace(state="R")
        self.stopped.clear()


class Throttle:
    """All containers of one agent."""

    def __init__(self) -> None:
        self._families: dict[str, ContainerProcesses] = {}
        self.containers: dict[str, ThrottledContainer] = {}
        self._table = ProcessTable(self._families)
        self._charged = self._scanned = time.monotonic()
        self._cost_s = 0.0

    def step(self) -> float:
        """Measure, stop and continue; when to call again [s from now]."""
        limited = any(container.cores is not None for container in self.containers.values())
        every = min(max(_SCAN_S, self._cost_s / _SCAN_COST), _LATEST_SCAN_S) if limited else _IDLE_SCAN_S
        self._charge(scan=time.monotonic() >= self._scanned + every)
        soon = [container.decide() for container in self.containers.values()]
        wake = self._scanned + every - time.monotonic()
        return min(max(0.0005, min([wake, *soon])), _IDLE_SCAN_S)

    def _charge(self, *, scan: bool) -> None:
        now = time.monotonic()
        if scan:
            began = time.process_time()
            spent = self._table.scan()
            self._scanned, self._cost_s = now, time.process_time() - began
        else:
            spent = {name: family.spent() for name, family in self._families.items()}
        elapsed, self._charged = now - self._charged, now
        for name, container in self.containers.items():
            container.charge(spent[name], elapsed)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, what = str(request["name"]), request["do"]
        if what == "add":
            self._add(name, request)
            return {}
        container = self.containers[name]
        if what == "adopt":
            self._table.adopt(name, *request["first"])
        elif what == "limit":
            self._charge(scan=False)
            container.cores = request["cores"]
        elif what in ("look", "usage"):
            self._charge(scan=what == "look" or time.monotonic() >= self._scanned + _SCAN_S)
            return _report(container)
        elif what == "kill":
            return {"alive": self._kill(container)}
        elif what == "drop":
            container.resume()
            del self.containers[name], self._families[name]
        return {}

    def _add(self, name: str, request: Mapping[str, Any]) -> None:
        family = self._families[name] = ContainerProcesses(str(request["mark"]))
        container = self.containers[name] = ThrottledContainer(family, request["cores"])
        if request["first"]:
            # Before the others are looked for: one that was held before its program was loaded bears no mark yet.
            self._table.adopt(name, *request["first"])
        if request["old"]:
            self._table.forget()
            self._charge(scan=True)
            container.budget = 0.0  # what was used before we came is not owed to us
            container.stopped.update(family.members)
            container.resume()  # an earlier throttle may have been killed while it held them

    def _kill(self, container: ThrottledContainer) -> int:
        """Stop its processes until no new ones appear, then kill them all; how many there were."""
        container.is_doomed = True
        seen: set[int] = set()
        for _ in range(_FROZEN_ROUNDS):
            self._charge(scan=True)
            living = {member.pid: member for member in container.family.living()}
            if living.keys() <= seen:
                break
            seen |= living.keys()
            for member in living.values():
                member.signal(signal.SIGSTOP)
        for member in container.family.living():
            member.signal(signal.SIGKILL)
        return len(container.family.living())

    def close(self) -> None:
        for container in self.containers.values():
            container.resume()


def _report(container: ThrottledContainer) -> dict[str, Any]:
    family = container.family
    living = family.living()
    return {
        "user_s": family.user / TICKS,
        "system_s": family.system / TICKS,
        "periods": int(container.periods),
        "throttled": container.throttled,
        "throttled_s": container.throttled_s,
        "memory": sum(member.stat.resident for member in living) * os.sysconf("SC_PAGE_SIZE"),
        "threads": sum(member.stat.threads for member in living),
        "pids": sorted(member.pid for member in living),
    }


def main() -> None:
    """Serve until standard input ends, or SIGTERM asks for it."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    throttle, rest = Throttle(), b""
    try:
        # The pipe's other end may have been inherited by another process: then only the parent's number says so.
        while os.getppid() == parent:
            ready, _, _ = select.select([0], [], [], throttle.step())
            if not ready:
                continue
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = throttle.answer(json.loads(line))
                with suppress(BrokenPipeError):
                    os.write(1, json.dumps(answer).encode() + b"\n")
    finally:
        throttle.close()
