"""Stages that tasks add to a run that goes on: what such tasks return, and what becomes of it.

A task of a stage that expands may return calls of stages. They travel as a `Structure`, which is the task's result like
any other: kept before it is logged. The driver makes them part of the graph, checked as a graph is before a run, and
logs `StagesAdded`. A new driver finds the same in the log and the kept results, and runs none of these tasks again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from asa.core.errors import AsaError, GraphError, StateError
from asa.core.event import StagesAdded
from asa.core.task import Value
from asa.log.values import load
from asa.workflows.graph import Graph, topological
from asa.workflows.stage import Node, Stage, nodes_in

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
