from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import SetSpeed, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import Instance, example, from_view, read_instance
from asa.lab.simulator import operations
from asa.lab.simulator.decisions import Decision, DecisionSample
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, simulate
from asa.lab.simulator.state import StopReason
from asa.lab.simulator.validate import violations
from tests.lab.simulator.cases import SLOTS, mixed, workloads


class Watch:
    """A stopwatch that only a dispatcher moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A dispatcher that takes `seconds` [s] for each decision."""

    def __init__(self, rule: str, seconds: float, clock: Watch) -> None:
        self.rule, self.seconds, self.clock = DISPATCHERS.create(rule), seconds, clock
        self.asked: list[tuple[float, list[int]]] = []

    def decide(self, view: Any) -> Any:
        self.asked.append((view.now, view.waiting.tolist()))
        self.clock.now += self.seconds
        return self.rule.decide(view)


def slowly(jobs: Workload, cluster: Cluster, seconds: float, rule: str = "fcfs", **settings: Any) -> Any:
    clock = Watch()
    slow = Slow(rule, seconds, clock)
    return simulate(jobs, cluster, slow, dispatch_time="charge", clock=clock, **settings), slow.asked


def jobs(*rows: tuple[float, float, int]) -> Workload:
    """Jobs of (submission, run time, cores)."""
    submit, run, cores = zip(*rows, strict=True)
    return Workload.of(submit=submit, run=run, cores=cores, walltime=np.full(len(rows), 100.0))


def test_a_job_starts_when_the_answer_is_there() -> None:
    schedule, asked = slowly(jobs((5, 10, 1)), Cluster.of(1), 3.0)
    assert schedule.start.tolist() == [8.0] and schedule.end.tolist() == [18.0]
    assert asked == [(5.0, [0])]


def test_who_comes_meanwhile_is_decided_on_next() -> None:
    schedule, asked = slowly(jobs((0, 10, 1), (1, 10, 1), (3, 10, 1)), Cluster.of(3), 3.0)
    assert schedule.start.tolist() == [3.0, 6.0, 6.0]
    assert asked == [(0.0, [0]), (3.0, [1, 2])], "the third came at the very instant of the answer"


def test_what_becomes_free_meanwhile_is_decided_on_next() -> None:
    schedule, asked = slowly(jobs((0, 5, 1), (7, 1, 1)), Cluster.of(1), 2.0)
    assert schedule.start.tolist() == [2.0, 9.0], "the first ended at 7 s, before anybody was asked"
    schedule, asked = slowly(jobs((0, 5, 1), (6, 1, 1)), Cluster.of(1), 2.0)
    assert schedule.start.tolist() == [2.0, 10.0]
    assert [at for at, _ in asked] == [0.0, 6.0, 8.0], "asked at 6 s, answered at 8 s; the first ended at 7 s"


def test_whoever_starts_jobs_is_asked_again() -> None:
    schedule, asked = slowly(jobs((0, 10, 1), (0, 10, 1)), Cluster.of(1), 1.0)
    assert asked == [(0.0, [0, 1]), (1.0, [1]), (11.0, [1])]
    assert schedule.start.tolist() == [1.0, 12.0]


def test_what_has_ended_meanwhile_is_left_out() -> None:
    class Hurry:
        clock = Watch()

        def decide(self, view: TableView) -> list[Start | SetSpeed]:
            starts = [Start(row) for row in view.waiting.tolist()]
            self.clock.now += 20.0 * bool(len(view.active))
            return [*starts, *(SetSpeed(row, 2.0) for row in view.active.tolist())]

    schedule = simulate(
        jobs((0, 10, 1), (1, 50, 1), (2, 1, 1)), Cluster.of(3), Hurry(), dispatch_time="charge", clock=Hurry.clock
    )
    assert schedule.end.tolist()[0] == 10.0
    assert schedule.start.tolist() == [0.0, 21.0, 41.0]
    assert schedule.end.tolist()[1] == 21.0 + 20.0 + 15.0, "twice as fast from 41 s on"


def test_predictions_are_made_meanwhile() -> None:
    """The third and fourth job come while the first one's start is decided on."""
    work = Workload.of(
        submit=[0, 1, 30, 31, 32], run=[2, 2, 6, 5, 2], walltime=[50, 50, 6, 5, 50], cores=[1, 1, 1, 2, 1],
        user=[1, 1, 2, 3, 1],
    )  # fmt: skip
    schedule, _ = slowly(work, Cluster.of(2), 2.5, "easy", predictor="last-two")
    assert schedule.start[2] == 32.5
    assert schedule.start[4] == 35.0, "it is expected to run as long as the user's last two"


@given(workloads(), st.sampled_from(["fcfs", "easy", "conservative", "listplan"]))
def test_no_time_is_as_if_it_were_ignored(work: Workload, rule: str) -> None:
    quick, _ = slowly(work, Cluster.of(SLOTS), 0.0, rule)
    assert np.array_equal(quick.start, simulate(work, Cluster.of(SLOTS), rule).start)


@given(mixed(), st.sampled_from([0.1, 1.0, 4.0]), st.sampled_from(["together", "one-by-one"]))
def test_laws_are_kept_whatever_it_takes(case: tuple[Workload, Cluster], seconds: float, instant: str) -> None:
    schedule, asked = slowly(*case, seconds, "easy", instant=instant)
    assert violations(schedule) == []
    assert (schedule.wait[schedule.ran] >= seconds - 1e-9).all()
    assert all(later - at >= seconds - 1e-9 for (at, _), (later, _) in pairwise(asked))


@given(mixed(), st.sampled_from(["user", "last-two"]))
def test_watching_changes_nothing(case: tuple[Workload, Cluster], predictor: str) -> None:
    seen: list[list[int]] = []
    watched = simulate(*case, "easy", predictor=predictor, watch=lambda view: seen.append(view.waiting.tolist()))
    assert np.array_equal(watched.start, simulate(*case, "easy", predictor=predictor).start)
    assert set().union(*seen) == set(np.flatnonzero(watched.ran))


def test_watching_takes_none_of_the_time() -> None:
    clock = Watch()

    def look(_: TableView) -> None:
        clock.now += 100.0

    found = simulate(
        jobs((0, 1, 1)), Cluster.of(1), Slow("fcfs", 2.0, clock), dispatch_time="charge", clock=clock, watch=look
    )
    assert found.start.tolist() == [2.0]


def test_dispatchers_given_by_name_rehearse() -> None:
    """What is compiled at the first decision is not charged: the clock is first read when all that is over."""
    readings = iter([0.0, 4.0, 4.0, 4.0])
    found = simulate(jobs((0, 1, 1)), Cluster.of(1), "listplan", dispatch_time="charge", clock=lambda: next(readings))
    assert found.start.tolist() == [4.0]


class Windows:
    """First come first served, at the ends of windows of 10 s."""

    window = 10.0

    def __init__(self) -> None:
        self.asked: list[float] = []

    def decide(self, view: TableView) -> list[Start]:
        self.asked.append(view.now)
        return [Start(row) for row in view.waiting.tolist()]


def test_nobody_is_asked_about_a_queue_that_is_empty_again() -> None:
    engine, rule = Engine(jobs((3, 5, 1), (35, 5, 1)), Cluster.of(1)), Windows()
    served = DispatchLoop(engine, rule)
    assert served.run(until=5.0) is StopReason.UNTIL
    operations.cancel(engine, 0)
    assert served.run() is StopReason.OVER
    assert rule.asked == [40.0]


def test_only_so_many_decisions_are_made() -> None:
    engine, rule = Engine(jobs(*[(10 * number, 5, 1) for number in range(1, 5)]), Cluster.of(1)), Windows()
    served = DispatchLoop(engine, rule)
    assert served.run(most=3) is StopReason.DECIDE
    assert rule.asked == [10.0, 20.0, 30.0]
    assert served.run(most=3) is StopReason.OVER
    assert rule.asked == [10.0, 20.0, 30.0, 40.0]


def test_other_words_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"dispatch time 'pay'.*charge, ignore"):
        simulate(jobs((0, 1, 1)), Cluster.of(1), "fcfs", dispatch_time="pay")


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
