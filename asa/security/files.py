"""Files and directories that only their owner can read or write."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import PickleBuffer

from asa.core.errors import StateError, cause

Buffer = bytes | bytearray | memoryview | PickleBuffer


def private_directory(path: Path) -> Path:
    """Make `path`, and what is missing above it, with mode 0700; a directory that exists already is checked instead.

    Raises
    ------
    StateError
        When it cannot be made, is a symbolic link or no directory, belongs to another user, or is open to others.
    """
    try:
        if not path.parent.is_dir():
            private_parents(path)
        path.mkdir(0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise cannot("make the directory", path, error) from error
    return check_private(path, stat.S_IFDIR)


def private_parents(path: Path) -> None:
    """Make what is missing above `path` with mode 0700; what exists is taken as it is."""
    for parent in reversed(path.parents):
        try:
            parent.mkdir(0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise cannot("make the directory", parent, error) from error


def check_private(path: Path, kind: int = stat.S_IFREG) -> Path:
    """Make sure that `path` is one's own and closed to others; it is looked at, never opened.

    Parameters
    ----------
    kind
        ``stat.S_IFREG`` for a file, ``stat.S_IFDIR`` for a directory.

    Raises
    ------
    StateError
        When it is absent, of another kind (a symbolic link, say), of another owner, or open to others; a directory,
        when its owner cannot enter it.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise cannot("look at", path, error) from error
    noun, mode = ("directory", "700") if kind == stat.S_IFDIR else ("file", "600")
    if stat.S_ISLNK(found.st_mode):
        raise StateError(f"{path} is a symbolic link: name the {noun} itself, {path.resolve()}")
    if stat.S_IFMT(found.st_mode) != kind:
        raise StateError(f"{path} is no {noun}: move it away, or choose another place")
    if found.st_uid != os.geteuid():
        raise StateError(f"{path} belongs to user {found.st_uid}, not to you: choose a {noun} of your own")
    if found.st_mode & 0o077:
        raise StateError(
            f"{path} is open to other users (mode {stat.S_IMODE(found.st_mode):o}): run chmod {mode} {path}"
        )
    if kind == stat.S_IFDIR and not found.st_mode & stat.S_IXUSR:
        raise StateError(
            f"{path} is closed to yourself, too (mode {stat.S_IMODE(found.st_mode):03o}): run chmod {mode} {path}"
        )
    return path


def write_private(path: Path, data: bytes, *, tail: bytes = b"", durable: bool = False) -> None:
    """Write a file that only its owner can read, whole or not at all: readers see the old contents or the new.

    Parameters
    ----------
    tail
        What stands behind `data`, which may be too large to be copied.
    durable
        Return only once the file would survive a power failure.

    Raises
    ------
    StateError
        When it cannot be written (full disk, read-only directory); what was there before is still there.
    """
    with written_private(path, durable=durable) as write:
        write(data)
        write(tail)


@contextmanager
def written_private(path: Path, *, durable: bool = False) -> Iterator[Callable[[Buffer], None]]:
    """As `write_private`, of what is written meanwhile, piece by piece; nothing, when the block raises."""
    draft = path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                yield partial(_write_all, file.fileno())
                if durable:
                    os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if durable:
            sync(path.parent)
    except OSError as error:
        raise cannot("write", path, error) from error


def write_once(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, as durably as can be, unless it is there: the first of several wins.

    Raises
    ------
    StateError
        As `write_private`.
    """
    draft = path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.once")
    write_private(draft, data, durable=True)
    try:
        os.link(draft, path)
        sync(path.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise cannot("write", path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _write_all(descriptor: int, data: Buffer) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def locked(descriptor: int) -> bool:
    """Lock a file for all that share this open file; False where it is locked through another one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync(path: str | Path) -> None:
    """Have a file, or the names in a directory, survive a power failure; not where reading it is not permitted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: str | Path) -> None:
    """The same for a file, or a directory and all that is in it; links and devices are passed over."""
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        for entry in os.scandir(path):
            sync_tree(entry.path)
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
        sync(path)


def cannot(what: str, path: Path, error: OSError) -> StateError:
    """The error to raise when the operating system refused to `what` (a verb) `path`."""
    return StateError(
        f"cannot {what} {path}: {cause(error)}. Check the disk's free space, the quota and the "
        "permissions, or set ASA_STATE_DIR to a directory that can be written"
    )
