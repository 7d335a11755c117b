from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Reserve
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dispatcher import DecimaPg, DrasDql, DrasPg, Policy, Selecting
from asa.lab.dispatchers.learned.model import Model, Shape
from asa.lab.dispatchers.learned.observation import Rows
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.policies import NODES, at_random, first, largest, smallest, workloads, youngest
from tests.lab.dispatchers.queues import UNTIMED

MACHINE = Cluster.of(NODES)


def model_of(kind: str, *, nodes: int = NODES, levels: bool = True, seed: int = 0) -> Model:
    shape = Shape(kind, nodes=nodes, window=4, hidden=(6, 3), scaling="shares", levels=levels)
    draw = np.random.default_rng(seed)
    return Model(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def dispatchers() -> list[Selecting]:
    decima = DecimaPg(model_of("pg", levels=False))
    return [DrasPg(model_of("pg")), DrasPg(model_of("pg"), greedy=True), DrasDql(model_of("dql")), decima]


@UNTIMED
@given(workloads())
def test_who_always_takes_the_first_job_is_easy(jobs: Workload) -> None:
    assert simulate(jobs, MACHINE, Selecting(first)).start.tolist() == simulate(jobs, MACHINE, "easy").start.tolist()


@pytest.mark.slow
@UNTIMED
@given(workloads(), st.sampled_from(range(4)))
def test_models_start_every_job(jobs: Workload, which: int) -> None:
    assert np.isfinite(simulate(jobs, MACHINE, dispatchers()[which]).start).all()


class Promises:
    """Passes decisions on, and keeps the first promise of each job."""

    needs_estimates = True

    def __init__(self, inner: Selecting) -> None:
        self.inner, self.promised = inner, dict[object, float]()

    def decide(self, view):
        decisions = self.inner.decide(view)
        for each in decisions:
            if isinstance(each, Reserve):
                self.promised.setdefault(each.job, each.at)
        return decisions


POLICIES = st.one_of(st.sampled_from([first, largest, smallest, youngest]), st.builds(at_random, st.integers(0, 99)))


@pytest.mark.slow
@UNTIMED
@given(workloads(), POLICIES, st.sampled_from([0, 1, 3, math.inf]), st.integers(1, 30))
def test_nobody_starts_later_than_first_promised(jobs: Workload, policy: Policy, patience: float, window: int) -> None:
    watched = Promises(Selecting(policy, Rows(window), turns=Turns(patience)))
    start = simulate(jobs, MACHINE, watched).start
    assert all(start[row] <= at for row, at in watched.promised.items())


@UNTIMED
@given(workloads(), POLICIES, st.integers(0, 3))
def test_reservations_bound_the_wait(jobs: Workload, policy: Policy, patience: int) -> None:
    """Of whatever policy: each job ahead of one costs it at most patience + 2 of the longest wall times."""
    schedule = simulate(jobs, MACHINE, Selecting(policy, turns=Turns(patience)))
    longest = float(jobs.walltime.max())
    for row in range(len(jobs)):
        ahead = int((schedule.start[:row] > jobs.submit[row]).sum())
        assert schedule.wait[row] <= (ahead + 1) * (patience + 2) * longest


@UNTIMED
@given(workloads(), POLICIES, st.sampled_from([1.0, 20.0, 100.0]), st.booleans())
def test_a_threshold_bounds_the_wait(jobs: Workload, policy: Policy, threshold: float, keeps: bool) -> None:
    """Of whatever policy: by the threshold, and one of the longest wall times for itself and each job ahead of it."""
    schedule = simulate(jobs, MACHINE, Selecting(policy, turns=Turns(threshold=threshold, keeps=keeps)))
    longest = float(jobs.walltime.max())
    for row in range(len(jobs)):
        ahead = int((schedule.start[:row] > jobs.submit[row]).sum())
        assert schedule.wait[row] <= threshold + (ahead + 1 + keeps) * longest


LARGE = 26
"""Row of the large job of an adversary: so many small ones have come before it."""


def adversary(jobs: int) -> Workload:
    """For ever jobs of half of the machine, more than can run; and one of all of it, when some wait."""
    small = np.arange(jobs - 1)
    return Workload.of(
        submit=[101.0, *(4.0 * small)],
        run=[10.0] * jobs,
        cores=[NODES, *([NODES // 2] * (jobs - 1))],
        walltime=[10.0] * jobs,
    )


@pytest.mark.parametrize("policy", [smallest, youngest])
def test_an_adversary_starves_a_job_only_where_nothing_ends_it(policy: Policy) -> None:
    """With half as many jobs again it waits as long, or, without levels or patience, longer."""
    waits = {}
    for name, options in {
        "none": {"levels": False},
        "paper": {"turns": Turns()},
        "patient": {"turns": Turns(5)},
        "prompt": {"turns": Turns(threshold=60.0)},
    }.items():
        waits[name] = [
            float(simulate(adversary(jobs), MACHINE, Selecting(policy, **options)).wait[LARGE]) for jobs in (100, 150)
        ]
    assert waits["none"][1] > 1.3 * waits["none"][0] > 300
    assert waits["paper"][1] > 1.3 * waits["paper"][0] > 300
    assert waits["patient"][0] == waits["patient"][1] <= 7 * (5 + 2) * 10  # six were before it
    assert waits["prompt"][0] == waits["prompt"][1] <= 60 + 8 * 10


def test_a_seed_makes_the_same_draws_and_another_does_not() -> None:
    draw = np.random.default_rng(3)
    run = draw.integers(1, 50, 80)
    jobs = Workload.of(submit=np.arange(80), run=run, cores=draw.integers(1, 9, 80), walltime=run)
    one, same, other = (simulate(jobs, MACHINE, DrasPg(model_of("pg"), seed=seed)).start.tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_an_earlier_view_begins_another_life() -> None:
    jobs = Workload.of(submit=[5, 6, 7], run=[9, 9, 9], cores=[8, 8, 1], walltime=[9, 9, 9])
    dispatcher = Selecting(largest)
    assert simulate(jobs, MACHINE, dispatcher).start.tolist() == simulate(jobs, MACHINE, dispatcher).start.tolist()


def test_what_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="model=FILE"):
        DrasPg()
    with pytest.raises(InvalidInput, match="'pg' with 2 levels: 'dql' with 2 expected"):
        DrasDql(model_of("pg"))
    with pytest.raises(InvalidInput, match="'pg' with 2 levels: 'pg' with 0 expected"):
        DecimaPg(model_of("pg"))
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    with pytest.raises(InvalidInput, match="machine of 9 nodes, not 8"):
        simulate(jobs, MACHINE, DrasPg(model_of("pg", nodes=9)))
    without = Workload.of(submit=[0], run=[1], cores=[1])
    with pytest.raises(InvalidInput, match="no requested time"):
        simulate(without, MACHINE, DrasPg(model_of("pg")))
