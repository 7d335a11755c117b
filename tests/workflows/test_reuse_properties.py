"""Random workflows and edits of their code: never a stale result, and nothing runs that had run before.

Calls are made in this process, one after another; looking up and keeping are the product's own.
"""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asa.core.event import StageLookedUp, TaskDone
from asa.core.job import Resources
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.log.values import fill, keep, load
from asa.security.files import private_directory
from asa.workflows.fingerprint import Fingerprint
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.reuse import Reuse
from asa.workflows.settings import Settings
from asa.workflows.stage import Node, replace_nodes

NUMBERS = st.integers(0, 9)


@dataclass(frozen=True)
class Helper:
    """A function that others call: of the workflow's own file, or of a module beside it."""

    constant: int
    operator: str
    calls: tuple[int, ...]  # helpers with higher numbers, of the same place
    doc: str = ""


@dataclass(frozen=True)
class Step:
    """A stage: what it reaches and what it is called with."""

    helper: int | None
    beside: int | None
    reads: int | None
    default: int
    around: int | None  # a variable around it
    inputs: tuple[int, ...]  # steps before it
    number: int
    elements: tuple[int, ...]  # mapped over these, unless there are none
    doc: str = ""


@dataclass(frozen=True)
class Program:
    constants: tuple[int, ...]
    helpers: tuple[Helper, ...]
    beside: tuple[Helper, ...]
    steps: tuple[Step, ...]
    lines: int = 0

    def source(self) -> str:
        lines = ["import asa, logging", "import reuse_beside", "RAN = logging.getLogger('reuse-ran')"]
        lines += ["# moved"] * self.lines
        lines += [f"C{number} = {value}" for number, value in enumerate(self.constants)]
        lines += _helpers(self.helpers, "h")
        for number, step in enumerate(self.steps):
            words = ["x", "more"]
            words += [f"h{step.helper}(x)"] if step.helper is not None else []
            words += [f"reuse_beside.b{step.beside}(x)"] if step.beside is not None else []
            words += [f"C{step.reads}"] if step.reads is not None else []
            words += ["around"] if step.around is not None else []
            body = [
                f"def s{number}(x, *given, more={step.default}):",
                *([f'    """{step.doc}"""'] if step.doc else []),
                f"    RAN.info({number})",
                f"    return ({' * 7 + '.join(words)} + sum(map(total, given))) % 1009",
            ]
            if step.around is not None:
                lines += [f"def make{number}(around):", *(f"    {line}" for line in body), f"    return s{number}"]
                lines += [f"s{number} = make{number}({step.around})"]
            else:
                lines += body
            lines += [f"s{number} = asa.stage(s{number})"]
        lines += ["def total(item): return sum(map(total, item)) if isinstance(item, list) else item"]
        return "\n".join(lines)

    def reached(self, number: int) -> Any:
        """What a stage does, in other words."""
        step = self.steps[number]
        return (
            number,
            self.helpers and step.helper is not None and _reached(self.helpers, step.helper),
            self.beside and step.beside is not None and _reached(self.beside, step.beside),
            None if step.reads is None else (step.reads, self.constants[step.reads]),
            step.default,
            step.around,
        )


def _helpers(helpers: tuple[Helper, ...], letter: str) -> list[str]:
    lines: list[str] = []
    for number, helper in enumerate(helpers):
        lines += [f"def {letter}{number}(x):"] + ([f'    """{helper.doc}"""'] if helper.doc else [])
        more = "".join(f" + {letter}{other}(x)" for other in helper.calls)
        lines += [f"    return (x {helper.operator} {helper.constant}{more}) % 1009"]
    return lines


def _reached(helpers: tuple[Helper, ...], number: int) -> Any:
    helper = helpers[number]
    return number, helper.constant, helper.operator, tuple(_reached(helpers, other) for other in helper.calls)


@st.composite
def helpers_of(draw: st.DrawFn) -> tuple[Helper, ...]:
    count = draw(st.integers(1, 4))
    return tuple(
        Helper(
            draw(NUMBERS),
            draw(st.sampled_from("+-*")),
            tuple(other for other in range(number + 1, count) if draw(st.booleans())),
        )
        for number in range(count)
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    constants, helpers, beside = draw(st.tuples(NUMBERS, NUMBERS)), draw(helpers_of()), draw(helpers_of())
    maybe = st.none() | NUMBERS
    steps = tuple(
        Step(
            draw(st.none() | st.integers(0, len(helpers) - 1)),
            draw(st.none() | st.integers(0, len(beside) - 1)),
            draw(st.none() | st.integers(0, 1)),
            draw(NUMBERS),
            draw(maybe),
            tuple(other for other in range(number) if draw(st.booleans())),
            draw(NUMBERS),
            tuple(draw(st.lists(NUMBERS, max_size=3))),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    return Program(constants, helpers, beside, steps)


def _changed(draw: st.DrawFn, items: tuple[Any, ...], **values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
    number = draw(st.integers(0, len(items) - 1))
    field_ = draw(st.sampled_from(sorted(values)))
    changed = replace(items[number], **{field_: draw(values[field_])})
    return (*items[:number], changed, *items[number + 1 :])


@st.composite
def edits(draw: st.DrawFn, program: Program) -> Program:
    """The program after an edit, which may change nothing of what it does."""
    helper = {"constant": NUMBERS, "operator": st.sampled_from("+-*"), "doc": st.sampled_from(["", "a", "b\\nc"])}
    step = {
        "default": NUMBERS, "around": st.none() | NUMBERS, "number": NUMBERS, "doc": st.sampled_from(["", "words"]),
        "reads": st.none() | st.integers(0, 1), "elements": st.lists(NUMBERS, max_size=3).map(tuple),
    }  # fmt: skip
    match draw(st.sampled_from(["constant", "helper", "beside", "step", "lines", "nothing"])):
        case "constant":
            return replace(program, constants=(draw(NUMBERS), *program.constants[1:]))
        case "helper":
            return replace(program, helpers=_changed(draw, program.helpers, **helper))
        case "beside":
            return replace(program, beside=_changed(draw, program.beside, **helper))
        case "step":
            return replace(program, steps=_changed(draw, program.steps, **step))
        case "lines":
            return replace(program, lines=draw(st.integers(0, 300)))
        case _:
            return program


@dataclass
class World:
    """A state directory in which programs are run."""

    place: Path
    runs: int = 0

    def load(self, program: Program) -> Node:
        (self.place / "reuse_beside.py").write_text("\n".join(_helpers(program.beside, "b")))
        sys.modules.pop("reuse_beside", None)
        importlib.invalidate_caches()
        module = types.ModuleType("asa_file_flow")
        module.__file__ = str(self.place / f"{self.runs}" / "flow.py")  # moved each time
        sys.modules[module.__name__] = module
        cloudpickle.register_pickle_by_value(module)
        exec(compile(program.source(), module.__file__, "exec"), module.__dict__)
        nodes: list[Node] = []
        for number, step in enumerate(program.steps):
            made = getattr(module, f"s{number}")
            inputs = [nodes[other] for other in step.inputs]
            nodes.append(made.map(list(step.elements)) if step.elements else made(step.number, *inputs))
        return nodes  # type: ignore[return-value]

    def run(self, workflow: Any, *, reuse: bool = True) -> tuple[Any, list[int]]:
        """Its value, and which stages ran."""
        self.runs += 1
        _ran.found.clear()
        graph = make_graph(workflow)
        directory = RunDirectory.create(self.place, f"run-{self.runs}")
        with EventLog(directory.events) as log:
            payloads = Payloads(graph, directory.functions, directory.values, log.value)
            payloads.save()
            kept = Reuse(directory, graph, Settings(graph.result, "run"), payloads, log)
            for name in graph.nodes:
                width = payloads.width(name)
                event = StageLookedUp(0.0, name, width)
                event = kept.look_up(event, range(width)) if reuse else event
                assert not event.trouble
                log.append([event])
                found = {result.task for result in event.found}
                for index in range(width):
                    if index in found:
                        continue
                    kept.launching(name, [index])
                    task = payloads.task(name, index, Resources())
                    args, kwargs = fill(load(task.arguments), task.inputs)
                    value = keep(load(task.function)(*args, **kwargs), directory.values, name, index)
                    path, data = (value, None) if isinstance(value, str) else (None, value)
                    done = TaskDone(0.0, name, index, "a", "n", 0.0, data, path)
                    log.append([done])
                    kept.done(done.result)
            kept.close()

            def value_of(node: Node) -> Any:
                name = graph.names[node]
                values = [load(value) for value in log.values(name, 0, payloads.width(name))]
                return values if node.mapped else values[0]

            return replace_nodes(graph.result, value_of), list(_ran.found)


class _Ran(logging.Handler):
    """Which stages ran: loggers are no part of what a function is."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(int(str(record.msg)))


_ran = _Ran()


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of the same second and size would be taken for one another."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    logger = logging.getLogger("reuse-ran")
    logger.addHandler(_ran)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(_ran)
    sys.modules.pop("reuse_beside", None)
    sys.modules.pop("asa_file_flow", None)


@given(data=st.data())
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_edited_program_has_the_result_it_would_have_anew(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("world")
    monkeypatch.syspath_prepend(place)
    world, fresh = World(private_directory(place / "state")), World(private_directory(place / "fresh"))
    world.place, fresh.place = place / "state", place / "fresh"
    monkeypatch.syspath_prepend(world.place)
    program, seen = data.draw(programs()), set[Any]()
    for _ in range(data.draw(st.integers(2, 5))):
        expected: list[int] = []
        values: list[Any] = []
        plain = world.load(program)
        anew = fresh.run(plain, reuse=False)[0]
        value, ran = world.run(world.load(program))
        assert value == anew
        for number, step in enumerate(program.steps):
            calls = step.elements or (step.number,)
            inputs = () if step.elements else tuple(repr(values[other]) for other in step.inputs)
            keys = [(program.reached(number), bool(step.elements), call, inputs) for call in calls]
            expected += [number] * sum(key not in seen for key in keys)
            seen.update(keys)
            values.append(value[number])
        assert sorted(ran) == sorted(expected)
        program = data.draw(edits(program))


@given(program=programs())
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_function_is_the_same_once_it_has_travelled(
    program: Program, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("world")
    monkeypatch.syspath_prepend(place)
    for node in World(place).load(program):  # type: ignore[attr-defined]
        before, after = Fingerprint(), Fingerprint()
        before.add(node.stage.function)
        after.add(pickle.loads(cloudpickle.dumps(node.stage.function)))
        assert before.digest() == after.digest()
        assert before.parts() == after.parts()
