from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap import scas
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.tjap.instance import Placed, cost, grouped, is_static, objective, violations
from asa.lab.placement.tjap.scas import Scas
from tests.lab.placement.tjap.windows import best_static, drawn, of_groups, packing, stretch, windows

SHARED = Path(__file__).parents[5] / "shared" / "data" / "tjap"


@given(windows(most_idle=9, most_jobs=3))
@settings(max_examples=150)
def test_it_is_the_best_of_all_there_are(window):
    found = Scas().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert cost(window, found) == pytest.approx(best_static(window))
    assert found.bound == pytest.approx(cost(window, found)) and found.status == "optimal"


@pytest.mark.parametrize("seed", range(6))
def test_it_costs_what_integer_programming_finds(seed):
    window = drawn(seed, idle=50, jobs=4)
    assert cost(window, Scas().place(window)) == pytest.approx(packing(window))


@pytest.mark.parametrize("seed", range(3))
def test_it_costs_what_the_model_of_the_paper_and_constraint_programming_find(seed):
    pytest.importorskip("ortools")
    from tests.lab.placement.tjap.solvers import intervals, paper_model

    window = drawn(seed, idle=24, jobs=3)
    assert cost(window, Scas().place(window)) == pytest.approx(paper_model(window))
    assert cost(window, Scas().place(window)) == pytest.approx(intervals(window), abs=1e-3)


def test_a_stretch_may_go_over_the_end():
    """The only way to have two pairs in one leaf switch each: the first node and the last one are below the same."""
    window = of_groups(np.array([[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]), grouped(range(4), [2, 2], below=[1, 1]))
    found = Scas().place(window)
    assert cost(window, found) == pytest.approx(best_static(window)) and is_static(window, found)
    one = grouped([0, 1, 2, 3, 4], [5], below=[2, 4])
    assert cost(one, Scas().place(one)) == pytest.approx(best_static(one))


@given(windows())
@settings(max_examples=60)
def test_the_other_way_round_it_costs_as_much(window):
    """Neither the direction of the ring matters, nor where it begins if whole pods are moved."""
    mirrored = of_groups(-window.groups[:, ::-1] + window.groups.max(axis=1, keepdims=True), window)
    assert cost(mirrored, Scas().place(mirrored)) == pytest.approx(cost(window, Scas().place(window)))
    first = window.groups[1] == window.groups[1, 0]
    beyond = 1 + window.groups.max(axis=1, keepdims=True)
    groups = np.hstack([window.groups[:, ~first], window.groups[:, first] + beyond])
    groups[-1] = 0
    turned = of_groups(groups, window)
    assert cost(turned, Scas().place(turned)) == pytest.approx(cost(window, Scas().place(window)))


@given(windows())
@settings(max_examples=60)
def test_without_room_for_tables_it_finds_what_bounds_tell_of(window):
    best = cost(window, Scas().place(window))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scas, "CELLS", 0)
        for width in (1, 50):
            found = Scas(width=width).place(window)
            assert violations(window, found) == [] and is_static(window, found) and found.status == "feasible"
            assert found.bound <= best * (1 + 1e-9) + 1e-9
            assert cost(window, found) >= best * (1 - 1e-9) - 1e-9


def test_large_windows():
    draw = np.random.default_rng(4)
    nodes = np.sort(draw.choice(27648, 2700, replace=False))
    window = grouped(nodes, draw.integers(2, 41, 100), below=[24, 576])
    found = Scas().place(window)
    assert violations(window, found) == [] and is_static(window, found)
    assert found.bound <= cost(window, found) <= 1.02 * found.bound
    assert cost(window, Scas(width=2).place(window)) >= cost(window, found)


def test_all_jobs_have_one_node():
    window = replace(grouped([3, 4, 8], [1, 1, 1], below=[2, 4]))
    assert cost(window, Scas().place(window)) == 0.0


@given(windows(most_jobs=1), st.lists(st.floats(0, 2), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_with_a_potential_a_job_alone_goes_where_both_together_are_best(window, worth):
    window = replace(window, potential=tuple(worth))
    size = int(window.sizes[0])
    ways = [Placed((stretch(window, at, size),)) for at in range(len(window.idle))]
    found = Scas().place(window)
    assert is_static(window, found) and violations(window, found) == []
    best = min(objective(window, way) for way in ways)
    assert objective(window, found) == pytest.approx(best, abs=1e-6 * window.price)


def test_a_potential_keeps_a_leaf_switch_whole():
    """Two nodes of the switch with two left cost as much as two of the one with four."""
    window = grouped([0, 1, 2, 3, 4, 5], [2], below=[4, 8])
    assert Scas().place(window).places[0].tolist() == [0, 1]
    assert Scas().place(replace(window, potential=(0.1,))).places[0].tolist() == [4, 5]


def test_no_such_width():
    with pytest.raises(InvalidInput, match="width 0"):
        Scas(width=0)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="no folder ../shared/data")
@pytest.mark.parametrize("name", ["tjap_code_cap5", "tjap_text_cap5"])
def test_windows_as_in_the_paper(name):
    """The optimum by integer programming (HiGHS), too, of all windows that this takes seconds for, not minutes."""
    chosen = [window for window in read_windows(SHARED / f"{name}.json.gz") if len(window.idle) <= 120]
    assert len(chosen) > 100
    for window in chosen[::3]:
        assert cost(window, Scas().place(window)) == pytest.approx(packing(window), rel=1e-7)
