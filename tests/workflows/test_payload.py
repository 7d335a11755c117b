from __future__ import annotations

import pickle
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import GraphError, Unpicklable
from asa.core.job import Resources
from asa.core.task import Input, Task, Value
from asa.log.values import INLINE_MOST, load
from asa.security.files import private_directory
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.stage import stage


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


def test_functions_are_files_that_load_again(tmp_path: Path) -> None:
    offset = 5
    made = Made(tmp_path, stage(lambda x: x + offset).options(name="shift")(1))
    made.payloads.save()
    file = made.made("shift").function
    assert pickle.loads(Path(file).read_bytes())(1) == 6
    assert Path(file).stat().st_mode & 0o077 == 0, "nobody else's business"


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


def test_an_empty_result_is_an_empty_list(tmp_path: Path) -> None:
    made = Made(tmp_path, [single(several.map([])), several.map([7], y=several.map([]))])
    assert made.task("single") == (([],), {}, ())
    assert made.task("several-3") == ((7,), {"y": []}, ())


def test_each_task_of_a_parallel_stage_gets_its_elements(tmp_path: Path) -> None:
    one = single()
    made = Made(tmp_path, several.map([1, one, [one]], [4, 5, 6]))
    made.give("single", "result")
    assert made.task("several", 0) == ((1, 4), {}, ())
    assert made.task("several", 1) == ((Input(0), 5), {}, ("result",))
    assert made.task("several", 2) == (([Input(0)], 6), {}, ("result",))
    assert made.made("several").resources.cores == 2


def test_parallel_over_parallel_goes_element_by_element(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(several.map([1, 2]), [3, 4]))
    made.give("several", 10, 20)
    assert made.payloads.width("several-2") == 2
    assert made.task("several-2", 1) == ((Input(0), 4), {}, (20,))


@pytest.mark.parametrize("value", [[1, 2, 3], (1, 2, 3), range(1, 4), {1: "a", 2: "b", 3: "c"}])
def test_a_result_to_map_over_may_be_any_iterable(tmp_path: Path, value: Any) -> None:
    made = Made(tmp_path, several.map(single()))
    made.give("single", value)
    assert made.payloads.width("several") == 3
    assert made.task("several", 2) == ((3,), {}, ())


def test_common_arguments_come_after_those_inputs_that_are_common(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(several.map([1, 2]), extra=single(), more=5))
    made.give("several", 10, 20)
    made.give("single", "common")
    assert made.task("several-2", 1) == ((Input(1),), {"extra": Input(0), "more": 5}, ("common", 20))


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
def test_what_cannot_travel_is_refused_before_the_run(tmp_path: Path, node: Any, what: str) -> None:
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


def test_a_result_that_is_no_list(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(single()))
    made.give("single", 5)
    with pytest.raises(
        GraphError,
        match=r"is mapped over the result of stage 'single', which is no list but int: return a list there, "
        r"or call 'several' without \.map",
    ):
        made.payloads.width("several")


def test_a_result_that_cannot_be_read_by_the_driver(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(single()))
    made.results["single", 0] = b"cno_such_module\nThing\n."
    with pytest.raises(
        GraphError, match="which cannot be read here: ModuleNotFoundError: No module named 'no_such_module'"
    ):
        made.payloads.width("several")


def test_results_of_different_lengths(tmp_path: Path) -> None:
    made = Made(tmp_path, several.map(single(), [1, 2]))
    made.give("single", [1, 2, 3])
    with pytest.raises(GraphError, match=r"stage 'several' maps over lists of different lengths: \[2, 3\]"):
        made.made("several")
