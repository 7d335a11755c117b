"""Nodes that differ, in cores, memory, GPUs and features, and jobs that ask for them; the engine against a slow
scheduler of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster, NodeWindow, Partition
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import REFUSALS, why_refused
from tests.lab.simulator.cases import whole_numbers
from tests.lab.simulator.test_partitions import Oracle, check_agreement
from tests.lab.simulator.validate import violations

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


TYPED = ("cores", "gpus", "gpus:a", "gpus:b", "gres/x")
ASKS = (
    [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 2, 2, 0, 0], [1, 1, 0, 1, 0], [2, 1, 0, 0, 1],
    [1, 0, 0, 0, 2],
)  # fmt: skip


class DeviceOracle(Oracle):
    """It tries in all ways which devices the jobs on a node could have; nodes of low weight come first."""

    weights: Sequence[int] = ()

    def first(self, row: int, there: dict[int, int]) -> dict[int, int]:
        order = sorted(there, key=lambda node: (self.weights[node], node))
        return super().first(row, {node: there[node] for node in order})

    def free(self, row: int, node: int, start: float, end: float) -> int:
        has, found = self.cluster.capacity[node].tolist(), []
        for at in {start, *(box.start for box in self.boxes if start < box.start < end)}:
            there = [box for box in self.boxes if box.start <= at < box.end]
            found.append(self.fitting(row, has, [box.need for box in there for _ in range(box.on.get(node, 0))]))
        return min(found)

    def fitting(self, row: int, left: list[int], held: Sequence[tuple[int, ...]] = ()) -> int:
        cores, gpus, a, b, x = left
        devices = {"a": a, "b": b, "": gpus - a - b}
        units = [*held]
        while True:
            units.append(self.need(row))
            wanted = ["a" if need[2] else "b" if need[3] else "any" for need in units for _ in range(need[1])]
            enough = sum(need[0] for need in units) <= cores and sum(need[4] for need in units) <= x
            if not (enough and self.possible(devices, wanted)):
                return len(units) - len(held) - 1

    def possible(self, devices: dict[str, int], wanted: list[str]) -> bool:
        return not wanted or any(
            left > 0 and wanted[0] in ("any", kind) and self.possible({**devices, kind: left - 1}, wanted[1:])
            for kind, left in devices.items()
        )


@st.composite
def typed(draw: st.DrawFn) -> tuple[Workload, Cluster, list[int]]:
    """A few jobs that ask for GPUs, of a type or of any, on nodes that have none, one type or several; and weights."""
    nodes = draw(st.lists(st.tuples(st.integers(1, 4), *[st.integers(0, 2)] * 4), min_size=2, max_size=4))
    capacity = [[cores, a + b + none, a, b, x] for cores, a, b, none, x in nodes]
    column = whole_numbers(draw, draw(st.integers(1, 8)))
    jobs = Workload.of(
        submit=column(0, 5), run=column(1, 9), walltime=column(1, 9), units=column(1, 2), demands=ASKS,
        resources=TYPED, kind=column(0, len(ASKS) - 1),
    )  # fmt: skip
    every = {"all": Partition(tuple(range(len(nodes))))}
    return jobs, Cluster(np.array(capacity), TYPED, partitions=every), [draw(st.integers(0, 2)) for _ in nodes]


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=typed())
def test_a_job_starts_when_devices_of_its_types_could_be_found_on_the_nodes_of_least_weight(
    depth: float, case: tuple[Workload, Cluster, list[int]]
) -> None:
    jobs, cluster, weights = case
    oracle = DeviceOracle(jobs, cluster, depth)
    oracle.weights = weights
    schedule = simulate(jobs, cluster.by_weight(np.array(weights)), Backfill(depth))
    np.testing.assert_array_equal(schedule.start, oracle.starts())
    assert violations(schedule) == []


def test_types_that_a_machine_does_not_have() -> None:
    jobs = Workload.of(
        submit=[0, 0, 0], run=[1] * 3, cores=[1] * 3, kind=[0, 1, 2],
        demands=[[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 0, 0]], resources=TYPED,
    )  # fmt: skip
    untyped = Cluster(np.array([[4, 2]]), TYPED[:2])
    assert not why_refused(jobs, untyped).any(), "as there is nothing of types, all have what jobs ask for"
    some = Cluster(np.array([[4, 2, 2]]), TYPED[:3])
    assert [REFUSALS[code] for code in why_refused(jobs, some)] == ["", "larger than the machine", ""]
    assert np.isnan(simulate(jobs, some, "fcfs").start).tolist() == [False, True, False]
    with pytest.raises(InvalidInput, match="jobs ask for 'gres/x', but the cluster has cores, gpus: give its nodes"):
        simulate(replace(jobs, demands=jobs.demands + np.array([0, 0, 0, 0, 1])), untyped)


def test_nodes_of_low_weight_come_first_under_their_names() -> None:
    window = NodeWindow(0.0, 5.0, (3,))
    made = machine(partitions={"all": Partition((0, 2, 3))}, windows=(window,)).by_weight(np.array([5, 1, 1, 5, 0]))
    assert made.names == ("n4", "n1", "n2", "n0", "n3")
    assert made.capacity[:, 1].tolist() == [0, 0, 1, 0, 1]
    assert (made.partitions["all"].nodes, made.windows[0].nodes) == ((2, 3, 4), (4,))
    assert made.features == {"new": (0, 4), "gpu": (2, 4)}


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
