"""Values of a run, pickled: short ones in memory, long ones in private files.

Unpickling runs code: what is loaded comes from the run's own directory, or from a peer that has proved who it is.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import re
from collections.abc import Sequence
from pathlib import Path, PosixPath
from typing import Any

from asa.core.task import Input, Value, substitute
from asa.security.files import write_private

INLINE_MOST = 64 * 1024
"""Pickled values up to this size [bytes] travel in messages; longer ones are files."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, PosixPath, Input})
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
        return True
    if kind in (tuple, list, set, dict) and len(value) < _SMALL:
        return all(map(_is_plain, value)) and (kind is not dict or all(map(_is_plain, value.values())))
    return False


def load(value: Value) -> Any:
    """The object that was pickled."""
    if isinstance(value, bytes):
        return pickle.loads(value)
    with open(value, "rb") as file:
        return pickle.load(file)


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


def keep(data: bytes, directory: str | Path, stage: str, index: int) -> Value:
    """A task's pickled result: as it is when it is short, else in a file of this directory, safely on disk."""
    if len(data) <= INLINE_MOST:
        return data
    safe = re.sub(r"[^\w.-]", "_", stage, flags=re.ASCII)[:100]
    path = Path(directory) / f"{safe}-{index}-{os.urandom(8).hex()}.pkl"
    write_private(path, data, durable=True)
    return str(path)
