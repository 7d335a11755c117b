"""The agent's figures, under the names that Mesos' agents have them."""

from __future__ import annotations

from executors.mesos.agent.options import Options
from executors.mesos.agent.state import State
from executors.mesos.messages import TERMINAL, field
from executors.mesos.resources import NONE, Resources, parse


def used(state: State) -> Resources:
    """What executors, and tasks that are not over, take."""
    frameworks = state.frameworks.values()
    infos = [executor.info for framework in frameworks for executor in framework.executors.values()]
    infos += [task.info for framework in frameworks for task in framework.tasks.values() if not task.over]
    return sum((parse(field(info, "resources", list, [])) for info in infos), start=NONE)


def metrics(state: State, options: Options, now: float) -> dict[str, float]:
    """All figures: numbers of things, shares in [0, 1], times [s]."""
    live = [task for framework in state.frameworks.values() for task in framework.tasks.values() if not task.over]
    executors = [executor for framework in state.frameworks.values() for executor in framework.executors.values()]
    found = {
        "uptime_secs": now - state.started,
        "registered": float(state.registered),
        "frameworks_active": float(len(state.frameworks)),
        "executors_running": float(sum(executor.verdict is None for executor in executors)),
        "executors_terminating": float(sum(executor.verdict is not None for executor in executors)),
        "containers": float(len(state.instances)),
    }
    for name in ("staging", "starting", "running", "killing"):
        found[f"tasks_{name}"] = float(sum(task.state == f"TASK_{name.upper()}" for task in live))
    found |= {name.lower().replace("task_", "tasks_", 1): 0.0 for name in TERMINAL}
    for name in ("valid_status_updates", "invalid_status_updates", "invalid_master_messages"):
        found[name] = 0.0
    found |= {name: float(count) for name, count in state.counters.items()}
    taken = used(state)
    for name in ("cpus", "mem", "gpus", "disk"):
        total, share = options.resources.scalar(name), taken.scalar(name)
        found |= {f"{name}_total": total, f"{name}_used": share, f"{name}_percent": share / total if total else 0.0}
    return {f"slave/{name}": value for name, value in found.items()}
