"""Sandboxes: made for containers, and read by people. Nothing outside them is ever opened, whatever links they hold."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from asa.core.errors import StateError
from asa.security.files import private_directory
from asa.web.errors import HTTPError
from executors.mesos.agent.effects import File
from executors.mesos.codec import Message
from executors.mesos.messages import nanoseconds

PIECE_MOST = 1 << 20
"""Most bytes that one answer has of a file."""
ENTRIES_MOST = 10_000
"""Most entries of a directory that are listed."""


def make(path: Path, files: Sequence[File]) -> None:
    """Make a sandbox, mode 0700, and copy files and directories into it.

    Raises
    ------
    StateError
        When that cannot be done; the text says why.
    """
    private_directory(path)
    for file in files:
        target = path / file.name
        try:
            if os.path.isdir(file.source):
                shutil.copytree(file.source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copyfile(file.source, target)
                shutil.copymode(file.source, target)
                if file.executable:
                    target.chmod(target.stat().st_mode | stat.S_IXUSR)
        except (OSError, shutil.Error) as error:
            raise StateError(f"cannot copy {file.source} into the sandbox: {error}") from error


class Piece(NamedTuple):
    """Part of a file.

    Parameters
    ----------
    offset
        Where it begins [bytes].
    data
        What is there.
    size
        How long the whole file is [bytes].
    """

    offset: int
    data: bytes
    size: int


def read(root: Path, path: str, offset: int | None, length: int | None) -> Piece:
    """Part of a regular file below `root`.

    Parameters
    ----------
    path
        Absolute, or from `root` on.
    offset
        Where to begin [bytes]; None for the end, where nothing is read.
    length
        How much [bytes]; None for as much as one answer holds.

    Raises
    ------
    HTTPError
        404 when there is none, 403 when it cannot be opened or lies behind a symbolic link.
    """
    with _opened(root, path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise HTTPError(404, f"{path[:200]!r} is no file")
        at = found.st_size if offset is None else offset
        wanted = PIECE_MOST if length is None else min(length, PIECE_MOST)
        data = b"" if offset is None else os.pread(descriptor, wanted, at)
        return Piece(at, data, found.st_size)


def entries(root: Path, path: str) -> list[Message]:
    """What is in a directory below `root`, as Mesos' FileInfos; raises as `read` does."""
    below = _parts(root, path)
    with _opened(root, path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        names = sorted(os.listdir(descriptor))[:ENTRIES_MOST]
        return [_info(str(root.joinpath(*below, name)), descriptor, name) for name in names]


def _info(path: str, descriptor: int, name: str) -> Message:
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:  # removed meanwhile
        return {"path": path}
    return {
        "path": path,
        "nlink": found.st_nlink,
        "size": found.st_size,
        "mtime": nanoseconds(found.st_mtime),
        "mode": found.st_mode,
        "uid": str(found.st_uid),
        "gid": str(found.st_gid),
    }


def _parts(root: Path, path: str) -> tuple[str, ...]:
    if "\0" in path:
        raise HTTPError(400, "expected a path without zero bytes")
    asked = PurePosixPath(path)
    if asked.is_absolute():
        if not asked.is_relative_to(root):
            raise HTTPError(403, f"only sandboxes are shown: expected a path below {root}")
        asked = asked.relative_to(root)
    if ".." in asked.parts:
        raise HTTPError(403, "expected a path without '..'")
    return asked.parts


@contextlib.contextmanager
def _opened(root: Path, path: str, flags: int) -> Iterator[int]:
    """A descriptor, reached step by step, so that no link on the way is followed even if it was made just now."""
    parts = _parts(root, path)
    descriptor = -1
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for number, part in enumerate(parts, 1):
            step = flags if number == len(parts) else os.O_RDONLY | os.O_DIRECTORY
            inner = os.open(part, step | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    except FileNotFoundError:
        raise HTTPError(404, f"there is no {path[:200]!r} below {root}") from None
    except OSError as error:
        raise HTTPError(403, f"{path[:200]!r} cannot be shown: {error.strerror}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
