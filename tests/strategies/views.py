"""Hand-made views for tests of strategies."""

from __future__ import annotations

import math
from typing import Any

from asa.core.job import QueueRegime, Resources
from asa.core.stage import StageSpec, StageState
from asa.core.view import AllocationView, StageView, WorkflowView


def allocation(key: str, *stages: str, started: float | None = None, **more: Any) -> AllocationView:
    """An allocation in the queue, or running when `started` is given."""
    ends = None if started is None else started + 600.0
    size = Resources(more.pop("cores", 1))
    fields: dict[str, Any] = {"submitted": 0.0, "queued": True, "ends": ends, "leaving": False, "busy": False}
    fields |= {"resources": size, "walltime_s": 600.0}
    return AllocationView(key=key, stages=stages, started=started, **(fields | more))


def stage(name: str, *after: str, cores: int = 1, nodes: int | None = None, **more: Any) -> StageView:
    """A waiting stage with tasks left, of 600 s."""
    needs = {key: more.pop(key) for key in ("memory", "gpus", "options") if key in more}
    walltime_s = more.pop("walltime_s", 600.0)
    run_time_s = more.pop("run_time_s", walltime_s)
    spec = StageSpec(name, Resources(cores, nodes, **needs), Resources(), walltime_s, run_time_s, after)
    fields: dict[str, Any] = {
        "state": StageState.WAITING,
        "allocations": (),
        "started": None,
        "ended": None,
        "expected_end": None,
        "predicted_wait_s": None,
        "attempts": 0,
        "unlaunched": True,
    }
    return StageView(spec=spec, **(fields | more))


def view(*stages: StageView, now: float = 1000.0, **more: Any) -> WorkflowView:
    fields: dict[str, Any] = {"regime": QueueRegime.LIMITS, "dependencies": True, "longest_s": math.inf}
    return WorkflowView(now=now, stages=stages, **(fields | more))
