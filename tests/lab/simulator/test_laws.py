from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Reserve
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import JobState
from asa.core.view import QueuedJob
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.schedule import OUTCOMES, Placements, Schedule
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Conservative, Easy, EasyPlusPlus, Fcfs
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.traces.load import load_trace
from tests.lab.simulator.cases import SLOTS, Readable, mixed, pull, workloads
from tests.lab.simulator.validate import lines, replay, violations

DEPTHS = (0, 1, 2, math.inf)
machine = Cluster.of(nodes=SLOTS)


def same(one: object, other: object) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("overrun", ["clip", "allow"])
@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads())
def test_schedules_keep_the_laws_and_everything_ends(depth: float, overrun: str, jobs: Workload) -> None:
    schedule = simulate(jobs, machine, Backfill(depth), overrun=overrun)
    assert violations(schedule) == []
    assert schedule.ran.all()
    late = jobs.run > jobs.walltime
    assert (schedule.outcome == list(JobState).index(JobState.TIMEOUT)).tolist() == (
        late.tolist() if overrun == "clip" else [False] * len(jobs)
    )


@pytest.mark.parametrize("fill", [None, "sjf", "largest-area"])
@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads(), limit=st.sampled_from([2, math.inf]), window=st.sampled_from([3.0, math.inf]))
def test_compiled_loop_pull_loop_and_readable_rule_agree(
    depth: float, fill: str | None, jobs: Workload, limit: float, window: float
) -> None:
    rule = Backfill(depth, limit, fill=fill, window=window)
    driven = simulate(jobs, machine, rule)
    pulled = pull(jobs, machine, rule)
    assert same(driven.start, pulled.start)
    assert driven.placements is not None and pulled.placements is not None
    assert same(driven.placements.runs, pulled.placements.runs)
    assert same(driven.start, pull(jobs, machine, Readable(rule)).start)


@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads())
def test_tables_and_objects_give_the_same_decisions(depth: float, jobs: Workload) -> None:
    rule = Backfill(depth)
    engine = Engine(jobs, machine)
    while (view := engine.advance()) is not None:
        decisions = rule.decide(view)
        assert decisions == list(Readable(rule).decide(view))
        engine.apply(decisions)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sjf", "largest-area", "wfp3", "f1"])
@given(jobs=workloads(), threshold=st.sampled_from([1e-9, 30.0, math.inf]))
def test_orders_agree_between_compiled_and_pull_loop(order: str, jobs: Workload, threshold: float) -> None:
    rule = Easy(order=order, threshold=threshold)
    assert same(simulate(jobs, machine, rule).start, pull(jobs, machine, rule).start)


@pytest.mark.slow
@pytest.mark.parametrize("depth", DEPTHS)
@given(case=mixed())
def test_unequal_nodes_keep_the_laws(depth: float, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, Backfill(depth))
    assert violations(schedule) == []
    refused = schedule.outcome == list(JobState).index(JobState.FAILED)
    assert (schedule.ran | refused).all()
    assert same(schedule.start, pull(jobs, cluster, Backfill(depth)).start)


@given(jobs=workloads())
def test_node_scan_equals_slot_scan_where_nothing_is_reserved(jobs: Workload) -> None:
    """A partition of all nodes makes the engine look at nodes; nothing else changes."""
    with_nodes = dataclasses.replace(machine, partitions={"all": Partition(tuple(range(SLOTS)))})
    assert same(simulate(jobs, machine, Fcfs()).start, simulate(jobs, with_nodes, Fcfs()).start)


@given(jobs=workloads())
def test_fcfs_starts_in_order(jobs: Workload) -> None:
    assert (np.diff(simulate(jobs, machine, Fcfs()).start) >= 0).all()


@given(jobs=workloads(exact=True))
def test_conservative_delays_no_job_beyond_fcfs(jobs: Workload) -> None:
    assert (simulate(jobs, machine, Conservative()).start <= simulate(jobs, machine, Fcfs()).start).all()


def broken_promises(jobs: Workload, cluster: Cluster, fill: str | None) -> list[int]:
    """Jobs that started later than they were promised while they were the head of the queue."""
    engine, promised = Engine(jobs, cluster), {}
    while (view := engine.advance()) is not None:
        decisions = Backfill(fill=fill).decide(view)
        promised.update({d.job: d.at for d in decisions if isinstance(d, Reserve) and d.job == view.waiting[0]})
        engine.apply(decisions)
    start = engine.schedule().start
    return [row for row, at in promised.items() if start[row] > at]


@given(jobs=workloads(), fill=st.sampled_from([None, "sjf"]))
def test_the_head_never_starts_later_than_its_shadow_time(jobs: Workload, fill: str | None) -> None:
    assert broken_promises(jobs, machine, fill) == []


@given(case=mixed(), fill=st.sampled_from([None, "sjf"]))
def test_nor_does_it_on_unequal_nodes(case: tuple[Workload, Cluster], fill: str | None) -> None:
    assert broken_promises(*case, fill) == []


class Half:
    """Predicts half of each wall time."""

    def predict(self, job: QueuedJob) -> float:
        return job.walltime_s / 2

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        """Nothing is learned."""


def easy_plus_plus(jobs: Workload, strict_after: float) -> list[float]:
    """When jobs start with EASY++ and `Half`, on a machine of `SLOTS` processors; written to be read.

    After a pass that started jobs there is another: what was started for as long as it is predicted to run counts with
    its wall time from then on.
    """
    start = [math.nan] * len(jobs)
    for now in moments(jobs, start):
        waiting = -1
        while waiting != (waiting := sum(map(math.isnan, start))):
            _pass(jobs, strict_after, now, start)
    return start


def _pass(jobs: Workload, strict_after: float, now: float, start: list[float]) -> None:
    running = [job for job, at in enumerate(start) if at <= now < at + min(jobs.run[job], jobs.walltime[job])]
    free = SLOTS - sum(jobs.cores[job] for job in running)
    queue = [job for job in range(len(jobs)) if jobs.submit[job] <= now and math.isnan(start[job])]
    while queue and jobs.cores[queue[0]] <= free:
        job = queue.pop(0)
        start[job], free = now, free - jobs.cores[job]
        running.append(job)
    if queue:
        head, *behind = queue
        shadow, left = now, free
        for job in sorted(running, key=lambda job: start[job] + jobs.walltime[job]):
            ends = start[job] + jobs.walltime[job]
            if left >= jobs.cores[head] and ends > shadow:
                break
            shadow, left = ends, left + jobs.cores[job]
        left -= jobs.cores[head]
        lasts = jobs.walltime / (1 if now - jobs.submit[head] > strict_after else 2)
        for job in sorted(behind, key=lambda job: jobs.walltime[job]):
            over = now + lasts[job] <= shadow
            if jobs.cores[job] <= free and (over or jobs.cores[job] <= left):
                start[job], free = now, free - jobs.cores[job]
                left -= 0 if over else jobs.cores[job]


def moments(jobs: Workload, start: list[float]) -> Iterator[float]:
    """When jobs are submitted or end, in order of time; `start` is filled meanwhile."""
    now = -math.inf
    while True:
        ends = np.array(start) + np.minimum(jobs.run, jobs.walltime)
        if not len(later := [at for at in (*jobs.submit, *ends) if at > now]):
            return
        now = min(later)
        yield now


@given(jobs=workloads(), strict_after=st.sampled_from([1.0, 5.0, math.inf]))
def test_easy_plus_plus_equals_a_readable_one(jobs: Workload, strict_after: float) -> None:
    jobs = dataclasses.replace(jobs, run=np.maximum(jobs.run, 1.0))  # no job starts and ends at one moment
    schedule = simulate(jobs, machine, EasyPlusPlus(predictor=Half(), strict_after=strict_after))
    assert violations(schedule) == []
    assert schedule.start.tolist() == easy_plus_plus(jobs, strict_after)


@pytest.mark.parametrize("predictor", [None, "last-two"])
@given(jobs=workloads(), oldest=st.sampled_from([1, 2, math.inf]), instant=st.sampled_from(["together", "one-by-one"]))
def test_compiled_and_watched_dispatchers_agree(
    predictor: str | None, jobs: Workload, oldest: float, instant: str
) -> None:
    """One that is watched decides in Python, on views."""
    rule = Backfill(order="sjf", threshold=3.0, oldest=oldest, predictor=predictor, strict_after=5.0)
    compiled = simulate(jobs, machine, rule, instant=instant)
    assert same(compiled.start, simulate(jobs, machine, rule, instant=instant, watch=lambda view: None).start)


@given(case=mixed(), strict_after=st.sampled_from([1.0, 5.0, math.inf]))
def test_it_keeps_the_laws_on_unequal_nodes(case: tuple[Workload, Cluster], strict_after: float) -> None:
    schedule = simulate(*case, EasyPlusPlus(predictor=Half(), strict_after=strict_after))
    assert violations(schedule) == []
    assert (schedule.ran | (schedule.outcome == list(JobState).index(JobState.FAILED))).all()


def test_predictions_of_one_dispatcher_are_learned_anew_in_each_simulation() -> None:
    """A job of the user whose jobs are short fills the gap, which its wall time does not fit."""
    work = Workload.of(
        submit=[0, 10, 20, 21, 22], run=[2, 2, 6, 5, 2], walltime=[50, 50, 6, 5, 50], cores=[1, 1, 1, 2, 1],
        user=[1, 1, 2, 3, 1],
    )  # fmt: skip
    rule = EasyPlusPlus()
    for _ in range(2):
        assert simulate(work, Cluster.of(2), rule).start[4] == 22.0
    assert simulate(work, Cluster.of(2), EasyPlusPlus(strict_after=0.5)).start[4] == 31.0
    with pytest.raises(InvalidInput, match=re.escape("as in easy++:predictor=heuristic")):
        simulate(work, Cluster.of(2), "easy++", predictor="oracle")
    with pytest.raises(UnknownName, match="predictor"):
        simulate(work, Cluster.of(2), "easy++:predictor=last-too")


@given(jobs=workloads(), scale=st.sampled_from([0.5, 4.0, 1024.0]))
def test_scaling_time_scales_the_schedule(jobs: Workload, scale: float) -> None:
    scaled = dataclasses.replace(jobs, submit=jobs.submit * scale, run=jobs.run * scale, walltime=jobs.walltime * scale)
    for depth in DEPTHS:
        assert same(
            simulate(jobs, machine, Backfill(depth)).start * scale, simulate(scaled, machine, Backfill(depth)).start
        )


@given(jobs=workloads(), seed=st.integers(0, 99))
def test_job_numbers_change_nothing(jobs: Workload, seed: int) -> None:
    numbers = np.random.default_rng(seed).permutation(len(jobs)) + 1
    renamed = dataclasses.replace(jobs, number=numbers)
    assert same(simulate(jobs, machine, Easy()).start, simulate(renamed, machine, Easy()).start)


@settings(max_examples=50)
@given(jobs=workloads())
def test_the_log_tells_the_schedule(jobs: Workload) -> None:
    engine = Engine(jobs, machine, MachineSettings())
    rule = Easy().native
    assert rule is not None
    engine.dispatch(rule)
    start, end = replay(lines(engine), len(jobs))
    assert same(start, engine.schedule().start)
    assert same(end, engine.schedule().end)


def test_so_it_does_of_a_job_that_had_to_wait_again() -> None:
    engine = Engine(Workload.of(submit=[0], run=[5], cores=[1], walltime=[9]), Cluster.of(nodes=1))
    operations.fail_node(engine, 0, at=2.0, back=7.0)
    rule = Fcfs().native
    assert rule is not None
    engine.dispatch(rule)
    start, end = replay(lines(engine), 1)
    assert (start.tolist(), end.tolist()) == ([7.0], [12.0])
    until_then = [line for line in lines(engine) if line.at < 7.0]
    assert "requeued" in [line.kind for line in until_then]
    assert np.isnan(replay(until_then, 1)).all()


@pytest.fixture(scope="module")
def data() -> Path:
    folder = Path(__file__).parents[4] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is missing: real logs and the schedules of other simulators")
    return folder


def read(path: Path) -> Workload:
    """The jobs of a log; those of one instant by number, for a result file has them in order of ending."""
    jobs = load_trace(path).workload
    return jobs.take(np.lexsort((jobs.number, jobs.submit)))


def bounded_slowdown(schedule: Schedule) -> float:
    jobs = schedule.workload
    turnaround = schedule.end - jobs.submit
    return float(np.maximum(1.0, turnaround / np.maximum(jobs.run, 10.0)).mean())


@pytest.mark.shared
@pytest.mark.parametrize(("log", "processors", "slowdown"), [("KTH-SP2", 100, "92.58"), ("CTC-SP2", 338, "49.57")])
def test_easy_equals_pyss_job_by_job(data: Path, log: str, processors: int, slowdown: str) -> None:
    jobs = read(data / "oracle" / f"pyss-EASY-result_{log}.swf.gz")
    schedule = simulate(jobs, Cluster.of(processors), "easy", instant="one-by-one", keep_nodes=False)
    assert np.array_equal(schedule.wait, jobs.wait)
    assert f"{bounded_slowdown(schedule):.2f}" == slowdown


@pytest.mark.shared
@pytest.mark.parametrize("log", ["KTH-SP2", "CTC-SP2"])
def test_deciding_on_whole_instants_differs_from_pyss_but_keeps_the_laws(data: Path, log: str) -> None:
    jobs = read(data / "oracle" / f"pyss-EASY-result_{log}.swf.gz").take(np.arange(5000))
    schedule = simulate(jobs, Cluster.of({"KTH-SP2": 100, "CTC-SP2": 338}[log]), "easy")
    assert violations(schedule) == []
    assert schedule.ran.all()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "predictor", "wait", "slowdown"),
    [
        ("lublin_256", "oracle", "97156.0", "590.05"),
        ("lf10k", "user", "14795.7", "181.39"),
        ("lf50k", "user", "16063.7", "212.50"),
    ],
)
def test_classic_easy(data: Path, log: str, predictor: str, wait: str, slowdown: str) -> None:
    schedule = simulate(read(data / "swf" / f"{log}.swf.gz"), Cluster.of(256), "easy", predictor=predictor)
    assert f"{schedule.wait.mean():.1f}" == wait
    assert f"{bounded_slowdown(schedule):.2f}" == slowdown


COMPLETED, TIMEOUT = OUTCOMES.index(JobState.COMPLETED), OUTCOMES.index(JobState.TIMEOUT)
WORK = Workload.of(submit=[0, 2], run=[5, 5], cores=[2, 2], walltime=[9, 9], number=[11, 12])
MACHINE = Cluster(np.array([[2], [1]]), names=("big", "small"))
LATER = [[0, 0, 2], [0, 0, 2]]
"""Nodes of the two jobs, one after the other."""


def made(
    start: list[float], end: list[float], *, where: list[list[int]] | None = None, outcome: int = COMPLETED
) -> Schedule:
    """A schedule of the two jobs, written by hand."""
    return Schedule(
        WORK, MACHINE, WORK.submit, np.array(start), np.array(end), np.full(2, outcome, dtype=np.int8),
        np.zeros(2, dtype=np.int64), None if where is None else Placements(np.array([0, 1]), np.array(where)),
    )  # fmt: skip


def test_a_good_one_breaks_none() -> None:
    assert violations(made([0, 5], [5, 10], where=LATER)) == []


@pytest.mark.parametrize(
    ("start", "end", "broken"),
    [
        ([6, 1], [11, 6], "job 12 starts at 1 s, before it is submitted"),
        ([0, 5], [4, 10], "job 11 completed after 4 s instead of 5 s"),
        ([0, 8], [6.5, 13], "job 11 completed after 6.5 s instead of 5 s"),
        ([0, 4], [5, 9], "4 cores are in use at 4 s: there are 3"),
    ],
)
@pytest.mark.parametrize("where", [None, [[0, 0, 2], [0, 0, 2]]], ids=["times", "places"])
def test_a_broken_law_is_reported(
    start: list[float], end: list[float], broken: str, where: list[list[int]] | None
) -> None:
    found = violations(made(start, end, where=where))
    assert broken in found
    crowded = "are in use" in broken and where is not None
    assert found == [broken, "node big gives 4 cores at 4 s: it has 2"][: 1 + crowded]


def test_all_broken_laws_are_reported() -> None:
    assert violations(made([-1, 1], [5, 6])) == [
        "job 11 starts at -1 s, before it is submitted",
        "job 12 starts at 1 s, before it is submitted",
        "job 11 completed after 6 s instead of 5 s",
        "4 cores are in use at 1 s: there are 3",
    ]


def test_no_job_ends_before_its_start() -> None:
    assert violations(made([0, 5], [4, 3], outcome=TIMEOUT)) == ["job 12 ends at 3 s, before it starts"]


def test_a_job_ended_at_its_wall_time_may_have_run_for_less() -> None:
    assert violations(made([0, 5], [4, 10], outcome=TIMEOUT)) == []


def test_jobs_that_never_ran_break_no_law() -> None:
    nobody = np.full(2, OUTCOMES.index(JobState.PENDING))
    only = Placements(np.array([0]), np.array([[0, 0, 2]]))
    never = made([0, np.nan], [5, np.nan])
    assert violations(replace(never, outcome=nobody, placements=only)) == []
    assert violations(never) == ["job 12 completed after nan s instead of 5 s"]


@pytest.mark.parametrize(
    ("where", "broken"),
    [
        ([[0, 0, 2], [0, 0, 1]], "job 12 holds 1 units: it asked for 2"),
        ([[0, 0, 2], [0, 1, 2]], "job 12 holds 4 units: it asked for 2"),
        ([[0, 0, 2], [1, 1, 2]], "node small gives 2 cores at 5 s: it has 1"),
        ([[0, 0, 2], [2, 2, 2]], "job 12 holds nodes 2 to 2: nodes go from 0 to 1"),
        ([[0, 0, 2], [-1, 0, 1]], "job 12 holds nodes -1 to 0: nodes go from 0 to 1"),
    ],
)
def test_so_are_places_that_cannot_be(where: list[list[int]], broken: str) -> None:
    assert broken in violations(made([0, 5], [5, 10], where=where))


def test_units_of_a_job_on_a_node_are_counted_over_all_its_runs() -> None:
    work = Workload.of(submit=[0], run=[1], walltime=[1], units=[3], per_node=[2])
    schedule = simulate(work, Cluster.of(nodes=2, cores=4))
    assert violations(schedule) == []
    twice = Placements(np.array([0, 0]), np.array([[0, 0, 2], [0, 0, 1]]))
    assert violations(replace(schedule, placements=twice)) == ["job 1 has 3 units on node n0: 2 at most"]


def test_every_resource_is_looked_at_but_those_that_are_shared() -> None:
    jobs = Workload.of(submit=[0, 0], run=[5, 5], walltime=[5, 5], units=[1, 1], demands=[[1, 6]])
    schedule = simulate(jobs, Cluster.of(nodes=1, cores=4, memory=12))
    assert violations(schedule) == []
    small = Cluster.of(nodes=1, cores=1, memory=8)
    assert violations(replace(schedule, cluster=small)) == [
        "2 cores are in use at 0 s: there are 1",
        "12 memory are in use at 0 s: there are 8",
        "node n0 gives 2 cores at 0 s: it has 1",
        "node n0 gives 12 memory at 0 s: it has 8",
    ]
    shared = replace(small, shareable=frozenset({"cores"}))
    assert violations(replace(schedule, cluster=shared)) == [
        "12 memory are in use at 0 s: there are 8",
        "node n0 gives 12 memory at 0 s: it has 8",
    ]
    unsaid = Cluster.of(nodes=1, cores=2)  # its memory is not counted
    assert violations(replace(schedule, cluster=unsaid)) == []
