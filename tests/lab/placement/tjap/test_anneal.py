from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from asa.core.errors import InvalidInput
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.anneal import Anneal
from asa.lab.placement.tjap.cost import cost, objective, violations
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.tjap.windows import drawn, windows


@given(windows())
@settings(max_examples=60, deadline=None)
def test_it_keeps_the_laws_and_is_never_worse_than_where_it_begins(window):
    begin = Sequential().place(window)
    for method in (Anneal(iterations=50), Anneal(iterations=50, starts=1)):
        found = method.place(window)
        assert violations(window, found) == [] and cost(window, found) <= cost(window, begin) * (1 + 1e-9)
        kept = replace(window, potential=(0.5, 0.1))
        assert objective(kept, method.place(kept)) <= objective(kept, begin) + 1e-6 * window.price
    assert violations(window, Anneal(iterations=50, as_published=True).place(window)) == []


def test_without_iterations_it_is_sequential():
    window = drawn(1, idle=60, jobs=4)
    found = Anneal(iterations=0).place(window)
    assert [places.tolist() for places in found.places] == [each.tolist() for each in Sequential().place(window).places]


def test_the_same_seed_the_same_placement():
    window = drawn(1, idle=60, jobs=4)
    one, same, other = (Anneal(iterations=200, seed=seed).place(window) for seed in (3, 3, 4))
    assert np.concatenate(one.places).tolist() == np.concatenate(same.places).tolist()
    assert np.concatenate(one.places).tolist() != np.concatenate(other.places).tolist()


def test_taking_rejected_moves_back_is_what_the_published_code_lacks():
    """In the mean of 30 windows: the walk is better than its begin, annealing far better than the walk."""
    chosen = [drawn(seed, idle=100, jobs=4) for seed in range(30)]
    means = [
        np.mean([cost(window, PLACEMENT_METHODS.create(spec).place(window)) for window in chosen])
        for spec in ("seq", "sa:as-published", "sa")
    ]
    assert means[0] > 1.05 * means[1] > 1.05 * 1.05 * means[2]


def test_as_published_only_the_first_100_nodes_are_first_ones():
    """All of a job's nodes are then among the first 100 and as many as it has."""
    window = replace(drawn(0, idle=190, jobs=2), sizes=np.array([5]))
    for seed in range(20):
        last = [Anneal(as_published=published, seed=seed).place(window).places[0][-1] for published in (True, False)]
        assert last[0] < 105


@pytest.mark.parametrize(
    "options", [{"iterations": -1}, {"removed": 0}, {"warmest": 1.0}, {"coldest": 0.0}, {"warmest": float("nan")}]
)
def test_no_such_annealing(options):
    with pytest.raises(InvalidInput, match="expected"):
        Anneal(**options)
