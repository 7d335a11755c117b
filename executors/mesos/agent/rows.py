"""What of the agent's state outlives a restart: rows of its journal, and back.

=============  ================================  ==========================================================
table          key                               row
=============  ================================  ==========================================================
agent          ``id``                            the agent's id
frameworks     its id                            FrameworkInfo, and whether it is over
executors      framework and executor id         what a custom or default executor is
tasks          framework and task id             what was launched
updates        framework and task id             where the task stands, and what is to be acknowledged
instances      container id                      containers that were told to start and have not ended
=============  ================================  ==========================================================
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable

from executors.mesos.agent.core import Core
from executors.mesos.agent.state import ACKNOWLEDGED_MOST, Executor, Framework, Instance, State, Task, Verdict
from executors.mesos.codec import Message
from executors.mesos.effects import Keep

TABLES = ("agent", "frameworks", "executors", "tasks", "updates", "instances")
"""In the order in which rows must be read: what belongs to something comes after it."""
_UNLIMITED = "Infinity"
_ABSENT: Message = {"task": None, "cpus": None, "memory": None}  # a journal need not keep what is null


def key(framework: str, item: str) -> str:
    """The key of what has an id within a framework; ids may hold any character.

    >>> key("F1", "t/1")
    '["F1", "t/1"]'
    """
    return json.dumps([framework, item])


def keep_agent(core: Core) -> None:
    """Remember the agent's id, or that it has none any more."""
    core.keep("agent", "id", None if core.state.id is None else {"id": core.state.id})


def keep_framework(core: Core, framework: Framework) -> None:
    """Remember a framework as it is now."""
    core.keep("frameworks", framework.id, {"info": framework.info, "over": framework.over})


def keep_executor(core: Core, executor: Executor) -> None:
    """Remember an executor as it is now."""
    row = {
        "framework": executor.framework,
        "id": executor.id,
        "info": executor.info,
        "container": executor.container,
        "launched": executor.launched,
        "subscribed": executor.subscribed,
        "verdict": _verdict_row(executor.verdict),
    }
    core.keep("executors", key(executor.framework, executor.id), row)


def keep_task(core: Core, task: Task) -> None:
    """Remember what was launched; it never changes."""
    row = {
        "framework": task.framework,
        "id": task.id,
        "executor": task.executor,
        "info": task.info,
        "launched": task.launched,
        "container": task.container,
        "group": list(task.group),
    }
    core.keep("tasks", key(task.framework, task.id), row)


def keep_updates(core: Core, task: Task, *, copied: bool = False) -> None:
    """Remember where a task stands; `copied` when the master would say again what has changed."""
    row = {
        "framework": task.framework,
        "id": task.id,
        "state": task.state,
        "statuses": list(task.statuses),
        "pending": list(task.pending),
        "acknowledged": list(task.acknowledged),
        "verdict": _verdict_row(task.verdict),
    }
    core.keep("updates", key(task.framework, task.id), row, copied=copied)


def keep_instance(core: Core, instance: Instance) -> None:
    """Remember a container as it is now."""
    row = dict(vars(instance))
    if instance.lease == math.inf:
        row["lease"] = _UNLIMITED
    core.keep("instances", instance.id, row)


def forget_framework(core: Core, framework: Framework) -> None:
    """Its row is not needed any more."""
    core.keep("frameworks", framework.id, None)


def forget_executor(core: Core, executor: Executor) -> None:
    """Its row is not needed any more."""
    core.keep("executors", key(executor.framework, executor.id), None)


def forget_task(core: Core, task: Task) -> None:
    """Its rows are not needed any more: its end was acknowledged, which the master would say again."""
    for table in ("updates", "tasks"):
        core.keep(table, key(task.framework, task.id), None, copied=True)


def forget_instance(core: Core, instance: Instance) -> None:
    """Its row is not needed any more."""
    core.keep("instances", instance.id, None)


def forget_all(core: Core) -> None:
    """The agent has ended for good: another one that is started here is a new one."""
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            forget_task(core, task)
        for executor in framework.executors.values():
            forget_executor(core, executor)
        forget_framework(core, framework)
    for instance in core.state.instances.values():
        forget_instance(core, instance)
    core.keep("agent", "id", None)


def restored(rows: Iterable[Keep], started: float) -> State:
    """The state that these rows, each the last of its key, are of. Nobody is connected in it.

    Parameters
    ----------
    started
        When the agent was started again [s since the epoch].
    """
    tables: dict[str, list[tuple[str, Message]]] = {table: [] for table in TABLES}
    for table, name, row in rows:
        if row is not None and table in tables:
            tables[table].append((name, row))
    state = State(started)
    for _, row in tables["agent"]:
        state.id = row["id"]
    for name, row in tables["frameworks"]:
        state.frameworks[name] = Framework(name, row["info"], row["over"])
    for _, row in tables["executors"]:
        executor = Executor(**row | {"verdict": _verdict(row.get("verdict"))})
        state.frameworks[executor.framework].executors[executor.id] = executor
    for _, row in sorted(tables["tasks"], key=lambda item: float(item[1]["launched"])):
        given: Message = {"executor": None, "container": None} | row
        task = Task(**given | {"group": tuple(row["group"])})
        state.frameworks[task.framework].tasks[task.id] = task
    for _, row in tables["updates"]:
        _stand(state.frameworks[row["framework"]].tasks[row["id"]], row)
    for framework in state.frameworks.values():
        for task in framework.tasks.values():
            if not task.over and (owner := framework.executors.get(task.executor or "")) is not None:
                owner.tasks[task.id] = task
    for name, row in tables["instances"]:
        state.instances[name] = _instance(_ABSENT | row)
    return state


def _instance(row: Message) -> Instance:
    lease = math.inf if row.get("lease") == _UNLIMITED else row.get("lease")
    return Instance(**row | {"lease": lease, "gpus": tuple(row["gpus"])})


def _stand(task: Task, row: Message) -> None:
    task.state, task.statuses, task.verdict = row["state"], row["statuses"], _verdict(row.get("verdict"))
    task.pending = deque(row["pending"])
    task.acknowledged = deque(row["acknowledged"], maxlen=ACKNOWLEDGED_MOST)


def _verdict_row(verdict: Verdict | None) -> Message | None:
    return None if verdict is None else verdict._asdict()


def _verdict(row: Message | None) -> Verdict | None:
    return None if row is None else Verdict(row["state"], row.get("reason"), row["text"])
