from __future__ import annotations

import pytest

from asa.allocations.lifetime import drain_margin, takes


@pytest.mark.parametrize(("walltime_s", "margin_s"), [(20.0, 1.0), (600.0, 30.0), (601.0, 30.0), (864000.0, 30.0)])
def test_the_margin_is_a_share_of_the_wall_time_up_to_a_limit(walltime_s: float, margin_s: float) -> None:
    assert drain_margin(walltime_s) == margin_s


def test_a_task_has_to_be_done_before_the_margin() -> None:
    assert takes(470.0, now=1000.0, ends=1500.0, walltime_s=3600.0)
    assert not takes(471.0, now=1000.0, ends=1500.0, walltime_s=3600.0)
    assert takes(0.0, now=1470.0, ends=1500.0, walltime_s=3600.0)
    assert not takes(0.0, now=1471.0, ends=1500.0, walltime_s=3600.0)


@pytest.mark.parametrize("task_s", [96.0, 100.0, 1e9])
def test_a_fresh_allocation_takes_any_task(task_s: float) -> None:
    """A newer one would be no better; if the task is too long it fails there, which is told."""
    assert takes(task_s, now=0.0, ends=100.0, walltime_s=100.0)
    assert takes(task_s, now=15.0, ends=100.0, walltime_s=100.0)
    assert not takes(task_s, now=16.0, ends=100.0, walltime_s=100.0)
