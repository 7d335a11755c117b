from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from executors.mesos.master.allocator import Filters, Grant, RoleUsage, allocatable, allocate, leaf, revisited
from executors.mesos.master.state import AgentRecord, MasterState
from executors.mesos.resources import NONE, Resources, scalars
from tests.executors.mesos.master.states import NODE, allocated, offer, run, state_of


def by_framework(grants: list[Grant]) -> dict[str, str]:
    """Framework -> its agents."""
    found: dict[str, list[str]] = {}
    for grant in grants:
        found.setdefault(grant.framework, []).append(grant.agent)
    return {name: " ".join(sorted(agents)) for name, agents in sorted(found.items())}


def capable(state: MasterState, framework: str, *capabilities: str) -> None:
    state.frameworks[framework].info = {"capabilities": [{"type": name} for name in capabilities]}


def test_all_that_is_free_goes_to_one_framework() -> None:
    ports = Resources({"ports": ((1, 9),)})
    state = state_of(NODE + ports, F="*")
    run(state, "S1", "F", scalars(cpus=3) + Resources({"ports": ((2, 4),)}))
    left = scalars(cpus=5, mem=800) + Resources({"ports": ((1, 1), (5, 9))})
    assert allocated(state) == [Grant("F", "*", "S1", left)]


def tasks_of(state: MasterState, wants: dict[str, Resources]) -> Counter[str]:
    """How many tasks each framework starts, if each takes one from every offer and refuses what is too small."""
    filters, tasks, now = Filters(), Counter[str](), 0.0
    while grants := allocate(state, filters, now):
        grant, now = grants[0], now + 1.0
        want = wants[grant.framework]
        if grant.resources.covers(want):
            run(state, grant.agent, grant.framework, want, grant.role)
            tasks[grant.framework] += 1
        else:
            filters.refuse(grant.framework, grant.role, grant.agent, grant.resources, math.inf)
    return tasks


@pytest.mark.parametrize("roles", ["* *", "a b", "a a/b"])
def test_the_worked_example_of_the_paper(roles: str) -> None:
    """Ghodsi et al., NSDI 2011, section 4.1: 9 CPUs and 18 GB; A's tasks need <1, 4>, B's <3, 1>."""
    one, other = roles.split()
    state = state_of(scalars(cpus=9, mem=18_000), A=one, B=other)
    assert tasks_of(state, {"A": scalars(cpus=1, mem=4000), "B": scalars(cpus=3, mem=1000)}) == {"A": 3, "B": 2}
    held = RoleUsage.of(state).held
    assert held[leaf(one, "A")] == {"cpus": 3000, "mem": 12_000_000}  # 2/3 of the memory
    assert held[leaf(other, "B")] == {"cpus": 6000, "mem": 2_000_000}  # 2/3 of the CPUs


@pytest.mark.parametrize(("weight", "tasks"), [(1.0, (30, 30)), (2.0, (40, 20)), (0.5, (20, 40)), (5.0, (50, 10))])
def test_weighted_roles_get_as_much_more(weight: float, tasks: tuple[int, int]) -> None:
    state = state_of(scalars(cpus=60, mem=60_000), A="a", B="b")
    state.weights = {"a": weight}
    found = tasks_of(state, {"A": scalars(cpus=1, mem=100), "B": scalars(cpus=1, mem=100)})
    assert (found["A"], found["B"]) == tasks


def test_a_tree_shares_at_each_level() -> None:
    """Half for each organisation, halves of that below, whoever else is there."""
    state = state_of(scalars(cpus=80, mem=80_000), A="x/a", B="x/b", C="x/b", D="y", E="x")
    wants = dict.fromkeys("ABCDE", scalars(cpus=1, mem=1))
    state.weights = {"x": 3.0, "x/b": 2.0}
    assert tasks_of(state, wants) == {"A": 15, "B": 15, "C": 15, "D": 20, "E": 15}


def test_frameworks_of_one_role_take_turns_over_agents() -> None:
    state = state_of(*[NODE] * 6, F="*", G="*", H="*")
    assert by_framework(allocated(state)) == {"F": "S1 S4", "G": "S2 S5", "H": "S3 S6"}


def test_offers_that_are_held_count_as_used() -> None:
    state = state_of(NODE, NODE, F="*", G="*")
    offer(state, allocated(state, {"S1"})[0])
    assert by_framework(allocated(state)) == {"G": "S2"}


def test_a_framework_gets_offers_in_each_role() -> None:
    state = state_of(NODE, NODE, NODE, NODE, F="a b", G="b")
    grants = [(grant.agent, grant.framework, grant.role) for grant in allocated(state)]
    assert grants == [("S1", "F", "a"), ("S2", "F", "b"), ("S3", "F", "a"), ("S4", "G", "b")]


def test_roles_that_want_none_are_passed_over() -> None:
    state = state_of(NODE, F="a b")
    state.frameworks["F"].suppressed = {"a"}
    assert [grant.role for grant in allocated(state)] == ["b"]
    state.frameworks["F"].suppressed = {"a", "b"}
    assert allocated(state) == []


def test_frameworks_that_are_away_or_inactive_get_nothing() -> None:
    state = state_of(NODE, NODE, F="*", G="*")
    state.frameworks["F"].active = False
    state.frameworks["G"].stream = None
    assert allocated(state) == []


def test_agents_that_are_away_inactive_or_drained_are_not_offered() -> None:
    state = state_of(NODE, NODE, NODE, NODE, F="*")
    state.agents["S1"].active = False
    state.agents["S2"].stream = None
    state.agents["S3"].drain = {}
    assert by_framework(allocated(state)) == {"F": "S4"}


def test_agents_that_will_be_unavailable_are_offered() -> None:
    state = state_of(NODE, F="*")
    state.agents["S1"].unavailability = {"start": {"nanoseconds": 1}}
    assert by_framework(allocated(state)) == {"F": "S1"}


def test_only_the_agents_asked_for_are_looked_at() -> None:
    state = state_of(NODE, NODE, NODE, F="*")
    assert by_framework(allocated(state, {"S3", "S1", "gone"})) == {"F": "S1 S3"}


@pytest.mark.parametrize(
    ("resources", "enough"),
    [
        (scalars(cpus=0.01), True),
        (scalars(mem=32), True),
        (scalars(cpus=0.009, mem=31.999, gpus=4), False),
        (NONE, False),
    ],
)
def test_crumbs_are_not_offered(resources: Resources, enough: bool) -> None:
    assert allocatable(resources) == enough
    assert len(allocated(state_of(resources, F="a"))) == enough


def test_agents_with_gpus_are_for_those_who_can_use_them() -> None:
    state = state_of(NODE + scalars(gpus=2), NODE, F="*", G="*")
    run(state, "S1", "G", scalars(gpus=2))  # whether or not a GPU is free
    capable(state, "G", "GPU_RESOURCES")
    assert by_framework(allocated(state, {"S1"})) == {"G": "S1"}
    assert by_framework(allocated(state, {"S2"})) == {"F": "S2"}


def test_what_one_refused_goes_to_the_next() -> None:
    state, filters = state_of(NODE, F="*", G="*"), Filters()
    filters.refuse("F", "*", "S1", NODE, 5.0)
    assert by_framework(allocate(state, filters, 4.0)) == {"G": "S1"}
    filters.refuse("G", "*", "S1", NODE, 6.0)
    assert allocate(state, filters, 4.0) == []
    assert by_framework(allocate(state, filters, 5.0)) == {"F": "S1"}


def test_agents_are_revisited_when_a_refusal_has_ended() -> None:
    state, filters = state_of(NODE, NODE, F="*"), Filters()
    for agent, until in (("S1", 5.0), ("S2", 7.0)):
        filters.refuse("F", "*", agent, NODE, until)
    assert revisited(state, filters, 4.0) == set()
    again = revisited(state, filters, 5.0)
    assert by_framework(allocate(state, filters, 5.0, again)) == {"F": "S1"}
    assert revisited(state, filters, 5.0) == set()


def test_with_quota_all_agents_are_revisited() -> None:
    state = state_of(NODE, F="a")
    state.quota = {"a": {"cpus": 5000}}
    assert revisited(state, Filters(), 0.0) is None


def test_equal_frameworks_are_served_in_turn() -> None:
    state = state_of(NODE, F="*", G="*")
    usage = RoleUsage.of(state)
    served = []
    for _ in range(4):
        (grant,) = allocated(state, {"S1"}, usage)
        usage.took(grant.framework, grant.role, grant.resources)
        usage.gave_back(grant.framework, grant.role, grant.resources)  # declined, without a refusal
        served.append(grant.framework)
    assert served == ["F", "G", "F", "G"]


def test_limits_cut_offers_and_the_rest_goes_to_others() -> None:
    state = state_of(NODE, NODE, F="a/x", G="b")
    state.quota = {"a": {"cpus": 6000}}
    run(state, "S1", "F", scalars(cpus=1), "a")
    run(state, "S1", "G", scalars(cpus=1), "b")
    state.weights = {"a": 100.0}
    assert allocated(state) == [
        Grant("F", "a/x", "S1", scalars(cpus=5, mem=800)),
        Grant("G", "b", "S1", scalars(cpus=1)),
        Grant("F", "a/x", "S2", scalars(mem=800)),
        Grant("G", "b", "S2", scalars(cpus=8)),
    ]


def test_nothing_is_changed() -> None:
    state = state_of(NODE, NODE, F="a", G="b")
    state.quota = {"a": {"cpus": 6000}}
    usage = RoleUsage.of(state)
    before, counted = copy.deepcopy(_values(state.agents["S1"])), usage.copy()
    assert allocate(state, Filters(), 0.0, None, usage) == allocate(state, Filters(), 0.0)
    assert usage == counted
    assert usage.turns == counted.turns
    assert _values(state.agents["S1"]) == before


def _values(agent: AgentRecord) -> dict[str, Any]:
    return {field.name: getattr(agent, field.name) for field in fields(agent)}
