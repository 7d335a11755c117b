from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.decision import Reserve, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob, QueueView, RunningJob
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
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dispatchers.views import Job, queue_view, slot_view

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


def simulate(trace: list[TraceJob], dispatcher: Backfill) -> Outcome:
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
    assert simulate(trace, Backfill(depth)).most_cores <= CORES


@given(jobs(exact=False))
def test_fcfs_lets_nobody_overtake(trace: list[TraceJob]) -> None:
    starts = simulate(trace, Fcfs()).start
    assert [starts[n] for n in range(len(trace))] == sorted(starts.values())


@given(jobs(exact=False))
def test_easys_head_never_starts_later_than_promised(trace: list[TraceJob]) -> None:
    outcome = simulate(trace, Easy())
    for number, promises in outcome.promises.items():
        assert outcome.start[number] <= promises[-1]
        assert promises == sorted(promises, reverse=True)


@given(jobs(exact=True), st.sampled_from([1, 2, math.inf]))
def test_with_exact_run_times_every_promise_is_kept(trace: list[TraceJob], depth: float) -> None:
    outcome = simulate(trace, Backfill(depth))
    for number, promises in outcome.promises.items():
        assert outcome.start[number] <= min(promises)


@given(jobs(exact=True))
def test_with_exact_run_times_no_job_starts_later_under_conservative_than_under_fcfs(trace: list[TraceJob]) -> None:
    conservative, fcfs = simulate(trace, Conservative()), simulate(trace, Fcfs())
    assert all(conservative.start[n] <= fcfs.start[n] for n in range(len(trace)))


def test_with_inexact_run_times_an_earlier_job_may_take_the_place_that_a_later_one_was_promised() -> None:
    """The documented deviation: reservations are made anew, in the queue's order, whenever a job ends early."""
    small, whole = TraceJob(0.0, 1, 1.0, 1.0), TraceJob(0.0, 5, 1.0, 1.0)
    ends_early = TraceJob(0.0, 4, 2.0, 1.0)
    outcome = simulate([small, ends_early, whole, small], Conservative())
    assert outcome.promises == {2: [2.0], 3: [1.0, 2.0]}
    assert outcome.start == {0: 0.0, 1: 0.0, 2: 1.0, 3: 2.0}


def test_depth_must_be_a_whole_number() -> None:
    for depth in (-1, 0.5, math.nan):
        with pytest.raises(InvalidInput, match="depth"):
            Backfill(depth)


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
    assert wfp3.dynamic
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
def test_only_dynamic_orders_change_with_time(name: str, jobs: list[int], later: float) -> None:
    submit, cores = np.zeros(6), np.ones(6, dtype=np.int64)
    now, then = (find_order(name).rank(time, submit, np.array(jobs) * 60.0, cores) for time in (99.0, later))
    assert find_order(name).dynamic or (now == then).all()


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_jobs_beyond_the_threshold_come_first_as_they_stand(name: str) -> None:
    """At 100 s, of jobs that came at 10, 20, 30 and 40 s."""
    late = find_order(name, 75.0)
    assert late.dynamic and late.name == name
    for make in (queue_view, slot_view):
        assert late.arrange(make(JOBS, 1, 8)).tolist()[:2] == [0, 1]
        assert late.keys(make(JOBS, 1, 8))[2:].tolist() == find_order(name).keys(make(JOBS, 1, 8))[2:].tolist()
    assert find_order(name, math.inf) is ORDERS[name]


def test_an_order_of_ones_own_has_a_threshold_too() -> None:
    mine = find_order(lambda job, now: -job.submitted, "75s")
    for make in (queue_view, slot_view):
        assert mine.arrange(make(JOBS, 1, 8)).tolist() == [0, 1, 3, 2]


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
    assert (mine.name, mine.dynamic, find_order(mine)) == ("last_come", True, mine)


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
