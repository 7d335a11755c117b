"""An agent's directory on its node: one agent at a time holds it, and the next finds there what it must know."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from asa.security.files import cannot, check_private, private_directory, write_private
from asa.web.hosts import LOOPBACK
from asa.web.server import listening_socket

_PATIENCE_S = 3.0
_AGAIN_S = 0.01


class WorkDirectory:
    """Journal, sandboxes, and what is known of containers; mode 0700.

    The lock belongs to one opened file, as ``flock`` has it: it ends with its holder, however that ends, and tells two
    agents in one process apart.

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

        Raises
        ------
        StateError
            When another agent holds it, or it is not private or cannot be written.
        """
        if self._descriptor >= 0:
            return
        private_directory(self.path)
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot("lock", self.lock, error) from error
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(descriptor):  # a shim may just be looking whether it is held, or tidying up
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise StateError(f"another agent works in {self.path}: stop it first, or choose another directory")
            time.sleep(_AGAIN_S)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the lock."""
        os.close(self._descriptor)
        self._descriptor = -1

    def remove(self) -> None:
        """Remove all of it, as far as that is possible."""
        shutil.rmtree(self.path, ignore_errors=True)

    def loopback(self) -> socket.socket:
        """Where executors connect to: the port of before, if there was one, since those that run know no other."""
        path = self.path / "endpoint"
        with suppress(StateError, OSError, ValueError):
            return listening_socket(LOOPBACK, int(check_private(path).read_text()))
        found = listening_socket(LOOPBACK, 0)
        write_private(path, str(found.getsockname()[1]).encode())
        return found


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
