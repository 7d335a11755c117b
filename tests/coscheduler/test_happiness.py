import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import UnknownName
from coscheduler.nouns import happiness, smoothed
from coscheduler.workload import paper_queue
from coscheduler.world import SimulatedWorld


def one(*values, form="rate"):
    return happiness(*(np.array([value]) for value in values), form).item()


@given(st.floats(60, 1e5), st.floats(0, 0.99), st.floats(1, 1e4), st.floats(0.1, 10))
def test_it_is_one_for_whoever_just_makes_it(walltime, elapsed, remaining, factor):
    left = walltime * (1 - elapsed)
    just = remaining / left
    assert one(walltime, walltime * elapsed, remaining, factor * just) == pytest.approx(factor)


def test_bounds():
    assert one(100.0, 50.0, 0.0, 0.0) == np.inf  # nothing is left
    assert one(100.0, 100.0, 0.0, 0.0) == np.inf
    assert one(100.0, 100.0, 5.0, 1.0) == 0  # the wall time is over
    assert one(100.0, 50.0, 5.0, 0.0) == 0  # it stands still


def test_the_literal_formula_says_the_opposite_of_the_text():
    slow, fast = (one(100.0, 50.0, 20.0, rate, form="literal") for rate in (0.1, 1.0))
    assert slow > fast
    assert one(100.0, 50.0, 20.0, 0.0, form="literal") == np.inf
    assert one(100.0, 50.0, 0.0, 1.0, form="literal") == 0
    with pytest.raises(UnknownName, match="literal, rate"):
        one(1.0, 1.0, 1.0, 1.0, form="happy")


def test_averages_forget():
    assert smoothed(1.0, 3.0, 0.0) == 1
    assert smoothed(1.0, 3.0, 1e6) == pytest.approx(3)
    assert smoothed(smoothed(1.0, 3.0, 100.0), 3.0, 50.0) == pytest.approx(smoothed(1.0, 3.0, 150.0))


def test_the_world_measures_either():
    loads = paper_queue(64, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        SimulatedWorld(loads, 64, happiness_form="none")
    found = []
    for form in ("rate", "literal"):
        world = SimulatedWorld(loads, 64, happiness_form=form)
        view = world.advance()
        world.apply([Start(view.queue[0].name)])
        found.append(world.advance().running.states.happiness.item())
    assert found[1] > 100 * found[0]
