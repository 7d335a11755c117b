"""The log of a run that borrows, for tests of whatever reads logs."""

from __future__ import annotations

from asa.core.event import (
    AllocationStarted,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeJoined,
    Recalled,
    Released,
    RunEnded,
    RunState,
    TaskDone,
    TasksLaunched,
    Wanted,
)
from asa.core.job import JobState, Resources
from tests.runlogs import job_asked, run_begins, stage_spec

LENDER = "neighbour <7>"


def borrowing() -> list[Event]:
    """Four tasks of 100 s: one in the run's own job of one core, three in a lease of two cores, from 50 s to 300 s."""
    return [
        *run_begins(stage_spec("a", 1, 4), at=1000.0),
        *job_asked(1000.0, "j0", 1, "a"),
        Wanted(1000.0, Resources(), 4),
        Leased(1050.0, "l1", Resources(2), LENDER, 9000.0),
        NodeJoined(1060.0, "l1", "far", 2),
        TasksLaunched(1060.0, "a", ((0, 2),), "l1"),
        AllocationStarted(1100.0, "j0", 1100.0, ("near",)),
        TasksLaunched(1100.0, "a", ((2, 3),), "j0"),
        TaskDone(1160.0, "a", 0, "l1", "far", 1060.0),
        TaskDone(1160.0, "a", 1, "l1", "far", 1060.0),
        TasksLaunched(1160.0, "a", ((3, 4),), "l1"),
        Wanted(1160.0, None),
        TaskDone(1200.0, "a", 2, "j0", "near", 1100.0),
        Recalled(1210.0, "l1", "it is needed"),
        TaskDone(1260.0, "a", 3, "l1", "far", 1160.0),
        RunEnded(1260.0, RunState.SUCCEEDED),
        Released(1260.0, "l1"),
        LeaseEnded(1300.0, "l1"),
        JobEnded(1310.0, "j0", JobState.COMPLETED, 1100.0, 0),
    ]
