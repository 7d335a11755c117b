"""Containers without quotas: what they are known by is the session of their first process."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from asa.log import proc
from executors.cgroup.group import Group, Usage, unbounded
from executors.processes import kill_sessions

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Unlimited:
    """Keeps nobody to anything, as `Quotas` has it; a process that leaves its session is not found any more."""

    name = "none"
    why = "quotas were not asked for"

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        return Session()

    def bound(self, cores: float) -> None:
        """There is no way to."""
        raise unbounded(self.name)

    def recover(self, name: str, pid: int) -> Group | None:
        session = Session()
        session.adopt(pid)
        return session if session.pids() else None

    def sweep(self, keep: Collection[str]) -> None:
        """Nothing is left behind that could be found."""


class Session:
    """The processes of one session."""

    def __init__(self) -> None:
        self._leader = 0

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return tuple(argv)

    def adopt(self, pid: int) -> None:
        self._leader = pid

    def limit(self, cores: float | None) -> None:
        """There is no way to."""

    def weigh(self, weight: float) -> None:
        """There is no way to."""

    def usage(self) -> Usage:
        members = self._members().values()
        return Usage(
            user_s=sum(each.user + each.children_user for each in members) * _TICK_S,
            system_s=sum(each.system + each.children_system for each in members) * _TICK_S,
            periods=None,
            throttled=None,
            throttled_s=None,
            memory=sum(each.resident for each in members) * _PAGE,
            memory_limit=None,
            processes=len(members),
            threads=sum(each.threads for each in members),
        )

    def starved(self) -> bool:
        """Its memory is not limited."""
        return False

    def pids(self) -> list[int]:
        return list(self._members())

    def kill(self) -> None:
        if self._leader and self._members():
            kill_sessions({self._leader})

    def close(self) -> None:
        """Nothing is left."""

    def _members(self) -> dict[int, proc.Stat]:
        """The living processes, by number."""
        return {pid: found for pid, found in proc.living() if found.session == self._leader} if self._leader else {}
