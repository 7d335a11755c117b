"""Small states of a master, and what is allocated of them."""

from __future__ import annotations

from executors.mesos.master.allocator import Filters, Grant, RoleUsage, allocate
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState, Offer, TaskRecord
from executors.mesos.resources import Resources, scalars

NODE = scalars(cpus=8, mem=800)


def state_of(*agents: Resources, **frameworks: str) -> MasterState:
    """Agents S1, S2 ... and frameworks, each with its roles: ``F="a b"``."""
    state = MasterState("M", MasterOptions(), 0.0)
    for number, total in enumerate(agents, 1):
        state.agents[f"S{number}"] = AgentRecord(f"S{number}", {}, total, 0.0, stream="up")
    for name, roles in frameworks.items():
        state.frameworks[name] = FrameworkRecord(name, {}, frozenset(roles.split()), 0.0, stream="up")
    return state


def run(state: MasterState, agent: str, framework: str, resources: Resources, role: str = "*") -> None:
    """A task of the framework runs on the agent."""
    task = TaskRecord(f"t{len(state.agents[agent].tasks)}", framework, agent, None, {}, resources, role, "TASK_RUNNING")
    state.agents[agent].tasks[task.key] = task
    state.agents[agent].used += resources


def offer(state: MasterState, grant: Grant) -> None:
    """What the master does with a grant."""
    agent = state.agents[grant.agent]
    state.serial["offer"] = state.serial.get("offer", 0) + 1
    name = f"O{state.serial['offer']}"
    state.offers[name] = Offer(name, grant.framework, grant.agent, grant.role, grant.resources, 0.0)
    agent.offers[name] = state.offers[name]
    agent.offered += grant.resources


def allocated(state: MasterState, agents: set[str] | None = None, usage: RoleUsage | None = None) -> list[Grant]:
    return allocate(state, Filters(), 0.0, agents, usage)
