"""What the parts of the master's machine share: the state, the time, what is to be done, and the rows of the journal.

Rows are written when what they hold changes, and read back after a restart. Offers, filters and streams have none:
clients get new ones. A status update that was not acknowledged is kept by its agent, which sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from executors.mesos.codec import Message
from executors.mesos.effects import Close, CopyRow, Effect, KeepRow, Send
from executors.mesos.master.allocator import Filters, RoleUsage
from executors.mesos.master.state import AgentRecord, ExecutorRecord, FrameworkRecord, MasterState, TaskRecord
from executors.mesos.messages import TERMINAL
from executors.mesos.resources import Resources, parse, to_json
from executors.mesos.timers import Timers


@dataclass(eq=False)
class Core:
    """One call into the machine: parts change `state` and say what is to be done; `Master` takes it away.

    Parameters
    ----------
    now
        The time of this call [s since the epoch].
    effects
        What is to be done, in order.
    dirty
        Agents whose free resources have changed: they are allocated before the call ends.
    emptied
        Agents that are drained and have lost a task.
    usage
        Running totals of what registered agents have, and of what is used and offered of it.
    timers
        What is to be looked at later; what has become pointless is not taken back.
    """

    state: MasterState
    filters: Filters = field(default_factory=Filters)
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    timers: Timers = field(default_factory=Timers)
    usage: RoleUsage = field(default_factory=RoleUsage)

    def send(self, stream: str | None, message: Message) -> None:
        """Say something on a stream; to None, who is not connected, nothing."""
        if stream is not None:
            self.effects.append(Send(stream, message))

    def close(self, stream: str | None) -> None:
        """End a stream and forget what it was."""
        if stream is not None:
            self.state.streams.pop(stream, None)
            self.effects.append(Close(stream))

    def keep(self, table: str, key: str, row: Message | None, *, copied: bool = False) -> None:
        """Write a row of the journal, or remove it; nothing waits for one that is `copied` (see `CopyRow`)."""
        self.effects.append((CopyRow if copied else KeepRow)(table, key, row))

    def publish(self, message: Message) -> None:
        """Tell all operators that have subscribed."""
        self.effects += [Send(stream, message) for stream in self.state.operators]

    def count(self, name: str, by: int = 1) -> None:
        """Add to a metric that only grows."""
        self.state.counters[name] = self.state.counters.get(name, 0) + by

    def take(self, agent: AgentRecord, framework: str, role: str, resources: Resources) -> None:
        """A task or an executor uses these."""
        agent.used += resources
        if agent.id in self.state.agents:
            self.usage.took(framework, role, resources)

    def give_back(self, agent: AgentRecord, framework: str, role: str, resources: Resources) -> None:
        """They are free again."""
        agent.used -= resources
        if agent.id in self.state.agents:
            self.usage.gave_back(framework, role, resources)
            self.dirty.add(agent.id)

    def taken(self) -> list[Effect]:
        """The effects so far, which are forgotten here."""
        effects, self.effects = self.effects, []
        return effects


BLOCK = {"offer": 1000}
"""How many numbers of a kind one row reserves: those given since the last row are skipped after a restart."""


def number(core: Core, kind: str) -> int:
    """A number that was never given before: of an ``agent``, a ``framework`` or an ``offer``."""
    serial, block = core.state.serial, BLOCK.get(kind, 1)
    last = serial.get(kind, 0)
    if last % block == 0:
        core.keep("serial", kind, {"last": last + block})
    serial[kind] = last + 1
    return last + 1


def keep_framework(core: Core, framework: FrameworkRecord) -> None:
    """One that is known, or was removed and may not come back."""
    row = {
        "info": framework.info,
        "principal": framework.principal,
        "suppressed": sorted(framework.suppressed),
        "active": framework.active,
        "registered": framework.registered,
        "reregistered": framework.reregistered,
        "disconnected": framework.disconnected,
        "removed": framework.id in core.state.completed,
    }
    core.keep("frameworks", framework.id, row)


def keep_agent(core: Core, agent: AgentRecord) -> None:
    """An agent, and what operators decided about it."""
    row = {
        "info": agent.info,
        "total": to_json(agent.total),
        "registered": agent.registered,
        "reregistered": agent.reregistered,
        "version": agent.version,
        "active": agent.active,
        "drain": agent.drain,
        "unavailability": agent.unavailability,
        "ip": agent.ip,
        "tls": agent.tls,
    }
    core.keep("agents", agent.id, row)


def keep_task(core: Core, task: TaskRecord, *, copied: bool = False) -> None:
    """A task as it stands; `copied` when its agent has that too, or is sent it now."""
    row = {
        "id": task.id,
        "framework": task.framework,
        "agent": task.agent,
        "executor": task.executor,
        "info": task.info,
        "role": task.role,
        "state": task.state,
        "statuses": task.statuses,
        "kill": task.kill,
    }
    core.keep("tasks", _task_key(task), row, copied=copied)


def drop_task(core: Core, task: TaskRecord) -> None:
    """A task whose end was acknowledged, or needs no acknowledgement."""
    core.keep("tasks", _task_key(task), None)


def keep_executor(core: Core, executor: ExecutorRecord) -> None:
    """An executor that runs or is being started: its agent knows."""
    row = {
        "id": executor.id,
        "framework": executor.framework,
        "agent": executor.agent,
        "info": executor.info,
        "role": executor.role,
    }
    core.keep("executors", _executor_key(executor), row, copied=True)


def drop_executor(core: Core, executor: ExecutorRecord) -> None:
    """An executor that has ended."""
    core.keep("executors", _executor_key(executor), None)


def keep_roles(core: Core) -> None:
    """Weights and quota."""
    core.keep("roles", "all", {"weights": core.state.weights, "quota": core.state.quota})


def keep_away(core: Core, table: str, agent_id: str, since: float | None) -> None:
    """That an agent is ``unreachable`` or ``gone``, and since when [s since the epoch]; None when it is no longer."""
    core.keep(table, agent_id, None if since is None else {"since": since})


def restore(state: MasterState, rows: Iterable[KeepRow]) -> None:
    """Fill a new state: all frameworks are disconnected, agents are `recovered` until they come back.

    What was None in a row may be missing from it, as nulls are in messages.
    """
    tables: dict[str, list[tuple[str, Message]]] = {}
    for keep in rows:
        if keep.row is not None:
            tables.setdefault(keep.table, []).append((keep.key, keep.row))
    for table, read in _READERS.items():  # in this order: tasks need their frameworks and agents
        for key, row in tables.get(table, ()):
            read(state, key, row)


def _serial(state: MasterState, key: str, row: Message) -> None:
    state.serial[key] = row["last"]


def _roles(state: MasterState, key: str, row: Message) -> None:
    state.weights, state.quota = row["weights"], row["quota"]


def _framework(state: MasterState, key: str, row: Message) -> None:
    framework = FrameworkRecord(
        id=key,
        info=row["info"],
        roles=frozenset(row["info"]["roles"]),
        registered=row["registered"],
        principal=row.get("principal"),
        suppressed=set(row["suppressed"]),
        active=row["active"],
        reregistered=row.get("reregistered"),
        disconnected=row.get("disconnected") or state.started,
    )
    (state.completed if row["removed"] else state.frameworks)[key] = framework


def _agent(state: MasterState, key: str, row: Message) -> None:
    (state.away if key in state.unreachable else state.recovered)[key] = AgentRecord(
        id=key,
        info=row["info"],
        total=parse(row["total"]),
        registered=row["registered"],
        reregistered=row.get("reregistered"),
        version=row["version"],
        active=row["active"],
        drain=row.get("drain"),
        unavailability=row.get("unavailability"),
        ip=row.get("ip"),
        tls=row["tls"],
    )


def _unreachable(state: MasterState, key: str, row: Message) -> None:
    state.unreachable[key] = row["since"]


def _gone(state: MasterState, key: str, row: Message) -> None:
    state.gone[key] = row["since"]


def _executor(state: MasterState, key: str, row: Message) -> None:
    if agent := state.recovered.get(row["agent"]):
        executor = ExecutorRecord(
            row["id"], row["framework"], agent.id, row["info"], parse(row["info"]["resources"]), row["role"]
        )
        agent.executors[executor.framework, executor.id] = executor
        agent.used += executor.resources


def _task(state: MasterState, key: str, row: Message) -> None:
    task = TaskRecord(
        id=row["id"],
        framework=row["framework"],
        agent=row["agent"],
        executor=row.get("executor"),
        info=row["info"],
        resources=parse(row["info"]["resources"]),
        role=row["role"],
        state=row["state"],
        statuses=row["statuses"],
        # whether it was acknowledged is not written down, so that an acknowledgement costs no write: assume it was not
        unacknowledged=row["statuses"][-1].get("uuid") if row["statuses"] else None,
        kill=row.get("kill"),
    )
    framework = state.frameworks.get(task.framework)
    if framework is None:
        return
    if agent := state.recovered.get(task.agent):
        framework.tasks[task.id] = agent.tasks[task.key] = task
        if task.state not in TERMINAL:
            agent.used += task.resources
    elif task.agent in state.unreachable:
        framework.unreachable[task.id] = task
        state.unreachable_tasks.setdefault(task.agent, []).append(task)


_READERS: dict[str, Callable[[MasterState, str, Any], None]] = {
    "serial": _serial,
    "roles": _roles,
    "frameworks": _framework,
    "unreachable": _unreachable,
    "agents": _agent,
    "gone": _gone,
    "executors": _executor,
    "tasks": _task,
}


def _task_key(task: TaskRecord) -> str:
    return f"{task.framework} {task.id}"  # neither has a space in it


def _executor_key(executor: ExecutorRecord) -> str:
    return f"{executor.agent} {executor.framework} {executor.id}"
