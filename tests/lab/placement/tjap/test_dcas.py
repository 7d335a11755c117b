from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.cost import cost, is_dynamic, is_static, objective, violations
from asa.lab.placement.tjap.dcas import DcasAlns
from asa.lab.placement.tjap.instance import Placed
from asa.lab.placement.tjap.scas import Scas
from tests.lab.placement.tjap.windows import best_dynamic, best_static, drawn, windows


@given(windows(), st.randoms(use_true_random=False))
def test_static_placements_are_dynamic_ones(window, draw):
    """Stretches of the ring side by side, in any order, with any gaps, turned by any number of places."""
    nodes, jobs = len(window.idle), list(range(len(window.sizes)))
    draw.shuffle(jobs)
    at, gaps, places = draw.randrange(nodes), nodes - int(window.sizes.sum()), [np.zeros(0)] * len(jobs)
    for job in jobs:
        skipped = draw.randint(0, gaps)
        at, gaps = at + skipped, gaps - skipped
        places[job] = np.sort((at + np.arange(window.sizes[job])) % nodes)
        at += int(window.sizes[job])
    found = Placed(tuple(places))
    assert violations(window, found) == [] and is_static(window, found) and is_dynamic(window, found)


@given(windows(most_idle=7, most_jobs=3, most_size=3))
@settings(max_examples=30, deadline=None)
def test_the_best_dynamic_placement_is_no_worse_than_the_best_static_one_and_ordered_search_no_better(window):
    best = best_dynamic(window)
    assert best <= best_static(window) * (1 + 1e-9)
    found = DcasAlns(iterations=300, ordered=True).place(window)
    assert is_dynamic(window, found) and cost(window, found) >= best * (1 - 1e-9)


@given(windows())
@settings(max_examples=60, deadline=None)
def test_it_keeps_the_laws_and_is_never_worse_than_neighbours(window):
    for ordered in (False, True):
        method = DcasAlns(iterations=60, ordered=ordered)
        found = method.place(window)
        assert violations(window, found) == [] and (not ordered or is_dynamic(window, found))
        assert cost(window, found) <= cost(window, Scas().place(window)) * (1 + 1e-9)
        kept = replace(window, potential=(0.5, 0.1))
        assert violations(kept, method.place(kept)) == []
        assert objective(kept, method.place(kept)) <= objective(kept, Scas().place(kept)) + 1e-6 * window.price


@pytest.mark.parametrize("seed", range(8))
def test_small_windows_are_solved(seed):
    window = drawn(seed, idle=12, jobs=3)
    assert cost(window, DcasAlns(ordered=True).place(window)) == pytest.approx(best_dynamic(window))


def test_it_finds_more_than_the_best_neighbours():
    chosen = [drawn(seed, idle=70, jobs=5) for seed in range(10)]
    static, dynamic = (
        np.mean([cost(window, method.place(window)) for window in chosen]) for method in (Scas(), DcasAlns())
    )
    assert dynamic < 0.994 * static


def test_the_same_seed_the_same_placement():
    window = drawn(2, idle=70, jobs=5)
    one, same = (np.concatenate(DcasAlns(seed=5).place(window).places) for _ in range(2))
    assert one.tolist() == same.tolist()


@pytest.mark.parametrize("options", [{"iterations": -1}, {"removed": 0}])
def test_no_such_search(options):
    with pytest.raises(InvalidInput, match="expected"):
        DcasAlns(**options)
