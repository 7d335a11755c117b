from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import Placed, Window, cost, grouped, objective, violations
from asa.lab.placement.tjap.together import Prospect, Together

FADE = 100.0
POTENTIAL = (0.3, 0.1)


@st.composite
def cases(draw: st.DrawFn, most_jobs: int = 3) -> tuple[Window, Prospect]:
    """Twelve nodes in leaves of two and pods of four; some are idle, the others held."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most_jobs))
    idle = sorted(draw(st.sets(st.integers(0, 11), min_size=sum(sizes), max_size=12)))
    held = np.setdiff1d(np.arange(12), idle)
    times = st.sampled_from([0.0, 30.0, 100.0, 700.0])
    window = grouped(idle, sizes, below=[2, 4], potential=POTENTIAL)
    lasts = np.array([draw(times) for _ in sizes])
    groups = np.array([held // 2, held // 4, held * 0])
    return window, Prospect(lasts, groups, np.array([draw(times) for _ in held]))


def worth(window: Window, found: Placed, prospect: Prospect) -> float:
    """What all pairs of nodes below the same switches are worth: pair by pair, as the module's docstring has it."""
    free_in = np.zeros(len(window.idle))
    for places, lasts in zip(found.places, prospect.lasts, strict=True):
        free_in[places] = lasts
    times = np.concatenate([free_in, prospect.free_in])
    groups = np.concatenate([window.groups, prospect.groups], axis=1)
    total = 0.0
    for level, each in enumerate(window.potential):
        for one, two in combinations(range(len(times)), 2):
            if groups[level, one] == groups[level, two]:
                total += each * math.exp(-abs(times[one] - times[two]) / FADE)
    return window.price * total


def all_places(window: Window) -> list[Placed]:
    """Every way to place one job."""
    (size,) = window.sizes.tolist()
    return [Placed((np.array(places),)) for places in combinations(range(len(window.idle)), size)]


@settings(deadline=None, max_examples=100)
@given(cases(most_jobs=1))
def test_one_job_goes_where_it_costs_least_less_what_nodes_are_worth(case: tuple[Window, Prospect]) -> None:
    window, prospect = case

    def total(found: Placed) -> float:
        return cost(window, found) - worth(window, found, prospect)

    found = Together(fade=FADE).place_with(window, prospect)
    least = min(map(total, all_places(window)))
    # Ties are broken by random prices of nodes, up to a ten-thousandth of what a node costs.
    assert total(found) <= least + 1e-3 * window.price


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(0, 30))
def test_placements_keep_the_laws_and_the_window_is_left_as_it_was(
    case: tuple[Window, Prospect], iterations: int
) -> None:
    window, prospect = case
    before = window.idle.copy(), window.tables.groups.copy(), window.tables.kept.copy()
    for found in (Together(iterations=iterations).place_with(window, prospect), Together().place(window)):
        assert violations(window, found) == []
    assert all(np.array_equal(*pair) for pair in zip(before, (window.idle, *window.tables[::3]), strict=True))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_more_moves_are_never_worse(case: tuple[Window, Prospect]) -> None:
    window, prospect = case

    def total(iterations: int) -> float:
        found = Together(fade=FADE, iterations=iterations).place_with(window, prospect)
        return cost(window, found) - worth(window, found, prospect)

    assert total(60) <= total(0) + 1e-6


@settings(deadline=None, max_examples=60)
@given(cases())
def test_without_times_it_is_a_search_with_the_potential(case: tuple[Window, Prospect]) -> None:
    window, _ = case
    mine, other = Together(iterations=300).place(window), Free(iterations=300).place(window)
    assert abs(objective(window, mine) - objective(window, other)) <= 0.02 * window.price * len(window.idle)


def test_the_same_seed_makes_the_same_choices() -> None:
    window = grouped(range(0, 60, 2), [5, 7, 3], below=[4, 16], potential=POTENTIAL)
    first, second = (Together(seed=5).place(window) for _ in range(2))
    assert [places.tolist() for places in first.places] == [places.tolist() for places in second.places]


def test_held_nodes_below_switches_without_idle_nodes_do_not_count() -> None:
    window = grouped([0, 1, 2, 3], [2], below=[2, 4], potential=POTENTIAL)
    far = Prospect(np.array([50.0]), np.array([[7, 8], [3, 4], [0, 0]]), np.array([50.0, 10.0]))
    none = Prospect(np.array([50.0]), np.zeros((3, 0), np.int64), np.zeros(0))
    places = [Together().place_with(window, each).places[0].tolist() for each in (far, none)]
    assert places[0] == places[1]


def test_no_jobs_are_no_problem() -> None:
    assert Together().place(grouped([1, 2], [], below=[2])).places == ()


@pytest.mark.parametrize("options", [{"fade": 0.0}, {"fade": math.inf}, {"iterations": -1}, {"removed": 0}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        Together(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lasts", "groups", "free_in"),
    [([-1.0], [[0]], [1.0]), ([1.0], [[0]], [math.inf]), ([1.0], [[0]], [1.0, 2.0]), ([[1.0]], [[0]], [1.0])],
)
def test_odd_prospects_are_refused(lasts: list[float], groups: list[list[int]], free_in: list[float]) -> None:
    with pytest.raises(InvalidInput, match="prospect"):
        Prospect(np.array(lasts), np.array(groups), np.array(free_in))


def test_a_prospect_of_another_window_is_refused() -> None:
    window = grouped([0, 1, 2, 3], [2], below=[2, 4])
    with pytest.raises(InvalidInput, match="window of 1"):
        Together().place_with(window, Prospect(np.array([1.0, 2.0]), np.zeros((3, 0), np.int64), np.zeros(0)))
