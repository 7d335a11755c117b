"""Metrics under the names that Mesos gives them, so that what reads one master reads the other."""

from __future__ import annotations

from collections import Counter

from executors.mesos.master.state import State
from executors.mesos.resources import THOUSAND, Resources

SCALARS = ("cpus", "gpus", "mem", "disk")
"""What is counted: cores, devices, and MiB."""

COUNTERS = (
    *(f"tasks_{word}" for word in ("finished", "failed", "killed", "lost", "error", "dropped", "gone")),
    "tasks_gone_by_operator",
    *(f"slave_{word}" for word in ("registrations", "reregistrations", "removals", "unreachable_completed")),
    *(
        f"messages_{word}"
        for word in (
            "register_framework",
            "reregister_framework",
            "unregister_framework",
            "launch_tasks",
            "decline_offers",
            "revive_offers",
            "suppress_offers",
            "kill_task",
            "reconcile_tasks",
            "resource_request",
            "framework_to_executor",
            "executor_to_framework",
            "exited_executor",
            "register_slave",
            "reregister_slave",
            "unregister_slave",
            "status_update",
            "status_update_acknowledgement",
        )
    ),
    "dropped_messages",
)
"""Those that are told even while they are 0; whatever else the master counts is told as well."""


def snapshot(state: State, now: float) -> dict[str, float]:
    """All metrics at a time [s since the epoch]: those that are states, and those that only grow."""
    found = dict.fromkeys(COUNTERS, 0.0) | {name: float(count) for name, count in state.counters.items()}
    found |= {"elected": 1.0, "uptime_secs": max(0.0, now - state.started)}
    found |= _agents(state) | _frameworks(state) | _tasks(state) | _resources(state)
    found["outstanding_offers"] = float(len(state.offers))
    found["operator_event_stream_subscribers"] = float(len(state.operators))
    return {f"master/{name}": value for name, value in sorted(found.items())}


def _agents(state: State) -> dict[str, float]:
    connected = [agent for agent in state.agents.values() if agent.stream is not None]
    active = sum(agent.active for agent in connected)
    counts = {
        "active": active,
        "inactive": len(connected) - active,
        "connected": len(connected),
        "disconnected": len(state.agents) - len(connected),
        "unreachable": len(state.unreachable),
    }
    return {f"{word}_{name}": float(count) for word in ("slaves", "agents") for name, count in counts.items()}


def _frameworks(state: State) -> dict[str, float]:
    connected = [framework for framework in state.frameworks.values() if framework.stream is not None]
    active = sum(framework.active for framework in connected)
    return {
        "frameworks_active": float(active),
        "frameworks_inactive": float(len(connected) - active),
        "frameworks_connected": float(len(connected)),
        "frameworks_disconnected": float(len(state.frameworks) - len(connected)),
    }


def _tasks(state: State) -> dict[str, float]:
    counts = Counter(task.state for f in state.frameworks.values() for task in f.tasks.values())
    found = {f"tasks_{word}": float(counts[f"TASK_{word.upper()}"]) for word in ("staging", "starting", "running")}
    found["tasks_killing"] = float(counts["TASK_KILLING"])
    found["tasks_unreachable"] = float(sum(map(len, state.unreachable_tasks.values())))
    return found


def _resources(state: State) -> dict[str, float]:
    there, revocable = Counter[str](), Counter[str]()
    taken, taken_revocable = Counter[str](), Counter[str]()
    for agent in state.agents.values():
        _count(agent.total, there, revocable)
        _count(agent.used, taken, taken_revocable)
    found: dict[str, float] = {}
    for suffix, total, used in (("", there, taken), ("_revocable", revocable, taken_revocable)):
        for name in SCALARS:
            found[f"{name}{suffix}_total"] = total[name] / THOUSAND
            found[f"{name}{suffix}_used"] = used[name] / THOUSAND
            found[f"{name}{suffix}_percent"] = used[name] / total[name] if total[name] else 0.0
    return found


def _count(resources: Resources, firm: Counter[str], revocable: Counter[str]) -> None:
    for kind, amount in resources:
        if isinstance(amount, int):
            (revocable if kind.revocable else firm)[kind.name] += amount
