"""Energy and CO2 of schedules, held against a sum over every node and every second."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.energy import NodePower
from asa.core.errors import InvalidInput, UnknownName
from asa.core.intensity import Intensity
from asa.lab.cli.tune import line_of
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.metrics.energy import energy, energy_of_cores
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.run import simulate
from asa.lab.tuning import Trial
from tests.metrics.schedules import in_turn, random_schedule


@st.composite
def powered(draw: st.DrawFn) -> Schedule:
    """A few jobs at whole seconds on nodes that draw power, under a grid whose intensity changes at such."""
    nodes, cores = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 10))
    some = st.lists(st.integers(0, 25), min_size=count, max_size=count)
    sizes = draw(st.lists(st.integers(1, nodes * cores), min_size=count, max_size=count))
    jobs = Workload.of(submit=draw(some), run=draw(some), cores=sizes)
    idle = draw(st.integers(0, 90))
    off = draw(st.one_of(st.none(), st.integers(0, idle)))
    power = NodePower(idle, idle + draw(st.integers(0, 200)), off, draw(st.integers(0, 9)))
    steps = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), min_size=1, max_size=5))
    times = np.cumsum([draw(st.integers(-5, 5)), *(length for length, _ in steps)])
    grid = Intensity(times, np.array([value for _, value in steps]), repeats=True)
    return in_turn(jobs, replace(Cluster.of(nodes, cores), power=power, intensity=grid))


def second_by_second(schedule: Schedule) -> dict[str, float]:
    """Every node, every second: idle for so long, so many cores busy, so many grams."""
    power, grid, cluster = schedule.cluster.power, schedule.cluster.intensity, schedule.cluster
    assert power is not None
    assert grid is not None
    assert schedule.placements is not None
    steps = np.diff(grid.times).astype(int)
    cycle = [value for value, length in zip(grid.g_per_kwh.tolist(), steps, strict=True) for _ in range(length)]
    placed = list(schedule.placements)
    cores = int(cluster.capacity[0, 0])
    found = dict.fromkeys(("energy_kwh", "energy_jobs_kwh", "co2_kg", "co2_jobs_kg"), 0.0)
    first, last = int(schedule.workload.submit.min()), int(schedule.end.max())
    for node in range(cluster.nodes):
        idle_for = 0
        for second in range(first, last):
            here = [(job, run.units) for job, run in placed if run.first <= node <= run.last]
            if any(schedule.start[job] == second for job, _ in here):
                idle_for = 0  # also for one that ends at once: the node had to be up
            busy = sum(units for job, units in here if schedule.start[job] <= second < schedule.end[job])
            down = busy == 0 and power.off_w is not None and idle_for >= power.off_after_s
            jobs = (power.busy_w - power.idle_w) * busy / cores
            watts = (power.off_w or 0.0) if down else power.idle_w + jobs
            idle_for = 0 if busy else idle_for + 1
            grams = cycle[(second - int(grid.times[0])) % len(cycle)]
            found["energy_kwh"] += watts / 3.6e6
            found["energy_jobs_kwh"] += jobs / 3.6e6
            found["co2_kg"] += watts / 3.6e6 * grams / 1000
            found["co2_jobs_kg"] += jobs / 3.6e6 * grams / 1000
    return found


@given(powered())
def test_energy_is_the_sum_over_nodes_and_seconds(schedule: Schedule) -> None:
    expected = second_by_second(schedule)
    assert energy(schedule) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert {name: summarise(schedule)[name] for name in expected} == energy(schedule)


def test_many_nodes_are_looked_at_a_block_at_a_time() -> None:
    """Nodes 0 to 2999 run a job each for 100 s; half of them are off for the 100 s before it."""
    jobs = Workload.of(submit=[0, 0], run=[200, 100], cores=[1500, 1500], walltime=[200, 100])
    cluster = replace(Cluster.of(3000), power=NodePower(100, 300, off_w=0))
    assert energy(simulate(jobs, cluster, "fcfs")) == pytest.approx(
        {"energy_kwh": 1500 * 300 * 300 / 3.6e6, "energy_jobs_kwh": 1500 * 300 * 200 / 3.6e6}
    )


def test_where_no_power_is_declared_nothing_is_said() -> None:
    schedule = random_schedule(20, 4)
    assert energy(schedule) == {}
    assert not [name for name in summarise(schedule) if "kwh" in name or "co2" in name]
    held = np.zeros(1), np.ones(1), np.ones(1, np.int64)
    assert energy_of_cores(schedule.cluster, held, held) == {}
    with_grid = replace(schedule, cluster=replace(schedule.cluster, intensity=Intensity.constant(300.0)))
    assert energy(with_grid) == {}


def test_no_job_no_energy() -> None:
    cluster = replace(Cluster.of(2), power=NodePower(100, 300), intensity=Intensity.constant(300.0))
    none = simulate(Workload.of(submit=[], run=[], cores=[]), cluster)
    assert set(energy(none).values()) == {0.0}


def test_powered_down_nodes_need_places() -> None:
    cluster = replace(Cluster.of(2), power=NodePower(100, 300, off_w=5))
    with pytest.raises(InvalidInput, match="keep_nodes expected"):
        energy(simulate(Workload.of(submit=[0], run=[1], cores=[1]), cluster, "fcfs", keep_nodes=False))


@given(powered())
def test_cores_that_are_all_held_and_busy_are_the_whole_machine(schedule: Schedule) -> None:
    """A machine that is full from its first submission to its last end."""
    cluster = replace(schedule.cluster, power=NodePower(100, 300))
    full = simulate(Workload.of(submit=[7], run=[40], cores=[cluster.cores], walltime=[40]), cluster)
    held = np.array([7.0]), np.array([47.0]), np.array([cluster.cores])
    found = energy_of_cores(cluster, held, held)
    assert found == pytest.approx({name: energy(full)[name] for name in ("energy_kwh", "co2_kg")})


def test_an_intensity_is_a_step_function() -> None:
    day = Intensity(np.array([0.0, 6.0, 10.0]), np.array([100.0, 400.0]), repeats=True)
    assert day.at([0, 5.9, 6, 9.9, 10, -1]).tolist() == [100, 100, 400, 400, 100, 400]
    assert np.diff(day.integral([-4, 0, 6, 8, 20])).tolist() == [1600, 600, 800, 800 + 2200]
    once = replace(day, repeats=False)
    assert once.at([10.0]).tolist() == [400.0]
    with pytest.raises(InvalidInput, match="from 0 to 10 s on the clock of the jobs, which need 2 to 11 s"):
        once.integral([2.0, 11.0])


@pytest.mark.parametrize(
    ("times", "values", "words"),
    [
        ([0.0, 1.0], [], "one time more"),
        ([0.0, 1.0], [1.0, 2.0], "one time more"),
        ([0.0, 0.0], [1.0], "ascend"),
        ([0.0, math.inf], [1.0], "finite"),
        ([0.0, 1.0], [-1.0], "from 0 to 10000 g/kWh"),
        ([0.0, 1.0], [math.nan], "from 0 to 10000 g/kWh"),
        ([0.0, 1.0], [1e6], "from 0 to 10000 g/kWh"),
    ],
)
def test_an_impossible_intensity_is_refused(times: list[float], values: list[float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Intensity(np.array(times), np.array(values))


def test_power_from_words() -> None:
    assert NodePower.of("idle_w=90,busy_w=350.5") == NodePower(90, 350.5)
    assert NodePower.of("idle-w=90,busy-w=350,off_w=0,off_after_s=60").off_w == 0
    assert NodePower(100, 300).joules(cores=4, held_core_s=8.0, busy_core_s=2.0) == 2 * 100 + 0.5 * 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "idle_w= and busy_w= in watts expected"),
        ("90", "90"),
        ("idle_w=90", "idle_w= and busy_w="),
        ("idle_w=90,busy_w=80", "busy_w=80: a finite number of at least 90"),
        ("idle_w=-1,busy_w=80", "idle_w=-1"),
        ("idle_w=a,busy_w=80", "idle_w='a'"),
        ("idle_w=1,busy_w=inf", "busy_w=inf"),
        ("idle_w=90,busy_w=99,off_w=91", "at most the 90 W of an idle node"),
        ("idle_w=90,busy_w=99,off_w=nan", "off_w=nan"),
        ("idle_w=90,busy_w=99,off_after_s=-1", "off_after_s=-1"),
        ("idle_w=90,busy_w=99,of_w=1", "did you mean 'off_w'"),
    ],
)
def test_power_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises((InvalidInput, UnknownName), match=words):
        NodePower.of(text)


@pytest.mark.parametrize(
    "columns",
    [{"capacity": np.array([[1], [2]])}, {"capacity": np.array([[0], [0]])}, {"shareable": frozenset({"cores"})}],
)
def test_nodes_of_a_declared_power_are_alike(columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="as many cores each, not shared"):
        replace(Cluster.of(2), power=NodePower(100, 300), **columns)


def test_tuned_rules_have_the_energy_of_the_whole_log() -> None:
    jobs = random_schedule(400, 8, seed=3).workload
    cluster = replace(Cluster.of(8), power=NodePower(100, 300, off_w=1), intensity=Intensity.constant(500.0))
    rows, _ = Trial(jobs, cluster).report(["fcfs"])
    for row in rows:
        whole = energy(simulate(jobs, cluster, row["dispatcher"]))
        assert {name: row[name] for name in whole} == whole
        shown = line_of({**row, "of_easy": {}})
        assert (shown["energy_kwh"], shown["co2_kg"]) == (round(whole["energy_kwh"]), round(whole["co2_kg"]))
