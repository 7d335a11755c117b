"""Stages: functions and programs with the resources that they need; calling one returns a lazy node.

`stage` decorates a function, `command` wraps a program; `sequence`, `parallel`, `split` and `merge` connect them."""

from __future__ import annotations

import codecs
import contextlib
import glob
import hashlib
import inspect
import math
import os
import re
import shlex
import string
import subprocess
import sys
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from asa.core import units
from asa.core.errors import CommandFailed, GraphError, InvalidInput, UnknownName
from asa.core.job import SETUP, Options, Resources, alternatives
from asa.core.launch import Launch, Program
from asa.core.launch import launcher as words_of
from asa.core.registry import GUEST_RULES, IMAGES, parse_spec
from asa.core.task import DEFAULT_SIGNAL, Staging, default_notice_s, ending, signal_name, substitute

if TYPE_CHECKING:
    from asa.core.width import Speedup
    from asa.log.running import Notice

if TYPE_CHECKING:
    from asa.log.files import Draft, File

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
RunTime = float | Callable[..., float]
"""How long one task takes [s], or a function of the task's arguments that returns it."""


PACK, ANY = SPREADS = ("pack", "any")
"""Where the cores of a stage may lie, as in `stage`."""

CHECKPOINT = "checkpoint"
"""In a command with checkpoints, the place of its directory."""

STOP, CONTINUE = ON_ERROR = ("stop", "continue")
"""What becomes of a stage when a task of it has failed for good."""

ROUND = "_round"
"""Keyword argument that has the number of a round of a loop."""

HASH = "hash"
"""What `reuse` is where files are compared by their contents."""


@dataclass(frozen=True)
class Needs:
    """What a stage was declared with: see `stage`. With a launcher, `task` is what one rank needs."""

    resources: Resources
    task: Resources
    walltime_s: float
    retries: int
    launcher: tuple[str, ...] = ()
    run_time: RunTime | None = None
    spread: str = ANY
    secrets: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    options: Options = ()
    reuse: bool | str | None = None
    version: tuple[tuple[str, str], ...] = ()
    continues: bool | None = None
    accepts_failed: bool = False
    timeout_s: float | None = None
    retry_delay_s: float = 0.0
    growth: float = 1.5
    refs: bool = False
    expands: bool = False
    expect: int | None = None
    checkpoint: bool = False
    signal: str = DEFAULT_SIGNAL
    notice_s: float | None = None
    staging: Staging | None = None
    widths: tuple[int, ...] = ()
    speedup: Speedup | None = None
    auto: tuple[str, ...] = ()
    shares: str = ""
    sized: bool = False
    """Whether it was said how large its allocation is."""

    @property
    def signal_before_s(self) -> float:
        """How long before the end of an allocation its tasks are warned [s]."""
        return default_notice_s(self.walltime_s) if self.notice_s is None else self.notice_s


def check_options(kind: str, given: Iterable[str], known: type) -> None:
    """Refuse keywords that are not among those of a `TypedDict`, and name the nearest that is."""
    for option in given:
        if option not in known.__annotations__:
            raise UnknownName(kind, option, known.__annotations__)


def shows(options: type) -> Callable[[F], F]:
    """Have a function that takes the keywords of a `TypedDict` show each of them, in its help and to completion."""

    def decorate(function: F) -> F:
        signature, kind = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
        own = list(signature.parameters.values())[:-1]
        others = [inspect.Parameter(name, kind, default=...) for name in options.__annotations__]
        function.__signature__ = signature.replace(parameters=[*own, *others])  # type: ignore[attr-defined]
        return function

    return decorate


class Node:
    """A call of a stage that has not happened yet. Pass it to other stages; `asa.run` makes it a value.

    Parameters
    ----------
    stage
        What is called.
    args, kwargs
        Its arguments; they may contain other nodes, anywhere in lists, tuples, sets and dicts, and what inherits from
        them. In other objects a node is refused before the run.
    mapped
        True for one call per element of `args` (all of the same length); `kwargs` are then common to all calls.
    """

    __slots__ = ("args", "kwargs", "mapped", "predecessors", "stage")

    def __init__(self, stage: Stage[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mapped: bool) -> None:
        self.stage, self.args, self.kwargs, self.mapped = stage, args, kwargs, mapped
        self.predecessors: tuple[Node, ...] = ()

    def after(self, *nodes: Node) -> Node:
        """Start this node only when `nodes` have ended, although it does not use their results; returns itself.

        Raises
        ------
        InvalidInput
            When one of them is no node.
        """
        for node in nodes:
            if not isinstance(node, Node):
                raise InvalidInput(f"after() takes nodes, which is what calling stages returns, not {node!r}")
        self.predecessors += nodes
        return self

    def __repr__(self) -> str:
        return f"<node {self.stage.name}{'.map' if self.mapped else ''}>"

    def _repr_html_(self) -> str | None:
        from asa.report.notebook import graph_svg

        before: dict[Node, list[Node]] = {}
        work = [self]
        while work:
            if (node := work.pop()) not in before:
                before[node] = [*nodes_in((node.args, node.kwargs)), *node.predecessors]
                work += before[node]
        nodes = {node: (node.stage.name, node.mapped) for node in reversed(before)}
        return graph_svg(nodes, [(other, node) for node, others in before.items() for other in dict.fromkeys(others)])

    def __str__(self) -> str:
        raise InvalidInput(
            f"the result of stage {self.stage.name!r} is not known before the workflow runs, so it cannot be made a "
            "text: pass the node on, and make the text inside a stage; repr(node) names the node"
        )

    def __format__(self, spec: str) -> str:
        return str(self)

    def __no_result__(self) -> str:
        """Why no task can return it: see `asa.log.values.keep`."""
        return (
            f"it returned {self!r}, a call that has not happened: say @asa.stage(expands=True) of a stage that adds "
            f"others to the run, or return {self.stage.name}.function(...) to call it there"
        )

    def __iter__(self) -> Any:
        raise InvalidInput(
            f"the result of stage {self.stage.name!r} is not known before the workflow runs, so it cannot be iterated: "
            "use other_stage.map(node) for one task per element, or pass the node on as it is"
        )

    def __bool__(self) -> bool:
        raise InvalidInput(
            f"the result of stage {self.stage.name!r} is not known before the workflow runs: decide inside a stage"
        )


class Stage(Generic[P, R]):
    """A function with the resources it needs. Calling it returns a `Node`; ``stage.function`` is the function."""

    def __init__(self, function: Callable[P, R], needs: Needs, name: str | None = None) -> None:
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(f"stage {function.__name__!r} is an async function: make it a plain one")
        self.function, self.needs = function, needs
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.__doc__ = function.__doc__
        self.launch = _launch(function, needs) if needs.launcher else None
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except ValueError:  # builtins without a signature
            self._signature = None

    @cached_property
    def key(self) -> str:
        """The same in all copies of it that travel between the processes of a run."""
        return os.urandom(8).hex()

    def __getstate__(self) -> dict[str, Any]:
        assert self.key, "a copy has it, too"
        return {name: value for name, value in vars(self).items() if name != "packed"}

    @cached_property
    def packed(self) -> bytes:
        """Itself, pickled by value: it is returned many times where rounds follow on one another."""
        import cloudpickle  # here: calling stages does not need it

        found: bytes = cloudpickle.dumps(self, 5)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Node:
        """One task: a lazy node whose value is what the function returns.

        Raises
        ------
        InvalidInput
            When the arguments do not fit the function.
        """
        self._bind(args, kwargs)
        return Node(self, args, kwargs, mapped=False)

    def map(self, *iterables: Iterable[Any] | Node, **common: Any) -> Node:
        """A parallel stage: one task per element of `iterables`, taken side by side; its value is the list of results.

        Parameters
        ----------
        iterables
            Lists, or nodes whose value is a list; all of one length. No text and no dict: `list` and ``.items()`` make
            lists of these.
        common
            Keyword arguments that every task gets.

        Raises
        ------
        InvalidInput
            When there is nothing to map over, lengths differ, or the arguments do not fit the function; when two tasks
            would write one file.
        """
        if not iterables:
            raise InvalidInput(f"{self.name}.map() needs at least one list or node to map over")
        args = tuple(item if isinstance(item, Node) else list(self._iterator(item)) for item in iterables)
        lengths = {len(item) for item in args if not isinstance(item, Node)}
        if len(lengths) > 1:
            raise InvalidInput(f"{self.name}.map() was given lists of different lengths: {sorted(lengths)}")
        self._bind((None,) * len(args), common)
        node = Node(self, args, common, mapped=True)
        self._check_outputs(node, next(iter(lengths), None))
        return node

    def starmap(self, items: Iterable[Iterable[Any]] | Node, **common: Any) -> Node:
        """As `map` over the elements of `items`, each of which is a list or tuple of the task's arguments.

        Raises
        ------
        InvalidInput
            As `map`; when an element is no list or tuple, or one has more in it than another.

        Examples
        --------
        >>> stage(pow).starmap([(2, 3), (3, 2)])
        <node pow.map>
        """
        if isinstance(items, Node):
            return self._starred.map(items, **common)
        rows = list(self._iterator(items))
        for row in rows:
            if not isinstance(row, list | tuple):
                raise InvalidInput(f"{self.name}.starmap() takes lists or tuples of arguments, not {row!r}")
        if len(lengths := {len(row) for row in rows}) > 1:
            raise InvalidInput(f"{self.name}.starmap() was given elements of different lengths: {sorted(lengths)}")
        return self.map(*zip(*rows, strict=True), **common) if rows else self._starred.map([], **common)

    @cached_property
    def _starred(self) -> Stage[..., Any]:
        if self.needs.launcher:
            raise InvalidInput(f"{self.name}.starmap() over a node is not for stages with a launcher: use .map")
        return Stage(_Starred(self.function), self.needs, self.name)

    def _check_outputs(self, node: Node, width: int | None) -> None:
        """Refuse tasks that would write one file, as far as that is known."""
        outputs = Outputs({self.name: ()})
        for index in range(2 if width is None else width) if writes(node) else ():
            outputs.add(self.name, index, written_by(node, index) or ())

    def options(self, *, name: str | None = None, **changes: Unpack[StageNeeds]) -> Stage[P, R]:
        """The same function with other needs; takes the keywords of `stage`."""
        name = name or self.name
        return Stage(self.function, make_needs(name, base=self.needs, **changes), name)

    def __repr__(self) -> str:
        return f"<stage {self.name}>"

    def _iterator(self, item: Iterable[Any]) -> Iterator[Any]:
        if why := unmappable(item):
            raise InvalidInput(f"{self.name}.map() was given {why}")
        try:
            return iter(item)
        except TypeError:
            raise InvalidInput(
                f"{self.name}.map() maps over lists and nodes, not over {type(item).__name__}: {item!r}"
            ) from None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise InvalidInput(f"stage {self.name!r}{self._signature}: {error}") from None


class _Starred:
    """A function whose one argument is the list of what it is called with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__doc__, self.__module__ = function, function.__doc__, function.__module__

    def __call__(self, arguments: Any, /, **common: Any) -> Any:
        if not isinstance(arguments, list | tuple):
            raise InvalidInput(f"starmap() takes lists or tuples of arguments, not {arguments!r}")
        return self.function(*arguments, **common)

    @property
    def outputs(self) -> Any:
        return getattr(self.function, "outputs", None)

    def written(self, args: Sequence[Any], kwargs: Mapping[str, Any], value_of: Callable[[Any], Any]) -> list[str]:
        """As that of the function."""
        found: list[str] = self.function.written(value_of(args[0]), kwargs, value_of)  # type: ignore[attr-defined]
        return found


def unmappable(value: Any) -> str:
    """Why a value is not mapped over although it could be iterated, or ""."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {kind}, of which it would get the keys alone: say .items(), .values() or list(...) of it"
    if isinstance(value, str | bytes | bytearray):
        parts = "characters" if isinstance(value, str) else "numbers"
        return f"a {kind}, {value[:40]!r}, of which it would get the {parts}: say [value] for one task, or list(value)"
    return ""


def writes(node: Node) -> bool:
    """Whether its tasks declare what they write."""
    function = node.stage.function
    return bool(getattr(function, "outputs", None)) and callable(getattr(function, "written", None))


def written_by(node: Node, index: int, value_of: Callable[[Any], Any] | None = None) -> list[str] | None:
    """Paths of the outputs that a task declares; None while they are not known.

    Parameters
    ----------
    value_of
        Makes of an argument its value, or raises LookupError while that is not known; default those without nodes.
    """
    if not writes(node):
        return []
    try:
        args = node.args
        if node.mapped:
            args = tuple(column if isinstance(column, Node) else column[index] for column in node.args)
        written: list[str] = node.stage.function.written(args, node.kwargs, value_of or _known)  # type: ignore[attr-defined]
        return written
    except (LookupError, CommandFailed):  # what cannot be filled in, the task itself will say
        return None


def _known(value: Any) -> Any:
    if nodes_in(value):
        raise LookupError
    return value


MEMORY, WALLTIME, AUTO = "memory", "walltime", "auto"
"""Options that a stage may leave to what is learned, and the word by which it does."""

IDLE = "idle"
"""The guest rule of ``shares=True``."""

DEFAULT_NEEDS = Needs(Resources(), Resources(), walltime_s=3600.0, retries=0)


class ProgramNeeds(TypedDict, total=False):
    """Keywords of `command` that are as for `stage`, which says what they mean."""

    cores: int | tuple[int, int] | list[int] | None
    nodes: int | None
    task_cores: int | None
    tasks_per_node: int | None
    memory: str | None
    gpus: int | None
    walltime: float | str | timedelta | None
    retries: int | None
    launcher: str | None
    speedup: float | Mapping[int, float] | None
    run_time: float | str | timedelta | Callable[..., float] | None
    spread: str | None
    secrets: Sequence[str] | None
    cpus: int | None
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    setup: str | Sequence[str] | None
    batch_options: Mapping[str, Any] | None
    reuse: bool | str | None
    version: str | Path | Sequence[str | Path] | None
    on_error: str | None
    accepts_failed: bool | None
    timeout: float | str | timedelta | None
    retry_delay: float | str | timedelta | None
    growth: float | None
    expect: int | None
    checkpoint: bool | None
    signal: str | None
    signal_before: float | str | timedelta | None
    stage_in: str | Sequence[str] | None
    stage_out: str | Sequence[str] | None
    shares: bool | str | None


class StageNeeds(ProgramNeeds, total=False):
    """Keywords of `stage`, but for its name."""

    env: Mapping[str, str] | None
    refs: bool | None
    expands: bool | None


def make_needs(name: str, *, base: Needs = DEFAULT_NEEDS, **options: Unpack[StageNeeds]) -> Needs:
    """Needs of a stage from the keywords of `stage`; what is not given is taken from `base`."""
    check_options(f"option of stage {name!r}:", options, StageNeeds)
    nodes, tasks_per_node = options.get("nodes"), options.get("tasks_per_node")
    task_cores, cpus, retries = options.get("task_cores"), options.get("cpus"), options.get("retries")
    memory, gpus, launcher = options.get("memory"), options.get("gpus"), options.get("launcher")
    walltime, run_time, spread = options.get("walltime"), options.get("run_time"), options.get("spread")
    secrets, env = options.get("secrets"), options.get("env")
    reuse, version = options.get("reuse"), options.get("version")
    on_error, accepts_failed, timeout = options.get("on_error"), options.get("accepts_failed"), options.get("timeout")
    retry_delay, growth, refs = options.get("retry_delay"), options.get("growth"), options.get("refs")
    expands, expect = options.get("expands"), options.get("expect")
    auto = tuple(what for what in (MEMORY, WALLTIME) if _is_learned(options.get(what), what in base.auto))
    memory, walltime = None if memory == AUTO else memory, None if walltime == AUTO else walltime
    with _naming(name):
        if cpus is not None and task_cores is not None:
            raise InvalidInput("cpus= and task_cores= are two words for the same: give one of them")
        task_cores = cpus if task_cores is None else task_cores
        widths, speedup, cores = _widths(base, options, task_cores)
        counts = {"cores": cores, "nodes": nodes, "task_cores": task_cores, "tasks_per_node": tasks_per_node}
        for what, count in counts.items():
            if count is not None and (type(count) is not int or count < 1):
                raise InvalidInput(f"{what} must be a whole number of at least 1, not {count!r}")
        if retries is not None and (type(retries) is not int or retries < 0):
            raise InvalidInput(f"retries must be a whole number of at least 0, not {retries!r}")
        given, task_cores = cores, base.task.cores if task_cores is None else task_cores
        if nodes is None and tasks_per_node is None and cores is None:
            cores, nodes = base.resources.cores, base.resources.nodes
        elif cores is None:
            nodes = 1 if nodes is None else nodes
            cores = nodes * (1 if tasks_per_node is None else tasks_per_node) * task_cores
        elif tasks_per_node is not None:
            raise InvalidInput("give either cores=, or nodes= with tasks_per_node=; not all of them")
        if given is None and cores == base.task.cores:  # one task's, unless more is said
            cores = max(cores, task_cores)
        _check_units(cores, nodes, task_cores)
        if spread is not None and spread not in SPREADS:
            raise UnknownName("spread", spread, SPREADS)
        if spread is not None and nodes is not None:
            raise InvalidInput(
                f"spread={spread!r} says where cores= lie, and with nodes= they lie on whole nodes: drop it"
            )
        if reuse not in (None, True, False, HASH) or (isinstance(reuse, int) and type(reuse) is not bool):
            raise InvalidInput(f"reuse must be True, False or {HASH!r}, not {reuse!r}")
        if on_error is not None and on_error not in ON_ERROR:
            raise UnknownName("on_error", on_error, ON_ERROR)
        if accepts_failed is not None and type(accepts_failed) is not bool:
            raise InvalidInput(f"accepts_failed must be True or False, not {accepts_failed!r}")
        if refs is not None and type(refs) is not bool:
            raise InvalidInput(f"refs must be True or False, not {refs!r}")
        if growth is not None and not (type(growth) in (int, float) and 1 <= growth < math.inf):
            raise InvalidInput(f"growth must be a number of at least 1, such as 1.5, not {growth!r}")
        if expands is not None and type(expands) is not bool:
            raise InvalidInput(f"expands must be True or False, not {expands!r}")
        if expect is not None and (type(expect) is not int or expect < 0):
            raise InvalidInput(f"expect must be a whole number of at least 0, not {expect!r}")
        timeout_s = base.timeout_s if timeout is None else units.duration(timeout, what="timeout")
        delay_s = base.retry_delay_s
        if retry_delay is not None:
            delay_s = units.duration(retry_delay, what="retry_delay") if retry_delay else 0.0
        checkpoint, notice_s = _checkpoint(base, options)
        gpus = base.resources.gpus if gpus is None else gpus
        size = base.resources.memory if memory is None else units.memory(memory)
        if run_time is None:
            run_time = base.run_time
        elif not callable(run_time):
            run_time = units.duration(run_time, what="run_time")
        words = base.launcher if launcher is None else words_of(launcher)
        hidden = base.secrets if secrets is None else _secrets(secrets)
        named = {option: options.get(option) for option in ("partition", "account", "qos", "constraint", SETUP)}
        asked = dict(base.options) | _batch_options(named, options.get("batch_options") or {})
        alternatives(tuple(asked.items()))  # that there are some is said at once
        return Needs(
            resources=Resources(cores, nodes, size, gpus),
            task=_one_task(cores // task_cores, task_cores, size, gpus),
            walltime_s=base.walltime_s if walltime is None else units.duration(walltime, what="walltime"),
            retries=base.retries if retries is None else retries,
            launcher=words,
            run_time=run_time,
            spread=base.spread if spread is None else spread,
            secrets=hidden,
            env=base.env if env is None else _variables(env),
            options=tuple(sorted(asked.items())),
            reuse=base.reuse if reuse is None else reuse,
            version=base.version if version is None else _versions(version),
            continues=base.continues if on_error is None else on_error == CONTINUE,
            accepts_failed=base.accepts_failed if accepts_failed is None else accepts_failed,
            timeout_s=timeout_s,
            retry_delay_s=delay_s,
            growth=base.growth if growth is None else float(growth),
            refs=base.refs if refs is None else refs,
            expands=base.expands if expands is None else expands,
            expect=base.expect if expect is None else expect,
            checkpoint=checkpoint,
            signal=signal_name(options.get("signal") or base.signal),
            notice_s=notice_s,
            staging=_staging(base, options, words),
            widths=widths,
            speedup=speedup,
            auto=auto,
            shares=_shares(base, options, size, gpus, words),
            sized=base.sized or any(options.get(what) for what in ("cores", "nodes", "tasks_per_node")),
        )


def _widths(
    base: Needs, options: StageNeeds, task_cores: int | None
) -> tuple[tuple[int, ...], Speedup | None, int | None]:
    """Sizes that the allocation may have, if several, and its speed-up; its cores: the fewest of them, or as given."""
    given = options.get("cores")
    if not isinstance(given, tuple | list):
        fixed = given is not None or options.get("nodes") is not None or options.get("tasks_per_node") is not None
        widths = () if fixed else base.widths
    else:
        from asa.core.width import sizes  # here: most stages have one width

        widths = sizes(given, base.task.cores if task_cores is None else task_cores)
        given = widths[0]
    for name, value in (
        ("nodes", options.get("nodes")),
        ("tasks_per_node", options.get("tasks_per_node")),
        ("gpus", options.get("gpus", base.resources.gpus)),
        ("checkpoint", options.get("checkpoint", base.checkpoint)),
    ):
        if widths and value:
            raise InvalidInput(f"a choice of cores={widths} does not go with {name}={value!r}: give cores= as a number")
    for cores in widths if task_cores else ():
        _check_units(cores, None, task_cores or 1)
    if (declared := options.get("speedup")) is None:
        return widths, base.speedup if widths else None, given
    if not widths:
        raise InvalidInput("speedup= says how a stage bends: give cores= as a range, such as (16, 128), or a list")
    from asa.core.width import speedup_of

    return widths, speedup_of(declared), given


def _shares(base: Needs, options: StageNeeds, memory: int | None, gpus: int, launcher: tuple[str, ...]) -> str:
    """The rule by which a stage shares its cores, or ""."""
    given: Any = options.get("shares")
    if given == "" or not (given is None or type(given) in (bool, str)):
        raise InvalidInput(f"shares must be True, False or a guest rule such as 'cosched:rule=static', not {given!r}")
    rule: str = base.shares if given is None else given if type(given) is str else IDLE if given else ""
    for what, value in (("gpus", gpus), ("launcher", launcher and " ".join(launcher))) if rule else ():
        if value:
            raise InvalidInput(f"shares= does not go with {what}={value!r}: leave one of them out")
    if rule and memory is None and options.get("memory") != AUTO and MEMORY not in base.auto:
        raise InvalidInput("shares= needs memory=: a task may run on another's node only where it is known what fits")
    if rule and given is not None and parse_spec(rule)[0] not in GUEST_RULES.names():
        raise UnknownName("guest rule", parse_spec(rule)[0], GUEST_RULES.names())
    return rule


def _is_learned(given: Any, before: bool) -> bool:
    """Whether it is learned how much to ask for."""
    return before if given is None else given == AUTO


def _staging(base: Needs, options: StageNeeds, launcher: tuple[str, ...]) -> Staging | None:
    """What is copied to the node's own disk, and back."""
    before, given = base.staging or Staging(), dict[str, tuple[str, ...]]()
    asked: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
        ("stage_in", options.get("stage_in"), before.into),
        ("stage_out", options.get("stage_out"), before.out),
    )
    for name, value, kept in asked:
        patterns = (value,) if isinstance(value, str) else kept if value is None else tuple(value)
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise InvalidInput(f"{name} must be a pattern of file names such as '*.fits', or a list, not {value!r}")
        given[name] = patterns
    for pattern in given["stage_out"]:
        if os.path.isabs(pattern) or ".." in Path(pattern).parts:
            raise InvalidInput(f"stage_out={pattern!r} must be below the directory that the task runs in")
    if not any(given.values()):
        return None
    if launcher:
        raise InvalidInput("stage_in= and stage_out= are for tasks on one node: without launcher=")
    return Staging(given["stage_in"], given["stage_out"])


def _checkpoint(base: Needs, options: StageNeeds) -> tuple[bool, float | None]:
    """Whether tasks go on in another allocation, and how long before the end of one they are warned [s]."""
    given, before = options.get("checkpoint"), options.get("signal_before")
    if given is not None and type(given) is not bool:
        raise InvalidInput(f"checkpoint must be True or False, not {given!r}")
    checkpoint = base.checkpoint if given is None else given
    for name in ("signal", "signal_before"):
        if options.get(name) is not None and not checkpoint:
            raise InvalidInput(f"{name}= is for tasks that go on in another allocation: say checkpoint=True, too")
    return checkpoint, base.notice_s if before is None else units.duration(before, what="signal_before")


def _versions(given: Any) -> tuple[tuple[str, str], ...]:
    """What is to be run anew for, and its version: of a file its contents, of packages those that are installed."""
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        return (("the stage", str(given)),)
    if isinstance(given, Path):
        try:
            return ((given.name, hashlib.blake2b(given.read_bytes(), digest_size=16).hexdigest()),)
        except OSError as error:
            raise InvalidInput(f"version: {given} cannot be read: {error.strerror}") from None
    if not isinstance(given, list | tuple) or not all(isinstance(item, str | Path) for item in given):
        raise InvalidInput(
            "version must be a text or number of your own, a pathlib.Path of a file whose contents count, or a list of "
            f"packages and such files, not {given!r}"
        )
    import importlib.metadata  # here: few stages ask for it

    found: list[tuple[str, str]] = []
    for item in given:
        if isinstance(item, Path):
            found += _versions(item)
            continue
        try:
            found.append((item, importlib.metadata.version(item)))
        except importlib.metadata.PackageNotFoundError:
            raise InvalidInput(
                f"version: there is no package {item!r} in this environment: in a list, name what is installed; a "
                "version of your own is a text by itself, as in version='2'"
            ) from None
    return tuple(found)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_SECRET = re.compile(
    r"PATH|HOME|USER|SHELL|TMPDIR|PYTHON.*|LD_.+|(SLURM|SBATCH|SRUN|PBS|FLUX|ASA|OMPI|PMIX?|CUDA)_.*"
)


def _secrets(names: Any) -> tuple[str, ...]:
    """Names of variables, checked: those by which nodes, jobs and programs are found cannot be secrets."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidInput("secrets must be a list of names of variables, such as ['LICENSE']")
    for name in names:
        if not _NAME.fullmatch(name):  # it may be a value: it is not repeated
            raise InvalidInput("secrets must be names of variables, such as ['LICENSE'], and one of these is no name")
        if _NO_SECRET.fullmatch(name):
            raise InvalidInput(f"secrets: {name} is needed by more than the tasks: choose another name")
    return tuple(dict.fromkeys(names))


def _variables(env: Any) -> tuple[tuple[str, str], ...]:
    """Variables by name, checked."""
    example = "{'OMP_NUM_THREADS': '4'}"
    if not isinstance(env, Mapping):
        raise InvalidInput(f"env must be a dict, such as {example}, not {env!r}")
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            raise InvalidInput(f"env must have names and texts, such as {example}, not {name!r}: {value!r}")
    return tuple(sorted(env.items()))


def _batch_options(named: Mapping[str, Any], others: Any) -> dict[str, str]:
    """Options of the batch system by name, each as text; one without a value is ""."""
    if not isinstance(others, Mapping) or not all(isinstance(name, str) for name in others):
        raise InvalidInput(f"batch_options must be a dict, such as {{'nice': 10}}, not {others!r}")
    found: dict[str, str] = {}
    for name, value in {**{name: value for name, value in named.items() if value is not None}, **others}.items():
        if name in others and named.get(name) is not None:
            raise InvalidInput(f"{name} is given twice: as {name}= and in batch_options")
        if name == SETUP and not isinstance(value, str):
            value = "\n".join(value)
        if value is True:
            value = ""
        elif isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise InvalidInput(f"{name} must be a text or a number, not {value!r}")
        found[name] = str(value)
    return found


def _check_units(cores: int, nodes: int | None, task_cores: int) -> None:
    """Refuse cores that no task could use."""
    if cores % task_cores:
        more = -(-cores // task_cores) * task_cores
        fewer = f"cores={more - task_cores} or " if more > task_cores else ""
        raise InvalidInput(
            f"cores={cores} is no multiple of task_cores={task_cores}, so some would be idle: write {fewer}cores={more}"
        )
    if nodes is not None and not cores % nodes and cores // nodes % task_cores:
        raise InvalidInput(
            f"nodes={nodes} with cores={cores} has {cores // nodes} cores on each node, no multiple of "
            f"task_cores={task_cores}: write nodes= and tasks_per_node= instead of cores="
        )


def _one_task(slots: int, cores: int, memory: int | None, gpus: int) -> Resources:
    """What each of `slots` tasks needs that run at once in a stage's memory and GPUs."""
    share = gpus // slots if gpus >= slots else min(gpus, 1)
    return Resources(cores, None, None if memory is None else memory // slots, share)


@contextlib.contextmanager
def _naming(stage: str) -> Iterator[None]:
    """Have errors name the stage."""
    try:
        yield
    except UnknownName as error:
        raise UnknownName(f"{error.kind} of stage {stage!r}:", error.name, error.known) from None
    except InvalidInput as error:
        raise InvalidInput(f"stage {stage!r}: {error}") from None


def _launch(function: Callable[..., Any], needs: Needs) -> Launch:
    ranks = needs.resources.cores // needs.task.cores
    return Launch(needs.launcher, ranks, needs.task.cores, isinstance(function, Program))


@overload
def stage(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    container: str | Path | None = None,
    **needs: Unpack[StageNeeds],
) -> Stage[P, R]: ...
@overload
def stage(
    *, name: str | None = None, container: str | Path | None = None, **needs: Unpack[StageNeeds]
) -> Callable[[Callable[P, R]], Stage[P, R]]: ...
@shows(StageNeeds)
def stage(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    container: str | Path | None = None,
    **needs: Unpack[StageNeeds],
) -> Any:
    """Make a stage of a plain function: ``@asa.stage`` or ``@asa.stage(cores=16, walltime="30m")``.

    Parameters
    ----------
    name
        What the stage is called; default the function's name.
    container
        Image that it runs in, through Apptainer: a file, or an address. `asa.integrations.container` has more options.
    cores
        Cores of the allocation that the stage asks for, a multiple of `task_cores`; by default one task's, or, where
        only the run will tell how many tasks there are, those of as many as it says by `expect`; on one machine without
        a queue (`local`) those of all its tasks, as far as the machine has as many. Several: a tuple of
        the least and the most, such as ``(16, 128)`` for 16, 32, 64 or 128, or a list of all that it may be.
        Which of them is chosen when the job is asked for, by when the stage would end and what it would be charged.
        Tasks of a mapped stage have `task_cores` each, and the width says how many run at a time; the task of a call
        has all of it, and so has each with a launcher. `walltime` and `memory` are those of the narrowest.
    speedup
        With several `cores`, how much faster such a task is on more: the part of its work that runs in parallel, such
        as 0.95 (Amdahl's law), or what was measured, ``{16: 600, 64: 170}``, in seconds. By default as earlier runs
        have measured it, and until two sizes were, 0.9. Of a mapped stage without a launcher it is known.
    nodes, tasks_per_node
        Instead of `cores`: a shape, so many tasks at once on each of so many nodes. sbatch gets ``--nodes`` and
        ``--ntasks-per-node``.
    task_cores, cpus
        Cores of each task, which `cpus` is another word for; default 1. So `cores` says how much the stage holds, and
        `cpus` how much each of its tasks has: ``cores=16, cpus=4`` runs four tasks at a time.
    spread
        Where `cores` may lie. ``"any"``, the default: wherever there are some, in uneven parts if need be, the cores of
        one task together; sbatch gets ``--ntasks=CORES/TASK_CORES --cpus-per-task=TASK_CORES``. ``"pack"``: on as few
        nodes as hold them, as many tasks on each, what may round `cores` up; sbatch gets ``--nodes`` and
        ``--ntasks-per-node``, and waits for nodes with so many cores free. A stage with GPUs is always packed.
    secrets
        Names of variables in the driver's environment that only tasks of this stage are to have in theirs, such as
        ``["LICENSE"]``. They travel encrypted, and are in no job's environment, file, command line or log.
    env
        Variables that tasks of this stage have in their environment besides, such as ``{"OMP_NUM_THREADS": "4"}``.
    partition, account, qos, constraint
        Where its jobs go, as sbatch has it: ``partition="gpu"``. What is not said is as `backend` says. Of several, as
        in ``partition="core|long"``, each job goes to the one that is expected to be best (docs/shape.md); several
        options with ``|`` go in step, the first with the first. Tasks run only
        in jobs of stages for which the same is said. PBS takes `partition` for a queue; where there is no batch system,
        as on `local`, and in simulated queues, they mean nothing.
    setup
        Shell lines that its jobs run before anything else, after those of `backend`: ``["module load cuda"]``.
    batch_options
        Any other option of sbatch for its jobs: ``{"gres": "gpu:a100:1", "exclusive": True}``.
    memory
        Memory of the allocation, like ``"4G"``; shared evenly by the tasks that run at once. A bare number is refused.
        ``"auto"``: what earlier tasks of the stage used says how much is asked for; see ``docs/shape.md``.
    gpus
        GPUs of the allocation.
    walltime
        Wall time of the allocation: seconds, or like ``"30m"``; default one hour. ``"1:30"`` is refused: for Slurm it
        is 90 s, for people 90 minutes. ``"auto"``: it is learned, as `memory`.
    retries
        How often a failed task is tried again; default 0. Losses that are not its own fault do not count.
    retry_delay
        How long a failed task waits until it is tried again: seconds, or like ``"30s"``; twice as long each time, and
        an hour at most. Default 0.
    growth
        By how much `memory` is raised when a task that was killed for lack of it is tried again, and `walltime` and
        `timeout` when one had too little time: the stage asks for so much more from then on, but never for more than
        the site allows, which is said. Default 1.5, so that after ``memory="4G"`` 6 GiB are asked for; 1: not at all.
    timeout
        How long one task may run: seconds, or like ``"10m"``. A task that takes longer is ended, with all processes
        that it has started, and has failed. `walltime` is the allocation's, in which many tasks may run one after the
        other.
    on_error
        ``"continue"``: when a task has failed for good, the others of the stage go on, and so do stages, or tasks of
        mapped ones, that do not need it. ``"stop"``: the stage is given up. By default as the run says,
        ``asa run --keep-going``.
    accepts_failed
        Whether it is to be called although some of what it is called with has failed: with `asa.Failed` in the place
        of each result that there is not. By default, it is skipped.
    refs
        Whether it gets an `asa.Ref` in the place of each result that it is called with, and opens what it needs by
        ``ref.load()``. By default, all of them are read before it is called.
    checkpoint
        Whether a task that is not done when its allocation ends goes on in another one, as the same task. It finds what
        it has saved by `asa.checkpoint`, and by `asa.time_left` when that is to be. See ``docs/howto/checkpoint.md``.
    signal, signal_before
        With `checkpoint`, what its program is sent before an allocation ends, and how long before that: default
        ``"USR1"``, and a tenth of the wall time, two minutes at most. A function is sent it if it has a handler.
    stage_in, stage_out
        Patterns of files, such as ``"reads/{sample}*.fq"``, with the task's arguments in braces; one, or a list. What
        matches `stage_in` is copied to the node's own disk, where the task then runs, in `asa.scratch`; what matches
        `stage_out` there is copied back, each file by rename, when the task has ended well.
    launcher
        For MPI: ``"srun"``, ``"mpirun"`` or ``"mpiexec"``, with options of its own if need be. Each task then takes the
        whole allocation, and the function is called in as many ranks as tasks would run in it at once; the task's value
        is what rank 0 returned.
    run_time
        How long one task takes in virtual time (``backend="sim:..."``): seconds, or like ``"5m"``, or a function of the
        task's arguments that returns seconds. On real backends a time with `checkpoint` is a prediction, of all that a
        task takes, so that no more places are held in the queue than it needs; any other is ignored.
    reuse
        Whether results of earlier runs may stand for its tasks. True: always; False: never, as for what is not
        deterministic; ``"hash"``: always, and files are compared by their contents, not by size and time; by default
        as the run says, ``asa run --reuse``.
    version
        What else has to be the same for that: a text or number of your own, a `Path` of a file whose contents count,
        such as an environment's lock, or a list of installed packages and such files.
    shares
        Whether its tasks may take *guests*, tasks of other such stages of the run, on cores that they leave idle, and
        be guests themselves. True: on all that are idle; or a guest rule, such as ``"cosched:rule=static"``. Needs
        `memory`; see ``docs/howto/share-cores.md``.
    expands
        Whether it may return calls of stages: a node, or lists, tuples and dicts with nodes in them, at any depth. They
        become part of the run, and its value is what it returned, with their results in their places.
    expect
        What is likely of it, where only the run will tell, for strategies to plan with: of a stage that is mapped over
        a result, how many tasks it has; of one that expands, how many stages like it follow on it, one after another.

    Raises
    ------
    InvalidInput
        When a value cannot be used; the message names the stage, the value and what was expected.

    Examples
    --------
    >>> @stage(cores=4, walltime="10m")
    ... def double(x):
    ...     return 2 * x
    >>> double.map([1, 2, 3])
    <node double.map>
    """

    def decorate(function: Callable[..., Any]) -> Stage[..., Any]:
        own = make_needs(name or str(getattr(function, "__name__", "?")), **needs)
        return Stage(_inside(container, function), own, name)

    return decorate if function is None else decorate(function)


def _inside(container: str | Path | None, function: Callable[..., Any]) -> Callable[..., Any]:
    if container is None:
        return function
    entered: Callable[..., Any] = IMAGES.load("apptainer")(container)(function)
    return entered


def nodes_in(value: Any) -> list[Node]:
    """All nodes in a structure, where `replace_nodes` replaces them; raises what that raises."""
    found: list[Node] = []
    replace_nodes(value, found.append)
    return found


def replace_nodes(value: Any, replace: Callable[[Node], Any]) -> Any:
    """`value` with every node in it replaced: `asa.core.task.substitute` for nodes."""
    return substitute(value, Node, replace)


class Outputs:
    """Files that tasks are going to write: two that may run at the same time must not write the same one.

    Parameters
    ----------
    predecessors
        Stage -> stages that it waits for, in topological order.
    workdir
        Where relative paths begin; None while that is not known: they are then compared with each other only.
    """

    def __init__(self, predecessors: Mapping[str, Iterable[str]], workdir: str | None = None) -> None:
        self._predecessors, self._workdir = predecessors, workdir
        self._place = {name: place for place, name in enumerate(predecessors)}
        self._writers: dict[str, list[tuple[int, str, int]]] = {}
        self._folders: dict[str, str] = {}

    def add(self, stage: str, index: int, paths: Iterable[str]) -> None:
        """Task `index` of a stage writes these.

        Raises
        ------
        GraphError
            When a task writes one of them that neither waits for this one nor is waited for.
        """
        writer = (self._place[stage], stage, index)
        for path in paths:
            writers = self._writers.setdefault(self._resolved(path), [])
            at = bisect(writers, writer)
            for other in writers[max(0, at - 1) : at + 1]:
                if other != writer:
                    self._compare(min(other, writer), max(other, writer), path)
            if writer not in writers[max(0, at - 1) : at]:
                writers.insert(at, writer)

    def _compare(self, first: tuple[int, str, int], second: tuple[int, str, int], path: str) -> None:
        (_, stage, index), (_, later, number) = first, second
        if stage == later:
            raise GraphError(
                f"tasks {index} and {number} of stage {stage!r} would both write {path}: name the output after "
                "an input that differs, as in outputs={'out': '{x.stem}.txt'}"
            )
        if not self._waits(later, stage):
            raise GraphError(
                f"stages {stage!r} and {later!r} would both write {path}, and neither waits for the other: give them "
                "different outputs, or say which comes first, as in second(...).after(first_node)"
            )

    def _waits(self, stage: str, other: str) -> bool:
        """Whether a stage waits for another one, which is before it in topological order."""
        seen, work = {stage}, [stage]
        while work:
            for before in self._predecessors[work.pop()]:
                if before == other:
                    return True
                if before not in seen and self._place[before] > self._place[other]:
                    seen.add(before)
                    work.append(before)
        return False

    def _resolved(self, path: str) -> str:
        """One spelling for each file; a link of that name itself is replaced when it is written, so not followed."""
        folder, name = os.path.split(path.rstrip("/") or path)
        if name in ("", ".", ".."):
            folder, name = path, ""
        if folder not in self._folders:
            self._folders[folder] = self._real(folder)
        return os.path.join(self._folders[folder], name)

    def _real(self, folder: str) -> str:
        if self._workdir is None and not os.path.isabs(folder):
            return os.path.normpath(folder)
        return os.path.realpath(os.path.join(self._workdir or "", folder))


class StageCommand:
    """What runs in the worker: format, run, check.

    The command line is split into words *before* values are put in, and no shell is involved: a value is never
    taken apart, and nothing in it is executed. A word that is just ``{name}`` becomes several words for a list.
    With a shell, values are quoted where they are put in.
    """

    shell, log = False, None  # of those that an earlier version has kept, too
    files: Mapping[str, str] = {}

    def __init__(
        self,
        template: str,
        outputs: Mapping[str, str | File],
        ok: Iterable[int],
        env: Mapping[str, str] | None = None,
        shell: bool = False,
        log: str | None = None,
        checkpoint: bool = False,
    ) -> None:
        if not template.strip():
            raise InvalidInput("the command is empty: write it like 'mProject {image} {out} {header}'")
        try:
            self.words = [template] if shell else shlex.split(template)
        except ValueError as error:
            raise InvalidInput(f"the command {template!r} cannot be split into words: {error}") from None
        self.outputs = {name: text if isinstance(text, str) else text.template for name, text in outputs.items()}
        self.files = {name: text.algorithm for name, text in outputs.items() if not isinstance(text, str)}
        self.shell, self.log = shell, log
        self.ok, self.env = frozenset(ok), dict(env or {})
        if shell:
            _check_script(template)
        elif acted_on := _acted_on(template.strip()):
            raise InvalidInput(
                f"the command {template!r} is not read by a shell, so {acted_on!r} would be passed on as it stands: "
                "say shell=True to have a shell act on it, or put it in single quotes where the program is to get it"
            )
        if log is not None and not outputs:
            raise InvalidInput(f"log={log!r} needs outputs=: without them what the program prints is the stage's value")
        fields = [name for text in (*self.words, *self._files) for name in _fields(text)]
        own = {*self.outputs, CHECKPOINT} if checkpoint else self.outputs
        self.inputs = tuple(dict.fromkeys(name for name in fields if name not in own))
        if checkpoint and CHECKPOINT in self._named:
            raise InvalidInput(
                "an output cannot be in {checkpoint}, which is removed once the task is done: have the program write "
                "it elsewhere, or copy it"
            )
        self.__name__ = Path(self.words[0]).name
        if shell:
            self.__name__ = Path(next(iter(re.findall(r"[\w./+-]+", template)), "bash")).name
        self.__doc__ = f"Run `{template}`."

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.inputs])

    def written(self, args: Sequence[Any], kwargs: Mapping[str, Any], value_of: Callable[[Any], Any]) -> list[str]:
        """Paths of its outputs when it is called like this, `value_of` the arguments that they are made of."""
        given = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        values = {name: value_of(given[name]) for name in self._named}
        return [_filled(text, values) for text in self._files]

    @cached_property
    def _named(self) -> frozenset[str]:
        """Inputs that its outputs are named after."""
        return frozenset(name for text in self._files for name in _fields(text))

    @property
    def _files(self) -> list[str]:
        return [*self.outputs.values(), *([self.log] if self.log else ())]

    def launched(self, prefix: Sequence[str], environment: Mapping[str, str]) -> Callable[..., Any]:
        """The same command, started through a launcher: see `asa.core.launch.Program`."""
        return partial(self._run, prefix, environment)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run((), os.environ, *args, **kwargs)

    def _words(self, values: Mapping[str, Any]) -> list[str]:
        """What is started, with these values in it."""
        if self.shell:
            return [*SHELL, _script(self.words[0], values)]
        return [word for text in self.words for word in _expand(text, values)]

    def _run(self, prefix: Sequence[str], environment: Mapping[str, str], /, *args: Any, **kwargs: Any) -> Any:
        from asa.log.running import Checkpoint, Paused, place, progress  # here and below: a driver does without

        values = self.__signature__.bind(*args, **kwargs).arguments
        inputs = {Path(value).absolute() for value in values.values() if isinstance(value, str | os.PathLike)}
        kept = None if (found := place().checkpoints) is None else Path(found.directory)
        goes_on = kept is not None and bool(progress(str(kept)))
        # What a program with checkpoints has written is for its next attempt, too, where it would be in the end.
        drafted = frozenset(name for text in self.words for name in _fields(text)) if kept is None else frozenset()
        with contextlib.ExitStack() as drafts:
            outputs = {
                name: _Output(name, text, values, name in drafted, inputs, drafts, goes_on)
                for name, text in self.outputs.items()
            }
            final = values | {name: output.final for name, output in outputs.items()}
            own = {} if kept is None else {CHECKPOINT: str(Checkpoint(kept).path)}
            argv = [*prefix, *self._words(values | own | {name: output.path for name, output in outputs.items()})]
            said = shlex.join([*prefix, *self._words(own | final)])
            code, printed, warned = self._ended(argv, {**environment, **self.env}, final)
            missing = [f"{name} = {output.text}" for name, output in outputs.items() if not output.found()]
            if kept is not None and _has_paused(code in self.ok, warned, len(outputs) - len(missing), len(missing)):
                raise Paused
            if code not in self.ok:
                tail = printed[-_TAIL:].strip()
                raise CommandFailed(f"`{said}` {ending(code)}" + (f"; it printed: {tail}" if tail else ""), exit=code)
            if missing:
                raise CommandFailed(
                    f"`{said}` ended well but did not write {', '.join(missing)}: is that where the program puts it?"
                )
            for output in outputs.values():
                output.place()
        if not outputs:
            return printed
        values_of = {name: output.value(self.files.get(name)) for name, output in outputs.items()}
        return values_of if len(values_of) > 1 else next(iter(values_of.values()))

    def _ended(
        self, argv: Sequence[str], environment: Mapping[str, str], values: Mapping[str, Any]
    ) -> tuple[int, str, bool]:
        """Run it: its exit code, what it has printed, and whether it was warned that its allocation ends."""
        try:
            if self.outputs:
                log = None if self.log is None else Path(_filled(self.log, values))
                return run_program(argv, environment, log)
            with _started(argv, environment, subprocess.PIPE, None) as (process, notice):
                assert process.stdout
                printed = process.stdout.read().decode(errors="replace")
        except OSError as error:
            raise CommandFailed(
                f"{argv[0]} cannot be started: {error.strerror}: is it installed, and on PATH?"
            ) from None
        printed = printed.replace("\r\n", "\n").replace("\r", "\n")
        if process.returncode not in self.ok:  # it is no value, so it is shown with what else was printed
            print(printed, end="", flush=True)
        return process.returncode, printed, notice.given


class _Output:
    """An output of a program that is about to run: a file, a directory, or all files of such names.

    What the command line names is written to a draft. A program that takes of its path what it wants, and writes where
    the output is to be, finds it empty there, or not as it was before.
    """

    def __init__(
        self,
        name: str,
        text: str,
        values: Mapping[str, Any],
        drafted: bool,
        inputs: Collection[Path],
        drafts: contextlib.ExitStack,
        goes_on: bool,
    ) -> None:
        from asa.log.files import Draft, placeable  # here: what declares a program does not run it

        self.text = _filled(text, values)
        self.final, self._pattern = Path(self.text), ""
        if any(char in text for char in _WILD):
            whole = Path(_literal(text, values))
            fixed = next(place for place, part in enumerate(whole.parts) if any(char in part for char in _WILD))
            self._pattern = str(Path(*whole.parts[fixed:]))
            self.final = Path(*Path(self.text).parts[:fixed])
        if self.final.absolute() in inputs and not self._pattern:
            raise CommandFailed(f"output {name} = {self.text} is also an input, and would be lost: name it differently")
        self._draft: Draft | None = None
        if drafted and self._pattern:
            self._draft = Draft(self.final, "", label=self._pattern)
        elif drafted and placeable(self.final):
            self._draft = Draft(self.final.parent, self.final.name)
        if self._draft:
            drafts.callback(self._draft.drop)
            if text.endswith("/"):
                self._draft.path.mkdir()
        else:
            self.final.parent.mkdir(parents=True, exist_ok=True)
            if placeable(self.final) and not self.final.is_dir() and not goes_on:
                self.final.unlink(missing_ok=True)  # what an earlier attempt left must not pass for this one's
            elif text.endswith("/") or self._pattern:
                self.final.mkdir(parents=True, exist_ok=True)
        self._compared = bool(self._pattern or self._draft)
        self._before = {} if goes_on else self._there(self.final)
        self._found: list[Path] = []

    @property
    def path(self) -> Path:
        """Where the program is to write."""
        return self._draft.path if self._draft else self.final

    def _there(self, path: Path) -> dict[Path, tuple[int, ...]]:
        """What there is, and how it is."""
        found = path.glob(self._pattern) if self._pattern else [path]
        stats = {each: each.stat() for each in found if each.exists()}
        return {each: (had.st_ino, had.st_size, had.st_mtime_ns, had.st_ctime_ns) for each, had in stats.items()}

    def found(self) -> bool:
        """Whether the program has written it."""
        made = self._there(self.path)
        if not made and self._draft and self._draft.exists():
            self._draft, made = None, self._there(self.final)
        self._found = [self.final / each.relative_to(self.path) for each in made]
        if self._compared and not self._draft:
            self._found = [each for each in self._found if self._before.get(each) != made[each]]
        return bool(self._found)

    def place(self) -> None:
        if self._draft:
            self._draft.place()

    def value(self, algorithm: str | None) -> Any:
        """What the stage returns for it."""
        from asa.log.files import File

        found = self._found if algorithm is None else [File(each, hash=algorithm or False) for each in self._found]
        return sorted(found, key=str) if self._pattern else found[0]


_WILD = "*?"


def _literal(text: str, values: Mapping[str, Any]) -> str:
    """A pattern with its values in it, which stand for themselves."""
    return "".join(
        literal.replace("[", "[[]")
        + ("" if name is None else glob.escape(_filled(_place_of(name, spec, conversion), values)))
        for literal, name, spec, conversion in string.Formatter().parse(text)
    )


_TAIL, _PIECE = 2000, 1 << 16


def _has_paused(well: bool, warned: bool, written: int, missing: int) -> bool:
    """Whether a program with checkpoints has ended before it was done: it was warned, or knows its wall time itself.

    >>> _has_paused(True, True, 0, 0), _has_paused(True, True, 1, 0), _has_paused(False, True, 1, 0)
    (True, False, True)
    >>> _has_paused(True, False, 1, 1), _has_paused(False, False, 0, 1)
    (True, False)
    """
    return (warned and not (well and written and not missing)) or (well and missing > 0)


@contextlib.contextmanager
def _started(
    argv: Sequence[str], environment: Mapping[str, str], out: int, err: int | None
) -> Iterator[tuple[subprocess.Popen[bytes], Notice]]:
    """A program that runs, and whether it was warned that its allocation ends, with all that it has started."""
    from asa.log.running import Notice, place, reap

    # The shell of a line would end of the signal, and its program would never get it.
    group = 0 if place().checkpoints is not None else None
    with subprocess.Popen(argv, stdout=out, stderr=err, env=environment, process_group=group) as process:
        with Notice(lambda number: os.killpg(process.pid, number)) as notice:
            yield process, notice
        reap(process)


def run_program(argv: Sequence[str], environment: Mapping[str, str], log: Path | None = None) -> tuple[int, str, bool]:
    """Run a program to its end: its exit code, the last part of what it has printed, and whether it was warned that
    its allocation ends.

    Standard output and standard error, in their order, go to our own standard output as they come, or into a file. They
    pass through a pipe: a program may open ``/dev/stderr``, which would empty a file.

    Raises
    ------
    OSError
        When it cannot be started.
    CommandFailed
        When `log` cannot be written.
    """
    decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), b""
    with contextlib.ExitStack() as stack:
        file = None if log is None else stack.enter_context(_log_file(log))
        started = _started(argv, environment, subprocess.PIPE, subprocess.STDOUT)
        process, notice = stack.enter_context(started)
        assert process.stdout
        while piece := os.read(process.stdout.fileno(), _PIECE):
            tail = (tail + piece)[-2 * _TAIL :]
            if file is None:
                sys.stdout.write(decoder.decode(piece))
                sys.stdout.flush()
            else:
                file.write(piece)
    return process.returncode, tail.decode(errors="replace"), notice.given


def _log_file(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb", buffering=0)
    except OSError as error:
        raise CommandFailed(f"log {path} cannot be written: {error.strerror}: name another file") from None


@shows(ProgramNeeds)
def command(
    template: str,
    *,
    outputs: Mapping[str, str | File] | None = None,
    ok: Iterable[int] = (0,),
    env: Mapping[str, str] | None = None,
    shell: bool = False,
    log: str | None = None,
    name: str | None = None,
    container: str | Path | None = None,
    **needs: Unpack[ProgramNeeds],
) -> Stage[..., Any]:
    """Make a stage of a program.

    Parameters
    ----------
    template
        The command line; names in braces are the stage's inputs, in order of appearance, and its outputs. With
        ``checkpoint=True``, ``{checkpoint}`` is the directory that outlives its allocation.
    outputs
        Name -> file name, formatted from the inputs. Each must exist when the program has ended. One that ends with
        ``/`` is a directory; one with ``*`` or ``?`` stands for all files of such names, and its place in the template
        for their directory. An `asa.File` instead of the name: the value is one, too.
    ok
        Exit codes that mean success.
    env
        Environment variables to add.
    shell
        True for a line that a shell is to read, with pipes, redirections and variables: ``bash -euo pipefail``, so that
        each part of it must end well. Values are quoted where they are put in, and must not stand in quotes.
    log
        File, formatted from inputs and outputs, for what it prints; default where ``print`` of other tasks goes, which
        `asa logs` shows. A program without outputs has none: what it writes to standard output is the value.
    name
        The stage's name; default the program's.
    container
        Image that it runs in, as for `stage`.
    needs
        As for `stage`: ``cores=``, ``walltime=`` and so on. With ``launcher=``, the launcher starts the program.

    Returns
    -------
    Stage
        Whose value is the one output's `Path` (a list of them where its name stands for several files), a dict when
        there are several outputs, or what the program printed when there are none.

    Notes
    -----
    What stands for an output in the template is a path of the same name in a directory of its own beside it. When the
    program has ended well, it is put in place, and so is what else has been written there. An output that the template
    does not name is written where it is.

    Raises
    ------
    InvalidInput
        When the template or a need cannot be used: among others, when it has what only a shell would act on.

    Examples
    --------
    >>> project = command("mProject {image} {out} {header}", outputs={"out": "{image.stem}_p.fits"}, cores=4)
    >>> project.map([Path("a.fits"), Path("b.fits")], header=Path("m17.hdr"))
    <node mProject.map>
    """
    function = StageCommand(template, outputs or {}, ok, env, shell, log, bool(needs.get("checkpoint")))
    stage_name = name or function.__name__
    return Stage(_inside(container, function), make_needs(stage_name, **needs), stage_name)


SHELL = ("bash", "-euo", "pipefail", "-c")
"""What reads a line with ``shell=True``: a part of it that fails must not pass for success."""

_PLACE = "{}"
_OPERATORS = frozenset("|&;<>()*?`\n")
_VARIABLE = re.compile(r"\$[\w({?#@!$*-]")


def _scanned(text: str) -> Iterator[tuple[int, str, str]]:
    """Position, character and quotes around it of all that no backslash or single quotes hide from a shell.

    `_PLACE` stands for a place in braces, wherever it is; after a backslash that is what its quotes are said to be.
    """
    at, quotes = 0, ""
    while at < len(text):
        char, after = text[at], text[at + 1 : at + 2]
        start = at + (char == "\\" and quotes != "'")
        if text.startswith("{", start) and not text.startswith("{{", start):
            yield at, _PLACE, "\\" if start > at else quotes
            at = text.find("}", start) + 1 or len(text)
            continue
        if quotes != "'" and char == "\\":
            if after == "\n":
                yield at, after, quotes
            at += 3 if text.startswith("{{", start) else 2
            continue
        if char == quotes or (not quotes and char in "'\""):
            quotes = "" if quotes else char
        elif quotes != "'":
            yield at, char, quotes
        at += 2 if char in "{}" and after == char else 1


def _acted_on(text: str) -> str:
    """The first thing in a command line that a shell would act on, or ""."""
    for at, char, quotes in _scanned(text):
        variable = _VARIABLE.match(text, at) and (text[at + 1] != "{" or text[at + 2 : at + 3] == "{")
        if (char in _OPERATORS and (not quotes or char == "`")) or variable:
            return text[at : at + 2] if variable else char
        if char == "~" and not quotes and (not at or text[at - 1].isspace()) and text[at + 1 : at + 2] in ("", "/"):
            return char
    return ""


def _check_script(text: str) -> None:
    """Refuse values where a shell would not take them for what they are, however they are quoted."""
    ticks = comment = here = ansi = False
    for at, char, quotes in _scanned(text):
        before = text[:at]
        if char == _PLACE:
            unsafe = {
                "in quotes": quotes in ("'", '"'),
                "after a backslash": quotes == "\\",
                "after '$'; a variable of the shell is written ${{NAME}}": before.endswith("$"),
                "in backticks; write $(...)": ticks,
                "in a comment": comment,
                "in a here-document": here,
                "in arithmetic": before.count("((") > before.count("))"),
                "after $'...'": ansi,
            }
            if where := [words for words, found in unsafe.items() if found]:
                raise InvalidInput(
                    f"the command {text!r} has a value {where[0]}: values are quoted as they are put in, so each must "
                    "stand outside of all that, as in 'sort {x} > {out}'"
                )
        elif char == "`":
            ticks = not ticks
        elif not quotes:
            comment = char != "\n" and (comment or (char == "#" and before[-1:] in _BETWEEN))
            here = here or (text.startswith("<<", at) and "<<<" not in text[max(0, at - 1) : at + 3])
            ansi = ansi or text.startswith("$'", at)


def _script(text: str, values: Mapping[str, Any]) -> str:
    """A line for a shell with values in it, quoted; a place that is a word by itself takes each item of a list."""
    pieces = [*string.Formatter().parse(text)]
    line = ""
    for number, (literal, name, spec, conversion) in enumerate(pieces):
        line += literal
        if name is None:
            continue
        follows = pieces[number + 1][0] if number + 1 < len(pieces) else ""
        alone = line[-1:] in _BETWEEN and (follows[:1] in _BETWEEN if follows or number + 1 == len(pieces) else False)
        plain = _place_of(name, spec, conversion)
        words = _expand(plain, values) if alone else [_filled(plain, values)]
        line += " ".join(map(shlex.quote, words))
    return line


def _place_of(name: str, spec: str | None, conversion: str | None) -> str:
    """A place in a template, as it was written."""
    return "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"


_BETWEEN = ("", *" \t\n|&;<>()")


def _fields(text: str) -> list[str]:
    try:
        found = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} cannot be formatted ({error}): write '{{{{' for a brace that is meant as such"
        ) from None
    names = [name.replace("[", ".").split(".")[0] for name in found]
    if not all(name.isidentifier() for name in names):
        raise InvalidInput(f"{text!r}: every place in braces needs a name, like {{image}}")
    return names


def _expand(text: str, values: Mapping[str, Any]) -> list[str]:
    if text.startswith("{") and text.endswith("}") and isinstance(several := values.get(text[1:-1]), list | tuple):
        return [str(value) for value in several]
    return [_filled(text, values)]


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """A template with its values in it; errors name what a value lacks, or why it cannot be written."""
    try:
        return text.format_map(values)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CommandFailed(
            f"{text!r} cannot be filled in: {error}: parts of a name, such as {{image.stem}}, need a pathlib.Path"
        ) from None


Step = Callable[..., Any]


def sequence(*steps: Step) -> Step:
    """Each step gets the result of the one before; the first gets the template's arguments.

    >>> from asa.workflows.stage import stage
    >>> sequence(stage(len), stage(bin))("abc")
    <node bin>
    """
    first, *rest = _steps("sequence", steps)

    def run(*args: Any, **kwargs: Any) -> Any:
        value = first(*args, **kwargs)
        for step in rest:
            value = step(value)
        return value

    return run


def parallel(*steps: Step) -> Step:
    """One stage: a task per element of the input. Several steps: each gets the same input; the result is their list.

    >>> from asa.workflows.stage import stage
    >>> parallel(stage(abs))([-1, 2])
    <node abs.map>
    >>> parallel(stage(min), stage(max))([1, 2])
    [<node min>, <node max>]
    """
    _steps("parallel", steps)
    if len(steps) == 1:
        return _mapping(steps[0])
    return lambda *args, **kwargs: [step(*args, **kwargs) for step in steps]


def split(divide: Step, work: Step) -> Step:
    """`divide` makes a list of its input; `work` runs once per element of it.

    >>> from asa.workflows.stage import stage
    >>> split(stage(sorted), stage(str))("cab")
    <node str.map>
    """
    return sequence(divide, parallel(work))


def merge(work: Step, combine: Step) -> Step:
    """`work` runs once per element of the input; `combine` gets the list of results.

    >>> from asa.workflows.stage import stage
    >>> merge(stage(abs), stage(sum))([-1, 2])
    <node sum>
    """
    return sequence(parallel(work), combine)


def _mapping(step: Step) -> Step:
    if isinstance(step, Stage):
        return step.map

    def run(items: Any) -> Any:
        if isinstance(items, Node):
            raise InvalidInput(
                "a template can only be repeated over a list that is known before the workflow runs, and this one is "
                "the result of a stage: put the work of one element in one stage, or make the list beforehand"
            )
        if why := unmappable(items):
            raise InvalidInput(f"a template that is repeated over a list was given {why}")
        return [step(item) for item in items]

    return run


def _steps(template: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    if not steps:
        raise InvalidInput(f"{template}() needs at least one stage")
    for step in steps:
        if not callable(step):
            raise InvalidInput(f"{template}() is made of stages and templates, not of {step!r}: call it afterwards")
    return steps
