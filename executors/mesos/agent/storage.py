"""An agent's directory on its node."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from asa.security.files import cannot, check_private, locked, private_directory, write_private
from asa.web.hosts import LOOPBACK
from executors.mesos.agent.shim import process_of
from executors.mesos.host import POOL_HOST, PoolHost

_LOCK_PATIENCE_S = 3.0
_LOCK_RETRY_S = 0.01
_LOCKLESS_S = 3600.0
"""Age from which a directory without a lock is left behind [s]. An agent makes one and its lock in a millisecond; on a
node that swaps, or stopped with its job, it may take minutes, and it would have to make both again."""

_log = logging.getLogger(__name__)


class WorkDirectory:
    """Journal, sandboxes, and what is known of containers; mode 0700.

    The lock belongs to one opened file, as ``flock`` has it: it ends with its holder, however that ends, and
    two agents in one process have a lock each.

    Parameters
    ----------
    path
        Where; on a disk of this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, path / "lock"
        self._descriptor = -1

    def hold(self) -> None:
        """Make the directory, and take its lock; nothing happens while we hold it.

        Raises `StateError` when another agent holds it, or it is not private or cannot be written.
        """
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while self._descriptor < 0:
            private_directory(self.path)
            try:
                descriptor = _open_lock(self.lock, os.O_CREAT)
            except FileNotFoundError:  # another agent has just removed the directory
                continue
            except OSError as error:
                raise cannot("lock", self.lock, error) from error
            if locked(descriptor) and _is_at(self.lock, descriptor):
                self._descriptor = descriptor
                return
            os.close(descriptor)  # a shim may just be trying the lock, or another agent removes the directory
            if time.monotonic() >= deadline:
                raise StateError(f"another agent works in {self.path}: stop it first, or choose another directory")
            time.sleep(_LOCK_RETRY_S)

    def release(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def remove(self) -> None:
        """Remove all of it, as far as that is possible."""
        shutil.rmtree(self.path, ignore_errors=True)

    def loopback(self, node: PoolHost = POOL_HOST) -> socket.socket:
        """Where executors connect to: the port of before, if there was one, since those that run know no other."""
        path = self.path / "endpoint"
        with suppress(StateError, OSError, ValueError):
            return node.listening_socket(LOOPBACK, int(check_private(path).read_text()))
        found = node.listening_socket(LOOPBACK, 0)
        write_private(path, str(found.getsockname()[1]).encode())
        return found


def own_place(path: Path) -> Path:
    """`path`, or where another user has taken that name one beside it that cannot be predicted: the same each time."""
    try:
        if path.lstat().st_uid == os.geteuid():
            return path
    except OSError:  # `hold` says what is wrong, if anything is
        return path
    for other in sorted(path.parent.glob(f"{path.name}.*")):
        with suppress(StateError):
            return check_private(other, stat.S_IFDIR)
    try:
        return Path(tempfile.mkdtemp("", f"{path.name}.", path.parent))
    except OSError as error:
        raise cannot("make a directory in", path.parent, error) from error


def remove_abandoned(parent: Path, prefix: str) -> list[Path]:
    """Remove work directories of our own user that agents have left which were killed; those that were removed.

    A directory is abandoned when its lock is free, or was not made for an hour, and no container of its agent runs: as
    long as one does, the agent may be started again.
    """
    removed = []
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, or being removed
            found = os.stat(path, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            descriptor = _open_lock(path / "lock", os.O_CREAT if time.time() - found.st_mtime > _LOCKLESS_S else 0)
            try:
                if locked(descriptor) and _is_at(path / "lock", descriptor) and not _has_processes(path):
                    shutil.rmtree(path)
                    removed.append(path)
                    _log.info("removed %s, which an agent that was killed has left", path)
            finally:
                os.close(descriptor)
    return removed


def _open_lock(path: Path, flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _has_processes(path: Path) -> bool:
    return any(process_of(note) is not None for note in path.glob("run/*.process"))


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the opened file still has this name: its last holder may have removed it."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
