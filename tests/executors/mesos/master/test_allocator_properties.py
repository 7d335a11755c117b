"""The allocator on states of any kind, beside its definition and beside counting anew."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from executors.mesos.codec import Message
from executors.mesos.master.allocator import RoleUsage, allocatable
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterState
from executors.mesos.resources import NONE, Resources, scalars
from tests.executors.mesos.master.states import allocated, offer, run, state_of

ROLES = ["*", "a", "b", "a/x", "a/y"]
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
    state.weights = draw(st.dictionaries(st.sampled_from(ROLES), st.sampled_from([0.5, 0.3, 2.0, 7.0])))
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
        path = tuple(role.split("/"))
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
def test_nothing_useful_is_left_when_nobody_refuses(state: MasterState) -> None:
    for grant in allocated(state):
        offer(state, grant)
    for agent in state.agents.values():
        for framework in state.frameworks.values():
            usable = framework.can("GPU_RESOURCES") or not agent.total.scalar("gpus")
            if usable and framework.roles - framework.suppressed:
                assert not allocatable(agent.free)


def first(state: MasterState, agent: AgentRecord) -> tuple[str, str] | None:
    """Whose turn it is on an agent, from the definition: down the tree, each time to the smallest weighted share."""
    total = Counter[str]()
    for one in state.agents.values():
        total.update(one.total.scalars())
    held = [(task.role, task.framework, task.resources) for one in state.agents.values() for task in one.tasks.values()]
    held += [(one.role, one.framework, one.resources) for one in state.offers.values()]
    seekers = {}
    for framework in state.frameworks.values():
        for role in framework.roles - framework.suppressed:
            if allocatable(agent.free) and (framework.can("GPU_RESOURCES") or not agent.total.scalar("gpus")):
                seekers[(*role.split("/"), ".", framework.id)] = (framework.id, role)

    def key(node: tuple[str, ...]) -> tuple[Fraction, int, tuple[str, ...]]:
        mine = [amounts for role, name, amounts in held if (*role.split("/"), ".", name)[: len(node)] == node]
        share = max(Fraction(sum(one.thousandths(name) for one in mine), most) for name, most in total.items())
        turns = sum((*one.role.split("/"), ".", one.framework)[: len(node)] == node for one in state.offers.values())
        return share / Fraction(str(state.weights.get("/".join(node), 1.0))), turns, node

    node: tuple[str, ...] = ()
    while seekers and node not in seekers:
        node = min({path[: len(node) + 1] for path in seekers if path[: len(node)] == node}, key=key)
    return seekers.get(node)


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
