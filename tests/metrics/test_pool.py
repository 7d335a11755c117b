from __future__ import annotations

import numpy as np

from asa.metrics.workflow import level_at, pool_size, steps, summarise
from asa.testing.runlogs import run_begins, stage_spec


def test_intervals_that_touch_leave_no_gap() -> None:
    times, level = steps(np.array([0.0, 5.0]), np.array([5.0, 9.0]), np.array([2, 2]))
    assert times.tolist() == [0.0, 5.0, 9.0] and level.tolist() == [2, 2, 0]


def test_level_at_other_times() -> None:
    times, level = steps(np.array([1.0]), np.array([3.0]), np.array([7]))
    assert level_at(np.array([0.0, 1.0, 2.9, 3.0, 9.0]), times, level).tolist() == [0, 7, 7, 0, 0]


def test_run_without_jobs_has_an_empty_pool() -> None:
    size = pool_size(summarise(run_begins(stage_spec("a", 1, 1))))
    assert len(size.times) == len(size.held) == len(size.busy) == 0
