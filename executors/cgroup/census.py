"""Which processes belong to which container, told from /proc alone, and the CPU time that they have used."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from asa.log.proc import Stat, environment, everybody, living, stat

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
    """The container that its environment names; empty when that names none, None when it has no environment (yet)."""
    return None if environment(pid) == b"" else variable(pid, MARK)


def variable(pid: int, name: str) -> str:
    """What its environment was when its program started; empty when that has no such variable, or cannot be read."""
    text = b"\0" + (environment(pid) or b"")
    return text.partition(f"\0{name}=".encode())[2].partition(b"\0")[0].decode(errors="replace")


@dataclass(slots=True)
class Member:
    """A process of a container, as it was seen last."""

    pid: int
    stat: Stat
    clock: float
    credit: float = 0.0
    """Time of its ended children that was counted while they lived, and will show up among its own again [ticks]."""

    def signal(self, number: int) -> None:
        """Send it this, unless its number has come to belong to another process."""
        now = stat(self.pid)
        if now and now.birth == self.stat.birth:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


@dataclass(slots=True)
class Family:
    """The processes of one container, and what they have used.

    Those are in it whose parent or session is, and those whose environment names it: so a daemon that has left both is
    found as well. What leaves all three behind between two looks is not.
    """

    mark: str
    members: dict[int, Member] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)
    """Those that it began and that it still has members in: the number of another may be given to anybody."""
    user: float = 0.0
    system: float = 0.0

    def spent(self) -> float:
        """CPU time since the last call of this or of `Census.look`, of processes that are known [s]."""
        total = 0.0
        for pid, member in self.members.items():
            if (now := clock(pid)) is not None and now > member.clock:
                total += now - member.clock
                member.clock = now
        return total

    def living(self) -> list[Member]:
        """Those that are not merely waiting to be buried."""
        return [member for member in self.members.values() if not member.stat.ended]

    def join(self, pid: int, seen: Stat, most_s: float) -> float:
        """A process belongs to it from now on; its CPU time so far [s], at most so much [s]."""
        used = clock(pid) or 0.0
        self.members[pid] = Member(pid, seen, used)
        if seen.session == pid:
            self.sessions.add(pid)
        self.user += seen.user + seen.children_user
        self.system += seen.system + seen.children_system
        return min(used + (seen.children_user + seen.children_system) / TICKS, most_s)

    def update(self, alive: Collection[int]) -> float:
        """Look at every member again: what their ended children used and nobody has seen [s]."""
        gone = [member for pid, member in self.members.items() if pid not in alive]
        for member in gone:
            own = max(member.clock * TICKS, member.stat.user + member.stat.system)
            self.user += own - member.stat.user - member.stat.system  # since its last look, by whichever of the two
            if heir := self._heir(member, alive):
                heir.credit += own + member.stat.children_user + member.stat.children_system + member.credit
        for member in gone:
            del self.members[member.pid]
        return sum(self._look_at(member) for member in list(self.members.values())) / TICKS

    def _look_at(self, member: Member) -> float:
        """What ended children of one member used and nobody has seen [ticks]."""
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

    def _heir(self, member: Member, alive: Collection[int]) -> Member | None:
        """The nearest ancestor that is left: ended children's time goes to who waited for them."""
        at = self.members.get(member.stat.parent)
        while at and at.pid not in alive:
            at = self.members.get(at.stat.parent)
        return at


class Census:
    """Everybody who is there, looked at from time to time; each process is asked whose it is once only.

    Parameters
    ----------
    families
        Those to find members for; may change between two looks.
    """

    def __init__(self, families: dict[str, Family]) -> None:
        self._families = families
        self._strangers: set[int] = set()
        self._looked = time.monotonic()

    def forget(self) -> None:
        """Ask everybody again at the next look: there is a family that has members already."""
        self._strangers.clear()

    def adopt(self, name: str, pid: int, birth: int) -> None:
        """This process is a family's first, whatever its environment says by now; `birth` as in `Stat`.

        Nothing happens when it has ended: its number may belong to another process.
        """
        self._strangers.discard(pid)
        seen = stat(pid)
        if pid not in self._families[name].members and seen and seen.birth == birth:
            self._families[name].join(pid, seen, 0.0)

    def look(self) -> dict[str, float]:
        """Find new members and bury the old: what was used since and `Family.spent` has not told [s], by family."""
        alive = set(everybody())
        spent = {name: family.update(alive) + family.spent() for name, family in self._families.items()}
        self._strangers &= alive
        known = {pid for family in self._families.values() for pid in family.members}
        new = {pid: found for pid in sorted(alive - self._strangers - known) if (found := stat(pid))}
        now = time.monotonic()
        most_s = (now - self._looked) * (os.cpu_count() or 1)
        self._looked = now
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
    """Name -> living processes of the containers of a name space."""
    found: dict[str, list[int]] = {}
    for pid, _ in living():
        named = mark(pid)
        if named and named.startswith(f"{space}/"):
            found.setdefault(named[len(space) + 1 :], []).append(pid)
    return found
