"""Decisions that take time, and who watches them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import SetSpeed, Start
from asa.core.errors import UnknownName
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.served import Served
from asa.lab.simulator.state import Why
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
    served = Served(engine, rule)
    assert served.run(until=5.0) is Why.UNTIL
    edits.cancel(engine, 0)
    assert served.run() is Why.OVER
    assert rule.asked == [40.0]


def test_only_so_many_decisions_are_made() -> None:
    engine, rule = Engine(jobs(*[(10 * number, 5, 1) for number in range(1, 5)]), Cluster.of(1)), Windows()
    served = Served(engine, rule)
    assert served.run(most=3) is Why.DECIDE
    assert rule.asked == [10.0, 20.0, 30.0]
    assert served.run(most=3) is Why.OVER
    assert rule.asked == [10.0, 20.0, 30.0, 40.0]


def test_other_words_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"dispatch time 'pay'.*charge, ignore"):
        simulate(jobs((0, 1, 1)), Cluster.of(1), "fcfs", dispatch_time="pay")
