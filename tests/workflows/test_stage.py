"""Workflows as they are declared: stages, launchers, commands, nodes, templates, graphs."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import asa
from asa.core.errors import CommandFailed, GraphError, InvalidInput, UnknownName
from asa.core.job import Capabilities, JobRequest, Options, QueueRegime, Resources
from asa.core.launch import Launch, Program
from asa.core.run import Held
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.settings import RunOptions
from asa.workflows.stage import (
    Node,
    Stage,
    StageCommand,
    StageNeeds,
    command,
    merge,
    nodes_in,
    parallel,
    replace_nodes,
    sequence,
    split,
    stage,
)

# Needs.


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


def test_resources_of_a_stage_are_shared_evenly_by_its_tasks() -> None:
    assert large.needs.resources == Resources(8, memory=8 * 2**30, gpus=4)
    assert large.needs.task == Resources(2, memory=2 * 2**30, gpus=1)
    assert (large.needs.walltime_s, large.needs.retries) == (1800.0, 3)
    assert stage(cores=8, gpus=2)(abs).needs.task.gpus == 1, "every task gets one, although more tasks could run"


def test_a_name_of_its_own() -> None:
    assert asa.stage(name="other", cores=2)(len).name == "other"
    with pytest.raises(UnknownName, match="option of stage 'other'"):
        asa.stage(name="other", core=2)(len)


@pytest.mark.parametrize(
    ("needs", "held"),
    [
        ({"nodes": 4}, Resources(4, nodes=4)),
        ({"nodes": 4, "tasks_per_node": 7}, Resources(28, nodes=4)),
        ({"nodes": 2, "tasks_per_node": 3, "task_cores": 4}, Resources(24, nodes=2)),
        ({"cores": 12, "nodes": 3}, Resources(12, nodes=3)),
        ({"tasks_per_node": 3}, Resources(3, nodes=1)),
        ({"task_cores": 4}, Resources(4)),  # a task that is larger than the stage makes the stage as large
    ],
)
def test_nodes_and_tasks_instead_of_cores(needs: dict[str, int], held: Resources) -> None:
    assert stage(**needs)(abs).needs.resources == held


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
        ({"memory": "lots"}, "stage 'work': memory 'lots' is not a positive memory size: write it like '512M'"),
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
    for wrong in (3, one, [first]):
        with pytest.raises(InvalidInput, match=r"^after\(\) takes nodes"):
            second.after(wrong)  # type: ignore[arg-type]
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
def test_found_nodes_are_replaced(wrap: Callable[[Any], Any]) -> None:
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


# Launchers.


CLUSTER = Capabilities("hpc", cores_per_node=28)
LAPTOP = Capabilities("local", regime=QueueRegime.IMMEDIATE, cores_per_node=8, largest=Resources(8))


@asa.stage(nodes=2, tasks_per_node=4, task_cores=3, memory="8G", launcher="srun --mpi=pmix")
def simulate(x: int) -> int:
    return x


def task_on(site: Capabilities, node: asa.Node) -> tuple[Resources, Resources]:
    (spec,) = make_graph(node).specs(site)
    return spec.resources, spec.task


def test_one_task_takes_the_whole_allocation() -> None:
    whole = Resources(24, nodes=2, memory=8 * 2**30)
    assert task_on(CLUSTER, simulate(1)) == (whole, whole)
    assert simulate.launch == Launch(("srun", "--mpi=pmix"), ranks=8, cores=3)


def test_on_a_single_machine_nothing_spans_nodes() -> None:
    resources, task = task_on(LAPTOP, simulate(1))
    assert (resources.nodes, task.nodes, task.cores) == (2, None, 24)


@pytest.mark.parametrize(
    ("cores", "task_cores", "nodes", "held", "ranks"),
    [(100, 1, 4, 100, 100), (57, 1, 3, 57, 57), (64, 8, 3, 72, 8), (8, 8, 1, 8, 1)],
)
def test_cores_are_packed_without_parting_a_rank(
    cores: int, task_cores: int, nodes: int, held: int, ranks: int
) -> None:
    stage = simulate.options(cores=cores, task_cores=task_cores, spread="pack")
    resources, task = task_on(CLUSTER, stage(1))
    assert (resources.nodes, resources.cores) == (nodes, held) and task == resources
    assert stage.launch is not None and stage.launch.ranks == ranks


def test_ranks_are_wherever_there_are_cores() -> None:
    resources, task = task_on(CLUSTER, simulate.options(cores=64, task_cores=8)(1))
    assert resources == task == Resources(64, memory=8 << 30, unit=8)
    assert str(resources) == "64 cores in parts of 8 on any nodes with 8 GiB"


def test_options_keep_what_they_do_not_change() -> None:
    smaller = simulate.options(nodes=1, tasks_per_node=2)
    assert smaller.launch == Launch(("srun", "--mpi=pmix"), ranks=2, cores=3)
    assert simulate.options(launcher="mpirun").launch == Launch(("mpirun",), ranks=8, cores=3)


def test_a_command_starts_its_program_itself() -> None:
    hello = asa.command("hello {x}", cores=4, launcher="mpirun")
    assert isinstance(hello.function, Program)
    for each in (hello, hello.options(cores=2)):
        assert each.launch is not None and each.launch.program
    assert simulate.launch is not None and not simulate.launch.program


def test_a_launched_command_runs_behind_the_prefix_and_in_its_environment(tmp_path: Path) -> None:
    command = asa.command("sh -c 'echo $0 $WHO $MORE' {prefix}", env={"MORE": "too"}, launcher="mpirun")
    run = command.function.launched(["env", "WHO=me"], {"PATH": "/usr/bin:/bin", "MORE": "not"})
    assert run(prefix="x") == "x me too\n"


def test_no_launcher_no_launch() -> None:
    assert asa.stage(abs).launch is None
    assert task_on(CLUSTER, asa.stage(nodes=2)(abs)(1))[1] == Resources(1)


def test_a_launcher_that_is_none_is_named_with_its_stage() -> None:
    with pytest.raises(UnknownName, match="unknown launcher of stage 'abs': 'mpirum': did you mean 'mpirun'"):
        asa.stage(launcher="mpirum")(abs)
    with pytest.raises(InvalidInput, match="stage 'abs': launcher option '-n' follows from the stage"):
        asa.stage(launcher="srun -n 4")(abs)


def test_the_graph_shows_the_launcher() -> None:
    assert str(make_graph(simulate(1))) == (
        "simulate: 1 task, 24 cores on 2 nodes with 8 GiB (charged 24), 8 ranks on 2 nodes by srun, 1 h"
    )
    anywhere = simulate.options(cores=64, task_cores=1)
    assert "64 cores on any nodes with 8 GiB (charged 64), 64 ranks by srun" in str(make_graph(anywhere(1)))


def test_the_tasks_carry_it(tmp_path: Path) -> None:
    payloads = Payloads(make_graph(simulate(1)), tmp_path, tmp_path, lambda stage, index: b"")
    payloads.save()
    task = payloads.task("simulate", 0, Resources(24, nodes=2))
    assert task.launch == simulate.launch and task.resources == Resources(24, nodes=2)


# Commands.


PYTHON = sys.executable


def run(template: str, *args: Any, **options: Any) -> Any:
    return command(template, **options).function(*args)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------ declaring


def test_inputs_are_the_names_in_order_of_appearance() -> None:
    declared = command("mProject {image} {out} {header.name}", outputs={"out": "{image.stem}_{band}.fits"}, cores=4)
    assert declared.name == "mProject"
    assert declared.needs.resources.cores == 4
    assert list(inspect.signature(declared.function).parameters) == ["image", "header", "band"]
    assert command("/usr/bin/env true", name="nothing").name == "nothing"


def test_arguments_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidInput, match=r"stage 'cp'\(a, b\): missing a required argument: 'b'"):
        command("cp {a} {b}")("x")


@pytest.mark.parametrize(
    ("template", "outputs", "said"),
    [
        ("", {}, "the command is empty: write it like 'mProject {image} {out} {header}'"),
        ("echo {}", {}, "'{}': every place in braces needs a name, like {image}"),
        ("echo {0}", {}, "'{0}': every place in braces needs a name, like {image}"),
        ("awk {print", {}, "'{print' cannot be formatted (expected '}' before end of string): write '{{'"),
        ("cp {a} {out}", {"out": "{}"}, "'{}': every place in braces needs a name, like {image}"),
        ("echo 'half", {}, 'the command "echo \'half" cannot be split into words: No closing quotation'),
    ],
)
def test_a_template_that_cannot_be_used(template: str, outputs: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        command(template, outputs=outputs)
    assert str(caught.value).startswith(said)


def test_needs_that_cannot_be_used_name_the_program() -> None:
    with pytest.raises(InvalidInput, match="stage 'cp': cores must be a whole number"):
        command("cp {a} {b}", cores=0)


# -------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize(
    ("template", "value", "printed"),
    [
        ("echo {word}", "hello", "hello\n"),
        # a value is never taken apart or executed
        ("printf [%s] {x}", "a b; echo $HOME `id` 'q'", "[a b; echo $HOME `id` 'q']"),
        ("printf [%s] {x}", "{y}", "[{y}]"),
        # a list becomes several words, where it is a word of its own
        ("printf [%s] a{x}", ["b", "c"], "[a['b', 'c']]"),
        ("printf [%s] {xs}", ["a b", Path("c"), 4], "[a b][c][4]"),
        ("printf [%s] {xs} end", (), "[end]"),
        ("echo {{{x}}}", 1, "{1}\n"),
    ],
)
def test_without_outputs_the_value_is_what_was_printed(template: str, value: object, printed: str) -> None:
    assert run(template, value) == printed


def test_one_output_is_its_path_and_several_are_a_dict(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    copy = run("cp {source} {out}", Path("a.txt"), outputs={"out": "deep/{source.stem}.copy"})
    assert copy == Path("deep/a.copy")
    assert copy.read_text() == "words"
    two = run("touch {x} {y}", outputs={"x": "1", "y": "2"})
    assert two == {"x": Path("1"), "y": Path("2")}


def test_other_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    assert run("sh -c 'echo $KEPT $MORE'", env={"MORE": "more"}) == "kept more\n"


def test_a_command_can_be_pickled() -> None:
    function = pickle.loads(pickle.dumps(StageCommand("echo {x}", {}, (0,))))
    assert function("there") == "there\n"


# ------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("template", "outputs", "said"),
    [
        ("sh -c 'echo oh; exit 3'", {}, r"^`sh -c 'echo oh; exit 3'` ended with exit code 3; it printed: oh$"),
        ("false", {}, r"^`false` ended with exit code 1$"),
        ("sh -c 'kill -9 $$'", {}, r"was killed by signal 9 \(Killed\)$"),
        ("mProjct 1", {}, r"^mProjct cannot be started: No such file or directory: is it installed"),
        # what an earlier attempt left does not pass for an output
        ("true {out}", {"out": "a.fits"}, r"^`true a.fits` ended well but did not write out = a.fits: is that where"),
    ],
)
def test_a_command_that_fails_has_its_last_words(
    tmp_path: Path, template: str, outputs: dict[str, str], said: str
) -> None:
    (tmp_path / "a.fits").write_text("old")
    with pytest.raises(CommandFailed, match=said):
        run(template, outputs=outputs)


def test_exit_codes_that_mean_success() -> None:
    assert run("sh -c 'echo fine; exit 3'", ok=(0, 3)) == "fine\n"


@pytest.mark.parametrize(
    ("template", "value", "said"),
    [
        ("echo {x.stem}", "a.fits", "'{x.stem}' cannot be filled in: 'str' object has no attribute 'stem': parts of"),
        ("echo {x[key]}", {}, "'{x[key]}' cannot be filled in: 'key'"),
        ("echo {x:d}", "one", "'{x:d}' cannot be filled in: Unknown format code 'd'"),
        ("echo {x:>4}", ["a"], "'{x:>4}' cannot be filled in: unsupported format string passed to list"),
    ],
)
def test_a_value_that_does_not_fit_its_placeholder_is_refused(template: str, value: object, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        run(template, value)
    assert str(caught.value).startswith(said)
    with pytest.raises(CommandFailed, match="cannot be filled in: 'str' object has no attribute 'stem'"):
        run("true {image}", "a.fits", outputs={"out": "{image.stem}.h5"})


def test_only_the_end_of_much_output_is_in_the_error() -> None:
    with pytest.raises(CommandFailed) as caught:
        run(f'{PYTHON} -c \'print("x" * 100_000 + "end"); raise SystemExit(1)\'')
    assert str(caught.value).endswith("xend")
    assert len(str(caught.value)) < 2300


def test_an_output_that_would_overwrite_an_input(tmp_path: Path) -> None:
    (tmp_path / "a.fits").write_text("precious")
    with pytest.raises(CommandFailed, match=r"output out = a.fits is also an input, and would be lost"):
        run("cp {source} {out}", "a.fits", outputs={"out": "{source}"})
    assert (tmp_path / "a.fits").read_text() == "precious"


# Templates.


@stage
def cut(text: str) -> list[str]:
    return list(text)


@stage
def shout(letter: str) -> str:
    return letter.upper()


@stage
def glue(letters: list[str]) -> str:
    return "".join(letters)


def order(result: Any) -> list[str]:
    return list(make_graph(result).nodes)


def test_a_sequence_hands_each_result_on() -> None:
    node = sequence(cut, glue)("abc")
    assert node.stage is glue
    assert node.args[0].stage is cut
    assert node.args[0].args == ("abc",)


def test_only_the_first_step_gets_the_templates_arguments() -> None:
    node = sequence(lambda *, text: cut(text), glue)(text="abc")
    assert order(node) == ["cut", "glue"]


def test_parallel_of_one_stage_is_a_task_per_element() -> None:
    node = parallel(shout)(["a", "b"])
    assert (node.mapped, node.args) == (True, (["a", "b"],))


def test_parallel_of_several_gives_each_the_same_input() -> None:
    first, second = parallel(cut, shout)("abc")
    assert (first.stage, second.stage) == (cut, shout)
    assert first.args == second.args == ("abc",)


def test_split_and_merge() -> None:
    assert order(split(cut, shout)("abc")) == ["cut", "shout"]
    assert split(cut, shout)("abc").mapped
    assert order(merge(shout, glue)(["a"])) == ["shout", "glue"]


def test_templates_nest() -> None:
    whole = sequence(split(cut, shout), glue)
    assert order(whole("abc")) == ["cut", "shout", "glue"]
    many = parallel(whole)(["abc", "de"])
    assert [node.stage for node in many] == [glue, glue]
    assert order(many) == ["cut", "shout", "glue", "cut-2", "shout-2", "glue-2"]


def test_a_template_cannot_be_repeated_over_a_result() -> None:
    with pytest.raises(InvalidInput, match="a template can only be repeated over a list that is known before"):
        parallel(sequence(cut, glue))(cut("abc"))


@pytest.mark.parametrize("template", [sequence, parallel])
def test_a_template_of_nothing(template: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"{template.__name__}\(\) needs at least one stage"):
        template()


def test_a_template_is_made_of_stages_not_of_their_calls() -> None:
    with pytest.raises(InvalidInput, match=r"sequence\(\) is made of stages and templates, not of <node cut>"):
        sequence(cut("abc"), glue)
    with pytest.raises(InvalidInput, match=r"parallel\(\) is made of stages and templates, not of 5"):
        parallel(5)
    assert isinstance(sequence(cut)("abc"), Node)


# Graphs.


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


def test_a_node_is_a_predecessor_once_however_often_it_is_used() -> None:
    a, b = one(1), other(2)
    assert make_graph(one(a, a, key=a).after(a)).predecessors["one-2"] == ("one",)
    assert make_graph([a, b.after(a)]).predecessors == {"one": (), "other": ("one",)}
    assert make_graph(other([Pair(a, 2)])).predecessors == {"one": (), "other": ("one",)}, "in a named tuple, too"


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


def test_nested_maps_of_different_widths_are_refused() -> None:
    with pytest.raises(GraphError, match=r"stage 'one-2' maps over lists of different lengths: \[2, 3\]"):
        make_graph(one.map(one.map([1, 2]), [1, 2, 3]))


@pytest.mark.parametrize("value", [5, [], {"x": 3}, one, "one"])
def test_a_value_that_is_no_workflow_is_refused(value: Any) -> None:
    with pytest.raises(
        GraphError, match=r"is not a workflow: it contains no call of a stage. Decorate a function with"
    ):
        make_graph(value)


def test_a_cycle_is_shown_as_a_path() -> None:
    a = one(1)
    b = other(a)
    c = one(b)
    a.after(c)
    said = r"^the workflow has a cycle, so it could never start: one -> other -> one -> one$"
    with pytest.raises(GraphError, match=said):
        make_graph(c)
    alone = one(1)
    alone.after(alone)
    with pytest.raises(GraphError, match=r"could never start: one -> one$"):
        make_graph([other(2), alone])


# ----------------------------------------------------------------------------------------------- to the plan


def test_specs_are_what_the_plan_needs() -> None:
    (first, second) = make_graph(other(one.map([1, 2]))).specs(SITE, lambda name, walltime_s: 60.0)
    assert (first.name, first.resources, first.task, first.width) == ("one", Resources(4, unit=1), Resources(1), 2)
    assert (first.walltime_s, first.run_time_s, first.retries, first.predecessors) == (1800.0, 60.0, 2, ())
    assert (second.name, second.width, second.predecessors) == ("other", 1, ("one",))


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"cores": 9, "task_cores": 2}, "cores=9 is no multiple of task_cores=2, so some would be idle: write cores=8"),
        ({"cores": 2, "task_cores": 4}, "cores=2 is no multiple of task_cores=4, so some would be idle: write cores=4"),
        ({"nodes": 2, "cores": 12, "task_cores": 4}, "6 cores on each node, no multiple of task_cores=4"),
        ({"nodes": 2, "spread": "pack"}, "spread='pack' says where cores= lie"),
        ({"cores": 2, "spread": "wide"}, "wide"),
    ],
)
def test_cores_that_no_task_can_use_are_refused_where_they_are_declared(needs: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidInput, UnknownName), match=re.escape(words)) as raised:
        stage(name="blur", **needs)(len)
    assert "stage 'blur'" in str(raised.value)


def test_what_is_packed_is_charged_as_it_is_packed() -> None:
    five, site = make_graph(one.options(cores=5, spread="pack")(1)), Capabilities("there", cores_per_node=4)
    assert "6 cores on 2 nodes (charged 6)" in five.described(site)
    assert "5 cores on as few nodes as hold them (charged 5)" in str(five), "where the nodes are not known"
    assert "5 cores on any nodes (charged 5)" in make_graph(one.options(cores=5)(1)).described(site)
    assert make_graph(one.options(cores=4, gpus=2)(1)).specs(site)[0].resources == Resources(4, nodes=1, gpus=2)


def test_the_expected_run_time_is_the_wall_time_at_most_and_by_default() -> None:
    graph = make_graph(one(1))
    assert graph.specs(SITE, lambda _name, _walltime_s: 9e9)[0].run_time_s == 1800.0
    assert graph.specs(SITE)[0].run_time_s == 1800.0


def test_cores_are_packed_on_as_few_nodes_as_hold_them() -> None:
    site = Capabilities("there", cores_per_node=28)
    graph = make_graph(one.options(cores=100, spread="pack")(1))
    assert graph.specs(site)[0].resources == Resources(100, nodes=4)
    assert Resources(28).packed(28) == Resources(28, nodes=1)
    assert Resources(29).packed(28) == Resources(30, nodes=2)
    assert Resources(8, nodes=8).packed(28) == Resources(8, nodes=8), "what is said is said"
    assert Resources(100).packed(None) == Resources(100)


@pytest.mark.parametrize(
    ("cores", "gpus", "held"),
    [
        (4, 4, Resources(4, nodes=2, gpus=4)),
        (8, 2, Resources(8, nodes=2, gpus=2)),
        (2, 3, Resources(2, nodes=2, gpus=3)),
        (12, 3, Resources(12, nodes=3, gpus=3)),
    ],
)
def test_gpus_take_as_many_nodes_as_have_them(cores: int, gpus: int, held: Resources) -> None:
    site = Capabilities("there", cores_per_node=4, gpus_per_node=2)
    assert make_graph(one.options(cores=cores, gpus=gpus)(1)).specs(site)[0].resources == held


def test_a_task_with_more_gpus_than_any_node_has_is_refused() -> None:
    graph = make_graph(one.options(cores=1, gpus=3)(1))
    graph.check(Capabilities("there", cores_per_node=4, gpus_per_node=3))
    graph.check(Capabilities("there", cores_per_node=4))
    with pytest.raises(GraphError, match="a task of stage 'one' needs 3 GPUs on one node, and nodes of there have 2"):
        graph.check(Capabilities("there", cores_per_node=4, gpus_per_node=2))


def test_what_is_to_be_pretended_is_what_the_machine_lacks() -> None:
    graph = make_graph(one.options(memory="2G", gpus=1)(1))
    with pytest.raises(GraphError, match=r"or pretend with 'local:cores=8,memory=2048M,gpus=1'$"):
        graph.check(Capabilities("local", largest=Resources(8, memory=1 << 30)))


@pytest.mark.parametrize("executor", ["local:workers=threads", "mesos:workers=threads"])
def test_gpus_for_tasks_that_share_a_process_are_refused(tmp_path: Path, executor: str) -> None:
    node, options = one.options(cores=1, gpus=1)(1), {"backend": "local:cores=1,gpus=1", "state": tmp_path}
    with pytest.raises(InvalidInput, match=r"each task of 'one' its own GPUs: .* say workers='processes'"):
        asa.submit(node, executor=executor, **options)
    assert list((tmp_path / "runs").glob("*/jobs/*")) == []


@pytest.mark.parametrize(
    ("site", "said"),
    [
        (Capabilities("there", largest=Resources(4), longest_s=7200.0), ""),
        (
            Capabilities("there", largest=Resources(3)),
            "stage 'one' asks for 4 cores, more than there ever gives .*: lower the stage's needs, or choose a larger",
        ),
        (Capabilities("local", largest=Resources(3)), "lower the stage's needs, or pretend with 'local:cores=4'"),
        (
            Capabilities("there", longest_s=3600.0),
            "stage 'other' asks for a wall time of 2 h, more than the 1 h that there allows: lower walltime=",
        ),
    ],
)
def test_a_stage_too_large_or_too_long_for_the_site(site: Capabilities, said: str) -> None:
    graph = make_graph([one(1), other(1)])
    if not said:
        graph.check(site)
        return
    with pytest.raises(GraphError, match=said):
        graph.check(site)


def test_as_text_and_as_a_drawing() -> None:
    graph = make_graph(other(one.map(other(0)), one.map([1])))
    assert str(graph) == (
        "other: 1 task, 1 core (charged 1), 2 h\n"
        "one: tasks known at run time, 4 at a time, 4 cores on any nodes (charged 4), 30 min  after other\n"
        "one-2: 1 task, 4 cores on any nodes (charged 4), 30 min\n"
        "other-2: 1 task, 1 core (charged 1), 2 h  after one, one-2"
    )
    dot = graph.to_dot()
    assert dot.startswith("digraph workflow {")
    assert '"one" [label="one\\n4 cores", shape=box3d, style=""];' in dot
    assert '"other" [label="other\\n1 core"];' in dot
    assert '"other" -> "one";' in dot
    assert dot.count("->") == 3


# Options of the batch system, and variables.


def solve(x: int) -> int:
    return x


def test_options_of_a_stage_are_those_of_its_jobs_and_tasks() -> None:
    sites: list[Options] = []

    def apart(options: Options) -> Capabilities:
        sites.append(options)
        return Capabilities("hpc", cores_per_node=4, apart=apart)

    cluster = Capabilities("hpc", cores_per_node=28, apart=apart)
    declared = asa.stage(cores=8, spread="pack", partition="gpu", setup=["a", "b"], batch_options={"nice": 10})
    node = declared(solve)(1)
    expected = (("nice", "10"), ("partition", "gpu"), ("setup", "a\nb"))
    resources, task = task_on(cluster, node)
    assert (resources.options, resources.nodes, task.options) == (expected, 2, expected)
    assert set(sites) == {expected}
    assert task_on(LAPTOP, node)[0].options == task_on(CLUSTER, node)[0].options == ()
    other = declared(solve).options(partition="long", batch_options={"exclusive": True})
    assert dict(other.needs.options) == dict(expected) | {"partition": "long", "exclusive": ""}
    assert "partition gpu" in str(make_graph(node))


@pytest.mark.parametrize(
    ("declared", "tasks", "cores"),
    [
        ({}, 4, 4),
        ({}, 100, 8),
        ({"cpus": 3}, 100, 6),
        ({"cpus": 16}, 100, 16),  # more than there is, which is refused when it is checked
        ({"memory": "3G"}, 100, 3),
        ({"cores": 2}, 100, 2),
        ({"cores": 1}, 100, 1),
        ({"nodes": 1, "tasks_per_node": 2}, 100, 2),
    ],
)
def test_on_one_machine_a_mapped_stage_of_no_said_size_takes_as_much_of_it_as_its_tasks_can_use(
    declared: dict[str, Any], tasks: int, cores: int
) -> None:
    laptop = replace(LAPTOP, largest=Resources(8, memory=9 << 30))
    made = asa.stage(**declared)(solve)
    resources, task = task_on(laptop, made.map(range(tasks)))
    assert resources.cores == cores and resources.memory == (task.memory and task.memory * cores // task.cores)
    assert task_on(laptop, made(1))[0].cores == made.needs.resources.cores, "a call has one task"
    assert task_on(CLUSTER, made.map(range(tasks)))[0].cores == made.needs.resources.cores, "elsewhere that is dear"


def test_on_one_machine_a_stage_that_is_mapped_over_what_comes_takes_all_of_it() -> None:
    for before, here in ((asa.stage(solve)(1), 8), (asa.stage(expect=3)(solve).map(range(2)), 2)):
        graph = make_graph(asa.stage(name="many")(solve).map(before))
        many = next(spec for spec in graph.specs(LAPTOP) if spec.name == "many")
        assert (many.resources.cores, many.holding(3).resources.cores) == (here, 3)


def test_tasks_keep_to_jobs_with_their_options() -> None:
    gpu = (("partition", "gpu"),)
    size = Resources(4, options=gpu)
    held = Held(JobRequest("a", size, 60.0, ()), ("a",), (), 0.0, None, nodes={"n": 4})
    assert held.room(Resources(options=gpu), 0.0) == 4
    assert held.room(Resources(), 0.0) == held.room(Resources(options=(("partition", "main"),)), 0.0) == 0


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"partition": ""}, "partition must be a text or a number, not ''"),
        ({"qos": ["a"]}, "qos must be a text"),
        ({"partition": "a", "batch_options": {"partition": "b"}}, "partition is given twice"),
        ({"batch_options": ["nice"]}, "batch_options must be a dict"),
        ({"batch_options": {"exclusive": False}}, "exclusive must be a text"),
        ({"cpus": 2, "task_cores": 2}, "two words for the same"),
        ({"cores": 3, "cpus": 2}, "no multiple of task_cores=2"),
        ({"env": ["A=1"]}, "env must be a dict"),
        ({"env": {"A": 1}}, "env must have names and texts"),
        ({"env": {"A B": "1"}}, "env must have names and texts"),
    ],
)
def test_options_that_cannot_be_meant(needs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=f"stage 'solve': .*{re.escape(message)}"):
        asa.stage(**needs)(solve)


def test_a_stage_has_variables_of_its_own(tmp_path: Path) -> None:
    def seen() -> tuple[str | None, str | None]:
        return os.environ.get("OF_STAGE"), os.environ.get("OF_ALL")

    both = asa.stage(list_of)(asa.stage(env={"OF_STAGE": "x"})(seen)(), asa.stage(seen)())
    run = asa.run(both, backend="local:cores=1", state=tmp_path)
    assert run.result() == [("x", None), (None, None)]
    with pytest.raises(InvalidInput, match="the threads of a node have one environment"):
        asa.run(both, backend="local", executor="local:workers=threads", state=tmp_path)


def list_of(*items: Any) -> list[Any]:
    return list(items)


def test_needs_count_also_where_the_function_is_given_with_them() -> None:
    whole = asa.stage(solve, name="whole", cores=4, partition="long")
    assert (whole.name, whole.needs.resources.cores, whole.needs.options) == ("whole", 4, (("partition", "long"),))
    assert asa.stage(solve).needs == asa.stage()(solve).needs


# Keywords, as editors, type checkers and people get them.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda node: asa.run(node, startegy="auto"), "of asa.run() 'startegy': did you mean 'strategy'?"),
        (lambda node: asa.submit(node, bakend="sim"), "of asa.submit() 'bakend': did you mean 'backend'?"),
        (lambda _: add.options(memry="1G"), "of stage 'add': 'memry': did you mean 'memory'?"),
        (lambda _: command("cat {x}", waltime=3), "of stage 'cat': 'waltime': did you mean 'walltime'?"),
    ],
)
def test_a_wrong_keyword_names_what_was_called_and_what_was_meant(call: Callable[[Node], Any], message: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(f"unknown option {message}")):
        call(add(1))


def test_functions_show_their_keywords() -> None:
    for function, options in ((asa.run, RunOptions), (asa.submit, RunOptions), (stage, StageNeeds)):
        assert options.__annotations__.keys() <= inspect.signature(function).parameters.keys()
        documented = (asa.run if options is RunOptions else function).__doc__ or ""
        names = {name for line in documented.splitlines() for name in line.strip().split(", ")}
        assert options.__annotations__.keys() <= names
    assert inspect.signature(command).parameters.keys() >= {"cores", "shell", "env"}


CHECKED = """
import asa

@asa.stage(cores=2, walltime="10m")
def double(x: int) -> int:
    return 2 * x

@asa.stage
def halve(x: int) -> float:
    return x / 2

reveal_type(double.function(1))
asa.run(double(1), strategy="auto", check=False)
asa.run(double(1), startegy="auto")
asa.submit(double(1), bakend="slurm")
asa.stage(halve.function, memry="4G")
asa.stage(cores="two")(halve.function)
asa.command("cat {x}", waltime="1h")
asa.resume("x", coed=1)
halve.options(core=2)
"""


@pytest.mark.slow
def test_a_type_checker_sees_wrong_keywords_in_a_user_s_file(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mine.py").write_text(CHECKED)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", "mine.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(asa.__file__).parents[1])},
    )
    said = dict(re.findall(r"^mine.py:(\d+): (?:error|note): (.*)", ran.stdout, re.M)[::-1])  # the first of each line
    lines = {line: said.get(str(number), "") for number, line in enumerate(CHECKED.splitlines(), 1)}
    assert lines["reveal_type(double.function(1))"] == 'Revealed type is "int"'
    wrong = {line.partition("(")[0]: words for line, words in lines.items() if words and "reveal" not in line}
    assert (
        'Unexpected keyword argument "startegy" for "run"; did you mean "strategy"'
        in lines['asa.run(double(1), startegy="auto")']
    )
    assert wrong.keys() == {"asa.run", "asa.submit", "asa.stage", "asa.command", "asa.resume", "halve.options"}, ran
    assert said.keys() == {str(number) for number in (12, *range(14, 21))}, ran.stdout
