"""What holds of any run, and of the beginning of any log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from asa.core.event import RunState
from asa.core.units import HOUR
from asa.metrics.workflow import PoolSize, RunSummary, pool_size, summarise
from asa.testing.runlogs import MadeStage, run_log


@st.composite
def made_stages(draw: st.DrawFn) -> list[MadeStage]:
    number = draw(st.integers(1, 4))
    names = [f"s{position}" for position in range(number)]
    seconds = st.floats(0.0, 500.0, allow_nan=False)
    return [
        MadeStage(
            name,
            cores=draw(st.integers(1, 6)),
            tasks=draw(st.integers(1, 12)),
            task_s=draw(st.floats(0.1, 90.0)),
            after=tuple(draw(st.sets(st.sampled_from(names[:position])))) if position else (),
            wait_s=draw(seconds),
            predicted_wait_s=draw(st.none() | seconds),
            lead_s=draw(seconds),
            lost_after_s=draw(st.none() | seconds),
            bad_tasks=draw(st.integers(0, 1)),
        )
        for position, name in enumerate(names)
    ]


def integral(size: PoolSize, level: NDArray[np.int64]) -> float:
    return float(np.sum(np.diff(size.times) * level[:-1])) / HOUR


def checked(run: RunSummary) -> None:
    size = pool_size(run)
    assert 0.0 <= run.core_hours_used <= run.core_hours_charged + 1e-9
    assert -1e-9 <= run.overhead_core_hours <= run.core_hours_wasted + 1e-9
    assert run.per_stage_core_hours <= run.big_job_core_hours + 1e-9
    assert sum(job.core_hours_charged for job in run.jobs) == pytest.approx(run.core_hours_charged)
    assert sum(job.core_hours_used for job in run.jobs) == pytest.approx(run.core_hours_used)
    assert integral(size, size.held) == pytest.approx(run.core_hours_charged, abs=1e-6)
    assert integral(size, size.busy) == pytest.approx(run.core_hours_used, abs=1e-6)
    assert (size.busy <= size.held).all()
    assert not size.held[-1:].any() and not size.busy[-1:].any(), "nothing is held at the end"
    assert all((stage.perceived_wait_s or 0.0) >= 0.0 for stage in run.stages)


@settings(max_examples=40, deadline=None)
@given(made_stages(), st.data())
def test_whole_logs_and_beginnings_of_them_add_up(stages: list[MadeStage], data: st.DataObject) -> None:
    events = run_log(stages, seed=1)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(events)), min_size=2, max_size=2)))
    early, late, whole = (summarise(events[:cut]) for cut in (*cuts, len(events)))
    for run in (early, late, whole):
        checked(run)
    for name in ("makespan_s", "core_hours_charged", "core_hours_used", "total_perceived_wait_s"):
        # what is seen once the last task is done, until the outcome is known, is no part of the makespan
        seen = min(getattr(early, name), getattr(whole, name))
        assert seen <= getattr(late, name) + 1e-9, f"{name} only grows"
    assert whole.state is RunState.SUCCEEDED
    assert all(stage.done == stage.tasks and stage.running == 0 for stage in whole.stages)
