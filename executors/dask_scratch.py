"""A directory on a node's own disk, for the time of one crew."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from executors import node

_PREFIX = "asa-dask-"


class Scratch:
    """Makes a directory of our own (0700), and removes those that crews have left which were killed.

    It is locked while it is in use; the kernel unlocks it when its crew's process ends, in whatever way.

    Parameters
    ----------
    parent
        Where to make it; by default as `executors.node.scratch` says.

    Raises
    ------
    OSError
        When it cannot be made, or its file system has no locks.
    """

    def __init__(self, parent: str | None = None) -> None:
        parent = parent or node.scratch(os.environ)
        for left in Path(parent).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # it belongs to somebody else, or is in use, or gone
                held = _lock(left)
                try:
                    shutil.rmtree(left)
                finally:
                    os.close(held)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                self._held = _lock(self.path)
            except (BlockingIOError, FileNotFoundError):  # another crew is just about to tidy it up, or has done so
                continue
            except OSError:
                self.path.rmdir()
                raise
            if self.path.is_dir():
                return
            os.close(self._held)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{path} is not ours")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
