"""What the parts of the master's machine share: the state, the time, what is to be done, and the rows of the journal.

Rows are written when what they hold changes, and read back after a restart. Offers, filters and streams have none:
clients get new ones. A status update that was not acknowledged is kept by its agent, which sends it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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
    """One call into the machine: parts change `state` and say what is to be done; `Master` takes the effects away.

    Agents whose free resources have changed are `dirty`: they are allocated before the call ends. Those in `emptied`
    are drained and have lost a task. `usage` are running totals of what registered agents have, and of what is used and
    offered of it. `timers` are what is to be looked at later; what has become pointless is not taken back.
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
        """Send on a stream; to None, which is not connected, nothing."""
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
        """Send to all operators that have subscribed."""
        self.effects += [Send(stream, message) for stream in self.state.operators]

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

    def take_effects(self) -> list[Effect]:
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


_FRAMEWORK = ("info", "principal", "registered", "reregistered", "disconnected")
_AGENT = (
    *("info", "registered", "reregistered", "version"),
    *("active", "drain", "unavailability", "ip", "tls"),
)
_TASK = ("id", "framework", "agent", "executor", "info", "role", "state", "statuses", "kill")
_EXECUTOR = ("id", "framework", "agent", "info", "role")


def _fields(record: Any, names: Iterable[str]) -> Message:
    return {name: getattr(record, name) for name in names}


def _known(row: Message, names: Iterable[str]) -> Message:
    """What was None when the row was written may be missing from it, as nulls are in messages."""
    return {name: row[name] for name in names if name in row}


def keep_framework(core: Core, framework: FrameworkRecord) -> None:
    """One that is known, or was removed and may not come back."""
    more = {"suppressed": sorted(framework.suppressed), "removed": framework.id in core.state.completed}
    core.keep("frameworks", framework.id, _fields(framework, _FRAMEWORK) | more)


def keep_agent(core: Core, agent: AgentRecord) -> None:
    """An agent, and what operators decided about it."""
    core.keep("agents", agent.id, _fields(agent, _AGENT) | {"total": to_json(agent.total)})


def keep_task(core: Core, task: TaskRecord, *, copied: bool = False) -> None:
    """A task as it stands; `copied` when its agent has that too, or is sent it now."""
    core.keep("tasks", _task_key(task), _fields(task, _TASK), copied=copied)


def drop_task(core: Core, task: TaskRecord) -> None:
    """A task whose end was acknowledged, or needs no acknowledgement."""
    core.keep("tasks", _task_key(task), None)


def keep_executor(core: Core, executor: ExecutorRecord) -> None:
    """An executor that runs or is being started: its agent knows."""
    core.keep("executors", _executor_key(executor), _fields(executor, _EXECUTOR), copied=True)


def drop_executor(core: Core, executor: ExecutorRecord) -> None:
    """An executor that has ended."""
    core.keep("executors", _executor_key(executor), None)


def keep_roles(core: Core) -> None:
    """The quota of all roles."""
    core.keep("roles", "all", {"quota": core.state.quota})


def keep_away(core: Core, table: str, agent_id: str, since: float | None) -> None:
    """That an agent is ``unreachable`` or ``gone``, and since when [s since the epoch]; None when it is no longer."""
    core.keep(table, agent_id, None if since is None else {"since": since})


def restore(state: MasterState, rows: Iterable[KeepRow]) -> None:
    """Fill a new state: all frameworks are disconnected, agents are `recovered` until they come back."""
    tables: dict[str, dict[str, Any]] = defaultdict(dict)
    for keep in rows:
        if keep.row is not None:
            tables[keep.table][keep.key] = keep.row
    state.serial |= {kind: row["last"] for kind, row in tables["serial"].items()}
    state.unreachable |= {agent_id: row["since"] for agent_id, row in tables["unreachable"].items()}
    state.gone |= {agent_id: row["since"] for agent_id, row in tables["gone"].items()}
    for row in tables["roles"].values():
        state.quota = row["quota"]
    for key, row in tables["frameworks"].items():
        _framework(state, key, row)
    for key, row in tables["agents"].items():
        group = state.away if key in state.unreachable else state.recovered
        group[key] = AgentRecord(id=key, total=parse(row["total"]), **_known(row, _AGENT))
    for row in tables["executors"].values():
        _executor(state, row)
    for row in tables["tasks"].values():
        _task(state, row)


def _framework(state: MasterState, key: str, row: Message) -> None:
    roles, suppressed = frozenset(row["info"]["roles"]), set(row["suppressed"])
    framework = FrameworkRecord(id=key, roles=roles, suppressed=suppressed, **_known(row, _FRAMEWORK))
    if row["removed"]:
        state.completed[key] = framework
    else:  # without a master it could not come back, and that master's clock may have been another
        framework.disconnected = state.started
        state.frameworks[key] = framework


def _executor(state: MasterState, row: Message) -> None:
    if agent := state.recovered.get(row["agent"]):
        executor = ExecutorRecord(**_known(row, _EXECUTOR), resources=parse(row["info"]["resources"]))
        agent.executors[executor.framework, executor.id] = executor
        agent.used += executor.resources


def _task(state: MasterState, row: Message) -> None:
    found: Message = {"executor": None} | _known(row, _TASK)
    task = TaskRecord(**found, resources=parse(row["info"]["resources"]))
    # whether it was acknowledged is not written down, so that an acknowledgement costs no write: assume it was not
    task.unacknowledged = task.statuses[-1].get("uuid") if task.statuses else None
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


def _task_key(task: TaskRecord) -> str:
    return f"{task.framework} {task.id}"  # neither has a space in it


def _executor_key(executor: ExecutorRecord) -> str:
    return f"{executor.agent} {executor.framework} {executor.id}"
