"""Why a job waits, and how it ended: Slurm's words, which every backend uses for what it has in common with Slurm."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Reasons by which somebody decides, or which a backend other than Slurm gives."""

    PRIORITY = "Priority"
    RESOURCES = "Resources"
    DEPENDENCY = "Dependency"
    NEVER = "DependencyNeverSatisfied"
    BEGIN = "BeginTime"
    HELD = "JobHeldUser"
    THROTTLED = "JobArrayTaskLimit"
    BARRED = "BadConstraints"  # so does a parked job show
    TIME_LIMIT = "TimeLimit"
    NODE_FAIL = "NodeFail"


_MEANINGS = {
    Reason.PRIORITY: "jobs of higher priority are before it",
    Reason.RESOURCES: "its turn has come, and it waits for nodes to become free",
    Reason.NEVER: "the job that it waits for did not end well: it will never start",
    Reason.DEPENDENCY: "it waits for another job",
    Reason.BEGIN: "its begin time has not come",
    Reason.HELD: "it is held until somebody says `scontrol release`",
    "JobHeldAdmin": "an operator holds it: ask the site",
    Reason.THROTTLED: "as many elements of its job array run as may at a time",
    Reason.BARRED: "no node is what it asks for: it may be parked",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "Licenses": "licences that it asks for are in use",
    "PartitionDown": "its partition starts no jobs just now",
    "PartitionInactive": "its partition takes and starts no jobs just now",
    "Partition": "it asks for more than its partition allows",
    "AssocGrp": "its account has as much in use as it may",
    "Assoc": "its user has as much in use as the account allows",
    "QOSGrp": "jobs of its QOS have as much in use as they may",
    "QOS": "it asks for more than its QOS allows, or its user has as much in use",
    "Cleaning": "it is still being cleared up after its last run",
}
"""Beginnings of Slurm's commonest reasons, the longer before the shorter, in plain words."""


def explained(reason: str) -> str:
    """A batch system's reason, and what it means where that is known.

    >>> print(explained("AssocGrpCpuLimit"))
    AssocGrpCpuLimit: its account has as much in use as it may
    >>> print(explained("InvalidQOS"))
    InvalidQOS
    """
    meaning = next((words for start, words in _MEANINGS.items() if reason.startswith(start)), None)
    return reason if meaning is None else f"{reason}: {meaning}"
