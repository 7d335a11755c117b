from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.dispatchers.predictors import DataDriven
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.traces.eurora import ALIKE, LONGEST_S, MEDIAN_S, RESOURCES, SHORT, SORTS, eurora, eurora_machine, run_time


@pytest.fixture(scope="module")
def quarter() -> Workload:
    return eurora(seed=0)


def test_the_machine_is_that_of_the_paper() -> None:
    machine = eurora_machine()
    assert machine.resources == RESOURCES
    assert machine.capacity.sum(axis=0).tolist() == [1024, 64 * 16 * 2**30, 64, 64]
    assert ((machine.capacity[:, 2] > 0) ^ (machine.capacity[:, 3] > 0)).all(), "GPUs or MICs, never both"
    assert machine.capacity[0].tolist() == [16, 16 * 2**30, 2, 0]


def test_as_many_jobs_as_in_the_paper_and_as_short(quarter: Workload) -> None:
    assert len(quarter) == round(91 * 400_000 / 549)
    assert quarter.submit.min() >= 0 and quarter.submit.max() < 91 * DAY
    assert (quarter.run < 3600).mean() == pytest.approx(SHORT, abs=0.02)
    assert np.median(quarter.run) == pytest.approx(MEDIAN_S, rel=0.15)
    assert quarter.run.min() >= 1 and (quarter.run <= quarter.walltime).all() and quarter.walltime.max() <= DAY


def test_run_times_are_lognormal_and_cut() -> None:
    found = run_time(np.array([0.0, 0.5, SHORT, 1.0]))
    assert found[1:].tolist() == pytest.approx([MEDIAN_S, 3600.0, LONGEST_S])
    assert 0 < found[0] < 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_all_resources_are_in_demand_and_none_beyond_what_there_is(seed: int) -> None:
    made, machine = eurora(seed=seed), eurora_machine()
    work = ((made.run * made.units)[:, None] * made.demands[made.kind]).sum(axis=0)
    load = work / machine.capacity.sum(axis=0) / (91 * DAY)
    assert (load > 0.08).all() and (load < 0.5).all(), "peaks are what makes queues"
    most = 16 * 2**30
    assert (made.demands <= [16, most, 2, 2]).all()
    assert not (made.demands[:, 2] * made.demands[:, 3]).any()


def test_every_job_can_run_and_a_queue_forms() -> None:
    week = eurora(days=7, seed=2)
    schedule = simulate(week, eurora_machine(), "easy")
    assert schedule.ran.all()
    assert schedule.wait.max() > 3600


def test_there_is_something_to_learn(quarter: Workload) -> None:
    """Within an application run times differ far less than among all jobs."""
    codes, app = np.unique(quarter.kind, return_inverse=True)
    logs = np.log(quarter.run)
    means = np.bincount(app, logs) / np.bincount(app)
    within = np.median(np.abs(logs - means[app]))
    assert within < 0.4 * np.median(np.abs(logs - np.median(logs)))
    assert len(codes) > 200 and 0.5 < ALIKE < 1
    names = {quarter.label("name", row) for row in range(300)}
    assert any("-" in name for name in names) and any("-" not in name for name in names)
    assert quarter.label("user", 0).startswith("user")


def test_predictors_learn_from_it() -> None:
    """The data-driven heuristic is nearer to the run times than what users ask for."""
    week = eurora(days=7, seed=0)
    engine = Engine(week, eurora_machine(), MachineSettings(predictor=DataDriven()))
    DispatchLoop(engine, Easy()).run()
    expected = np.array(engine.state.jobs["estimate"][: len(week)])
    wrong = np.median(np.abs(np.log(expected / week.run)))
    assert wrong < 0.5 * np.median(np.abs(np.log(week.walltime / week.run)))


def test_seeds() -> None:
    one, again, other = eurora(days=3, seed=5), eurora(days=3, seed=5), eurora(days=3, seed=6)
    assert np.array_equal(one.run, again.run) and np.array_equal(one.submit, again.submit)
    assert not np.array_equal(one.run, other.run)
    assert sum(sort.share for sort in SORTS) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [{"days": 0.0}, {"jobs_a_day": -1.0}, {"jobs_a_day": 1e9}])
def test_numbers_out_of_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="from 1 to 10 million jobs"):
        eurora(seed=1, **wrong)
