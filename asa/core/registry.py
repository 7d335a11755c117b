"""Names that users type, and the objects behind them.

Each kind of name is a group of entry points: ASA's own names are declared in its ``setup.cfg``, those of other packages
in theirs, and an object is imported only when its name is used. So no package imports what is above it to offer it by
name. A *spec* is a name with options as people write it, the same on the command line and in Python: ``easy``,
``slurm:partition=core``, ``asa:dependency=predicted,sampling=tuned``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asa.core.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,flag`` into the name and its options; numbers and booleans are converted.

    >>> parse_spec("slurm:partition=core,nice=10,exclusive")
    ('slurm', {'partition': 'core', 'nice': 10, 'exclusive': True})
    """
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        options[key.strip().replace("-", "_")] = convert(value.strip()) if equals else True
    return name.strip(), options


def with_options(spec: str, **options: Any) -> str:
    """The spec with these options added; None for one that is not given.

    >>> with_options("auto:lead_s=10", patience=50.0, max_overhead=None)
    'auto:lead_s=10,patience=50.0'
    """
    added = ",".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return spec + ("," if ":" in spec else ":") * bool(added) + added


def convert(text: str) -> Any:
    """A number or boolean when `text` reads like one, else the text."""
    if text.lower() in ("true", "yes"):
        return True
    if text.lower() in ("false", "no"):
        return False
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def fitting(option: str, value: Any, annotation: Any) -> Any:
    """The value of an option as its annotation says: what reads like a number may be meant as text.

    Raises
    ------
    InvalidInput
        When it is text, and a number or a boolean is wanted, or one of these and the other is wanted; when it is no
        whole number where one is wanted, is nan, or is finite and not below 2**63.
    """
    kinds = set(getattr(annotation, "__name__", str(annotation)).split(" | ")) - {"None"}
    if kinds == {"str"} or ("str" in kinds and isinstance(value, int | float) and not kinds & _PLAIN):
        return str(value)
    if kinds and kinds <= {"int", "float"} and isinstance(value, str | bool):
        raise InvalidInput(f"{option}={value} is no number")
    if isinstance(value, int | float) and not abs(value) < _MOST and abs(value) != math.inf:
        raise InvalidInput(f"{option}={value}: a finite number below 2**63 expected")
    if kinds == {"int"} and isinstance(value, float):
        raise InvalidInput(f"{option}={value}: a whole number expected")
    if kinds == {"bool"} and not isinstance(value, bool):
        raise InvalidInput(f"{option}={value}: true or false expected")
    if kinds and all(kind.startswith(("tuple[", "Sequence[")) for kind in kinds) and isinstance(value, int | float):
        raise InvalidInput(f"{option}={value}: several are expected, which only an object made in Python can have")
    return value


_PLAIN = {"int", "float", "bool", "Any", "object"}
_MOST = 2**63
"""What does not fit into a number of the machine."""


DISTRIBUTION = "asa-hpc"
"""What ASA is called where it is installed from."""
OTHERS = ("coscheduler", "executors")
"""ASA's packages beside ``asa``: names that other distributions, or a folder of the user's, may have as well."""


def check_packages() -> None:
    """Raise `InvalidInput` when one of `OTHERS` is not ASA's; the error names its file, or its distribution."""
    for name in OTHERS:
        try:
            package = importlib.import_module(name)
            if getattr(package, "PART_OF", None) == DISTRIBUTION:
                continue
            problem = f"is not ASA's: {package.__file__ or list(package.__path__)}"
        except ImportError as error:
            problem = f"cannot be imported: {error}"
        from importlib.metadata import packages_distributions

        advice = "rename the file or folder of that name, or install ASA anew"
        if others := [other for other in packages_distributions().get(name, ()) if other != DISTRIBUTION]:
            advice = f"use an environment without {others[0]}, which has a package of that name"
        raise InvalidInput(f"package {name!r} {problem}: {advice}")


class Registry:
    """One kind of thing that users name.

    Parameters
    ----------
    kind
        The word for it in error messages.
    table
        Name -> ``"module:Object"``, for names that only the package itself declares.
    group
        Entry-point group of the names. ASA's own win over those of other packages.
    owes
        Methods that what a spec makes must have.
    """

    def __init__(
        self, kind: str, table: Mapping[str, str] | None = None, group: str | None = None, *, owes: Sequence[str] = ()
    ) -> None:
        self.kind, self._table, self._group, self._owes = kind, dict(table or {}), group, tuple(owes)

    def targets(self) -> dict[str, str]:
        """Each name, with the ``"module:Object"`` behind it; those of other packages included."""
        found = dict(self._table)
        for entry in self._entry_points():
            found.setdefault(entry.name, entry.value)
        return found

    def names(self) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(self.targets())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def load(self, name: str) -> Any:
        """The object behind `name`.

        Raises
        ------
        UnknownName
            When no table has it; the message shows the nearest name.
        InvalidInput
            When its entry point leads nowhere, or a library that it needs is not installed.
        """
        if target := self._table.get(name):
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        for entry in self._entry_points():
            if entry.name == name:
                return self._loaded(entry)
        raise UnknownName(self.kind, name, self.names())

    def split(self, words: Iterable[str]) -> list[str]:
        """Specs, each once, from words that may each hold several.

        A comma goes on with the options of a name where something like ``key=value`` follows it.

        Raises
        ------
        InvalidInput
            When there are none.

        Examples
        --------
        >>> DISPATCHERS.split(["fcfs,easy", "backfill:depth=10,limit=50,conservative"])
        ['fcfs', 'easy', 'backfill:depth=10,limit=50', 'conservative']
        """
        found: list[str] = []
        for word in words:
            pieces = [piece.strip() for piece in word.split(",")]
            for place, piece in enumerate(pieces):
                if place and "=" in piece.partition(":")[0] and ":" in found[-1]:
                    found[-1] += f",{piece}"
                elif piece:
                    found.append(piece)
        if not found:
            raise InvalidInput(f"no {self.kind} is named: one of {', '.join(self.names())} expected")
        return list(dict.fromkeys(found))

    def create(self, spec: Any, **defaults: Any) -> Any:
        """The object that `spec` describes; anything but a string or a number is taken to be one already.

        `defaults` are arguments that the spec may override; those the factory does not take are left out.

        Raises
        ------
        UnknownName
            When the name, or one of the options, is not known.
        InvalidInput
            When an option is missing, is text where the factory is annotated to take a number or a boolean, or is one
            that the factory refuses; when what it makes lacks a method.
        """
        if isinstance(spec, int | float):
            raise InvalidInput(f"{self.kind} {spec!r}: a name expected, one of {', '.join(self.names())}")
        if not isinstance(spec, str):
            return spec
        name, options = parse_spec(spec)
        factory = self.load(name)
        if not callable(factory):
            raise InvalidInput(f"{self.kind} {name!r} is {factory!r}: a class or a function that makes one expected")
        signature = inspect.signature(factory)
        parameters = signature.parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for option in options:
                if option not in parameters:
                    raise UnknownName(f"option of {self.kind} {name!r}:", option, _in_words(parameters))
        defaults = {key: value for key, value in defaults.items() if key in parameters}
        try:
            given = dict(options)
            for key in options.keys() & parameters.keys():
                given[key] = fitting(key, options[key], parameters[key].annotation)
            signature.bind(**(defaults | given))
        except (TypeError, InvalidInput) as error:
            raise InvalidInput(f"{self.kind} {spec!r}: {error}") from error
        made = self._make(spec, factory, parameters, defaults | given)
        if lacking := [method for method in self._owes if not callable(getattr(made, method, None))]:
            raise InvalidInput(
                f"{self.kind} {name!r} makes a {type(made).__name__}, which has no method {', '.join(lacking)}: "
                f"it must have {', '.join(self._owes)} (asa.core.ports)"
            )
        return made

    def _loaded(self, entry: EntryPoint) -> Any:
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            if entry.value.startswith(OTHERS):
                check_packages()
            package = f" of package {entry.dist.name}" if entry.dist else ""
            raise InvalidInput(
                f"{self.kind} {entry.name!r}: its entry point {entry.value!r}{package} cannot be loaded: {error}: "
                "correct it, then install the package anew"
            ) from error

    def _make(self, spec: str, factory: Any, parameters: Mapping[str, inspect.Parameter], given: dict[str, Any]) -> Any:
        """Call the factory; what it says against an option is said of the spec."""
        name, options = parse_spec(spec)
        try:
            return factory(**given)
        except UnknownName as error:  # of an option that it passes on; it may have been meant for the factory itself
            if error.name not in options:
                raise
            known = {*_in_words(parameters), *error.known}
            raise UnknownName(f"option of {self.kind} {name!r}:", error.name, known) from error
        except InvalidInput:
            raise
        except ValueError as error:
            raise InvalidInput(f"{self.kind} {spec!r}: {error}") from error
        except TypeError as error:
            if options.keys() <= parameters.keys():
                raise  # a mistake in the factory: only of options that it passes on is the type not known
            raise InvalidInput(f"{self.kind} {spec!r}: {error}") from error

    def _entry_points(self) -> Iterator[EntryPoint]:
        """ASA's own, then those of other packages, for which all that is installed is read."""
        if self._group:
            from importlib import metadata  # here, because importing ASA is light

            yield from _own_entry_points(self._group)
            yield from metadata.entry_points(group=self._group)


@functools.cache
def _own_entry_points(group: str) -> EntryPoints:
    from importlib import metadata

    try:
        return metadata.distribution(DISTRIBUTION).entry_points.select(group=group)
    except metadata.PackageNotFoundError as error:
        raise InvalidInput(
            f"{DISTRIBUTION} is not installed for {sys.executable}, so none of its names is known: "
            "pip install it there, or pip install -e . in its source tree"
        ) from error


_IN_WORDS = {"str", "int", "float", "bool", "Any", "Path", "_empty"}


def _in_words(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The options that a spec can give: no clocks, functions or machines."""
    kinds = {key: getattr(each.annotation, "__name__", str(each.annotation)) for key, each in parameters.items()}
    return [
        key
        for key, each in parameters.items()
        if each.kind is not each.VAR_KEYWORD and _IN_WORDS.intersection(kinds[key].split(" | "))
    ]


BACKENDS = Registry(
    "backend",
    group="asa.backends",
    owes=("capabilities", "submit", "query", "find", "update", "cancel", "look", "close"),
)
EXECUTORS = Registry("executor", group="asa.executors", owes=("bootstrap", "start", "launch", "release", "close"))
STRATEGIES = Registry("strategy", group="asa.strategies", owes=("decide",))
GUEST_RULES = Registry("guest rule", group="asa.guest_rules", owes=("cores",))
ESTIMATORS = Registry("estimator", group="asa.estimators", owes=("predict", "learn", "state", "restore"))
DISPATCHERS = Registry("dispatcher", group="asa.dispatchers", owes=("decide",))
COMMANDS = Registry("command", group="asa.commands", owes=("configure", "run"))
DOCTOR = Registry("check", group="asa.doctor")
"""Functions without arguments that yield rows ``{"what": ..., "ok": ..., "found": ...}`` for `asa doctor`.

``ok`` is None for what does not work, and need not."""
CLEAN = Registry("sweep", group="asa.clean")
"""Functions without arguments that remove what is left behind on this machine, and return its paths."""
EXPLAIN = Registry("explanation", group="asa.explain")
"""Functions that take the name of something that is no run, and return what `asa explain` prints of it, or None."""
HISTORIES = Registry("history format", group="asa.histories")
"""Functions that take the path of a file, and return rows of what tasks in it took: `asa.core.history.Usage`."""
IMAGES = Registry("container runtime", group="asa.images")
"""Functions that take an image, and return what makes of a stage's function, or program, one that runs inside."""


def looks_ahead(estimator: str) -> bool:
    """Whether the estimator of this spec runs the queue forward that it sees, so that it tells any sizes apart."""
    return bool(getattr(ESTIMATORS.load(parse_spec(estimator)[0]), "looks_ahead", False))


def is_pooled(estimator: str) -> bool:
    """Whether the estimator of this spec learns from jobs of all geometries together."""
    return bool(getattr(ESTIMATORS.load(parse_spec(estimator)[0]), "pooled", False))
