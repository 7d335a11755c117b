from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import quota
from executors.mesos.master.quota import Budget, Quota
from executors.mesos.master.shares import Usage, leaf
from executors.mesos.master.state import Agent, Offer, Options, State, Task
from executors.mesos.resources import NONE, Kind, Resources, parse, scalars

TOTAL = scalars(cpus=100, mem=1000)
PORTS = Resources({Kind("ports"): ((31000, 32000),)})


def state_of(total: Resources = TOTAL, used: Resources = NONE, role: str = "a") -> State:
    """One agent, on which a task of a role uses some of it."""
    agent = Agent("S1", {}, total, 0.0, stream="stream", used=used)
    agent.tasks["F", "t"] = Task("t", "F", "S1", None, {}, used, role, "TASK_RUNNING")
    return State("M", Options(), 0.0, agents={"S1": agent})


def config(role: str, limits: Message | None = None, guarantees: Message | None = None) -> Message:
    def scalars_of(amounts: Message | None) -> Message:
        return {name: {"value": amount} for name, amount in (amounts or {}).items()}

    return {"role": role, "limits": scalars_of(limits), "guarantees": scalars_of(guarantees)}


def update(*configs: Message, state: State | None = None, force: bool = False) -> Quota:
    return quota.update(state or state_of(), {"force": force, "quota_configs": list(configs)})


def test_update_sets_limits_and_guarantees() -> None:
    found = update(config("a", {"cpus": 8, "mem": 0}, {"cpus": 2.5}), config("b/c", {"cpus": "3"}))
    assert found == Quota({"a": {"cpus": 8000, "mem": 0}, "b/c": {"cpus": 3000}}, {"a": {"cpus": 2500}})


def test_update_replaces_and_removes() -> None:
    state = state_of()
    state.quota, state.guarantees = (
        {"a": {"cpus": 8000, "mem": 1}, "b": {"cpus": 1}, "c": {"mem": 5}},
        {"b": {"mem": 1}},
    )
    found = update(config("a", {"cpus": 9}), {"role": "b"}, state=state)
    assert found == Quota({"a": {"cpus": 9000}, "c": {"mem": 5}}, {})
    assert state.quota["a"] == {"cpus": 8000, "mem": 1}


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([config("*", {"cpus": 1})], "cannot have quota"),
        ([config("a//b", {"cpus": 1})], "empty parts"),
        ([config("a", {"cpus": 1}), config("a", {"cpus": 2})], "named twice"),
        ([config("a", {"cpus": 1}, {"cpus": 2})], "limited to 1.0 cpus, but guaranteed 2.0"),
        ([config("a", {"cpus": 1}), config("a/b", {}, {"cpus": 2})], "limited to 1.0 cpus, but guaranteed 2.0"),
        ([config("a", {"cpus": 9}), config("a/b", {}, {"cpus": 5}), config("a/c", {}, {"cpus": 5})], "guaranteed 10"),
    ],
)
def test_what_can_never_be_kept_is_refused(configs: list[Message], words: str) -> None:
    with pytest.raises(HTTPError, match=words):
        update(*configs, force=True)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"quota_configs": {}},
        {"quota_configs": ["a"]},
        {"quota_configs": [{}]},
        {"quota_configs": [{"role": 3}]},
        {"quota_configs": [{"role": "a", "limits": []}]},
        {"quota_configs": [{"role": "a", "limits": {"cpus": 3}}]},
        {"quota_configs": [{"role": "a", "limits": {"cpus": {"value": -1}}}]},
        {"quota_configs": [{"role": "a", "limits": {"cpus": {"value": "Infinity"}}}]},
        {"quota_configs": [{"role": "a", "limits": {"cpus": {"value": "NaN"}}}]},
        {"quota_configs": [{"role": "a", "guarantees": {"c.p": {"value": "x"}}}]},
        {"quota_configs": [], "force": "yes"},
    ],
)
def test_odd_shapes_are_bad_messages(payload: Message) -> None:
    with pytest.raises(BadMessage):
        quota.update(state_of(), payload)


def test_names_may_have_dots() -> None:
    assert update(config("a", {"x.y": 1})).limits == {"a": {"x.y": 1000}}


def test_more_than_agents_have_is_guaranteed_by_force_only() -> None:
    configs = config("a", {}, {"cpus": 60}), config("b", {}, {"cpus": 41})
    with pytest.raises(HTTPError, match=r"101\.0 cpus would be guaranteed, agents have 100\.0; use 'force'"):
        update(*configs)
    assert update(*configs, force=True).guarantees == {"a": {"cpus": 60_000}, "b": {"cpus": 41_000}}


def test_limits_below_what_is_used_are_set_by_force_only() -> None:
    state = state_of(used=scalars(cpus=9), role="a/b")
    with pytest.raises(HTTPError, match=r"has 9\.0 cpus, more than 8\.0"):
        update(config("a", {"cpus": 8}), state=state)
    assert update(config("a", {"cpus": 8}), state=state, force=True).limits == {"a": {"cpus": 8000}}
    assert update(config("a", {"cpus": 9}), state=state).limits == {"a": {"cpus": 9000}}


def test_what_is_only_offered_is_no_reason_against_a_limit() -> None:
    state = state_of(used=scalars(cpus=5))
    offer = Offer("O1", "F", "S1", "a", scalars(cpus=95), 0.0)
    state.offers["O1"] = state.agents["S1"].offers["O1"] = offer
    state.offers["O2"] = state.agents["S1"].offers["O2"] = Offer("O2", "F", "S1", "*", scalars(cpus=5), 0.0, True)
    assert update(config("a", {"cpus": 5}), state=state).limits == {"a": {"cpus": 5000}}
    with pytest.raises(HTTPError):
        update(config("a", {"cpus": 4}), state=state)


def guarantee(**amounts: float) -> list[Message]:
    return [{"name": name, "type": "SCALAR", "scalar": {"value": x}, "role": "*"} for name, x in amounts.items()]


def test_the_old_call_sets_a_guarantee_that_is_the_limit() -> None:
    found = quota.set_guarantee(state_of(), {"role": "a", "guarantee": guarantee(cpus=8, mem=100)})
    assert found == Quota({"a": {"cpus": 8000, "mem": 100_000}}, {"a": {"cpus": 8000, "mem": 100_000}})


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"role": "*", "guarantee": guarantee(cpus=1)}, HTTPError),
        ({"role": "b", "guarantee": guarantee(cpus=1)}, HTTPError),
        ({"role": "a", "guarantee": guarantee(cpus=101)}, HTTPError),
        ({"guarantee": guarantee(cpus=1)}, BadMessage),
        ({"role": "a"}, BadMessage),
        ({"role": "a", "guarantee": [{"name": "cpus", "scalar": {"value": 1}, "role": "a"}]}, BadMessage),
        ({"role": "a", "guarantee": [{"name": "cpus", "scalar": {"value": 1}, "revocable": {}}]}, BadMessage),
        ({"role": "a", "guarantee": [{"name": "x", "type": "SET", "set": {"item": ["y"]}}]}, BadMessage),
    ],
)
def test_the_old_call_is_checked(request_: Message, error: type[Exception]) -> None:
    state = state_of()
    state.quota = {"b": {"cpus": 1}}
    with pytest.raises(error):
        quota.set_guarantee(state, request_)


def test_the_old_call_may_be_forced() -> None:
    found = quota.set_guarantee(state_of(), {"role": "a", "force": True, "guarantee": guarantee(cpus=101)})
    assert found.limits == {"a": {"cpus": 101_000}}


def test_quota_is_removed() -> None:
    state = state_of()
    state.quota, state.guarantees = {"a": {"cpus": 1}, "b": {"cpus": 1}}, {"a": {"cpus": 1}, "c": {"cpus": 1}}
    assert quota.remove(state, "a") == Quota({"b": {"cpus": 1}}, {"c": {"cpus": 1}})
    assert quota.remove(state, "c") == Quota(state.quota, {"a": {"cpus": 1}})
    with pytest.raises(HTTPError, match="'d' has no quota"):
        quota.remove(state, "d")


AMOUNTS = st.dictionaries(st.sampled_from(["cpus", "mem", "x.y"]), st.integers(1, 10**12), min_size=1)


@given(st.dictionaries(st.sampled_from(["a", "b", "a/c"]), AMOUNTS))
def test_what_is_told_can_be_set_again(limits: dict[str, dict[str, int]]) -> None:
    state, again = state_of(), state_of()
    state.quota = limits
    told = quota.status(state)
    assert told["infos"] == []
    assert quota.update(again, {"quota_configs": told["configs"]}) == Quota(limits, {})


def test_guarantees_are_told_in_both_forms() -> None:
    state = state_of()
    state.guarantees = {"a": {"cpus": 2500}}
    told = quota.status(state)
    assert told["configs"] == [{"role": "a", "guarantees": {"cpus": {"value": 2.5}}, "limits": {}}]
    (info,) = told["infos"]
    assert (info["role"], parse(info["guarantee"])) == ("a", scalars(cpus=2.5))


def budget(
    limits: dict[str, Any] | None = None,
    guarantees: dict[str, Any] | None = None,
    *held: tuple[str, Resources],
    total: Resources = TOTAL,
) -> Budget:
    """Limits and guarantees in whole units."""
    usage = Usage()
    usage.joined(Agent("S1", {}, total, 0.0))
    for role, resources in held:
        usage.took("F", role, resources)

    def thousandths(quotas: dict[str, Any] | None) -> dict[str, dict[str, int]]:
        return {role: {name: x * 1000 for name, x in amounts.items()} for role, amounts in (quotas or {}).items()}

    return Budget(thousandths(limits), thousandths(guarantees), usage)


SOME = scalars(cpus=10, mem=100)


def part(budget: Budget, role: str, resources: Resources = SOME, *, guaranteed: bool = False) -> Resources:
    return budget.part(leaf(role, "F"), resources, guaranteed=guaranteed)


def test_without_quota_all_may_be_offered() -> None:
    assert part(budget(), "a") is SOME


def test_scalars_are_cut_at_the_limit() -> None:
    assert part(budget({"a": {"cpus": 8}}, None, ("a", scalars(cpus=5))), "a") == scalars(cpus=3, mem=100)
    assert part(budget({"a": {"cpus": 8}}, None, ("a", scalars(cpus=8))), "a") == scalars(mem=100)
    assert part(budget({"a": {"cpus": 8}}, None, ("a", scalars(cpus=9))), "a") == scalars(mem=100)
    assert part(budget({"a": {"cpus": 8}}, None, ("a", scalars(cpus=5))), "b") == SOME


def test_a_limit_holds_for_roles_below() -> None:
    both = budget({"a": {"cpus": 8}, "a/b": {"cpus": 4}}, None, ("a/b", scalars(cpus=1)), ("a/c", scalars(cpus=5)))
    assert part(both, "a/b") == scalars(cpus=2, mem=100)
    assert part(both, "a") == scalars(cpus=2, mem=100)
    tight = budget({"a": {"cpus": 8}, "a/b": {"cpus": 4}}, None, ("a/b", scalars(cpus=3)))
    assert part(tight, "a/b/d") == scalars(cpus=1, mem=100)
    assert part(tight, "ab") == SOME


def test_what_is_reserved_or_revocable_or_no_scalar_is_not_cut() -> None:
    rest = Resources({Kind("cpus", "a", dynamic=True): 5000, Kind("cpus", revocable=True): 7000}) + PORTS
    assert part(budget({"a": {"cpus": 0, "ports": 0}}), "a", scalars(cpus=4) + rest) == rest


def test_two_kinds_of_one_scalar_keep_one_limit() -> None:
    odd = Resources({Kind("cpus"): 4000, Kind("cpus", principal="somebody"): 4000})
    assert part(budget({"a": {"cpus": 5}}), "a", odd).scalar("cpus") == 5


def test_reservations_count_against_the_limit() -> None:
    total = scalars(cpus=100) + Resources({Kind("cpus", "a"): 5000})
    assert part(budget({"a": {"cpus": 8}}, total=total), "a") == scalars(cpus=3, mem=100)


def test_what_is_owed_to_others_is_left() -> None:
    others = budget(None, {"b": {"cpus": 95}})
    assert part(others, "a") == scalars(cpus=5, mem=100)
    assert part(others, "b") == SOME
    assert part(budget(None, {"b": {"cpus": 95}}, ("b", scalars(cpus=50)), ("c", scalars(cpus=3))), "a") == scalars(
        cpus=2, mem=100
    )
    assert part(budget(None, {"b": {"cpus": 105}}), "a") == scalars(mem=100)


def test_guaranteed_rounds_are_for_those_who_are_owed_something() -> None:
    some = budget(None, {"a": {"cpus": 4}, "b": {"cpus": 95}}, ("b", scalars(cpus=92)), ("a", scalars(cpus=1)))
    assert part(some, "a", guaranteed=True) == scalars(cpus=3, mem=100)
    assert part(some, "b", guaranteed=True) == scalars(cpus=3, mem=100)
    assert part(some, "c", guaranteed=True) == NONE
    assert part(some, "a", scalars(mem=5), guaranteed=True) == NONE
    assert part(some, "c") == scalars(cpus=1, mem=100)


def test_what_is_guaranteed_below_counts_for_the_role() -> None:
    nested = budget(None, {"a": {"cpus": 10}, "a/b": {"cpus": 6}}, total=scalars(cpus=12, mem=1000))
    assert part(nested, "c") == scalars(cpus=2, mem=100)
    assert part(nested, "a") == scalars(cpus=6, mem=100)
    assert part(nested, "a/b") == SOME
    met = budget(None, {"a": {"cpus": 10}, "a/b": {"cpus": 6}}, ("a", scalars(cpus=8)), total=scalars(cpus=14))
    assert part(met, "a") == scalars(mem=100)
    assert part(met, "a/b") == scalars(cpus=6, mem=100)


ROLES = ["a", "b", "a/x", "a/y", "a/x/z"]
QUOTAS = st.dictionaries(st.sampled_from(ROLES), st.dictionaries(st.just("cpus"), st.integers(0, 9)))
HELD = st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 3).map(lambda cpus: scalars(cpus=cpus))), max_size=6)


@given(QUOTAS, QUOTAS, HELD, st.sampled_from(ROLES), st.integers(1, 10))
def test_a_part_keeps_limits_and_what_is_owed(limits, guarantees, held, role, cpus) -> None:  # type: ignore[no-untyped-def]
    before = budget(limits, guarantees, *held, total=scalars(cpus=30))
    free = 30 - sum(int(resources.scalar("cpus")) for _, resources in held)
    given_ = part(before, role, scalars(cpus=min(cpus, free)))
    after = budget(limits, guarantees, *held, (role, given_), total=scalars(cpus=30))

    def charged(node: str, more: Resources) -> float:
        mine = [*held, (role, more)]
        return sum(one.scalar("cpus") for name, one in mine if name == node or name.startswith(node + "/"))

    for node, amounts in limits.items():
        if given_ and (role == node or role.startswith(node + "/")):
            assert charged(node, given_) <= amounts.get("cpus", math.inf)
    missing = after.missing((), "cpus") / 1000
    short = before.missing((), "cpus") / 1000 - free
    assert missing - (free - given_.scalar("cpus")) <= max(0, short)
