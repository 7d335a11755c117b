"""What a container finds in its environment: what the agent has, what Mesos says, what the task asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executors.mesos.agent.options import Options
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field, octets

_OTHERS = ("MESOS_", "LIBPROCESS_")
"""Variables of another agent, in a container of which ours may have been started."""


def environment(
    options: Options,
    agent_id: str,
    framework: Message,
    executor_id: str,
    sandbox: str,
    *,
    command: Message,
    role: str | None = None,
    grace_s: float | None = None,
    gpus: Sequence[str] = (),
) -> dict[str, str]:
    """All variables of a container.

    ``MESOS_CHECKPOINT`` is left out where Mesos sets it to 0, since there are executors that take "0" for yes.

    Parameters
    ----------
    framework
        FrameworkInfo with ``id``.
    command
        The CommandInfo, whose own variables win.
    role
        What the task's resources are allocated to; for command tasks.
    grace_s
        How long the executor may take to end [s]; None for the agent's default.
    gpus
        Those that it is to see, where the agent's are told apart.

    Raises
    ------
    BadMessage
        When the command's variables are no such.
    """
    grace = options.grace_s if grace_s is None else grace_s
    mesos = {
        "MESOS_FRAMEWORK_ID": field(framework, "id.value", str),
        "MESOS_EXECUTOR_ID": executor_id,
        "MESOS_DIRECTORY": sandbox,
        "MESOS_SANDBOX": sandbox,
        "MESOS_SLAVE_ID": agent_id,
        "MESOS_SLAVE_PID": f"slave(1)@{options.endpoint}",
        "MESOS_AGENT_ENDPOINT": options.endpoint,
        "MESOS_HTTP_COMMAND_EXECUTOR": "0",
        "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": duration(grace),
        "LIBPROCESS_PORT": "0",
    }
    if role is not None:
        mesos["MESOS_ALLOCATION_ROLE"] = role
    if options.gpus:
        mesos["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if framework.get("checkpoint") is True:
        mesos["MESOS_CHECKPOINT"] = "1"
        mesos["MESOS_RECOVERY_TIMEOUT"] = duration(options.recovery_s)
        mesos["MESOS_SUBSCRIPTION_BACKOFF_MAX"] = duration(2.0)
    inherited = {name: value for name, value in options.environment.items() if not name.startswith(_OTHERS)}
    return inherited | mesos | variables(command)


def duration(seconds: float) -> str:
    """A duration as Mesos writes it.

    >>> duration(5.0), duration(0.25)
    ('5secs', '250ms')
    """
    return f"{seconds:.0f}secs" if seconds == round(seconds) else f"{seconds * 1000:.0f}ms"


def variables(command: Message) -> dict[str, str]:
    """A CommandInfo's own variables; secrets must come with their values.

    >>> variables({"environment": {"variables": [{"name": "A", "value": "b"}]}})
    {'A': 'b'}
    """
    found = {}
    for item in field(command, "environment.variables", list, []):
        name, value = field(item, "name", str), _value(item)
        if not name or "=" in name or "\0" in name + value:
            raise BadMessage(
                f"the environment variable {name!r:.80} cannot be set: it has no name, a '=' or a zero byte"
            )
        found[name] = value
    return found


def _value(item: Any) -> str:
    if field(item, "type", str, "VALUE") != "SECRET":
        return str(field(item, "value", str, ""))
    if field(item, "secret.type", str, "VALUE") == "REFERENCE":
        raise BadMessage("secrets are only supported by value, not by reference")
    data: bytes = octets(item, "secret.value.data")
    try:
        return data.decode()
    except UnicodeDecodeError:
        name = field(item, "name", str)
        raise BadMessage(f"expected the secret of environment variable {name!r:.80} to be a text in UTF-8") from None
