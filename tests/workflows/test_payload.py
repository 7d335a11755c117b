"""What tasks are sent, and that those in virtual time are called as workers call them."""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from asa.core.errors import GraphError, InvalidInput, Unpicklable
from asa.core.event import StageExpanded
from asa.core.job import Capabilities, Resources
from asa.core.run import FoldedRun
from asa.core.task import Input, Task, Value
from asa.log.events import EventLog
from asa.log.values import INLINE_MOST, dump, load
from asa.security.files import private_directory
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads, pack, unpack
from asa.workflows.stage import stage
from asa.workflows.virtual_work import Calls, Times, recorded
from executors import hub
from executors.worker import Caller
from tests.runlogs import run_begins, stage_spec


@stage
def single(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


@stage(cores=2, task_cores=2)
def several(x: Any, y: Any = None, **kwargs: Any) -> Any:
    return x


class Made:
    """The payloads of a workflow, and the results so far."""

    def __init__(self, directory: Path, workflow: Any) -> None:
        self.directory = directory
        self.results: dict[tuple[str, int], Value] = {}
        for name in ("functions", "values"):
            private_directory(directory / name)
        self.payloads = Payloads(
            make_graph(workflow), directory / "functions", directory / "values", lambda *task: self.results[task]
        )

    def made(self, stage: str, index: int = 0) -> Task:
        return self.payloads.task(stage, index, Resources(2))

    def give(self, stage: str, *values: Any) -> None:
        self.results |= {(stage, index): pickle.dumps(value) for index, value in enumerate(values)}

    def task(self, stage: str, index: int = 0) -> tuple[Any, Any, tuple[Any, ...]]:
        """Arguments, keyword arguments and inputs of a task, unpickled."""
        task = self.made(stage, index)
        args, kwargs = load(task.arguments)
        return args, kwargs, tuple(load(value) for value in task.inputs)


def test_a_width_that_is_known_is_not_looked_for_in_results_that_may_be_lost(tmp_path: Path) -> None:
    """An earlier driver knew it; a damaged result that it was found from is computed again meanwhile."""
    many = single.options(name="many").map(single.options(name="list")(), label=single.options(name="label")())
    graph, run = make_graph(several.map(many)), FoldedRun()
    for event in [*run_begins(*graph.specs(Capabilities(site=""))), StageExpanded(1.0, "many", 2)]:
        run.on(event)
    payloads = Payloads(graph, tmp_path, tmp_path, lambda *task: {("many", 1): dump("b")}[task], run=run)
    assert payloads.width("many") == 2
    assert [load(value) for value in payloads.task("several", 1, Resources(2)).inputs] == ["b"]


def test_a_chain_of_any_length_travels_and_what_its_nodes_share_does_once() -> None:
    table = bytes(100_000)
    node = single(table)
    for _ in range(3000):
        node = single(node, table=table)
    graph = make_graph([node])
    data = pack({"result": graph.result}, [], graph.nodes.values())
    assert len(data) < 2 * len(table) + 3000 * 300
    again = make_graph(unpack(data)["result"])
    assert again.predecessors == graph.predecessors
    assert all(node.kwargs.get("table", table) == table for node in again.nodes.values())


def test_functions_are_files_that_load_again(tmp_path: Path) -> None:
    offset = 5
    made = Made(tmp_path, stage(lambda x: x + offset).options(name="shift")(1))
    made.payloads.save()
    file = made.made("shift").function
    assert pickle.loads(Path(file).read_bytes())(1) == 6
    assert Path(file).stat().st_mode & 0o077 == 0, "private"


def test_arguments_that_are_known_travel_in_the_task(tmp_path: Path) -> None:
    made = Made(tmp_path, single(1, [2], key="three"))
    assert made.task("single") == ((1, [2]), {"key": "three"}, ())


def test_results_are_passed_on_unopened(tmp_path: Path) -> None:
    made = Made(tmp_path, single(1, single([single.options(name="deep")()]), x=single.options(name="last")()))
    made.results = {("single", 0): b"never opened here", ("last", 0): "elsewhere"}
    task = made.made("single-2")
    assert load(task.arguments) == ((1, Input(0)), {"x": Input(1)})
    assert task.inputs == (b"never opened here", "elsewhere")


def test_a_parallel_stages_result_is_a_list_of_inputs(tmp_path: Path) -> None:
    made = Made(tmp_path, single(0, several.map([1, 2, 3])))
    made.give("several", 10, 20, 30)
    assert made.task("single") == ((0, Input(0, 3)), {}, (10, 20, 30))


def test_each_task_of_a_parallel_stage_gets_its_elements(tmp_path: Path) -> None:
    one = single()
    made = Made(tmp_path, several.map([1, one, [one]], [4, 5, 6]))
    made.give("single", "result")
    assert made.task("several", 0) == ((1, 4), {}, ())
    assert made.task("several", 1) == ((Input(0), 5), {}, ("result",))
    assert made.task("several", 2) == (([Input(0)], 6), {}, ("result",))
    assert made.made("several").resources.cores == 2


@pytest.mark.parametrize("value", [[1, 2, 3], (1, 2, 3), range(1, 4), deque([1, 2, 3])])
def test_a_result_to_map_over_may_be_any_iterable(tmp_path: Path, value: Any) -> None:
    made = Made(tmp_path, several.map(single()))
    made.give("single", value)
    assert made.payloads.width("several") == 3
    assert made.task("several", 2) == ((3,), {}, ())


def test_a_large_common_argument_is_written_once(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map([1, 2], table="x" * 5000))
    assert made.task("several", 0) == ((1,), {"table": Input(0)}, ("x" * 5000,))
    made.task("several", 1)
    assert len(list((tmp_path / "values").iterdir())) == 1


def test_large_arguments_go_to_a_file(tmp_path: Path) -> None:
    made = Made(tmp_path, single("x" * 2 * INLINE_MOST))
    arguments = made.made("single").arguments
    assert isinstance(arguments, str)
    assert load(arguments) == (("x" * 2 * INLINE_MOST,), {})


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (single(1, threading.Lock()), "argument 1 of stage 'single' cannot be sent to another process: TypeError"),
        (single(1, lock=[threading.Lock()]), "argument 'lock' of stage 'single' cannot be sent"),
        (several.map([threading.Lock()]), "argument 0 of stage 'several' cannot be sent"),
        (several.map([1], y=threading.Lock()), "argument 'y' of stage 'several' cannot be sent"),
        (several.map([], y=threading.Lock()), "argument 'y' of stage 'several' cannot be sent"),
        (single(single(threading.Lock())), "argument 0 of stage 'single' cannot be sent"),
    ],
)
def test_arguments_that_cannot_be_pickled_are_refused_before_the_run(tmp_path: Path, node: Any, what: str) -> None:
    with pytest.raises(Unpicklable, match="Pass a path, or what is needed to make it there") as caught:
        Made(tmp_path, node).payloads.save()
    assert what in str(caught.value)


@dataclass
class Config:
    image: Any


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (single(1, Config(single())), "argument 1 of stage 'single'"),
        (single(x={"deep": [deque([single()])]}), "argument 'x' of stage 'single'"),
        (several.map([1], y=Config(single())), "argument 'y' of stage 'several'"),
        (several.map([Config(single())]), "argument 0 of stage 'several'"),
    ],
)
def test_a_result_that_is_wanted_where_it_cannot_be_put_is_refused_before_the_run(
    tmp_path: Path, node: Any, what: str
) -> None:
    with pytest.raises(GraphError) as caught:
        Made(tmp_path, node).payloads.save()
    assert str(caught.value).startswith(f"{what}: <node single> stands in an object")
    assert "pass it by itself, or in lists, tuples, sets and dicts" in str(caught.value)


def test_a_function_that_cannot_travel(tmp_path: Path) -> None:
    lock = threading.Lock()

    @stage
    def hold() -> bool:
        return lock.locked()

    with pytest.raises(Unpicklable, match="the function of stage 'hold' cannot be sent to another process"):
        Made(tmp_path, hold()).payloads.save()


def test_a_result_that_cannot_be_read_by_the_driver(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(single()))
    made.results["single", 0] = b"cno_such_module\nThing\n."
    with pytest.raises(
        GraphError, match="which cannot be read here: ModuleNotFoundError: No module named 'no_such_module'"
    ):
        made.payloads.width("several")


# Virtual time.


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.fixture
def both(tmp_path: Path) -> Any:
    """Calls a function with arguments and inputs in both ways: value (or None), error and traceback of each."""

    def call(function: Any, args: tuple[Any, ...], inputs: tuple[bytes, ...] = ()) -> list[tuple[Any, str, str]]:
        file = tmp_path / f"function-{id(function)}"
        file.write_bytes(dump(function))
        task = Task("s", 0, str(file), dump((args, {})), inputs, Resources())
        outcomes = [
            Calls(Times(), tmp_path, str(Path.cwd())).call(task),
            Caller(str(tmp_path)).run(hub.task_order(task, 1, spanning=False)),
        ]
        return [
            (None if outcome.value is None else load(outcome.value), outcome.error, outcome.traceback)
            for outcome in outcomes
        ]

    return call


def test_run_times_of_a_run_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such event log"):
        recorded(tmp_path / "nothing", None)
    with EventLog(tmp_path / "events.db") as log:
        log.append(run_begins(stage_spec("a", 1, 1)))
    with pytest.raises(InvalidInput, match="no task of that run has ended, so it has no run times"):
        recorded(tmp_path, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([Pair(Input(0), 2)], [Pair(7, 2)]),
        (OrderedDict(a=Input(1)), OrderedDict(a=8)),
        ({"x": Input(0, 2)}, {"x": [7, 8]}),
    ],
)
def test_inputs_take_their_places(both: Any, given: Any, expected: Any) -> None:
    virtual, real = both(lambda value: value, (given,), (dump(7), dump(8)))
    assert virtual == real == (expected, "", "")
    assert type(virtual[0]) is type(real[0]) is type(expected)


def test_a_task_that_fails_says_the_same(both: Any) -> None:
    def fail(word: str) -> None:
        raise KeyError(word)

    virtual, real = both(fail, ("band",))
    assert virtual == real
    assert virtual[1] == "KeyError: 'band'" and virtual[2].count("File") == 1


def test_a_long_result_is_a_file_in_both(both: Any, tmp_path: Path) -> None:
    virtual, real = both(lambda: b"x" * 100_000, ())
    assert virtual == real == (b"x" * 100_000, "", "")
    assert len(list(tmp_path.glob("s-0-*.pkl"))) == 2
