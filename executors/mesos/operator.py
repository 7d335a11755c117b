"""A client of the operator API, for people and programs that look after a pool: one call at a time, and it waits."""

from __future__ import annotations

import math
import selectors
from collections.abc import Mapping
from typing import Any, Self

from asa.core.errors import BackendError, InvalidInput, StateError
from executors.mesos.client import ClientConnection, Endpoint, HTTPAnswer, bearer
from executors.mesos.codec import BadMessage, Message, decode, encode
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.messages import OPERATOR_PATHS, field, identity, message, value_of
from executors.mesos.pool_directory import AGENT_NAME, MASTER_NAME, READER, WRITER, PoolDirectory

_ANSWER_S = 30.0
Place = tuple[tuple[str, ...], int]
"""Hosts, of which the first that answers is taken, and the port."""


class CallRefused(InvalidInput):
    """A master or an agent has refused a call, with this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def knows_framework(directory: PoolDirectory, framework_id: str) -> bool:
    """Whether a pool has this framework: not where there is no directory. Raises `StateError` if no master answers."""
    try:
        with Operator(directory, READER) as operator:
            known = operator.get_frameworks() if directory.is_whole() else []
    except BackendError as error:
        raise StateError(
            f"what runs in the pool {directory.path} is not known ({error}): start its master again, with "
            f"asa master --directory {directory.path}, or remove the directory if nothing of it runs any more"
        ) from error
    return framework_id in (value_of(each, "framework_info.id") for each in known)


class Operator:
    """Calls a pool's master and its agents; a context manager. With the role `READER` nothing can be changed.

    Methods raise `CallRefused` when a call was refused, with the reason it gave, and `BackendError`, which is
    transient, when there is no answer.
    """

    def __init__(self, directory: PoolDirectory, role: str = WRITER, host: PoolHost = POOL_HOST) -> None:
        self._directory, self._role, self._host = directory, role, host
        self._agents: dict[str, Place] = {}
        self._connections: dict[Place, ClientConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ------------------------------------------------------- the master

    def call(self, name: str, **payload: Any) -> Message:
        """Call the master: ``call("GET_STATE")``, ``call("TEARDOWN", framework_id={"value": "F1"})``.

        The result is what the answer says, its type left out; empty for an empty one.
        """
        return self._ask(self._master(), MASTER_NAME, name, payload)

    def get_state(self) -> Message:
        """Frameworks, tasks, executors and agents: ``get_frameworks``, ``get_tasks`` and so on."""
        return self.call("GET_STATE")

    def get_agents(self) -> list[Message]:
        """All agents that the master hears from, or has heard from lately."""
        found: list[Message] = field(self.call("GET_AGENTS"), "agents", list, [])
        return found

    def ends(self) -> dict[str, float]:
        """When agents become unavailable [s since the epoch], those that say so; infinite for never.

        The v1 API has no place for that, so it is a call of our own.
        """
        found = {}
        for agent in field(self.call("ASA_GET_UNAVAILABILITY"), "agents", list, []):
            start: float = field(agent, "unavailability.start.nanoseconds", float)
            found[value_of(agent, "agent_id")] = start / 1e9
        return found

    def get_frameworks(self) -> list[Message]:
        found: list[Message] = field(self.call("GET_FRAMEWORKS"), "frameworks", list, [])
        return found

    def drain(self, agent_id: str, grace_s: float | None = None, *, mark_gone: bool = False) -> None:
        """Give an agent no more tasks and end those it has.

        Parameters
        ----------
        grace_s
            How long a task may take to end at most [s]; None for what the task says.
        mark_gone
            Whether it is to leave for good then.
        """
        grace = {} if grace_s is None else {"max_grace_period": f"{grace_s:.9f}s"}
        self.call("DRAIN_AGENT", agent_id=identity(agent_id), mark_gone=mark_gone, **grace)

    def deactivate(self, agent_id: str) -> None:
        """Give an agent no more tasks; those it has go on."""
        self.call("DEACTIVATE_AGENT", agent_id=identity(agent_id))

    def reactivate(self, agent_id: str) -> None:
        """The end of `drain` or `deactivate`."""
        self.call("REACTIVATE_AGENT", agent_id=identity(agent_id))

    def quota(self) -> list[Message]:
        """Quotas by role: ``{"role": ..., "limits": {"cpus": {"value": ...}}}``."""
        configs: list[Message] = field(self.call("GET_QUOTA"), "status.configs", list, [])
        return configs

    def set_quota(self, role: str, limits: Mapping[str, float]) -> None:
        """How much the frameworks of a role may have together; no limits at all for as much as there is."""
        config = {"role": role, "limits": {name: {"value": amount} for name, amount in limits.items()}}
        self.call("UPDATE_QUOTA", force=True, quota_configs=[config])

    # ------------------------------------------------------- an agent

    def call_agent(self, agent_id: str, name: str, **payload: Any) -> Message:
        """Call an agent: ``call_agent("S1", "GET_CONTAINERS")``; the answer is as that of `call`."""
        if agent_id not in self._agents:
            self._agents = {field(agent, "agent_info.id.value", str): _place(agent) for agent in self.get_agents()}
        if agent_id not in self._agents:
            known = ", ".join(sorted(self._agents)) or "none"
            raise InvalidInput(f"there is no agent {agent_id!r}; the master knows {known}")
        try:
            return self._ask(self._agents[agent_id], AGENT_NAME, name, payload)
        except BackendError:
            self._agents.pop(agent_id, None)  # started again it is elsewhere, and the master knows
            raise

    def containers(self, agent_id: str) -> list[Message]:
        """What runs on an agent, with its statistics."""
        found: list[Message] = field(self.call_agent(agent_id, "GET_CONTAINERS"), "containers", list, [])
        return found

    def update_limits(
        self,
        agent_id: str,
        container_id: str,
        cpus: float | None = None,
        lease_s: float | None = None,
        *,
        request: float | None = None,
    ) -> Message:
        """Change how much CPU a container gets; an extension, which no other agent than ours has.

        Parameters
        ----------
        cpus
            At most so many cores, infinite for no limit; None to leave the limit as it is.
        lease_s
            For so long [s], then it gets what it had; 0 gives that back now; None for good. This is about what is named
            beside it: a limit and a weight have leases of their own.
        request
            Its weight: cores that it should have when others want theirs too; None to leave that as it is.

        Returns
        -------
        Message
            What it gets now, ``limits`` and ``requests``; with a lease also ``until``.
        """
        asked: Message = {"container_id": identity(container_id)}
        if cpus is not None:
            asked["limits"] = {"cpus": {"value": "Infinity" if cpus == math.inf else cpus}}
        if request is not None:
            asked["requests"] = {"cpus": {"value": request}}
        if lease_s is not None:
            asked["lease_seconds"] = lease_s
        return self.call_agent(agent_id, "ASA_UPDATE_LIMITS", **asked)

    def hold_memory(self, agent_id: str, container_id: str, memory: int | None, lease_s: float | None = None) -> None:
        """Take memory back from a container while it has more than this [bytes]; None for no such limit.

        That lasts `lease_s` [s]; None for as long as the agent lives. An extension, as `signal`. What a means of
        keeping quotas makes of it: `executors.cgroup.group.Group`.
        """
        asked: Message = {"memory_bytes": "Infinity" if memory is None else memory}
        if lease_s is not None:
            asked["lease_seconds"] = lease_s
        self.call_agent(agent_id, "ASA_HOLD_MEMORY", container_id=identity(container_id), **asked)

    def signal(self, agent_id: str, container_id: str, name: str) -> None:
        """Send a signal, by its name without ``SIG``, to all processes of a container."""
        self.call_agent(agent_id, "ASA_SIGNAL_CONTAINER", container_id=identity(container_id), signal=name)

    # ------------------------------------------------------- the wire

    def _master(self) -> Place:
        address = self._directory.master()
        if address is None:
            path = self._directory.path
            raise BackendError(f"the pool in {path} has no master: asa master --directory {path}", transient=True)
        return address.hosts, address.port

    def _ask(self, place: Place, server: str, name: str, payload: Mapping[str, Any]) -> Message:
        what = "the master" if server == MASTER_NAME else "the agent"
        try:
            answer = self._post(place, server, encode(message(name, **payload)))
        except OSError as error:
            raise BackendError(f"{what} does not answer {name}: {error}", transient=True) from error
        text = bytes(answer.body[:1000]).decode(errors="replace")
        if answer.status >= 500 and answer.status != 501:
            raise BackendError(f"{what} cannot answer {name} now: {text}", transient=True)
        if answer.status >= 300:
            raise CallRefused(f"{what} has refused {name} ({answer.status}): {text}", answer.status)
        try:
            found: Message = field(decode(bytes(answer.body)) if answer.body else {}, name.lower(), dict, {})
            return found
        except BadMessage as error:
            raise BackendError(f"the answer of {what} to {name} makes no sense: {error}") from error

    def _post(self, place: Place, server: str, body: bytes) -> HTTPAnswer:
        """Send a call, once, and wait for its answer."""
        connection = self._connections.pop(place, None)
        if connection is not None and self._is_ready(connection, 0.0):  # it is idle, so it was closed
            connection.close()
            connection = None
        connection = connection or self._connected(place, server)
        try:
            connection.post(OPERATOR_PATHS[0], body, {})
            connection.flush()
            deadline = self._host.monotonic() + _ANSWER_S
            while not (connection.answers and connection.answers[0].complete):
                if not self._is_ready(connection, deadline - self._host.monotonic()):
                    raise TimeoutError(f"nothing came for {_ANSWER_S:g} s")
                connection.flush()
                connection.receive()
        except BaseException:
            connection.close()
            raise
        answer = connection.answers.popleft()
        self._connections[place] = connection
        return answer

    def _connected(self, place: Place, server: str) -> ClientConnection:
        master = self._directory.master()
        context = self._directory.client_context() if master is None or master.tls else None
        endpoint = Endpoint(*place, bearer(self._directory.token(self._role)), context, server)
        return ClientConnection(endpoint, host=self._host)

    def _is_ready(self, connection: ClientConnection, seconds: float) -> bool:
        """Whether something can be read within so many seconds [s], or written if something waits for that."""
        with self._host.selector() as selector:
            selector.register(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0))
            found = selector.select(max(0.0, seconds))
            selector.unregister(connection)
        return bool(found)


def _place(agent: Message) -> Place:
    """Where an agent listens: at the address in its ``pid``, the likelier one, or under its host name."""
    address = field(agent, "pid", str, "").partition("@")[2].rpartition(":")[0]
    hosts = (address, field(agent, "agent_info.hostname", str, ""))
    return tuple(dict.fromkeys(filter(None, hosts))), field(agent, "agent_info.port", int, 5051)
