"""What travels to the workers: functions and arguments, pickled by value.

A stage's function is pickled once, into a file of the run's directory; an argument that is another task's result is
passed on as it is, without being opened here.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import cloudpickle

from asa.core.errors import AsaError, GraphError, InvalidInput, StateError, Unpicklable
from asa.core.event import StagesAdded
from asa.core.job import Resources
from asa.core.run import FoldedRun
from asa.core.task import Checkpoints, Input, Secrets, Task, Value, substitute
from asa.log.values import INLINE_MOST, dump, fill, load, note_refs, sealed, write_value
from asa.security.files import write_once
from asa.workflows.graph import Graph
from asa.workflows.stage import Node, Outputs, Stage, replace_nodes, unmappable, written_by

CHECKPOINTS = "checkpoints"
"""Directory of what tasks with checkpoints save, in the run's; in it one for each that is not done."""

_COMMON_INLINE_MOST = 1024
_FILES = "asa.log.files"


def _refuse(node: Node) -> NoReturn:
    raise GraphError(
        f"{node!r} stands in an object, in which no result can be put in its place: pass it by itself, or in lists, "
        "tuples, sets and dicts"
    )


class _ArgumentPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is not typed
    """Refuses nodes that have not been replaced."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({Node: _refuse})


@dataclass
class _Mapped:
    """A parallel stage, prepared once: lists to take elements from, and what all its tasks share."""

    width: int
    columns: list[list[Any] | Node]
    common: dict[str, Any]
    shared: list[Value] = field(default_factory=list)


class Payloads:
    """Makes the tasks of one run.

    Parameters
    ----------
    graph
        The workflow.
    functions, values
        Directories (0700) for pickled functions and for large values.
    result
        Gives the stored result of a task, by stage and index.
    secrets
        Of the stages that have some.
    workdir
        Where tasks run.
    run
        As far as it has come: says what stands for results of tasks that failed for good.
    """

    def __init__(
        self,
        graph: Graph,
        functions: Path,
        values: Path,
        result: Callable[[str, int], Value],
        secrets: Mapping[str, Secrets] = MappingProxyType({}),
        workdir: str | None = None,
        run: FoldedRun | None = None,
    ) -> None:
        self._secrets, self._workdir, self._run = dict(secrets), workdir, run
        self._unclaimed: dict[str, None] | None = None  # stages of which it is not known yet what they write
        self._outputs = Outputs({})
        self._graph, self._functions, self._values, self._stored = graph, functions, values, result
        self._files = {name: str(functions / f"{number:04d}.pkl") for number, name in enumerate(graph.nodes)}
        self._number = {name: f"{number:04d}" for number, name in enumerate(graph.nodes)}
        self._mapped: dict[str, _Mapped] = {}

    def save(self) -> None:
        """Write every stage's function, and try every argument that is known already.

        Raises
        ------
        Unpicklable, GraphError
            When a function or an argument cannot travel, or a node stands where its result cannot be put; names the
            stage and the argument.
        """
        written: dict[tuple[int, bool], bytes] = {}
        for name, node in self._graph.nodes.items():
            which = id(node.stage.function), node.stage.needs.expands
            if which not in written:
                written[which] = self._dump_function(name, node)
            write_value(Path(self._files[name]), written[which])
            self._try_arguments(name, self._graph)

    def extend(self, part: Graph, secrets: Mapping[str, Secrets]) -> None:
        """Do the same for a part that is to be added to the graph, and has these secrets.

        Raises
        ------
        Unpicklable, GraphError
            As `save`.
        """
        for name, node in part.nodes.items():
            path = self.know(name, node)
            if not path.exists():
                write_value(path, self._dump_function(name, node))
            self._try_arguments(name, part)
        self._secrets |= secrets

    def regrow(self, events: Iterable[StagesAdded]) -> None:
        """Know what tasks of earlier drivers have added to the graph, as these events say."""
        from asa.workflows.expand import regrow

        before = set(self._graph.nodes)
        regrow(self._graph, events, self._stored)
        for name, node in self._graph.nodes.items():
            if name not in before:
                self.know(name, node)

    def know(self, name: str, node: Node) -> Path:
        """Where the function of a stage is that was added to the graph: one file for all with the same function."""
        self._number[name] = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
        path = self._functions / f"{node.stage.key}.pkl"
        self._files[name] = str(path)
        return path

    def _dump_function(self, name: str, node: Node) -> bytes:
        function = node.stage.function
        if node.stage.needs.expands:
            from asa.workflows.expand import Expanding

            function = Expanding(function)
        return dump_or_explain(function, f"the function of stage {name!r}")

    def _try_arguments(self, name: str, graph: Graph) -> None:
        node = graph.nodes[name]
        first = node.args
        if node.mapped:
            first = tuple(column[0] for column in node.args if not isinstance(column, Node) and column)
        args, kwargs = replace_nodes((first, node.kwargs), lambda other: Input(0))
        self._dump_arguments(name, node.stage, args, kwargs)
        if not graph.predecessors[name]:
            self._look_at_files(name, (node.args, node.kwargs))

    def _look_at_files(self, name: str, arguments: Any) -> None:
        """Refuse files that are not as they should be, where no task before could make them so."""

        if (module := sys.modules.get(_FILES)) is None:  # who has a `File` has loaded it
            return

        def look(file: Any) -> Any:
            try:
                file.check(self._workdir or "")
            except InvalidInput as error:
                raise InvalidInput(f"stage {name!r}: {error}") from None
            return file

        substitute(arguments, module.File, look)

    @property
    def graph(self) -> Graph:
        return self._graph

    def result(self, name: str, index: int) -> Value:
        """What a task returned, or an `asa.core.task.Failed` that stands for it where it failed for good.

        Raises
        ------
        KeyError
            When it may yet return.
        """
        try:
            return self._stored(name, index)
        except KeyError:
            if self._run is None or (failed := self._run.failure(name, index)) is None:
                raise
            return dump(replace(failed, peak_memory=0))  # it differs each time, and nothing else need do

    def width(self, name: str) -> int:
        """Number of tasks of a parallel stage whose predecessors are done.

        Raises
        ------
        GraphError
            When it was to be mapped over something that is no list, or over lists of different lengths; when two tasks
            would write one file.
        """
        if (known := self._graph.width(name)) is not None:
            return known
        if self._run is not None and (known := self._run.stages[name].width) is not None:
            return known  # even if a result that it was found from is lost, and computed again
        if name not in self._mapped:
            self._prepare(name)
            self._claim(name)
        return self._mapped[name].width

    def task(self, name: str, index: int, resources: Resources) -> Task:
        """Task `index` of a stage whose predecessors are done; it needs these `resources`.

        Raises
        ------
        Unpicklable, GraphError
            As `save`, which has not tried all elements of a list that is mapped over.
        """
        self._claim(name)
        node = self._graph.nodes[name]
        args, kwargs, inputs = self._called_with(name, index)
        arguments = self._value(self._dump_arguments(name, node.stage, args, kwargs), name, index)
        launch, secrets = node.stage.launch, self._secrets.get(name)
        found = tuple(inputs)
        if launch is not None and node.stage.needs.widths:
            launch = replace(launch, ranks=resources.cores // launch.cores)
        identity = _identity(found) if found else _OF_NOTHING
        kept = self.checkpoints(name, index, identity) if node.stage.needs.checkpoint else None
        return Task(
            name, index, self._files[name], arguments, found, resources, launch, identity, secrets, checkpoints=kept,
            staging=node.stage.needs.staging,
        )  # fmt: skip

    def checkpoints(self, name: str, index: int, identity: str) -> Checkpoints:
        """How a task goes on in other allocations: only what was saved when it was called with the same is of use."""
        needs, number = self._graph.nodes[name].stage.needs, Path(self._files[name]).stem
        directory = self._values.parent / CHECKPOINTS / f"{number}-{index}-{identity[:12]}"
        return Checkpoints(str(directory), signal.Signals[f"SIG{needs.signal}"].value, needs.signal_before_s)

    def _called_with(self, name: str, index: int) -> tuple[tuple[Any, ...], dict[str, Any], list[Value]]:
        """Arguments of a task, with places for the results of others, and these."""
        node = self._graph.nodes[name]
        inputs: list[Value] = []
        if node.mapped:
            mapped = self._prepare(name)
            inputs += mapped.shared
            args = tuple(self._element(column, index, inputs) for column in mapped.columns)
            return args, mapped.common, inputs
        args, kwargs = replace_nodes((node.args, node.kwargs), lambda other: self._place(other, inputs))
        return args, kwargs, inputs

    def _claim(self, name: str) -> None:
        """Make sure that no other task, but those before and after, writes what those of a stage are going to write.

        Raises
        ------
        GraphError
            When one does.
        """
        if self._unclaimed is None:
            self._unclaimed = {other: None for other in self._graph.nodes if not self._graph.tells_outputs(other)}
            if self._unclaimed:
                self._outputs = self._graph.outputs(self._workdir)
            for other in [*self._unclaimed]:  # what an earlier driver has begun
                with suppress(LookupError, AsaError):
                    for before in self._graph.predecessors[other]:
                        self.result(before, 0)
                    self._claim_all(other)
        if name in self._unclaimed:
            del self._unclaimed[name]
            self._claim_all(name)

    def _claim_all(self, name: str) -> None:
        stage = self._graph.nodes[name].stage
        for index in range(self.width(name)):
            args, kwargs, inputs = self._called_with(name, index)
            written = written_by(Node(stage, args, kwargs, mapped=False), 0, partial(_filled, inputs))
            self._outputs.add(name, index, written or ())

    def columns(self, name: str) -> list[list[Any] | Node]:
        """What a parallel stage, whose predecessors are done, is mapped over: lists, or stages of as many tasks."""
        return self._prepare(name).columns

    def _prepare(self, name: str) -> _Mapped:
        if name in self._mapped:
            return self._mapped[name]
        node = self._graph.nodes[name]
        columns: list[list[Any] | Node] = []
        for place, column in enumerate(node.args):
            made = isinstance(column, Node) and not column.mapped
            columns.append(self._listed(name, column, place) if made else column)
        lengths = {self.width(self._graph.names[item]) if isinstance(item, Node) else len(item) for item in columns}
        if len(lengths) > 1:
            raise GraphError(f"stage {name!r} maps over lists of different lengths: {sorted(lengths)}")
        mapped = _Mapped(lengths.pop(), columns, {})
        for key, value in node.kwargs.items():
            placed = replace_nodes(value, lambda other: self._place(other, mapped.shared))
            data = dump_or_explain(placed, f"argument {key!r} of stage {name!r}", _ArgumentPickler)
            note_refs(self._values, data)
            if len(data) > _COMMON_INLINE_MOST and placed is value:
                path = self._values / f"{self._number[name]}-{key}.pkl"
                write_value(path, data)
                mapped.shared.append(str(path))
                placed = Input(len(mapped.shared) - 1)
            mapped.common[key] = placed
        self._mapped[name] = mapped
        return mapped

    def _listed(self, name: str, node: Node, place: int) -> list[Any] | Node:
        """The elements of a result, the `place`-th thing that a stage is mapped over, in the order that they have for
        this run in all processes: sets have another one in each. Or the parallel stage of whose results it is made."""
        source = f"stage {name!r} is mapped over the result of stage {self._graph.names[node]!r}, which"
        last, index, value = self._graph.end_of(self._graph.names[node], 0)
        if isinstance(value, list | tuple | Node):
            return value if isinstance(value, Node) else list(value)
        if value is not None:
            raise GraphError(f"{source} is no list but {type(value).__name__}, with calls of stages in it")
        try:
            value = load(self.result(last, index))
        except Exception as error:  # unpickling runs foreign code, which may raise anything
            raise GraphError(
                f"{source} cannot be read here: {type(error).__name__}: {error}. Return a list of plain values there, "
                "or let the driver import the same modules"
            ) from error
        if why := unmappable(value):
            raise GraphError(f"{source} is {why}")
        try:
            if hasattr(value, "__getitem__"):  # so it has an order of its own
                return list(value)
            path = self._functions / f"{self._number[name]}-{place}.elements"
            if not path.exists():
                data = dump_or_explain(list(value), f"the result of stage {self._graph.names[node]!r}")
                write_once(path, sealed(data))
            return list(load(str(path)))
        except StateError as error:
            raise GraphError(f"{error}: run the workflow again, its order of {source} cannot be known") from error
        except TypeError:
            raise GraphError(
                f"{source} is no list but {type(value).__name__}: return a list there, or call "
                f"{self._graph.nodes[name].stage.name!r} without .map"
            ) from None

    def _element(self, column: list[Any] | Node, index: int, inputs: list[Value]) -> Any:
        if isinstance(column, Node):
            return self._result(self._graph.names[column], index, inputs)
        if index >= len(column):
            raise GraphError(f"there is no element {index}: the list has {len(column)} now, and had more before")
        return replace_nodes(column[index], lambda other: self._place(other, inputs))

    def _place(self, node: Node, inputs: list[Value]) -> Any:
        """Append a node's result to `inputs`; its place, or the result itself when it is an empty list."""
        name, first = self._graph.names[node], len(inputs)
        if not node.mapped or (self._run is not None and self._run.stages[name].is_widthless):
            return self._result(name, 0, inputs)
        width = self.width(name)
        if self._graph.has_added(name):
            return [self._result(name, index, inputs) for index in range(width)]
        inputs.extend(self.result(name, index) for index in range(width))
        return Input(first, width) if width else []

    def _result(self, name: str, index: int, inputs: list[Value]) -> Any:
        """Append what a task returned to `inputs`, or the results of the stages that it added; the place."""
        name, index, value = self._graph.end_of(name, index)
        if value is None:
            inputs.append(self.result(name, index))
            return Input(len(inputs) - 1)
        if isinstance(value, Node):
            return self._place(value, inputs)
        return replace_nodes(value, lambda other: self._place(other, inputs))

    def _dump_arguments(
        self, name: str, stage: Stage[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bytes:
        try:
            called = (args, kwargs, True) if stage.needs.refs else (args, kwargs)
            data = dump(called, _ArgumentPickler)
            note_refs(self._values, data)
            return data
        except Exception:
            for key, value in [*enumerate(args), *kwargs.items()]:
                dump_or_explain(value, f"argument {key!r} of stage {name!r}", _ArgumentPickler)
            raise

    def _value(self, data: bytes, name: str, index: int) -> Value:
        if len(data) <= INLINE_MOST:
            return data
        path = self._values / f"{self._number[name]}-{index}-args.pkl"
        write_value(path, data)
        return str(path)


def _filled(inputs: list[Value], value: Any) -> Any:
    """An argument with results in it; raises LookupError where one is large or cannot be read here."""
    try:
        return fill(value, [item if isinstance(item, bytes) else b"" for item in inputs])
    except Exception as error:  # unpickling runs foreign code, which may raise anything
        raise LookupError from error


def _identity(values: Sequence[Value]) -> str:
    """What a task is called with that the workflow itself does not say: results, which a file's name stands for."""
    found = hashlib.blake2b(digest_size=16)
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        found.update(b"%d %d " % (isinstance(value, str), len(data)) + data)
    return found.hexdigest()


_OF_NOTHING = _identity(())


def pack(value: Any, sys_path: Sequence[str], nodes: Iterable[Node] = ()) -> bytes:
    """A workflow, or what holds one, for another process.

    Parameters
    ----------
    sys_path
        Where its modules are found.
    nodes
        All of the workflow, each after those that it waits for: pickled in this order, so that a chain of any length
        does not end in recursion.

    Raises
    ------
    Unpicklable
        When it cannot travel.
    """
    with io.BytesIO() as file:
        pickler = cloudpickle.Pickler(file, 5)  # one for all, so that a node, or an array, is written once
        with explained("the workflow"):
            for item in (*nodes, value):
                pickler.dump(item)
        return pickle.dumps((list(sys_path), file.getvalue()))


def unpack(data: bytes) -> Any:
    """What `pack` packed. The import path comes first, so that the user's own modules are found again."""
    path, values = pickle.loads(data)
    sys.path += [entry for entry in path if entry not in sys.path]
    with io.BytesIO(values) as file:
        unpickler = pickle.Unpickler(file)
        while True:
            value = unpickler.load()
            if file.tell() == len(values):
                return value


def dump_or_explain(value: Any, what: str, pickler: type[cloudpickle.Pickler] | None = None) -> bytes:
    """`value`, pickled as `asa.log.values.dump` does; `what` it is called in errors.

    Raises
    ------
    Unpicklable, GraphError
        When it cannot travel, or holds a node whose result cannot be put in its place.
    """
    with explained(what):
        return dump(value, pickler)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Say in errors what it was that could not be pickled."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from error
    except Exception as error:  # pickling runs foreign code, which may raise anything
        raise Unpicklable(
            f"{what} cannot be sent to another process: {type(error).__name__}: {error}. Pass a path, or what is "
            "needed to make it there (open files, locks, sockets and database connections do not travel)"
        ) from error
