from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master.minimums import allocatable, minimums
from executors.mesos.resources import NONE, Kind, Resources, scalars
from tests.executors.mesos.master.world import MULTI, World, task_info


def demand(*sets: dict[str, float]) -> Message:
    """An ``OfferFilters``."""
    quantities = [{"quantities": {name: {"value": value} for name, value in one.items()}} for one in sets]
    return {"min_allocatable_resources": {"quantities": quantities}}


def cpus_offered(world: World, framework: str) -> list[float]:
    return [offer["resources"][0]["scalar"]["value"] for offer in world.offers(framework)]


def test_what_a_framework_says() -> None:
    info = {"offer_filters": {"a": demand({"cpus": 2, "mem": 64.5}, {"gpus": 1}), "b": demand(), "c": {}}}
    assert minimums(info) == {"a": ({"cpus": 2000, "mem": 64_500}, {"gpus": 1000}), "b": ()}
    assert minimums({}) == {}


@pytest.mark.parametrize(
    "filters",
    [
        [],
        {"a": 1},
        {"a": {"min_allocatable_resources": 1}},
        {"a": {"min_allocatable_resources": {"quantities": {}}}},
        {"a": {"min_allocatable_resources": {"quantities": [1]}}},
        {"a": demand({})},
        {"a": demand({"cpus": -1})},
        {"a": {"min_allocatable_resources": {"quantities": [{"quantities": {"cpus": {"value": "Infinity"}}}]}}},
        {"a": {"min_allocatable_resources": {"quantities": [{"quantities": {"cpus": 1}}]}}},
    ],
)
def test_what_makes_no_sense(filters: Any) -> None:
    with pytest.raises(BadMessage):
        minimums({"offer_filters": filters})
    world = World()
    refused = world.subscribe(offer_filters=filters)
    assert world.types(refused) == ["ERROR"]


@pytest.mark.parametrize(
    ("resources", "sets", "enough"),
    [
        (scalars(cpus=2, mem=100), ({"cpus": 2000, "mem": 100_000},), True),
        (scalars(cpus=2, mem=99), ({"cpus": 2000, "mem": 100_000},), False),
        (scalars(cpus=2, mem=99), ({"mem": 100_000}, {"cpus": 1000}), True),
        (scalars(disk=1), (), True),
        (NONE, (), False),
        (NONE, ({"cpus": 0},), False),
        (Resources({Kind("cpus"): 600, Kind("cpus", "a", True): 400}), ({"cpus": 1000},), True),
        (Resources({Kind("ports"): ((1, 3), (7, 7))}), ({"ports": 4000},), True),
        (Resources({Kind("ports"): ((1, 3), (7, 7))}), ({"ports": 5000},), False),
        (Resources({Kind("zones"): frozenset("ab")}), ({"zones": 2000},), True),
    ],
)
def test_enough(resources: Resources, sets: Any, enough: bool) -> None:
    assert allocatable(resources, sets) == enough


def test_no_offer_is_smaller_than_a_framework_will_have_it() -> None:
    world = World()
    agent = world.agent(resources=scalars(cpus=4))
    picky = world.subscribe(roles=["a", "b"], capabilities=[MULTI], offer_filters={"a": demand({"cpus": 3})})
    modest = world.subscribe(roles=["c"], capabilities=[MULTI])
    world.call(picky, "SUPPRESS", {"roles": ["b"]})
    assert cpus_offered(world, picky) == [4.0]
    names = [offer.id for offer in world.state.offers.values()]
    world.call(picky, "DECLINE", {"offer_ids": [{"value": name} for name in names], "filters": {"refuse_seconds": 0}})
    world.take(picky)
    world.take(modest)
    holder = next(iter(world.state.offers.values())).framework
    world.start(holder, task_info("t", agent, cpus=2), refuse_s=0)
    assert {offer.framework for offer in world.state.offers.values()} == {modest}, "two cores are left"
    world.call(picky, "REVIVE", {"roles": ["b"]})
    world.call(modest, "DECLINE", {"offer_ids": [{"value": next(iter(world.state.offers))}]})
    assert [(one.framework, one.role) for one in world.state.offers.values()] == [(picky, "b")]


def test_a_framework_may_be_content_with_crumbs() -> None:
    world = World()
    world.agent(resources=scalars(cpus=0.005, disk=10))
    others = world.subscribe(roles=["a"], capabilities=[MULTI])
    assert world.offers(others) == []
    modest = world.subscribe(roles=["a"], capabilities=[MULTI], offer_filters={"a": demand()})
    assert cpus_offered(world, modest) == [0.005]


def test_it_can_be_changed() -> None:
    world = World()
    world.agent(resources=scalars(cpus=4))
    framework = world.subscribe(roles=["a"], capabilities=[MULTI], offer_filters={"a": demand({"cpus": 5})})
    assert world.offers(framework) == []
    info = dict(world.state.frameworks[framework].info) | {"offer_filters": {"a": demand({"cpus": 4})}}
    world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info})
    assert cpus_offered(world, framework) == [4.0]
    with pytest.raises(HTTPError, match="an empty one"):
        world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info | {"offer_filters": {"a": demand({})}}})
    world.restart()
    assert world.state.frameworks[framework].info["offer_filters"] == {"a": demand({"cpus": 4})}
