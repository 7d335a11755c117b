"""Names that users type, and the objects behind them.

One table per kind: a name -> ``"module:Object"``, imported only when somebody asks for it. Third parties add names with
an entry point of the kind's group. A *spec* is a name with options (`asa.core.specs`).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asa.core.errors import InvalidInput, UnknownName
from asa.core.specs import fitting
from asa.core.specs import parse_spec as parse_spec
from asa.core.specs import with_options as with_options

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry:
    """One kind of thing that users name.

    Parameters
    ----------
    kind
        The word for it in error messages.
    table
        Name -> ``"module:Object"``.
    group
        Entry-point group in which third parties add names. Built-in names win.
    owes
        Methods that what a spec makes must have.
    """

    def __init__(
        self, kind: str, table: Mapping[str, str], group: str | None = None, *, owes: Sequence[str] = ()
    ) -> None:
        self.kind, self._table, self._group, self._owes = kind, dict(table), group, tuple(owes)

    def names(self) -> list[str]:
        """All names, those of third parties included."""
        return sorted({*self._table, *(entry.name for entry in self._entry_points())})

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def load(self, name: str) -> Any:
        """The object behind `name`.

        Raises
        ------
        UnknownName
            When no table has it; the message shows the nearest name.
        InvalidInput
            When its entry point leads nowhere.
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
        """The object that `spec` describes; anything but a string is taken to be one already.

        `defaults` are arguments that the spec may override; those the factory does not take are left out.

        Raises
        ------
        UnknownName
            When the name, or one of the options, is not known.
        InvalidInput
            When an option is missing, is text where the factory is annotated to take a number or a boolean, or is one
            that the factory refuses; when what it makes lacks a method.
        """
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
        """What an entry point names; told as a mistake of its package when that is not there."""
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
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

    def _entry_points(self) -> list[EntryPoint]:
        from importlib import metadata  # here, because it costs a tenth of a short run and is rarely needed

        return list(metadata.entry_points(group=self._group)) if self._group else []


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
    {
        "local": "asa.backends.local:Local",
        "flux": "asa.backends.flux.backend:Flux",
        "pbs": "asa.backends.pbs.backend:Pbs",
        "sim": "asa.backends.simulated:Simulated",
        "slurm": "asa.backends.slurm.backend:Slurm",
    },
    group="asa.backends",
    owes=("capabilities", "submit", "query", "find", "update", "cancel", "look", "close"),
)
EXECUTORS = Registry(
    "executor",
    {"local": "executors.local:local", "dask": "executors.dask:dask", "mesos": "executors.mesos.executor:Mesos"},
    group="asa.executors",
    owes=("bootstrap", "start", "launch", "release", "close"),
)
STRATEGIES = Registry(
    "strategy",
    {
        "big-job": "asa.strategies.bigjob:BigJob",
        "per-stage": "asa.strategies.perstage:PerStage",
        "asa": "asa.strategies.proactive:Proactive",
        "asa-naive": "asa.strategies.proactive:Naive",
        "cascade": "asa.strategies.proactive:Cascade",
        "hold": "asa.strategies.hold:Hold",
        "stagger": "asa.strategies.staggered:Staggered",
        "auto": "asa.strategies.auto:Auto",
    },
    group="asa.strategies",
    owes=("decide",),
)
ESTIMATORS = Registry(
    "estimator",
    {
        "fixed-share": "asa.estimators.fixedshare:FixedShare",
        "algorithm1": "asa.estimators.asa:Algorithm1",
        "context": "asa.estimators.context:Contextual",
        "leader": "asa.estimators.leader:Leader",
        "conformal": "asa.estimators.conformal:Conformal",
        "zero": "asa.estimators.baselines:Zero",
        "planned": "asa.estimators.baselines:Planned",
        "last": "asa.estimators.baselines:Last",
        "median": "asa.estimators.baselines:Median",
        "mean": "asa.estimators.baselines:Mean",
        "qbets": "asa.estimators.baselines:Qbets",
        "forecast": "asa.forecast.lookahead:Lookahead",
    },
    group="asa.estimators",
    owes=("predict", "learn", "state", "restore"),
)
DISPATCHERS = Registry(
    "dispatcher",
    {
        "fcfs": "asa.dispatchers.backfill:Fcfs",
        "easy": "asa.dispatchers.backfill:Easy",
        "conservative": "asa.dispatchers.backfill:Conservative",
        "backfill": "asa.dispatchers.backfill:Backfill",
        "binpacking": "asa.dispatchers.binpacking:BinPacking",
        "random": "asa.dispatchers.random:Random",
        "knapsack": "asa.dispatchers.knapsack:Knapsack",
        "listplan": "asa.dispatchers.listplan:ListPlan",
        "nwp": "asa.dispatchers.nwp:Nwp",
        "pcp20": "asa.dispatchers.cp.pcp20:Pcp20",
        "pcp19": "asa.dispatchers.cp.pcp19:Pcp19",
        "hcp19": "asa.dispatchers.cp.hcp19:Hcp19",
        "dras-pg": "asa.dispatchers.learned.dispatcher:DrasPg",
        "dras-dql": "asa.dispatchers.learned.dispatcher:DrasDql",
        "decima-pg": "asa.dispatchers.learned.dispatcher:DecimaPg",
        "compact": "asa.dispatchers.learned.compact:Compact",
        "online": "asa.training.online:Online",
    },
    group="asa.dispatchers",
    owes=("decide",),
)
PREDICTORS = Registry(
    "predictor",
    {
        "user": "asa.dispatchers.predictors:UserEstimate",
        "last-two": "asa.dispatchers.predictors:LastTwo",
        "heuristic": "asa.dispatchers.predictors_datadriven:DataDriven",
        "oracle": "asa.dispatchers.predictors:Oracle",
    },
    group="asa.predictors",
    owes=("predict", "learn"),
)


def is_pooled(estimator: str) -> bool:
    """Whether the estimator of this spec learns from jobs of all geometries together, which it tells by the context."""
    return bool(getattr(ESTIMATORS.load(parse_spec(estimator)[0]), "pooled", False))


PLACEMENTS = Registry(
    "placement",
    {
        "first-fit": "asa.placement.firstfit:FirstFit",
        "best-fit": "asa.placement.bestfit:BestFit",
        "contiguous": "asa.placement.contiguous:Contiguous",
    },
    group="asa.placements",
    owes=("choose",),
)
PLACEMENT_METHODS = Registry(
    "placement method",
    {
        "seq": "asa.placement.tjap.seq:Sequential",
        "scas": "asa.placement.tjap.scas:Scas",
        "sa": "asa.placement.tjap.anneal:Anneal",
        "nsa": "asa.placement.tjap.nsa:Neural",
        "dcas-alns": "asa.placement.tjap.dcas:DcasAlns",
        "free": "asa.placement.tjap.free:Free",
        "together": "asa.placement.tjap.together:Together",
    },
    group="asa.placement_methods",
)
PRIORITIES = Registry(
    "priority",
    {"fifo": "asa.simulator.priority:Fifo", "multifactor": "asa.simulator.priority:Multifactor"},
)
COMMANDS = Registry(
    "command",
    {
        name: f"asa.cli.{name}:{name.capitalize()}"
        for name in (
            "calibrate",
            "clean",
            "compare",
            "completion",
            "dispatch",
            "doctor",
            "explain",
            "export",
            "figure",
            "graph",
            "place",
            "report",
            "resume",
            "run",
            "runs",
            "simulate",
            "train",
            "waits",
        )
    }
    | {
        "dashboard": "asa.dashboard.command:Dashboard",
        "replay-waits": "asa.cli.replay_waits:ReplayWaits",
        "top": "asa.dashboard.top_command:Top",
    },
    group="asa.commands",
)
DOCTOR = Registry("check", {}, group="asa.doctor")
"""Functions without arguments that yield rows ``{"what": ..., "ok": ..., "found": ...}`` for `asa doctor`."""
EXPLAIN = Registry("explanation", {}, group="asa.explain")
"""Functions that take the name of something that is no run, and return what `asa explain` says of it, or None."""
