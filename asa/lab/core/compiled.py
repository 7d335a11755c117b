"""Compiled functions: numba's, kept on disk, and compiled anew when any compiled code of ASA has changed.

numba looks at the file of a cached function only; one that calls functions of other files would go on with what they
used to be. So each version of the sources has a folder of its own, in which each function, with each kind of arguments,
is a file. There are two such folders: what this machine has compiled for its own processor, and what a wheel may bring
(`make wheel`): the same, for any processor of its architecture. What stands in neither is compiled, and said so.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
import sys
import threading
import time
import zlib
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
    from numba.core.caching import NullCache
    from numba.core.compiler import CompileResult
except ModuleNotFoundError as error:
    raise InvalidInput("simulated queues and the laboratory need numba: pip install 'asa-hpc[lab]'") from error

_Function = TypeVar("_Function", bound=Callable[..., object])
_CONFIG: Any = numba.config
_LAB = Path(__file__).parent.parent
_PACKAGES = ("core", "placement", "dispatchers", "simulator")
_PREFIX = "asa-numba-"
_SHIPPED = _LAB / "ahead"
_REBUILD: Any = CompileResult._rebuild  # numba's, without types
_DUMPS: Any = numba.core.serialize.dumps
_WITHOUT_CONSTANT: Any = numba.types.unliteral
PORTABLE = "generic"
"""The processor that a wheel's code is for, as NUMBA_CPU_NAME has it: any of the architecture."""


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
    made: Any = njit(**options)(function)
    found: _Function = _once(made)
    return found


def compiled(function: _Function) -> _Function:
    """Compile a function that Python calls, when it first does; the packages in `_PACKAGES` may call one another's.

    Other threads run while it does (see `asa.lab.core.signals`).
    """
    options: dict[str, Any] = {"_nrt": True, "nogil": True}
    found: Any = _once(njit(**options)(function))
    found._cache = _Kept(function)  # numba's own way, `cache=True`, has no other place for it
    result: _Function = found
    return result


def _once(function: Any) -> Any:
    """Have a function compiled for types only: numba would compile it anew for each constant that it is called with."""
    of_types = function.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return of_types(
            tuple(map(_WITHOUT_CONSTANT, args)), {name: _WITHOUT_CONSTANT(kind) for name, kind in kws.items()}
        )

    function.get_call_template = get_call_template
    return function


# -- What has been compiled, on disk ----------------------------------------------------------------------------------

_CHECK = hashlib.sha256
_CHECK_BYTES = _CHECK().digest_size


class _Kept(NullCache):
    """Where a function's compiled code is kept: a file for each kind of arguments, with a checksum at its head."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @property
    def cache_path(self) -> str:
        return str(cache_directory())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        for path in self._paths(sig, target_context.codegen()):
            if (payload := _read(path)) is not None:
                return _REBUILD(target_context, *payload)
        _announcer().begin(self._function.__name__)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        _announcer().end()
        if any(not each.can_cache for each in cres.lifted) or cres.library.has_dynamic_globals:
            return  # it has the addresses of this very process
        _write(self._paths(sig, cres.codegen)[0], cres._reduce())

    def _paths(self, sig: Any, codegen: Any) -> tuple[Path, Path]:
        """The file of this machine's, and the wheel's."""
        triple, *processor = codegen.magic_tuple()
        code = self._function.__code__
        words = [numba.__version__, sys.implementation.cache_tag, triple, repr(sig), code.co_qualname]
        words += [str(code.co_firstlineno), _source(code.co_filename)]
        module = self._function.__module__.rpartition(".")[2]
        own, any_processor = (
            f"{module}.{self._function.__name__}.{_CHECK(repr((*words, *each)).encode()).hexdigest()[:24]}"
            for each in (processor, [PORTABLE])
        )
        own = any_processor if processor[0] == PORTABLE else own
        return cache_directory() / own, _SHIPPED / _version() / any_processor


def _read(path: Path) -> Any:
    """What a file has; None when it is not there, or is not what was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if _CHECK(data[_CHECK_BYTES:]).digest() != data[:_CHECK_BYTES]:
        return None
    return pickle.loads(zlib.decompress(data[_CHECK_BYTES:]))


def _write(path: Path, payload: Any) -> None:
    """Write a file, whole or not at all; where that cannot be, it is compiled again next time."""
    data = zlib.compress(_DUMPS(payload), 6)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_CHECK(data).digest() + data)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)


@functools.cache
def cache_directory() -> Path:
    """Where compiled code is kept: in NUMBA_CACHE_DIR, beside the sources, or in the user's cache; by version.

    Folders of other versions that were made more than a week ago are deleted.
    """
    root = Path(_CONFIG.CACHE_DIR) if _CONFIG.CACHE_DIR else _LAB / "__pycache__"
    if not _CONFIG.CACHE_DIR and not os.access(root if root.exists() else _LAB, os.W_OK):
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asa-hpc"
    found = root / f"{_PREFIX}{_version()}"
    if not found.exists():
        for other in root.glob(f"{_PREFIX}*"):
            if time.time() - other.stat().st_mtime > 7 * DAY:
                shutil.rmtree(other, ignore_errors=True)
    return found


@functools.cache
def _version() -> str:
    return fingerprint(_LAB)


@functools.cache
def _source(path: str) -> str:
    """Digest of the file that a function stands in, which may be none of `_PACKAGES`."""
    try:
        return _CHECK(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def fingerprint(root: Path) -> str:
    """Digest of all code that a compiled function may contain: compiled modules, and those with their tables."""
    found = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_bytes()
            if b"asa.lab.core.compiled" in source or b"np.dtype(" in source:
                found.update(source)
    return found.hexdigest()[:16]


class _Announcer:
    """Says on standard error what is compiled, when that takes more than a second, and how far it is."""

    first_s, again_s = 1.0, 5.0

    def __init__(self) -> None:
        self._begun = self._said = 0.0
        self._open, self._functions = 0, 0

    def begin(self, name: str) -> None:
        """A function is going to be compiled."""
        now = time.monotonic()
        if not self._functions:
            self._begun = self._said = now
            timer = threading.Timer(self.first_s, self._first)
            timer.daemon = True
            timer.start()
        elif now - self._said > self.again_s:
            self._said = now
            self._say(f"{self._functions} functions so far, {now - self._begun:.0f} s; {name} is next")
        self._open, self._functions = self._open + 1, self._functions + 1

    def end(self) -> None:
        """One has been."""
        self._open -= 1

    def _first(self) -> None:
        if self._open:
            self._say(f"for their first use, some ten to thirty processor seconds; kept in {cache_directory()}")

    def _say(self, words: str) -> None:
        print(f"asa: compiling the laboratory's loops: {words}", file=sys.stderr, flush=True)


@functools.cache
def _announcer() -> _Announcer:
    return _Announcer()


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
