"""The older GETs, which command-line clients still use.

References
----------
Apache Mesos, ``docs/endpoints/master`` and what its ``src/cli`` and ``src/python/cli_new`` read of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from executors.mesos.amounts import amounts, numbers
from executors.mesos.master import metrics, operator, plain, quota, roles, schedule, views
from executors.mesos.master.state import Executor, State, Task
from executors.mesos.messages import VERSION

TASKS_MOST = 100
"""How many tasks ``/tasks`` shows unless it is told otherwise; the default of Mesos."""

Query = Mapping[str, str]


def get(state: State, path: str, query: Query, now: float | None = None) -> Any | None:
    """What is at a path, as JSON; None for a path that is not known.

    Parameters
    ----------
    path
        With or without ``/master`` in front and a slash at the end.
    query
        ``slave_id`` or ``agent_id`` for ``/slaves``, ``framework_id`` for ``/frameworks``, and ``limit`` (negative for
        all), ``offset``, ``order`` (``asc``, else the latest first), ``task_id``, ``framework_id`` for ``/tasks``.
        What is no number where one is expected is passed over.
    now
        The time, for metrics [s since the epoch]; without it the master has just started.
    """
    name = path.strip("/").removeprefix("master/").removesuffix(".json")
    answer = _ANSWERS.get(name)
    return None if answer is None else answer(state, query, state.started if now is None else now)


def _state(state: State, query: Query, now: float) -> Any:
    info = views.master(state)
    active = sum(agent.active and agent.stream is not None for agent in state.agents.values())
    return {
        "version": VERSION,
        "start_time": state.started,
        "elected_time": state.started,
        "id": state.id,
        "pid": info["pid"],
        "hostname": info["hostname"],
        "capabilities": [item["type"] for item in views.CAPABILITIES],
        "activated_slaves": active,
        "deactivated_slaves": len(state.agents) - active,
        "unreachable_slaves": len(state.unreachable),
        "leader": info["pid"],
        "leader_info": {name: info[name] for name in ("id", "pid", "port", "hostname")},
        "flags": operator.flags(state.options),
        "slaves": [plain.agent(agent) for agent in state.agents.values()],
        "recovered_slaves": [plain.agent_info(agent) for agent in state.recovered.values()],
        **_frameworks(state, {}, now),
        "orphan_tasks": [],
    }


def _summary(state: State, query: Query, now: float) -> Any:
    running = _running(state)
    by_agent: dict[str, list[Task]] = defaultdict(list)
    for framework in state.frameworks.values():
        for task in plain.tasks(framework):
            by_agent[task.agent].append(task)
    return {
        "hostname": state.options.hostname,
        "slaves": [
            plain.agent(agent)
            | plain.counted(by_agent[agent.id])
            | {"framework_ids": sorted({task.framework for task in by_agent[agent.id]})}
            for agent in state.agents.values()
        ],
        "frameworks": [
            plain.framework_summary(framework, state, running[framework.id])
            | plain.counted(plain.tasks(framework))
            | {"slave_ids": sorted({task.agent for task in plain.tasks(framework)})}
            for framework in state.frameworks.values()
        ],
    }


def _slaves(state: State, query: Query, now: float) -> Any:
    wanted = query.get("slave_id", query.get("agent_id"))
    agents = [agent for agent in state.agents.values() if wanted in (None, agent.id)]
    recovered = [agent for agent in state.recovered.values() if wanted in (None, agent.id)]
    return {
        "slaves": [plain.agent(agent) | plain.in_full(agent) for agent in agents],
        "recovered_slaves": [plain.agent_info(agent) for agent in recovered],
    }


def _frameworks(state: State, query: Query, now: float) -> Any:
    wanted, running = query.get("framework_id"), _running(state)
    present = [framework for framework in state.frameworks.values() if wanted in (None, framework.id)]
    completed = [framework for framework in state.completed.values() if wanted in (None, framework.id)]
    return {
        "frameworks": [plain.framework(framework, state, running[framework.id]) for framework in present],
        "completed_frameworks": [plain.framework(framework, state, ()) for framework in completed],
        "unregistered_frameworks": [],
    }


def _tasks(state: State, query: Query, now: float) -> Any:
    framework_id, task_id = query.get("framework_id"), query.get("task_id")
    limit, offset = _number(query.get("limit"), TASKS_MOST), max(0, _number(query.get("offset"), 0))
    found = [
        task
        for framework in (*state.frameworks.values(), *state.completed.values())
        if framework_id in (None, framework.id)
        for task in plain.tasks(framework)
        if task_id in (None, task.id)
    ]
    found.sort(key=_since, reverse=query.get("order") != "asc")
    return {"tasks": [plain.task(task) for task in found[offset : None if limit < 0 else offset + limit]]}


def _roles(state: State, query: Query, now: float) -> Any:
    return {
        "roles": [
            {
                "name": role.name,
                "weight": role.weight,
                "frameworks": role.frameworks,
                "resources": amounts(role.allocated + role.offered),
                "allocated": numbers(role.allocated.scalars()),
                "offered": numbers(role.offered.scalars()),
                "reserved": numbers(role.reserved.scalars()),
                "quota": {
                    "role": role.name,
                    "guarantee": numbers(state.guarantees.get(role.name, {})),
                    "limit": numbers(state.quota.get(role.name, {})),
                },
            }
            for role in roles.known(state)
        ]
    }


_ANSWERS: dict[str, Callable[[State, Query, float], Any]] = {
    "version": lambda state, query, now: {"version": VERSION},
    "health": lambda state, query, now: {},
    "flags": lambda state, query, now: {"flags": operator.flags(state.options)},
    "metrics/snapshot": lambda state, query, now: metrics.snapshot(state, now),
    "state": _state,
    "state-summary": _summary,
    "slaves": _slaves,
    "frameworks": _frameworks,
    "tasks": _tasks,
    "roles": _roles,
    "weights": lambda state, query, now: roles.weights(state)["weight_infos"],
    "quota": lambda state, query, now: quota.status(state),
    "maintenance/schedule": lambda state, query, now: schedule.schedule(state)["schedule"],
    "maintenance/status": lambda state, query, now: schedule.status(state)["status"],
}


def _running(state: State) -> dict[str, list[Executor]]:
    """Executors by their framework."""
    found: dict[str, list[Executor]] = defaultdict(list)
    for agent in state.agents.values():
        for executor in agent.executors.values():
            found[executor.framework].append(executor)
    return found


def _since(task: Task) -> float:
    """When it had its first status; those that have none yet are the earliest."""
    return float(task.statuses[0].get("timestamp", 0.0)) if task.statuses else 0.0


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
