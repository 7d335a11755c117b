"""How long it takes the Mesos master to allocate: all agents at once, and one whose resources have changed.

python benchmarks/allocator.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from measure import row, show

from executors.mesos.master.allocator import Filters, RoleUsage, allocate
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState
from executors.mesos.resources import Resources, scalars

AGENTS, FRAMEWORKS, ROLES = 2000, 50, 10
NODE = scalars(cpus=64, mem=256_000, disk=1_000_000) + Resources({"ports": ((31000, 32000),)})


def pool(agents: int, frameworks: int) -> MasterState:
    """Agents that are free, and frameworks in ten roles in two groups."""
    state = MasterState("M", MasterOptions(), 0.0)
    for number in range(agents):
        state.agents[f"S{number}"] = AgentRecord(f"S{number}", {}, NODE, 0.0, stream="up")
    for number in range(frameworks):
        role = f"group{number % 2}/role{number % ROLES}"
        state.frameworks[f"F{number}"] = FrameworkRecord(f"F{number}", {}, frozenset({role}), 0.0, stream="up")
    return state


def refused(state: MasterState) -> Filters:
    """Every framework has refused every agent."""
    filters = Filters()
    for framework in state.frameworks.values():
        for role in framework.roles:
            for agent in state.agents:
                filters.refuse(framework.id, role, agent, NODE, 1e9)
    return filters


def seconds(work: Callable[[], object], repeats: int = 7) -> list[float]:
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found[1:]


def main() -> None:
    rows = []
    for agents, frameworks in ((AGENTS, FRAMEWORKS), (AGENTS, 1)):
        state = pool(agents, frameworks)
        usage, who = RoleUsage.of(state), f"{agents} agents, {frameworks} frameworks"
        assert len(allocate(state, Filters(), 0.0, None, usage)) == agents

        def some(state: MasterState = state, usage: RoleUsage = usage) -> None:
            for number in range(100):
                allocate(state, Filters(), 0.0, {f"S{number}"}, usage)

        rows.append(row(f"all agents, {who}", seconds(lambda s=state, u=usage: allocate(s, Filters(), 0.0, None, u))))
        rows.append(row(f"one agent of them, {who}", [each / 100 for each in seconds(some)]))
        filters = refused(state)
        rows.append(row(f"all were refused, {who}", seconds(lambda s=state, f=filters: allocate(s, f, 0.0))))
        state.quota = {f"group0/role{number}": {"cpus": 10**9} for number in range(ROLES)}
        rows.append(
            row(
                f"all agents, with limits, {who}",
                seconds(lambda s=state, u=usage: allocate(s, Filters(), 0.0, None, u)),
            )
        )
        for agent in state.agents.values():
            agent.offered = agent.total
        rows.append(row(f"nothing is free, {who}", seconds(lambda s=state: allocate(s, Filters(), 0.0))))
    show("Allocation of the master [s]", rows)


if __name__ == "__main__":
    main()
