"""Whether a path lies on a disk of this machine or is shared with others over a network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_LOCAL = {
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs",
}  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    number: int
    parent: int
    point: PurePosixPath
    kind: str


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts that a text in the format of ``/proc/self/mountinfo`` lists.

    References
    ----------
    proc_pid_mountinfo(5).

    Examples
    --------
    >>> parse_mounts(r"36 35 98:0 / /my\\040disk rw,noatime master:1 - ext3 /dev/root rw")
    [Mount(number=36, parent=35, point=PurePosixPath('/my disk'), kind='ext3')]
    """
    mounts = []
    for line in mountinfo.splitlines():
        mounted, _, source = line.partition(" - ")
        number, parent, _, _, point, *_ = mounted.split(" ")
        path = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
        mounts.append(Mount(int(number), int(parent), PurePosixPath(path), source.split(" ")[0]))
    return mounts


def mount_of(path: PurePosixPath, mounts: list[Mount]) -> Mount | None:
    """The mount that holds an absolute `path` free of links, or None when none of them does.

    Follows the tree of mounts as a path is walked, so that a mount hidden under a later one does not count.
    """
    numbers = {mount.number for mount in mounts}
    covering = [mount for mount in mounts if path.is_relative_to(mount.point)]
    within: Mount | None = None
    met = [mount for mount in covering if mount.parent not in numbers or mount.parent == mount.number]
    while met:
        within = min(met, key=lambda mount: len(mount.point.parts))
        met = [mount for mount in covering if mount.parent == within.number and mount is not within]
    return within


def is_local(path: Path) -> bool:
    """Whether `path` lies on a file system of this machine alone.

    False for network and parallel file systems (NFS, Lustre, GPFS, BeeGFS), for FUSE, and for whatever is not known:
    SQLite's write-ahead log needs memory that all its readers share, which only one machine has.
    """
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    mount = mount_of(PurePosixPath(path.resolve()), parse_mounts(mountinfo))
    return mount is not None and mount.kind in _LOCAL
