from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.nodes import (
    BEST_FIT,
    CONTIGUOUS,
    FIRST_FIT,
    BestFit,
    Contiguous,
    FirstFit,
    amounts,
    choose,
    place,
)
from tests.lab.placement.brute import UNTIMED, Ints, blocks, greedy, holds, machines, stretches


@UNTIMED
@given(machines())
def test_nodes_are_filled_in_order_of_their_numbers(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    expected = greedy(free, need, units, per_node, list(range(len(free))))
    found = FirstFit().choose(free, need, units, per_node)
    assert (amounts(found, len(free)).tolist() if found else None) == expected


@UNTIMED
@given(machines())
def test_the_fullest_nodes_come_first(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    most = holds(free, need)
    order = sorted(range(len(free)), key=lambda node: (most[node], node))
    found = BestFit().choose(free, need, units, per_node)
    assert (amounts(found, len(free)).tolist() if found else None) == greedy(free, need, units, per_node, order)


def test_a_single_unit_goes_where_least_is_left() -> None:
    assert BestFit().choose([[4], [3], [9]], need=[3], units=1, per_node=0) == ((0, 0, 1),)
    assert BestFit().choose([[7], [3], [9]], need=[3], units=1, per_node=0) == ((1, 1, 1),)


def given_units(machine: tuple[Ints, Ints, int, int]) -> list[int]:
    return amounts(Contiguous().choose(*machine), len(machine[0])).tolist()


@UNTIMED
@given(machines())
def test_it_is_a_preference_and_no_constraint(machine: tuple[Ints, Ints, int, int]) -> None:
    assert bool(Contiguous().choose(*machine)) == bool(FirstFit().choose(*machine))


@UNTIMED
@given(machines())
def test_a_job_stays_together_in_the_tightest_stretch(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    most = holds(free, need, per_node)
    fitting = [nodes for nodes in stretches(most) if sum(most[node] for node in nodes) >= units]
    assume(fitting)
    tightest = min(fitting, key=lambda nodes: sum(most[node] for node in nodes))
    expected, left = [0] * len(free), units
    for node in tightest:
        expected[node] = min(left, most[node])
        left -= expected[node]
    assert given_units(machine) == expected


@UNTIMED
@given(machines())
def test_a_job_that_must_be_split_uses_as_few_stretches_as_possible(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    assume(len(free) < 20)
    most = holds(free, need, per_node)
    sizes = [sum(most[node] for node in nodes) for nodes in stretches(most)]
    assume(sum(sizes) >= units)
    fewest = next(
        count for count in range(1, len(sizes) + 1) if any(sum(some) >= units for some in combinations(sizes, count))
    )
    assert len(stretches(given_units(machine))) == fewest


METHODS = st.sampled_from([FIRST_FIT, BEST_FIT, CONTIGUOUS])


def chosen_nodes(method: int, free: Ints, need: Ints, units: int, per_node: int, rows: int = 200) -> tuple[int, Ints]:
    runs = np.full((rows, 3), -7)
    return place(method, free, need, units, per_node, blocks(free), runs), runs


@UNTIMED
@given(METHODS, machines())
def test_what_is_chosen_is_enough_and_fits(method: int, machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    before = free.copy()
    rows, runs = chosen_nodes(method, free, need, units, per_node)
    most = holds(free, need, per_node)
    assert (free == before).all()
    if rows == 0:
        assert sum(most) < units
        return
    given = [0] * len(free)
    for first, last, each in runs[:rows].tolist():
        assert 0 <= first <= last < len(free) and each > 0
        for node in range(first, last + 1):
            given[node] += each
    assert sum(given) == units
    assert all(has <= can for has, can in zip(given, most, strict=True))


@UNTIMED
@given(METHODS, machines())
def test_runs_are_in_order_and_as_long_as_they_can_be(method: int, machine: tuple[Ints, Ints, int, int]) -> None:
    rows, runs = chosen_nodes(method, *machine)
    for (_, last, units), (first, _, more) in pairwise(runs[:rows].tolist()):
        assert last < first
        assert not (last + 1 == first and units == more)


@UNTIMED
@given(METHODS, machines(), st.integers(0, 3))
def test_too_few_rows_are_reported_and_not_overrun(
    method: int, machine: tuple[Ints, Ints, int, int], spare: int
) -> None:
    rows, _ = chosen_nodes(method, *machine)
    answer, runs = chosen_nodes(method, *machine, rows=spare)
    if rows > spare:
        assert answer == -1
    elif rows > 0:
        assert answer == rows
    else:
        assert answer in (0, -1)
    assert len(runs) == spare


def test_a_block_without_free_cores_is_passed_over() -> None:
    free = np.full((130, 1), 1)
    occupied = np.array([64, 0, 2])
    runs = np.empty((9, 3), np.int64)
    assert place(FIRST_FIT, free, np.array([1]), 66, 0, occupied, runs) == 2
    assert runs[:2].tolist() == [[0, 63, 1], [128, 129, 1]]


@pytest.mark.parametrize("method", [FIRST_FIT, BEST_FIT, CONTIGUOUS])
def test_a_job_without_cores_may_use_nodes_that_have_none(method: int) -> None:
    free = np.array([[0, 2], [0, 1]])
    runs = np.empty((9, 3), np.int64)
    assert place(method, free, np.array([0, 1]), 3, 0, np.array([0]), runs) == 2
    assert runs[:2].tolist() == [[0, 0, 2], [1, 1, 1]]


def test_no_room_is_an_empty_choice() -> None:
    assert choose(FIRST_FIT, [[1], [1]], [1], 3, 0) == ()


def test_many_single_nodes_need_no_more_rows_than_there_are() -> None:
    free = np.tile([[1], [0]], (5_000, 1))
    assert len(choose(FIRST_FIT, free, [1], 5_000, 0)) == 5_000


def test_shapes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \(2, 1\) and needs of shape \(2,\)"):
        choose(FIRST_FIT, [[1], [1]], [1, 1], 1, 0)


@pytest.mark.parametrize(("units", "per_node"), [(0, 0), (1, -1)])
def test_jobs_that_cannot_be_are_refused(units: int, per_node: int) -> None:
    with pytest.raises(InvalidInput, match="no such job"):
        choose(FIRST_FIT, [[1]], [1], units, per_node)


def test_methods_have_the_numbers_the_compiled_machine_knows() -> None:
    assert (FirstFit.native, BestFit.native, Contiguous.native) == (FIRST_FIT, BEST_FIT, CONTIGUOUS) == (0, 1, 2)
