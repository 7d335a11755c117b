from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import Effect, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.shares import Usage
from executors.mesos.master.state import Agent, Options
from executors.mesos.messages import identity, message
from executors.mesos.resources import Kind, Resources, scalars, to_json

AGENT = "M-S1"


def pool() -> Master:
    """A master whose agent's resources, 8 cores and 1024 MiB, are offered to a framework in role web."""
    master = Master("M", Options(), 1000.0)
    info = {"hostname": "node1", "port": 5051, "resources": to_json(scalars(cpus=8, mem=1024))}
    master.register({"type": "REGISTER", "register": {"agent_info": info}}, "a", 1000.0)
    framework = {"name": "one", "user": "ann", "roles": ["web"], "capabilities": [{"type": "MULTI_ROLE"}]}
    master.subscribe(message("SUBSCRIBE", framework_info=framework), None, "f", 1000.0)
    return master


def cpus(amount: float, role: str = "hpc", principal: str | None = None) -> Message:
    reservation = {"type": "DYNAMIC", "role": role} | ({} if principal is None else {"principal": principal})
    return {"name": "cpus", "type": "SCALAR", "scalar": {"value": amount}, "reservations": [reservation]}


def ask(master: Master, kind: str, resources: Any, principal: str | None = "ann", **more: Any) -> list[Message]:
    payload = {"agent_id": identity(AGENT), "resources": resources} | more
    effects: list[Effect] = master.operate({"type": kind, kind.lower(): payload}, principal, 1010.0)[1]
    return [effect.message for effect in effects if isinstance(effect, Send)]


def agent(master: Master) -> Agent:
    return master.state.agents[AGENT]


def launch(master: Master, amount: float) -> None:
    [offer] = master.state.offers.values()
    task = {
        "name": "t",
        "task_id": identity("t"),
        "agent_id": identity(AGENT),
        "command": {"value": "true"},
        "resources": to_json(scalars(cpus=amount)),
    }
    operations = [{"type": "LAUNCH", "launch": {"task_infos": [task]}}]
    call = message("ACCEPT", offer_ids=[identity(offer.id)], operations=operations, filters={"refuse_seconds": 0})
    master.call(call | {"framework_id": identity(offer.framework)}, None, "f", 1005.0)


def test_what_is_offered_can_be_reserved() -> None:
    master = pool()
    said = ask(master, "RESERVE_RESOURCES", [cpus(3)])
    assert [one["type"] for one in said] == ["RESCIND", "OFFERS"]
    mine = Resources({Kind("cpus", "hpc", dynamic=True, principal="ann"): 3000})
    assert agent(master).total == scalars(cpus=5, mem=1024) + mine
    [offer] = master.state.offers.values()
    assert offer.resources == scalars(cpus=5, mem=1024)  # role web gets what is left
    ask(master, "UNRESERVE_RESOURCES", [cpus(1)])
    assert agent(master).total.reserved("hpc").scalar("cpus") == 2.0
    ask(master, "UNRESERVE_RESOURCES", [cpus(2, principal="ann")], principal="bob")
    assert agent(master).total == scalars(cpus=8, mem=1024)


def test_totals_stay_right() -> None:
    master = pool()
    ask(master, "RESERVE_RESOURCES", [cpus(3)])
    usage, counted = master._core.usage, Usage.of(master.state)
    for name in ("total", "open"):
        assert getattr(usage, name) == getattr(counted, name)
    assert usage.charged(("hpc",), "cpus") == 3000


def test_what_is_used_cannot_be_reserved() -> None:
    master = pool()
    launch(master, 6)
    with pytest.raises(HTTPError, match="cpus of role '\\*'") as refused:
        ask(master, "RESERVE_RESOURCES", [cpus(3)])
    assert refused.value.status == 409
    assert len(master.state.offers) == 1  # nothing has changed
    ask(master, "RESERVE_RESOURCES", [cpus(2)])
    assert agent(master).free + agent(master).offered == agent(master).total - scalars(cpus=6)


def test_what_is_not_reserved_cannot_be_unreserved() -> None:
    master = pool()
    ask(master, "RESERVE_RESOURCES", [cpus(2)])
    for item in (cpus(3), cpus(1, role="web"), cpus(1, principal="bob")):
        with pytest.raises(HTTPError, match="does not have this much"):
            ask(master, "UNRESERVE_RESOURCES", [item])
    assert agent(master).total.reserved("hpc").scalar("cpus") == 2.0


@pytest.mark.parametrize(
    ("resources", "more", "text"),
    [
        ([], {}, "found none"),
        ([to_json(scalars(cpus=1))[0]], {}, "dynamic reservation"),
        ([cpus(1, role="*")], {}, "name a role"),
        ([cpus(1, role="a//b")], {}, "empty parts"),
        ([cpus(1, principal="bob")], {}, "by 'bob'"),
        ([cpus(-1)], {}, "between 0"),
        ([5], {}, "object"),
        ([cpus(1)], {"source": [cpus(1, role="web")]}, "unreserve it first"),
        ([cpus(1)], {"agent_id": identity("nobody")}, "not registered"),
        (None, {}, "to be a list"),
    ],
)
def test_calls_are_checked(resources: Any, more: Message, text: str) -> None:
    master = pool()
    with pytest.raises(HTTPError, match=text):
        ask(master, "RESERVE_RESOURCES", resources, **more)
    assert agent(master).total == scalars(cpus=8, mem=1024)


def test_offers_that_are_not_in_the_way_stay() -> None:
    master = pool()
    limits = {"quota_configs": [{"role": "web", "limits": {"cpus": {"value": 3}}}]}
    master.operate({"type": "UPDATE_QUOTA", "update_quota": limits}, None, 1005.0)
    before = set(master.state.offers)
    assert ask(master, "RESERVE_RESOURCES", [cpus(5)]) == []
    assert set(master.state.offers) == before
    assert [one["type"] for one in ask(master, "RESERVE_RESOURCES", [cpus(1)])] == ["RESCIND", "OFFERS"]
