from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.clock import ManualClock
from asa.core.decision import Predict, StrategyDecision, Wake
from asa.core.event import RunState
from asa.core.job import QueueRegime
from asa.core.view import WorkflowView
from asa.strategies.asking import ask_for, lacks_allocation
from asa.workflows import runner
from asa.workflows.runner import Decider, Runner
from tests.workflows import world
from tests.workflows.lender import Terms
from tests.workflows.world import World

STRATEGIES = [
    "big-job",
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=predicted",
    "asa-naive",
    "cascade",
    "hold:technique=aged-afterok",
    "hold:technique=array",
    "hold:technique=parked",
    "stagger",
    "auto",
]


@asa.stage(cores=4, walltime="10m")
def square(x: int) -> int:
    return x * x


@asa.stage(walltime="5m")
def total(xs: list[int]) -> int:
    return sum(xs)


@asa.stage(cores=2, walltime="5m")
def spread(n: int) -> list[int]:
    return list(range(n))


def workflow() -> Any:
    return total(square.map(spread(7)))


class Narrow:
    """A plan that has what `Decider` names, and nothing else."""

    def __init__(self, plan: Decider) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        assert not name.startswith("_") and name in vars(Decider), f"no decider need have {name!r}"
        return getattr(self._plan, name)


def test_the_runner_asks_no_more_of_a_plan_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "Runner", lambda plan, *others: Runner(Narrow(plan), *others))
    there = World(tmp_path, workflow(), "asa:dependency=predicted", wait=20.0, lends=Terms(cores=4))
    assert there.drive() is RunState.SUCCEEDED
    with pytest.raises(AssertionError, match="outcome"):
        _ = there.runner.plan.outcome


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("regime", [QueueRegime.FIFO, QueueRegime.LIMITS])
def test_every_strategy_gets_the_result(tmp_path: Path, strategy: str, regime: QueueRegime) -> None:
    there = World(tmp_path, workflow(), strategy, regime=regime, wait=20.0, predicted_wait_s=5.0, on_disk=True)
    assert there.drive() is RunState.SUCCEEDED
    assert there.result() == sum(x * x for x in range(7))
    assert all(status.state.final for _, status in there.batch.jobs()), "every job has ended"


class PassingClock(ManualClock):
    """Time passes whenever somebody looks."""

    def now(self) -> float:
        self._now += 0.001
        return self._now


class SoonAfter:
    """Asks for what lacks an allocation, but only some time after it was asked first."""

    estimator, own_pools = "last", False

    def __init__(self, seconds: float) -> None:
        self.seconds, self.due = seconds, math.inf

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        self.due = min(self.due, view.now + self.seconds)
        if view.now < self.due:
            return [Wake(self.due)]
        return [ask_for(item) for item in view.stages if lacks_allocation(item)]


@pytest.mark.parametrize("seconds", [0.0005, 0.0015, 10.0])
def test_a_time_to_wake_up_that_comes_right_after_the_decision_is_not_missed(tmp_path: Path, seconds: float) -> None:
    there = World(tmp_path, spread(7), SoonAfter(seconds), clock=PassingClock(1000.0))
    assert there.drive() is RunState.SUCCEEDED


class Stubborn:
    """Asks for the same prediction for ever."""

    estimator, own_pools = "last", False

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        return [Predict(view.stages[0].spec.name, 0.5)]


def test_a_strategy_that_never_has_enough_ends_the_run_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_ROUNDS_MOST", 20)
    there = World(tmp_path, spread(7), Stubborn())
    with pytest.raises(AssertionError, match=r"the plan keeps deciding the same: \[AskWait"):
        there.drive()
