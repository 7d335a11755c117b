"""Saved decisions: which ones, and that they say what the planner saw."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import Instance, example
from asa.lab.dispatchers.planning.sources import from_view, read_instance
from asa.lab.simulator.decisions import Decision, DecisionSample
from asa.lab.simulator.run import simulate

CLUSTER = Cluster(np.array([[4, 8, 2], [4, 8, 0], [4, 8, 0], [2, 16, 0]]), ("cores", "memory", "mics"))


def crowd(seed: int = 3, count: int = 80) -> Workload:
    draw = np.random.default_rng(seed)
    run = draw.integers(1, 60, count).astype(float)
    return Workload.of(
        submit=np.sort(draw.uniform(0, 600, count)), run=run, walltime=run * draw.uniform(1, 2, count),
        units=draw.integers(1, 4, count), kind=draw.integers(0, 3, count), number=1000 + np.arange(count),
        demands=[[1, 1, 0], [2, 4, 1], [4, 0, 0]], resources=("cores", "memory", "mics"),
    )  # fmt: skip


def facts(found: Instance, names: Any = None) -> Any:
    """All that an instance says, however its tables are numbered."""
    held = [
        (at, node, units, *found.demands[kind].tolist())
        for at, (first, last, units, kind) in zip(found.release_at.tolist(), found.release.tolist(), strict=True)
        for node in range(first, last + 1)
    ]
    return (
        found.resources, found.capacity.tolist(), found.free.tolist(), held, tuple(names or found.names),
        found.units.tolist(), found.demands[found.kind].tolist(), found.per_node.tolist(),
        found.members[found.partition].tolist(), found.duration.tolist(), found.waited.tolist(),
    )  # fmt: skip


class Seeing(ListPlan):
    """Writes down the instance of each decision, with the trace's numbers for names."""

    def __init__(self) -> None:
        super().__init__()
        self.saw: dict[float, Any] = {}

    def decide(self, view: Any) -> Any:
        if len(view.waiting):
            self.saw.setdefault(view.now, facts(from_view(view), view.jobs["number"][view.waiting].tolist()))
        return super().decide(view)


@pytest.mark.parametrize("cluster", [CLUSTER, Cluster.of(nodes=6, cores=2)])
def test_a_saved_decision_is_what_the_planner_saw(cluster: Cluster, tmp_path: Path) -> None:
    work = crowd() if cluster is CLUSTER else Workload.of(
        submit=crowd().submit, run=crowd().run, walltime=crowd().walltime, cores=crowd().units * 3
    )  # fmt: skip
    seeing, sample = Seeing(), DecisionSample(1000)
    simulate(work, cluster, seeing, watch=sample)
    sample.write(tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(seeing.saw) == len(sample) == sample.seen
    for path in files:
        at = json.loads(gzip.decompress(path.read_bytes()))["at"]
        assert facts(read_instance(path)) == seeing.saw[at]
    assert max(len(each[4]) for each in seeing.saw.values()) > 5, "a queue worth saving"


def test_what_is_shared_is_kept(tmp_path: Path) -> None:
    draws = np.array([[7, 0], [20, 1]])
    found = replace(example(), shared=np.array([50, 3]), shared_names=("power", "licences"), shared_demands=draws)
    (tmp_path / "saved.json").write_text(json.dumps(Decision(0, 12.0, found).to_json()))
    read = read_instance(tmp_path / "saved.json")
    assert facts(read) == facts(found)
    assert read.shared.tolist() == [50, 3] and read.shared_names == ("power", "licences")
    assert read.shared_demands[read.kind].tolist() == found.shared_demands[found.kind].tolist()
    assert read.drawn.tolist() == found.drawn.tolist()


def test_the_planner_plans_the_same_from_the_file(tmp_path: Path) -> None:
    sample = DecisionSample(20, seed=1)
    simulate(crowd(), CLUSTER, "listplan", watch=sample)
    sample.write(tmp_path)
    for path, decision in zip(sorted(tmp_path.iterdir()), sample, strict=True):
        read, saved = (ListPlan().solve(each, 0.0).plan for each in (read_instance(path), decision.instance))
        assert read is not None and saved is not None
        assert read.start.tolist() == saved.start.tolist()


@given(st.integers(1, 12), st.integers(0, 3))
def test_a_sample_has_so_many_and_no_others(count: int, seed: int) -> None:
    every, some = DecisionSample(10_000), DecisionSample(count, seed)

    def watch(view: TableView) -> None:
        every(view), some(view)

    simulate(crowd(seed, 15), CLUSTER, "easy", watch=watch)
    assert every.seen == len(every) == some.seen
    assert len(some) == min(count, every.seen)
    all_of = {decision.number: facts(decision.instance) for decision in every}
    assert [decision.number for decision in every] == list(range(every.seen))
    assert all(facts(decision.instance) == all_of[decision.number] for decision in some)


def test_each_decision_has_the_same_chance() -> None:
    """5 of 20, 2,000 times: each is drawn in a quarter of all cases; six standard deviations are 0.058."""
    rows = 20
    work = Workload.of(submit=np.arange(rows) * 10.0, run=np.ones(rows), cores=np.ones(rows), walltime=np.ones(rows))
    views: list[Any] = []
    simulate(work, Cluster.of(1), "fcfs", watch=views.append)
    drawn = np.zeros(rows)
    for seed in range(2000):
        sample = DecisionSample(5, seed)
        for view in views:
            sample(view)
        drawn[[decision.number for decision in sample]] += 1
    assert np.abs(drawn / 2000 - 0.25).max() < 0.058


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sample = DecisionSample(10, seed=4)
        simulate(crowd(), CLUSTER, "easy", watch=sample)
        assert sample.write(tmp_path / name) == f"10 of {sample.seen} decisions are in {tmp_path / name}"
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_what_files_cannot_tell_is_refused() -> None:
    work = Workload.of(submit=[0], run=[1], units=[2], walltime=[1], per_node=[1], demands=[[2]])
    mixed = Cluster(np.array([[4], [2]]))
    with pytest.raises(InvalidInput, match="no units per node"):
        simulate(work, mixed, "easy", watch=DecisionSample(1))
    with pytest.raises(InvalidInput, match="at least 1"):
        DecisionSample(0)
