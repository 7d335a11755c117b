"""Malleable jobs, whose width changes while they run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.arrays import Ints
from asa.core.decision import NodeRun, SetWidth, Start
from asa.core.energy import NodePower
from asa.core.errors import IllegalDecision, InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.table import TableView
from asa.lab.core.workload import Moldable, Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.metrics.schedule import core_seconds, summarise
from asa.lab.placement.nodes import FirstFit
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.traces.swf import load_swf, log_of, write_swf
from tests.lab.simulator.cases import SLOTS
from tests.lab.simulator.test_moldable import DEPTHS, Box, allowed, earliest, free_at
from tests.lab.simulator.validate import violations

machine = Cluster.of(nodes=SLOTS)
RESIZES = ("shrink", "expand", "both")


@st.composite
def malleable(draw: st.DrawFn, *, exact: bool) -> Workload:
    """A few jobs crowded in time, of which some are moldable, some malleable. Where they are `exact`, their times with
    all of their widths are fractions that a computer adds without rounding."""
    count, rows = draw(st.integers(1, 10)), st.integers(0, 9)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    sizes = [1, 2, 4] if exact else [*range(1, SLOTS + 1)]
    widths = [sorted(column_of) for column_of in column(st.tuples(*[st.sampled_from(sizes)] * 3))]
    least, units, most = zip(*widths, strict=True)
    walltime = column(st.integers(1, 9))
    run = [max(1, min(wall, each)) for wall, each in zip(walltime, column(rows), strict=True)]
    parallel = column(st.sampled_from([0.0, 1.0] if exact else [0.0, 0.5, 0.9, 0.99, 1.0]))
    return Workload.of(
        submit=column(st.integers(0, 6)), run=run, cores=units, walltime=walltime,
        moldable=Moldable(least, most, parallel, column(st.sampled_from([True, True, False]))),
    )  # fmt: skip


Piece = tuple[int, float, float, int]


class WrittenToBeRead:
    """Jobs on a machine of `SLOTS` processors. It plans with boxes: begin, end, units."""

    def __init__(self, jobs: Workload, depth: float, width: str, resize: str, pause: float) -> None:
        self.jobs, self.depth, self.width, self.resize, self.pause = jobs, depth, width, resize, pause
        self.units, self.pieces, self.now = jobs.units.tolist(), list[Piece](), -math.inf
        self.running: dict[int, tuple[float, float, float]] = {}  # since when it gets on; left of its work, of its time
        self.since: dict[int, float] = {}  # when each got its width
        self.waiting = list(range(len(jobs)))

    def run(self) -> list[Piece]:
        while self.running or self.waiting:
            comes = [float(self.jobs.submit[job]) for job in self.waiting if self.jobs.submit[job] > self.now]
            self.now = min([*comes, *map(self.end, self.running)])
            for job in [job for job in self.running if self.end(job) == self.now]:
                self.pieces.append((job, self.since[job], self.now, self.units[job]))
                del self.running[job]
            while self.decide():
                pass
        return sorted(self.pieces)

    def end(self, job: int) -> float:
        begins, work, time = self.running[job]
        return begins + min(work, time)

    def can_change(self, job: int) -> bool:
        assert self.jobs.moldable is not None
        return bool(self.jobs.moldable.malleable[job])

    def decide(self) -> bool:
        """Start jobs, shrink others for them, or expand them; whether any has started."""
        queue = [job for job in self.waiting if self.jobs.submit[job] <= self.now]
        plan = {job: self.units[job] for job in self.running}
        if self.resize != "expand":
            plan |= {job: min(allowed(self.jobs, job)) for job in plan if self.can_change(job)}
        boxes: list[Box] = [(-math.inf, sum(self.running[job][::2]), plan[job]) for job in plan]
        starts = dict(self.chosen(queue, boxes))
        free = SLOTS - sum(self.units[job] for job in self.running)
        changed = {job: self.units[job] for job in self.running if self.can_change(job)}
        if starts:
            while free < sum(starts.values()):
                free += self.shrink(changed)
        elif self.resize == "both" or (self.resize == "expand" and not queue):
            while taken := self.expand(changed, free):
                free -= taken
        for job, units in changed.items():
            if units != self.units[job]:
                self.change(job, units)
        for job, units in starts.items():
            longer = self.jobs.stretch(job, units)
            self.units[job], self.since[job] = units, self.now
            run, walltime = (float(column[job]) * longer for column in (self.jobs.run, self.jobs.walltime))
            self.running[job] = self.now, run, walltime
            self.waiting.remove(job)
        return bool(starts)

    def chosen(self, queue: list[int], boxes: list[Box]) -> list[tuple[int, int]]:
        """Which start, and how wide."""
        found, reserved = [], 0
        idle, asked = free_at(self.now, boxes), sum(int(self.jobs.units[job]) for job in queue)
        for job in queue:
            own = int(self.jobs.units[job])
            widths = {own} if self.width == "as-asked" else allowed(self.jobs, job)
            plans = []
            for units in widths:
                if units <= max(idle * own // asked if self.width == "fair" else SLOTS, min(widths)):
                    lasts = float(self.jobs.walltime[job]) * self.jobs.stretch(job, units)
                    at = earliest(self.now, units, lasts, boxes)
                    plans.append((at + lasts, at, units, lasts))
            _, at, units, lasts = min(plans)
            if at == self.now:
                found.append((job, units))
            elif self.depth == 0:
                break
            elif reserved >= self.depth:
                continue
            else:
                reserved += 1
            boxes.append((at, at + lasts, units))
        return found

    def shrink(self, units: dict[int, int]) -> int:
        """Make the widest of these jobs narrower; how many processors that frees."""
        narrower = {job: [each for each in allowed(self.jobs, job) if each < units[job]] for job in units}
        job = max((job for job in units if narrower[job]), key=lambda job: (units[job], job))
        had, units[job] = units[job], max(narrower[job])
        return had - units[job]

    def expand(self, units: dict[int, int], free: int) -> int:
        """Make the narrowest of these jobs wider that can be, with so many processors; how many it takes."""
        for job in sorted(units, key=lambda job: (units[job], job)):
            had = units[job]
            following = min((each for each in allowed(self.jobs, job) if each > had), default=had)
            if had < following <= had + free:
                units[job] = following
                return following - had
        return 0

    def change(self, job: int, units: int) -> None:
        factor = self.jobs.stretch(job, units) / self.jobs.stretch(job, self.units[job])
        begins, work, time = self.running[job]
        did = max(0.0, self.now - begins)
        self.running[job] = max(begins, self.now) + self.pause, (work - did) * factor, (time - did) * factor
        self.pieces.append((job, self.since[job], self.now, self.units[job]))
        self.units[job], self.since[job] = units, self.now


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("width", ["as-asked", "soonest", "fair"])
@given(jobs=malleable(exact=True), depth=st.sampled_from(DEPTHS), pause=st.sampled_from([0.0, 0.0, 0.5, 2.0]))
def test_schedules_equal_those_of_a_slow_scheduler(
    width: str, resize: str, jobs: Workload, depth: float, pause: float
) -> None:
    found = simulate(jobs, machine, Backfill(depth, width=width, resize=resize), resize_s=pause)
    expected = WrittenToBeRead(jobs, depth, width, resize, pause).run()
    pieces = list(zip(*(column.tolist() for column in found.pieces), strict=True))
    lasting = [piece for piece in pieces if piece[1] < piece[2]]
    assert lasting == [piece for piece in expected if piece[1] < piece[2]]
    assert found.end.tolist() == [max(piece[2] for piece in expected if piece[0] == job) for job in range(len(jobs))]


@pytest.mark.parametrize("width", ["as-asked", "soonest", "fair"])
@given(
    jobs=malleable(exact=False), depth=st.sampled_from(DEPTHS), resize=st.sampled_from(RESIZES),
    pause=st.sampled_from([0.0, 0.7]), instant=st.sampled_from(["together", "one-by-one"]),
)  # fmt: skip
def test_no_work_is_lost_and_the_compiled_loop_agrees_with_decisions_on_views(
    width: str, jobs: Workload, depth: float, resize: str, pause: float, instant: str
) -> None:
    rule = Backfill(depth, width=width, resize=resize)
    found = simulate(jobs, machine, rule, resize_s=pause, instant=instant)
    pulled = simulate(jobs, machine, rule, resize_s=pause, instant=instant, watch=lambda view: None)
    for mine, other in zip(found.pieces, pulled.pieces, strict=True):
        assert mine.tolist() == other.tolist()
    assert found.outcome.tolist() == pulled.outcome.tolist()
    assert found.ran.all() and found.outcome.tolist() == simulate(jobs, machine, "easy").outcome.tolist()
    wrong = violations(found)  # widths, no more processors than there are, and the work, which pauses are no part of
    assert not [each for each in wrong if not (pause and "completed after" in each)]
    done = np.zeros(len(jobs))
    for job, begin, end, units in zip(*found.pieces, strict=True):
        done[job] += (end - begin) / jobs.stretch(job, units)
    assert found.run_as_asked == pytest.approx(done)
    assert (done >= jobs.run - 1e-6).all()
    if not pause:
        assert done == pytest.approx(jobs.run)


@given(jobs=malleable(exact=False), depth=st.sampled_from(DEPTHS), resize=st.sampled_from(RESIZES))
def test_jobs_that_are_not_malleable_keep_their_widths(jobs: Workload, depth: float, resize: str) -> None:
    assert jobs.moldable is not None
    none = dataclasses.replace(jobs.moldable, malleable=np.zeros(len(jobs), dtype=bool))
    others = dataclasses.replace(jobs, moldable=none)
    for width in ("as-asked", "fair"):
        found = simulate(others, machine, Backfill(depth, width=width, resize=resize))
        assert found.start.tolist() == simulate(others, machine, Backfill(depth, width=width)).start.tolist()
        assert found.resizes is None and found.placements is not None
    alone = simulate(jobs, machine, Backfill(depth))
    assert (alone.resizes is None or not len(alone.resizes.job)) and alone.placements is not None


def two(**columns: object) -> Workload:
    """A malleable job of 2 to 4 cores with 16 core-seconds of work, and later a rigid one of 3 cores for 4 s."""
    rigid = {"submit": [0, 1], "run": [4, 4], "cores": [4, 3], "walltime": [6, 4], "user": [0, 0]}
    return Workload.of(**rigid | {"moldable": Moldable([1, 3], [4, 3], [1, 1], [True, False])} | columns)


def test_a_job_shrinks_so_that_another_starts_and_expands_when_that_has_ended() -> None:
    """12 core-seconds are left at 1 s; the second job is over at 5 s, when 8 are left."""
    found = simulate(two(), Cluster.of(4), "easy:resize=both")
    assert [column.tolist() for column in found.pieces] == [[0, 0, 0, 1], [0, 1, 5, 1], [1, 5, 7, 5], [4, 1, 4, 3]]
    assert core_seconds(*found.used) == 28 and core_seconds(*found.used, begin=4.0, until=6.0) == 8
    assert found.run_as_asked.tolist() == [4.0, 4.0]
    numbers = summarise(found)
    assert (numbers["utilisation"], numbers["mean_wait_s"], numbers["makespan_s"]) == (1.0, 0.0, 7.0)
    narrow = simulate(two(), Cluster.of(4), "fcfs:resize=shrink")
    assert narrow.end.tolist() == [13.0, 5.0]
    assert simulate(two(), Cluster.of(4), "fcfs:resize=expand").start.tolist() == [0.0, 4.0]
    slow = simulate(two(), Cluster.of(4), "easy:resize=both", resize_s=1.0)
    assert slow.end.tolist() == [8.25, 5.0]  # 3 core-seconds from 2 s to 5 s; 9 from 6 s on


def test_energy_and_fair_shares_go_by_the_width_that_a_job_had() -> None:
    cluster = dataclasses.replace(Cluster.of(1, 4), power=NodePower(idle_w=0.0, busy_w=4000.0))
    found = simulate(two(), cluster, "easy:resize=both")
    assert summarise(found)["energy_jobs_kwh"] == pytest.approx(28 / 3600)
    off = dataclasses.replace(cluster, power=NodePower.of("idle_w=1,busy_w=2,off_w=0"))
    with pytest.raises(InvalidInput, match="no job that is resized"):
        summarise(simulate(two(), off, "easy:resize=both"))
    engine = Engine(two(), cluster, MachineSettings(priority="multifactor:fairshare=1,half_life_s=3"))
    rule = Easy(resize="both").native
    assert rule is not None
    engine.dispatch(rule)
    life = 3 / math.log(2)
    used = [
        units * life * (math.exp((end - 7) / life) - math.exp((begin - 7) / life))
        for _, begin, end, units in zip(*engine.schedule().pieces, strict=True)
    ]
    assert engine.state.usage[0, :2].tolist() == pytest.approx([sum(used), 7.0])


@pytest.mark.parametrize("at", [0.5, 3.0, 6.0])
def test_a_job_that_waits_again_asks_for_its_own_width_and_all_of_its_time(at: float) -> None:
    engine = Engine(two(), Cluster.of(4))
    before = engine.copy()
    rule = Easy(resize="both").native
    assert rule is not None
    operations.fail_node(engine, 0, at=at, back=20.0)
    engine.dispatch(rule, until=at)
    row, was = engine.state.jobs[0], before.state.jobs[0]
    assert row["restarts"] == 1
    for name in ("units", "cores", "walltime", "estimate", "predicted"):
        assert row[name] == was[name]
    for name in ("run", "stop"):
        assert engine.state.job_states[name][0] == before.state.job_states[name][0]
    engine.dispatch(rule)
    schedule = engine.schedule()
    assert schedule.run_as_asked[0] == pytest.approx(4.0)
    assert (schedule.pieces[1] >= schedule.start[schedule.pieces[0]]).all()


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (SetWidth(0, 3), "it may have 2, 1, 4 units"),
        (SetWidth(1, 2), "stays unless it is malleable"),
        (SetWidth(0, 4), "it has 2 units, and 1 are free"),
        (SetWidth(2, 1), "not waiting or running"),
    ],
)
def test_only_widths_that_a_running_job_can_have_are_taken(decision: SetWidth, why: str) -> None:
    jobs = Workload.of(
        submit=[0, 0, 9], run=[8, 8, 1], cores=[2, 1, 1], walltime=[9, 9, 9],
        moldable=Moldable([1, 1, 1], [4, 2, 1], [1, 1, 1], [True, False, True]),
    )  # fmt: skip
    engine = Engine(jobs, Cluster.of(4))
    engine.advance()
    engine.apply([Start(0), Start(1)])
    with pytest.raises(IllegalDecision, match=why):
        engine.apply([decision])
    engine.apply([SetWidth(0, 1)])
    view = engine.view()
    assert (view.slots, view.ends.tolist(), view.free[:, 0].sum()) == (2, [9.0, 18.0], 2)


def test_machines_and_rules_that_cannot_resize_say_so() -> None:
    parts = dataclasses.replace(Cluster.of(4), partitions={"all": Partition(tuple(range(4)))})
    with pytest.raises(InvalidInput, match="say resize=none"):
        simulate(two(), parts, "easy:resize=both")
    assert simulate(two(), parts, "easy").start.tolist() == [0.0, 4.0]
    assert simulate(dataclasses.replace(two(), moldable=None), parts, "easy:resize=both").ran.all()
    with pytest.raises(InvalidInput, match="predictor user or oracle"):
        simulate(two(), Cluster.of(4), "easy:resize=both", predictor="last-two")
    with pytest.raises(InvalidInput, match="first-fit, best-fit or contiguous"):
        simulate(two(), Cluster.of(4), "easy:resize=both", placement=Anywhere())
    with pytest.raises(UnknownName, match="resize"):
        Easy(resize="grow")
    with pytest.raises(InvalidInput, match="resize=both plans with wall times: leave fill="):
        Backfill(fill="sjf", resize="both")
    with pytest.raises(InvalidInput, match="resize_s"):
        simulate(two(), Cluster.of(4), "easy:resize=both", resize_s=-1.0)
    with pytest.raises(InvalidInput, match=r"moldable\.malleable"):
        Workload.of(submit=[0], run=[1], cores=[1], moldable=Moldable([1], [2], [1.0], [True, False]))


class Anywhere:
    """A placement in Python."""

    def choose(self, free: Ints, need: Ints, units: int, per_node: int) -> tuple[NodeRun, ...]:
        return FirstFit().choose(free, need, units, per_node)


@pytest.mark.parametrize("placement", ["first-fit", "best-fit", "contiguous"])
@given(jobs=malleable(exact=False))
def test_nodes_hold_what_their_jobs_have(placement: str, jobs: Workload) -> None:
    """On nodes of several cores, at each decision."""
    cluster = Cluster.of(3, 2)

    def check(view: TableView) -> None:
        held = view.jobs["units"][view.active].sum()
        assert view.slots == view.free[:, 0].sum() == 6 - held
        assert (view.free >= 0).all() and (view.free <= 2).all()

    assert violations(simulate(jobs, cluster, "easy:width=fair,resize=both", placement=placement, watch=check)) == []


@given(jobs=malleable(exact=False))
def test_a_written_log_says_who_is_malleable(jobs: Workload, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    write_swf(log_of(simulate(jobs, machine, "easy", overrun="allow")), path)
    found, wanted = load_swf(path).workload, jobs.moldable
    assert wanted is not None
    some = wanted.least < wanted.most
    if some.any():
        assert found.moldable is not None
        assert found.moldable.malleable.tolist() == (wanted.malleable & some).tolist()
        assert found.moldable.most[some].tolist() == wanted.most[some].tolist()
    assert np.allclose(found.run, jobs.run) and np.allclose(found.walltime, jobs.walltime)
    assert found.take([0]).moldable is None or found.take([0]).moldable.malleable.tolist() == [
        some[0] & wanted.malleable[0]
    ]


def test_processors_of_a_job_that_was_resized_are_written_as_their_mean() -> None:
    log = log_of(simulate(two(), Cluster.of(4), "easy:resize=both"))
    assert log["allocated"].tolist() == [2.0, 3.0]  # 16 core-seconds in 7 s
    assert log.trace().workload.run.tolist() == pytest.approx([3.5, 4.0])
