"""Control groups of the kernel, versions 1 and 2, as directories.

In version 1 each controller is a tree of its own, and a container has a directory in several of them. In version 2
there is one tree, and a group with children under control may not hold processes itself.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from executors.cgroup.group import GroupUsage

log = logging.getLogger(__name__)

TOP = "asa"
"""Everything that is made here is in a group of this name, below the one that its maker runs in."""
ASIDE = f"{TOP}.self"
"""In version 2: the group that the agent, and what shared its group with it, moves to."""
PERIOD_US = 100_000
"""How often a quota is filled up again [us]: the kernel's own default, and Mesos' (`linux_launcher` isolators)."""
BOUND_US = 10_000
"""The same for all containers together [us], or more. Shorter: what one of them has used up is missing to the others
until then, whatever they weigh."""
SLICE_US = 5000
"""CPU time [us] that the kernel hands out at a time: of less than that, weights cannot make parts."""
LEAST_US = 1000
"""The smallest quota that the kernel takes [us]."""

PATIENCE_S = 8.0
_STALE_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_V1_CONTROLLERS, _V2_CONTROLLERS = ("cpu", "cpuacct", "memory", "freezer"), ("cpu", "memory")
_UNLIMITED = 1 << 60
"""Memory limits of version 1 from here on mean that there is none [bytes]."""
_FREEZE_S = 0.5
_DELEGATED = ("user.delegate", "trusted.delegate")
_MANAGER = re.compile(r"user@\d+\.service")
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


def checked_name(name: str) -> str:
    """The name, if a group may have it.

    Raises
    ------
    StateError
        When it is not one word of letters, digits, ``-``, ``_`` and ``.``, or begins with ``.``.
    """
    if not _NAME.fullmatch(name):
        raise StateError(f"{name!r} cannot name a group: expected up to 128 letters, digits, '-', '_' and '.'")
    return name


def enter_groups(groups: Sequence[Path], argv: Sequence[str]) -> tuple[str, ...]:
    """A command line that joins these groups and then becomes `argv`, in the same process.

    It is run by bash where there is one: other shells drop variables whose names are not words, as those are that carry
    the shell functions of environment modules. ``-p`` keeps it from sourcing ``$BASH_ENV``.
    """
    bash = shutil.which("bash")
    shell = (bash, "-p") if bash else ("/bin/sh",)
    return (*shell, "-c", _ENTER, "asa-enter", *gates_of(groups), "--", *argv)


def gates_of(groups: Sequence[Path]) -> tuple[str, ...]:
    """The files into which a process writes 0 to join these groups."""
    return tuple(str(group / "cgroup.procs") for group in groups)


def quota_us(cores: float) -> int:
    """CPU time per period [us].

    >>> quota_us(0.25), quota_us(2), quota_us(0.0001)
    (25000, 200000, 1000)
    """
    return max(LEAST_US, round(cores * PERIOD_US))


def bound_us(cores: float) -> tuple[int, int]:
    """CPU time of all containers together, and the period in which they may use it [us].

    >>> bound_us(2), bound_us(0.2), bound_us(0.01)
    ((20000, 10000), (5000, 25000), (5000, 500000))
    """
    period = max(BOUND_US, math.ceil(SLICE_US / cores))
    return round(cores * period), period


def shares(weight: float) -> int:
    """Weight in version 1: 1024 for a core, as in Mesos.

    >>> shares(1), shares(0.5), shares(0)
    (1024, 512, 2)
    """
    return min(262_144, max(2, round(1024 * weight)))


def node_shares() -> int:
    """Weight of all cores: that of the groups around containers, lest a stray process weigh as much as all of them."""
    return shares(os.cpu_count() or 1)


def weight_of(shares: int) -> int:
    """Weight in version 2, as container runtimes convert it: 39 or 40 for a core, so that 250 cores differ.

    >>> weight_of(2), weight_of(1024), weight_of(262144)
    (1, 39, 10000)
    """
    return 1 + (shares - 2) * 9999 // 262_142


def own_groups(mounts: str, groups: str) -> dict[str, Path]:
    """Controller -> directory of the group that this process is in; that of version 2 under ``""``.

    Parameters
    ----------
    mounts, groups
        What ``/proc/self/mountinfo`` and ``/proc/self/cgroup`` say. A group that no mount shows is left out.

    >>> own_groups("30 24 0:26 / /cg/cpu,cpuacct rw - cgroup none rw,cpu,cpuacct", "4:cpu,cpuacct:/job7")
    {'cpu': PosixPath('/cg/cpu,cpuacct/job7'), 'cpuacct': PosixPath('/cg/cpu,cpuacct/job7')}
    >>> own_groups("30 24 0:26 /docker/1 /cg rw - cgroup2 none rw", "0::/docker/1/app")
    {'': PosixPath('/cg/app')}
    """
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, where = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), where)
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, at = (_unescaped(text) for text in before.split(" ")[3:5])
        for controller in [""] if kind == "cgroup2" else options.split(","):
            of_it = paths.get(controller, "/..")
            if controller in found or ".." in of_it.split("/"):
                continue
            if root == "/" or of_it == root or of_it.startswith(root + "/"):
                found[controller] = Path(at, of_it[0 if root == "/" else len(root) :].lstrip("/"))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def read_file(file: Path) -> str:
    """Its text; empty when the group is gone, or the kernel has no such file."""
    try:
        return file.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            return ""
        raise


def write_file(file: Path, text: str) -> None:
    """Write this to a file of the kernel.

    Raises
    ------
    StateError
        When the kernel refuses it.
    """
    try:
        _write(file, text)
    except OSError as error:
        raise StateError(f"cannot write {text!r} to {file}: {error.strerror}") from error


def try_write(file: Path, text: str) -> bool:
    """Write this to a file of the kernel, which may refuse it; whether it did not."""
    try:
        _write(file, text)
    except OSError as error:
        log.debug("cannot write %r to %s: %s", text, file, error.strerror)
        return False
    return True


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)  # never makes one: a file that is not there is a controller that is not
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    log.debug("wrote %r to %s", text, file)


def read_counters(file: Path) -> dict[str, int]:
    """What a file of lines ``name number`` says."""
    return {name: int(value) for name, value in (line.split() for line in read_file(file).splitlines())}


def read_number(file: Path) -> int | None:
    """The number in a file; None without one, as where there is no limit."""
    text = read_file(file).strip()
    return int(text) if text.isdecimal() else None


def pressure_s(group: Path, resource: str, kind: str) -> float | None:
    """For how long the processes of a group have waited for ``cpu`` or ``memory`` [s]; None where the kernel does not
    say.

    Parameters
    ----------
    kind
        ``some`` of them, or ``full``: all that were not idle. A processor waits in full while it has something of this
        group to run, and runs something else, or nothing, since a quota is used up (Linux 5.13 and later). Both are
        means over the processors, weighted by how long each had something to do for the group.

    References
    ----------
    Documentation/accounting/psi.rst and kernel/sched/psi.c of Linux; totals are in microseconds.
    """
    text = read_file(group / f"{resource}.pressure")
    found = re.search(rf"^{kind} .*\btotal=(\d+)", text, re.MULTILINE)
    return None if found is None else int(found[1]) / 1e6


def groups_below(directory: Path) -> Iterator[Path]:
    """The groups that were made in this one, deepest first, then itself."""
    with suppress(OSError):
        for entry in list(os.scandir(directory)):
            if entry.is_dir(follow_symlinks=False):
                yield from groups_below(Path(entry.path))
    yield directory


def members(directories: Collection[Path]) -> list[int]:
    """Processes in these groups, and in those that were made in them."""
    found = {
        int(pid)
        for top in directories
        for group in groups_below(top)
        for pid in read_file(group / "cgroup.procs").split()
    }
    return sorted(found - {0})  # 0: one of another namespace


def count_threads(directory: Path, file: str) -> int:
    """How many threads a group has."""
    return len(read_file(directory / file).split())


def kill_members(directories: Collection[Path]) -> None:
    """Kill every process in these groups, also those that are being born meanwhile.

    Returns when none is left, or after a few seconds when one is stuck in the kernel.
    """
    deadline, pause = time.monotonic() + PATIENCE_S, 0.0005
    while (found := members(directories)) and time.monotonic() < deadline:
        log.debug("kill %s in %s", found, next(iter(directories)))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def make_group(base: Path, name: str) -> Path:
    """A new group in `base`, which must be there.

    Raises
    ------
    StateError
        When there is one of this name, or none can be made.
    """
    try:
        (base / name).mkdir()
    except FileExistsError as error:
        raise StateError(f"there is a group {base / name} already: each group has a name of its own") from error
    except OSError as error:
        raise StateError(f"cannot make the group {base / name}: {error.strerror}") from error
    log.debug("made the group %s", base / name)
    return base / name


def remove_group(directory: Path, patience_s: float = 2.0) -> bool:
    """Remove a group without processes, what was made in it, and the groups around it if they were the last's.

    Whether it is gone: a process that ended just now may hold it for a moment, and one that lives keeps it.
    """
    deadline = time.monotonic() + patience_s
    for group in groups_below(directory):
        while not _rmdir(group) and time.monotonic() < deadline and not read_file(group / "cgroup.procs"):
            time.sleep(0.001)
    if directory.exists():
        log.warning("cannot remove the group %s: it holds processes %s", directory, members([directory])[:5])
        return False
    log.debug("removed the group %s", directory)
    space = directory.parent
    if _rmdir(space):
        _rmdir(space.parent)
    return True


def _rmdir(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_stale(top: Path) -> None:
    """Remove empty groups of agents that died with all their containers and were never restarted.

    Those that were made just now may be about to be entered; to an agent that lives, an empty one is of no use.
    """
    for depth in ("*/*", "*"):
        with suppress(OSError):  # others tidy up at the same time: what is looked through may go meanwhile
            for group in top.glob(depth):
                if group.is_dir() and time.time() - group.stat().st_mtime > _STALE_S and not members([group]):
                    _rmdir(group)
    _rmdir(top)


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
        self.gates: tuple[str, ...] | None = gates_of(self._all)

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return enter_groups(self._all, argv)

    def adopt(self, pid: int) -> None:
        """It has entered by itself."""

    def limit(self, cores: float | None) -> None:
        if cores is None:
            write_file(self._cpu / "cpu.cfs_quota_us", "-1")
        elif not try_write(self._cpu / "cpu.cfs_quota_us", str(quota_us(cores))):
            # More than the group around it may use: version 1 refuses that, though it would change nothing.
            write_file(self._cpu / "cpu.cfs_quota_us", "-1")

    def weigh(self, weight: float) -> None:
        write_file(self._cpu / "cpu.shares", str(shares(weight)))

    def hold_memory(self, memory: int | None) -> None:
        if group := self._directories.get("memory"):
            write_file(group / "memory.soft_limit_in_bytes", str(-1 if memory is None else memory))

    def usage(self) -> GroupUsage:
        user, system = self._cpu_time()
        stat = read_counters(self._cpu / "cpu.stat")
        memory = limit = None
        if group := self._directories.get("memory"):
            memory = read_counters(group / "memory.stat").get("total_rss")
            limit = read_number(group / "memory.limit_in_bytes")
        return GroupUsage(
            user_s=user,
            system_s=system,
            periods=stat.get("nr_periods"),
            throttled=stat.get("nr_throttled"),
            throttled_s=stat.get("throttled_time", 0) / 1e9,
            memory=memory,
            memory_limit=None if limit is None or limit >= _UNLIMITED else limit,
            processes=len(self.pids()),
            threads=count_threads(self._cpu, "tasks"),
        )

    def _cpu_time(self) -> tuple[float, float]:
        group = self._directories.get("cpuacct", self._cpu)
        user, system = read_number(group / "cpuacct.usage_user"), read_number(group / "cpuacct.usage_sys")
        if user is not None and system is not None:
            return user / 1e9, system / 1e9
        ticks = os.sysconf("SC_CLK_TCK")
        stat = read_counters(group / "cpuacct.stat")  # kernels before 4.7
        return stat.get("user", 0) / ticks, stat.get("system", 0) / ticks

    def starved(self) -> bool:
        group = self._directories.get("memory")
        return group is not None and read_counters(group / "memory.oom_control").get("oom_kill", 0) > 0

    def pids(self) -> list[int]:
        return members(self._all)

    def kill(self) -> None:
        freezer = self._directories.get("freezer")
        if freezer and try_write(freezer / "freezer.state", "FROZEN"):  # nothing is forked meanwhile
            deadline = time.monotonic() + _FREEZE_S
            while read_file(freezer / "freezer.state") == "FREEZING\n" and time.monotonic() < deadline:
                time.sleep(0.0005)
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try_write(freezer / "freezer.state", "THAWED")  # now they see that they are dead
        kill_members(self._all)

    def close(self) -> None:
        for directory in self._all:
            remove_group(directory)


class V1:
    """Quotas by groups of version 1, below the group that this process runs in.

    Parameters
    ----------
    own
        Controller -> directory of this process's group, as `own_groups` says.
    space
        Whose groups these are: no two agents of a node may share it.

    Raises
    ------
    StateError
        When no cpu controller is mounted, or this user may not make groups in it.
    """

    name = "cgroup v1"

    def __init__(self, own: Mapping[str, Path], space: str) -> None:
        checked_name(space)
        cpu = own.get("cpu")
        if cpu is None:
            raise StateError("no cpu controller of version 1 is mounted")
        self._bases = {
            controller: group / TOP / space
            for controller in _V1_CONTROLLERS
            if (group := own.get(controller)) and os.access(group, os.W_OK) and not _tracks_jobs(controller, group)
        }
        if "cpu" not in self._bases:
            raise StateError(f"{cpu} belongs to another user: it was not delegated")
        self._bound: float | None = None
        self.why = f"{', '.join(self._bases)} below {cpu}"

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> V1Group:
        checked_name(name)
        made: dict[str, Path] = {}
        try:
            for controller, base in self._bases.items():
                if (base / name) not in made.values():
                    make_v1_group(base, name)
                made[controller] = base / name
            _bound_v1(self._bases["cpu"], self._bound)  # made just now, perhaps; while there is a group in it, it stays
            group = V1Group(made)
            group.weigh(weight)
            write_file(made["cpu"] / "cpu.cfs_period_us", str(PERIOD_US))
            group.limit(cores)
            if memory is not None and "memory" in made:
                write_file(made["memory"] / "memory.limit_in_bytes", str(memory))
                try_write(made["memory"] / "memory.memsw.limit_in_bytes", str(memory))  # where swap is counted
        except StateError:
            for directory in made.values():
                remove_group(directory)
            raise
        return group

    def bound(self, cores: float) -> None:
        """As `Quotas.bound`.

        A group whose own limit is larger has none from then on, until `V1Group.limit` gives it one again: version 1
        takes no quota above that of the group around it.
        """
        self._bound = cores
        if self._bases["cpu"].is_dir():
            _bound_v1(self._bases["cpu"], cores)

    def recover(self, name: str, pid: int) -> V1Group | None:
        """As `Quotas.recover`; the earlier agent may have run in another group, which the process's own path shows."""
        there = members([self._bases["cpu"] / checked_name(name)])
        places = self._places(name, pid if pid in there or not there else there[0])
        places = {controller: place for controller, place in places.items() if place.exists()}
        return V1Group(places) if "cpu" in places else None

    def sweep(self, keep: Collection[str]) -> None:
        left = {path.name for base in self._bases.values() if base.is_dir() for path in base.iterdir() if path.is_dir()}
        for name in sorted(left - set(keep)):
            first = next(iter(members([base / name for base in self._bases.values()])), 0)
            group = V1Group(self._places(name, first))
            group.kill()
            group.close()
        for base in self._bases.values():
            remove_stale(base.parent)

    def _places(self, name: str, pid: int) -> dict[str, Path]:
        """Where this group's directories are: those that one of its processes is in, else below our own."""
        places = {controller: base / name for controller, base in self._bases.items()}
        end = Path(TOP, self._bases["cpu"].name, name).as_posix()
        with suppress(OSError):
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            of_it = own_groups(Path("/proc/self/mountinfo").read_text(), groups)
            places |= {
                key: path
                for key, path in of_it.items()
                if key in _V1_CONTROLLERS and path.as_posix().endswith(f"/{end}")
            }
        return places


def _tracks_jobs(controller: str, group: Path) -> bool:
    """Whether a batch system finds a job's processes by this group, so that they must not leave it.

    Slurm's `proctrack/cgroup` signals and ends what is in the job's freezer group, and looks into none below it.
    """
    return controller == "freezer" and any(part.startswith("slurm") for part in group.parts)


def make_v1_group(base: Path, name: str) -> None:
    """Make a group and those around it."""
    for _ in range(10):  # another agent that ends may remove the groups around it just now
        with suppress(OSError):
            base.mkdir(parents=True, exist_ok=True)
        if base.is_dir():
            break
    for around in (base.parent, base):  # together, containers weigh as much as the node
        try_write(around / "cpu.shares", str(node_shares()))
    make_group(base, name)


def _bound_v1(base: Path, cores: float | None) -> None:
    """The quota of a name space as a whole; None takes away that of an earlier agent."""
    files = base / "cpu.cfs_quota_us", base / "cpu.cfs_period_us"
    if cores is None:
        if read_number(files[0]) is not None:
            write_file(files[0], "-1")
        return
    bound = bound_us(cores)
    if bound == tuple(map(read_number, files)):
        return
    most = quota_us(cores)
    for group in groups_below(base):
        if group != base and (_quota_us(group) or 0) > most:  # it would be refused because of them
            try_write(group / "cpu.cfs_quota_us", "-1")
    write_file(files[0], "-1")  # what was there would be another share of the new period
    write_file(files[1], str(bound[1]))
    # A smaller quota around it holds for it as well, and more than that would be refused.
    if not any(0 < (_quota_us(around) or 0) <= most for around in base.parents):
        write_file(files[0], str(bound[0]))


def _quota_us(group: Path) -> int | None:
    """CPU time that it may use in `PERIOD_US` [us]; None for no limit."""
    quota = read_number(group / "cpu.cfs_quota_us")
    return None if quota is None else round(quota * PERIOD_US / (read_number(group / "cpu.cfs_period_us") or 1))


class V2Group:
    """The processes of one container.

    Parameters
    ----------
    directory
        Its group.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.gates: tuple[str, ...] | None = gates_of([directory])

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return enter_groups([self._directory], argv)

    def adopt(self, pid: int) -> None:
        """It has entered by itself."""

    def limit(self, cores: float | None) -> None:
        quota = "max" if cores is None else str(quota_us(cores))
        write_file(self._directory / "cpu.max", f"{quota} {PERIOD_US}")

    def weigh(self, weight: float) -> None:
        write_file(self._directory / "cpu.weight", str(weight_of(shares(weight))))

    def hold_memory(self, memory: int | None) -> None:
        if (self._directory / "memory.high").exists():
            write_file(self._directory / "memory.high", "max" if memory is None else str(memory))

    def usage(self) -> GroupUsage:
        directory = self._directory
        stat = read_counters(directory / "cpu.stat")
        throttled = stat.get("throttled_usec")
        return GroupUsage(
            user_s=stat.get("user_usec", 0) / 1e6,
            system_s=stat.get("system_usec", 0) / 1e6,
            periods=stat.get("nr_periods"),
            throttled=stat.get("nr_throttled"),
            throttled_s=None if throttled is None else throttled / 1e6,
            memory=read_counters(directory / "memory.stat").get("anon"),
            memory_limit=read_number(directory / "memory.max"),
            processes=len(self.pids()),
            threads=count_threads(directory, "cgroup.threads"),
            stalled_s=pressure_s(directory, "memory", "some"),
            waited_s=pressure_s(directory, "cpu", "full"),
        )

    def starved(self) -> bool:
        return read_counters(self._directory / "memory.events").get("oom_kill", 0) > 0

    def pids(self) -> list[int]:
        return members([self._directory])

    def kill(self) -> None:
        """As `Group.kill`: all at once where the kernel can do that (5.14)."""
        if not try_write(self._directory / "cgroup.kill", "1"):
            try_write(self._directory / "cgroup.freeze", "1")  # a process can be killed while it is frozen
        kill_members([self._directory])
        try_write(self._directory / "cgroup.freeze", "0")

    def close(self) -> None:
        remove_group(self._directory)


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
        checked_name(space)
        if own is None:
            raise StateError("no hierarchy of version 2 is mounted")
        self._own = own.parent if own.name == ASIDE else own
        offered = read_file(self._own / "cgroup.controllers").split()
        if "cpu" not in offered:
            raise StateError(f"{self._own} has no cpu controller: version 1 has it, or it was not delegated")
        if not os.access(self._own, os.W_OK) or not os.access(self._own / "cgroup.procs", os.W_OK):
            raise StateError(f"{self._own} belongs to another user: it was not delegated")
        self._controllers = [controller for controller in _V2_CONTROLLERS if controller in offered]
        self._base = self._own / TOP / space
        self._bound: float | None = None
        self.why = f"{', '.join(self._controllers)} below {self._own}"

    def processes_to_move(self) -> int:
        """How many processes, this one included, must leave our group before others can be made."""
        enabled = read_file(self._own / "cgroup.subtree_control").split()
        is_root = not (self._own / "cgroup.type").exists()
        if is_root or all(controller in enabled for controller in self._controllers):
            return 0
        return len(read_file(self._own / "cgroup.procs").split())

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> V2Group:
        checked_name(name)
        self._prepare()
        directory = make_group(self._base, name)
        group = V2Group(directory)
        try:
            self._bind()  # the base was made just now, perhaps; while there is a group in it, it stays
            group.weigh(weight)
            group.limit(cores)
            if memory is not None and "memory" in self._controllers:
                write_file(directory / "memory.max", str(memory))
                try_write(directory / "memory.swap.max", "0")  # where swap is counted
        except StateError:
            group.close()
            raise
        return group

    def _prepare(self) -> None:
        for _ in range(10):  # another agent that ends may remove the groups around it just now
            with suppress(FileNotFoundError):
                if self.processes_to_move():
                    _clear(self._own)
                for directory in (self._own, self._base.parent, self._base):
                    with suppress(FileExistsError):
                        directory.mkdir()
                    self._enable(directory)
                for directory in (self._base.parent, self._base):  # together, containers weigh as much as the node
                    try_write(directory / "cpu.weight", str(weight_of(node_shares())))
                return
        raise StateError(f"cannot make the group {self._base}: it is removed again and again")

    def _enable(self, directory: Path) -> None:
        enabled = read_file(directory / "cgroup.subtree_control").split()
        if missing := [f"+{controller}" for controller in self._controllers if controller not in enabled]:
            try:
                (directory / "cgroup.subtree_control").write_text(" ".join(missing))
            except FileNotFoundError:
                raise
            except OSError as error:
                hint = ": it holds processes" if error.errno == errno.EBUSY else ""
                raise StateError(f"cannot pass controllers on below {directory}{hint} ({error.strerror})") from error

    def bound(self, cores: float) -> None:
        self._bound = cores
        if self._base.is_dir():
            self._bind()

    def _bind(self) -> None:
        quota, period = ("max", PERIOD_US) if self._bound is None else bound_us(self._bound)
        if read_file(self._base / "cpu.max").split() != [str(quota), str(period)]:
            write_file(self._base / "cpu.max", f"{quota} {period}")

    def recover(self, name: str, pid: int) -> V2Group | None:
        """As `Quotas.recover`; the earlier agent may have run in another group, which the process's own path shows."""
        end = f"/{TOP}/{self._base.name}/{checked_name(name)}"
        directory = self._base / name
        with suppress(OSError):
            found = own_groups(Path("/proc/self/mountinfo").read_text(), Path(f"/proc/{pid}/cgroup").read_text()).get(
                ""
            )
            if found and found.as_posix().endswith(end):
                directory = found
        return V2Group(directory) if directory.is_dir() else None

    def sweep(self, keep: Collection[str]) -> None:
        for path in sorted(self._base.glob("*")):
            if path.is_dir() and path.name not in keep:
                group = V2Group(path)
                group.kill()
                group.close()
        remove_stale(self._base.parent)


def _clear(own: Path) -> None:
    """Move every process of a group to one below it, so that others can be made beside that."""
    aside = own / ASIDE
    aside.mkdir(exist_ok=True)
    for _ in range(100):
        present = read_file(own / "cgroup.procs").split()
        if not present:
            return
        log.info("%s: %d processes move to %s", own, len(present), aside)
        for pid in present:
            try_write(aside / "cgroup.procs", pid)  # it may have ended
    raise StateError(f"the processes of {own} do not move to {aside}: {' '.join(present[:5])}")


def claimed_by(own: Path) -> str | None:
    """Who manages this group, so that it must not be divided, and why; None when no other program does.

    Slurm finds what it has to end with a job by the job's groups, and looks into none that it did not make. systemd
    marks what it leaves to those that run in it; below a user's own manager only a mark of that manager's counts.
    Elsewhere a group that belongs to its user has been given to it, by whatever means.
    """
    if any(part.startswith("slurm") for part in own.parts):
        return "Slurm, which finds a job's processes by it"
    if not Path("/run/systemd/system").exists():
        return None
    reason = "systemd, which has not delegated it (Delegate=yes)"
    for group in (own, *own.parents):
        if any(has_mark(group, mark) for mark in _DELEGATED):
            return reason if _MANAGER.fullmatch(group.name) else None
    managed = os.geteuid() == 0 or any(_MANAGER.fullmatch(part) for part in own.parts)
    return reason if managed else None


def has_mark(directory: Path, mark: str) -> bool:
    """Whether systemd has set this extended attribute on a group."""
    try:
        return os.getxattr(directory, mark) == b"1"
    except OSError:
        return False
