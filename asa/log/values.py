"""Values of a run, pickled: short ones in memory, long ones in private files.

Unpickling runs code: what is loaded comes from the run's own directory, or from a peer that has proved who it is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import re
import struct
from binascii import crc32
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PosixPath
from typing import Any, BinaryIO

from asa.core.errors import InvalidInput, StateError, cause
from asa.core.task import Input, Value, substitute
from asa.security.files import Buffer, write_private, written_private

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
    if isinstance(value, bytes):
        return pickle.loads(value)
    with _opened(value) as file:
        try:
            return pickle.load(file)
        except (EOFError, pickle.UnpicklingError) as error:
            raise StateError(f"{value} cannot be read, it is damaged or was cut off: {error}") from error


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


def fill(arguments: Any, inputs: Sequence[Value]) -> Any:
    """`arguments` with every `Input` in them replaced by what it means.

    An input that stands in several places is loaded once: they share one object, as they did where it was made.

    >>> fill(([Input(0)], {"all": Input(0, 2)}), (dump(7), dump(8)))
    ([7], {'all': [7, 8]})
    """

    @functools.cache
    def value_of(position: int) -> Any:
        return load(inputs[position])

    def place(item: Input) -> Any:
        if item.count is None:
            return value_of(item.first)
        return [value_of(position) for position in range(item.first, item.first + item.count)]

    return substitute(arguments, Input, place)


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
        _result_pickler()(sink, 5).dump(result)
        return sink.end()


@functools.cache
def _result_pickler() -> type[pickle.Pickler]:
    import cloudpickle  # as in `dump`

    class ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is not typed
        """Refuses what says of itself why it is no result."""

        def reducer_override(self, value: Any) -> Any:
            if (why := getattr(type(value), "__no_result__", None)) is not None:
                raise InvalidInput(why(value))
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
