"""Files that tasks are given and return, and how what they write gets its name: at once, when it is whole.

What is being written is in a directory of its own beside its place, ``.asa-unfinished/NAME.HEX``, on the same file
system. Put in place means: written to the disk, then renamed. So a task that is killed leaves nothing under the names
of its outputs, and the next attempt removes what it has left.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from asa.core.errors import CommandFailed, InvalidInput, cause
from asa.security.files import sync, sync_tree

UNFINISHED = ".asa-unfinished"
"""Directory beside outputs, with what is being written."""
HASH = "sha256"
"""What ``hash=True`` is short for."""

_HEX = re.compile(r"[0-9a-f]{16}")
_LABEL_MOST, _TRIES = 200, 100


class Draft:
    """Where something is written before it is put in place.

    Parameters
    ----------
    parent
        The directory that it is to be in; made when missing.
    name
        What it is called there; "" for whatever is going to be in the draft.
    label
        What drafts of the same are known by, default `name`: those that earlier attempts have left are removed.

    Raises
    ------
    CommandFailed
        When there can be none.
    """

    def __init__(self, parent: Path, name: str, label: str = "") -> None:
        self.parent, self.name = parent, name
        label = (label or name).replace("/", "-")[:_LABEL_MOST]
        self._folder = parent / UNFINISHED / f"{label}.{secrets.token_hex(8)}"
        try:
            for left in _entries(parent / UNFINISHED):
                if left.startswith(f"{label}.") and _HEX.fullmatch(left, len(label) + 1):
                    _remove(parent / UNFINISHED / left)
            for _ in range(_TRIES):  # another task may remove the directory, when it has put its own output in place
                with suppress(FileNotFoundError):
                    os.makedirs(parent / UNFINISHED, exist_ok=True)
                    os.mkdir(self._folder)
                    break
            else:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._folder))
        except OSError as error:
            raise _cannot("make a directory for", parent / name, error) from error

    @property
    def path(self) -> Path:
        """Where to write."""
        return self._folder / self.name

    def exists(self) -> bool:
        """Whether there is a place to write yet: not when another attempt at the same has begun since."""
        return self._folder.is_dir()

    def place(self) -> None:
        """Put in place what was written: what has the draft's name last, and a directory of that name as a whole.

        Whatever else was written beside it comes along; directories that are there already are filled.

        Raises
        ------
        CommandFailed
            When it cannot be; then what had that name has it still.
        """
        try:
            for entry in _entries(self._folder):
                sync_tree(self._folder / entry)
            for entry in sorted(_entries(self._folder), key=lambda each: each == self.name):
                if entry == self.name:
                    self._swap()
                else:
                    _merge(self._folder / entry, self.parent / entry)
            sync(self.parent)
        except OSError as error:
            raise _cannot("put in place", self.parent / self.name, error) from error
        self.drop()

    def _swap(self) -> None:
        source, target = self._folder / self.name, self.parent / self.name
        if not _is_folder(source):
            os.replace(source, target)
            return
        before = self._folder.with_name(f"{self._folder.name[:-16]}{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            os.rename(target, before)
        try:
            os.rename(source, target)
        except OSError:
            with suppress(FileNotFoundError):
                os.rename(before, target)
            raise
        _remove(before)

    def drop(self) -> None:
        """Remove it, with what is in it."""
        _remove(self._folder)
        with suppress(OSError):
            os.rmdir(self._folder.parent)


def placeable(path: Path) -> bool:
    """Whether what is written there may be renamed into its place: no device, and nothing of that kind."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return bool(path.name)
    return bool(path.name) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _cannot(what: str, path: Path, error: OSError) -> CommandFailed:
    return CommandFailed(f"cannot {what} {path}: {cause(error)}: {error.filename}; is another task writing it, too?")


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _merge(source: Path, target: Path) -> None:
    """Rename, and where there is such a directory already, each thing that is in it."""
    if _is_folder(source) and target.is_dir():
        for entry in _entries(source):
            _merge(source / entry, target / entry)
        sync(target)
    else:
        os.replace(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


class File:
    """A file, or directory, on a file system that the nodes see. It is moved nowhere.

    In a stage's arguments it is looked at before the stage is called: it must be there, have this size, and this hash.
    In what a stage returns it must be there, too, and gets the size that it has; its path becomes absolute.

    Parameters
    ----------
    path
        Where it is.
    size
        The size that it must have [bytes], or None.
    hash
        The hash that it must have, such as ``"sha256:9f86d0..."`` or ``"md5:..."``; or True, or the name of an
        algorithm, for the hash that it has now or, where a task returns it, has then. Taking it reads the whole file.

    Raises
    ------
    InvalidInput
        When there is no such algorithm, or the file cannot be read for its hash.

    Examples
    --------
    >>> File("reads.fq", size=1200).stem
    'reads'
    """

    __slots__ = ("__weakref__", "_algorithm", "_draft", "_drop", "_given", "_hash", "_path", "_size")

    def __init__(self, path: str | os.PathLike[str], *, size: int | None = None, hash: bool | str = False) -> None:
        self._given = os.fspath(path)
        self._path, self._size, self._hash, self._algorithm = Path(path), size, "", ""
        self._draft: Draft | None = None
        self._drop: Callable[[], Any] = bool
        if hash:
            self._algorithm, _, digest = (HASH if hash is True else hash).partition(":")
            if self._algorithm not in hashlib.algorithms_available or "shake" in self._algorithm:
                raise InvalidInput(f"hash={hash!r} of {path}: expected True, or such as 'sha256' or 'sha256:9f86...'")
            if digest:
                self._hash, self._algorithm = f"{self._algorithm}:{digest.lower()}", ""
            elif self._path.exists():
                self._hash = _digest(self._path, self._algorithm)

    @classmethod
    def new(cls, path: str | os.PathLike[str], *, hash: bool | str = False) -> Self:
        """A file, or directory, that a task is about to write; it gets its name when the task returns it.

        Until then `path` is a path of the same name in a directory of its own, which goes when the task fails, or does
        not return it.

        Parameters
        ----------
        path
            Where it is to be. A file of that name is replaced, and so is a directory as a whole.
        hash
            As for `File`.

        Raises
        ------
        CommandFailed
            When nothing can be written there.
        """
        made = cls(os.path.abspath(path))
        made._algorithm = cls(os.devnull, hash=hash)._algorithm if hash else ""
        made._draft = draft = Draft(made._path.parent, made._path.name)
        made._drop = weakref.finalize(made, _drop, draft, os.getpid())
        return made

    @property
    def path(self) -> Path:
        """Where it is, or is being written."""
        return self._draft.path if self._draft else self._path

    @property
    def template(self) -> str:
        """The path as it was given, for outputs that are formatted."""
        return self._given

    @property
    def algorithm(self) -> str:
        """What its hash is taken by, where it is to be taken, or ""."""
        return self._algorithm

    @property
    def size(self) -> int | None:
        """The size that it must have [bytes], or None; none of a directory."""
        return self._size

    @property
    def hash(self) -> str:
        """The hash that it must have, behind the name of its algorithm, or ""."""
        return self._hash

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def suffix(self) -> str:
        return self.path.suffix

    @property
    def parent(self) -> Path:
        return self.path.parent

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __format__(self, spec: str) -> str:
        return format(str(self.path), spec)

    def __repr__(self) -> str:
        return f"File({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _file, (str(self.path), self._size, self._hash)

    def check(self, within: str = "") -> None:
        """Make sure that it is there and is what it should be.

        Parameters
        ----------
        within
            The directory that relative paths begin in, default the current one.

        Raises
        ------
        InvalidInput
            When it is not.
        """
        path = Path(within, self.path)
        found = _size(path)
        if self._size is not None and found != self._size:
            have = "is a directory" if found is None else f"has {found} bytes"
            raise InvalidInput(f"file {path} {have}, and should have {self._size}: something else has written it")
        if self._hash and (hash_ := _digest(path, self._hash.partition(":")[0])) != self._hash:
            raise InvalidInput(f"file {path} has the hash {hash_}, and should have {self._hash}: it has changed")

    def __returned__(self) -> tuple[File, Draft | None]:
        """What stands for it in a result: where it is going to be, with its size and hash as they are; its draft.

        Raises
        ------
        InvalidInput
            When it is not there, or has another size than it should have.
        """
        path = self.path
        file = File(os.path.abspath(self._path), size=_size(path))
        if self._size not in (None, file._size):
            self.check()
        file._hash = _digest(path, self._algorithm) if self._algorithm else self._hash
        return file, self._draft

    def placed(self) -> None:
        """Its draft is in place."""
        self._drop()
        self._draft = None


def _file(path: str, size: int | None, hash: str) -> File:
    return File(path, size=size, hash=hash)


def _drop(draft: Draft, process: int) -> None:
    if os.getpid() == process:  # a child of the one that writes it has the object, too
        draft.drop()


def _size(path: Path) -> int | None:
    """The size [bytes], None of a directory. It is opened, so that a network file system asks its server for it."""
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:  # what another node has just made may be known only once the directory is read anew
            os.listdir(path.parent)
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        within = "" if path.is_absolute() else f", in {os.getcwd()}"
        raise InvalidInput(f"file {path} cannot be read: {cause(error)}{within}") from None
    return None if stat.S_ISDIR(found.st_mode) else found.st_size


def _digest(path: Path, algorithm: str) -> str:
    try:
        with open(path, "rb") as content:
            return f"{algorithm}:{hashlib.file_digest(content, algorithm).hexdigest()}"
    except OSError as error:
        raise InvalidInput(f"file {path} cannot be read for its hash: {cause(error)}") from None
