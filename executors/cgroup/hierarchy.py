"""Groups of the kernel as directories: what versions 1 and 2 have in common."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError

TOP = "asa"
"""Everything that is made here is in a group of this name, below the one that its maker runs in."""
PERIOD_US = 100_000
"""How often a quota is filled up again [us]: the kernel's own default, and Mesos' (`linux_launcher` isolators)."""
BOUND_US = 10_000
"""The same for all containers together [us], or more. Shorter: what one of them has used up is missing to the others
until then, whatever they weigh."""
SLICE_US = 5000
"""CPU time [us] that the kernel hands out at a time: of less than that, weights cannot make parts."""
LEAST_US = 1000
"""The smallest quota that the kernel takes [us]."""

_PATIENCE_S = 8.0
_STALE_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


def checked(name: str) -> str:
    """The name, if a group may have it.

    Raises
    ------
    StateError
        When it is not one word of letters, digits, ``-``, ``_`` and ``.``, or begins with ``.``.
    """
    if not _NAME.fullmatch(name):
        raise StateError(f"{name!r} cannot name a group: expected up to 128 letters, digits, '-', '_' and '.'")
    return name


def enter(groups: Sequence[Path], argv: Sequence[str]) -> tuple[str, ...]:
    """A command line that joins these groups and then becomes `argv`, in the same process.

    It is run by bash where there is one: other shells drop variables whose names are not words, as those are that carry
    the shell functions of environment modules. ``-p`` keeps it from sourcing ``$BASH_ENV``.
    """
    bash = shutil.which("bash")
    shell = (bash, "-p") if bash else ("/bin/sh",)
    return (*shell, "-c", _ENTER, "asa-enter", *(str(group / "cgroup.procs") for group in groups), "--", *argv)


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
    """Weight in version 2, as container runtimes convert it: 39 or 40 for a core, so that 250 cores can be told apart.

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


def read(file: Path) -> str:
    """Its text; empty when the group is gone, or the kernel has no such file."""
    try:
        return file.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            return ""
        raise


def write(file: Path, text: str) -> None:
    """Say this to the kernel.

    Raises
    ------
    StateError
        When it refuses.
    """
    try:
        _write(file, text)
    except OSError as error:
        raise StateError(f"cannot write {text!r} to {file}: {error.strerror}") from error


def offer(file: Path, text: str) -> bool:
    """Say this to the kernel, which may not want to hear of it; whether it did."""
    try:
        _write(file, text)
    except OSError:
        return False
    return True


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)  # never makes one: a file that is not there is a controller that is not
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def counters(file: Path) -> dict[str, int]:
    """What a file of lines ``name number`` says."""
    return {name: int(value) for name, value in (line.split() for line in read(file).splitlines())}


def number(file: Path) -> int | None:
    """The number in a file; None without one, as where there is no limit."""
    text = read(file).strip()
    return int(text) if text.isdecimal() else None


def below(directory: Path) -> Iterator[Path]:
    """The groups that were made in this one, deepest first, then itself."""
    with suppress(OSError):
        for entry in list(os.scandir(directory)):
            if entry.is_dir(follow_symlinks=False):
                yield from below(Path(entry.path))
    yield directory


def pids(directories: Collection[Path]) -> list[int]:
    """Processes in these groups, and in those that were made in them."""
    found = {int(pid) for top in directories for group in below(top) for pid in read(group / "cgroup.procs").split()}
    return sorted(found - {0})  # 0: one of another namespace


def threads(directory: Path, file: str) -> int:
    """How many threads a group has."""
    return len(read(directory / file).split())


def kill(directories: Collection[Path]) -> None:
    """Kill every process in these groups, also those that are being born meanwhile.

    Returns when none is left, or after a few seconds when one is stuck in the kernel.
    """
    deadline, pause = time.monotonic() + _PATIENCE_S, 0.0005
    while (members := pids(directories)) and time.monotonic() < deadline:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def make(base: Path, name: str) -> Path:
    """A new group in `base`, which must be there.

    Raises
    ------
    StateError
        When there is one of this name, or none can be made.
    """
    try:
        (base / name).mkdir()
    except FileExistsError as error:
        raise StateError(f"there is a group {base / name} already: its name must be nobody else's") from error
    except OSError as error:
        raise StateError(f"cannot make the group {base / name}: {error.strerror}") from error
    return base / name


def remove(directory: Path, patience_s: float = 2.0) -> bool:
    """Remove a group without processes, what was made in it, and the groups around it if they were the last's.

    Whether it is gone: a process that ended just now may hold it for a moment, and one that lives keeps it.
    """
    deadline = time.monotonic() + patience_s
    for group in below(directory):
        while not _rmdir(group) and time.monotonic() < deadline and not read(group / "cgroup.procs"):
            time.sleep(0.001)
    if directory.exists():
        return False
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


def tidy(top: Path) -> None:
    """Remove empty groups of agents that died with all their containers, and whose like never came back.

    Those that were made just now may be about to be entered; to an agent that lives, an empty one is of no use.
    """
    for depth in ("*/*", "*"):
        with suppress(OSError):  # others tidy up at the same time: what is looked through may go meanwhile
            for group in top.glob(depth):
                if group.is_dir() and time.time() - group.stat().st_mtime > _STALE_S and not pids([group]):
                    _rmdir(group)
    _rmdir(top)
