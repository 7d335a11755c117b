"""One driver per run: a lock that the kernel lets go of when its holder dies, however it dies."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from asa.core.errors import StateError
from asa.log import proc
from asa.security.files import cannot, write_private

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


@dataclass(frozen=True, slots=True)
class Holder:
    """A process.

    Parameters
    ----------
    pid, host
        Where it runs.
    born
        When it was started, in the kernel's own count since boot: tells it from a later process with the same pid.
    """

    pid: int
    host: str
    born: int

    @classmethod
    def this(cls) -> Holder:
        """The process that asks."""
        found = proc.stat(os.getpid())
        assert found, "who asks is there"
        return cls(os.getpid(), socket.gethostname(), found.birth)


class DriverLock:
    """Held by the process that drives a run; a context manager.

    A POSIX record lock: it holds across the machines of a shared file system, and no child process inherits it, so
    that it ends with the driver even when workers outlive it. Such a lock does not tell threads of one process apart,
    and closing any descriptor of the file lets go of it; therefore its holder is noted beside it, and looked at first.

    Parameters
    ----------
    path
        The file to lock; the holder is named in a second file, with ``.holder`` after its name.

    Raises
    ------
    StateError
        On entry, when another process, or this one, drives the run already, or the files cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(path.name + ".holder")
        self._descriptor = -1

    def __enter__(self) -> Self:
        this = Holder.this()
        if self._noted() == this or not self._take():
            run, holder = self._path.parent.name, self._noted()
            who = f"process {holder.pid} on {holder.host}" if holder else "a process that has just started"
            raise StateError(f"run {run} is being driven already, by {who}: wait for it, or stop it first")
        try:
            write_private(self._note, json.dumps(dataclasses.asdict(this)).encode())
        except StateError:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._note.unlink(missing_ok=True)
        os.close(self._descriptor)

    def holder(self) -> Holder | None:
        """Who drives the run, or None when nobody does. Asking changes nothing.

        Raises
        ------
        StateError
            When the lock cannot be looked at.
        """
        holder = self._noted()
        if holder == Holder.this():  # to open and close the file would let go of the lock
            return holder
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot("look at", self._path, error) from error
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        finally:
            os.close(descriptor)
        free = struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK
        return None if free else holder

    def _take(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot("lock", self._path, error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):  # EAGAIN or EACCES: POSIX leaves the choice
                return False
            raise cannot("lock", self._path, error) from error
        self._descriptor = descriptor
        return True

    def _noted(self) -> Holder | None:
        try:
            return Holder(**json.loads(self._note.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # nobody, or a holder that is about to write it
