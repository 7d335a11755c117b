"""The calls of schedulers, but for SUBSCRIBE: which part of the machine carries them out."""

from __future__ import annotations

from collections.abc import Callable

from executors.mesos.codec import Message
from executors.mesos.master import accept, feedback, frameworks, offers, reconcile, tasks
from executors.mesos.master.core import Core
from executors.mesos.master.state import Framework
from executors.mesos.messages import field, identity, message, value_of

Part = Callable[[Core, Framework, Message], None]
"""Takes the call's payload; raises `BadMessage` before it changes anything."""


def _teardown(core: Core, framework: Framework, call: Message) -> None:
    frameworks.remove(core, framework, "")


def _accept_inverse(core: Core, framework: Framework, call: Message) -> None:
    offers.answer(core, framework, call, "ACCEPT")


def _decline_inverse(core: Core, framework: Framework, call: Message) -> None:
    offers.answer(core, framework, call, "DECLINE")


def _kill(core: Core, framework: Framework, call: Message) -> None:
    task_id = value_of(call, "task_id")
    agent_id = value_of(call, "agent_id") if "agent_id" in call else None
    kill_policy = field(call, "kill_policy", dict, None)
    task = framework.tasks.get(task_id) or framework.unreachable.get(task_id)
    if task is not None and agent_id in (None, task.agent):
        tasks.kill(core, task, kill_policy)
    if task is None or task.id not in framework.tasks or agent_id not in (None, task.agent):
        reconcile.tell(core, framework, task_id, agent_id)


def _shutdown(core: Core, framework: Framework, call: Message) -> None:
    executor_id, agent_id = value_of(call, "executor_id"), value_of(call, "agent_id")
    if agent := core.state.agents.get(agent_id):
        ids = {"framework_id": identity(framework.id), "executor_id": identity(executor_id)}
        core.send(agent.stream, message("SHUTDOWN_EXECUTOR", **ids))


def _message(core: Core, framework: Framework, call: Message) -> None:
    executor_id, agent_id = value_of(call, "executor_id"), value_of(call, "agent_id")
    data = field(call, "data", str)
    if agent := core.state.agents.get(agent_id):
        ids = {"framework_id": identity(framework.id), "executor_id": identity(executor_id)}
        core.send(agent.stream, message("MESSAGE", **ids, data=data))


def _request(core: Core, framework: Framework, call: Message) -> None:
    """What a framework wishes for; Mesos' allocator does not listen, either."""


CALLS: dict[str, tuple[Part, str | None]] = {
    "TEARDOWN": (_teardown, "unregister_framework"),
    "ACCEPT": (accept.accept, None),
    "DECLINE": (offers.decline, "decline_offers"),
    "ACCEPT_INVERSE_OFFERS": (_accept_inverse, None),
    "DECLINE_INVERSE_OFFERS": (_decline_inverse, None),
    "REVIVE": (frameworks.revive, "revive_offers"),
    "SUPPRESS": (frameworks.suppress, "suppress_offers"),
    "KILL": (_kill, "kill_task"),
    "SHUTDOWN": (_shutdown, None),
    "ACKNOWLEDGE": (tasks.acknowledge, "status_update_acknowledgement"),
    "ACKNOWLEDGE_OPERATION_STATUS": (feedback.acknowledge, None),
    "RECONCILE": (reconcile.reconcile, "reconcile_tasks"),
    "RECONCILE_OPERATIONS": (feedback.reconcile, None),
    "MESSAGE": (_message, "framework_to_executor"),
    "REQUEST": (_request, "resource_request"),
    "UPDATE_FRAMEWORK": (frameworks.update, None),
}
"""Type -> who carries it out, and what counts it."""
