"""Groups of version 1: each controller is a tree of its own, and a container has a directory in several of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from executors.cgroup import hierarchy
from executors.cgroup.group import Usage
from executors.cgroup.hierarchy import PERIOD_US, TOP

_USED = ("cpu", "cpuacct", "memory", "freezer")
_UNLIMITED = 1 << 60
"""Memory limits from here on are the kernel's way to say that there is none [bytes]."""
_FREEZE_S = 0.5


class V1Group:
    """The processes of one container.

    Parameters
    ----------
    directories
        Controller -> its directory; the same one for controllers that are mounted together. Holds ``cpu``.
    """

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = dict(directories)
        self._cpu = directories["cpu"]
        self._all = list(dict.fromkeys(directories.values()))

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that enters the group and then becomes `argv`, in the same process."""
        return hierarchy.enter(self._all, argv)

    def adopt(self, pid: int) -> None:
        """It has entered by itself."""

    def limit(self, cores: float | None) -> None:
        """At most so many cores from now on; None for as many as there are.

        Raises
        ------
        StateError
            When the kernel refuses.
        """
        if cores is None:
            hierarchy.write(self._cpu / "cpu.cfs_quota_us", "-1")
        elif not hierarchy.offer(self._cpu / "cpu.cfs_quota_us", str(hierarchy.quota_us(cores))):
            # More than the group around it may use: version 1 refuses that, though it would change nothing.
            hierarchy.write(self._cpu / "cpu.cfs_quota_us", "-1")

    def weigh(self, weight: float) -> None:
        """Cores it should have when others want theirs too, from now on.

        Raises
        ------
        StateError
            When the kernel refuses.
        """
        hierarchy.write(self._cpu / "cpu.shares", str(hierarchy.shares(weight)))

    def usage(self) -> Usage:
        """What they have used."""
        user, system = self._cpu_time()
        stat = hierarchy.counters(self._cpu / "cpu.stat")
        memory = limit = None
        if group := self._directories.get("memory"):
            memory = hierarchy.counters(group / "memory.stat").get("total_rss")
            limit = hierarchy.number(group / "memory.limit_in_bytes")
        return Usage(
            user_s=user,
            system_s=system,
            periods=stat.get("nr_periods"),
            throttled=stat.get("nr_throttled"),
            throttled_s=stat.get("throttled_time", 0) / 1e9,
            memory=memory,
            memory_limit=None if limit is None or limit >= _UNLIMITED else limit,
            processes=len(self.pids()),
            threads=hierarchy.threads(self._cpu, "tasks"),
        )

    def _cpu_time(self) -> tuple[float, float]:
        group = self._directories.get("cpuacct", self._cpu)
        user, system = hierarchy.number(group / "cpuacct.usage_user"), hierarchy.number(group / "cpuacct.usage_sys")
        if user is not None and system is not None:
            return user / 1e9, system / 1e9
        ticks = os.sysconf("SC_CLK_TCK")
        stat = hierarchy.counters(group / "cpuacct.stat")  # kernels before 4.7
        return stat.get("user", 0) / ticks, stat.get("system", 0) / ticks

    def starved(self) -> bool:
        """Whether the kernel has killed any of its processes for want of memory."""
        group = self._directories.get("memory")
        return group is not None and hierarchy.counters(group / "memory.oom_control").get("oom_kill", 0) > 0

    def pids(self) -> list[int]:
        """Its living processes, those included that have entered some of its directories only."""
        return hierarchy.pids(self._all)

    def kill(self) -> None:
        """End all of its processes, those they start meanwhile too, before returning.

        Where there is a freezer, nothing is born meanwhile.
        """
        freezer = self._directories.get("freezer")
        if freezer and hierarchy.offer(freezer / "freezer.state", "FROZEN"):
            deadline = time.monotonic() + _FREEZE_S
            while hierarchy.read(freezer / "freezer.state") == "FREEZING\n" and time.monotonic() < deadline:
                time.sleep(0.0005)
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            hierarchy.offer(freezer / "freezer.state", "THAWED")  # now they see that they are dead
        hierarchy.kill(self._all)

    def close(self) -> None:
        """Remove what is left of it; nothing happens when it is gone already."""
        for directory in self._all:
            hierarchy.remove(directory)


class V1:
    """Quotas by groups of version 1, below the group that this process runs in.

    Parameters
    ----------
    own
        Controller -> directory of this process's group, as `hierarchy.own_groups` tells.
    space
        Whose groups these are: no two agents of a node may share it.

    Raises
    ------
    StateError
        When no cpu controller is mounted, or this user may not make groups in it.
    """

    name = "cgroup v1"

    def __init__(self, own: Mapping[str, Path], space: str) -> None:
        hierarchy.checked(space)
        cpu = own.get("cpu")
        if cpu is None:
            raise StateError("no cpu controller of version 1 is mounted")
        self._bases = {
            controller: group / TOP / space
            for controller in _USED
            if (group := own.get(controller)) and os.access(group, os.W_OK) and not _is_roll(controller, group)
        }
        if "cpu" not in self._bases:
            raise StateError(f"{cpu} belongs to another user: it was not delegated")
        self._bound: float | None = None
        self.why = f"{', '.join(self._bases)} below {cpu}"

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> V1Group:
        """A new group; see `executors.cgroup.group.Quotas`."""
        hierarchy.checked(name)
        made: dict[str, Path] = {}
        try:
            for controller, base in self._bases.items():
                if (base / name) not in made.values():
                    _make(base, name)
                made[controller] = base / name
            _bind(self._bases["cpu"], self._bound)  # made just now, perhaps; while there is a group in it, it stays
            group = V1Group(made)
            group.weigh(weight)
            hierarchy.write(made["cpu"] / "cpu.cfs_period_us", str(PERIOD_US))
            group.limit(cores)
            if memory is not None and "memory" in made:
                hierarchy.write(made["memory"] / "memory.limit_in_bytes", str(memory))
                hierarchy.offer(made["memory"] / "memory.memsw.limit_in_bytes", str(memory))  # where swap is counted
        except StateError:
            for directory in made.values():
                hierarchy.remove(directory)
            raise
        return group

    def bound(self, cores: float) -> None:
        """Everything in this name space together has at most so many cores; see `executors.cgroup.group.Quotas`.

        A group whose own limit is larger has none from then on, until `V1Group.limit` gives it one again: version 1
        takes no quota above that of the group around it.
        """
        self._bound = cores
        if self._bases["cpu"].is_dir():
            _bind(self._bases["cpu"], cores)

    def recover(self, name: str, pid: int) -> V1Group | None:
        """The group that an earlier agent made. That may have run in another group than this one: the process tells."""
        members = hierarchy.pids([self._bases["cpu"] / hierarchy.checked(name)])
        places = self._places(name, pid if pid in members or not members else members[0])
        places = {controller: place for controller, place in places.items() if place.exists()}
        return V1Group(places) if "cpu" in places else None

    def sweep(self, keep: Collection[str]) -> None:
        """End and remove groups that dead agents left behind under this name space, but for those in `keep`."""
        left = {path.name for base in self._bases.values() if base.is_dir() for path in base.iterdir() if path.is_dir()}
        for name in sorted(left - set(keep)):
            first = next(iter(hierarchy.pids([base / name for base in self._bases.values()])), 0)
            group = V1Group(self._places(name, first))
            group.kill()
            group.close()
        for base in self._bases.values():
            hierarchy.tidy(base.parent)

    def _places(self, name: str, pid: int) -> dict[str, Path]:
        """Where this group's directories are: those that one of its processes is in, else below our own."""
        places = {controller: base / name for controller, base in self._bases.items()}
        end = Path(TOP, self._bases["cpu"].name, name).as_posix()
        with suppress(OSError):
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            of_it = hierarchy.own_groups(Path("/proc/self/mountinfo").read_text(), groups)
            places |= {key: path for key, path in of_it.items() if key in _USED and path.as_posix().endswith(f"/{end}")}
        return places


def _is_roll(controller: str, group: Path) -> bool:
    """Whether a batch system calls the roll of a job's processes by this group: they must not leave it.

    Slurm's `proctrack/cgroup` signals and ends what is in the job's freezer group, and looks into none below it.
    """
    return controller == "freezer" and any(part.startswith("slurm") for part in group.parts)


def _make(base: Path, name: str) -> None:
    for _ in range(10):  # another agent that ends may remove the groups around it just now
        with suppress(OSError):
            base.mkdir(parents=True, exist_ok=True)
        if base.is_dir():
            break
    for around in (base.parent, base):  # together, containers weigh as much as the node
        hierarchy.offer(around / "cpu.shares", str(hierarchy.node_shares()))
    hierarchy.make(base, name)


def _bind(base: Path, cores: float | None) -> None:
    """The quota of a name space as a whole; None takes away that of an earlier agent."""
    files = base / "cpu.cfs_quota_us", base / "cpu.cfs_period_us"
    if cores is None:
        if hierarchy.number(files[0]) is not None:
            hierarchy.write(files[0], "-1")
        return
    bound = hierarchy.bound_us(cores)
    if bound == tuple(map(hierarchy.number, files)):
        return
    most = hierarchy.quota_us(cores)
    for group in hierarchy.below(base):
        if group != base and (_quota_us(group) or 0) > most:  # it would be refused because of them
            hierarchy.offer(group / "cpu.cfs_quota_us", "-1")
    hierarchy.write(files[0], "-1")  # what was there would be another share of the new period
    hierarchy.write(files[1], str(bound[1]))
    # A smaller quota around it holds for it as well, and more than that would be refused.
    if not any(0 < (_quota_us(around) or 0) <= most for around in base.parents):
        hierarchy.write(files[0], str(bound[0]))


def _quota_us(group: Path) -> int | None:
    """CPU time that it may use in `PERIOD_US` [us]; None for no limit."""
    quota = hierarchy.number(group / "cpu.cfs_quota_us")
    return None if quota is None else round(quota * PERIOD_US / (hierarchy.number(group / "cpu.cfs_period_us") or 1))
