"""What is asked for, from what tasks have used."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.ports import Advice, RequestEstimator
from asa.core.stage import again
from asa.estimators.requests import BestRequest, Linear, Nearest, Quantile, cost, make

Kind = Callable[..., RequestEstimator]
KINDS: list[Kind] = [Quantile, Nearest, Linear]
TASKS = st.lists(
    st.tuples(st.floats(1.0, 1e12), st.floats(1e-3, 1e6), st.one_of(st.none(), st.floats(0, 1e12)), st.integers(1, 50)),
    min_size=1,
    max_size=40,
)
RISKS = st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.2, 0.5])


def taught(estimator: RequestEstimator, tasks: list[tuple[float, float, float | None, int]]) -> RequestEstimator:
    for used, seconds, size, count in tasks:
        estimator.learn(used, seconds, size, count)
    return estimator


def asked(estimator: RequestEstimator, size: float | None = None) -> Advice:
    advice = estimator.ask(size)
    assert advice is not None
    return advice


@pytest.mark.parametrize("kind", [*KINDS, make])
@given(tasks=TASKS, size=st.one_of(st.none(), st.floats(0, 1e13)), risk=RISKS)
def test_requests_are_finite_and_never_below_all_that_was_used(
    kind: Kind, tasks: list[tuple[float, float, float | None, int]], size: float | None, risk: float
) -> None:
    advice = asked(taught(kind(risk=risk), tasks), size)
    uses = [used for used, *_ in tasks]
    assert min(uses) * (1 - 1e-9) <= advice.amount < math.inf
    assert 0 <= advice.above < advice.tasks <= sum(count for *_, count in tasks)
    assert advice.largest in uses


@pytest.mark.parametrize("kind", [*KINDS, make])
@given(tasks=TASKS, size=st.one_of(st.none(), st.floats(0, 1e13)))
def test_without_risk_never_less_than_the_largest_use(
    kind: Kind, tasks: list[tuple[float, float, float | None, int]], size: float | None
) -> None:
    advice = asked(taught(kind(risk=0.0), tasks), size)
    assert advice.amount >= max(used for used, *_ in tasks)
    assert advice.above == 0


@pytest.mark.parametrize("kind", KINDS)
@given(
    tasks=TASKS, size=st.one_of(st.none(), st.floats(0, 1e13)), risks=st.tuples(RISKS.filter(bool), RISKS.filter(bool))
)
def test_who_risks_more_asks_for_no_more(
    kind: Kind,
    tasks: list[tuple[float, float, float | None, int]],
    size: float | None,
    risks: tuple[float, float],
) -> None:
    careful, bold = (asked(taught(kind(risk=risk), tasks), size).amount for risk in sorted(risks))
    assert bold <= careful * (1 + 1e-9)


@pytest.mark.parametrize("kind", [*KINDS, make])
@pytest.mark.parametrize("risk", [0.01, 0.05])
def test_no_more_than_the_risk_fail(kind: Kind, risk: float) -> None:
    """Of tasks that are alike, the share that has too little is the stated one at most, counted over many stages."""
    rng, failed, tasks = random.Random(5), 0, 0
    for _ in range(10):
        estimator = kind(risk=risk)
        for count in range(400):
            used, size = rng.lognormvariate(0, 0.3), rng.uniform(0.5, 2.0) * 1e9
            if count >= 150:
                failed, tasks = failed + (asked(estimator, size).amount < used), tasks + 1
            estimator.learn(used, 1.0, size)
    slack = 3 * math.sqrt(risk / tasks)
    assert failed / tasks <= risk + slack


def test_rare_large_tasks_are_tried_again_rather_than_allowed_for() -> None:
    """Where one of a hundred needs ten times as much, all others would pay for it."""
    estimator = Quantile(risk=0.02)
    for count in range(400):
        estimator.learn(1000.0 if count % 100 == 7 else 100.0, 60.0)
    advice = asked(estimator)
    assert (advice.amount, advice.above) == (100.0, 4)
    careful = taught(Quantile(risk=0.005), [(100.0, 1.0, None, 99), (1000.0, 1.0, None, 1)])
    assert asked(careful).amount > 1000.0


def test_a_cheap_rest_of_wall_time_is_kept() -> None:
    """The less it costs to have asked for too much, the fewer attempts fail."""
    uses = [100.0] * 195 + [300.0] * 5
    dear, cheap = Quantile(risk=0.05), Quantile(risk=0.05, idle=0.001)
    for used in uses:
        dear.learn(used)
        cheap.learn(used)
    assert asked(dear).amount == 100.0
    assert asked(cheap).amount == 300.0


def test_a_line_over_the_size_of_the_input() -> None:
    """It is followed between and beyond sizes that are known, up to twice the largest use; no task turns it alone."""
    rng = random.Random(1)
    sizes = [rng.uniform(1e9, 4e9) for _ in range(200)]
    tasks = [(size / 10 * rng.uniform(0.95, 1.05), 1.0, size, 1) for size in sizes]
    line, flat = taught(Linear(), tasks), taught(Quantile(), tasks)
    assert asked(line, 2e9).amount < 1.25 * 2e8 < asked(flat, 2e9).amount
    assert 5e8 < asked(line, 5e9).amount < 6e8
    assert asked(line, 1e15).amount == 2 * asked(line).largest
    line.learn(1e12, 1.0, 2e9)
    assert asked(line, 2e9).amount < 1e9  # one of 201: its place is beyond the risk


def test_inputs_about_as_large_count_alone() -> None:
    estimator = Nearest(least=20)
    for size, used in ((1e3, 5e6), (1e6, 1e9)):
        for _ in range(120):
            estimator.learn(used, 1.0, size)
    assert asked(estimator, 1e3).amount == 5e6
    assert asked(estimator, 1e6).amount == 1e9
    assert "about as large" in asked(estimator, 1e3).which


class Constant:
    """An estimator that learns nothing."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        pass

    def ask(self, size: float | None = None) -> Advice | None:
        return Advice(self.amount, 0, 0.0)


def test_the_better_by_past_cost_is_asked() -> None:
    rng = random.Random(2)
    best = BestRequest([Constant(1000.0), Constant(250.0), Constant(120.0)])
    assert asked(best).amount == 1000.0
    for _ in range(30):
        best.learn(rng.uniform(100, 200), 5.0)
    assert asked(best).amount == 250.0
    rising = make()
    for _ in range(150):
        size = rng.uniform(1e9, 1e10)
        rising.learn(size / 10, 1.0, size)
    assert asked(rising, 2e9).amount < 4e8


def test_what_attempts_cost() -> None:
    """An attempt that fails costs all that it had; then what is known to be needed, and then twice as much."""
    assert cost(3.0, 4.0, 10.0) == 1.0
    assert cost(3.0, 2.0, 10.0) == 2.0 + 7.0
    assert cost(9.0, 2.0, 0.0) == 2.0 + 4.0 + 8.0 + 7.0
    assert again(2.0, 5.0) == 5.0 and again(5.0, 5.0) == 10.0


def test_only_the_newest_tasks_count() -> None:
    estimator = Quantile(kept=10)
    for _ in range(5):
        estimator.learn(1e9)
    for _ in range(10):
        estimator.learn(1.0)
    assert asked(estimator).largest == 1.0


def test_bad_input_is_refused() -> None:
    for used, seconds, size, tasks in (
        (0.0, 1.0, None, 1), (-1.0, 1.0, None, 1), (math.nan, 1.0, None, 1), (math.inf, 1.0, None, 1),
        (1.0, 0.0, None, 1), (1.0, 1.0, -1.0, 1), (1.0, 1.0, math.nan, 1), (1.0, 1.0, None, 0),
    ):  # fmt: skip
        for estimator in (Quantile(), Nearest(), Linear(), make()):
            with pytest.raises(InvalidInput, match="expected"):
                estimator.learn(used, seconds, size, tasks)
            assert estimator.ask() is None
    for options in ({"risk": -0.1}, {"risk": 1.0}, {"risk": math.nan}, {"idle": 0.0}, {"idle": 2.0}, {"kept": 0}):
        with pytest.raises(InvalidInput, match="expected"):
            Quantile(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        BestRequest([])
