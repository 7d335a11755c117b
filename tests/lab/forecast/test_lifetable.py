from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.forecast.lifetable import LifeTable

shares = st.floats(0.0, 1.0)


def taught(shares: np.ndarray, step: float = 0.02) -> LifeTable:
    """A table that has watched jobs which use these shares, look by look."""
    table = LifeTable()
    for begin in np.arange(0.0, 1.0, step):
        live = shares[shares > begin]
        end = np.minimum(begin + step, 1.0)
        table.add(np.full(len(live), begin), np.full(len(live), end), live <= end)
    return table


def quantiles(table: LifeTable, chances: list[float], used: float = 0.0) -> np.ndarray:
    return table.share(np.full(len(chances), used), np.array(chances))


def test_it_learns_a_distribution() -> None:
    drawn = np.random.default_rng(1).beta(0.5, 1.5, 1500)
    chances = [0.1, 0.25, 0.5, 0.75, 0.9]
    assert quantiles(taught(drawn), chances) == pytest.approx(np.quantile(drawn, chances), abs=0.03)


def test_what_has_been_used_is_a_condition() -> None:
    drawn = np.random.default_rng(1).uniform(0, 1, 1500)
    late = drawn[drawn > 0.6]
    chances = [0.25, 0.5, 0.75]
    assert quantiles(taught(drawn), chances, used=0.6) == pytest.approx(np.quantile(late, chances), abs=0.04)


def test_jobs_that_still_run_are_not_missed() -> None:
    """Of jobs that use a tenth or all of their wall times, watched until they have used a third, only the first end."""
    table = LifeTable()
    for begin, end in ((0.0, 0.09), (0.09, 0.11), (0.11, 0.33)):
        jobs = np.arange(1000) < (1000 if end < 0.2 else 500)
        ended = (np.arange(1000) % 2 == 0) & (end == 0.11)
        live = jobs.sum()
        table.add(np.full(live, begin), np.full(live, end), ended[:live])
    assert quantiles(table, [0.45])[0] < 0.12
    assert quantiles(table, [0.55])[0] > 0.33


def test_it_begins_with_any_share_as_likely_as_any_other() -> None:
    chances = [0.1, 0.3, 0.5, 0.7, 0.9]
    assert quantiles(LifeTable(), chances) == pytest.approx(chances, abs=0.03)


def test_what_is_old_fades() -> None:
    table = taught(np.full(2000, 0.9))
    for _ in range(10):
        table.add(np.full(1000, 0.0), np.full(1000, 0.1), np.full(1000, True))
    assert quantiles(table, [0.9])[0] < 0.2


@given(
    st.lists(st.tuples(shares, shares, st.booleans()), max_size=50), shares, st.floats(0, 0.999), st.floats(0, 0.999)
)
def test_shares_are_bounded_and_grow_with_the_chance(
    seen: list[tuple[float, float, bool]], used: float, one: float, other: float
) -> None:
    table = LifeTable()
    if seen:
        begin, end, ended = (np.array(column) for column in zip(*seen, strict=True))
        table.add(np.minimum(begin, end), np.maximum(begin, end), ended)
    low, high = quantiles(table, sorted([one, other]), used)
    assert used <= low <= high <= 1.0


def test_a_state_comes_back_as_it_was() -> None:
    table, other = taught(np.full(100, 0.3)), LifeTable()
    other.restore(json.loads(json.dumps(table.state())))
    assert other.state() == table.state()


@pytest.mark.parametrize("column", ["ends", "passed"])
@pytest.mark.parametrize("wrong", [[1.0], [-1.0] * 40, [float("nan")] * 40])
def test_a_broken_state_is_refused(column: str, wrong: list[float]) -> None:
    table = taught(np.full(100, 0.3))
    before = table.state()
    with pytest.raises(InvalidInput, match=f"'{column}'.*40 numbers"):
        table.restore(before | {column: wrong})
    assert table.state() == before
