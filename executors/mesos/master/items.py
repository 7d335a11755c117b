"""What agents say, item by item; see `executors.mesos.agent_protocol`."""

from __future__ import annotations

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.master import agents, schedule, tasks
from executors.mesos.master.core import Core
from executors.mesos.master.state import Agent
from executors.mesos.messages import field, identity, message, value_of


def hear(core: Core, agent: Agent, item: Message) -> None:
    """An item from a registered agent.

    Raises
    ------
    BadMessage, HTTPError
        When it is malformed, or nothing that agents say.
    """
    kind = field(item, "type", str)
    payload = field(item, kind.lower(), dict, {})
    if kind in ("UPDATE", "MESSAGE"):
        framework_id = value_of(payload, "framework_id")
        framework = core.state.frameworks.get(framework_id)
        if framework is None:
            core.send(agent.stream, message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework_id)))
        elif kind == "UPDATE":
            tasks.update(core, framework, agent, payload)
            core.count("messages_status_update")
        else:
            said = {"agent_id": identity(agent.id), "executor_id": identity(value_of(payload, "executor_id"))}
            core.send(framework.stream, message("MESSAGE", **said, data=field(payload, "data", str, "")))
            core.count("messages_executor_to_framework")
    elif kind == "EXITED_EXECUTOR":
        agents.exited(core, agent, payload)
        core.count("messages_exited_executor")
    elif kind == "UNAVAILABLE":
        schedule.told(core, agent, agents.unavailability_of(payload))
    elif kind == "UNREGISTER":
        core.count("messages_unregister_slave")
        agents.remove(core, agent.id, gone=True, state="TASK_GONE")
    elif kind != "PONG":
        raise HTTPError(400, f"an agent does not say {kind!r:.50}")
