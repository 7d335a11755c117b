from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.master.allocator import Path, RoleUsage, Sorter, above, leaf, nodes
from executors.mesos.master.state import AgentRecord, ExecutorRecord, MasterOptions, MasterState, Offer, TaskRecord
from executors.mesos.resources import NONE, Resources, scalars

TOTAL = scalars(cpus=100, mem=1000)


def agent_of(total: Resources = TOTAL, name: str = "S1") -> AgentRecord:
    return AgentRecord(name, {}, total, 0.0, stream="stream")


def usage_of(*held: tuple[str, str, Resources], total: Resources = TOTAL) -> RoleUsage:
    usage = RoleUsage()
    usage.joined(agent_of(total))
    for framework, role, resources in held:
        usage.took(framework, role, resources)
    usage.turns.clear()
    return usage


def order(usage: RoleUsage, *who: tuple[str, str], weights: dict[str, float] | None = None) -> list[str]:
    """Frameworks in the sorter's order."""
    return [path[-1] for path in Sorter([leaf(role, name) for name, role in who], usage, weights or {})]


def test_nodes_are_all_on_the_way() -> None:
    assert nodes([("a", "b"), ("a", "c"), ()]) == {("a",), ("a", "b"), ("a", "c")}


def test_the_dominant_resource_counts() -> None:
    usage = usage_of(("F", "a", scalars(cpus=30, mem=10)), ("G", "b", scalars(cpus=10, mem=310)))
    assert order(usage, ("G", "b"), ("F", "a")) == ["F", "G"]


def test_weights_divide_shares() -> None:
    usage = usage_of(("F", "a", scalars(cpus=30)), ("G", "b", scalars(cpus=20)))
    assert order(usage, ("F", "a"), ("G", "b")) == ["G", "F"]
    assert order(usage, ("F", "a"), ("G", "b"), weights={"a": 2.0}) == ["F", "G"]
    assert order(usage, ("F", "a"), ("G", "b"), weights={"b": 0.5}) == ["F", "G"]


def test_shares_are_compared_exactly() -> None:
    held = ("F", "a", scalars(cpus=0.1)), ("G", "b", scalars(cpus=0.3))
    assert order(usage_of(*held), ("G", "b"), ("F", "a"), weights={"a": 0.1, "b": 0.3}) == ["F", "G"]
    assert order(usage_of(*held), ("G", "b"), ("F", "a"), weights={"a": 0.1, "b": 0.3000001}) == ["G", "F"]


def test_equal_shares_are_served_in_turn_and_then_by_name() -> None:
    usage = usage_of()
    who = ("F", "r"), ("G", "r"), ("H", "r")
    assert order(usage, *who) == ["F", "G", "H"]
    usage.took("F", "r", scalars(cpus=1))
    usage.gave_back("F", "r", scalars(cpus=1))
    assert order(usage, *who) == ["G", "H", "F"]


def test_a_role_has_what_roles_below_it_have() -> None:
    usage = usage_of(("F", "eng/a", scalars(cpus=20)), ("G", "eng/b", scalars(cpus=20)), ("H", "ops", scalars(cpus=30)))
    assert order(usage, ("F", "eng/a"), ("G", "eng/b"), ("H", "ops")) == ["H", "F", "G"]


def test_frameworks_of_a_role_are_together_a_sibling_of_the_roles_below() -> None:
    held = ("F", "eng", scalars(cpus=10)), ("G", "eng", scalars(cpus=15)), ("H", "eng/dev", scalars(cpus=20))
    who = [(name, role) for name, role, _ in held]
    assert order(usage_of(*held), *who) == ["H", "F", "G"]
    assert order(usage_of(*held), *who, weights={"eng/dev": 0.5}) == ["F", "G", "H"]
    assert order(usage_of(*held), *who, weights={"eng": 9.0}) == ["H", "F", "G"]


def test_what_is_held_by_frameworks_that_are_not_sorted_counts_for_their_role() -> None:
    usage = usage_of(("idle", "a", scalars(cpus=20)), ("G", "b", scalars(cpus=10)))
    assert order(usage, ("F", "a"), ("G", "b")) == ["G", "F"]


def test_a_framework_stands_in_each_of_its_roles() -> None:
    usage = usage_of(("F", "a", scalars(cpus=30)), ("G", "b", scalars(cpus=20)))
    paths = list(Sorter([leaf("a", "F"), leaf("b", "F"), leaf("b", "G")], usage, {}))
    assert paths == [leaf("b", "F"), leaf("b", "G"), leaf("a", "F")]


def test_resources_that_no_agent_has_do_not_count() -> None:
    usage = usage_of(("F", "a", scalars(gpus=5)), ("G", "b", scalars(cpus=1)))
    assert order(usage, ("F", "a"), ("G", "b")) == ["F", "G"]
    assert order(RoleUsage(), ("F", "a"), ("G", "b")) == ["F", "G"]


def test_order_follows_what_moved() -> None:
    usage = usage_of()
    sorter = Sorter([leaf("r", "F"), leaf("r", "G"), leaf("q", "H")], usage, {})
    usage.took("H", "q", scalars(cpus=10))
    sorter.moved(leaf("q", "H"))
    usage.took("F", "r", scalars(cpus=20))
    sorter.moved(leaf("r", "F"))
    assert [path[-1] for path in sorter] == ["H", "G", "F"]


ROLES = st.sampled_from(["*", "a", "b", "a/x", "a/y", "a/x/z"])
NAMES = st.sampled_from("FGH")
AMOUNTS = st.builds(lambda cpus, mem: scalars(cpus=cpus, mem=mem), st.integers(0, 4), st.integers(0, 40))
HELD = st.lists(st.tuples(NAMES, ROLES, AMOUNTS), max_size=12)
WEIGHTS = st.dictionaries(ROLES, st.sampled_from([0.1, 0.5, 1.0, 2.5, 3.0]))


def slowly(who: set[Path], held: list[tuple[str, str, Resources]], weights: dict[str, float]) -> list[Path]:
    """The same order by fractions, from the definition."""

    def key(node: Path) -> tuple[Fraction, int, Path]:
        mine = [resources for name, role, resources in held if leaf(role, name)[: len(node)] == node]
        amounts = [sum(one.thousandths(name) for one in mine) for name in ("cpus", "mem")]
        share = max(Fraction(amount, most) for amount, most in zip(amounts, (100_000, 1_000_000), strict=True))
        return share / Fraction(str(weights.get("/".join(node), 1.0))), len(mine), node

    def under(node: Path) -> list[Path]:
        children = {path[: len(node) + 1] for path in who if path[: len(node)] == node and path != node}
        return [path for child in sorted(children, key=key) for path in under(child)] if children else [node]

    return under(()) if who else []


@given(st.sets(st.builds(leaf, ROLES, NAMES)), HELD, HELD, WEIGHTS)
def test_the_order_is_that_of_the_definition(who, before, after, weights) -> None:  # type: ignore[no-untyped-def]
    usage = RoleUsage()
    usage.joined(agent_of())
    for one in before:
        usage.took(*one)
    sorter = Sorter(who, usage, weights)
    assert list(sorter) == slowly(who, before, weights)
    for name, role, resources in after:
        usage.took(name, role, resources)
        if leaf(role, name) in who:
            sorter.moved(leaf(role, name))
        else:
            sorter = Sorter(who, usage, weights)
    assert list(sorter) == slowly(who, before + after, weights)


def test_usage_counts_tasks_executors_and_offers_but_no_tasks_that_ended() -> None:
    agent = agent_of()
    for name, state in (("t1", "TASK_RUNNING"), ("t2", "TASK_FINISHED"), ("t3", "TASK_STAGING")):
        task = TaskRecord(name, "F", "S1", None, {}, scalars(cpus=1), "a", state)
        agent.tasks[task.key] = task
    agent.executors["F", "e"] = ExecutorRecord("e", "F", "S1", {}, scalars(cpus=0.1, mem=32), "a")
    agent.offers["o1"] = Offer("o1", "G", "S1", "a/b", scalars(cpus=10), 0.0)
    state = MasterState("M", MasterOptions(), 0.0, agents={"S1": agent})
    usage = RoleUsage.of(state)
    assert usage.total == {"cpus": 100_000, "mem": 1_000_000}
    assert usage.held[leaf("a", "F")] == {"cpus": 2100, "mem": 32_000}
    assert usage.held["a",] == usage.held[()] == {"cpus": 12_100, "mem": 32_000}
    assert usage.held["a", "b"] == usage.held[leaf("a/b", "G")] == {"cpus": 10_000}
    usage.left(agent)
    assert usage == RoleUsage()


@pytest.mark.parametrize("resources", [NONE, Resources({"ports": ((1, 2),), "names": frozenset("a")})])
def test_what_is_no_scalar_leaves_no_trace(resources: Resources) -> None:
    usage = usage_of(("F", "a", resources))
    assert usage == usage_of()


@given(HELD, st.randoms(use_true_random=False))
def test_what_is_taken_and_given_back_leaves_no_trace(held, random) -> None:  # type: ignore[no-untyped-def]
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
    for framework, role in (("F", "a/b"), ("F", "*"), ("G", "a")):
        usage.took(framework, role, scalars(cpus=1))
    usage.forget("F", ["a/b", "*", "never"])
    assert usage.turns.keys() == set(above(leaf("a", "G")))
    usage.forget("G", ["a"])
    assert not usage.turns
