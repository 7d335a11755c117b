"""What a value is, and a function with all that it reaches, as a number that is the same in every process.

Of the user's own functions count the instructions, names and constants, default arguments, closures, and, wherever they
are read, module-level values, helpers and classes of theirs. Lines, comments, docstrings and the place of the file do
not. What others have installed counts by its name.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import enum
import functools
import hashlib
import importlib.util
import logging
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import cloudpickle

from asa.core.errors import InvalidInput
from asa.log.values import Ref
from asa.workflows.stage import Stage, StageCommand

SIZE = 16
"""Of a digest [bytes]."""
SEARCHED_MOST = 1000
"""In containers with more elements than this, strings are not taken for the names of files."""

_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x100 | 0x200  # *args, **kwargs, generators and coroutines
_SILENT = frozenset({"RESUME", "NOP", "EXTENDED_ARG", "CACHE", "PRECALL"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_ABOUT_SOURCE = frozenset({"__doc__", "__firstlineno__"})
_OF_NO_CLASS = _ABOUT_SOURCE | {
    "__module__", "__dict__", "__weakref__", "__static_attributes__", "_abc_impl", "__qualname__", "__orig_bases__",
    "__annotations_cache__", "__parameters__",
}  # fmt: skip
_TOOLS = frozenset({"asa", "executors", "coscheduler", "cloudpickle"})
_BY_NAME = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType,
)  # fmt: skip
_SCALARS = frozenset({type(None), bool, float, complex, type(Ellipsis), type(NotImplemented), range, slice})
_STANDARD = tuple(os.path.realpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib"))

Add = Callable[[bytes], None]
_log = logging.getLogger(__name__)


def digest(*parts: bytes) -> bytes:
    """A number for a sequence of byte strings."""
    found = hashlib.blake2b(digest_size=SIZE)
    for part in parts:
        found.update(b"%d " % len(part) + part)
    return found.digest()


def plain(values: Sequence[Any]) -> bytes | None:
    """What stands for some short values in short; None where one of them is of another kind."""
    found = b""
    for value in values:
        kind = type(value)
        if kind is int:
            found += b"int %x " % value
        elif kind is str:
            data = value.encode("utf-8", "surrogatepass")
            found += b"str %d %b " % (len(data), data)
        elif kind is float or kind is bool or value is None:
            found += f"{kind.__name__} {value!r} ".encode()
        else:
            return None
    return found


class Stored(NamedTuple):
    """In a value: the place of one that is not at hand.

    Parameters
    ----------
    number
        What tells it from others.
    files
        Names of files that may be in it.
    """

    number: bytes
    files: tuple[str, ...] = ()


class Fingerprint:
    """Takes values in, one after another.

    Parameters
    ----------
    package
        A package that counts as the user's own although it is installed.
    code
        Whether only code counts, and short values: of others their kinds.

    Attributes
    ----------
    files
        Strings and paths that were met in values: each may be the name of a file.
    modules
        Files of the user's own that workers import what was met from.
    """

    def __init__(self, package: str = "", *, code: bool = False) -> None:
        self._only_code = code
        self.files: dict[str, None] = {}
        self.modules: dict[str, None] = {}
        self._package = package
        self._hash = hashlib.blake2b(digest_size=SIZE)
        self._parts: list[tuple[str, Any]] = []
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # what an id stands for must not be another object later
        self._todo: deque[tuple[int, Callable[[Add], None]]] = deque()

    def add(self, value: Any) -> None:
        """Take a value in.

        Raises
        ------
        InvalidInput
            When it holds something without an identity that lasts, such as a lock.
        """
        try:
            self._value(value, self._hash.update, {}, True)
            self._finish()
        except RecursionError:
            raise InvalidInput(f"a {type(value).__name__} is nested too deeply to be compared") from None

    def digest(self) -> bytes:
        """The number of all that was taken in."""
        found = self._hash.copy()
        for _, part in self._parts:
            found.update(part.digest())
        return found.digest()

    def parts(self) -> dict[str, str]:
        """What was reached from functions, by its name, and a number for each, in letters."""
        found: dict[str, str] = {}
        for label, part in self._parts:
            name, count = label, 1
            while name in found:
                count += 1
                name = f"{label} ({count})"
            found[name] = part.hexdigest()
        return found

    # ------------------------------------------------------------ parts

    def _part(self, key: Any, label: str, held: Any, fill: Callable[[Add], None]) -> bytes:
        """The reference to something that is described once."""
        if (number := self._numbers.get(key)) is None:
            self._numbers[key] = number = len(self._parts)
            self._held.append(held)
            self._parts.append((label, hashlib.blake2b(digest_size=SIZE)))
            self._todo.append((number, fill))
        return b"part %d " % number

    def _finish(self) -> None:
        while self._todo:
            number, fill = self._todo.popleft()
            label, part = self._parts[number]
            try:
                fill(part.update)
            except InvalidInput as error:
                raise InvalidInput(f"{label}: {error}") from error

    # ------------------------------------------------------------ values

    def _value(self, value: Any, add: Add, seen: dict[int, int], search: bool = False) -> None:
        kind = type(value)
        if kind is str:
            data = value.encode("utf-8", "surrogatepass")
            add(b"str %d " % len(data) + data)
            if search:
                self.files[value] = None
        elif kind is int:
            add(b"int %x " % value)
        elif kind in _SCALARS:
            add(f"{kind.__name__} {value!r} ".encode())
        elif kind in (bytes, bytearray):
            add(b"%b %d " % (kind.__name__.encode(), len(value)))
            if not self._only_code:
                add(value)
        elif isinstance(value, PurePath):
            self._value((kind.__name__, str(value)), add, seen)
            if search:
                self.files[str(value)] = None
        elif kind in (tuple, list, dict):
            self._container(value, add, seen, search)
        elif kind in (set, frozenset) and self._only_code:
            add(b"%b %d " % (kind.__name__.encode(), len(value)))
        elif kind in (set, frozenset):
            add(b"%b %d " % (kind.__name__.encode(), len(value)))
            for each in sorted(self._alone(item, search) for item in value):
                add(each)
        else:
            self._object(value, add, seen, search)

    def _container(self, value: Any, add: Add, seen: dict[int, int], search: bool) -> None:
        if type(value) is not tuple and self._again(value, add, seen):
            return
        add(b"%b %d " % (type(value).__name__.encode(), len(value)))
        if self._only_code and len(value) > SEARCHED_MOST:
            return
        search = search and len(value) <= SEARCHED_MOST
        for item in value:
            self._value(item, add, seen, search)
            if type(value) is dict:
                self._value(value[item], add, seen, search)

    def _again(self, value: Any, add: Add, seen: dict[int, int]) -> bool:
        """Whether this object was met before: it may hold itself."""
        if (number := seen.get(id(value))) is not None:
            add(b"again %d " % number)
            return True
        seen[id(value)] = len(seen)
        self._held.append(value)
        return False

    def _alone(self, value: Any, search: bool) -> bytes:
        """The number of an element that has no place among others."""
        inner = Fingerprint(self._package)
        inner._value(value, inner._hash.update, {}, search)
        inner._finish()
        self.files |= inner.files
        self.modules |= inner.modules
        return inner.digest()

    def _object(self, value: Any, add: Add, seen: dict[int, int], search: bool) -> None:
        match value:
            case Stored():
                add(b"stored " + value.number)
                self.files |= dict.fromkeys(value.files)
            case Ref() if value.stored is not None:  # a file has the same name in each run that has it
                stored = value.stored
                add(b"ref " + (os.path.basename(stored).encode() if isinstance(stored, str) else stored))
            case types.FunctionType():
                add(self._function(value))
            case type():
                add(self._class(value))
            case types.ModuleType():
                add(self._module(value))
            case enum.Enum():
                add(self._class(type(value)) + f"member {value.name} ".encode())
            case types.MethodType():
                add(self._function(value.__func__) if isinstance(value.__func__, types.FunctionType) else b"method ")
                self._value(value.__self__, add, seen, search)
            case types.BuiltinFunctionType() if not isinstance(value.__self__, types.ModuleType | types.NoneType):
                add(f"method {value.__name__} ".encode())
                self._value(value.__self__, add, seen, search)
            case _ if isinstance(value, _BY_NAME):
                add(_named(value))
            case staticmethod() | classmethod():
                add(type(value).__name__.encode() + b" ")
                self._value(value.__func__, add, seen)
            case property():
                add(b"property ")
                self._value((value.fget, value.fset, value.fdel), add, seen)
            case types.MappingProxyType():
                self._value(dict(value), add, seen, search)
            case types.CodeType():
                self._code(value, add, {})
            case types.CellType():
                self._cell(value, add, seen)
            case logging.Logger():
                add(b"logger ")
            case _:
                self._reduced(value, add, seen, search)

    def _cell(self, cell: types.CellType, add: Add, seen: dict[int, int]) -> None:
        try:
            self._value(cell.cell_contents, add, seen)
        except ValueError:  # it is empty yet
            add(b"empty ")

    def _reduced(self, value: Any, add: Add, seen: dict[int, int], search: bool) -> None:
        """Any other object, by what pickle would make it anew with."""
        if self._again(value, add, seen):
            return
        kind = type(value)
        if self._only_code and not isinstance(value, Stage | functools.partial | functools.cached_property):
            add(_named(kind))
            return
        if isinstance(value, Stage):
            self._value(value.function, add, seen)
            return
        if isinstance(value, functools.cached_property):
            self._value(value.func, add, seen)
            return
        try:
            special = copyreg.dispatch_table.get(kind)
            made = special(value) if special is not None else value.__reduce_ex__(4)
        except Exception as error:  # the user's own classes may raise anything
            raise InvalidInput(f"a {kind.__name__} cannot be compared with another: {error}") from error
        if isinstance(made, str):
            inner = getattr(value, "__wrapped__", None)
            add(f"global {made} ".encode())
            if inner is not None:
                self._value(inner, add, seen)
            return
        add(b"made ")
        callable_, arguments, *rest = made
        if callable_ is copyreg.__newobj__ or getattr(callable_, "__name__", "") == "__newobj__":  # type: ignore[attr-defined]
            self._value(arguments, add, seen, search)
        else:
            self._value((callable_, arguments), add, seen, search)
        state, items, pairs, *_ = [*list(rest), None, None, None]
        if isinstance(state, dict) and "__doc__" in state:
            state = {key: item for key, item in state.items() if key != "__doc__"}
        self._value(state, add, seen, search)
        for found in (items, pairs):
            if found is not None:
                self._value(list(found), add, seen, search)

    # ------------------------------------------------------------ code

    def _function(self, function: types.FunctionType) -> bytes:
        if not self._is_own(function.__module__, function.__code__.co_filename):
            return _named(function)
        self._imported_from(function.__module__, function.__code__.co_filename)
        name = function.__qualname__.replace("<locals>.", "")
        label = f"helper {name}" if self._parts else f"function {name}"
        return self._part(id(function), label, function, lambda add: self._describe(function, name, add))

    def _describe(self, function: types.FunctionType, name: str, add: Add) -> None:
        values = function.__globals__
        self._code(function.__code__, add, values)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        if defaults:
            self._labelled(f"default arguments of {name}", defaults, add)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self._labelled(f"variable {variable} around {name}", cell, add)
        if attributes := {key: item for key, item in vars(function).items() if key != "__wrapped__"}:
            self._value(sorted(attributes.items()), add, {})
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            self._value(wrapped, add, {})
        if annotations := getattr(function, "__annotations__", None):
            add(repr(sorted((key, _annotation(item)) for key, item in annotations.items())).encode())

    def _labelled(self, label: str, value: Any, add: Add) -> None:
        """Describe a value in a part of its own, so that it can be named; functions and the like have one anyway."""
        inner = value
        if isinstance(value, types.CellType):
            try:
                inner = value.cell_contents
            except ValueError:
                inner = value
        if isinstance(inner, types.FunctionType | type | types.ModuleType | types.BuiltinFunctionType):
            self._value(inner, add, {})
            return
        add(self._part((label, id(value)), label, value, lambda into: self._value(value, into, {})))

    def _class(self, kind: type) -> bytes:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None) or ""
        if kind.__module__ == "builtins" or not self._is_own(kind.__module__, file):
            return _named(kind)
        self._imported_from(kind.__module__, file)
        name = kind.__qualname__.replace("<locals>.", "")
        return self._part(id(kind), f"class {name}", kind, lambda add: self._describe_class(kind, add))

    def _describe_class(self, kind: type, add: Add) -> None:
        self._value((kind.__name__, type(kind), kind.__bases__), add, {})
        if hidden := issubclass(kind, enum.Enum):
            self._value([(name, each.value) for name, each in kind.__members__.items()], add, {})
        for name, item in sorted(vars(kind).items()):
            if name in _OF_NO_CLASS or (hidden and not isinstance(item, types.FunctionType | property | classmethod)):
                continue
            if name == "__annotations__":
                add(repr(sorted((key, _annotation(each)) for key, each in item.items())).encode())
                continue
            add(f"attribute {name} ".encode())
            try:
                self._value(item, add, {})
            except InvalidInput as error:
                raise InvalidInput(f"{name!r} of class {kind.__name__}: {error}") from error

    def _module(self, module: types.ModuleType) -> bytes:
        """A module as a whole: of the user's own all that is bound in it, since all of it may be used."""
        name = module.__name__
        if not self._is_own(name, getattr(module, "__file__", None) or ""):
            return f"module {name} ".encode()

        self._imported_from(name, _file_of(module))

        def describe(add: Add) -> None:
            for key, item in sorted(vars(module).items()):
                if not key.startswith("__"):
                    add(f"binds {key} ".encode())
                    self._global(key, item, add)

        return self._part(id(module), f"module {name}", module, describe)

    def _global(self, name: str, item: Any, add: Add) -> None:
        try:
            self._labelled(f"constant {name}", item, add)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from error

    def _code(self, code: types.CodeType, add: Add, values: Mapping[str, Any] | None) -> None:
        """Instructions, without what follows from where they are written; what they read of `values`, if given."""
        found = _instructions(code)
        place = {each.offset: number for number, each in enumerate(found)}
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        shape = (
            code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS,
            code.co_varnames[:count], code.co_freevars,
        )  # fmt: skip
        add(repr(shape).encode("utf-8", "surrogatepass"))
        for each in found:
            add(each.opname.encode() + b" ")
            if each.opcode in dis.hasconst:
                if isinstance(each.argval, types.CodeType):
                    self._code(each.argval, add, values)
                else:
                    self._value(each.argval, add, {})
            elif each.opcode in _JUMPS:
                add(b"to %d " % _at(place, each.argval, len(found)))
            elif each.arg is not None:
                add(repr(each.argval).encode("utf-8", "surrogatepass") + b" ")
        for start, end, target, *depth in _handlers(code):
            entry = (*(_at(place, offset, len(found)) for offset in (start, end, target)), *depth)
            add(repr(entry).encode())
        if values is not None:
            for path in _read(found):
                self._reached(path, values, add)
            for name, names, level in _imported(found):
                self._import(name, names, level, values, add)

    def _reached(self, path: tuple[str, ...], values: Mapping[str, Any], add: Add) -> None:
        """What a name, and attributes of it, stand for."""
        name, *attributes = path
        if name not in values:
            known = hasattr(builtins, name)
            add(f"builtin {name} ".encode() if known else f"unbound {name} ".encode())
            return
        item = values[name]
        for attribute in attributes:
            if not isinstance(item, types.ModuleType) or not self._is_own(item.__name__, _file_of(item)):
                break
            if not hasattr(item, attribute):
                break
            name, item = f"{name}.{attribute}", getattr(item, attribute)
        add(f"reads {name.rpartition('.')[2]} ".encode())
        self._global(name, item, add)

    def _import(self, name: str, names: Any, level: int, values: Mapping[str, Any], add: Add) -> None:
        """A module that is imported when the function runs."""
        package = values.get("__package__") or ""
        full = name if not level else f"{package.rsplit('.', level - 1)[0]}.{name}".rstrip(".")
        module = sys.modules.get(full)
        if module is None:
            add(self._source(full))
        elif names and self._is_own(full, _file_of(module)):
            for each in names:
                if hasattr(module, each):
                    self._global(f"{full}.{each}", getattr(module, each), add)
                else:
                    add(self._source(f"{full}.{each}"))
        else:
            self._value(module, add, {})

    def _source(self, name: str) -> bytes:
        """A module that was not imported here: the whole file counts, and what that imports."""
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, AttributeError, ValueError):
            spec = None
        file = (spec.origin or "") if spec is not None else ""
        if not file.endswith(".py") or not self._is_own(name, file):
            return f"module {name} ".encode()

        self._imported_from(name, file)

        def describe(add: Add) -> None:
            try:
                code = compile(Path(file).read_bytes(), "module", "exec", dont_inherit=True)
            except (OSError, SyntaxError, ValueError) as error:
                raise InvalidInput(f"module {name} cannot be read: {error}") from error
            self._code(code, add, None)
            for inner in _codes(code):
                for imported, names, level in _imported(_instructions(inner)):
                    self._import(imported, names, level, {"__package__": name.rpartition(".")[0]}, add)

        return self._part(("source", name), f"module {name}", None, describe)

    def _imported_from(self, module: str | None, file: str) -> None:
        if file and module != "__main__" and module not in cloudpickle.list_registry_pickle_by_value():
            self.modules[file] = None

    def _is_own(self, module: str | None, file: str) -> bool:
        """Whether a module, or the code of a file, is the user's own."""
        top = (module or "").partition(".")[0]
        if top in _TOOLS or top in sys.builtin_module_names:
            return False
        if self._package and top == self._package:
            return True
        if not file or file.startswith("<"):
            return not file.startswith("<frozen")
        parts = Path(file).parts
        if "site-packages" in parts or "dist-packages" in parts:
            return False
        return not os.path.realpath(file).startswith(_STANDARD)


_STEPS = "asa.workflows.expand"
_STEP_PARTS = "__name__", "body", "until", "most", "condition", "then", "otherwise", "key"
"""Of loops, branches and groups, which are objects of ASA's own, what a user has put into them."""


def meaning(stage: Stage[..., Any]) -> str:
    """A number for what a stage does, in letters, which is another one when its code was changed; "" where that is
    unknown."""
    function, package = stage.function, str(getattr(stage.function, "__module__", "") or "").partition(".")[0]
    found = Fingerprint("" if package in sys.stdlib_module_names else package, code=True)
    try:
        if isinstance(function, StageCommand):
            found.add([function.words, bool(function.shell), sorted(function.outputs.items())])
        elif type(function).__module__ == _STEPS:
            found.add([getattr(function, name, None) for name in _STEP_PARTS])
        else:
            found.add(function)
    except Exception as error:  # objects of the user's own may raise anything
        _log.info("what stage %s does cannot be compared with what it did before: %s", stage.name, error)
        return ""
    return found.digest().hex()


def _named(value: Any) -> bytes:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    return f"named {getattr(value, '__module__', '') or ''} {name} ".encode()


def _annotation(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else repr(value)


def _file_of(module: types.ModuleType) -> str:
    return getattr(module, "__file__", None) or ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """Those that do something; none that keeps a docstring or a line number."""
    found: list[dis.Instruction] = []
    for each in dis.get_instructions(code):
        if each.opname in _SILENT:
            continue
        if each.opname == "STORE_NAME" and each.argval in _ABOUT_SOURCE and found:
            found.pop()
            continue
        found.append(each)
    return found


def _at(place: Mapping[int, int], offset: int, end: int) -> int:
    """The number of the first instruction that is kept from this offset on."""
    return min((number for at, number in place.items() if at >= offset), default=end)


def _handlers(code: types.CodeType) -> Iterator[tuple[Any, ...]]:
    """What is done about exceptions: from where to where, and at which place."""
    try:
        entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    except AttributeError:
        yield 0, 0, 0, code.co_exceptiontable
        return
    for each in entries:
        yield each.start, each.end, each.target, each.depth, each.lasti


def _read(found: list[dis.Instruction]) -> dict[tuple[str, ...], None]:
    """Names that code reads from around it, each with the attributes that are taken of it at once."""
    paths: dict[tuple[str, ...], None] = {}
    for number, each in enumerate(found):
        if each.opname not in _GLOBALS or (each.argval == "__name__" and found[number + 1].argval == "__module__"):
            continue
        path = [str(each.argval)]
        for after in found[number + 1 :]:
            if after.opname not in _ATTRIBUTES:
                break
            path.append(str(after.argval))
        paths[tuple(path)] = None
    return paths


def _imported(found: list[dis.Instruction]) -> Iterator[tuple[str, Any, int]]:
    """Modules that code imports: name, the names that are taken from it, and how many packages up it is looked for."""
    for number, each in enumerate(found):
        if each.opname == "IMPORT_NAME":
            level, names = found[number - 2].argval, found[number - 1].argval
            yield str(each.argval), names, level if isinstance(level, int) else 0
