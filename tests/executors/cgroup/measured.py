"""What processes use, and which groups and throttles there are, by the kernel's own books. Needs nothing but Python."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from asa.log import proc
from executors.cgroup import throttle
from executors.cgroup.group import Group

WINDOW_S = 3.0


def described(pid: int) -> str:
    """What the kernel tells of a process that does not do what it should."""
    found = []
    for name in ("status", "wchan", "cgroup"):
        with suppress(OSError):
            found.append(f"{name}: " + Path(f"/proc/{pid}/{name}").read_text().strip().replace("\n", "; "))
    return "\n".join([f"mark: {throttle.mark(pid)}", *found])


def used(pids: Sequence[int]) -> float:
    """CPU time of these processes [s], by the kernel's own clocks."""
    return sum(throttle.clock(pid) or 0.0 for pid in pids)


def groups_of(space: str) -> list[str]:
    """Directories of the kernel's groups that bear this name."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = {line.split()[4] for line in mounts if " - cgroup" in line}
    return [at for top in own for at, _, _ in os.walk(top) if f"/{space}" in at or f":{space}:" in at]


def readings(members: Sequence[Sequence[int]]) -> tuple[float, list[float]]:
    return time.monotonic(), [used(pids) for pids in members]


def reported(group: Group) -> tuple[float, float]:
    """CPU time that it reports, and that its processes have used [s]."""
    now = group.usage()
    return now.user_s + now.system_s, used(group.pids())


def share(group: Group, window_s: float) -> float:
    began, before = readings([group.pids()])
    time.sleep(window_s)
    ended, after = readings([group.pids()])
    return (after[0] - before[0]) / (ended - began)


def together(groups: Sequence[Group], window_s: float = WINDOW_S) -> float:
    """Cores that they use."""
    members = [group.pids() for group in groups]
    began, before = readings(members)
    time.sleep(window_s)  # the window itself
    ended, after = readings(members)
    return (sum(after) - sum(before)) / (ended - began)


def part(first: Group, second: Group) -> float:
    """The first's part of what both use."""
    members = [first.pids(), second.pids()]
    _, before = readings(members)
    time.sleep(WINDOW_S)
    _, after = readings(members)
    used_by = [now - then for now, then in zip(after, before, strict=True)]
    return used_by[0] / sum(used_by)


def throttles() -> set[int]:
    """Processes of `executors.cgroup.throttle` that this program has started, or whose own has ended.

    Those of tests that run beside this one have other parents.
    """
    parents = set(_lineage())
    found = set()
    for pid in proc.pids():
        with suppress(OSError):
            is_one = b"from executors.cgroup.throttle import main" in Path(f"/proc/{pid}/cmdline").read_bytes()
            now = proc.stat(pid)
            if is_one and now and not now.ended and now.parent in parents:
                found.add(pid)
    return found


def _lineage() -> Iterator[int]:
    """This process, its parent, and so on: one of these takes over those whose own parent has ended."""
    pid = os.getpid()
    while now := proc.stat(pid):
        yield pid
        pid = now.parent
