"""Containers without quotas: what they are known by is the session of their first process."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

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
        members = self._members()
        user, system, threads, pages = map(sum, zip((0, 0, 0, 0), *members.values(), strict=True))
        return Usage(user * _TICK_S, system * _TICK_S, None, None, None, pages * _PAGE, None, len(members), threads)

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

    def _members(self) -> dict[int, tuple[int, int, int, int]]:
        """Living process -> ticks as user and in the kernel, children that were waited for included; threads; pages."""
        found = {}
        for name in os.listdir("/proc") if self._leader else ():
            if not name.isdecimal():
                continue
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self._leader and fields[0] not in (b"Z", b"X"):
                numbers = [int(field) for field in fields[11:22]]
                found[int(name)] = numbers[0] + numbers[2], numbers[1] + numbers[3], numbers[6], numbers[-1]
        return found


class Inside(Session):
    """A session inside of a group: what the group may use, it may, and no more."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return self._group.wrap(argv)
