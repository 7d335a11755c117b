"""Dispatchers that need no learning: backfilling, packing, windows, list plans; predictors of run times."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.decision import NodeRun, Reserve, Start
from asa.core.errors import AsaError, InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.ports import JobPredictor
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.objective import Capability, Capacity, Waiting
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import (
    F1,
    FCFS,
    LARGEST_AREA,
    ORDERS,
    SJF,
    WFP3,
    Backfill,
    Conservative,
    Easy,
    Fcfs,
    QueueOrder,
    find_order,
    order_key,
)
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.nwp import Nwp, runs
from asa.lab.dispatchers.packing import BinPacking, Knapsack, Random, best_set
from asa.lab.dispatchers.predictors import AlikeJobs, DataDriven, LastTwoOfUser, NearestJobs, Oracle, UserEstimate
from asa.lab.dispatchers.room import columns, room_of
from asa.lab.placement.nodes import BestFit
from asa.lab.placement.tjap.instance import Placed, Window
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.planning.instances import instance
from tests.lab.dispatchers.queues import UNTIMED, holds, left_over, machines, pools
from tests.lab.dispatchers.views import Job, node_view, queue_view, slot_view
from tests.lab.simulator.validate import violations
from tests.lab.traces.shared import swf_columns

# -- Backfill ---------------------------------------------------------------------------------------------------------

CORES = 5


@dataclass(frozen=True)
class TraceJob:
    """A job of a trace; it runs for `run_time`, at most its `walltime`."""

    submitted: float
    cores: int
    walltime: float
    run_time: float


@st.composite
def jobs(draw: st.DrawFn, *, exact: bool) -> list[TraceJob]:
    trace = []
    for submitted in sorted(draw(st.lists(st.integers(0, 6), min_size=1, max_size=9))):
        walltime = draw(st.integers(1, 9))
        run_time = walltime if exact else draw(st.integers(1, walltime))
        trace.append(TraceJob(float(submitted), draw(st.integers(1, CORES)), float(walltime), float(run_time)))
    return trace


def need(job: TraceJob) -> Resources:
    return Resources(cores=job.cores)


@dataclass
class Outcome:
    """When the jobs of a trace started, and what they were promised, in order of the decisions."""

    start: dict[int, float] = field(default_factory=dict)
    promises: dict[int, list[float]] = field(default_factory=dict)
    most_cores: int = 0


def run_trace(trace: list[TraceJob], dispatcher: Backfill) -> Outcome:
    """A first-come queue under `dispatcher`, decided upon at each submission and each end."""
    outcome = Outcome()
    moments = {job.submitted for job in trace}
    while moments:
        now = min(moments)
        moments.discard(now)
        running = [n for n, at in outcome.start.items() if now < at + trace[n].run_time]
        queue = [n for n, job in enumerate(trace) if job.submitted <= now and n not in outcome.start]
        view = QueueView(
            now,
            Resources(cores=CORES),
            tuple(QueuedJob(str(n), need(trace[n]), trace[n].walltime, trace[n].submitted) for n in queue),
            tuple(RunningJob(str(n), need(trace[n]), outcome.start[n] + trace[n].walltime) for n in running),
        )
        for decision in dispatcher.decide(view):
            number = int(decision.job)
            if isinstance(decision, Reserve):
                outcome.promises.setdefault(number, []).append(decision.at)
            else:
                assert number in queue
                queue.remove(number)
                running.append(number)
                outcome.start[number] = now
                moments.add(now + trace[number].run_time)
        outcome.most_cores = max(outcome.most_cores, sum(trace[n].cores for n in running))
    assert len(outcome.start) == len(trace), "every job starts in the end"
    return outcome


def needs(limit: int) -> st.SearchStrategy[Resources]:
    return st.builds(Resources, cores=st.integers(1, limit), memory=st.none() | st.sampled_from([20, 60]))


@st.composite
def views(draw: st.DrawFn) -> QueueView:
    """Any view of a machine that is not overfull; some queued jobs are larger than it."""
    free, running = Resources(cores=CORES, memory=100), []
    room = Profile(free, 0.0)
    for number, held in enumerate(draw(st.lists(needs(CORES), max_size=4))):
        ends = float(draw(st.integers(-1, 9)))
        if room.fits(held, 0.0, math.inf):
            room.reserve(held, 0.0, math.inf)
            running.append(RunningJob(f"r{number}", held, ends))
    sizes = draw(st.lists(st.tuples(needs(CORES + 1), st.integers(1, 9)), max_size=8))
    queue = tuple(QueuedJob(f"q{n}", size, float(walltime), 0.0) for n, (size, walltime) in enumerate(sizes))
    return QueueView(0.0, free, queue, tuple(running))


def started(view: QueueView, dispatcher: Backfill) -> list[QueuedJob]:
    names = [decision.job for decision in dispatcher.decide(view) if isinstance(decision, Start)]
    assert len(names) == len(set(names)), "a job starts once"
    return [job for job in view.queue if job.key in names]


def with_running(view: QueueView, extra: list[QueuedJob]) -> Profile:
    held = [(job.resources, job.ends) for job in view.running]
    return Profile(view.capacity, view.now, held + [(job.resources, view.now + job.walltime_s) for job in extra])


@given(views(), st.sampled_from([0, 1, 2, math.inf]))
def test_capacity_is_never_exceeded(view: QueueView, depth: float) -> None:
    _, (cores, memory, _) = with_running(view, started(view, Backfill(depth))).steps()[0]
    assert cores >= 0
    assert memory >= 0


@given(views())
def test_fcfs_starts_the_first_jobs_of_the_queue(view: QueueView) -> None:
    possible = [job for job in view.queue if job.resources.fits(view.capacity)]
    names = started(view, Fcfs())
    assert names == possible[: len(names)]
    rest = possible[len(names) :]
    assert not rest or not with_running(view, names).fits(rest[0].resources, view.now, rest[0].walltime_s)


@given(views())
def test_easy_promises_the_first_blocked_job_its_shadow_time_and_keeps_it_free(view: QueueView) -> None:
    ahead = started(view, Fcfs())
    blocked = [job for job in view.queue if job not in ahead and job.resources.fits(view.capacity)]
    promises = [decision for decision in Easy().decide(view) if isinstance(decision, Reserve)]
    if not blocked:
        assert promises == []
        return
    head = blocked[0]
    shadow = with_running(view, ahead).earliest(head.resources, head.walltime_s)
    assert promises == [Reserve(head.key, shadow)]
    assert with_running(view, started(view, Easy())).earliest(head.resources, head.walltime_s) == shadow


@given(views())
def test_easy_leaves_no_job_waiting_that_could_start(view: QueueView) -> None:
    running = started(view, Easy())
    for decision in Easy().decide(view):
        if isinstance(decision, Reserve):
            head = next(job for job in view.queue if job.key == decision.job)
            for other in view.queue:
                if other is not head and other not in running and other.resources.fits(view.capacity):
                    profile = with_running(view, running)
                    fits = profile.fits(other.resources, view.now, other.walltime_s)
                    later = with_running(view, [*running, other]).earliest(head.resources, head.walltime_s)
                    assert not fits or later > decision.at


@given(jobs(exact=False), st.sampled_from([0, 1, 2, math.inf]))
def test_in_a_whole_trace_capacity_holds_and_every_job_starts(trace: list[TraceJob], depth: float) -> None:
    assert run_trace(trace, Backfill(depth)).most_cores <= CORES


@given(jobs(exact=False))
def test_fcfs_lets_no_job_overtake(trace: list[TraceJob]) -> None:
    starts = run_trace(trace, Fcfs()).start
    assert [starts[n] for n in range(len(trace))] == sorted(starts.values())


@given(jobs(exact=False))
def test_easys_head_never_starts_later_than_promised(trace: list[TraceJob]) -> None:
    outcome = run_trace(trace, Easy())
    for number, promises in outcome.promises.items():
        assert outcome.start[number] <= promises[-1]
        assert promises == sorted(promises, reverse=True)


@given(jobs(exact=True), st.sampled_from([1, 2, math.inf]))
def test_with_exact_run_times_every_promise_is_kept(trace: list[TraceJob], depth: float) -> None:
    outcome = run_trace(trace, Backfill(depth))
    for number, promises in outcome.promises.items():
        assert outcome.start[number] <= min(promises)


@given(jobs(exact=True))
def test_with_exact_run_times_no_job_starts_later_under_conservative_than_under_fcfs(trace: list[TraceJob]) -> None:
    conservative, fcfs = run_trace(trace, Conservative()), run_trace(trace, Fcfs())
    assert all(conservative.start[n] <= fcfs.start[n] for n in range(len(trace)))


def test_with_inexact_run_times_an_earlier_job_may_take_the_place_that_a_later_one_was_promised() -> None:
    """The documented deviation: reservations are made anew, in the queue's order, whenever a job ends early."""
    small, whole = TraceJob(0.0, 1, 1.0, 1.0), TraceJob(0.0, 5, 1.0, 1.0)
    ends_early = TraceJob(0.0, 4, 2.0, 1.0)
    outcome = run_trace([small, ends_early, whole, small], Conservative())
    assert outcome.promises == {2: [2.0], 3: [1.0, 2.0]}
    assert outcome.start == {0: 0.0, 1: 0.0, 2: 1.0, 3: 2.0}


def test_depth_must_be_a_whole_number() -> None:
    for depth in (-1, 0.5, math.nan):
        with pytest.raises(InvalidInput, match="depth"):
            Backfill(depth)


def test_a_job_that_could_not_start_within_the_window_has_no_reservation_and_is_overtaken() -> None:
    queue = (
        QueuedJob("whole", Resources(cores=4), walltime_s=60.0, submitted=0.0),
        QueuedJob("long", Resources(cores=1), walltime_s=9999.0, submitted=0.0),
    )
    running = (RunningJob("one", Resources(cores=3), ends=500.0),)
    view = QueueView(now=100.0, capacity=Resources(cores=4), queue=queue, running=running)
    assert Conservative().decide(view) == [Reserve("whole", 500.0), Reserve("long", 560.0)]
    assert DISPATCHERS.create("backfill:depth=inf,window=400s").decide(view) == [Reserve("whole", 500.0)]
    assert DISPATCHERS.create("backfill:depth=inf,window=399s").decide(view) == [Start("long")]
    with pytest.raises(InvalidInput, match="window"):
        Backfill(window=-1.0)


def test_registered_names() -> None:
    depths = {name: DISPATCHERS.create(name).depth for name in ("fcfs", "easy", "conservative")}
    assert depths == {"fcfs": 0, "easy": 1, "conservative": math.inf}


def test_a_threshold_needs_an_order() -> None:
    with pytest.raises(InvalidInput, match="there is no order: say order=sjf"):
        DISPATCHERS.create("easy:threshold=3d")


def test_jobs_beyond_the_threshold_come_before_the_shortest() -> None:
    queue = (
        QueuedJob("long", Resources(cores=4), walltime_s=500.0, submitted=0.0),
        QueuedJob("short", Resources(cores=4), walltime_s=5.0, submitted=90.0),
    )
    view = QueueView(now=100.0, capacity=Resources(cores=4), queue=queue, running=())
    for threshold, job in (("2m", "short"), (99.0, "long"), (100.0, "short")):
        first = Easy(order="sjf", threshold=threshold).decide(view)[0]
        assert first == Start(job)


def test_an_order_of_ones_own_is_no_matter_for_compiled_code() -> None:
    def largest(job: QueuedJob, _now: float) -> float:
        return -job.resources.cores

    assert Easy(order=largest).native is None
    assert Easy(order="sjf").native is not None
    queue = tuple(QueuedJob(cores, Resources(cores=cores), walltime_s=9.0, submitted=0.0) for cores in (1, 3, 2))
    view = QueueView(now=0.0, capacity=Resources(cores=5), queue=queue, running=())
    assert Fcfs(order=largest).decide(view) == [Start(3), Start(2)]


JOBS = [
    Job(4, submit=10.0, estimate=3600.0),
    Job(1, submit=20.0, estimate=60.0),
    Job(8, submit=30.0, estimate=600.0),
    Job(1, submit=40.0, estimate=60.0),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fcfs", [10.0, 20.0, 30.0, 40.0]),
        ("sjf", [3600.0, 60.0, 600.0, 60.0]),
        ("largest-area", [-14400.0, -60.0, -4800.0, -60.0]),
        ("smallest-area", [14400.0, 60.0, 4800.0, 60.0]),
        ("wfp3", [-4 * (90 / 3600) ** 3, -((80 / 60) ** 3), -8 * (70 / 600) ** 3, -1.0]),
        (
            "f1",
            [
                4 * math.log10(3600) + 870,
                math.log10(60) + 870 * math.log10(20),
                8 * math.log10(600) + 870 * math.log10(30),
                math.log10(60) + 870 * math.log10(40),
            ],
        ),
    ],
)
def test_keys_are_those_of_the_papers(name: str, expected: list[float]) -> None:
    """At 100 s."""
    assert find_order(name).keys(slot_view(JOBS, 1, 8)) == pytest.approx(expected)
    assert find_order(name).keys(queue_view(JOBS, 1, 8)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("sjf", [1, 3, 2, 0]),
        ("largest-area", [0, 2, 1, 3]),
        ("wfp3", [1, 3, 2, 0]),
        ("f1", [0, 1, 2, 3]),
    ],
)
def test_the_lowest_key_is_first_and_of_equal_ones_the_earlier(name: str, places: list[int]) -> None:
    assert find_order(name).arrange(slot_view(JOBS, 1, 8)).tolist() == places


def test_many_equal_keys_leave_jobs_as_they_stand() -> None:
    jobs = [Job(1, estimate=60.0 * (row % 2)) for row in range(300)]
    assert find_order("sjf").arrange(slot_view(jobs, 1, 8)).tolist() == [*range(0, 300, 2), *range(1, 300, 2)]


def test_large_jobs_that_have_waited_long_lead_wfp3() -> None:
    wfp3 = find_order("wfp3")
    early = wfp3.rank(1000.0, [0.0, 900.0], [1000.0, 60.0], [8, 8])
    late = wfp3.rank(9000.0, [0.0, 8900.0], [1000.0, 60.0], [8, 8])
    assert early[0] > early[1] and late[0] < late[1]


@pytest.mark.parametrize("submit", [-5.0, 0.0, 0.5, 1.0])
def test_f1_takes_the_first_second_of_a_trace_for_one(submit: float) -> None:
    assert order_key(F1, 0.0, submit, 100.0, 3) == pytest.approx(6.0)


@pytest.mark.parametrize("code", [WFP3, F1])
def test_a_job_without_length_counts_as_one_of_a_second(code: int) -> None:
    key = order_key(code, 50.0, 40.0, 0.0, 2)
    assert math.isfinite(key) and key == order_key(code, 50.0, 40.0, 1.0, 2)


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
@pytest.mark.parametrize("code", [SJF, LARGEST_AREA, WFP3, F1])
def test_jobs_without_an_estimate_come_last(code: int, unknown: float) -> None:
    assert order_key(code, 50.0, 40.0, unknown, 2) == math.inf
    assert order_key(FCFS, 50.0, 40.0, unknown, 2) == 40.0


@UNTIMED
@given(
    st.sampled_from(sorted(ORDERS)),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 100_000)), max_size=8),
)
def test_columns_give_the_keys_of_their_rows(name: str, jobs: list[tuple[float, float, int]]) -> None:
    columns = [np.array([job[k] for job in jobs]) for k in range(3)]
    keys = find_order(name).rank(2e6, *columns)
    assert keys.tolist() == [order_key(ORDERS[name].code, 2e6, *job) for job in jobs]


@UNTIMED
@given(st.sampled_from(sorted(ORDERS)), st.permutations(range(6)), st.floats(100.0, 1e6))
def test_only_wfp3_changes_with_time(name: str, jobs: list[int], later: float) -> None:
    submit, cores = np.zeros(6), np.ones(6, dtype=np.int64)
    now, then = (find_order(name).rank(time, submit, np.array(jobs) * 60.0, cores) for time in (99.0, later))
    assert name == "wfp3" or (now == then).all()


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_jobs_beyond_the_threshold_come_first_as_they_stand(name: str) -> None:
    """At 100 s, of jobs that came at 10, 20, 30 and 40 s."""
    late = find_order(name, 75.0)
    assert late.name == name
    for make in (queue_view, slot_view):
        assert late.arrange(make(JOBS, 1, 8)).tolist()[:2] == [0, 1]
        assert late.keys(make(JOBS, 1, 8))[2:].tolist() == find_order(name).keys(make(JOBS, 1, 8))[2:].tolist()
    assert find_order(name, math.inf) is ORDERS[name]


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_of_the_jobs_beyond_the_threshold_so_many_come_first(name: str) -> None:
    late = find_order(name, 75.0, oldest=1)
    for make in (queue_view, slot_view):
        assert late.keys(make(JOBS, 1, 8))[0] == -math.inf
        assert late.keys(make(JOBS, 1, 8))[1:].tolist() == find_order(name).keys(make(JOBS, 1, 8))[1:].tolist()


@pytest.mark.parametrize("oldest", [0, -1, 1.5, math.nan])
def test_how_many_come_first_is_a_whole_number(oldest: float) -> None:
    with pytest.raises(InvalidInput, match="a whole number of jobs, at least 1"):
        find_order("sjf", "1h", oldest)
    with pytest.raises(InvalidInput, match="beyond threshold= come first, and there is none"):
        find_order("sjf", oldest=2)


def test_an_order_of_ones_own_has_a_threshold_too() -> None:
    mine = find_order(lambda job, now: -job.submitted, "75s")
    one = find_order(lambda job, now: -job.submitted, "75s", oldest=1)
    for make in (queue_view, slot_view):
        assert mine.arrange(make(JOBS, 1, 8)).tolist() == [0, 1, 3, 2]
        assert one.arrange(make(JOBS, 1, 8)).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, "soon"])
def test_a_threshold_is_a_duration(threshold: float | str) -> None:
    with pytest.raises(InvalidInput, match=r"threshold .* is not a positive duration"):
        find_order("sjf", threshold)


def test_a_function_of_jobs_is_an_order() -> None:
    def last_come(job: QueuedJob, now: float) -> float:
        return now - job.submitted

    mine = find_order(last_come)
    for make in (queue_view, slot_view):
        assert mine.keys(make(JOBS, 1, 8)).tolist() == [90.0, 80.0, 70.0, 60.0]
        assert mine.arrange(make(JOBS, 1, 8)).tolist() == [3, 2, 1, 0]
    assert (mine.name, find_order(mine)) == ("last_come", mine)


def test_an_empty_queue_is_in_order() -> None:
    for what in (*ORDERS, lambda job, now: 0.0):
        assert find_order(what).arrange(queue_view([], 1, 8)).tolist() == []


def test_columns_say_too_little_for_a_function_of_jobs() -> None:
    mine = QueueOrder("mine", -1, key=lambda job, now: 0.0)
    with pytest.raises(InvalidInput, match="'mine' is a function of jobs"):
        mine.rank(0.0, [0.0], [1.0], [1])


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown order 'wfp': did you mean 'wfp3'"):
        find_order("wfp")


# -- Packing ----------------------------------------------------------------------------------------------------------


def by_definition(jobs: list[Job], free: int) -> list[Start]:
    """The largest job that fits, again and again."""
    waiting, starts = dict(enumerate(jobs)), []
    while fitting := [row for row, job in waiting.items() if job.units <= free]:
        largest = max(fitting, key=lambda row: (waiting[row].units, -row))
        free -= waiting.pop(largest).units
        starts.append(Start(largest))
    return starts


@UNTIMED
@given(pools())
def test_it_starts_the_largest_that_fits_until_none_does(case: tuple[list[Job], int, QueueView | TableView]) -> None:
    jobs, free, view = case
    assert BinPacking().decide(view) == by_definition(jobs, free)


@UNTIMED
@given(machines())
def test_on_nodes_no_job_that_would_fit_is_left(view: TableView) -> None:
    starts = BinPacking().decide(view)
    left = left_over(view, starts)
    assert not any(holds(view, left, row) for row in {*range(len(view.waiting))} - {start.job for start in starts})


@UNTIMED
@given(machines())
def test_on_nodes_each_start_is_of_the_largest_job_that_fits(view: TableView) -> None:
    starts = BinPacking().decide(view)
    waiting = list(range(len(view.waiting)))
    for done, start in enumerate(starts):
        left = left_over(view, starts[:done])
        fitting = [row for row in waiting if holds(view, left, row)]
        assert start.job == max(fitting, key=lambda row: (view.jobs[row]["cores"], -row))
        waiting.remove(start.job)


def test_nothing_starts_on_a_full_machine() -> None:
    assert BinPacking().decide(slot_view([Job(1)], free=0, total=4)) == []


ITEMS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), max_size=9)


@UNTIMED
@given(ITEMS, st.integers(0, 40), st.sampled_from([1, 3]))
def test_the_set_is_the_best_one_and_of_equal_ones_the_earliest(
    items: list[tuple[int, int]], room: int, factor: int
) -> None:
    values, sizes = [value for value, _ in items], [size * factor for _, size in items]
    sets = [
        chosen
        for chosen in product([True, False], repeat=len(items))
        if sum(size for size, taken in zip(sizes, chosen, strict=True) if taken) <= room
    ]
    # The first of equally good ones: sets are listed with those first that take the earliest items.
    best = max(sets, key=lambda chosen: sum(value for value, taken in zip(values, chosen, strict=True) if taken))
    assert best_set(values, sizes, room).tolist() == list(best)


def worth(objective: str, jobs: list[Job], chosen: tuple[int, ...], total: int) -> float:
    """The objective as a sum over jobs, from the paper's equations; now is 100."""
    if objective == "capacity":
        return sum(1 / jobs[row].estimate for row in chosen)
    longest = max(100.0 - job.submit for job in jobs) or 1.0
    return sum((100.0 - jobs[row].submit) / longest + 2 * jobs[row].units / total for row in chosen) / 3


@UNTIMED
@given(pools(), st.sampled_from(["capability", "capacity"]), st.integers(1, 9))
def test_it_starts_what_is_worth_most_of_the_window(
    case: tuple[list[Job], int, QueueView | TableView], objective: str, window: int
) -> None:
    jobs, free, view = case
    started = tuple(start.job for start in Knapsack(objective, window=window).decide(view))
    assert all(row < window for row in started) and sorted(started) == list(started)
    assert sum(jobs[row].units for row in started) <= free
    if jobs:
        sets = [
            tuple(row for row, taken in enumerate(chosen) if taken)
            for chosen in product([True, False], repeat=min(window, len(jobs)))
        ]
        most = max(
            worth(objective, jobs, chosen, view.capacity.cores)
            for chosen in sets
            if sum(jobs[row].units for row in chosen) <= free
        )
        assert worth(objective, jobs, started, view.capacity.cores) == pytest.approx(most)


@UNTIMED
@given(machines(), st.sampled_from(["capability", "capacity"]))
def test_on_nodes_no_job_of_the_window_that_would_fit_is_left(view: TableView, objective: str) -> None:
    starts = Knapsack(objective, window=5).decide(view)
    left = left_over(view, starts)
    window = {*range(min(5, len(view.waiting)))}
    assert {start.job for start in starts} <= window
    assert not any(holds(view, left, row) for row in window - {start.job for start in starts})


def test_jobs_that_have_waited_longest_weigh_most() -> None:
    view = slot_view([Job(2, submit=90.0), Job(2, submit=0.0)], free=2, total=8)
    assert Knapsack("capability").decide(view) == [Start(1)]
    assert Knapsack(Capability(wait=0.0)).decide(view) == [Start(0)]


def test_what_fits_for_want_of_no_core_but_of_memory_leaves_room_for_others() -> None:
    cluster = Cluster(np.array([[9, 4]]), ("cores", "memory"))
    jobs = [Job(1, kind=0), Job(1, kind=0), Job(1, kind=1)]
    view = node_view(jobs, [[9, 4]], demands=[[4, 3], [1, 1]], cluster=cluster)
    assert [start.job for start in Knapsack().decide(view)] == [0, 2]


class OnNeighbours:
    """A placement that refuses jobs of two units which do not fit on neighbours."""

    def choose(self, free: np.ndarray, need: np.ndarray, units: int, per_node: int) -> tuple[NodeRun, ...]:
        pairs = [node for node in range(len(free) - 1) if min(free[node, 0], free[node + 1, 0]) >= need[0]]
        if units == 1:
            node = int(free[:, 0].argmax())
            return (NodeRun(node, node, 1),)
        return (NodeRun(pairs[0], pairs[0] + 1, 1),) if pairs else ()


def test_a_job_that_a_placement_refuses_leaves_room_for_others() -> None:
    view = node_view([Job(2), Job(1), Job(1)], [[1], [0], [1]])
    assert [start.job for start in Knapsack(placement=OnNeighbours()).decide(view)] == [1, 2]


class Worthless:
    """An objective for which every start is a loss."""

    def reward(self, queue: Waiting, selected: object, started: object = None) -> float:
        return 0.0

    def gains(self, queue: Waiting) -> np.ndarray:
        return -np.ones(len(queue.wait))


def test_what_is_worth_nothing_is_not_started() -> None:
    assert all(Knapsack(Worthless()).decide(slot_view([Job(3)] * 2, free, 8)) == [] for free in (4, 8))


def test_without_estimates_capacity_cannot_be_weighed() -> None:
    view = slot_view([Job(1), Job(1, estimate=np.nan)], free=2, total=2)
    with pytest.raises(InvalidInput, match="at place 1 of the queue has no wall time"):
        Knapsack(Capacity()).decide(view)
    assert len(Knapsack("capability").decide(view)) == 2


def test_options_out_of_bounds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        Knapsack(window=0)
    with pytest.raises(UnknownName, match="did you mean 'capacity'"):
        Knapsack("capcity")


@UNTIMED
@given(pools(), st.integers(0, 99))
def test_it_starts_what_fits_until_nothing_does(case: tuple[list[Job], int, QueueView | TableView], seed: int) -> None:
    jobs, free, view = case
    started = [start.job for start in Random(seed).decide(view)]
    left = free - sum(jobs[row].units for row in started)
    assert len(set(started)) == len(started) and left >= 0
    assert all(job.units > left for row, job in enumerate(jobs) if row not in started)


@UNTIMED
@given(machines(), st.integers(0, 99))
def test_on_nodes_no_job_that_would_fit_is_left_random(view: TableView, seed: int) -> None:
    starts = Random(seed).decide(view)
    left = left_over(view, starts)
    assert not any(holds(view, left, row) for row in {*range(len(view.waiting))} - {start.job for start in starts})


def test_each_job_that_fits_has_the_same_chance() -> None:
    view = slot_view([Job(3), Job(9), Job(2), Job(3), Job(1)], free=3, total=8)
    dispatcher = Random(seed=5)
    counts = Counter(tuple(start.job for start in dispatcher.decide(view)) for _ in range(4000))
    # By drawing one after the other: 0 and 3 fill the machine alone; beside 2 only 4 fits; after 4 only 2 does.
    expected = {(0,): 1 / 4, (3,): 1 / 4, (2, 4): 1 / 4, (4, 2): 1 / 4}
    assert counts.keys() == expected.keys()
    for drawn, chance in expected.items():
        assert abs(counts[drawn] / 4000 - chance) < 4 * (chance * (1 - chance) / 4000) ** 0.5


def test_the_same_seed_makes_the_same_choices_and_another_does_not() -> None:
    view = slot_view([Job(1)] * 30, free=10, total=10)
    first, second, other = Random(7), Random(7), Random(8)
    choices = [[dispatcher.decide(view) for _ in range(3)] for dispatcher in (first, second, other)]
    assert choices[0] == choices[1] != choices[2]
    assert choices[0][0] != choices[0][1]


GIB = 2**30


def view(capacity: Resources, *needs: Resources, running: tuple[Resources, ...] = ()) -> QueueView:
    queue = tuple(QueuedJob(f"J{k}", need, 60.0, 0.0) for k, need in enumerate(needs))
    return QueueView(0.0, capacity, queue, tuple(RunningJob(f"R{k}", need, 9.0) for k, need in enumerate(running)))


@pytest.mark.parametrize("make", [queue_view, slot_view])
def test_a_pool_counts_what_is_started(make) -> None:
    room = room_of(make([Job(2), Job(3), Job(1)], free=3, total=8))
    assert (room.free, room.total, room.sizes.tolist()) == (3, 8, [2, 3, 1])
    assert room.fitting().tolist() == [True, True, True]
    assert room.start(0) == Start(0)
    assert room.start(1) is None
    assert room.start(2) == Start(2)
    assert room.free == 0 and not room.fitting().any()


@pytest.mark.parametrize("make", [queue_view, slot_view])
def test_an_empty_queue_is_no_trouble(make) -> None:
    room = room_of(make([], free=3, total=8))
    assert len(room.sizes) == len(room.fitting()) == 0


def test_memory_and_gpus_count_as_well() -> None:
    machine = Resources(cores=8, memory=4 * GIB, gpus=1)
    large, small = Resources(cores=1, memory=3 * GIB), Resources(cores=1, memory=1 * GIB, gpus=1)
    room = room_of(view(machine, large, small, small, running=(Resources(cores=2, memory=GIB // 2),)))
    assert room.free == 6
    assert room.start(0) is not None
    assert room.start(1) is None, "no memory is left"
    room = room_of(view(machine, small, small))
    assert room.start(0) is not None and room.start(1) is None, "no GPU is left"


def test_memory_that_the_machine_does_not_state_is_unlimited() -> None:
    room = room_of(view(Resources(cores=2), Resources(cores=1, memory=10**15), Resources(cores=1)))
    assert room.start(0) and room.start(1)


def test_a_machine_that_holds_more_than_it_has_has_nothing_free() -> None:
    room = room_of(view(Resources(cores=2), Resources(cores=1), running=(Resources(cores=3),)))
    assert room.free == 0 and room.start(0) is None


def test_on_nodes_a_job_must_fit_on_them_and_not_only_in_sum() -> None:
    room = room_of(node_view([Job(1)], free=[[3], [3]], demands=[[4]]))
    assert not room.fitting().any() and room.start(0) is None


def test_nodes_are_named_by_the_method_of_the_machine_or_by_the_one_given() -> None:
    free = [[4], [2], [3]]
    assert room_of(node_view([Job(2)], free)).start(0) == Start(0, (NodeRun(0, 0, 2),))
    assert room_of(node_view([Job(2)], free, placement=1)).start(0) == Start(0, (NodeRun(1, 1, 2),))
    assert room_of(node_view([Job(2)], free, placement=-1)).start(0) == Start(0, (NodeRun(0, 0, 2),))
    assert room_of(node_view([Job(2)], free), BestFit()).start(0) == Start(0, (NodeRun(1, 1, 2),))


def test_a_job_stays_in_its_partition() -> None:
    cluster = Cluster(np.full((3, 1), 4), partitions={"a": Partition((0,)), "b": Partition((1, 2))})
    room = room_of(node_view([Job(5, partition=0), Job(5, partition=1), Job(4)], [[4], [4], [4]], cluster=cluster))
    assert room.start(0) is None
    assert room.start(1) == Start(1, (NodeRun(1, 1, 4), NodeRun(2, 2, 1)))
    assert room.start(2) == Start(2, (NodeRun(0, 0, 4),)), "without a partition, the first one"


def test_what_is_shared_is_not_used_up() -> None:
    cluster = Cluster(np.array([[4, 4]]), ("cores", "memory"), shareable=frozenset({"cores"}))
    jobs = [Job(4), Job(3), Job(1)]
    room = room_of(node_view(jobs, [[-2, 4]], demands=[[1, 0], [1, 1]], cluster=cluster))
    assert room.start(0) and room.start(1) and room.start(2)


@UNTIMED
@given(machines())
def test_a_room_of_nodes_tells_the_truth(table: TableView) -> None:
    room = room_of(table)
    starts: list[Start] = []
    for place in range(len(table.waiting)):
        left = left_over(table, starts)
        fitting = holds(table, left, place)
        assert room.free == np.maximum(left[:, 0], 0).sum()
        assert room.fitting()[place] == fitting
        if start := room.start(place):
            starts.append(start)
        assert (start is not None) == fitting


def test_columns_are_the_same_for_both_kinds_of_views() -> None:
    jobs = [Job(2, submit=5.0, estimate=7.0), Job(4, submit=6.0)]
    for found, expected in zip(columns(queue_view(jobs, 1, 8)), columns(slot_view(jobs, 1, 8)), strict=True):
        assert found.tolist() == expected.tolist() and found.dtype == expected.dtype


def test_a_method_of_ones_own_may_find_no_place() -> None:
    class Nowhere:
        def choose(self, free: object, need: object, units: int, per_node: int) -> tuple[NodeRun, ...]:
            return ()

    room = room_of(node_view([Job(2)], [[4], [2]]), Nowhere())
    assert room.start(0) is None
    assert room.free == 6


# -- Listplan ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_starts_now_and_where():
    view = node_view([Job(3, estimate=50.0), Job(1, estimate=10.0)], free=[[2], [1], [1]])
    assert ListPlan(rule="sjf").decide(view) == [
        Start(0, (NodeRun(0, 2, 1),)),
        Start(1, (NodeRun(0, 0, 1),)),
    ]


def test_nodes_do_not_matter_on_a_machine_of_slots():
    view = slot_view([Job(3, estimate=50.0), Job(2, estimate=10.0), Job(1, estimate=5.0)], free=3, total=4)
    assert ListPlan(rule="sjf").decide(view) == [Start(1), Start(2)]


def test_a_queue_of_resources():
    queue = tuple(QueuedJob(name, Resources(cores=2), length, 0.0) for name, length in (("a", 90.0), ("b", 10.0)))
    view = QueueView(now=5.0, capacity=Resources(cores=2), queue=queue, running=())
    assert ListPlan().decide(view) == [Start("b")]
    assert ListPlan().decide(QueueView(5.0, Resources(cores=2), (), ())) == []


def test_overdue():
    problem = instance([[1]], [([1], 1, 100.0, 250.0), ([1], 1, 1.0, 0.0), ([1], 1, 10.0, 30.0)])
    assert np.argsort(ListPlan(overdue=2.0).keys(problem)).tolist() == [0, 2, 1], "50 s overdue, and 10 s"
    assert np.argsort(ListPlan().keys(problem)).tolist() == [1, 2, 0]


def test_searching_leaves_the_overdue_where_they_are():
    problem = instance([[1]], [([1], 1, 100.0, 250.0), ([1], 1, 1.0, 0.0), ([1], 1, 10.0, 30.0)])
    plan = ListPlan(overdue=2.0).solve(problem, 0.01).plan
    assert plan.start.tolist() == [0.0, 110.0, 100.0], "the short one first would be better by far"


def waits(schedule):
    return schedule.start - schedule.workload.submit


@pytest.mark.parametrize("scheme", ["active", "non-delay"])
def test_an_endless_stream_of_narrow_jobs_does_not_starve_a_wide_one(scheme):
    """Every 2.5 s a job of 10 s on one of four cores: they are never all free, and always something shorter waits."""
    narrow, cluster, wide = 400, Cluster.of(nodes=1, cores=4), 1
    submit, run, cores = 2.5 * np.arange(narrow), np.full(narrow, 10.0), np.ones(narrow, np.int64)
    submit, run, cores = np.insert(submit, wide, 1.0), np.insert(run, wide, 11.0), np.insert(cores, wide, 4)
    jobs = Workload.of(submit=submit, run=run, walltime=run, cores=cores)
    starved = waits(simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf"))[wide]
    served = waits(simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf,overdue=3"))[wide]
    assert starved > 2.5 * (narrow - 1), "until the stream ends"
    assert served <= 3 * 11.0 + 11.0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["active", "non-delay"])
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([1.0, 2.0]))
@settings(max_examples=25, deadline=None)
def test_no_wait_is_longer_than_was_promised(scheme, seed, overdue, longer):
    """`overdue` times the duration, and the longest duration for itself and for each that was overdue before."""
    draw, count = np.random.default_rng(seed), 60
    run = draw.integers(1, 40, count).astype(float)
    submit, expected = np.sort(draw.integers(0, 300, count)).astype(float), run * longer
    demands, kind = np.array([[1, 1], [2, 4], [4, 0]]), draw.integers(0, 3, count)
    jobs = Workload.of(
        submit=submit, run=run, walltime=expected, units=draw.integers(1, 4, count), demands=demands, kind=kind,
        resources=("cores", "memory"),
    )  # fmt: skip
    cluster = Cluster(np.array([[4, 8], [4, 8], [8, 4]]), ("cores", "memory"))
    schedule = simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf,overdue={overdue}")
    assert violations(schedule) == []
    since = submit + overdue * expected
    for job in range(count):
        before = (since <= since[job]) & (schedule.start >= since[job])
        assert waits(schedule)[job] <= overdue * expected[job] + max(1, before.sum()) * expected.max() + 1e-9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "sjv"}, "rule 'sjv'"),
        ({"scheme": "lazy"}, "scheme 'lazy'"),
        ({"overdue": -1.0}, "overdue is -1.0"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"seconds": 1.0, "scheme": "non-delay"}, "for active plans only"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(AsaError, match=words):
        ListPlan(**options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["", ":scheme=non-delay", ":rule=pcp,overdue=3", ":scheme=non-delay,overdue=2", ":seconds=0.001"]
)
@pytest.mark.parametrize("nodes", [True, False])
def test_it_brings_a_trace_to_its_end(options, nodes):
    draw = np.random.default_rng(3)
    count = 120
    run = draw.integers(1, 60, count).astype(float)
    columns = {"submit": np.sort(draw.integers(0, 900, count)), "run": run}
    columns["walltime"] = run * draw.uniform(0.7, 2, count)
    if nodes:
        cluster = Cluster(np.array([[4, 8], [4, 8], [8, 4]]), ("cores", "memory"))
        demands = np.array([[1, 1], [2, 4], [4, 0]])
        kind = draw.integers(0, 3, count)
        jobs = Workload.of(**columns, units=draw.integers(1, 3, count), demands=demands, kind=kind)
    else:
        cluster = Cluster.of(nodes=4, cores=4)
        jobs = Workload.of(**columns, cores=draw.integers(1, 16, count))
    schedule = simulate(jobs, cluster, f"listplan{options}", overrun="allow")
    assert violations(schedule) == []
    assert schedule.ran.all()
    assert math.isfinite(schedule.end.max())


# -- Nwp --------------------------------------------------------------------------------------------------------------

TREE = "4x2x2"


@dataclass
class Seen:
    """A placement method that keeps what it is asked."""

    windows: list[Window]

    def place(self, window: Window) -> Placed:
        self.windows.append(window)
        return Sequential().place(window)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 25))
    submit = np.cumsum([draw(st.integers(0, 20)) for _ in range(count)])
    run = [draw(st.integers(1, 80)) for _ in range(count)]
    cores = [draw(st.integers(1, 9)) for _ in range(count)]
    return Workload.of(submit=submit + 0.5, run=run, cores=cores, walltime=run)


def by_hand(jobs: Workload, nodes: int, window: int, most: int) -> list[float]:
    """When each job starts: the authors' loop, period by period, in plain Python."""
    start = [math.nan] * len(jobs)
    waited = [0] * len(jobs)
    queue: list[int] = []
    coming, now = list(range(len(jobs))), 0
    while coming or queue:
        now += window
        while coming and jobs.submit[coming[0]] < now:
            queue.append(coming.pop(0))
        idle = nodes - sum(
            jobs.cores[job] for job in range(len(jobs)) if start[job] <= now < start[job] + jobs.run[job]
        )
        queue.sort(key=lambda job: (-waited[job], jobs.cores[job]))
        wide = 0
        while queue and jobs.cores[queue[0]] <= idle and (wide < most or jobs.cores[queue[0]] == 1):
            job = queue.pop(0)
            wide += jobs.cores[job] > 1
            idle -= jobs.cores[job]
            start[job] = now
        for job in queue:
            waited[job] += 1
    return start


@settings(deadline=None, max_examples=60)
@given(workloads(), st.sampled_from([10, 30]), st.integers(1, 4))
def test_jobs_start_when_the_authors_loop_starts_them(jobs: Workload, window: int, most: int) -> None:
    rule = Nwp(window=window, method="seq", most=most, topology=TREE)
    schedule = simulate(jobs, Cluster.of(nodes=16), rule)
    assert schedule.start.tolist() == by_hand(jobs, 16, window, most)
    assert not violations(schedule)


METHODS = ("seq", "scas", "sa", "dcas-alns", "free", "together")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_where_jobs_are_does_not_change_when_they_start(method: str) -> None:
    rng = np.random.default_rng(3)
    run = rng.integers(5, 200, 60)
    jobs = Workload.of(submit=rng.integers(0, 9, 60).cumsum(), run=run, cores=rng.integers(1, 9, 60), walltime=run)
    first = simulate(jobs, Cluster.of(nodes=16), f"nwp:window=20,method=seq,topology={TREE}")
    here = simulate(jobs, Cluster.of(nodes=16), f"nwp:window=20,method={method},topology={TREE},leaf=0.1,pod=0.01")
    assert here.start.tolist() == first.start.tolist()
    assert not violations(here)


def test_jobs_that_wait_for_most_windows_are_first_then_the_smallest() -> None:
    jobs = [Job(6, submit=95.0), Job(2, submit=95.0), Job(7, submit=50.0), Job(1, submit=96.0), Job(5, submit=95.0)]
    rule = Nwp(window=30, method="seq", topology="2x2x4")
    started = [start.job for start in rule.decide(slot_view(jobs, free=16, total=16, now=120.0))]
    # 7 nodes of an earlier window, then 1, 2, 5 of this one; 6 do not fit into the one that is left.
    assert started == [2, 1, 4, 3]


def test_nothing_behind_one_that_does_not_fit_starts() -> None:
    jobs = [Job(12, submit=10.0), Job(1, submit=95.0)]
    view = node_view(jobs, free=[[1]] * 8 + [[0]] * 8, cluster=Cluster.of(nodes=16), now=120.0)
    assert Nwp(window=30, method="seq", topology=TREE).decide(view) == []


def test_the_method_sees_the_idle_nodes_and_jobs_of_several_nodes() -> None:
    method = Seen([])
    view = node_view([Job(3), Job(1), Job(2)], [[1], [0], [1], [1], [1], [1], [1], [0]], cluster=Cluster.of(nodes=8))
    starts = Nwp(method=method, topology="2x2x2").decide(view)
    (window,) = method.windows
    assert window.idle.tolist() == [0, 2, 3, 4, 5, 6] and window.sizes.tolist() == [2, 3]
    assert window.groups.tolist() == [[0, 1, 1, 2, 2, 3], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert window.hops.tolist() == [1.0, 3.0, 5.0]
    assert [(start.job, start.nodes) for start in starts] == [
        (2, (NodeRun(0, 0, 1), NodeRun(2, 2, 1))),
        (0, (NodeRun(3, 5, 1),)),
        (1, (NodeRun(6, 6, 1),)),
    ]


def test_with_a_potential_jobs_of_one_node_are_placed_too() -> None:
    method = Seen([])
    view = node_view([Job(3), Job(1)], [[1]] * 8, cluster=Cluster.of(nodes=8))
    Nwp(method=method, topology="2x2x2", hops="paper", leaf=0.1, pod=0.02).decide(view)
    (window,) = method.windows
    assert window.sizes.tolist() == [3, 1] and window.potential == (0.1, 0.02)
    assert window.hops.tolist() == [2.0, 4.0, 6.0]


def test_jobs_get_whole_nodes() -> None:
    cluster = Cluster.of(nodes=4, cores=4)
    jobs = [Job(6), Job(3, per_node=2)]
    view = node_view(jobs, [[4], [3], [4], [4]], cluster=cluster)
    starts = Nwp(method="seq", topology="2x2").decide(view)
    # Node 1 is not idle. Two nodes for six cores; the other job would need two, for two cores each.
    assert [(start.job, start.nodes) for start in starts] == [(0, (NodeRun(0, 0, 4), NodeRun(2, 2, 2)))]


def test_without_nodes_to_be_seen_it_chooses_jobs_only() -> None:
    starts = Nwp(method="seq").decide(queue_view([Job(4), Job(3), Job(9)], free=8, total=16))
    assert [(start.job, start.nodes) for start in starts] == [(1, ()), (0, ())]


def test_an_empty_queue_starts_no_job() -> None:
    assert Nwp(method="seq").decide(queue_view([], free=8, total=16)) == []


def test_it_decides_at_the_ends_of_windows_and_once_at_each() -> None:
    asked: list[float] = []

    class Watched(Nwp):
        def decide(self, view: Any) -> Any:
            asked.append(view.now)
            return super().decide(view)

    jobs = Workload.of(submit=[3, 4, 5, 200], run=[10, 10, 130, 5], cores=[2, 2, 2, 4], walltime=[10, 10, 130, 5])
    schedule = simulate(jobs, Cluster.of(nodes=4), Watched(window=30, method="seq", most=1, topology="2x2"))
    assert schedule.start.tolist() == [30.0, 60.0, 90.0, 240.0]
    assert asked == [30.0, 60.0, 90.0, 210.0, 240.0]


def test_a_foresighted_method_puts_jobs_beside_those_that_end_when_they_do() -> None:
    # Two racks of five; a long and a short job hold three nodes of one each. Then comes one of each kind again.
    long, short = 3000.0, 100.0
    run = [long, short, long, short]
    jobs = Workload.of(submit=[1, 31, 61, 61], run=run, cores=[3, 3, 2, 2], walltime=run)
    rule = "nwp:window=30,method=together,topology=2x5,fade=100,leaf=0.5"
    schedule = simulate(jobs, Cluster.of(nodes=10), rule)
    rack = {row: run.first // 5 for row, run in placed(schedule)}
    assert rack[0] != rack[1] and rack[2] == rack[0] and rack[3] == rack[1]


def placed(schedule: Any) -> Iterator[tuple[int, NodeRun]]:
    return iter(schedule.placements)


def test_it_needs_estimates_only_where_its_method_does() -> None:
    assert Nwp(method="together").needs_estimates and not Nwp(method="free").needs_estimates
    jobs = Workload.of(submit=[0], run=[1], cores=[2])
    with pytest.raises(InvalidInput, match="no requested time"):
        simulate(jobs, Cluster.of(nodes=4), "nwp:method=together")
    assert simulate(jobs, Cluster.of(nodes=4), "nwp:method=seq").start.tolist() == [0.0]


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("nwp:window=0", InvalidInput, "window=0"),
        ("nwp:most=-1", InvalidInput, "most=-1"),
        ("nwp:leaf=-0.1", InvalidInput, "leaf=-0.1"),
        ("nwp:hops=miles", UnknownName, "miles"),
        ("nwp:method=magic", UnknownName, "magic"),
        ("nwp:method=scas,speed=3", UnknownName, "speed"),
    ],
)
def test_bad_options_are_named(spec: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        DISPATCHERS.create(spec)


def test_options_for_a_method_that_is_given_itself_are_refused() -> None:
    with pytest.raises(InvalidInput, match="iterations"):
        Nwp(method=Sequential(), iterations=3)


@pytest.mark.parametrize(
    ("cluster", "topology", "says"),
    [
        (Cluster(np.array([[1], [2]])), "", "equal ones"),
        (Cluster(np.array([[1], [1]]), partitions={"a": Partition((0,)), "b": Partition((1,))}), "", "equal ones"),
        (Cluster.of(nodes=9), "2x4", "the machine has 9"),
        (Cluster.of(nodes=9), "no-such-file.conf", "no-such-file.conf"),
    ],
)
def test_machines_that_it_does_not_know_are_refused(cluster: Cluster, topology: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Nwp(method="seq", topology=topology).decide(node_view([Job(1)], cluster.capacity.tolist(), cluster=cluster))


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 4), st.data())
def test_runs_hold_all_units_and_no_node_more_than_its_share(nodes: set[int], each: int, data: st.DataObject) -> None:
    units = data.draw(st.integers(each * (len(nodes) - 1) + 1, each * len(nodes)))
    found = runs(np.array(sorted(nodes)), each, units)
    given_to = {node: run.units for run in found for node in range(run.first, run.last + 1)}
    assert given_to.keys() == nodes and sum(given_to.values()) == units and max(given_to.values()) <= each


# -- Predictors -------------------------------------------------------------------------------------------------------

HOUR = 3600.0
JOB = QueuedJob(0, Resources(cores=4), walltime_s=HOUR, submitted=0.0, user="ann", name="fold")


@dataclass(frozen=True)
class Record:
    """A job of a log, and what became of it."""

    job: QueuedJob
    wait: float
    run: float


def errors(log: Sequence[Record], predictor: JobPredictor) -> np.ndarray:
    """Predictions and run times [s], shape (n, 2); each is predicted from the jobs that had ended by its submission."""
    ended: list[tuple[float, int]] = []
    found = []
    for number, record in enumerate(log):
        while ended and ended[0][0] <= record.job.submitted:
            past = log[heapq.heappop(ended)[1]]
            predictor.learn(past.job, past.run)
        found.append((predictor.predict(record.job), record.run))
        heapq.heappush(ended, (record.job.submitted + record.wait + record.run, number))
    return np.array(found)


def mean_error(found: np.ndarray) -> float:
    return float(np.abs(found[:, 0] - found[:, 1]).mean())


def accuracy(found: np.ndarray) -> float:
    """Tsafrir et al.'s: the smaller of prediction and run time as a share of the larger, on average."""
    return float((np.maximum(found.min(axis=1), 1.0) / np.maximum(found.max(axis=1), 1.0)).mean())


def made_up_log(seed: int = 3) -> list[Record]:
    """Three users who alternate between two programs each, ask for far too much, and number their jobs."""
    draw = np.random.default_rng(seed)
    log, now = [], 0.0
    for key in range(600):
        now += float(draw.exponential(600.0))
        user, program = int(draw.integers(3)), int(draw.integers(2))
        usual = 300.0 * (1 + user) * (10 if program else 1)
        job = QueuedJob(
            key,
            Resources(cores=4),
            walltime_s=8 * HOUR,
            submitted=now,
            user=f"u{user}",
            name=f"{'long' if program else 'short'}{key}",
        )
        log.append(Record(job, float(draw.exponential(300.0)), float(usual * draw.uniform(0.8, 1.2))))
    return log


def test_the_more_is_known_the_smaller_the_errors() -> None:
    log = made_up_log()
    oracle = Oracle([record.run for record in log])
    user, last_two, alike, data_driven, known = (
        mean_error(errors(log, predictor))
        for predictor in (UserEstimate(), LastTwoOfUser(), AlikeJobs(), DataDriven(), oracle)
    )
    assert known == 0.0 < data_driven < 0.5 * last_two < last_two < 0.25 * user
    assert alike < last_two, "a name that is new each time is no help, but a wall time is not, either"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "user", "last_two"),
    [("KTH-SP2-1996-2", (4820.2, 0.473), (5257.9, 0.534)), ("HPC2N-2002-2.2-cln", (27924.8, 0.472), (13267.2, 0.567))],
)
def test_errors_on_real_logs(name: str, user: tuple[float, float], last_two: tuple[float, float]) -> None:
    """Mean absolute error [s] and accuracy. On KTH-SP2 a better accuracy goes with a larger error."""
    rows = swf_columns(name)
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    rows = rows[(rows[:, 2] >= 0) & (rows[:, 3] >= 0) & (rows[:, 8] > 0)]
    log = [
        Record(
            QueuedJob(key, Resources(), walltime_s=row[8], submitted=row[1], user=f"{row[11]:g}"),
            wait=row[2],
            run=min(row[3], row[8]),
        )
        for key, row in enumerate(rows.tolist())
    ]
    for predictor, expected in ((UserEstimate(), user), (LastTwoOfUser(), last_two)):
        found = errors(log, predictor)
        assert (mean_error(found), accuracy(found)) == (
            pytest.approx(expected[0], 1e-4),
            pytest.approx(expected[1], 2e-3),
        )
    assert accuracy(errors(log, DataDriven())) == pytest.approx(user[1], 2e-3), "a log without names teaches it nothing"


@pytest.mark.parametrize("make", [UserEstimate, LastTwoOfUser, AlikeJobs, DataDriven, NearestJobs])
def test_without_history_the_wall_time_is_predicted(make: type[JobPredictor]) -> None:
    assert make().predict(JOB) == HOUR


@pytest.mark.parametrize("predictor", [UserEstimate(), LastTwoOfUser(), AlikeJobs(), DataDriven(), NearestJobs()])
@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_a_job_without_wall_time_and_history_is_named(predictor: JobPredictor, unknown: float) -> None:
    with pytest.raises(InvalidInput, match=r"job 17 has no wall time.*oracle"):
        predictor.predict(replace(JOB, key=17, walltime_s=unknown))


@pytest.mark.parametrize("make", [LastTwoOfUser, AlikeJobs, DataDriven, NearestJobs])
def test_a_default_stands_in_for_a_wall_time_only(
    make: type[LastTwoOfUser | AlikeJobs | DataDriven | NearestJobs],
) -> None:
    assert make(default_s=600.0).predict(replace(JOB, walltime_s=math.nan)) == 600.0
    assert make(default_s=600.0).predict(JOB) == HOUR
    with pytest.raises(InvalidInput, match="default_s must be a finite time above 0 s, not 0"):
        make(default_s=0)


@pytest.mark.parametrize("make", [LastTwoOfUser, AlikeJobs, DataDriven, NearestJobs])
def test_history_does_without_a_wall_time(make: type[JobPredictor]) -> None:
    predictor, job = make(), replace(JOB, walltime_s=math.nan)
    predictor.learn(job, 50.0)
    predictor.learn(job, 50.0)
    assert predictor.predict(job) == pytest.approx(50.0)


@pytest.mark.parametrize("make", [LastTwoOfUser, AlikeJobs, DataDriven, NearestJobs])
@given(runs=st.lists(st.floats(0, 1e5), max_size=5), walltime=st.floats(1, 1e5))
def test_no_prediction_is_above_the_wall_time(make: type[JobPredictor], runs: list[float], walltime: float) -> None:
    predictor = make()
    for run in runs:
        predictor.learn(JOB, run)
    assert 0 <= predictor.predict(replace(JOB, walltime_s=walltime)) <= walltime


@given(st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.floats(0, HOUR)), max_size=12))
def test_last_two_are_the_last_two_of_the_user(ends: list[tuple[str, float]]) -> None:
    predictor = LastTwoOfUser()
    for user, run in ends:
        predictor.learn(replace(JOB, user=user), run)
    mine = [run for user, run in ends if user == "ann"]
    expected = (mine[-2] + mine[-1]) / 2 if len(mine) > 1 else HOUR
    assert predictor.predict(JOB) == pytest.approx(expected)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2]), st.floats(1, HOUR)), max_size=12))
def test_alike_are_the_last_four_of_the_most_alike(ends: list[tuple[str, int, float]]) -> None:
    predictor = AlikeJobs()
    for name, cores, run in ends:
        predictor.learn(replace(JOB, name=name, resources=Resources(cores)), run)
    same = [run for name, cores, run in ends if (name, cores) == ("a", 1)]
    named, any_job = [run for name, _, run in ends if name == "a"], [run for *_, run in ends]
    last = (same or named or any_job)[-4:]
    expected = math.prod(last) ** (1 / len(last)) if last else HOUR
    assert predictor.predict(replace(JOB, name="a", resources=Resources(1))) == pytest.approx(expected)
    with pytest.raises(InvalidInput, match="last=0: a whole number of at least 1"):
        AlikeJobs(last=0)


@st.composite
def ended_jobs(draw: st.DrawFn) -> tuple[QueuedJob, float]:
    """A job and how long it ran [s]."""
    job = replace(
        JOB,
        user=draw(st.sampled_from(["", "ann", "bob"])),
        name=draw(st.sampled_from(["", "fold", "relax"])),
        walltime_s=draw(st.sampled_from([60.0, HOUR, 5 * HOUR, math.nan])),
        resources=Resources(draw(st.integers(1, 64))),
    )
    return job, draw(st.floats(0, HOUR))


def mean_of_nearest(ends: list[tuple[QueuedJob, float]], new: QueuedJob, nearest: int, last: int) -> float:
    """What `NearestJobs` predicts, from its docstring."""

    def seconds(job: QueuedJob) -> float:
        return job.walltime_s if math.isfinite(job.walltime_s) else 1.0

    far = []
    for age, (job, run) in enumerate(reversed(ends[-last:])):
        distance = age / last + abs(math.log(seconds(job) / seconds(new)))
        distance += abs(math.log(job.resources.cores / new.resources.cores)) / 2
        distance += 3 * (job.user != new.user) + 2 * (job.name != new.name)
        far.append((distance, max(run, 1.0)))
    near = sorted(far)[:nearest]
    weights = [math.exp(-distance / 0.5) for distance, _ in near]
    mean = sum(weight * run for weight, (_, run) in zip(weights, near, strict=True)) / sum(weights)
    return mean if math.isnan(new.walltime_s) else min(mean, new.walltime_s)


@given(st.lists(ended_jobs(), min_size=1, max_size=25), ended_jobs(), st.integers(1, 6), st.integers(1, 16))
def test_nearest_jobs_are_those_that_a_plain_search_finds(
    ends: list[tuple[QueuedJob, float]], new: tuple[QueuedJob, float], nearest: int, last: int
) -> None:
    predictor = NearestJobs(nearest=nearest, last=last)
    for job, run in ends:
        predictor.predict(replace(new[0], walltime_s=HOUR))  # what was predicted before is no matter
        predictor.learn(job, run)
    assert predictor.predict(new[0]) == pytest.approx(mean_of_nearest(ends, new[0], nearest, last))


@pytest.mark.parametrize("wrong", [{"nearest": 0}, {"last": 0}, {"nearest": 1.5}])
def test_nearest_jobs_are_a_number_of_jobs(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="a whole number of at least 1 expected"):
        NearestJobs(**wrong)


@pytest.mark.parametrize("make", [LastTwoOfUser, AlikeJobs, DataDriven])
def test_unknown_users_are_not_one_user(make: type[JobPredictor]) -> None:
    predictor, job = make(), replace(JOB, user="")
    predictor.learn(job, 5.0)
    predictor.learn(job, 5.0)
    assert predictor.predict(job) == HOUR


RULES = [
    replace(JOB, user="bob"),
    replace(JOB, name="fold3", resources=Resources(cores=8), walltime_s=60.0),  # 6: the name but for its number
    replace(JOB, resources=Resources(cores=8), walltime_s=60.0),  # 5: the name
    replace(JOB, name="fold_9", resources=Resources(cores=8)),  # 4: 6, and the wall time
    replace(JOB, resources=Resources(cores=8)),  # 3: 5, and the wall time
    replace(JOB, name="fold07"),  # 2: 6, the wall time and the resources
    JOB,  # 1: all
]


def test_the_rule_that_asks_for_most_wins() -> None:
    """Each job looks more like the last one of the list than the one before it, and is learned before it."""
    predictor = DataDriven()
    assert predictor.predict(JOB) == HOUR
    for run, past in enumerate(RULES):
        predictor.learn(past, float(run))
        assert predictor.predict(JOB) == (run or HOUR)
    for past in reversed(RULES[:-1]):
        predictor.learn(past, 999.0)
    assert predictor.predict(JOB) == 6.0, "what is less alike does not count, however late"


@pytest.mark.parametrize(
    ("past", "new", "alike"),
    [
        ("job1", "job2", True),
        ("job1", "job", True),
        ("run-2_7", "run-2_11", True),
        ("run-2_7", "run-3_7", False),
        ("12", "13", False),
        ("12", "12", True),
        ("", "", False),
        ("a", "b", False),
    ],
)
def test_names_are_alike_but_for_the_number_at_their_end(past: str, new: str, alike: bool) -> None:
    predictor = DataDriven()
    predictor.learn(replace(JOB, name=past), 7.0)
    assert predictor.predict(replace(JOB, name=new)) == (7.0 if alike else HOUR)


def test_of_jobs_that_are_alike_the_last_to_end_counts() -> None:
    predictor = DataDriven()
    predictor.learn(JOB, 7.0)
    predictor.learn(replace(JOB, key=1, submitted=-50.0), 8.0)
    assert predictor.predict(JOB) == 8.0


@pytest.mark.parametrize("runs", [[5.0, 6.0], np.array([5.0, 6.0]), {0: 5.0, 1: 6.0}])
def test_the_oracle_knows_run_times_by_key(runs: object) -> None:
    oracle = Oracle(runs)  # type: ignore[arg-type]
    oracle.learn(JOB, 99.0)
    assert (oracle.predict(JOB), oracle.predict(replace(JOB, key=1))) == (5.0, 6.0)


def test_the_oracle_may_know_jobs_by_name_and_names_those_it_does_not_know() -> None:
    oracle = Oracle({"j1": 5.0})
    assert oracle.predict(replace(JOB, key="j1")) == 5.0
    with pytest.raises(InvalidInput, match="no run time of job 'j2'"):
        oracle.predict(replace(JOB, key="j2"))
