"""Whose turn it is, what was refused, and how much a role may have."""

from __future__ import annotations

import copy
import math
import pickle
from collections import Counter
from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executors.mesos.codec import Message
from executors.mesos.master.allocator import (
    REFUSALS_MOST,
    Filters,
    Grant,
    Path,
    RoleUsage,
    Sorter,
    allocatable,
    allocate,
    revisited,
)
from executors.mesos.master.state import (
    AgentRecord,
    ExecutorRecord,
    FrameworkRecord,
    MasterOptions,
    MasterState,
    Offer,
    TaskRecord,
)
from executors.mesos.resources import NONE, Resources, scalars

# ---------------------------------------------------------------------- states


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


# ---------------------------------------------------------------------- allocator


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


@pytest.mark.parametrize("roles", ["* *", "a b"])
def test_the_worked_example_of_the_paper(roles: str) -> None:
    """Ghodsi et al., NSDI 2011, section 4.1: 9 CPUs and 18 GB; A's tasks need <1, 4>, B's <3, 1>."""
    one, other = roles.split()
    state = state_of(scalars(cpus=9, mem=18_000), A=one, B=other)
    assert tasks_of(state, {"A": scalars(cpus=1, mem=4000), "B": scalars(cpus=3, mem=1000)}) == {"A": 3, "B": 2}
    held = RoleUsage.of(state).held
    assert held[one, "A"] == {"cpus": 3000, "mem": 12_000_000}  # 2/3 of the memory
    assert held[other, "B"] == {"cpus": 6000, "mem": 2_000_000}  # 2/3 of the CPUs


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


def test_frameworks_that_are_away_get_nothing() -> None:
    state = state_of(NODE, F="*")
    state.frameworks["F"].stream = None
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
    state = state_of(NODE, NODE, F="a", G="b")
    state.quota = {"a": {"cpus": 6000}}
    run(state, "S1", "F", scalars(cpus=1), "a")
    run(state, "S1", "G", scalars(cpus=1), "b")
    assert allocated(state) == [
        Grant("F", "a", "S1", scalars(cpus=5, mem=800)),
        Grant("G", "b", "S1", scalars(cpus=1)),
        Grant("G", "b", "S2", NODE),
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


# ---------------------------------------------------------------------- allocator properties


ROLES = ["*", "a", "b", "c", "a/x"]
TOTALS = st.builds(
    lambda cpus, mem, kind: scalars(cpus=cpus, mem=100 * mem) + kind,
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(
        [
            NONE,
            Resources({"ports": ((1, 5),), "gpus": 1000}),
        ]
    ),
)


@st.composite
def states(draw: st.DrawFn, quota: bool = True) -> MasterState:
    state = state_of(*draw(st.lists(TOTALS, min_size=1, max_size=4)))
    for name in "FGH"[: draw(st.integers(1, 3))]:
        roles = frozenset(draw(st.sets(st.sampled_from(ROLES), min_size=1, max_size=3)))
        capabilities = draw(st.sets(st.sampled_from(["GPU_RESOURCES", "PARTITION_AWARE"])))
        info: Message = {"capabilities": [{"type": capability} for capability in sorted(capabilities)]}
        suppressed = draw(st.sets(st.sampled_from(sorted(roles))))
        state.frameworks[name] = FrameworkRecord(name, info, roles, 0.0, suppressed=suppressed, stream="up")
    for agent in state.agents.values():
        for _ in range(draw(st.integers(0, 2))):
            name, role = draw(st.sampled_from("FGX")), draw(st.sampled_from(ROLES))
            want = scalars(cpus=draw(st.integers(0, 3)), mem=100 * draw(st.integers(0, 3)))
            if agent.free.covers(want):
                run(state, agent.id, name, want, role)
    if quota:
        amounts = st.dictionaries(st.sampled_from(["cpus", "mem"]), st.integers(0, 9).map(lambda x: 1000 * x))
        state.quota = draw(st.dictionaries(st.sampled_from(ROLES[1:]), amounts))
    return state


@settings(max_examples=60)
@given(states())
def test_no_more_is_given_than_is_free_allowed_and_wanted(state: MasterState) -> None:
    before = RoleUsage.of(state)
    for grant in allocated(state):
        agent, framework = state.agents[grant.agent], state.frameworks[grant.framework]
        assert agent.free.covers(grant.resources)
        assert allocatable(grant.resources)
        assert grant.role in framework.roles - framework.suppressed
        assert framework.can("GPU_RESOURCES") or not agent.total.scalar("gpus")
        offer(state, grant)
    after = RoleUsage.of(state)
    for role, limits in state.quota.items():
        path = (role,)
        for name, limit in limits.items():
            assert after.held.get(path, {}).get(name, 0) <= max(limit, before.held.get(path, {}).get(name, 0))


@settings(max_examples=60)
@given(states())
def test_one_allocation_is_enough(state: MasterState) -> None:
    for grant in allocated(state):
        offer(state, grant)
    again = allocated(state)
    assert not again, "what was left was of no use to anybody"


@settings(max_examples=60)
@given(states(quota=False))
def test_nothing_useful_is_left_when_no_offer_was_refused(state: MasterState) -> None:
    for grant in allocated(state):
        offer(state, grant)
    for agent in state.agents.values():
        for framework in state.frameworks.values():
            usable = framework.can("GPU_RESOURCES") or not agent.total.scalar("gpus")
            if usable and framework.roles - framework.suppressed:
                assert not allocatable(agent.free)


def first(state: MasterState, agent: AgentRecord) -> tuple[str, str] | None:
    """Whose turn it is on an agent, from the definition: the role, then the framework, with the smallest share."""
    total = Counter[str]()
    for one in state.agents.values():
        total.update(one.total.scalars())
    held = [(task.role, task.framework, task.resources) for one in state.agents.values() for task in one.tasks.values()]
    held += [(one.role, one.framework, one.resources) for one in state.offers.values()]
    seekers = {}
    for framework in state.frameworks.values():
        for role in framework.roles - framework.suppressed:
            if allocatable(agent.free) and (framework.can("GPU_RESOURCES") or not agent.total.scalar("gpus")):
                seekers[role, framework.id] = (framework.id, role)

    def key(node: tuple[str, ...]) -> tuple[Fraction, int, tuple[str, ...]]:
        mine = [amounts for role, name, amounts in held if (role, name)[: len(node)] == node]
        share = max(Fraction(sum(one.thousandths(name) for one in mine), most) for name, most in total.items())
        turns = sum((one.role, one.framework)[: len(node)] == node for one in state.offers.values())
        return share, turns, node

    node: tuple[str, ...] = ()
    while seekers and len(node) < 2:
        node = min({path[: len(node) + 1] for path in seekers if path[: len(node)] == node}, key=key)
    return seekers[node[0], node[1]] if seekers else None


@settings(max_examples=60)
@given(states(quota=False))
def test_each_agent_goes_to_whose_turn_it_is(state: MasterState) -> None:
    grants = allocated(state)
    for agent in list(state.agents.values()):
        mine = [grant for grant in grants if grant.agent == agent.id]
        expected = first(state, agent)
        assert (mine[0][:2] if mine else None) == expected
        for grant in mine:
            offer(state, grant)


@settings(max_examples=60)
@given(states(), st.data())
def test_running_totals_give_what_counting_anew_gives(state: MasterState, data: st.DataObject) -> None:
    usage = RoleUsage.of(state)
    for _ in range(3):
        agents = data.draw(st.none() | st.sets(st.sampled_from(sorted(state.agents))))
        grants = allocated(state, agents, usage)
        usage.turns.clear()
        assert grants == allocated(state, agents)
        for grant in grants:
            usage.took(grant.framework, grant.role, grant.resources)
            offer(state, grant)
        assert usage == RoleUsage.of(state)
        usage.turns.clear()
        for name in data.draw(st.sets(st.sampled_from(sorted(state.offers)))) if state.offers else ():
            old = state.offers.pop(name)
            del state.agents[old.agent].offers[name]
            state.agents[old.agent].offered -= old.resources
            usage.gave_back(old.framework, old.role, old.resources)


# ---------------------------------------------------------------------- shares


HUNDRED = scalars(cpus=100, mem=1000)


def agent_of(total: Resources = HUNDRED, name: str = "S1") -> AgentRecord:
    return AgentRecord(name, {}, total, 0.0, stream="stream")


def usage_of(*held: tuple[str, str, Resources], total: Resources = HUNDRED) -> RoleUsage:
    usage = RoleUsage()
    usage.joined(agent_of(total))
    for framework, role, resources in held:
        usage.took(framework, role, resources)
    usage.turns.clear()
    return usage


def sorted_by(usage: RoleUsage, *who: tuple[str, str]) -> list[str]:
    """Frameworks in the sorter's order."""
    return [path[-1] for path in Sorter([(role, name) for name, role in who], usage)]


ORDERS: list[tuple[dict[str, Resources], str]] = [
    ({"F a": scalars(cpus=30, mem=10), "G b": scalars(cpus=10, mem=310)}, "F G"),  # the dominant one counts
    ({"F a": scalars(cpus=30), "G b": scalars(cpus=20)}, "G F"),
    ({"F a": scalars(cpus=20), "G a": scalars(cpus=5), "H b": scalars(cpus=24)}, "H G F"),  # the role's share first
    ({"F a": scalars(gpus=5), "G b": scalars(cpus=1)}, "F G"),  # no agent has GPUs
    ({"F a": scalars(cpus=20), "G a/x": scalars(cpus=10)}, "G F"),  # a name like any other
]


@pytest.mark.parametrize(("held", "expected"), ORDERS)
def test_the_smallest_share_is_first(held: dict[str, Resources], expected: str) -> None:
    who = [(name.split()[0], name.split()[1]) for name in held]
    usage = usage_of(*((*pair, amount) for pair, amount in zip(who, held.values(), strict=True)))
    assert sorted_by(usage, *who) == expected.split()


def test_equal_shares_are_served_in_turn_and_then_by_name() -> None:
    usage = usage_of()
    who = ("F", "r"), ("G", "r"), ("H", "r")
    assert sorted_by(usage, *who) == ["F", "G", "H"]
    usage.took("F", "r", scalars(cpus=1))
    usage.gave_back("F", "r", scalars(cpus=1))
    assert sorted_by(usage, *who) == ["G", "H", "F"]


def test_what_is_held_by_frameworks_that_are_not_sorted_counts_for_their_role() -> None:
    usage = usage_of(("idle", "a", scalars(cpus=20)), ("G", "b", scalars(cpus=10)))
    assert sorted_by(usage, ("F", "a"), ("G", "b")) == ["G", "F"]


def test_a_framework_stands_in_each_of_its_roles() -> None:
    usage = usage_of(("F", "a", scalars(cpus=30)), ("G", "b", scalars(cpus=20)))
    paths = list(Sorter([("a", "F"), ("b", "F"), ("b", "G")], usage))
    assert paths == [("b", "F"), ("b", "G"), ("a", "F")]


def test_order_follows_what_moved() -> None:
    usage = usage_of()
    sorter = Sorter([("r", "F"), ("r", "G"), ("q", "H")], usage)
    usage.took("H", "q", scalars(cpus=10))
    sorter.moved(("q", "H"))
    usage.took("F", "r", scalars(cpus=20))
    sorter.moved(("r", "F"))
    assert [path[-1] for path in sorter] == ["H", "G", "F"]


ROLE_NAMES = st.sampled_from(["*", "a", "b", "a/x"])
NAMES = st.sampled_from("FGH")
AMOUNTS = st.builds(lambda cpus, mem: scalars(cpus=cpus, mem=mem), st.integers(0, 4), st.integers(0, 40))
HELD = st.lists(st.tuples(NAMES, ROLE_NAMES, AMOUNTS), max_size=12)


def slowly(who: set[Path], held: list[tuple[str, str, Resources]]) -> list[Path]:
    """The same order by fractions, from the definition."""

    def key(node: Path) -> tuple[Fraction, int, Path]:
        mine = [resources for name, role, resources in held if (role, name)[: len(node)] == node]
        amounts = [sum(one.thousandths(name) for one in mine) for name in ("cpus", "mem")]
        share = max(Fraction(amount, most) for amount, most in zip(amounts, (100_000, 1_000_000), strict=True))
        return share, len(mine), node

    roles = sorted({path[:1] for path in who}, key=key)
    return [path for role in roles for path in sorted((one for one in who if one[:1] == role), key=key)]


@given(st.sets(st.tuples(ROLE_NAMES, NAMES)), HELD, HELD)
def test_the_order_is_that_of_the_definition(who, before, after) -> None:  # type: ignore[no-untyped-def]
    usage = RoleUsage()
    usage.joined(agent_of())
    for one in before:
        usage.took(*one)
    sorter = Sorter(who, usage)
    assert list(sorter) == slowly(who, before)
    for name, role, resources in after:
        usage.took(name, role, resources)
        if (role, name) in who:
            sorter.moved((role, name))
        else:
            sorter = Sorter(who, usage)
    assert list(sorter) == slowly(who, before + after)


def test_usage_counts_tasks_executors_and_offers_but_no_tasks_that_ended() -> None:
    agent = agent_of()
    for name, state in (("t1", "TASK_RUNNING"), ("t2", "TASK_FINISHED"), ("t3", "TASK_STAGING")):
        task = TaskRecord(name, "F", "S1", None, {}, scalars(cpus=1), "a", state)
        agent.tasks[task.key] = task
    agent.executors["F", "e"] = ExecutorRecord("e", "F", "S1", {}, scalars(cpus=0.1, mem=32), "a")
    agent.offers["o1"] = Offer("o1", "G", "S1", "b", scalars(cpus=10), 0.0)
    state = MasterState("M", MasterOptions(), 0.0, agents={"S1": agent})
    usage = RoleUsage.of(state)
    assert usage.total == {"cpus": 100_000, "mem": 1_000_000}
    assert usage.held["a", "F"] == usage.held["a",] == {"cpus": 2100, "mem": 32_000}
    assert usage.held["b", "G"] == usage.held["b",] == {"cpus": 10_000}
    usage.left(agent)
    assert usage == RoleUsage()


@pytest.mark.parametrize("resources", [NONE, Resources({"ports": ((1, 2),)})])
def test_what_is_no_scalar_leaves_no_trace(resources: Resources) -> None:
    usage = usage_of(("F", "a", resources))
    assert usage == usage_of()


@given(HELD, st.randoms(use_true_random=False))
def test_what_is_taken_and_returned_leaves_no_trace(held, random) -> None:  # type: ignore[no-untyped-def]
    usage, others = usage_of(*held), usage_of()
    random.shuffle(held)
    for at, one in enumerate(held):
        if at % 2:
            usage.gave_back(*one)
        else:
            others.took(*one)
    assert usage == others


def test_a_copy_changes_by_itself() -> None:
    usage = usage_of(("F", "a", scalars(cpus=1)))
    copy = usage.copy()
    assert copy == usage
    copy.took("F", "a", scalars(cpus=1))
    copy.joined(agent_of(Resources({"cpus": 1000, "mem": 5})))
    assert usage == usage_of(("F", "a", scalars(cpus=1)))
    assert not usage.turns


def test_turns_of_a_framework_that_is_gone_are_forgotten() -> None:
    usage = usage_of()
    for framework, role in (("F", "a"), ("F", "*"), ("G", "a")):
        usage.took(framework, role, scalars(cpus=1))
    usage.forget("F", ["a", "*", "never"])
    assert usage.turns.keys() == {("a",), ("a", "G")}
    usage.forget("G", ["a"])
    assert not usage.turns


# ---------------------------------------------------------------------- filters


def refused(resources: Resources, until: float = 10.0) -> Filters:
    filters = Filters()
    filters.refuse("F", "r", "S", resources, until)
    return filters


@pytest.mark.parametrize(
    ("who", "resources", "now", "suppressed"),
    [
        ("F r S", scalars(cpus=2, mem=100), 0.0, True),
        ("F r S", scalars(cpus=1), 0.0, True),
        ("F r S", scalars(cpus=3, mem=100), 0.0, False),  # freed resources break through
        ("F r S", scalars(cpus=1, gpus=1), 0.0, False),
        ("G r S", scalars(cpus=2), 0.0, False),
        ("F q S", scalars(cpus=2), 0.0, False),
        ("F r T", scalars(cpus=2), 0.0, False),
        ("F r S", scalars(cpus=2), 9.999, True),
        ("F r S", scalars(cpus=2), 10.0, False),
    ],
)
def test_a_refusal_is_about_one_framework_role_and_agent_and_ends(
    who: str, resources: Resources, now: float, suppressed: bool
) -> None:
    assert refused(scalars(cpus=2, mem=100)).suppresses(*who.split(), resources, now) is suppressed


def test_a_shorter_refusal_of_less_changes_nothing() -> None:
    filters = refused(scalars(cpus=2), until=10.0)
    filters.refuse("F", "r", "S", scalars(cpus=1), 5.0)
    assert len(filters) == 1
    assert filters.suppresses("F", "r", "S", scalars(cpus=2), 9.0)


def test_a_longer_refusal_of_more_replaces_it() -> None:
    filters = refused(scalars(cpus=1), until=5.0)
    filters.refuse("F", "r", "S", scalars(cpus=2), 10.0)
    assert len(filters) == 1
    assert filters.suppresses("F", "r", "S", scalars(cpus=2), 9.0)


def test_a_longer_refusal_of_less_stays_beside_it() -> None:
    filters = refused(scalars(cpus=1), until=20.0)
    filters.refuse("F", "r", "S", scalars(cpus=2), 10.0)
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 9.0) for cpus in (1, 2)] == [True, True]
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 10.0) for cpus in (1, 2)] == [True, False]


def test_revive_clears_some_roles_or_all() -> None:
    filters = refused(scalars(cpus=2))
    filters.refuse("F", "q", "S", scalars(cpus=2), 10.0)
    filters.refuse("G", "q", "S", scalars(cpus=2), 10.0)
    filters.clear("F", {"r", "unknown"})
    assert [filters.suppresses("F", role, "S", scalars(cpus=1), 0.0) for role in "rq"] == [False, True]
    filters.clear("F")
    assert not filters.suppresses("F", "q", "S", scalars(cpus=1), 0.0)
    assert filters.suppresses("G", "q", "S", scalars(cpus=1), 0.0)


def test_an_agent_is_forgotten() -> None:
    filters = refused(scalars(cpus=2))
    filters.refuse("F", "r", "T", scalars(cpus=2), 10.0)
    filters.forget("S")
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1), 0.0)
    assert filters.suppresses("F", "r", "T", scalars(cpus=1), 0.0)


def test_it_tells_once_whose_refusals_have_ended() -> None:
    filters = Filters()
    for agent, until in (("S", 1.0), ("T", 2.0), ("U", 3.0), ("V", 1.0)):
        filters.refuse("F", "r", agent, scalars(cpus=1), until)
    filters.forget("V")
    assert filters.due() == 1.0
    assert filters.ended(2.0) == {"S", "T"}
    assert filters.ended(2.0) == set()
    assert (len(filters), filters.due()) == (1, 3.0)
    filters.clear("F")
    assert filters.ended(3.0) == set()
    assert filters.due() == float("inf")


def test_one_of_two_refusals_of_an_agent_ends() -> None:
    filters = refused(scalars(cpus=2), until=1.0)
    filters.refuse("F", "r", "S", scalars(cpus=1), 2.0)
    assert filters.ended(1.0) == {"S"}
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 1.0) for cpus in (1, 2)] == [True, False]


def test_memory_is_bounded_for_one_that_refuses_ever_more() -> None:
    filters = Filters()
    for turn in range(5000):
        filters.refuse("F", "r", "S", scalars(cpus=1 + turn, mem=5000 - turn), 1000.0 + turn)
    assert len(filters) == REFUSALS_MOST
    assert filters.suppresses("F", "r", "S", scalars(cpus=5000, mem=1), 0.0)
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1, mem=5000), 0.0)
    assert len(pickle.dumps(filters)) < 200_000  # of 5,000


def test_memory_is_bounded_for_one_that_refuses_and_revives_for_ever() -> None:
    filters = Filters()
    for turn in range(5000):
        filters.refuse("F", "r", "S", scalars(cpus=1), 1e9 + turn)
        filters.clear("F")
    assert len(filters) == 0
    assert len(pickle.dumps(filters)) < 200_000  # of 5,000


WHO = st.sampled_from("FG"), st.sampled_from("rq"), st.sampled_from("ST")
FEW = st.builds(lambda cpus, mem: scalars(cpus=cpus, mem=mem), st.integers(0, 3), st.integers(0, 3))
FILTER_STEPS = st.one_of(
    st.tuples(st.just("refuse"), *WHO, FEW, st.integers(0, 9)),
    st.tuples(st.just("clear"), WHO[0], st.none() | st.sets(WHO[1])),
    st.tuples(st.just("forget"), WHO[2]),
    st.tuples(st.just("ended"), st.integers(0, 9)),
)


@given(st.lists(FILTER_STEPS, max_size=15), st.integers(0, 9), st.tuples(*WHO, FEW))
def test_it_is_as_good_as_a_list_of_all_refusals(steps, now, asked) -> None:  # type: ignore[no-untyped-def]
    filters, model = Filters(), []
    for what, *given_ in steps:
        if what == "refuse":
            filters.refuse(*given_)
            model.append(given_)
        elif what == "clear":
            filters.clear(*given_)
            framework, roles = given_
            model = [one for one in model if one[0] != framework or (roles is not None and one[1] not in roles)]
        elif what == "forget":
            filters.forget(*given_)
            model = [one for one in model if one[2] != given_[0]]
        else:
            now = max(now, *given_)  # time does not run back
            filters.ended(now)
    *who, resources = asked
    expected = any(one[:3] == who and one[4] > now and one[3].covers(resources) for one in model)
    assert filters.suppresses(*who, resources, now) == expected


def test_nothing_is_suppressed_by_a_refusal_of_nothing_but_nothing() -> None:
    filters = refused(NONE)
    assert filters.suppresses("F", "r", "S", NONE, 0.0)
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1), 0.0)
