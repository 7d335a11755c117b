from __future__ import annotations

from typing import Any

import pytest

from asa.core.units import MIB
from coscheduler.agents.containers import Offers
from coscheduler.real.machine import SharedNode
from executors.mesos.codec import BadMessage, Message
from executors.mesos.framework import TaskNeed
from executors.mesos.messages import identity
from executors.mesos.resources import scalars, to_json


def offer(name: str, agent: str, cpus: float = 4.0, mem: float = 1024.0, **more: Any) -> Message:
    """An offer message; the hostname is the agent's name in small letters."""
    found = {"id": identity(name), "agent_id": identity(agent), "hostname": agent.lower()}
    return found | {"resources": to_json(scalars(cpus=cpus, mem=mem), "cosched")} | more


def scalar(name: str, value: float) -> Message:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def test_a_node_that_was_offered_in_part() -> None:
    """What an agent's earlier containers had is offered once these have ended."""
    offers = Offers()
    capacity = {"attributes": [scalar("capacity", 1.0)]}
    offers.offered(offer("O1", "A", cpus=2.2, mem=512.0, **capacity), 1.0)
    assert [node.cores for node in offers.nodes] == [2]
    offers.offered(offer("O2", "A", cpus=1.8, mem=512.0, **capacity), 2.0)
    assert offers.nodes == (SharedNode("a", 4, 1 << 30, 0.25),)


def test_a_node_is_what_its_agent_offers_first() -> None:
    offers = Offers()
    offers.offered(offer("O1", "B", cpus=2.5), 1.0)
    offers.offered(offer("O2", "A", attributes=[scalar("capacity", 1.0)]), 1.0)
    first = (SharedNode("a", 4, 1 << 30, 0.25), SharedNode("b", 2, 1 << 30))
    assert offers.nodes == first
    offers.spent(offers.look("B"))  # type: ignore[arg-type]
    offers.offered(offer("O3", "B", cpus=0.5), 2.0)
    assert offers.nodes == first
    assert offers.find("b") == ("B", first[1])
    assert offers.find("c") is None


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_capacity_that_makes_no_sense_is_passed_over(value: float) -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", attributes=[scalar("capacity", value)]), 1.0)
    assert offers.nodes[0].speed == 1.0


def test_agents_of_one_host_have_names_of_their_own() -> None:
    offers = Offers()
    for number in range(3):
        offers.offered(offer(f"O{number}", f"S{number}", hostname="host"), 1.0)
    assert [node.name for node in offers.nodes] == ["host", "host-2", "host-3"]
    offers.lost("S1")
    offers.offered(offer("O9", "S9", hostname="host"), 2.0)
    assert offers.find("host-2") == ("S9", SharedNode("host-2", 4, 1 << 30))


def test_an_agent_without_a_whole_core_is_no_node_until_it_offers_one() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", cpus=0.6), 1.0)
    assert offers.nodes == ()
    offers.offered(offer("O2", "A", cpus=0.6, mem=0.0), 2.0)
    assert offers.nodes == (SharedNode("a", 1, 1 << 30),)


def test_offers_of_an_agent_are_one_from_which_parts_are_taken() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", cpus=1.0, mem=100.0), 1.0)
    offers.offered(offer("O2", "A", cpus=1.0, mem=50.0), 2.0)
    there = offers.look("A")
    assert there is not None
    assert there.ids == ("O1", "O2")
    assert there.take(TaskNeed(1.5, 120 * MIB)) is not None
    assert there.take(TaskNeed(0.6)) is None, "there is half a core left"
    assert there.take(TaskNeed(0.5, 30 * MIB)) is not None
    offers.spent(there)
    assert offers.look("A") is None


def test_void_offers_are_forgotten_and_nodes_stay_until_they_are_lost() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A"), 1.0)
    offers.offered(offer("O2", "A"), 1.0)
    offers.rescinded("O1")
    there = offers.look("A")
    assert there is not None
    assert there.ids == ("O2",)
    offers.void()
    assert offers.look("A") is None
    assert len(offers.nodes) == 1
    offers.lost("A")
    assert offers.nodes == ()


def test_what_is_no_offer_is_refused() -> None:
    with pytest.raises(BadMessage, match="agent_id"):
        Offers().offered({"id": identity("O1"), "resources": []}, 1.0)
