from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.cost import cost, objective, violations
from asa.lab.placement.tjap.instance import Window, grouped
from asa.lab.placement.tjap.nsa import MODEL, Neural
from asa.lab.placement.tjap.nsa_network import read_network
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.tjap.windows import best_dynamic, windows


def places(window: Window, **options: object) -> list[list[int]]:
    return [mine.tolist() for mine in Neural(iterations=50, **options).place(window).places]


def drawn(seed: int, idle: int = 150, jobs: int = 4, potential: tuple[float, ...] = ()) -> Window:
    draw = np.random.default_rng(seed)
    nodes = draw.choice(400, idle, replace=False)
    return grouped(nodes, draw.integers(2, 30, jobs), below=[10, 40], potential=potential)


@given(windows(), st.integers(0, 3), st.booleans(), st.sampled_from([None, "none"]), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_every_placement_keeps_the_laws_and_costs_at_most_what_it_began_with(window, seed, anywhere, model, tries):
    found = Neural(iterations=20, seed=seed, anywhere=anywhere, model=model, tries=tries).place(window)
    assert violations(window, found) == []
    assert objective(window, found) <= objective(window, Sequential().place(window)) * (1 + 1e-9) + 1e-9


def test_with_a_potential_it_minimises_cost_less_potential():
    many = [(drawn(seed, potential=(0.5, 0.1)), drawn(seed)) for seed in range(10)]
    found = [[Neural(seed=1).place(window) for window in pair] for pair in many]
    objectives = [[objective(window, each) for each in pair] for (window, _), pair in zip(many, found, strict=True)]
    costs = [[cost(plain, each) for each in pair] for (_, plain), pair in zip(many, found, strict=True)]
    assert np.mean(objectives, axis=0)[0] < np.mean(objectives, axis=0)[1]
    assert np.mean(costs, axis=0)[1] < np.mean(costs, axis=0)[0]


def test_a_seed_gives_a_placement():
    window = drawn(5)
    assert places(window, seed=3) == places(window, seed=3) != places(window, seed=4)


def test_it_sees_nodes_from_anywhere_on_only_where_there_are_more_than_it_sees():
    assert places(drawn(6, idle=100)) == places(drawn(6, idle=100), anywhere=False)
    assert places(drawn(6, idle=250)) != places(drawn(6, idle=250), anywhere=False)


def test_as_in_the_paper_no_job_begins_behind_the_nodes_that_are_seen():
    """Before the 100th node that nobody holds there are at most three other jobs; the job itself has 30 nodes."""
    window = grouped(np.arange(400), [30, 30, 30, 30], below=[10, 40])
    for seed in range(10):
        found = Neural(iterations=100, anywhere=False, warmest=1e6, seed=seed).place(window)
        assert max(int(mine.max()) for mine in found.places) < 100 + 3 * 30 + 30


def test_the_model_that_ships_is_far_better_than_no_search_and_than_chance():
    many = [drawn(seed) for seed in range(20)]
    seq, chance, found = (
        sum(cost(window, PLACEMENT_METHODS.create(spec).place(window)) for window in many)
        for spec in ("seq", "sa:iterations=50", "nsa:iterations=50,tries=4")
    )
    assert found < 0.98 * chance < seq


def test_small_and_odd_windows():
    assert places(grouped([3], [1], below=[2, 4])) == [[0]]
    assert places(grouped([3, 5], [], below=[2, 4])) == []
    one, two = places(grouped(range(6), [2, 4], below=[6]))
    assert sorted(one + two) == list(range(6))
    larger = grouped(np.arange(90), [80, 5], below=[10, 40])  # than any job that it has learned from
    assert violations(larger, Neural().place(larger)) == []


@given(windows(most_idle=8, most_jobs=3, most_size=4))
@settings(max_examples=40, deadline=None)
def test_in_small_windows_it_finds_what_is_best_of_all_when_it_tries_long(window):
    """All placements that it can reach are those of jobs in some order, or cheaper ones around jobs that left."""
    found = Neural(iterations=3000, model="none", tries=2, removed=3).place(window)
    assert cost(window, found) <= best_dynamic(window) * (1 + 1e-9) + 1e-9


def test_more_tries_cost_less():
    many = [drawn(seed) for seed in range(20)]
    costs = [
        sum(cost(window, Neural(iterations=30, tries=tries, model=model).place(window)) for window in many)
        for model, tries in (("none", 1), ("none", 4), (None, 4))
    ]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    "options", [{"iterations": -1}, {"removed": 0}, {"tries": 0}, {"coldest": 0.0}, {"warmest": 1.0, "coldest": 2.0}]
)
def test_options_out_of_range(options):
    with pytest.raises(InvalidInput, match="iterations"):
        Neural(**options)


def test_it_needs_no_library_for_learning():
    code = (
        "import sys; from asa.lab.core.registry import PLACEMENT_METHODS; PLACEMENT_METHODS.create('nsa');"
        "print(*sorted({'torch', 'gymnasium', 'safetensors', 'stable_baselines3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_model_is_small():
    assert MODEL.stat().st_size < 500_000
    assert read_network(MODEL).biggest == 40
