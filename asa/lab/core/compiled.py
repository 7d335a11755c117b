"""Compiled functions: numba's, cached on disk, and compiled anew when any compiled code of ASA has changed.

numba looks at the file of a cached function only; one that calls functions of other files would go on with what they
used to be.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from asa.core.errors import InvalidInput

try:
    from numba import njit
except ModuleNotFoundError as error:
    raise InvalidInput("simulated queues and the laboratory need numba: pip install 'asa-hpc[lab]'") from error

_Function = TypeVar("_Function", bound=Callable[..., object])
_PACKAGES = ("core", "placement", "dispatchers", "simulator")


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
    dispatcher: Any = compiled_alone(function)
    file = dispatcher._cache._cache_file  # numba has no public way to say on what else a function depends
    file._source_stamp = (file._source_stamp, _stamp())
    found: _Function = dispatcher
    return found


def compiled_alone(function: _Function) -> _Function:
    """As `compiled`, for a function that calls no compiled ones of other files: no other file is read for it."""
    options: dict[str, Any] = {"cache": True, "_nrt": True}
    found: _Function = njit(**options)(function)
    return found


@functools.cache
def _stamp() -> str:
    """Fingerprint of all code that a compiled function may contain: compiled modules, and those with their tables."""
    root = Path(__file__).parent.parent
    found = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_bytes()
            if b"asa.lab.core.compiled" in source or b"np.dtype(" in source:
                found.update(source)
    return found.hexdigest()
