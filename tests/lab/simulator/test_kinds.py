"""Nodes that differ, in cores, memory, GPUs and features, and jobs that ask for them; the engine against a slow
scheduler of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import REFUSALS, why_refused
from asa.lab.simulator.validate import violations
from tests.lab.simulator.cases import whole_numbers
from tests.lab.simulator.test_partitions import check_agreement

CONSTRAINTS = ("a", "b", "a&b", "a|b", "b|c", "c")
"""No node has c."""


@st.composite
def kinds(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs with GPUs, memory and constraints, on nodes that differ, in partitions that may overlap."""
    nodes = draw(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=2, max_size=5))
    some = st.sets(st.integers(0, len(nodes) - 1), min_size=1)
    partitions = {
        name: Partition(tuple(sorted(draw(some))), max_nodes=draw(st.integers(0, 2)), tier=draw(st.integers(1, 2)))
        for name in draw(st.sampled_from([("x",), ("x", "y")]))
    }
    features = {name: tuple(draw(some)) for name in ("a", "b")}
    count = draw(st.integers(1, 10))
    column = whole_numbers(draw, count)
    jobs = Workload.of(
        submit=column(0, 5), run=column(1, 9), walltime=column(1, 9), units=column(1, 3),
        demands=[[1, 0, 0], [1, 1, 0], [2, 1, 1], [1, 0, 1]], kind=column(0, 3),
        partition=column(-1, len(partitions) - 1), constraint=column(-1, len(CONSTRAINTS) - 1),
        labels={"partition": tuple(partitions), "constraint": CONSTRAINTS},
    )  # fmt: skip
    capacity = np.array(nodes) + np.array([1, 0, 0])
    return jobs, Cluster(capacity, ("cores", "memory", "gpus"), partitions=partitions, features=features)


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=kinds())
def test_they_agree_on_nodes_that_differ(depth: float, case: tuple[Workload, Cluster]) -> None:
    check_agreement(*case, depth)


@pytest.mark.parametrize("dispatcher", ["random", "binpacking", "easy++", "listplan"])
@given(case=kinds())
def test_other_dispatchers_choose_such_nodes_too(dispatcher: str, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    free = {name: replace(each, max_nodes=0) for name, each in cluster.partitions.items()}  # plans know no such limit
    cluster = replace(cluster, partitions=free)
    schedule = simulate(jobs, cluster, dispatcher)
    assert violations(schedule) == []
    assert np.isnan(schedule.start).tolist() == (why_refused(jobs, cluster) > 0).tolist()


def machine(**others: object) -> Cluster:
    """Two plain nodes, two with a GPU, one of which is new, and a new one without."""
    capacity = np.array([[4, 0], [4, 0], [4, 1], [4, 1], [4, 0]])
    return replace(Cluster(capacity, ("cores", "gpus"), features={"new": (3, 4), "gpu": (2, 3)}), **others)


def asking(*jobs: tuple[int, int, str]) -> Workload:
    """Jobs as (units, GPUs and cores of each, constraint), one after another, that run for 10 s."""
    units, gpus, words = zip(*jobs, strict=True)
    names = tuple(dict.fromkeys(words))
    return Workload.of(
        submit=range(len(jobs)), run=[10] * len(jobs), walltime=[10] * len(jobs), units=units, kind=gpus,
        demands=[[1, 0], [1, 1]], resources=("cores", "gpus"),
        constraint=[names.index(word) if word else -1 for word in words],
        labels={"constraint": names},
    )  # fmt: skip


def test_a_job_is_on_nodes_with_all_its_features_or_with_one_of_them() -> None:
    jobs = asking((1, 0, "new"), (1, 0, "new&gpu"), (13, 0, "new|gpu"), (1, 1, ""))
    schedule = simulate(jobs, machine(), "fcfs")
    assert schedule.placements is not None
    on = [[node for run in schedule.placements.of(row) for node in range(run[0], run[1] + 1)] for row in range(4)]
    assert on[:2] == [[3], [3]] and not np.isfinite(schedule.start[2]) and on[3] == [2]
    assert [REFUSALS[code] for code in why_refused(jobs, machine())] == ["", "", "BadConstraints", ""]
    assert violations(schedule) == []
    elsewhere = replace(schedule, cluster=machine(features={"new": (4,), "gpu": (2,)}))
    assert violations(elsewhere) == [
        "job 1 is on node n3, which is not 'new'",
        "job 2 is on node n3, which is not 'new&gpu'",
    ]


def test_what_no_node_has_is_refused_with_slurm_s_reason() -> None:
    jobs = asking((1, 0, "old"), (3, 1, ""), (3, 1, "gpu"), (9, 0, "new"), (1, 0, "old|new"))
    assert [REFUSALS[code] for code in why_refused(jobs, machine())] == [
        "BadConstraints", "larger than the machine", "BadConstraints", "BadConstraints", "",
    ]  # fmt: skip
    parts = {"all": Partition((0, 1, 2, 3, 4)), "plain": Partition((0, 1))}
    sent = replace(jobs, partition=np.array([0, 0, 0, 0, 1]), labels={**jobs.labels, "partition": tuple(parts)})
    assert [REFUSALS[code] for code in why_refused(sent, machine(partitions=parts))] == [
        "BadConstraints", "PartitionNodeLimit", "BadConstraints", "BadConstraints", "BadConstraints",
    ]  # fmt: skip
    assert not why_refused(jobs.take([0, 3, 4]), machine(features={})).any(), "a machine without features has all"


@pytest.mark.parametrize("words", ["new&gpu|x", "[new|gpu]", "new*2", "new&", "!new", "(new)", "new,gpu"])
def test_other_constraints_are_refused_by_name(words: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"job 2 asks for constraint '.*': names of features joined by '&', or by '\|'"
    ):
        simulate(asking((1, 0, ""), (1, 0, words)), machine())


def test_a_blocked_job_keeps_all_nodes_of_its_partition_without_backfilling() -> None:
    """As Slurm's main scheduler: `job_scheduler.c` leaves out the nodes of the partition, not those of the features."""
    jobs = asking((8, 0, "new"), (1, 0, "new"), (1, 0, ""))
    assert simulate(jobs, machine(), "fcfs").start.tolist() == [0.0, 10.0, 10.0]
    assert simulate(jobs, machine(), "easy").start.tolist() == [0.0, 10.0, 2.0]


def test_a_job_that_comes_on_the_way_is_on_such_nodes_too() -> None:
    engine = Engine(
        Workload.of(submit=[0], run=[5], cores=[2], walltime=[5]), replace(Cluster.of(3, 2), features={"big": (1,)})
    )
    with pytest.raises(InvalidInput, match="the machine could run 2 at most"):
        operations.submit(engine, run=5, walltime=5, units=3, constraint="big")
    rows = [operations.submit(engine, run=5, walltime=5, units=2, constraint="big", watched=False) for _ in range(2)]
    other = operations.submit(engine, run=5, walltime=5, units=2, watched=False)
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][[0, *rows, other]].tolist() == [0.0, 0.0, 5.0, 0.0]


def test_a_feature_names_nodes_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="feature 'big' must name nodes between 0 and 2"):
        replace(Cluster.of(3), features={"big": (3,)})
