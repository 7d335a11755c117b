"""Compiled functions: numba's, cached on disk, and compiled anew when any compiled code of ASA has changed.

numba looks at the file of a cached function only; one that calls functions of other files would go on with what they
used to be. So each version of the sources has a cache directory of its own.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY

try:
    import numba
    from numba import njit
except ModuleNotFoundError as error:
    raise InvalidInput("simulated queues and the laboratory need numba: pip install 'asa-hpc[lab]'") from error

_Function = TypeVar("_Function", bound=Callable[..., object])
_CONFIG: Any = numba.config
_LAB = Path(__file__).parent.parent
_PACKAGES = ("core", "placement", "dispatchers", "simulator")
_PREFIX = "asa-numba-"


def inner(function: _Function) -> _Function:
    """Compile a function that only compiled ones call, and that makes no arrays: it becomes part of them.

    It counts no references to the arrays that it is given, for its callers hold them: the tables of the simulator are
    twenty, and counting them at every call took half of the time. One that makes an array does not compile.
    """
    return _inner(function, counts=False)


def inner_allocating(function: _Function) -> _Function:
    """As `inner`, for a function that makes arrays."""
    return _inner(function, counts=True)


def _inner(function: _Function, *, counts: bool) -> _Function:
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": counts}
    found: _Function = njit(**options)(function)
    return found


def compiled(function: _Function) -> _Function:
    """Compile a function that Python calls, when it first does; the packages in `_PACKAGES` may call one another's."""
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(cache_directory())
    try:
        return compiled_alone(function)
    finally:
        _CONFIG.CACHE_DIR = before


def compiled_alone(function: _Function) -> _Function:
    """As `compiled`, for a function that calls no compiled ones of other files: no other file is read for it."""
    options: dict[str, Any] = {"cache": True, "_nrt": True}
    found: _Function = njit(**options)(function)
    return found


@functools.cache
def cache_directory() -> Path:
    """Where compiled code is kept: in NUMBA_CACHE_DIR, beside the sources, or in the user's cache; by version.

    Folders of other versions that were made more than a week ago are deleted.
    """
    root = Path(_CONFIG.CACHE_DIR) if _CONFIG.CACHE_DIR else _LAB / "__pycache__"
    if not _CONFIG.CACHE_DIR and not os.access(root if root.exists() else _LAB, os.W_OK):
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asa-hpc"
    found = root / f"{_PREFIX}{fingerprint(_LAB)}"
    if not found.exists():
        for other in root.glob(f"{_PREFIX}*"):
            if time.time() - other.stat().st_mtime > 7 * DAY:
                shutil.rmtree(other, ignore_errors=True)
    return found


def fingerprint(root: Path) -> str:
    """Digest of all code that a compiled function may contain: compiled modules, and those with their tables."""
    found = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_bytes()
            if b"asa.lab.core.compiled" in source or b"np.dtype(" in source:
                found.update(source)
    return found.hexdigest()[:16]


# -- Sorting; numba's own argsort takes seconds to compile ------------------------------------------------------------


@inner_allocating
def ranking(keys: Floats) -> Ints:
    """Places of the keys in rising order, equal ones as they stand; shape (n,). Merges ever longer runs."""
    count = len(keys)
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(count):
        order[k] = k
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right = begin, middle
            for k in range(begin, end):
                if left < middle and (right == end or keys[order[left]] <= keys[order[right]]):
                    other[k] = order[left]
                    left += 1
                else:
                    other[k] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@inner_allocating
def picked(values: Ints, places: Ints) -> Ints:
    """The values at these places; shape (k,)."""
    found = np.empty(len(places), np.int64)
    for k in range(len(places)):
        found[k] = values[places[k]]
    return found
