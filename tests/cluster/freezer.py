"""The freezer of cgroup v1: whether Slurm can track jobs with it, and what a cluster leaves there."""

import os
from contextlib import suppress
from pathlib import Path


def mount_point(mounts: str) -> Path | None:
    """Where the freezer is mounted, from the text of /proc/mounts; None if it is not, or not under that name.

    Examples
    --------
    >>> mount_point("cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0")
    PosixPath('/sys/fs/cgroup/freezer')
    >>> mount_point("cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0") is None
    True
    """
    for line in mounts.splitlines():
        _device, where, kind, options, *_rest = line.split()
        # Slurm looks for a directory of this name below CgroupMountpoint
        if kind == "cgroup" and "freezer" in options.split(",") and Path(where).name == "freezer":
            return Path(where)
    return None


def usable(mounts: Path = Path("/proc/mounts")) -> Path | None:
    """The freezer's mount point if this process may make groups there, else None."""
    freezer = mount_point(mounts.read_text())
    if freezer is None or not (freezer / "release_agent").exists():
        return None
    probe = freezer / f"asa-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return None
    return freezer


def node_group(freezer: Path, node: str) -> Path:
    """The group that holds all jobs of one node."""
    return freezer / f"slurm_{node}"


def members(group: Path) -> list[int]:
    """Numbers of the processes in a group and the groups below it."""
    pids: list[int] = []
    for directory, _names, _files in os.walk(group):
        with suppress(OSError):  # the group was removed meanwhile
            pids += map(int, Path(directory, "cgroup.procs").read_text().split())
    return pids


def thaw(group: Path) -> None:
    """Let frozen groups go on: a frozen process cannot even be killed."""
    for directory, _names, _files in os.walk(group):
        with suppress(OSError):
            Path(directory, "freezer.state").write_text("THAWED")


def remove(group: Path) -> bool:
    """Remove a group and the groups below it; False if one has members left, such as ending threads."""
    for directory, _names, _files in os.walk(group, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)
    return not group.exists()
