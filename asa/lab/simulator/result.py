"""Reading a schedule off the engine's tables."""

from __future__ import annotations

import numpy as np

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Placements, Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.state import ENDED, RUNNING, State

_PENDING, _RUNNING = OUTCOMES.index(JobState.PENDING), OUTCOMES.index(JobState.RUNNING)


def schedule_of(state: State, workload: Workload, cluster: Cluster) -> Schedule:
    """What has become of the workload's jobs by now."""
    n = len(workload)
    world, jobs, fates = state.world[0], state.jobs[:n], state.fates[:n]
    status = fates["status"]
    outcome = np.full(n, _PENDING, dtype=np.int8)
    outcome[status == RUNNING] = _RUNNING
    outcome[status == ENDED] = fates["outcome"][status == ENDED]
    return Schedule(
        workload,
        cluster,
        jobs["eligible"].copy(),
        jobs["started"].copy(),
        fates["ended"].copy(),
        outcome,
        jobs["restarts"].copy(),
        _placements(state) if world["keeps_nodes"] else None,
        int(world["decisions"]),
    )


def _placements(state: State) -> Placements:
    """Where each job ran last."""
    rows = state.placed[: state.world[0]["placed"]]
    job = rows["job"].copy()
    runs = np.stack([rows["first"], rows["last"], rows["units"]], axis=1)
    if state.jobs["restarts"].any():  # keep the runs of the last start: they stand together, and last
        begins = np.flatnonzero(np.diff(job, prepend=-1))
        group = np.repeat(np.arange(len(begins)), np.diff([*begins, len(job)]))
        last = np.zeros(int(job.max(initial=0)) + 1, dtype=np.int64)
        last[job] = group
        kept = last[job] == group
        job, runs = job[kept], runs[kept]
    return Placements(job, runs)
