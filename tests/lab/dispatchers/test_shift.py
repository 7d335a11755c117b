"""Work that is held for less intense hours, against all moments that there are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.energy import NodePower
from asa.core.errors import InvalidInput
from asa.core.intensity import Intensity
from asa.core.job import Resources
from asa.core.registry import DISPATCHERS
from asa.core.view import QueueView
from asa.lab.backend.simulated import Simulated
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Moldable, Workload
from asa.lab.dispatchers.backfill import Backfill, Easy, rule_of
from asa.lab.dispatchers.shift import Shift
from asa.lab.metrics.energy import energy
from asa.lab.simulator.run import simulate
from tests.lab.simulator.validate import violations

POWER = NodePower(100, 460)
"""360 W of a core that is busy, on nodes of one: a kilowatt-hour in 10,000 s."""


@st.composite
def shifted(draw: st.DrawFn) -> tuple[Workload, Cluster, Shift]:
    """A few jobs at whole seconds, a grid that changes at such, and how long jobs may be held."""
    count = draw(st.integers(1, 8))
    some = st.lists(st.integers(0, 12), min_size=count, max_size=count)
    walltime = [wall or math.nan for wall in draw(some)]
    run = [0 if math.isnan(wall) else draw(st.integers(0, int(wall))) for wall in walltime]
    cores = [1 + many % 3 for many in draw(some)]
    after = [draw(st.integers(-1, row - 1)) for row in range(count)]
    jobs = Workload.of(submit=sorted(draw(some)), run=run, cores=cores, walltime=walltime, after=after)
    steps = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6))
    times = np.cumsum([draw(st.integers(-3, 12)), *(length for length, _ in steps)])
    grid = Intensity(times, np.array([100.0 * value for _, value in steps]), repeats=draw(st.booleans()))
    shift = Shift(draw(st.integers(1, 15)), draw(st.sampled_from([0.0, 0.0, 7.0, 60.0])))
    return jobs, replace(Cluster.of(3), power=POWER, intensity=grid), shift


def costs(jobs: Workload, row: int, grid: Intensity, shift: Shift) -> list[float]:
    """Of each second at which a job may begin: grams of its cores until its wall time is over, and of its delay."""
    steps = np.diff(grid.times).astype(int)
    cycle = [value for value, length in zip(grid.g_per_kwh.tolist(), steps, strict=True) for _ in range(length)]
    first, found = int(grid.times[0]), []
    lasts = int(np.nan_to_num(jobs.walltime[row], nan=1.0))
    submit = int(jobs.submit[row])
    for begin in range(submit, submit + int(shift.most_s) + 1):
        seconds = range(begin - first, begin - first + lasts)
        told = grid.repeats or (seconds.start >= 0 and seconds.stop <= len(cycle))
        grams = sum(cycle[second % len(cycle)] for second in seconds) / 10_000 * jobs.cores[row] if told else math.inf
        found.append(grams + shift.gain * (begin - submit) / 3600)
    return found


@given(shifted())
def test_each_job_is_held_until_the_first_best_moment(case: tuple[Workload, Cluster, Shift]) -> None:
    jobs, cluster, shift = case
    assert cluster.intensity is not None
    releases = shift.releases(jobs, jobs.walltime, cluster)
    for row, release in enumerate(releases.tolist()):
        found = costs(jobs, row, cluster.intensity, shift)
        held = release - jobs.submit[row]
        assert 0 <= held <= float(shift.most_s)
        if math.isinf(found[0]):
            assert held == 0, "where the trace tells nothing, nothing is waited for"
        else:
            least = min(found)
            expected = next(place for place, cost in enumerate(found) if cost <= least + 1e-9)
            assert held == expected


@given(shifted())
def test_a_schedule_has_the_jobs_as_they_were_submitted(case: tuple[Workload, Cluster, Shift]) -> None:
    """They start as if they had been submitted when they were released."""
    jobs, cluster, shift = case
    spec = f"backfill:depth=1,shift={int(shift.most_s)}s,gain={shift.gain}"
    made = simulate(jobs, cluster, spec, predictor="oracle")
    assert made.workload is jobs
    releases = shift.releases(jobs, jobs.walltime, cluster)
    order = np.argsort(releases, kind="stable")
    later = Workload.of(
        submit=releases, run=jobs.run, cores=jobs.cores, walltime=jobs.walltime, after=jobs.after, number=jobs.number
    )
    plain = simulate(later, cluster, "easy", predictor="oracle")
    for name in ("start", "end", "outcome", "eligible"):
        np.testing.assert_array_equal(getattr(made, name)[order], getattr(plain, name))
    assert (made.start[made.ran] >= releases[made.ran]).all()
    assert made.placements is not None
    assert plain.placements is not None
    assert {row: made.placements.of(row) for row in range(len(jobs))} == {
        int(order[row]): plain.placements.of(row) for row in range(len(jobs))
    }
    assert violations(made) == []


def test_work_goes_to_the_cheap_hours() -> None:
    """Two hours of 400 g/kWh, then one of 100: of jobs of an hour the second is held for it, not the first."""
    jobs = Workload.of(submit=[0, 3600, 7200], run=[3600] * 3, cores=[1] * 3, walltime=[3600] * 3)
    grid = Intensity(np.array([0.0, 7200.0, 10800.0]), np.array([400.0, 100.0]), repeats=True)
    cluster = replace(Cluster.of(4), power=POWER, intensity=grid)
    assert simulate(jobs, cluster, "easy").start.tolist() == [0, 3600, 7200]
    made = simulate(jobs, cluster, Easy(shift="1h"))
    assert made.start.tolist() == [0, 7200, 7200]
    assert made.wait.tolist() == [0, 3600, 0]


def test_the_same_at_all_hours_holds_nothing() -> None:
    jobs = Workload.of(submit=[0, 5, 6], run=[10, 10, 10], cores=[1, 3, 2], walltime=[20, 20, 20])
    cluster = replace(Cluster.of(3), power=POWER, intensity=Intensity.constant(300.0))
    for name in ("fcfs", "easy", "conservative", "easy++", "backfill:depth=2"):
        held = simulate(jobs, cluster, f"{name}{',' if ':' in name else ':'}shift=12h")
        np.testing.assert_array_equal(held.start, simulate(jobs, cluster, name).start)


def test_only_jobs_of_a_qos_are_held() -> None:
    jobs = Workload.of(
        submit=[0, 0, 0, 0], run=[9] * 4, cores=[1] * 4, walltime=[9] * 4, qos=[0, 1, -1, 1],
        labels={"qos": ("urgent", "free")},
    )  # fmt: skip
    grid = Intensity(np.array([0.0, 10.0, 20.0]), np.array([400.0, 100.0]), repeats=True)
    cluster = replace(Cluster.of(4), power=POWER, intensity=grid)
    assert simulate(jobs, cluster, "easy:shift=1m,shift_qos=free").start.tolist() == [0, 10, 0, 10]
    assert simulate(jobs, cluster, "easy:shift=1m,shift_qos=other").start.tolist() == [0, 0, 0, 0]


def test_widths_stay_with_their_jobs_when_others_overtake_them() -> None:
    """The first job is held for 10 s; the second, which comes later, gets both cores."""
    jobs = Workload.of(
        submit=[0, 1], run=[9, 8], cores=[1, 1], walltime=[9, 8], qos=[1, 0], labels={"qos": ("urgent", "free")},
        moldable=Moldable([1, 1], [1, 2], [1.0, 1.0], [False, True]),
    )  # fmt: skip
    grid = Intensity(np.array([0.0, 10.0, 20.0]), np.array([400.0, 100.0]), repeats=True)
    cluster = replace(Cluster.of(2), power=POWER, intensity=grid)
    found = simulate(jobs, cluster, "easy:resize=both,shift=1m,shift_qos=free")
    assert [column.tolist() for column in found.pieces] == [[0, 1, 1], [10, 1, 1], [19, 1, 5], [1, 1, 2]]
    assert simulate(jobs, cluster, "easy:width=soonest,shift=1m,shift_qos=free").cores.tolist() == [1, 2]


def test_less_co2_for_longer_waits() -> None:
    """What a gain asks for lies between holding all jobs and none."""
    rng = np.random.default_rng(4)
    submit = np.sort(rng.integers(0, 30 * 86400, 600))
    run = rng.integers(600, 20_000, 600)
    jobs = Workload.of(submit=submit, run=run, cores=rng.integers(1, 9, 600), walltime=2 * run)
    hours = np.array([3600.0 * hour for hour in range(25)])
    values = np.array([300 + 200 * math.cos(hour / 12 * math.pi) for hour in range(24)])
    grid = Intensity(hours, values, repeats=True)
    cluster = replace(Cluster.of(16), power=POWER, intensity=grid)
    made = [simulate(jobs, cluster, name) for name in ("easy", "easy:shift=12h,gain=200", "easy:shift=12h")]
    none, some, all_jobs = (energy(each)["co2_jobs_kg"] for each in made)
    assert all_jobs < some < none
    waits = [float(each.wait.mean()) for each in made]
    assert waits == sorted(waits)


def test_where_nothing_can_be_held_it_is_refused() -> None:
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    quick = Intensity(np.array([0.0, 1e-6]), np.array([1.0]), repeats=True)
    with pytest.raises(InvalidInput, match="more than 10,000,000 steps"):
        simulate(jobs, replace(Cluster.of(1), power=POWER, intensity=quick), "easy:shift=1h")
    for cluster in (Cluster.of(1), replace(Cluster.of(1), power=POWER)):
        with pytest.raises(InvalidInput, match="no power or no intensity"):
            simulate(jobs, cluster, "easy:shift=1h")
    with pytest.raises(InvalidInput, match="for whole logs"):
        rule_of("easy:shift=1h")
    with pytest.raises(InvalidInput, match="for whole logs"):
        Simulated(nodes=1, dispatcher=Easy(shift="1h"), warmup=0).enter()
    with pytest.raises(InvalidInput, match="for whole logs"):
        Backfill(shift=60).decide(QueueView(0.0, Resources(1), (), ()))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("easy:shift=-1", "shift"),
        ("easy:shift=soon", "shift 'soon' is not a positive duration"),
        ("easy:shift=1h,gain=-1", "gain=-1"),
        ("easy:gain=10", "say shift=12h"),
        ("fcfs:shift_qos=free", "say shift=12h"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        DISPATCHERS.create(spec)
