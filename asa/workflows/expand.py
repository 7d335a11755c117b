"""Stages that tasks add to a run that goes on: what such tasks return, and what becomes of it.

A task of a stage that expands may return calls of stages. They travel as a `Structure`, which is the task's result like
any other: kept before it is logged. The driver makes them part of the graph, checked as a graph is before a run, and
logs `StagesAdded`. A new driver finds the same in the log and the kept results, and runs none of these tasks again.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from asa.core.errors import AsaError, GraphError, InvalidInput, StateError
from asa.core.event import StagesAdded
from asa.core.task import Value
from asa.log.values import load
from asa.workflows.graph import Graph, topological
from asa.workflows.stage import DEFAULT_NEEDS, ROUND, Node, Stage, StageNeeds, Step, make_needs, nodes_in

if TYPE_CHECKING:  # workers load this module
    from asa.core.run import FoldedRun
    from asa.core.stage import StageSpec


class Expanding:
    """The function of a stage that expands, as a worker calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = self.function(*args, **kwargs)
        return Structure(value) if nodes_in(value) else value


class Structure:
    """What a task returned with calls of stages in it.

    Parameters
    ----------
    value
        It. Nodes are pickled each after those that it waits for, so that a chain of any length does not end in
        recursion; their stages by themselves, each once, since the driver has most of them already.

    Raises
    ------
    GraphError
        When the nodes wait for each other in a circle.
    """

    def __init__(self, value: Any) -> None:
        stages: dict[str, Stage[..., Any]] = {}
        with io.BytesIO() as file:
            pickler = _pickler()(file, stages)
            for item in (*topological(nodes_in(value)), value):
                pickler.dump(item)
            self.data = file.getvalue()
        self.stages = {key: stage.packed for key, stage in stages.items()}

    def value(self, known: dict[str, Stage[..., Any]]) -> Any:
        """What was returned; `known` are the stages that need not be made anew, by their keys."""
        for key in self.stages.keys() - known.keys():
            known[key] = pickle.loads(self.stages[key])
        with io.BytesIO(self.data) as file:
            unpickler = _Unpickler(file, known)
            while True:
                value = unpickler.load()
                if file.tell() == len(self.data):
                    return value


@functools.cache
def _pickler() -> Any:
    import cloudpickle  # here: a worker starts sooner without what it may not need

    class StructurePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is not typed
        """Leaves out stages, and notes which."""

        def __init__(self, file: io.BytesIO, stages: dict[str, Stage[..., Any]]) -> None:
            super().__init__(file, 5)
            self._stages = stages

        def persistent_id(self, value: Any) -> str | None:
            if not isinstance(value, Stage):
                return None
            self._stages[value.key] = value
            return value.key

    return StructurePickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: dict[str, Stage[..., Any]]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, key: str) -> Stage[..., Any]:
        return self._known[key]


_HEAD = 200
_MARK = __name__.encode()


def structure_of(value: Value) -> Structure | None:
    """The structure that a stored result is, or None where it is a plain one, which is not opened for that."""
    if isinstance(value, str):
        with open(value, "rb") as file:
            head = file.read(_HEAD)
    else:
        head = value[:_HEAD]
    found = load(value) if _MARK in head else None
    return found if isinstance(found, Structure) else None


class Growth:
    """Makes what tasks add part of a run.

    Parameters
    ----------
    graph
        Of the run; it grows.
    run
        As far as it has come.
    result
        Gives the stored result of a task, by stage and index.
    admit
        Checks a part of a graph as a whole one is checked before a run, raising an `AsaError`; its stages as the plan
        has to know them.
    """

    def __init__(
        self,
        graph: Graph,
        run: FoldedRun,
        result: Callable[[str, int], Value],
        admit: Callable[[Graph], tuple[StageSpec, ...]],
    ) -> None:
        self._graph, self._run, self._result, self._admit = graph, run, result, admit
        self._known = {node.stage.key: node.stage for node in graph.nodes.values()}

    def add(self, name: str, index: int, now: float) -> StagesAdded:
        """What follows from a task's result, to be logged."""
        try:
            structure = structure_of(self._result(name, index))
        except (KeyError, OSError, StateError) as error:
            return StagesAdded(now, name, index, refused=f"what it returned cannot be read: {error}")
        if structure is None:
            self._graph.added.pop((name, index), None)  # of an earlier attempt, whose result was lost
            return StagesAdded(now, name, index)
        try:
            try:
                value = structure.value(self._known)
            except Exception as error:  # unpickling runs foreign code, which may raise anything
                raise GraphError(
                    f"the stages that it returned cannot be read here: {type(error).__name__}: {error}. Let the driver "
                    "import the same modules"
                ) from error
            part = self._graph.part(name, index, value, self._run.stages)
            specs = self._admit(part)
        except AsaError as error:
            return StagesAdded(now, name, index, refused=f"{type(error).__name__}: {error}")
        parent, own = self._graph.nodes[name].stage, self._run.stages[name].spec
        if own.expect is not None:
            left = own.expect - 1
            follow = (part.nodes[spec.name].stage.key == parent.key for spec in specs)
            specs = tuple(
                replace(spec, expect=left) if same else spec for spec, same in zip(specs, follow, strict=True)
            )
        needs = self._graph.adopt(part, name, index, self._run.stages[name].followers)
        alike = isinstance(value, Node) and value.mapped
        return StagesAdded(now, name, index, specs, needs, alike)


def regrow(graph: Graph, events: Iterable[StagesAdded], result: Callable[[str, int], Value]) -> None:
    """Make part of a graph what tasks of an earlier driver have added, as far as its results can be read."""
    known = {node.stage.key: node.stage for node in graph.nodes.values()}
    last: dict[tuple[str, int], StagesAdded] = {}
    for event in events:
        last.pop((event.stage, event.index), None)
        last[event.stage, event.index] = event
    followers: dict[str, dict[str, None]] = {}
    for name, befores in graph.predecessors.items():
        for before in befores:
            followers.setdefault(before, {})[name] = None
    for (name, index), event in last.items():
        if not event.specs or name not in graph.nodes:
            continue
        try:
            structure = structure_of(result(name, index))
            if structure is None:
                continue
            value = structure.value(known)
        except Exception:  # as above; the task runs again where it is needed
            continue
        part = graph.part(name, index, value, (), [spec.name for spec in event.specs])
        waiting = followers.get(name, {})
        for need in graph.adopt(part, name, index, waiting):
            followers.setdefault(need, {}).update(waiting)
        for other, befores in part.predecessors.items():
            for before in befores:
                followers.setdefault(before, {})[other] = None


# ---------------------------------------------------------------- loops, branches and groups


def loop(
    body: Step,
    *,
    until: Callable[[Any], bool] | None = None,
    most: int | None = None,
    **needs: Unpack[StageNeeds],
) -> Step:
    """A step that calls `body` on its own result again and again.

    What it returns is called like a stage: with the first value, and with keyword arguments that each round gets. A
    body that takes an argument named ``round`` gets the number of the round, from 1 on: so outputs of a program can
    have ``{round}`` in their names.

    Parameters
    ----------
    body
        A stage, or a template of stages such as `sequence` makes. Where it is a stage, each round is one task, and the
        end is decided in it; otherwise that takes a task of its own.
    until
        Says of a round's result whether it is the last.
    most
        How many rounds there are at most. The value is the last round's, whatever `until` says of it.
    needs
        What the tasks need in which the end is decided, as for `stage`; but `expect` is how many rounds are likely, for
        strategies to plan with.

    Raises
    ------
    InvalidInput
        When there would be no end.

    Examples
    --------
    >>> from asa.workflows.stage import stage
    >>> @stage
    ... def halve(x):
    ...     return x / 2
    >>> loop(halve, until=lambda x: x < 1, most=100)(37)
    <node halve>
    """
    if until is None and most is None:
        raise InvalidInput("loop() has no end: say until=, a function of a round's result, or most=")
    if until is not None and not callable(until):
        raise InvalidInput(f"until must be a function of a round's result, not {until!r}")
    if most is not None and (type(most) is not int or most < 1):
        raise InvalidInput(f"most must be a whole number of at least 1, not {most!r}")
    if not callable(body):
        raise InvalidInput(f"loop() is made of a stage or a template, not of {body!r}: call it afterwards")
    more: StageNeeds = {**needs, "expands": True}
    if (expect := needs.get("expect")) is not None:
        more["expect"] = max(0, expect - 1)
    whole = isinstance(body, Stage) and not body.needs.expands and not body.needs.launcher
    rounds = _Rounds(body, until, most, whole)
    if isinstance(body, Stage) and whole:
        rounds.stage = Stage(rounds, make_needs(body.name, base=body.needs, **more), body.name)
        return rounds.stage
    rounds.stage = Stage(rounds, make_needs("loop", **more), "loop")
    return rounds.begin


class _Rounds:
    """The rounds of a loop: each runs the body, if it is the `whole` of a round, and has the next one follow."""

    stage: Stage[..., Any]

    def __init__(self, body: Step, until: Callable[[Any], bool] | None, most: int | None, whole: bool) -> None:
        self.body, self.until, self.most, self.whole = body, until, most, whole
        self.call: Step = body.function if isinstance(body, Stage) and whole else body
        self.__module__ = _module(self.call, until)
        self.__name__ = str(getattr(body, "name", getattr(body, "__name__", "loop")))
        try:
            self.numbered = "round" in inspect.signature(self.call if whole else _function(body)).parameters
        except (TypeError, ValueError):
            self.numbered = False

    def begin(self, value: Any, **common: Any) -> Any:
        """The first round, where the body is no stage."""
        return self.stage(self._called(value, 1, common), **common)

    def __call__(self, value: Any, /, **common: Any) -> Any:
        number = common.pop(ROUND, 1)
        if self.whole:
            value = self._called(value, number, common)
        if number == self.most or (self.until is not None and self.until(value)):
            return value
        if not self.whole:
            value = self._called(value, number + 1, common)
        return self.stage(value, **common, **{ROUND: number + 1})

    def _called(self, value: Any, number: int, common: dict[str, Any]) -> Any:
        return self.call(value, **common, **({"round": number} if self.numbered else {}))

    @property
    def outputs(self) -> Any:
        return getattr(self.call, "outputs", None) if self.whole else None

    def written(self, args: Sequence[Any], kwargs: Mapping[str, Any], value_of: Callable[[Any], Any]) -> list[str]:
        """As that of the body, which knows the number of the round."""
        given = {key: value for key, value in kwargs.items() if key != ROUND}
        if self.numbered:
            given["round"] = kwargs.get(ROUND, 1)
        found: list[str] = self.call.written(args, given, value_of)  # type: ignore[attr-defined]
        return found


def branch(
    condition: Callable[..., bool] | Stage[..., bool],
    then: Step,
    otherwise: Step | None = None,
    **needs: Unpack[StageNeeds],
) -> Step:
    """A step that goes one way or another, by what it is called with.

    Parameters
    ----------
    condition
        Says whether `then` is called. A function, or a stage where it takes more than one core or long; it is called
        in a task of its own.
    then, otherwise
        Stages, templates, or functions of these, called with the same arguments; without `otherwise`, the first
        argument is the value.
    needs
        What the task of the condition needs, as for `stage`.

    Examples
    --------
    >>> from asa.workflows.stage import stage
    >>> branch(lambda x: x > 0, stage(abs), stage(bin))(3)
    <node branch>
    """
    for step in (condition, then, *([] if otherwise is None else [otherwise])):
        if not callable(step):
            raise InvalidInput(f"branch() is made of functions, stages and templates, not of {step!r}")
    base = condition.needs if isinstance(condition, Stage) else DEFAULT_NEEDS
    more: StageNeeds = {**needs, "expands": True}
    made = _Branch(_function(condition), then, otherwise)
    return Stage(made, make_needs("branch", base=base, **more), "branch")


class _Branch:
    """Calls one step or the other."""

    def __init__(self, condition: Callable[..., bool], then: Step, otherwise: Step | None) -> None:
        self.condition, self.then, self.otherwise = condition, then, otherwise
        self.__module__ = _module(condition, then, otherwise)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.condition(*args, **kwargs):
            return self.then(*args, **kwargs)
        return args[0] if self.otherwise is None else self.otherwise(*args, **kwargs)


def collect(items: Any, key: Callable[[Any], Any] | None = None, **needs: Unpack[StageNeeds]) -> Node:
    """Results in groups: a node whose value is a list of (key, results), in the order in which the keys come first.

    Parameters
    ----------
    items
        A node whose value is a list, or a list of nodes; lists in lists are taken apart, to any depth.
    key
        Says to which group a result belongs; by default results are (key, value).
    needs
        As for `stage`.

    Examples
    --------
    >>> from asa.workflows.stage import stage
    >>> collect(stage(abs).map([1, -1, 2]), key=lambda x: x % 2)
    <node collect>
    """
    return Stage(_Collect(key), make_needs("collect", **needs), "collect")(items)


class _Collect:
    """Puts results into groups."""

    def __init__(self, key: Callable[[Any], Any] | None) -> None:
        self.key = key
        self.__module__ = _module(key)

    def __call__(self, items: Any) -> list[tuple[Any, list[Any]]]:
        groups: dict[Any, list[Any]] = {}
        left = [items]
        while left:
            item = left.pop()
            if isinstance(item, list):
                left += reversed(item)
                continue
            if self.key is not None:
                name, value = self.key(item), item
            elif isinstance(item, tuple) and len(item) == 2:
                name, value = item
            else:
                raise InvalidInput(f"collect() takes results that are (key, value), or key=, not {item!r}")
            groups.setdefault(name, []).append(value)
        return list(groups.items())


def _function(step: Any) -> Callable[..., Any]:
    return step.function if isinstance(step, Stage) else step


def _module(*steps: Any) -> str:
    """The module of the first of these that is the user's own, so that it is looked at for changes of code."""
    names = [str(getattr(_function(step), "__module__", "") or "") for step in steps if step is not None]
    return next((name for name in names if name and not name.startswith("asa.")), __name__)
