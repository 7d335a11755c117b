"""What TaskInfos, ExecutorInfos and CommandInfos ask an agent for, what of that it cannot do, and the environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asa.core.units import MIB
from asa.log.gpus import visible
from executors.mesos.agent.state import AgentOptions, TaskShare
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field, octets, value_of
from executors.mesos.resources import parse

KILL_GRACE_S = 3.0
"""How long a task that is killed has by default until SIGKILL [s]; that of Mesos."""


def share(info: Message, quotas: bool) -> TaskShare:
    """What a TaskInfo or an ExecutorInfo asks for; with `quotas` that is a limit too, where it names none.

    Raises
    ------
    BadMessage
        When its resources or limits are none.

    Examples
    --------
    >>> cpus = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2}}
    >>> share({"resources": [cpus], "limits": {"cpus": {"value": "Infinity"}}}, True)
    TaskShare(cpus=2.0, limit=inf, memory=inf, gpus=0)
    """
    resources = parse(field(info, "resources", list, []))
    cpus, memory = resources.scalar("cpus"), resources.scalar("mem") or math.inf
    limit = _limit(info, "cpus", cpus if quotas else math.inf)
    return TaskShare(cpus, limit, _limit(info, "mem", memory) * MIB, math.ceil(resources.scalar("gpus")))


def _limit(info: Message, name: str, default: float) -> float:
    limit: float = field(info, f"limits.{name}.value", float, default)
    if limit < 0:
        raise BadMessage(f"the limit of {name!r} must not be negative")
    return limit


def seconds(source: Message, path: str, default: float) -> float:
    """A duration [s] at a dotted path of a message; a negative one is as good as none."""
    found: float = field(source, f"{path}.nanoseconds", float, -1.0)
    return found / 1e9 if 0 <= found < 1e20 else default


def argv(command: Message) -> tuple[str, ...]:
    """Program and arguments of a CommandInfo. ``argv[0]`` is always the program's path.

    >>> argv({"value": "echo $HOME"}), argv({"shell": False, "value": "/bin/echo", "arguments": ["echo", "a"]})
    (('/bin/sh', '-c', 'echo $HOME'), ('/bin/echo', 'a'))
    """
    value = field(command, "value", str)
    arguments = field(command, "arguments", list, [])
    if not all(isinstance(item, str) for item in arguments):
        raise BadMessage("expected the arguments of a command to be texts")
    found = ("/bin/sh", "-c", value) if field(command, "shell", bool, True) else (value, *arguments[1:])
    if not value or any("\0" in item for item in found):
        raise BadMessage("a command must not be empty, nor hold a zero byte")
    return found


def is_path_part(name: str) -> bool:
    """Whether an id may be part of a sandbox's path.

    >>> is_path_part("t.1"), is_path_part(".."), is_path_part("a/b")
    (True, False, False)
    """
    return name not in ("", ".", "..") and "/" not in name and name.isprintable() and len(name.encode()) <= 255


def unsupported(info: Message, options: AgentOptions) -> str | None:
    """Why a TaskInfo with a command, or an ExecutorInfo, cannot run on this agent, whatever happens; None if it can."""
    try:
        share(info, options.quotas)
        command = field(info, "command", dict)
        argv(command), variables(command)
        for path in ("kill_policy.grace_period", "shutdown_grace_period"):
            seconds(info, path, 0.0)
        user = field(command, "user", str, "")
        if options.user is not None and user not in ("", options.user):
            return f"tasks run as {options.user!r} here, not as {user!r:.80}"
        if field(command, "uris", list, []):
            return "the agent does not fetch 'uris': let the command copy what it needs"
        if _is_image(info):
            return "container images and volumes are not supported: give the command alone"
        for name in ("health_check", "check", "max_completion_time"):
            if name in info:
                return f"the agent does not carry out a {name!r}: let the command do it"
    except BadMessage as error:
        return str(error)
    return None


def _is_image(info: Message) -> bool:
    container = field(info, "container", dict, {})
    isolated = field(container, "type", str, "MESOS") != "MESOS" or "image" in field(container, "mesos", dict, {})
    return isolated or bool(field(container, "volumes", list, []))


def path_id(source: Message, path: str) -> str:
    """An id that becomes part of a path; raises `BadMessage` when it must not."""
    found: str = value_of(source, path)
    if not is_path_part(found):
        raise BadMessage(
            f"expected {path!r} to be of at most 255 printable characters without '/', found {found!r:.80}"
        )
    return found


_OTHER_AGENTS = ("MESOS_", "LIBPROCESS_")
"""Prefixes of variables of another agent, in a container of which this one may have been started."""


def environment(
    options: AgentOptions,
    agent_id: str,
    framework: Message,
    executor_id: str,
    sandbox: str,
    *,
    command: Message,
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
    grace_s
        How long the executor may take to end [s]; None for the agent's default.
    gpus
        Those that it is to see, where the agent's have names.

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
    if options.gpus:
        mesos |= visible(gpus, options.environment)
    if framework.get("checkpoint") is True:
        mesos["MESOS_CHECKPOINT"] = "1"
        mesos["MESOS_RECOVERY_TIMEOUT"] = duration(options.recovery_s)
        mesos["MESOS_SUBSCRIPTION_BACKOFF_MAX"] = duration(2.0)
    inherited = {name: value for name, value in options.environment.items() if not name.startswith(_OTHER_AGENTS)}
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
        name, value = field(item, "name", str), _variable_value(item)
        if not name or "=" in name or "\0" in name + value:
            raise BadMessage(
                f"the environment variable {name!r:.80} cannot be set: it has no name, a '=' or a zero byte"
            )
        found[name] = value
    return found


def _variable_value(item: Any) -> str:
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
