from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.placement.native import BEST_FIT, CONTIGUOUS, FIRST_FIT, place
from tests.lab.placement.brute import UNTIMED, Ints, blocks, holds, machines

METHODS = st.sampled_from([FIRST_FIT, BEST_FIT, CONTIGUOUS])


def choose(method: int, free: Ints, need: Ints, units: int, per_node: int, rows: int = 200) -> tuple[int, Ints]:
    runs = np.full((rows, 3), -7)
    return place(method, free, need, units, per_node, blocks(free), runs), runs


@UNTIMED
@given(METHODS, machines())
def test_what_is_chosen_is_enough_and_fits(method: int, machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    before = free.copy()
    rows, runs = choose(method, free, need, units, per_node)
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
    rows, runs = choose(method, *machine)
    for (_, last, units), (first, _, more) in pairwise(runs[:rows].tolist()):
        assert last < first
        assert not (last + 1 == first and units == more)


@UNTIMED
@given(METHODS, machines(), st.integers(0, 3))
def test_too_few_rows_are_reported_and_not_overrun(
    method: int, machine: tuple[Ints, Ints, int, int], spare: int
) -> None:
    rows, _ = choose(method, *machine)
    answer, runs = choose(method, *machine, rows=spare)
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
