from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import InvalidInput, UnknownName
from coscheduler.nouns import ALONE, JobStates, RunningJobs, happiness, smoothed
from coscheduler.workload import paper_queue
from coscheduler.world import SimulatedWorld


def states(count: int) -> JobStates:
    return JobStates(
        cpu=np.zeros(count), memory=np.zeros(count), parallel=np.zeros(count, dtype=bool), elapsed=np.zeros(count),
        happiness=np.ones(count),
    )  # fmt: skip


def running(count: int) -> RunningJobs:
    whole = np.full(count, 4)
    return RunningJobs(
        names=tuple(f"job {number}" for number in range(count)), applications=("blast",),
        application=np.zeros(count, dtype=np.int64), cores=whole, walltime=np.full(count, 9.0),
        started=np.zeros(count), states=states(count), host=np.full(count, ALONE), share=np.ones(count),
        exclusive=np.zeros(count, dtype=bool),
    )  # fmt: skip


@pytest.mark.parametrize("cpu", [np.zeros(3), np.zeros((2, 1)), np.float64(0.5)], ids=["longer", "wider", "a number"])
def test_columns_of_several_shapes_are_refused(cpu: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match=r"columns of shapes .*: all of the same shape \(n,\) expected"):
        replace(states(2), cpu=cpu)


def test_so_are_tables_without_a_row_for_each_job() -> None:
    jobs = running(2)
    for changed in ({"states": states(3)}, {"share": np.ones(3)}, {"names": ("a", "b", "c")}):
        with pytest.raises(InvalidInput, match=r"columns of lengths \[2, 3\]: one row for each running job expected"):
            replace(jobs, **changed)  # type: ignore[arg-type]


def test_what_rules_see_cannot_be_written_to() -> None:
    jobs = running(2)
    for column in (jobs.share, jobs.host, jobs.states.cpu):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def one(*values, form="rate"):
    return happiness(*(np.array([value]) for value in values), form).item()


@given(st.floats(60, 1e5), st.floats(0, 0.99), st.floats(1, 1e4), st.floats(0.1, 10))
def test_it_is_one_for_whoever_just_makes_it(walltime, elapsed, remaining, factor):
    left = walltime * (1 - elapsed)
    just = remaining / left
    assert one(walltime, walltime * elapsed, remaining, factor * just) == pytest.approx(factor)


def test_bounds():
    assert one(100.0, 50.0, 0.0, 0.0) == np.inf  # nothing is left
    assert one(100.0, 100.0, 0.0, 0.0) == np.inf
    assert one(100.0, 100.0, 5.0, 1.0) == 0  # the wall time is over
    assert one(100.0, 50.0, 5.0, 0.0) == 0  # it stands still


def test_the_literal_formula_says_the_opposite_of_the_text():
    slow, fast = (one(100.0, 50.0, 20.0, rate, form="literal") for rate in (0.1, 1.0))
    assert slow > fast
    assert one(100.0, 50.0, 20.0, 0.0, form="literal") == np.inf
    assert one(100.0, 50.0, 0.0, 1.0, form="literal") == 0
    with pytest.raises(UnknownName, match="literal, rate"):
        one(1.0, 1.0, 1.0, 1.0, form="happy")


def test_averages_forget():
    assert smoothed(1.0, 3.0, 0.0) == 1
    assert smoothed(1.0, 3.0, 1e6) == pytest.approx(3)
    assert smoothed(smoothed(1.0, 3.0, 100.0), 3.0, 50.0) == pytest.approx(smoothed(1.0, 3.0, 150.0))


def test_the_world_measures_either():
    loads = paper_queue(64, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        SimulatedWorld(loads, 64, happiness_form="none")
    found = []
    for form in ("rate", "literal"):
        world = SimulatedWorld(loads, 64, happiness_form=form)
        view = world.advance()
        world.apply([Start(view.queue[0].name)])
        found.append(world.advance().running.states.happiness.item())
    assert found[1] > 100 * found[0]
