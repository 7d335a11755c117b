"""Values of a run, pickled: short ones in memory, long ones in private files; `Ref` is one that is not opened yet.

Unpickling runs code: what is loaded comes from the run's own directory, or from a peer that has proved who it is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import mmap
import os
import pickle
import re
import struct
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PosixPath
from typing import Any, BinaryIO

from asa.core.errors import InvalidInput, StateError, cause
from asa.core.task import Input, Value, substitute
from asa.security.files import Buffer, cannot, write_private, written_private

INLINE_MOST = 64 * 1024
"""Pickled values up to this size [bytes] travel in messages; longer ones are files."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, PosixPath, Input})
_LONG = frozenset({bytes, str})
_SMALL = 50


def dump(value: Any, pickler: type[pickle.Pickler] | None = None) -> bytes:
    """`value`, pickled; functions and classes of the user's own file by value.

    Parameters
    ----------
    pickler
        Of cloudpickle's kind, to use instead of it.
    """
    if _is_plain(value):
        return pickle.dumps(value, 5)
    import cloudpickle  # here: a worker starts sooner without what it may not need

    with io.BytesIO() as file:
        (pickler or cloudpickle.Pickler)(file, 5).dump(value)
        return file.getvalue()


def _is_plain(value: Any) -> bool:
    """Whether the plain pickle does, which is faster: for larger structures, finding out would take longer."""
    kind = type(value)
    if kind in _PLAIN:
        return kind not in _LONG or len(value) <= INLINE_MOST
    if kind in (tuple, list, set, dict) and len(value) < _SMALL:
        return all(map(_is_plain, value)) and (kind is not dict or all(map(_is_plain, value.values())))
    return False


_SEAL, _MARK = struct.Struct("!8sI"), b"\nASA crc"
_CHUNK = 1 << 20


def write_value(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a pickled value into a private file, with a checksum behind it, where no pickle is read any more.

    Raises
    ------
    StateError
        When it cannot be written.
    """
    write_private(path, data, tail=_SEAL.pack(_MARK, crc32(data)), durable=durable)


def sealed(data: bytes) -> bytes:
    """A pickled value with its checksum behind it, as `write_value` writes it."""
    return data + _SEAL.pack(_MARK, crc32(data))


def load(value: Value) -> Any:
    """The object that was pickled.

    Raises
    ------
    StateError
        When it is in a file that is damaged, or gone.
    """
    return _loaded(value)[0]


def _loaded(value: Value) -> tuple[Any, bool]:
    """As `load`; and whether a `Ref`, or an `asa.log.files.File`, may be in it."""
    if isinstance(value, bytes):
        return pickle.loads(value), _OURS in value
    with _opened(value) as file:
        unpickler = _ValueUnpickler(file)
        try:
            return unpickler.load(), unpickler.ours
        except (EOFError, pickle.UnpicklingError) as error:
            raise StateError(f"{value} cannot be read, it is damaged or was cut off: {error}") from error


class _ValueUnpickler(pickle.Unpickler):
    """Notes whether something of ours is among what it loads: a large file is not read for that once more."""

    ours = False

    def find_class(self, module: str, name: str) -> Any:
        self.ours |= module.startswith(_OURS.decode())
        return super().find_class(module, name)


class Ref:
    """What a task returned, or is to return, where it is: a file of its run, above 64 KiB, which is opened on demand.

    Stages get the values themselves, unless they say ``refs=True``. Valid while the run exists.

    Parameters
    ----------
    value
        What a task returns: it becomes a file of its own, so that a stage that gets the result need not read all of it.

    Examples
    --------
    >>> Ref([1, 2]).load()
    [1, 2]
    """

    __slots__ = ("_stored", "_value")

    def __init__(self, value: Any) -> None:
        self._value: Any = value
        self._stored: Value | None = None

    @classmethod
    def to(cls, stored: Value) -> Ref:
        """For a value that is stored already."""
        made = cls(None)
        made._stored = stored
        return made

    @property
    def stored(self) -> Value | None:
        """The pickled value, or its file; None of one that no task has returned yet."""
        return self._stored

    @property
    def size(self) -> int:
        """What it takes, pickled [bytes]; 0 when it is not stored yet."""
        if self._stored is None or isinstance(self._stored, bytes):
            return len(self._stored or b"")
        try:
            return os.path.getsize(self._stored) - _SEAL.size
        except OSError as error:
            raise StateError(f"{self._stored} cannot be read: {cause(error)}") from error

    def load(self) -> Any:
        """The value, read anew each time.

        Raises
        ------
        StateError
            When its file is damaged, or gone with its run.
        """
        try:
            return self._value if self._stored is None else load(self._stored)
        except StateError as error:
            found = _ELSEWHERE.fullmatch(os.fsencode(self._stored)) if isinstance(self._stored, str) else None
            if found is None:
                raise
            raise StateError(
                f"{error}. A task of run {found[1].decode()} has returned it: asa resume {found[1].decode()} runs that "
                "again; a run that was given it gets the new one when it is run anew"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (Ref, (self._value,)) if self._stored is None else (Ref.to, (self._stored,))

    def __repr__(self) -> str:
        what = repr(self._value) if self._stored is None else repr(self._stored)
        return f"<Ref {what if len(what) <= _SHOWN_MOST else what[:_SHOWN_MOST] + '...'}>"


_SHOWN_MOST = 100
_OURS = b"asa.log."
"""In pickles that hold a `Ref` or an `asa.log.files.File`."""
_ELSEWHERE = re.compile(rb"/[^\x00-\x1f\x8c\x94]{0,4096}?/runs/([A-Za-z0-9][A-Za-z0-9._-]{0,99})/values/[\w.-]+\.pkl")


@contextlib.contextmanager
def _bytes_of(value: Value) -> Iterator[bytes | mmap.mmap]:
    if isinstance(value, bytes):
        yield value
        return
    with open(value, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def refs_in(value: Value) -> dict[str, str]:
    """Files of runs that a pickled value may refer to, and the names of these runs."""
    with _bytes_of(value) as content:
        if content.find(_OURS) < 0:
            return {}
        return {os.fsdecode(found[0]): found[1].decode() for found in _ELSEWHERE.finditer(content)}


def note_refs(values: str | Path, value: Value) -> dict[str, str]:
    """Note in a run, whose directory of values this is, to which others a pickled value refers; as `refs_in`.

    Raises
    ------
    StateError
        When it cannot be noted.
    """
    run, found = Path(values).parent, refs_in(value)
    try:
        for name in {*found.values()} - {run.name}:
            (run / REFERS).mkdir(0o700, exist_ok=True)
            (run / REFERS / name).touch(0o600)
    except OSError as error:
        raise cannot("write", run / REFERS, error) from error
    return found


REFERS = "refers"
"""Directory of a run with a file for each run, by its name, that something in it refers to."""


def load_all(values: Iterable[Value]) -> list[Any]:
    """As `load` for each."""
    loads = pickle.loads
    return [loads(value) if isinstance(value, bytes) else load(value) for value in values]


def check_file(path: str) -> None:
    """Make sure that a file is as `write_value` wrote it.

    Raises
    ------
    StateError
        When it is damaged, or gone.
    """
    _opened(path, whole=True).close()


def check_value(value: Value, sound: set[str]) -> None:
    """Make sure that a result can be read, with all that a `Ref` in it stands for; files that are `sound` are not read
    again, and more of them are found.

    Raises
    ------
    StateError
        When a file is damaged, or gone.
    """
    if isinstance(value, str):
        if value in sound:
            return
        check_file(value)
        sound.add(value)
    for path in refs_in(value):
        check_value(path, sound)


def _opened(path: str, *, whole: bool = False) -> BinaryIO:
    """The file, open at its beginning, once its checksum is found to be right; as `whole` it must have one."""
    with contextlib.ExitStack() as held:
        try:
            file = held.enter_context(open(path, "rb"))
            _check(file, whole)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {cause(error)}") from error
        held.pop_all()
        return file


def _check(file: BinaryIO, whole: bool) -> None:
    """Raise when the file has a checksum, which is wrong, or has none though it is to be `whole`."""
    size = max(0, file.seek(0, os.SEEK_END) - _SEAL.size)
    file.seek(size)
    tail = file.read()
    file.seek(0)
    if len(tail) != _SEAL.size or not tail.startswith(_MARK):  # as earlier versions have written it, or cut off
        if whole:
            raise StateError(f"{file.name} is damaged: its end, with the checksum, is missing")
        return
    found, left = 0, size
    while left and (chunk := file.read(min(left, _CHUNK))):
        found, left = crc32(chunk, found), left - len(chunk)
    if _SEAL.pack(_MARK, found) != tail:
        raise StateError(f"{file.name} is damaged: its checksum does not match what it holds")
    file.seek(0)


def fill(arguments: Any, inputs: Sequence[Value], refs: bool = False) -> Any:
    """`arguments` with every `Input` in them replaced by what it means, or by a `Ref` to that.

    An input that stands in several places is loaded once: they share one object, as they did where it was made. Files
    in it are looked at.

    >>> fill(([Input(0)], {"all": Input(0, 2)}), (dump(7), dump(8)))
    ([7], {'all': [7, 8]})
    """

    @functools.cache
    def value_of(position: int) -> Any:
        return Ref.to(inputs[position]) if refs else _opened_whole(inputs[position], refs)

    def place(item: Input) -> Any:
        if item.count is None:
            return value_of(item.first)
        return [value_of(position) for position in range(item.first, item.first + item.count)]

    return substitute(arguments, Input, place)


def call_with(stored: Value) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Arguments and keyword arguments of a task, in which `Input`s stand yet; whether it is to get `Ref`s.

    Raises
    ------
    InvalidInput
        When a file among them is not as it should be.
    """
    found, ours = _loaded(stored)
    refs = len(found) > 2
    args, kwargs = _opened_values(found[:2], refs) if ours else found[:2]
    return args, kwargs, refs


def _opened_whole(stored: Value, refs: bool) -> Any:
    value, ours = _loaded(stored)
    return _opened_values(value, refs) if ours else value


def _opened_values(value: Any, refs: bool) -> Any:
    """A value with what each `Ref` in it stands for, unless that is to stay; each `File` in it is looked at."""
    from asa.log.files import File  # here: few have one, and a worker starts sooner without it

    def look(file: File) -> File:
        file.check()
        return file

    found = value if refs else substitute(value, Ref, lambda ref: _opened_values(ref.load(), refs))
    return substitute(found, File, look)


def keep(result: Any, directory: str | Path, stage: str, index: int) -> Value:
    """A task's result, pickled: when that is short, as it is, else in a file of this directory, safely on disk.

    It is written as it is pickled: there is never a second copy of what is large.

    Raises
    ------
    InvalidInput
        When there is something in it that cannot be a result, a call of a stage.
    """
    if _is_plain(result) and len(data := pickle.dumps(result, 5)) <= INLINE_MOST:
        return data
    with contextlib.ExitStack() as held:
        sink = _Sink(held, directory, stage, index)
        pickler = _result_pickler()(sink, 5)
        pickler.part = lambda part: keep(part, directory, stage, index)
        pickler.dump(result)
        for file, draft in pickler.drafts:
            draft.place()
            file.placed()
        value = sink.end()
    if pickler.refers:
        note_refs(directory, value)
    return value


@functools.cache
def _result_pickler() -> Any:
    import cloudpickle  # as in `dump`

    class ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is not typed
        """Refuses what says of itself why it is no result; collects the files that are to be put in place."""

        part: Callable[[Any], Value]

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.drafts: list[Any] = []
            self.refers = False

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if (why := getattr(kind, "__no_result__", None)) is not None:
                raise InvalidInput(why(value))
            if kind is Ref:
                if value.stored is None:
                    value._stored = self.part(value.load())
                self.refers = True
            elif (returned := getattr(kind, "__returned__", None)) is not None:
                file, draft = returned(value)
                self.drafts += [(value, draft)] if draft else []
                return file.__reduce__()
            return super().reducer_override(value)

    return ResultPickler


class _Sink:
    """Takes a pickle: in memory while that is short, then in a file, which stays when `held` is closed."""

    def __init__(self, held: contextlib.ExitStack, directory: str | Path, stage: str, index: int) -> None:
        self._held = held
        safe = re.sub(r"[^\w.-]", "_", stage, flags=re.ASCII)[:100]
        self._path = Path(directory) / f"{safe}-{index}-{os.urandom(8).hex()}.pkl"
        self._short, self._crc = bytearray(), 0
        self._write: Callable[[Buffer], None] | None = None

    def write(self, data: Buffer) -> None:
        if self._write is None:
            if len(self._short) + memoryview(data).nbytes <= INLINE_MOST:
                self._short += data
                return
            self._write = self._held.enter_context(written_private(self._path, durable=True))
            self.write(self._short)
        self._crc = crc32(data, self._crc)
        self._write(data)

    def end(self) -> Value:
        """What was pickled."""
        if self._write is None:
            return bytes(self._short)
        self._write(_SEAL.pack(_MARK, self._crc))
        return str(self._path)
