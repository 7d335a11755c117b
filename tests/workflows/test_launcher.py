"""Stages with a launcher, from their declaration to the tasks that are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import asa
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.launch import Launch, Program
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads

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
    [(100, 1, 4, 100, 100), (57, 1, 3, 57, 57), (64, 8, 3, 72, 8), (10, 4, 1, 8, 2), (3, 8, 1, 8, 1)],
)
def test_cores_are_spread_without_parting_a_rank(
    cores: int, task_cores: int, nodes: int, held: int, ranks: int
) -> None:
    stage = simulate.options(cores=cores, task_cores=task_cores)
    resources, task = task_on(CLUSTER, stage(1))
    assert (resources.nodes, resources.cores) == (nodes, held) and task == resources
    assert stage.launch is not None and stage.launch.ranks == ranks


def test_options_keep_what_they_do_not_change() -> None:
    smaller = simulate.options(nodes=1, tasks_per_node=2)
    assert smaller.launch == Launch(("srun", "--mpi=pmix"), ranks=2, cores=3)
    assert simulate.options(launcher="mpirun").launch == Launch(("mpirun",), ranks=8, cores=3)


def test_a_command_starts_its_program_itself() -> None:
    hello = asa.command("hello {x}", cores=4, launcher="mpirun")
    assert isinstance(hello.function, Program)
    for stage in (hello, hello.options(cores=2)):
        assert stage.launch is not None and stage.launch.program
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


def test_the_graph_tells_of_it() -> None:
    assert str(make_graph(simulate(1))) == "simulate: 1 task, 24 cores, 8 ranks on 2 nodes by srun, 1 h"
    assert "64 cores, 64 ranks by srun" in str(make_graph(simulate.options(cores=64, task_cores=1)(1)))


def test_the_tasks_carry_it(tmp_path: Path) -> None:
    payloads = Payloads(make_graph(simulate(1)), tmp_path, tmp_path, lambda stage, index: b"")
    payloads.save()
    task = payloads.task("simulate", 0, Resources(24, nodes=2))
    assert task.launch == simulate.launch and task.resources == Resources(24, nodes=2)
