from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Ask, Wake
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.core.view import WorkflowView
from asa.estimators.loss import seconds_pinball
from asa.strategies.budget import check_patience, lead_quantile, within_budget
from tests.strategies.views import allocation, stage, view

WIDE = Resources(100)


def afford(asks: list[object], stages: WorkflowView, grace_s: float, share: float) -> list[object]:
    return list(within_budget(asks, stages, lambda _cores: grace_s, share))


def two(**more: object) -> WorkflowView:
    """A stage of 1,000 s on 100 cores that runs, and another that waits for it: 200,000 core-seconds in all."""
    return view(
        stage("a", cores=100, walltime_s=1000.0, state=StageState.RUNNING, expected_end=1500.0),
        stage("b", "a", cores=100, walltime_s=1000.0, **more),
    )


def early(after: tuple[str, ...] = (), array: str = "") -> Ask:
    return Ask(("b",), WIDE, 1000.0, after, array=array)


def test_an_early_request_is_sent_if_its_worst_case_is_within_the_budget() -> None:
    """300 s on 100 cores are 15 % of 200,000 core-seconds."""
    assert afford([early(), Wake(5.0)], two(), 300.0, 0.15) == [early(), Wake(5.0)]
    assert afford([early(), Wake(5.0)], two(), 300.0, 0.149) == [Wake(5.0)]


def test_what_cannot_come_early_costs_nothing() -> None:
    asks = [early(after=("x",)), early(array="b+1"), Ask(("a",), WIDE, 1000.0)]
    assert afford(asks, two(), 300.0, 0.0) == asks


@pytest.mark.parametrize("there", [{"after": ("x",)}, {"array": "b+1"}, {"leaving": True}])
def test_nor_does_what_is_there_already_and_cannot_come_early(there: dict[str, object]) -> None:
    held = allocation("y", "b", cores=100, **there)
    assert afford([early()], two(allocations=(held,)), 300.0, 0.15) == [early()]


def test_each_request_counts_and_so_does_what_waits_idles_or_is_lost() -> None:
    assert afford([early(), early()], two(), 300.0, 0.2) == [early()]
    waits, idles = allocation("y", "b", cores=100), allocation("y", "b", cores=100, started=800.0)
    assert afford([early()], two(allocations=(waits,)), 300.0, 0.29) == []
    assert afford([early()], two(allocations=(waits,)), 300.0, 0.31) == [early()]
    assert afford([early()], two(allocations=(idles,)), 300.0, 0.19) == [], "it has 100 s left to idle"
    assert afford([early()], two(allocations=(idles,)), 300.0, 0.21) == [early()]
    lost = view(*two().stages, idle_core_s=10_000.0)
    assert afford([early()], lost, 300.0, 0.19) == []
    assert afford([early()], lost, 300.0, 0.21) == [early()]


def test_it_takes_a_while_to_notice() -> None:
    slow = view(*two().stages, poll_s=15.0)
    assert afford([early()], slow, 300.0, 0.15) == []
    assert afford([early()], slow, 300.0, 0.16) == [early()]


@given(st.floats(0.1, 1e4), st.integers(1, 5000), st.lists(st.floats(0, 1e5), min_size=1, max_size=30))
def test_the_quantile_of_any_waits_costs_least(patience: float, cores: int, waits: list[float]) -> None:
    """Brute force over all leads; and estimators pay the same price, in proportion."""
    tau = lead_quantile(patience, cores)

    def cost(lead: float) -> float:
        return sum(patience * max(wait - lead, 0.0) + cores * max(lead - wait, 0.0) for wait in waits)

    chosen = sorted(waits)[min(math.floor(tau * len(waits)), len(waits) - 1)]
    assert cost(chosen) <= min(map(cost, waits)) * (1 + 1e-9) + 1e-6
    priced = sum(seconds_pinball(chosen, wait, tau) for wait in waits) * (patience + cores)
    assert priced == pytest.approx(cost(chosen), abs=1e-3)


@given(patience=st.floats(0.1, 1e4), cores=st.integers(1, 10_000))
def test_the_quantile_makes_the_mean_cost_least(patience: float, cores: int) -> None:
    """Where waits are uniform on [0, 1] the cost of a lead q is known, and no other lead is cheaper."""

    def cost(lead: float) -> float:
        return cores * lead**2 / 2 + patience * (1 - lead) ** 2 / 2

    best = lead_quantile(patience, cores)
    assert all(cost(best) <= cost(other / 50) * (1 + 1e-9) for other in range(51))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_no_patience_is_below_zero(value: float) -> None:
    with pytest.raises(InvalidInput, match="core-hours that an hour of your time is worth"):
        check_patience(value)
