from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

import asa
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.workflows.stage import Node, Stage, nodes_in, replace_nodes, stage


@stage
def add(x: int, y: int = 0) -> int:
    """Adds."""
    return x + y


@stage(cores=8, task_cores=2, memory="8G", gpus=4, walltime="30m", retries=3)
def large(x: int) -> int:
    return x


# ---------------------------------------------------------------------------------------------------- needs


def test_a_plain_stage_needs_one_core_for_an_hour() -> None:
    assert (add.needs.resources, add.needs.task) == (Resources(1), Resources(1))
    assert (add.needs.walltime_s, add.needs.retries) == (3600.0, 0)
    assert (add.name, add.__doc__, add.function(2, 3), repr(add)) == ("add", "Adds.", 5, "<stage add>")


def test_what_a_stage_holds_is_shared_evenly_by_its_tasks() -> None:
    assert large.needs.resources == Resources(8, memory=8 * 2**30, gpus=4)
    assert large.needs.task == Resources(2, memory=2 * 2**30, gpus=1)
    assert (large.needs.walltime_s, large.needs.retries) == (1800.0, 3)


def test_every_task_gets_a_gpu_also_when_there_are_fewer_than_could_run() -> None:
    assert stage(cores=8, gpus=2)(abs).needs.task.gpus == 1


def test_a_name_of_its_own() -> None:
    assert asa.stage(name="other", cores=2)(len).name == "other"
    with pytest.raises(UnknownName, match="option of stage 'other'"):
        asa.stage(name="other", core=2)(len)


def test_nodes_instead_of_cores() -> None:
    assert stage(nodes=4)(abs).needs.resources == Resources(4, nodes=4)
    assert stage(nodes=4, tasks_per_node=7)(abs).needs.resources == Resources(28, nodes=4)
    assert stage(nodes=2, tasks_per_node=3, task_cores=4)(abs).needs.resources == Resources(24, nodes=2)
    assert stage(cores=12, nodes=3)(abs).needs.resources == Resources(12, nodes=3)
    assert stage(tasks_per_node=3)(abs).needs.resources == Resources(3, nodes=1)


def test_a_task_that_is_larger_than_the_stage_makes_the_stage_as_large() -> None:
    assert stage(task_cores=4)(abs).needs.resources == Resources(4)


def test_options_change_only_what_they_name() -> None:
    other = large.options(cores=16, name="larger")
    assert (other.name, other.needs.resources.cores, other.needs.task.cores) == ("larger", 16, 2)
    assert (other.needs.walltime_s, other.needs.retries) == (1800.0, 3)
    assert (large.name, large.needs.resources.cores) == ("large", 8), "the stage itself stays as it was"
    assert large.options(walltime=timedelta(hours=2)).needs.resources == large.needs.resources


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"cores": 0}, "stage 'work': cores must be a whole number of at least 1, not 0"),
        ({"cores": 2.5}, "stage 'work': cores must be a whole number of at least 1, not 2.5"),
        ({"nodes": 3, "cores": 8}, "stage 'work': 8 cores do not divide over 3 nodes: ask for a multiple of 3 cores"),
        ({"cores": 8, "tasks_per_node": 2}, "stage 'work': give either cores=, or nodes= with tasks_per_node="),
        ({"walltime": "30"}, "stage 'work': walltime '30' is not a positive duration: write '90s'"),
        ({"memory": "lots"}, "stage 'work': memory 'lots' is not a positive memory size: write bytes as an int"),
        ({"retries": -1}, "stage 'work': retries must be a whole number of at least 0, not -1"),
        ({"retries": True}, "stage 'work': retries must be a whole number of at least 0, not True"),
        ({"gpus": -1}, "stage 'work': gpus must be a whole number of at least 0, not -1"),
        ({"task_cores": 0}, "stage 'work': task_cores must be a whole number of at least 1, not 0"),
        ({"nodes": 0}, "stage 'work': nodes must be a whole number of at least 1, not 0"),
        ({"tasks_per_node": 0}, "stage 'work': tasks_per_node must be a whole number of at least 1, not 0"),
    ],
)
def test_needs_that_cannot_be_used(needs: dict[str, Any], said: str) -> None:
    def work() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        stage(**needs)(work)
    assert str(caught.value).startswith(said)


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownName, match=r"unknown option of stage 'add': 'core': did you mean 'cores'\?"):
        add.options(core=4)
    with pytest.raises(UnknownName, match=r"unknown option of stage 'abs': 'wall_time': did you mean 'walltime'\?"):
        stage(wall_time=4)(abs)


def test_an_async_function_is_refused() -> None:
    async def work() -> None: ...

    with pytest.raises(InvalidInput, match="stage 'work' is an async function: make it a plain one"):
        stage(work)


# ---------------------------------------------------------------------------------------------------- nodes


def test_calling_a_stage_calls_nothing_yet() -> None:
    node = add(1, y=2)
    assert isinstance(node, Node)
    assert (node.stage, node.args, node.kwargs, node.mapped) == (add, (1,), {"y": 2}, False)
    assert repr(node) == "<node add>"


def test_mapping_takes_any_iterables_side_by_side_and_common_arguments() -> None:
    node = add.map((n for n in range(3)), y=9)
    assert (node.args, node.kwargs, node.mapped) == (([0, 1, 2],), {"y": 9}, True)
    inner = add.map([1, 2])
    assert add.map(inner, [3, 4]).args == (inner, [3, 4])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: add(), "stage 'add'(x: 'int', y: 'int' = 0) -> 'int': missing a required argument: 'x'"),
        (lambda: add(1, z=2), "got an unexpected keyword argument 'z'"),
        (lambda: add.map(), "add.map() needs at least one list or node to map over"),
        (lambda: add.map([1], [2], [3]), "too many positional arguments"),
        (lambda: add.map([1], x=3), "multiple values for argument 'x'"),
        (lambda: add.map([1, 2], [3]), "add.map() was given lists of different lengths: [1, 2]"),
        (lambda: add.map(5), "add.map() maps over lists and nodes, not over int: 5"),
    ],
)
def test_calls_that_do_not_fit_are_refused_at_once(make: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert said in str(caught.value)


def test_builtins_without_a_signature_can_be_stages() -> None:
    assert repr(stage(max)(1, 2)) == "<node max>"
    assert Stage(functools.partial(pow, 2), add.needs).name == "partial"


def test_a_value_that_is_not_known_yet_cannot_be_looked_at() -> None:
    with pytest.raises(InvalidInput, match=r"stage 'add' is not known .* use other_stage.map\(node\)"):
        list(add(1))
    with pytest.raises(InvalidInput, match="stage 'add' is not known before the workflow runs: decide inside a stage"):
        bool(add(1))


def test_after_returns_the_node_itself() -> None:
    first, second = add(1), add(2)
    assert second.after(first) is second
    assert second.predecessors == (first,)


# -------------------------------------------------------------------------------------- nodes in structures


def test_nodes_are_found_and_replaced_anywhere() -> None:
    a, b, c = add(1), add(2), add(3)
    value = {"x": [a, (b, 1)], "y": {c}, "z": 5}
    assert set(nodes_in(value)) == {a, b, c}
    assert replace_nodes(value, {a: 1, b: 2, c: 3}.__getitem__) == {"x": [1, (2, 1)], "y": {3}, "z": 5}
    assert set(value["x"]) == {a, (b, 1)}, "the caller's own is left alone"


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: Pair(node, 2),
        lambda node: [Pair(node, 2)],
        lambda node: OrderedDict(a=node),
        lambda node: [OrderedDict(a=node)],
        lambda node: [defaultdict(list, a=node)],
        lambda node: {node: "a key"},
    ],
)
def test_what_is_found_is_what_is_replaced(wrap: Callable[[Any], Any]) -> None:
    node = add(1)
    assert nodes_in(wrap(node)) == [node]
    assert replace_nodes(wrap(node), lambda _: 7) == wrap(7)


def test_structures_without_nodes_are_not_copied() -> None:
    value = [[1, 2], (3, "four")]
    assert replace_nodes(value, repr) == value
    plain = list(range(10))
    assert replace_nodes(plain, repr) is plain


def test_the_package_offers_it() -> None:
    assert asa.stage is stage
