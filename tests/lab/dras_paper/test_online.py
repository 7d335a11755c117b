"""A dispatcher that learns on, and its guard."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("gymnasium", reason="needs the extra 'learn'")

from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import DrasDql, DrasModel, NetworkShape, Selecting
from asa.lab.dras_paper.online import Online, Shadow
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.policies import first, youngest
from tests.lab.dras_paper.workloads import MACHINE, NODES, busy

DAY = 86400.0


def model_of(kind: str = "dql", seed: int = 0, nodes: int = NODES) -> DrasModel:
    shape = NetworkShape(kind, nodes, 4, (6, 3), "shares")
    draw = np.random.default_rng(seed)
    return DrasModel(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def largest_first() -> DrasModel:
    """A network that values a job by its size alone, whatever that does to the queue."""
    shape = NetworkShape("dql", NODES, 4, (1, 1), "shares")
    tensors = {name: np.zeros(size, np.float32) for name, size in shape.tensors.items()}
    tensors["filter.weight"][:] = [[1, 0]]
    tensors["first.weight"][0, 0] = tensors["second.weight"][:] = tensors["output.weight"][:] = 1
    return DrasModel(shape, tensors)


def harmed(jobs: int = 400) -> Workload:
    """Many small jobs, and large ones that are bad to take first."""
    draw = np.random.default_rng(1)
    large = draw.random(jobs) < 0.5
    run = np.where(large, 7200.0, 300.0)
    return Workload.of(
        submit=np.cumsum(draw.exponential(4200, jobs)), run=run, cores=np.where(large, NODES, 4), walltime=run
    )


class Watching:
    """Lets a shadow see what a dispatcher sees."""

    needs_estimates = True

    def __init__(self, inner) -> None:
        self.inner, self.shadow, self.judged = inner, Shadow(), []

    def decide(self, view):
        self.shadow.see(view)
        if self.shadow.age >= DAY:
            self.judged.append(self.shadow.judge(view.now))
        return self.inner.decide(view)


def test_the_shadow_of_easy_is_easy() -> None:
    """Where run times are as asked for, what EASY would have done is what it did."""
    jobs = busy(200)
    jobs = Workload.of(submit=jobs.submit, run=jobs.run, cores=jobs.cores, walltime=jobs.run)
    watched = Watching(Selecting(first))
    simulate(jobs, MACHINE, watched)
    assert len(watched.judged) >= 1
    for waited, shadow in watched.judged:
        assert waited > 0 and shadow == pytest.approx(waited, rel=0.1)


def test_waits_are_those_of_the_schedule() -> None:
    jobs = busy(120, 2)
    watched = Watching(Selecting(youngest))
    schedule = simulate(jobs, MACHINE, watched)
    assert watched.judged
    last = jobs.submit[0]
    views = []
    for waited, _ in watched.judged:
        views.append(waited)
    assert sum(views) <= schedule.wait.sum() + 1
    assert sum(views) >= 0.5 * schedule.wait[jobs.submit < last + len(views) * DAY].sum()


@pytest.mark.slow
def test_the_guard_stops_what_harms() -> None:
    jobs = harmed()
    guarded, loose = (
        Online(largest_first(), rate=0, period_s=DAY, tolerance=tolerance) for tolerance in (1.05, math.inf)
    )
    waits = {name: float(simulate(jobs, MACHINE, each).wait.mean()) for name, each in
             {"guarded": guarded, "loose": loose, "easy": "easy"}.items()}  # fmt: skip
    assert waits["loose"] > 1.2 * waits["easy"]
    assert waits["guarded"] < waits["easy"] + 0.6 * (waits["loose"] - waits["easy"])
    assert any(verdict.rest for verdict in guarded.verdicts) and not any(verdict.rest for verdict in loose.verdicts)
    assert max(verdict.rest for verdict in guarded.verdicts) > 1  # it harmed again


@pytest.mark.parametrize("threshold", [math.inf, "1h"])
def test_without_learning_and_guard_it_is_the_dispatcher(threshold: float | str) -> None:
    jobs = busy(100)
    one = simulate(jobs, MACHINE, Online(model_of(), rate=0, tolerance=math.inf, threshold=threshold)).start
    assert one.tolist() == simulate(jobs, MACHINE, DrasDql(model_of(), threshold=threshold)).start.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_it_learns_on_and_goes_back(kind: str) -> None:
    """Weights change with what it does; the same seed changes them in the same way."""
    jobs, found = busy(150), []
    for _ in range(2):
        online = Online(model_of(kind), rate=0.01, tolerance=math.inf, period_s=DAY, seed=4)
        start = simulate(jobs, MACHINE, online).start
        found.append((start.tolist(), online.learner.network.model().tensors["second.weight"]))
    assert found[0][0] == found[1][0] and np.array_equal(found[0][1], found[1][1])
    assert not np.array_equal(found[0][1], model_of(kind).tensors["second.weight"])
    back = Online(model_of(kind), rate=0.01, tolerance=1.0, period_s=DAY, seed=4)
    simulate(jobs, MACHINE, back)
    first_harm = next((verdict for verdict in back.verdicts if verdict.rest), None)
    assert first_harm is None or first_harm.waited > first_harm.shadow


def test_another_life_of_the_machine_begins_anew() -> None:
    jobs, online = busy(60), Online(model_of(), rate=0, tolerance=math.inf)
    assert simulate(jobs, MACHINE, online).start.tolist() == simulate(jobs, MACHINE, online).start.tolist()


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="model=FILE"):
        Online()
    with pytest.raises(InvalidInput, match="threshold"):
        Online(model_of(), threshold="soon")
    for options in ({"rate": -1.0}, {"period_s": 0.0}, {"tolerance": 0.5}):
        with pytest.raises(InvalidInput, match="expected"):
            Online(model_of(), **options)
    with pytest.raises(InvalidInput, match="machine of 9 nodes, not 8"):
        simulate(busy(5), MACHINE, Online(model_of(nodes=9)))
