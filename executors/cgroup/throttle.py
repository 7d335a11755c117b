"""The process that stops and continues others, so that each container uses no more CPU time than it may.

It is a program of its own (`main`), started by `executors.cgroup.dutycycle` with a pipe to its standard input: so it is
not kept waiting by what else the agent does, and when the agent dies, by SIGKILL too, the pipe ends, and it lets
everybody go on before it ends. It takes a request per line and answers each with a line, both JSON.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from executors.cgroup.census import TICKS, Census, Family, Member

PERIOD_S = 0.1
"""Periods are counted as the kernel counts those of a quota [s]."""

_SLOT = 0.25
"""CPU time that is saved up before a container goes on, in parts of what it may have in a period."""
_LEAST_SLOT_S = 0.004
_SCAN_S, _LATEST_SCAN_S, _IDLE_SCAN_S = 0.05, 0.4, 1.0
_SCAN_COST = 0.02
"""Looking at all processes may take this much of a core, if it need not be later than `_LATEST_SCAN_S` [s] for that."""
_FROZEN_ROUNDS = 20


@dataclass(slots=True)
class Container:
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

    family: Family
    cores: float | None
    budget: float = 0.0
    stopped: dict[int, Member] = field(default_factory=dict)
    is_held: bool = False
    is_doomed: bool = False
    periods: float = 0.0
    throttled: int = 0
    throttled_s: float = 0.0
    touched: bool = False
    """Whether it was stopped in the present period."""

    def slot(self) -> float:
        """How much is saved up before it goes on [s]."""
        return max(_LEAST_SLOT_S, _SLOT * PERIOD_S * (self.cores or 0.0))

    def charge(self, used_s: float, elapsed_s: float) -> None:
        """This was used in this time [s]."""
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
        """Stop it or let it go on; when to look again [s from now] at the latest."""
        if self.is_doomed:
            return _IDLE_SCAN_S
        if self.cores is None:
            self.go_on()
            return _IDLE_SCAN_S
        if self.is_held and self.budget >= self.slot() * 0.999:
            self.go_on()
        elif not self.is_held and self.budget <= 0:
            self.is_held = self.touched = True
        if self.is_held:
            self.hold()
            return (self.slot() - self.budget) / self.cores
        busy = min(os.cpu_count() or 1, sum(member.stat.threads for member in self.family.members.values()))
        return self.budget / (busy - self.cores) if busy > self.cores else _SCAN_S

    def hold(self) -> None:
        """Stop them, again if somebody continued them, but not what others have stopped: that is theirs to continue."""
        for pid, member in self.family.members.items():
            if pid in self.stopped or member.stat.state not in "TtZX":
                self.stopped[pid] = member  # before it is: SIGTERM may come between the two
                member.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let go on what we have stopped."""
        self.is_held = False
        for member in self.stopped.values():
            member.signal(signal.SIGCONT)
            member.stat = member.stat._replace(state="R")
        self.stopped.clear()


class Throttle:
    """All containers of one agent."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._containers: dict[str, Container] = {}
        self._census = Census(self._families)
        self._told = self._scanned = time.monotonic()
        self._cost_s = 0.0

    def step(self) -> float:
        """Look, and do what is to be done; when to come again [s from now]."""
        limited = any(container.cores is not None for container in self._containers.values())
        every = min(max(_SCAN_S, self._cost_s / _SCAN_COST), _LATEST_SCAN_S) if limited else _IDLE_SCAN_S
        self._charge(scan=time.monotonic() >= self._scanned + every)
        soon = [container.decide() for container in self._containers.values()]
        wake = self._scanned + every - time.monotonic()
        return min(max(0.0005, min([wake, *soon])), _IDLE_SCAN_S)

    def _charge(self, *, scan: bool) -> None:
        now = time.monotonic()
        if scan:
            began = time.process_time()
            spent = self._census.look()
            self._scanned, self._cost_s = now, time.process_time() - began
        else:
            spent = {name: family.spent() for name, family in self._families.items()}
        elapsed, self._told = now - self._told, now
        for name, container in self._containers.items():
            container.charge(spent[name], elapsed)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do as is asked."""
        name, what = str(request["name"]), request["do"]
        if what == "add":
            self._add(name, request)
            return {}
        container = self._containers[name]
        if what == "adopt":
            self._census.adopt(name, *request["first"])
        elif what == "limit":
            self._charge(scan=False)
            container.cores = request["cores"]
        elif what in ("look", "usage"):
            self._charge(scan=what == "look" or time.monotonic() >= self._scanned + _SCAN_S)
            return _report(container)
        elif what == "kill":
            return {"alive": self._kill(container)}
        elif what == "drop":
            container.go_on()
            del self._containers[name], self._families[name]
        return {}

    def _add(self, name: str, request: Mapping[str, Any]) -> None:
        family = self._families[name] = Family(str(request["mark"]))
        container = self._containers[name] = Container(family, request["cores"])
        if request["first"]:
            # Before the others are looked for: one that was held before its program was loaded bears no mark yet.
            self._census.adopt(name, *request["first"])
        if request["old"]:
            self._census.forget()
            self._charge(scan=True)
            container.budget = 0.0  # what was used before we came is not owed to us
            container.stopped.update(family.members)
            container.go_on()  # an earlier throttle may have been killed while it held them

    def _kill(self, container: Container) -> int:
        """Stop all, until nobody new turns up, then kill all; how many there were."""
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
        """Let everybody go on."""
        for container in self._containers.values():
            container.go_on()


def _report(container: Container) -> dict[str, Any]:
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
        # The pipe's other end may have been inherited by another process: then only the parent's number tells.
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
