"""Preemption by tiers of partitions and by QOS; the engine against a slow scheduler that tries as Slurm does."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import PREEMPT_MODES, Cluster, Partition, Qos
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from tests.lab.simulator.cases import pull
from tests.lab.simulator.test_limits import limited
from tests.lab.simulator.test_partitions import Box, Oracle, partitioned
from tests.lab.simulator.validate import violations

# -- A slow scheduler, in Slurm's words -------------------------------------------------------------------------------


@dataclass
class PreemptingOracle(Oracle):
    """As `Oracle`; a job that does not fit may have others leave."""

    running: dict[int, tuple[float, float, Box]] = field(default_factory=dict)
    """Start, end and nodes of each."""

    def own(self, row: int) -> Any:
        """What decides on preemption: the job's QOS or partition."""
        return self.qos[row] if self.cluster.preempts_by_qos else self.partitions[self.part[row]]

    def may(self, row: int, other: int, now: float) -> bool:
        mine, its = self.own(row), self.own(other)
        if self.cluster.preempts_by_qos:
            below = any(self.cluster.qos[name] is its for name in mine.preempts)
        else:
            below = its.tier < mine.tier and its.preempt_mode != ""
        return below and now - self.running[other][0] >= its.exempt_s

    def rank(self, row: int) -> int:
        """Those of the lowest are preempted first."""
        return int(self.own(row).priority if self.cluster.preempts_by_qos else self.own(row).tier)

    def below(self, row: int, now: float) -> list[int]:
        there = (other for other in sorted(self.running) if any(self.running[other][2] is box for box in self.boxes))
        return [other for other in there if self.may(row, other, now)]

    def without(self, rows: list[int]) -> list[Box]:
        away = [self.running[row][2] for row in rows]
        return [box for box in self.boxes if not any(box is each for each in away)]

    def leave(self, row: int, now: float, closed: set[int]) -> tuple[list[int], dict[int, int]]:
        """Who leaves, and the nodes that the job then has."""
        kept = self.boxes
        order = sorted(self.below(row, now), key=lambda other: (self.rank(other), self.jobs.units[other]))
        try:
            for _ in range(3):
                for count in range(1, len(order) + 1):
                    self.boxes = kept
                    self.boxes = self.without(order[:count])
                    if on := self.place(row, now, closed):
                        order = [order[count - 1], *order[: count - 1]]
                        break
                else:
                    return [], {}
        finally:
            self.boxes = kept
        return [other for other in order if {*on} & {*self.running[other][2].on}], on

    def run(self) -> tuple[list[float], list[int]]:
        """When each job starts for the last time [s], and how often it had to wait again."""
        jobs, start, restarts = self.jobs, [math.nan] * len(self.jobs), [0] * len(self.jobs)
        places, place = itertools.count(), dict[int, int]()
        waiting: list[int] = []
        coming = [(float(jobs.submit[row]), row) for row in range(len(jobs)) if self.allowed(row)]
        later: list[tuple[float, int]] = []
        now = -math.inf
        while coming or waiting or later or self.running:
            over = [window.end for window in self.cluster.windows if window.end > now]
            looks = [now // every * every + every for every in (1.0, self.interval) if self.interval and waiting]
            spared = [began + self.own(row).exempt_s for row, (began, _, _) in self.running.items()]
            now = min(
                *(at for at, _ in [*coming, *later]),
                *(end for _, end, _ in self.running.values()),
                *(at for at in [*over, *spared, *looks] if at > now),
                math.inf,
                math.inf,
            )
            for row in [row for row, (_, end, _) in self.running.items() if end <= now]:
                self.away(row)
            for _, row in [each for each in coming if each[0] <= now]:
                if not self.too_many(row, [*waiting, *self.running, *(other for _, other in later)]):
                    place[row] = next(places)
                    waiting.append(row)
            waiting += [row for at, row in later if at <= now]
            coming, later = ([each for each in both if each[0] > now] for both in (coming, later))
            waiting.sort(key=lambda row: place[row])
            while found := self.decide(now, waiting, [*self.running]):
                for row, victims, on in found:
                    for victim in victims:
                        self.away(victim)
                        if self.own(victim).preempt_mode == "requeue":
                            restarts[victim] += 1
                            start[victim] = math.nan
                            place[victim] = next(places)
                            if self.cluster.requeue_delay_s:
                                later.append((now + self.cluster.requeue_delay_s, victim))
                            else:
                                waiting.append(victim)
                    if not on:
                        self.filled = now
                        continue
                    start[row] = now
                    box = Box(now, now + self.wall[row], on)
                    self.boxes.append(box)
                    self.running[row] = now, now + min(float(jobs.run[row]), self.wall[row]), box
                    waiting.remove(row)
        return start, restarts

    def away(self, row: int) -> None:
        box = self.running.pop(row)[2]
        self.boxes = [each for each in self.boxes if each is not box]


@st.composite
def preempting(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """Partitions of several tiers, or QOS in some order, some of whose jobs others preempt; perhaps with windows and
    limits."""
    by_qos = draw(st.booleans())
    jobs, cluster = draw(limited()) if by_qos or draw(st.booleans()) else draw(partitioned())
    mode, exempt = st.sampled_from(PREEMPT_MODES), st.sampled_from([0.0, 0.0, 2.0])
    delay = draw(st.sampled_from([0.0, 3.0]))
    if not by_qos:
        partitions = {
            name: replace(each, tier=draw(st.integers(1, 3)), preempt_mode=draw(mode), exempt_s=draw(exempt))
            for name, each in cluster.partitions.items()
        }
        return jobs, replace(cluster, partitions=partitions, requeue_delay_s=delay)
    a, b = (replace(each, priority=draw(st.integers(0, 2))) for each in cluster.qos.values())
    low = {"preempt_mode": draw(st.sampled_from(PREEMPT_MODES[1:])), "exempt_s": draw(exempt)}
    qos = {"a": replace(a, **low), "b": replace(b, preempts=("a",)), "c": Qos(preempts=("a", "b"))}
    qos["b"] = replace(qos["b"], preempt_mode=draw(st.sampled_from(PREEMPT_MODES[1:])))
    codes = draw(st.lists(st.integers(-1, 2), min_size=len(jobs), max_size=len(jobs)))
    jobs = replace(jobs, qos=np.array(codes), labels={**jobs.labels, "qos": ("a", "b", "c")})
    return jobs, replace(cluster, qos=qos, requeue_delay_s=delay)


@pytest.mark.parametrize("depth", [1, math.inf])
@given(case=preempting(), interval=st.sampled_from([1.0, 2.5]))
def test_where_gaps_are_filled_at_intervals_a_job_behind_another_preempts_first_and_then_starts(
    depth: float, interval: float, case: tuple[Workload, Cluster]
) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, Backfill(depth, interval=interval))
    start, restarts = PreemptingOracle(jobs, cluster, depth, interval=interval).run()
    np.testing.assert_array_equal(schedule.start, start)
    np.testing.assert_array_equal(schedule.restarts, restarts)
    assert violations(schedule) == []


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(case=preempting())
def test_compiled_loop_pull_loop_and_slow_scheduler_agree(depth: float, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, Backfill(depth))
    pulled = pull(jobs, cluster, Backfill(depth))
    start, restarts = PreemptingOracle(jobs, cluster, depth).run()
    for found in (schedule, pulled):
        np.testing.assert_array_equal(found.start, start)
        np.testing.assert_array_equal(found.restarts, restarts)
    assert violations(schedule) == []


# -- One by one -------------------------------------------------------------------------------------------------------

QOS = {
    "low": Qos(preempt_mode="requeue"),
    "spare": Qos(preempt_mode="cancel"),
    "high": Qos(priority=100, preempts=("low", "spare")),
}
FIRST = {"priority": "multifactor:age=0,qos=1000"}


def work(*jobs: tuple[float, float, int, str]) -> Workload:
    """Jobs as (submission, run time, cores, QOS) that ask for 300 s."""
    submit, run, cores, qos = zip(*jobs, strict=True)
    return Workload.of(
        submit=submit, run=run, cores=cores, walltime=[300.0] * len(jobs), qos=[[*QOS].index(name) for name in qos],
        labels={"qos": tuple(QOS)},
    )  # fmt: skip


def states(schedule: Schedule) -> list[JobState]:
    return [OUTCOMES[code] for code in schedule.outcome]


def test_it_preempts_whom_slurm_did() -> None:
    """As Slurm 22.05.8 did on six nodes: the smallest go, those that are requeued wait for their credentials to end."""
    jobs = work(
        *[(0, 40, 1, "low")] * 3, (0, 40, 2, "low"), (0, 40, 1, "spare"), (3, 10, 2, "high"), (37, 5, 4, "high")
    )
    machine = replace(Cluster.of(6), qos=QOS, requeue_delay_s=6.0)
    schedule = simulate(jobs, machine, "conservative", **FIRST)
    assert schedule.start.tolist() == [43.0, 43.0, 43.0, 0.0, 0.0, 3.0, 37.0]
    assert schedule.restarts.tolist() == [2, 2, 1, 0, 0, 0, 0]
    assert states(schedule)[4] is JobState.PREEMPTED and schedule.end[4] == 37.0
    assert all(state is JobState.COMPLETED for state in states(schedule)[5:])


def test_none_is_preempted_for_a_job_that_would_not_fit_even_then() -> None:
    jobs = work((0, 40, 3, "low"), (0, 40, 3, "high"), (1, 10, 4, "high"))
    schedule = simulate(jobs, replace(Cluster.of(6), qos=QOS), "conservative", **FIRST)
    assert schedule.restarts.tolist() == [0, 0, 0] and schedule.start.tolist() == [0.0, 0.0, 40.0]


def test_a_job_that_preempts_is_planned_as_if_those_below_it_had_gone() -> None:
    """So the last job, which would end after 100 s, is in the way of the third, though the second asks for 300 s."""
    jobs = work((0, 100, 3, "high"), (0, 300, 2, "low"), (1, 10, 6, "high"), (2, 50, 1, "low"))
    jobs = replace(jobs, walltime=np.array([100.0, 300.0, 300.0, 250.0]))
    schedule = simulate(jobs, replace(Cluster.of(6), qos=QOS), "conservative", **FIRST)
    assert schedule.start.tolist() == [0.0, 110.0, 100.0, 110.0] and schedule.restarts.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(("behind", "start"), [(True, 21.0), (False, 20.0)])
def test_behind_a_blocked_job_nodes_are_made_free_first_where_gaps_are_filled_at_intervals(
    behind: bool, start: float
) -> None:
    first = [(0, 100, 4, "high"), (0, 300, 2, "low"), *([(1, 10, 6, "high")] if behind else [])]
    jobs = work(*first, (20, 5, 2, "high"))
    jobs = replace(jobs, walltime=np.array([100.0, 300.0, 300.0, 50.0])[[*range(len(first)), 3]])
    schedule = simulate(jobs, replace(Cluster.of(6), qos=QOS), "backfill:depth=inf,interval=1s", **FIRST)
    assert schedule.start[-1] == start and schedule.restarts[1] >= 1


def test_a_job_is_not_preempted_before_its_exempt_time_is_over() -> None:
    qos = QOS | {"low": replace(QOS["low"], exempt_s=25.0)}
    jobs = work((0, 40, 4, "low"), (1, 10, 4, "high"))
    schedule = simulate(jobs, replace(Cluster.of(4), qos=qos), **FIRST)
    assert schedule.start.tolist() == [35.0, 25.0]


def test_what_was_done_is_lost_and_counts_as_used() -> None:
    jobs = replace(work((0, 40, 4, "low"), (30, 10, 4, "high")), user=np.array([0, 1]))
    engine = Engine(jobs, replace(Cluster.of(4), qos=QOS))
    engine.advance()
    engine.apply([Start(0)])
    engine.advance()
    engine.apply([Start(1, preempts=(0,))])
    assert engine.state.usage[0, 0] == 4 * 30.0
    while (view := engine.advance()) is not None:
        engine.apply(Backfill(1).decide(view))
    assert engine.schedule().end.tolist() == [80.0, 40.0]


def test_a_tier_preempts_lower_ones_that_are_not_off() -> None:
    partitions = {
        "top": Partition((0, 1), tier=3),
        "off": Partition((0,), tier=1),
        "low": Partition((1,), tier=1, preempt_mode="requeue"),
    }
    jobs = Workload.of(
        submit=[0, 0, 1], run=[9, 9, 5], cores=[1, 1, 1], walltime=[9, 9, 5], partition=[1, 2, 0],
        labels={"partition": tuple(partitions)},
    )  # fmt: skip
    schedule = simulate(jobs, Cluster(np.ones((2, 1)), partitions=partitions))
    assert schedule.start.tolist() == [0.0, 6.0, 1.0] and schedule.restarts.tolist() == [0, 1, 0]


def test_a_dispatcher_may_not_preempt_whom_the_machine_does_not_let_it() -> None:
    qos = QOS | {"low": replace(QOS["low"], exempt_s=25.0)}
    engine = Engine(work((0, 40, 1, "low"), (0, 40, 1, "high"), (1, 10, 2, "high")), replace(Cluster.of(2), qos=qos))
    engine.advance()
    engine.apply([Start(0), Start(1)])
    engine.advance()
    for victim, said in (
        (0, "job 0 is not preempted before it has run for 25 s"),
        (1, "jobs such as 1"),
        (2, "waiting"),
    ):
        with pytest.raises(IllegalDecision, match=said):
            engine.apply([Start(2, preempts=(victim,))])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"qos": {"a": Qos(preempts=("b",))}}, "QOS 'a' preempts 'b': a QOS that is there, with a preempt_mode"),
        ({"qos": {"a": Qos(preempts=("b",)), "b": Qos()}}, "QOS 'a' preempts 'b': a QOS that is there"),
        (
            {
                "qos": {
                    "a": Qos(preempts=("b",), preempt_mode="cancel"),
                    "b": Qos(preempts=("a",), preempt_mode="cancel"),
                }
            },
            "QOS 'a' preempts itself, perhaps by way of others",
        ),
        ({"qos": QOS, "partitions": {"p": Partition((0,), preempt_mode="cancel")}}, "both partitions and QOS preempt"),
        ({"requeue_delay_s": math.nan}, "requeue_delay_s=nan: a finite time from 0 s on expected"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        replace(Cluster.of(1), **changed)
    with pytest.raises(InvalidInput, match="a QOS has preempt_mode 'suspend': requeue, cancel or '' expected"):
        Qos(preempt_mode="suspend")
    with pytest.raises(InvalidInput, match="a partition has exempt_s inf: a finite time"):
        Partition((0,), exempt_s=math.inf)
