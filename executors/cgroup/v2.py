"""Groups of version 2: one tree, in which no group with children under control may hold processes itself."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from executors.cgroup import hierarchy
from executors.cgroup.group import Usage
from executors.cgroup.hierarchy import PERIOD_US, TOP

ASIDE = f"{TOP}.self"
"""The group that the agent, and what shared its group with it, moves to."""

_WANTED = ("cpu", "memory")
_MARKS = ("user.delegate", "trusted.delegate")
_MANAGER = re.compile(r"user@\d+\.service")


class V2Group:
    """The processes of one container.

    Parameters
    ----------
    directory
        Its group.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that enters the group and then becomes `argv`, in the same process."""
        return hierarchy.enter([self._directory], argv)

    def adopt(self, pid: int) -> None:
        """It has entered by itself."""

    def limit(self, cores: float | None) -> None:
        """At most so many cores from now on; None for as many as there are.

        Raises
        ------
        StateError
            When the kernel refuses.
        """
        quota = "max" if cores is None else str(hierarchy.quota_us(cores))
        hierarchy.write(self._directory / "cpu.max", f"{quota} {PERIOD_US}")

    def weigh(self, weight: float) -> None:
        """Cores it should have when others want theirs too, from now on.

        Raises
        ------
        StateError
            When the kernel refuses.
        """
        hierarchy.write(self._directory / "cpu.weight", str(hierarchy.weight_of(hierarchy.shares(weight))))

    def usage(self) -> Usage:
        """What they have used."""
        return usage(self._directory)

    def starved(self) -> bool:
        """Whether the kernel has killed any of its processes for want of memory."""
        return starved(self._directory)

    def pids(self) -> list[int]:
        """Its living processes."""
        return hierarchy.pids([self._directory])

    def kill(self) -> None:
        """End all of its processes, those they start meanwhile too, before returning."""
        kill(self._directory)

    def close(self) -> None:
        """Remove what is left of it; nothing happens when it is gone already."""
        hierarchy.remove(self._directory)


def usage(directory: Path) -> Usage:
    """What the processes of a group have used."""
    stat = hierarchy.counters(directory / "cpu.stat")
    throttled = stat.get("throttled_usec")
    return Usage(
        user_s=stat.get("user_usec", 0) / 1e6,
        system_s=stat.get("system_usec", 0) / 1e6,
        periods=stat.get("nr_periods"),
        throttled=stat.get("nr_throttled"),
        throttled_s=None if throttled is None else throttled / 1e6,
        memory=hierarchy.counters(directory / "memory.stat").get("anon"),
        memory_limit=hierarchy.number(directory / "memory.max"),
        processes=len(hierarchy.pids([directory])),
        threads=hierarchy.threads(directory, "cgroup.threads"),
    )


def starved(directory: Path) -> bool:
    """Whether the kernel has killed a process of a group for want of memory."""
    return hierarchy.counters(directory / "memory.events").get("oom_kill", 0) > 0


def kill(directory: Path) -> None:
    """Kill every process of a group, at one stroke where the kernel can do that (5.14)."""
    if not hierarchy.offer(directory / "cgroup.kill", "1"):
        hierarchy.offer(directory / "cgroup.freeze", "1")  # a process can be killed while it is frozen
    hierarchy.kill([directory])
    hierarchy.offer(directory / "cgroup.freeze", "0")


class V2:
    """Quotas by groups of version 2, below the group that this process runs in.

    Parameters
    ----------
    own
        This process's group.
    space
        Whose groups these are: no two agents of a node may share it.

    Raises
    ------
    StateError
        When there is no cpu controller for it, or the group is not ours to divide.
    """

    name = "cgroup v2"

    def __init__(self, own: Path | None, space: str) -> None:
        hierarchy.checked(space)
        if own is None:
            raise StateError("no hierarchy of version 2 is mounted")
        self._own = own.parent if own.name == ASIDE else own
        offered = hierarchy.read(self._own / "cgroup.controllers").split()
        if "cpu" not in offered:
            raise StateError(f"{self._own} has no cpu controller: version 1 has it, or it was not delegated")
        if not os.access(self._own, os.W_OK) or not os.access(self._own / "cgroup.procs", os.W_OK):
            raise StateError(f"{self._own} belongs to another user: it was not delegated")
        self._controllers = [controller for controller in _WANTED if controller in offered]
        self._base = self._own / TOP / space
        self._bound: float | None = None
        self.why = f"{', '.join(self._controllers)} below {self._own}"

    def crowd(self) -> int:
        """How many processes must move aside, this one included, before there can be groups: none in the root group."""
        enabled = hierarchy.read(self._own / "cgroup.subtree_control").split()
        is_root = not (self._own / "cgroup.type").exists()
        if is_root or all(controller in enabled for controller in self._controllers):
            return 0
        return len(hierarchy.read(self._own / "cgroup.procs").split())

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> V2Group:
        """A new group; see `executors.cgroup.group.Quotas`."""
        hierarchy.checked(name)
        self._prepare()
        directory = hierarchy.make(self._base, name)
        group = V2Group(directory)
        try:
            self._bind()  # the base was made just now, perhaps; while there is a group in it, it stays
            group.weigh(weight)
            group.limit(cores)
            if memory is not None and "memory" in self._controllers:
                hierarchy.write(directory / "memory.max", str(memory))
                hierarchy.offer(directory / "memory.swap.max", "0")  # where swap is counted
        except StateError:
            group.close()
            raise
        return group

    def _prepare(self) -> None:
        for _ in range(10):  # another agent that ends may remove the groups around it just now
            with suppress(FileNotFoundError):
                if self.crowd():
                    _clear(self._own)
                for directory in (self._own, self._base.parent, self._base):
                    with suppress(FileExistsError):
                        directory.mkdir()
                    self._enable(directory)
                for directory in (self._base.parent, self._base):  # together, containers weigh as much as the node
                    hierarchy.offer(directory / "cpu.weight", str(hierarchy.weight_of(hierarchy.node_shares())))
                return
        raise StateError(f"cannot make the group {self._base}: it is removed again and again")

    def _enable(self, directory: Path) -> None:
        enabled = hierarchy.read(directory / "cgroup.subtree_control").split()
        if missing := [f"+{controller}" for controller in self._controllers if controller not in enabled]:
            try:
                (directory / "cgroup.subtree_control").write_text(" ".join(missing))
            except FileNotFoundError:
                raise
            except OSError as error:
                hint = ": it holds processes" if error.errno == errno.EBUSY else ""
                raise StateError(f"cannot pass controllers on below {directory}{hint} ({error.strerror})") from error

    def bound(self, cores: float) -> None:
        """Everything in this name space together has at most so many cores; see `executors.cgroup.group.Quotas`."""
        self._bound = cores
        if self._base.is_dir():
            self._bind()

    def _bind(self) -> None:
        quota, period = ("max", PERIOD_US) if self._bound is None else hierarchy.bound_us(self._bound)
        if hierarchy.read(self._base / "cpu.max").split() != [str(quota), str(period)]:
            hierarchy.write(self._base / "cpu.max", f"{quota} {period}")

    def recover(self, name: str, pid: int) -> V2Group | None:
        """The group that an earlier agent made. That may have run in another group than this one: the process tells."""
        end = f"/{TOP}/{self._base.name}/{hierarchy.checked(name)}"
        directory = self._base / name
        with suppress(OSError):
            found = hierarchy.own_groups(
                Path("/proc/self/mountinfo").read_text(), Path(f"/proc/{pid}/cgroup").read_text()
            ).get("")
            if found and found.as_posix().endswith(end):
                directory = found
        return V2Group(directory) if directory.is_dir() else None

    def sweep(self, keep: Collection[str]) -> None:
        """End and remove groups that dead agents left behind under this name space, but for those in `keep`."""
        for path in sorted(self._base.glob("*")):
            if path.is_dir() and path.name not in keep:
                group = V2Group(path)
                group.kill()
                group.close()
        hierarchy.tidy(self._base.parent)


def _clear(own: Path) -> None:
    """Move every process of a group to one below it, so that others can be made beside that."""
    aside = own / ASIDE
    aside.mkdir(exist_ok=True)
    for _ in range(100):
        members = hierarchy.read(own / "cgroup.procs").split()
        if not members:
            return
        for pid in members:
            hierarchy.offer(aside / "cgroup.procs", pid)  # it may have ended
    raise StateError(f"the processes of {own} do not move to {aside}: {' '.join(members[:5])}")


def claimed(own: Path) -> str | None:
    """Who would mind if this group were divided, and why; None when nobody would.

    Slurm finds what it has to end with a job by the job's groups, and looks into none that it did not make. systemd
    marks what it leaves to whoever runs in it; below a user's own manager only a mark of that manager's counts.
    Elsewhere a group that belongs to its user has been given to it, by whatever means.
    """
    if any(part.startswith("slurm") for part in own.parts):
        return "Slurm, which finds a job's processes by it"
    if not Path("/run/systemd/system").exists():
        return None
    reason = "systemd, which has not delegated it (Delegate=yes)"
    for group in (own, *own.parents):
        if any(_has(group, mark) for mark in _MARKS):
            return reason if _MANAGER.fullmatch(group.name) else None
    managed = os.geteuid() == 0 or any(_MANAGER.fullmatch(part) for part in own.parts)
    return reason if managed else None


def _has(directory: Path, mark: str) -> bool:
    try:
        return os.getxattr(directory, mark) == b"1"
    except OSError:
        return False
