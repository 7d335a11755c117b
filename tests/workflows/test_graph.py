from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from asa.core.errors import GraphError, InvalidInput
from asa.core.job import Capabilities, Resources
from asa.workflows.graph import make_graph, spread
from asa.workflows.stage import stage

SITE = Capabilities("there")


@stage(cores=4, walltime="30m", retries=2)
def one(*values: Any, **more: Any) -> Any:
    return values


@stage(walltime="2h")
def other(*values: Any) -> Any:
    return values


def test_names_are_unique_and_in_topological_order() -> None:
    a = one(1)
    b, c = one(a), other(a)
    graph = make_graph([other(b, [c, {"deep": a}]), b])
    assert list(graph.nodes) == ["one", "one-2", "other", "other-2"]
    assert graph.predecessors == {
        "one": (),
        "one-2": ("one",),
        "other": ("one",),
        "other-2": ("one-2", "other", "one"),
    }
    assert graph.names[b] == "one-2"


class Version(tuple[Any, ...]):
    """Not a named tuple: it is made of its items one by one."""

    def __new__(cls, *items: Any) -> Version:
        return super().__new__(cls, items)


@pytest.mark.parametrize("wrap", [Version, lambda node: [Version(node, 1)]])
def test_a_result_that_cannot_be_put_in_its_place_is_refused(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(
        GraphError, match=r"stage 'other': a Version cannot be made anew with a result in it .*: pass a"
    ):
        make_graph(other(wrap(one(1))))
    with pytest.raises(InvalidInput, match="a Version cannot be made anew"):
        make_graph(wrap(one(1)))


def test_a_named_tuple_has_nodes_like_any_other() -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    assert make_graph(other([Pair(one(1), 2)])).predecessors == {"one": (), "other": ("one",)}


def test_a_node_is_a_predecessor_once_however_often_it_is_used() -> None:
    a = one(1)
    assert make_graph(one(a, a, key=a).after(a)).predecessors["one-2"] == ("one",)


def test_the_order_of_after_counts() -> None:
    a, b = one(1), other(2)
    assert make_graph([a, b.after(a)]).predecessors == {"one": (), "other": ("one",)}


def test_a_long_chain_does_not_end_in_recursion() -> None:
    node = one.map([1, 2, 3])
    for _ in range(5000):
        node = one.map(node)
    graph = make_graph(node)
    assert len(graph.nodes) == 5001
    assert graph.width("one-5001") == 3


def test_widths() -> None:
    known, single = one.map([1, 2, 3]), one(5)
    graph = make_graph(
        [known, one.map(known), one.map(single), other(known), one.map([]), one.map(known, single), one.map([], single)]
    )
    assert [graph.width(name) for name in graph.nodes] == [3, 3, 1, None, 1, 0, 3, None]


def test_widths_that_cannot_be_are_told() -> None:
    with pytest.raises(GraphError, match=r"stage 'one-2' maps over lists of different lengths: \[2, 3\]"):
        make_graph(one.map(one.map([1, 2]), [1, 2, 3]))


@pytest.mark.parametrize("value", [5, [], {"x": 3}, one, "one"])
def test_what_is_no_workflow(value: Any) -> None:
    with pytest.raises(
        GraphError, match=r"is not a workflow: it contains no call of a stage. Decorate a function with"
    ):
        make_graph(value)


def test_a_cycle_is_shown_as_a_path() -> None:
    a = one(1)
    b = other(a)
    c = one(b)
    a.after(c)
    with pytest.raises(
        GraphError, match=r"^the workflow has a cycle, so it could never start: one -> other -> one -> one$"
    ):
        make_graph(c)


def test_a_stage_that_waits_for_itself() -> None:
    a = one(1)
    a.after(a)
    with pytest.raises(GraphError, match=r"could never start: one -> one$"):
        make_graph([other(2), a])


# ----------------------------------------------------------------------------------------------- to the plan


def test_specs_are_what_the_plan_needs() -> None:
    (first, second) = make_graph(other(one.map([1, 2]))).specs(SITE, lambda name, walltime_s: 60.0)
    assert (first.name, first.resources, first.task, first.width) == ("one", Resources(4), Resources(1), 2)
    assert (first.walltime_s, first.run_time_s, first.retries, first.predecessors) == (1800.0, 60.0, 2, ())
    assert (second.name, second.width, second.predecessors) == ("other", 1, ("one",))


def test_the_expected_run_time_is_the_wall_time_at_most_and_by_default() -> None:
    graph = make_graph(one(1))
    assert graph.specs(SITE, lambda _name, _walltime_s: 9e9)[0].run_time_s == 1800.0
    assert graph.specs(SITE)[0].run_time_s == 1800.0


def test_cores_are_spread_over_as_few_nodes_as_hold_them() -> None:
    site = Capabilities("there", cores_per_node=28)
    graph = make_graph(one.options(cores=100)(1))
    assert graph.specs(site)[0].resources == Resources(100, nodes=4)
    assert spread(Resources(28), 28) == Resources(28, nodes=1)
    assert spread(Resources(29), 28) == Resources(30, nodes=2)
    assert spread(Resources(8, nodes=8), 28) == Resources(8, nodes=8), "what is said is said"
    assert spread(Resources(100), None) == Resources(100)


def test_a_stage_larger_than_the_site() -> None:
    graph = make_graph(one(1))
    graph.check(Capabilities("there", largest=Resources(4)))
    with pytest.raises(GraphError, match=r"stage 'one' asks for 4 cores, more than there ever gives") as caught:
        graph.check(Capabilities("there", largest=Resources(3)))
    assert str(caught.value).endswith("lower the stage's needs, or choose a larger machine")
    with pytest.raises(GraphError, match="lower the stage's needs, or pretend with 'local:cores=4'"):
        graph.check(Capabilities("local", largest=Resources(3)))


def test_a_stage_longer_than_the_site_allows() -> None:
    graph = make_graph(other(1))
    graph.check(Capabilities("there", longest_s=7200.0))
    with pytest.raises(
        GraphError,
        match=r"stage 'other' asks for a wall time of 2 h, more than the 1 h that there allows: lower walltime=",
    ):
        graph.check(Capabilities("there", longest_s=3600.0))


def test_as_text_and_as_a_drawing() -> None:
    graph = make_graph(other(one.map(other(0)), one.map([1])))
    assert str(graph) == (
        "other: 1 task, 1 core, 2 h\n"
        "one: tasks known at run time, 4 cores, 30 min  after other\n"
        "one-2: 1 task, 4 cores, 30 min\n"
        "other-2: 1 task, 1 core, 2 h  after one, one-2"
    )
    dot = graph.to_dot()
    assert dot.startswith("digraph workflow {")
    assert '"one" [label="one\\n4 cores", shape=box3d, style=""];' in dot
    assert '"other" [label="other\\n1 core"];' in dot
    assert '"other" -> "one";' in dot
    assert dot.count("->") == 3
