"""Numbers of schedules, how alike two orders are, and which cores jobs held."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import Workload
from asa.lab.metrics.cores import core_runs, first_cores
from asa.lab.metrics.schedule import (
    STARVED_S,
    bounded_slowdown,
    by_class,
    class_names,
    core_seconds,
    jain_index,
    level,
    longest_queue,
    mean_level,
    queued,
    refused,
    size_classes,
    spread,
    summarise,
    user_means,
    utilisation,
)
from tests.agreement import displacement, equal_positions, inversions, kendall, ranks, spearman
from tests.metrics.schedules import made, random_schedule, schedules

# -- Schedule ---------------------------------------------------------------------------------------------------------

times = st.floats(0, 1e6)


@given(st.lists(st.tuples(times, times), min_size=1), st.floats(0.1, 100))
def test_bounded_slowdown_is_the_definition(jobs: list[tuple[float, float]], bound: float) -> None:
    wait, run = np.array(jobs).T
    expected = [max(1.0, (w + r) / max(r, bound)) for w, r in jobs]
    assert bounded_slowdown(wait + run, run, bound).tolist() == expected


def test_a_slowdown_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="above 0 s"):
        bounded_slowdown(np.ones(1), np.ones(1), 0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_spread(values: list[float]) -> None:
    found = spread(np.array(values))
    assert found.count == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.median == pytest.approx(statistics.median(values), abs=1e-6)
    assert found.p90 == pytest.approx(statistics.quantiles(values, n=10, method="inclusive")[-1], abs=1e-6)
    assert found.median <= found.p90 <= found.p99 <= found.max == max(values)


def test_nothing_has_no_spread() -> None:
    nothing = spread(np.empty(0))
    assert nothing.count == 0
    assert math.isnan(nothing.mean) and math.isnan(nothing.max)


@given(st.integers(1, 10**6), st.integers(2, 20))
def test_every_size_is_in_one_class(cores: int, most: int) -> None:
    bounds = size_classes(cores, most)
    assert len(bounds) <= most
    assert bounds[-1] == cores
    assert (np.diff(bounds) > 0).all()
    assert bounds[0] == 1, "single cores are a class of their own"
    names = class_names(bounds)
    firsts = [int(name.split("-")[0]) for name in names]
    assert [int(name.split("-")[-1]) for name in names] == bounds.tolist()
    assert firsts == [1, *(bounds[:-1] + 1).tolist()]


@pytest.mark.parametrize(("cores", "most"), [(0, 5), (8, 1)])
def test_no_classes(cores: int, most: int) -> None:
    with pytest.raises(InvalidInput, match="no size classes"):
        size_classes(cores, most)


@given(st.lists(st.tuples(st.integers(1, 40), times), min_size=1))
def test_classes_are_looked_at_one_by_one(jobs: list[tuple[int, float]]) -> None:
    bounds = size_classes(32)
    found = by_class(np.array([value for _, value in jobs]), np.array([size for size, _ in jobs]), bounds)
    low = 1
    for last, got in zip(bounds.tolist(), found, strict=True):
        high = 40 if last == 32 else last  # what is larger than the machine is in the last class
        values = [value for size, value in jobs if low <= size <= high]
        assert got.count == len(values)
        assert not values or got.max == max(values)
        low = last + 1


@given(st.lists(st.tuples(st.integers(-1, 5), times)))
def test_means_of_users(jobs: list[tuple[int, float]]) -> None:
    found = user_means(np.array([value for _, value in jobs]), np.array([user for user, _ in jobs], dtype=np.int64))
    users = sorted({user for user, _ in jobs if user >= 0})
    expected = [statistics.fmean(value for who, value in jobs if who == user) for user in users]
    assert found.tolist() == pytest.approx(expected)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(1, 5)), min_size=1)


def columns(jobs: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(jobs)
    return table[:, 0].astype(float), (table[:, 0] + table[:, 1]).astype(float), table[:, 2]


@given(spans, st.integers(0, 30), st.integers(0, 20))
def test_core_seconds_second_by_second(jobs: list[tuple[int, int, int]], begin: int, length: int) -> None:
    counted = sum(
        amount for second in range(begin, begin + length) for at, run, amount in jobs if at <= second < at + run
    )
    assert core_seconds(*columns(jobs), begin, begin + length) == counted
    if length:
        share = utilisation(*columns(jobs), 7, begin=begin, until=begin + length)
        assert share == pytest.approx(counted / 7 / length)


def test_utilisation_needs_cores_and_time() -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        utilisation(*columns([(0, 5, 1)]), 0, begin=0.0, until=5.0)
    assert math.isnan(utilisation(*columns([(0, 5, 1)]), 4, begin=5.0, until=5.0))


@given(spans)
def test_a_level_is_what_is_there(jobs: list[tuple[int, int, int]]) -> None:
    times, sums = level(*columns(jobs))
    assert (np.diff(times) > 0).all()
    assert sums[-1] == 0
    for time, found in zip(times, sums, strict=True):
        assert found == sum(amount for at, run, amount in jobs if at <= time < at + run)


@given(spans, st.integers(1, 12))
def test_means_of_a_level_keep_its_area(jobs: list[tuple[int, int, int]], bins: int) -> None:
    edges = np.linspace(-3.0, 45.0, bins + 1)
    means = mean_level(*level(*columns(jobs)), edges)
    assert len(means) == bins
    assert (means * np.diff(edges)).sum() == pytest.approx(sum(run * amount for _, run, amount in jobs))


def test_a_level_of_nothing() -> None:
    times, sums = level(np.empty(0), np.empty(0))
    assert len(times) == len(sums) == 0
    assert mean_level(times, sums, np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.0]


@given(spans)
def test_the_longest_queue(jobs: list[tuple[int, int, int]]) -> None:
    begin, end, _ = columns(jobs)
    counted = max(sum(at <= time < at + wait for at, wait, _ in jobs) for time in range(41))
    assert longest_queue(begin, end) == counted


def test_a_queue_of_no_jobs() -> None:
    assert longest_queue(np.empty(0), np.empty(0)) == 0


@given(st.lists(st.floats(0.5, 1e4), min_size=1))
def test_jains_index_is_between_its_bounds(values: list[float]) -> None:
    found = jain_index(np.array(values))
    assert 1 / len(values) - 1e-9 <= found <= 1 + 1e-9
    assert jain_index(np.array(values) * 3) == pytest.approx(found), "it has no unit"


def test_jains_index_of_published_shape() -> None:
    """Two thirds of the users have all alike, the others nothing: the index is the share of those who have."""
    assert jain_index(np.array([5.0, 5.0, 0.0])) == pytest.approx(2 / 3)
    assert math.isnan(jain_index(np.empty(0)))


ORACLE = Path(__file__).parents[4] / "shared" / "data" / "oracle"
NAN = math.nan


@given(schedules())
def test_numbers_are_what_they_say(schedule: Schedule) -> None:
    numbers = summarise(schedule)
    jobs = list(zip(schedule.workload.submit, schedule.start, schedule.end, schedule.workload.cores, strict=True))
    waits = [float(start - submit) for submit, start, _, _ in jobs]
    slowdowns = [max(1.0, float((end - submit) / max(end - start, 10.0))) for submit, start, end, _ in jobs]
    makespan = float(max(end for _, _, end, _ in jobs) - jobs[0][0])
    assert numbers["jobs"] == numbers["jobs_ran"] == len(jobs)
    assert numbers["mean_wait_s"] == pytest.approx(statistics.fmean(waits))
    assert numbers["max_wait_s"] == max(waits)
    assert numbers["mean_bounded_slowdown"] == pytest.approx(statistics.fmean(slowdowns))
    assert numbers["makespan_s"] == makespan
    if makespan:
        used = sum(float((end - start) * cores) for _, start, end, cores in jobs)
        assert numbers["utilisation"] == pytest.approx(used / makespan / schedule.cluster.cores)
        assert numbers["mean_queue_length"] == pytest.approx(sum(waits) / makespan), "Little's law"
    else:
        assert numbers["utilisation"] is None
    assert sum(row["jobs"] for row in numbers["by_size"]) == len(jobs)


def test_jobs_that_never_ran_are_counted_and_nothing_else() -> None:
    schedule = made(
        submit=[0, 0, 10, 20, 30],
        start=[0, NAN, 10, NAN, NAN],
        end=[40, NAN, 50, 60, NAN],
        cores=[1, 99, 1, 1, 2],
        cluster=Cluster.of(2),
        outcome=[JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED, JobState.PENDING],
    )
    numbers = summarise(schedule, starved_s=25.0)
    assert numbers["jobs"] == 5 and numbers["jobs_ran"] == 2 and numbers["refused"] == 1
    assert numbers["outcomes"] == {"pending": 1, "completed": 1, "timeout": 1, "cancelled": 1, "refused": 1}
    assert numbers["mean_wait_s"] == 0.0
    assert numbers["makespan_s"] == 50.0
    assert numbers["starved"] == 2, "one waited 40 s and was cancelled, one waits for ever: from 30 s to 60 s"
    assert numbers["max_queue_age_s"] == 40.0
    assert numbers["max_queue_length"] == 2
    assert refused(schedule).tolist() == [False, True, False, False, False]


def test_held_jobs_are_not_in_the_queue() -> None:
    schedule = made([0, 0], [0, 100], [100, 200], [1, 1], Cluster.of(1), after=[-1, 0])
    held = replace(schedule, eligible=np.array([0.0, 100.0]))
    assert summarise(schedule)["max_queue_age_s"] == 100.0
    assert summarise(held)["max_queue_age_s"] == 0.0
    assert summarise(held)["max_wait_s"] == 100.0, "its wait is from its submission all the same"
    since, left = queued(held)
    assert since.tolist() == left.tolist() == [0.0, 100.0]


def test_a_failed_job_that_had_started_was_not_refused() -> None:
    schedule = made([0], [0], [9], [1], Cluster.of(1), outcome=[JobState.FAILED])
    assert summarise(schedule)["outcomes"] == {"failed": 1}


def test_fairness_is_over_users() -> None:
    schedule = made([0, 0, 0], [0, 90, 10], [10, 100, 20], [1, 1, 1], Cluster.of(1), user=[1, 2, -1])
    numbers = summarise(schedule)
    assert numbers["users"] == 2
    assert numbers["mean_user_bounded_slowdown"] == 5.5
    assert numbers["max_user_bounded_slowdown"] == 10.0
    assert numbers["jain_index"] == pytest.approx(11**2 / (2 * 101))


def test_all_of_it_is_json() -> None:
    nothing = made([], [], [], [], Cluster.of(1))
    for schedule in (random_schedule(50, 8), nothing, replace(random_schedule(5, 8), seconds=NAN)):
        numbers = summarise(schedule)
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert summarise(nothing)["mean_wait_s"] is None
    assert {"jobs", "mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "utilisation", "makespan_s", "seconds",
            "jobs_per_second", "peak_memory_mb"} <= set(numbers)  # fmt: skip


def test_speed_and_memory() -> None:
    numbers = summarise(replace(random_schedule(50, 8), seconds=0.25))
    assert numbers["jobs_per_second"] == 200.0
    assert 10 < numbers["peak_memory_mb"] < 1e5
    assert STARVED_S == 7 * 24 * 3600


@pytest.mark.shared
@pytest.mark.parametrize(("log", "slowdown"), [("KTH-SP2", 92.58), ("CTC-SP2", 49.57)])
def test_average_bounded_slowdown_of_pyss(log: str, slowdown: float) -> None:
    """The schedules are pyss's own, and so are the averages that it printed."""
    path = ORACLE / f"pyss-EASY-result_{log}.swf.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt") as file:
        rows = np.array([line.split() for line in file if line.strip() and not line.startswith(";")], dtype=float)
    _, submit, wait, run, cores = rows[:, :5].T
    workload = Workload.of(submit=submit, run=run, cores=cores, wait=wait)
    start = workload.submit + workload.wait
    done = np.full(len(rows), OUTCOMES.index(JobState.COMPLETED), dtype=np.int8)
    schedule = Schedule(
        workload,
        Cluster.of(int(cores.max())),
        workload.submit,
        start,
        start + workload.run,
        done,
        np.zeros(len(rows), np.int64),
    )
    assert round(summarise(schedule)["mean_bounded_slowdown"], 2) == slowdown


# -- Agreement --------------------------------------------------------------------------------------------------------

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=20)
orders = st.integers(1, 40).flatmap(lambda count: st.permutations(range(count)))


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


@given(pairs)
def test_kendall_pair_by_pair(points: list[tuple[int, int]]) -> None:
    a, b = zip(*points, strict=True)
    signs = [(sign(a[i] - a[j]), sign(b[i] - b[j])) for i, j in itertools.combinations(range(len(a)), 2)]
    scale = math.sqrt(sum(x * x for x, _ in signs) * sum(y * y for _, y in signs))
    if scale:
        assert kendall(a, b) == pytest.approx(sum(x * y for x, y in signs) / scale)
    else:
        assert math.isnan(kendall(a, b))


@given(pairs)
def test_spearman_by_its_definition(points: list[tuple[int, int]]) -> None:
    a, b = zip(*points, strict=True)
    rank_a = [sum(y < x for y in a) + (sum(y == x for y in a) + 1) / 2 for x in a]
    rank_b = [sum(y < x for y in b) + (sum(y == x for y in b) + 1) / 2 for x in b]
    assert ranks(a).tolist() == rank_a
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert spearman(a, b) == pytest.approx(np.corrcoef(rank_a, rank_b)[0, 1])
    else:
        assert math.isnan(spearman(a, b))


@given(orders)
def test_spearman_without_equal_values_is_the_classic_formula(order: list[int]) -> None:
    count = len(order)
    if count > 1:
        squares = sum((place - value) ** 2 for place, value in enumerate(order))
        assert spearman(range(count), order) == pytest.approx(1 - 6 * squares / (count * (count**2 - 1)))


def test_a_published_example() -> None:
    """Wikipedia's example of intelligence and hours of television: rho = -29/165, tau = -1/9."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)
    assert kendall(iq, hours) == pytest.approx(-1 / 9)


@given(orders)
def test_inversions_pair_by_pair(order: list[int]) -> None:
    assert inversions(np.array(order)) == sum(x > y for x, y in itertools.combinations(order, 2))


def test_many_values_at_once() -> None:
    values = np.arange(100_000)
    assert kendall(values, -values) == -1.0
    assert kendall(values, values) == 1.0


@given(orders)
def test_equal_positions_without_equal_times(order: list[int]) -> None:
    expected = sum(place == value for place, value in enumerate(order)) / len(order)
    assert equal_positions(range(len(order)), order) == pytest.approx(expected)
    moved = displacement(range(len(order)), order)
    assert moved.tolist() == [value - place for place, value in enumerate(order)]


def test_jobs_that_start_together_share_their_positions() -> None:
    assert equal_positions([1, 1, 2], [3, 2, 4]) == 1.0
    assert equal_positions([1, 1, 2], [3, 4, 2]) == pytest.approx(1 / 3)
    assert displacement([1, 1, 2], [3, 4, 2]).tolist() == [0.5, 1.5, -2.0]


def test_nothing_to_compare() -> None:
    assert math.isnan(equal_positions([], []))
    assert math.isnan(spearman([], []))
    assert math.isnan(kendall([], []))


@pytest.mark.parametrize("measure", [spearman, kendall, equal_positions, displacement])
def test_bad_input(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(InvalidInput, match="of 1 and 2"):
        measure([1], [1, 2])
    with pytest.raises(InvalidInput, match="number 1 is NaN"):
        measure([1, 2], [1, math.nan])
    with pytest.raises(InvalidInput, match="shape"):
        measure([[1]], [[1]])


# -- Cores ------------------------------------------------------------------------------------------------------------


def cores_of(schedule: Schedule, row: int) -> list[int]:
    runs = core_runs(schedule)
    mine = runs.job == row
    pairs = zip(runs.first[mine].tolist(), runs.last[mine].tolist(), strict=True)
    return [core for first, last in pairs for core in range(first, last + 1)]


@given(schedules())
def test_a_job_has_its_cores_for_itself_on_its_nodes(schedule: Schedule) -> None:
    assert schedule.placements is not None
    cut = first_cores(schedule)
    held = [cores_of(schedule, row) for row in range(len(schedule))]
    for row, cores in enumerate(held):
        on_nodes = [0] * schedule.cluster.nodes
        for core in cores:
            on_nodes[int(np.searchsorted(cut, core, side="right")) - 1] += 1
        placed = [0] * schedule.cluster.nodes
        for run in schedule.placements.of(row):
            for node in range(run.first, run.last + 1):
                placed[node] += run.units
        assert on_nodes == placed
        for other in range(row):
            together = schedule.start[row] < schedule.end[other] and schedule.start[other] < schedule.end[row]
            lasting = schedule.end[row] > schedule.start[row] and schedule.end[other] > schedule.start[other]
            assert not (together and lasting and set(cores) & set(held[other]))


@given(schedules())
def test_runs_are_as_long_as_can_be(schedule: Schedule) -> None:
    runs = core_runs(schedule)
    order = np.lexsort((runs.first, runs.job))
    assert order.tolist() == list(range(len(runs)))
    assert not ((runs.job[1:] == runs.job[:-1]) & (runs.first[1:] <= runs.last[:-1] + 1)).any()


def test_single_cores_are_the_nodes() -> None:
    schedule = made([0, 0], [0, 0], [9, 9], [3, 1], Cluster.of(8), placed=[(0, 0, 1, 1), (0, 5, 5, 1), (1, 7, 7, 1)])
    assert cores_of(schedule, 0) == [0, 1, 5]
    assert cores_of(schedule, 1) == [7]


def test_units_have_several_cores() -> None:
    schedule = made([0], [0], [9], [1], Cluster.of(3, 4), placed=[(0, 1, 2, 1)], demands=None)
    wide = replace(schedule, workload=replace(schedule.workload, units=np.array([2]), demands=np.array([[3]])))
    assert cores_of(wide, 0) == [4, 5, 6, 8, 9, 10]


def test_cores_that_are_shared_are_counted_from_the_lowest() -> None:
    cluster = Cluster.of(1, 4)
    schedule = made([0, 0], [0, 0], [9, 9], [3, 3], cluster, placed=[(0, 0, 0, 3), (1, 0, 0, 3)])
    assert cores_of(schedule, 0) == [0, 1, 2]
    assert cores_of(schedule, 1) == [0, 1, 3]


def test_without_recorded_places_there_are_no_cores() -> None:
    schedule = replace(random_schedule(5, 4), placements=None)
    assert len(core_runs(schedule)) == 0


def test_jobs_that_did_not_run_hold_nothing() -> None:
    schedule = made([0, 0], [0, np.nan], [9, np.nan], [2, 2], Cluster.of(4), placed=[(0, 0, 1, 1)])
    assert cores_of(schedule, 1) == []
