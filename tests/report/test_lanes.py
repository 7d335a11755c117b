from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asa.report.lanes import pack


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_tasks_of_one_core_never_overlap_when_there_is_room(tasks: list[tuple[int, int]]) -> None:
    started = np.array([start for start, _ in tasks], dtype=float)
    ended = np.array([start + length for start, length in tasks], dtype=float)
    lanes = pack(started, ended, np.ones(len(tasks), dtype=np.int64), len(tasks) + 1)
    for one in range(len(tasks)):
        for other in range(one):
            apart = ended[one] <= started[other] or ended[other] <= started[one]
            assert apart or lanes[one] != lanes[other]


def test_wide_tasks_stay_inside_and_beside_each_other() -> None:
    lanes = pack(np.zeros(3), np.ones(3), np.array([2, 1, 9]), 3)
    assert lanes[0] == 0 and lanes[1] == 2, "side by side"
    assert lanes[2] == 0, "cut to the lanes there are, and drawn over the others"


def test_no_tasks() -> None:
    assert pack(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), 4).tolist() == []
