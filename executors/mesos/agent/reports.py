"""What an executor says of a task: whether it is a status, and what the agent adds to it."""

from __future__ import annotations

from executors.mesos.agent.state import Instance, Task
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import base64_of, field, identity, octets, value_of

STATES = frozenset(
    "TASK_" + word
    for word in ("STARTING", "RUNNING", "KILLING", "FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "DROPPED", "GONE")
)
"""States that an executor may tell of; the others are for agent and master to say."""


def checked(status: Message, executor_id: str) -> tuple[str, bytes]:
    """The task and the uuid of a status.

    Raises
    ------
    BadMessage
        When it is none, or is said to be another executor's.
    """
    task_id, uuid = value_of(status, "task_id"), octets(status, "uuid")
    if len(uuid) != 16:
        raise BadMessage(f"expected 'uuid' to be of 16 bytes, found {len(uuid)}")
    state = field(status, "state", str)
    if state not in STATES:
        raise BadMessage(f"expected 'state' to be one that an executor can tell of, found {state!r:.80}")
    if field(status, "source", str, "SOURCE_EXECUTOR") != "SOURCE_EXECUTOR":
        raise BadMessage("expected 'source' to be SOURCE_EXECUTOR")
    if value_of(status, "executor_id", executor_id) != executor_id:
        raise BadMessage(f"expected 'executor_id' to be {executor_id!r}")
    field(status, "timestamp", float, 0.0), field(status, "message", str, ""), octets(status, "data", b"")
    return task_id, uuid


def completed(
    status: Message, task: Task, uuid: bytes, now: float, agent_id: str, *, instance: Instance | None
) -> Message:
    """A checked status with everything in it that frameworks expect."""
    given: Message = {"timestamp": now} | status
    if instance is not None and "container_status" not in status:
        process = {} if instance.pid is None else {"executor_pid": instance.pid}
        given["container_status"] = {"container_id": identity(instance.id)} | process
    return given | {
        "source": "SOURCE_EXECUTOR",
        "uuid": base64_of(uuid),
        "agent_id": identity(agent_id),
        "executor_id": identity(task.executor_id),
    }
