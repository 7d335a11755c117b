"""The names of states, reasons and sources are those of the v1 API, whose older form has SLAVE where it has AGENT."""

from __future__ import annotations

import re
from pathlib import Path

import executors.mesos
from executors.mesos.master import tasks

SOURCE = Path(executors.mesos.__file__).parent

STATES = """STAGING STARTING RUNNING KILLING FINISHED FAILED KILLED ERROR LOST DROPPED UNREACHABLE GONE GONE_BY_OPERATOR
UNKNOWN"""
REASONS = """COMMAND_EXECUTOR_FAILED CONTAINER_LAUNCH_FAILED CONTAINER_LIMITATION CONTAINER_LIMITATION_DISK
CONTAINER_LIMITATION_MEMORY CONTAINER_PREEMPTED CONTAINER_UPDATE_FAILED MAX_COMPLETION_TIME_REACHED
EXECUTOR_REGISTRATION_TIMEOUT EXECUTOR_REREGISTRATION_TIMEOUT EXECUTOR_TERMINATED FRAMEWORK_REMOVED GC_ERROR
INVALID_FRAMEWORKID INVALID_OFFERS IO_SWITCHBOARD_EXITED MASTER_DISCONNECTED RECONCILIATION RESOURCES_UNKNOWN
AGENT_DISCONNECTED AGENT_DRAINING AGENT_REMOVED AGENT_REMOVED_BY_OPERATOR AGENT_REREGISTERED AGENT_RESTARTED
AGENT_UNKNOWN TASK_KILLED_DURING_LAUNCH TASK_CHECK_STATUS_UPDATED TASK_HEALTH_CHECK_STATUS_UPDATED TASK_GROUP_INVALID
TASK_GROUP_UNAUTHORIZED TASK_INVALID TASK_UNAUTHORIZED TASK_UNKNOWN"""
OPERATIONS = "UNSUPPORTED PENDING FINISHED FAILED ERROR DROPPED UNREACHABLE GONE_BY_OPERATOR RECOVERING UNKNOWN"


def named(kind: str) -> set[str]:
    """The names of this kind in the source."""
    found = (re.findall(rf'"({kind}_[A-Z_]+)"', path.read_text()) for path in SOURCE.rglob("*.py"))
    return {name for names in found for name in names}


def known(kind: str, words: str) -> set[str]:
    return {f"{kind}_{word}" for word in words.split()}


def test_reasons() -> None:
    found = named("REASON")
    assert {"REASON_AGENT_REMOVED", "REASON_AGENT_REREGISTERED", "REASON_RECONCILIATION"} <= found
    assert found <= known("REASON", REASONS) | {"REASON_"}


def test_states() -> None:
    events, capabilities = {"TASK_ADDED", "TASK_UPDATED"}, {"TASK_KILLING_STATE"}
    assert named("TASK") - events - capabilities <= known("TASK", STATES)
    assert set(tasks.STATES) <= known("TASK", STATES)


def test_sources_and_operations() -> None:
    assert named("SOURCE") == {"SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_EXECUTOR"}
    assert named("OPERATION") <= known("OPERATION", OPERATIONS)
