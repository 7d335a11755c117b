from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import SetWidth, Start
from asa.core.errors import IllegalDecision, InvalidInput, UnknownName
from asa.core.width import time_on
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.workload import Moldable, Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.study import on_nodes
from asa.lab.traces.resample import sampled
from asa.lab.traces.swf import load_swf, log_of, read_swf, write_swf
from tests.lab.simulator.cases import SLOTS, pull, workloads
from tests.lab.simulator.validate import violations

DEPTHS = (0, 1, 2, math.inf)
machine = Cluster.of(nodes=SLOTS)
MOLDS = ("soonest", "fair")


@st.composite
def moldable(draw: st.DrawFn) -> Workload:
    """A few jobs crowded in time, of which some may have several widths; none starts and ends at one moment."""
    jobs = draw(workloads())
    least = [draw(st.integers(1, units)) for units in jobs.units.tolist()]
    most = [draw(st.integers(units, SLOTS)) for units in jobs.units.tolist()]
    parallel = draw(st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=len(jobs), max_size=len(jobs)))
    return dataclasses.replace(jobs, run=np.maximum(jobs.run, 1.0), moldable=Moldable(least, most, parallel))


Box = tuple[float, float, int]


def free_at(at: float, boxes: list[Box]) -> int:
    return SLOTS - sum(units for begin, end, units in boxes if begin <= at < end)


def earliest(now: float, units: int, lasts: float, boxes: list[Box]) -> float:
    """When so many processors are free for so long, beside these boxes."""
    for at in sorted({now, *(end for _, end, _ in boxes if end > now)}):
        inside = [at, *(begin for begin, _, _ in boxes if at < begin < at + lasts)]
        if all(free_at(moment, boxes) >= units for moment in inside):
            return at
    return math.inf


def written_to_be_read(jobs: Workload, depth: float, width: str) -> tuple[list[float], list[int]]:
    """When jobs start with which widths on a machine of `SLOTS` processors. It plans with boxes: begin, end, units."""
    start, chosen, end = [math.nan] * len(jobs), jobs.units.tolist(), [math.nan] * len(jobs)
    assert jobs.moldable is not None

    def longer(job: int, units: int) -> float:
        parallel = float(jobs.moldable.parallel[job])
        return time_on(units, parallel) / time_on(int(jobs.units[job]), parallel)

    now = -math.inf
    while later := [at for at in (*jobs.submit, *end) if at > now]:
        now = min(later)
        started = True
        while started:
            started = False
            queue = [job for job in range(len(jobs)) if jobs.submit[job] <= now and math.isnan(start[job])]
            boxes = [
                (start[job], start[job] + jobs.walltime[job] * longer(job, chosen[job]), chosen[job])
                for job in range(len(jobs))
                if start[job] <= now < end[job]
            ]
            idle, asked, reserved = free_at(now, boxes), sum(jobs.units[queue].tolist()), 0
            for job in queue:
                plans = []
                for units in allowed(jobs, job):
                    share = idle * int(jobs.units[job]) // asked if width == "fair" else SLOTS
                    if units <= max(share, min(allowed(jobs, job))):
                        lasts = float(jobs.walltime[job]) * longer(job, units)
                        at = earliest(now, units, lasts, boxes)
                        plans.append((at + lasts, at, units, lasts))
                _, at, units, lasts = min(plans)
                if at == now:
                    started, start[job], chosen[job] = True, now, units
                    end[job] = now + min(jobs.run[job], jobs.walltime[job]) * longer(job, units)
                elif depth == 0:
                    break
                elif reserved >= depth:
                    continue
                else:
                    reserved += 1
                boxes.append((at, at + lasts, units))
    return start, chosen


def allowed(jobs: Workload, job: int) -> set[int]:
    assert jobs.moldable is not None
    least, most = int(jobs.moldable.least[job]), int(jobs.moldable.most[job])
    doubled = {least * 2**k for k in range(10) if least * 2**k < most}
    return {int(jobs.units[job]), least, most} | doubled


@pytest.mark.parametrize("width", MOLDS)
@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=moldable())
def test_schedules_equal_those_of_a_slow_scheduler_and_keep_the_laws(depth: float, width: str, jobs: Workload) -> None:
    schedule = simulate(jobs, machine, Backfill(depth, width=width))
    start, units = written_to_be_read(jobs, depth, width)
    assert (schedule.start.tolist(), schedule.cores.tolist()) == (start, units)
    assert violations(schedule) == []
    assert schedule.ran.all()


@pytest.mark.parametrize("width", MOLDS)
@given(jobs=moldable(), depth=st.sampled_from(DEPTHS), instant=st.sampled_from(["together", "one-by-one"]))
def test_the_compiled_loop_and_decisions_on_views_agree(width: str, jobs: Workload, depth: float, instant: str) -> None:
    rule = Backfill(depth, width=width)
    driven, pulled = simulate(jobs, machine, rule, instant=instant), pull(jobs, machine, rule, instant=instant)
    assert driven.start.tolist() == pulled.start.tolist()
    assert driven.cores.tolist() == pulled.cores.tolist()


@given(jobs=moldable(), depth=st.sampled_from(DEPTHS), width=st.sampled_from(MOLDS))
def test_jobs_without_a_choice_are_scheduled_as_rigid_ones(jobs: Workload, depth: float, width: str) -> None:
    """So are moldable ones that start as they ask."""
    rigid = dataclasses.replace(jobs, moldable=None)
    one = dataclasses.replace(jobs, moldable=Moldable(jobs.units, jobs.units, np.ones(len(jobs))))
    expected = simulate(rigid, machine, Backfill(depth)).start.tolist()
    assert simulate(rigid, machine, Backfill(depth, width=width)).start.tolist() == expected
    assert simulate(one, machine, Backfill(depth, width=width)).start.tolist() == expected
    assert simulate(jobs, machine, Backfill(depth)).start.tolist() == expected
    with_last = Workload.of(  # a job that comes when all is over has a choice, so widths are looked at
        submit=[*jobs.submit, 1e6], run=[*jobs.run, 1], cores=[*jobs.units, 1], walltime=[*jobs.walltime, 1],
        moldable=Moldable([*jobs.units, 1], [*jobs.units, 2], np.ones(len(jobs) + 1)),
    )  # fmt: skip
    assert simulate(with_last, machine, Backfill(depth, width=width)).start.tolist()[:-1] == expected


def test_fewer_cores_now_or_more_of_them_later() -> None:
    """Three of four cores are busy until 10; the second job asks for four, and is as fast on one as its part allows."""

    def second(parallel: float) -> tuple[float, int]:
        jobs = Workload.of(
            submit=[0, 1], run=[10, 8], cores=[3, 4], walltime=[10, 8],
            moldable=Moldable([3, 1], [3, 4], [1.0, parallel]),
        )  # fmt: skip
        schedule = simulate(jobs, Cluster.of(4), "easy:width=soonest")
        return float(schedule.start[1]), int(schedule.cores[1])

    assert second(0.2) == (1.0, 1)  # 8 / (0.8 + 0.2 / 4) = 9.4 s on one core
    assert second(1.0) == (10.0, 4)  # 32 s on one core


def test_shares_of_idle_cores_go_by_what_is_asked_for() -> None:
    jobs = Workload.of(
        submit=[0, 0], run=[8, 8], cores=[6, 2], walltime=[8, 8], moldable=Moldable([1, 1], [8, 8], [1.0, 1.0])
    )
    fair = simulate(jobs, Cluster.of(8), "easy:width=fair")
    greedy = simulate(jobs, Cluster.of(8), "easy:width=soonest")
    assert (fair.cores.tolist(), fair.start.tolist()) == ([6, 2], [0.0, 0.0])
    assert (greedy.cores.tolist(), greedy.start.tolist()) == ([8, 8], [0.0, 6.0])


def test_a_job_that_waits_again_asks_for_its_own_width() -> None:
    jobs = Workload.of(submit=[0], run=[8], cores=[2], walltime=[10], moldable=Moldable([1], [4], [1.0]))
    engine = Engine(jobs, Cluster.of(4))
    operations.fail_node(engine, 0, at=1.0, back=50.0)
    rule = Easy(width="soonest").native
    assert rule is not None
    engine.dispatch(rule, until=1.0)
    assert engine.view().jobs[0]["units"] == 2  # it waits, with one of four nodes down
    engine.dispatch(rule)
    schedule = engine.schedule()
    assert schedule.cores.tolist() == [2] and schedule.end[0] == schedule.start[0] + 8


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (SetWidth(0, 3), "it may have 2, 1, 4 units"),
        (SetWidth(1, 2), "it may have 1 units"),
        (SetWidth(2, 1), "not submitted yet"),
    ],
)
def test_only_widths_that_a_waiting_job_has_are_taken(decision: SetWidth, why: str) -> None:
    jobs = Workload.of(
        submit=[0, 0, 9], run=[8, 8, 1], cores=[2, 1, 1], moldable=Moldable([1, 1, 1], [4, 1, 1], [1, 1, 1])
    )
    engine = Engine(jobs, Cluster.of(4))
    engine.advance()
    with pytest.raises(IllegalDecision, match=why):
        engine.apply([decision])
    engine.apply([SetWidth(0, 4), Start(0)])
    assert engine.view().slots == 0


def test_laws_of_widths_are_checked() -> None:
    jobs = Workload.of(submit=[0], run=[8], cores=[2], walltime=[10], moldable=Moldable([1], [4], [0.5]))
    schedule = simulate(jobs, Cluster.of(4), "easy:width=soonest")
    assert violations(schedule) == []
    assert violations(dataclasses.replace(schedule, units=np.array([3])))[0].endswith("it may have (2, 1, 4)")
    assert "completed after" in violations(dataclasses.replace(schedule, units=np.array([1])))[0]
    small = dataclasses.replace(schedule, cluster=Cluster.of(3))
    assert any("4 cores are in use" in wrong for wrong in violations(small))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (([0], [4], [1.0]), "least from 1 to its units"),
        (([3], [4], [1.0]), "least from 1 to its units"),
        (([1], [1], [1.0]), "most of at least its units"),
        (([1], [2**15 + 1], [1.0]), "at most 16 widths"),
        (([1], [4], [1.5]), "parallel from 0 to 1"),
        (([1], [4], [math.nan]), "parallel from 0 to 1"),
        (([1, 1], [4], [1.0]), "moldable.least"),
    ],
)
def test_widths_that_no_job_can_have_are_refused(columns: tuple[list[int], list[int], list[float]], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Workload.of(submit=[0], run=[8], cores=[2], moldable=Moldable(*columns))


def test_machines_and_rules_that_cannot_choose_widths_say_so() -> None:
    jobs = Workload.of(submit=[0], run=[8], cores=[2], walltime=[9], moldable=Moldable([1], [4], [1.0]))
    parts = dataclasses.replace(Cluster.of(4), partitions={"all": Partition(tuple(range(4)))})
    with pytest.raises(InvalidInput, match="without partitions"):
        simulate(jobs, parts, "easy:width=fair")
    assert simulate(jobs, parts, "easy").start.tolist() == [0.0]
    with pytest.raises(InvalidInput, match="predictor user or oracle"):
        simulate(jobs, Cluster.of(4), "easy:width=fair", predictor="last-two")
    with pytest.raises(UnknownName, match="width"):
        Easy(width="widest")
    with pytest.raises(InvalidInput, match="leave fill="):
        Backfill(fill="sjf", width="fair")


@given(jobs=moldable())
def test_a_written_schedule_is_read_as_the_same_jobs(jobs: Workload, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    write_swf(log_of(simulate(jobs, machine, "easy:width=fair", overrun="allow")), path)
    found = load_swf(path).workload
    wanted, there = jobs.moldable, found.moldable
    assert wanted is not None
    some = wanted.least < wanted.most
    if some.any():
        assert there is not None
        assert there.least.tolist() == np.where(some, wanted.least, jobs.units).tolist()
        assert there.most.tolist() == np.where(some, wanted.most, jobs.units).tolist()
        assert np.array_equal(there.parallel[some], wanted.parallel[some])
    assert np.allclose(found.run, jobs.run) and np.allclose(found.walltime, jobs.walltime)
    others = np.loadtxt(path, comments=";", ndmin=2)  # what any other reader sees
    assert others.shape == (len(jobs), 18)


NO_WIDTHS = [
    "x", "1 1.5 4 0.9", "1 1 4", "1 1 4 half", "1 1 1e30 0.5", f"1 1 {10**30} 0.5", "nan 1 2 0.5", "1 4 1 0.9",
    "1 3 4 0.9", "1 0 4 0.9", "1 1 1 0.9", "1 1 4 nan", "1 1 4 1.5", f"1 1 {2**60} 0.5", "7 1 4 0.9",
]  # fmt: skip
"""Job 1 has two processors; there is no job 7."""


@pytest.mark.parametrize("key", ["Moldable", "Malleable"])
@pytest.mark.parametrize("text", NO_WIDTHS)
def test_a_line_of_widths_that_no_job_can_have_is_passed_over_and_named(text: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    jobs = "".join(f"{number} 0 0 8 2 -1 -1 2 10 -1 1 1 1 1 1 1 -1 -1\n" for number in (1, 2))
    path.write_text(f"; MaxProcs: 8\n; {key}: {text}\n; Moldable: 2 1 4 0.5\n{jobs}")
    trace = read_swf(path).trace()
    assert [trace.workload.widths(row) for row in range(2)] == [(2,), (2, 1, 4)]
    assert trace.report.counts == {"bad-widths": 1}
    assert f"bad-widths: 1, first '; {key}: {text[:80]}'" in str(trace.report)
    path.write_text(f"; MaxProcs: 8\n; {key}: {text}\n{jobs}")
    trace = read_swf(path).trace()
    assert trace.workload.moldable is None and trace.report.counts == {"bad-widths": 1}


def test_widths_go_with_their_jobs() -> None:
    """Sorted, taken, drawn again; jobs that become nodes are rigid."""
    jobs = Workload.of(
        submit=[9, 0, 5], run=[1, 1, 1], cores=[8, 2, 4], moldable=Moldable([1, 2, 3], [8, 2, 5], [0.1, 0.2, 0.3])
    )
    assert [jobs.widths(row) for row in range(3)] == [(2,), (4, 3, 5), (8, 1, 2, 4)]
    assert jobs.take([2]).widths(0) == (8, 1, 2, 4)
    again = sampled(jobs, 20, seed=1)
    pairs = {2: (2, 0.2), 4: (3, 0.3), 8: (1, 0.1)}
    assert again.moldable is not None
    for units, least, parallel in zip(again.units, again.moldable.least, again.moldable.parallel, strict=True):
        assert pairs[int(units)] == (least, parallel)
    assert on_nodes(jobs, 4).moldable is None
    rigid = dataclasses.replace(jobs, moldable=None)
    assert rigid.take([0]).moldable is None and sampled(rigid, 3, seed=1).moldable is None


@given(
    cores=st.lists(st.integers(1, 64), min_size=1, max_size=20), share=st.floats(0, 1), factor=st.integers(2, 8),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_a_share_of_a_log_is_drawn(cores: list[int], share: float, factor: int, seed: int) -> None:
    jobs = Workload.of(submit=np.zeros(len(cores)), run=np.ones(len(cores)), cores=cores)
    found = Moldable.drawn(jobs, 64, share, factor=factor, seed=seed)
    made = dataclasses.replace(jobs, moldable=found)  # which checks its bounds
    assert (found.most <= 64).all()
    drawn = found.least < found.most
    assert (found.least[drawn] * factor >= jobs.units[drawn]).all()
    assert (found.most[drawn] <= jobs.units[drawn] * factor).all()
    more = Moldable.drawn(jobs, 64, 1.0, factor=factor, seed=seed)
    assert not drawn[more.least == more.most].any() and len(made) == len(cores)
