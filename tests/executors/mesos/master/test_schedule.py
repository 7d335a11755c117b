from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos import codec
from executors.mesos.codec import Message
from executors.mesos.effects import Effect, Keep, Send
from executors.mesos.master import rows, schedule
from executors.mesos.master.machine import Master
from executors.mesos.master.state import Agent, Options, State
from executors.mesos.messages import identity, message
from executors.mesos.resources import scalars, to_json

NODE1, NODE2 = {"hostname": "node1", "ip": "10.0.0.1"}, {"hostname": "node2"}


def at(start: float) -> Message:
    return {"start": {"nanoseconds": int(start * 1e9)}, "duration": {"nanoseconds": 10**9}}


def window(start: float, *machines: Message) -> Message:
    return {"machine_ids": list(machines), "unavailability": at(start)}


def pool() -> Master:
    """A master with agents on node1, node2 and node3."""
    master = Master("M", Options(), 1000.0)
    for number in (1, 2, 3):
        join(master, number)
    info = {"name": "one", "user": "ann"}
    master.subscribe(message("SUBSCRIBE", framework_info=info), None, "f", 1000.0)
    return master


def join(master: Master, number: int, **more: Any) -> list[Message]:
    info = {"hostname": f"Node{number}", "port": 5051, "resources": to_json(scalars(cpus=8))}
    register = {"agent_info": info} | more
    return sends(master.register({"type": "REGISTER", "register": register}, f"a{number}", 1001.0))


def sends(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def ask(master: Master, kind: str, **payload: Any) -> list[Effect]:
    return master.operate({"type": kind, kind.lower(): payload}, None, 1010.0)[1]


def look(master: Master, kind: str) -> Any:
    answer, _ = master.operate({"type": kind}, None, 1010.0)
    assert answer is not None and codec.encode(answer)
    return answer[kind.lower()]


def unavailable(master: Master) -> dict[str, Message | None]:
    return {agent.hostname: agent.unavailability for agent in master.state.agents.values()}


def test_agents_on_scheduled_machines_will_be_unavailable() -> None:
    master = pool()
    windows = [window(2000, NODE1), window(3000, NODE2)]
    said = sends(ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": windows}))
    assert unavailable(master) == {"Node1": at(2000), "Node2": at(3000), "Node3": None}
    assert look(master, "GET_MAINTENANCE_SCHEDULE") == {"schedule": {"windows": windows}}
    status = look(master, "GET_MAINTENANCE_STATUS")["status"]
    assert [one["id"] for one in status["draining_machines"]] == [NODE1, NODE2]
    assert status["down_machines"] == []
    offered = [offer for one in said if one["type"] == "OFFERS" for offer in one["offers"]["offers"]]
    assert {offer["hostname"]: offer["unavailability"] for offer in offered} == {"Node1": at(2000), "Node2": at(3000)}


def test_a_new_schedule_replaces_the_old_one() -> None:
    master = pool()
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1)]})
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(4000, NODE2)]})
    assert unavailable(master) == {"Node1": None, "Node2": at(4000), "Node3": None}
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={})
    assert set(unavailable(master).values()) == {None}


def test_what_an_agent_has_told_itself_holds_where_it_is_earlier_and_afterwards() -> None:
    master = Master("M", Options(), 1000.0)
    join(master, 1, unavailability=at(2500))
    join(master, 2, unavailability=at(2500))
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1), window(3000, NODE2)]})
    assert unavailable(master) == {"Node1": at(2000), "Node2": at(2500)}
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2600, NODE1), window(2400, NODE2)]})
    assert unavailable(master) == {"Node1": at(2500), "Node2": at(2400)}
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": []})
    assert unavailable(master) == {"Node1": at(2500), "Node2": at(2500)}


def test_when_an_agent_says_that_it_ends_the_schedule_still_holds() -> None:
    master = pool()
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1), window(3000, NODE2)]})
    for number in (1, 2, 3):
        said = sends(master.from_agent(f"a{number}", [message("UNAVAILABLE", **at(2500))], 1011.0)[0])
        rescinded = [one for one in said if one["type"] == "RESCIND"]
        assert len(rescinded) == (number != 1), "nothing has changed for the first"
    assert unavailable(master) == {"Node1": at(2000), "Node2": at(2500), "Node3": at(2500)}
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": []})
    assert set(map(str, unavailable(master).values())) == {str(at(2500))}


def test_a_master_that_is_started_again_keeps_to_the_schedule() -> None:
    master = pool()
    windows = [window(2000, NODE1), window(3000, NODE2)]
    kept = ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": windows})
    kept += ask(master, "START_MAINTENANCE", machines=[NODE2])
    last = {(one.table, one.key): one for one in kept if isinstance(one, Keep)}
    again = Master("M", Options(), 1020.0, last.values())
    assert look(again, "GET_MAINTENANCE_SCHEDULE") == {"schedule": {"windows": windows}}
    for number in (1, 2, 3):
        join(again, number)
    assert unavailable(again) == {"Node1": at(2000), "Node3": None}


def test_agents_that_join_later_are_told_too() -> None:
    master = Master("M", Options(), 1000.0)
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1, NODE2)]})
    join(master, 1)
    join(master, 2, unavailability=at(1500))
    assert unavailable(master) == {"Node1": at(2000), "Node2": at(1500)}


def test_maintenance_starts_and_stops() -> None:
    master = pool()
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1, NODE2)]})
    said = ask(master, "START_MAINTENANCE", machines=[NODE1])
    assert unavailable(master).keys() == {"Node2", "Node3"}
    assert [one.stream for one in said if isinstance(one, Send) and one.message["type"] == "SHUTDOWN"] == ["a1"]
    status = look(master, "GET_MAINTENANCE_STATUS")["status"]
    assert status["down_machines"] == [NODE1]
    assert [one["id"] for one in status["draining_machines"]] == [NODE2]
    assert "SHUTDOWN" in [one["type"] for one in join(master, 1)]
    assert unavailable(master).keys() == {"Node2", "Node3"}
    with pytest.raises(HTTPError, match=r"node1 10\.0\.0\.1 is down already"):
        ask(master, "START_MAINTENANCE", machines=[NODE1])
    with pytest.raises(HTTPError, match=r"node1 10\.0\.0\.1 is down: stop"):
        ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE2)]})
    with pytest.raises(HTTPError, match="node2 is not down"):
        ask(master, "STOP_MAINTENANCE", machines=[NODE1, NODE2])
    ask(master, "STOP_MAINTENANCE", machines=[NODE1])
    assert look(master, "GET_MAINTENANCE_SCHEDULE") == {"schedule": {"windows": [window(2000, NODE2)]}}
    join(master, 1)
    assert unavailable(master) == {"Node1": None, "Node2": at(2000), "Node3": None}


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        ([window(2000)], "found none"),
        ([window(2000, NODE1), window(3000, NODE1)], "appears more than once"),
        ([window(2000, {})], "'hostname' or 'ip'"),
        ([window(2000, {"ip": "10.0.0"})], "to be an address"),
        ([{"machine_ids": [NODE1]}], "unavailability.start.nanoseconds"),
        ([{"machine_ids": [NODE1], "unavailability": {"start": {"nanoseconds": 10**400}}}], "64 bits"),
        ([window(2000, NODE1) | {"unavailability": at(1) | {"duration": {"nanoseconds": -1}}}], "not to be negative"),
        ([5], "expected an object"),
    ],
)
def test_schedules_are_checked(windows: list[Any], text: str) -> None:
    master = pool()
    with pytest.raises(HTTPError, match=text):
        ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": windows})
    assert look(master, "GET_MAINTENANCE_SCHEDULE") == {"schedule": {"windows": []}}


def test_schedules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MACHINES_MOST", 1)
    with pytest.raises(HTTPError, match="at most 1 machines, found 2"):
        ask(pool(), "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1, NODE2)]})


@pytest.mark.parametrize("machines", [[], [NODE1], [{"hostname": "elsewhere"}]])
def test_only_scheduled_machines_can_be_taken_down(machines: list[Message]) -> None:
    with pytest.raises(HTTPError):
        ask(pool(), "START_MAINTENANCE", machines=machines)


def test_schedule_is_kept() -> None:
    master = pool()
    windows = [window(2000, NODE1, NODE2)]
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": windows})
    effects = ask(master, "START_MAINTENANCE", machines=[NODE2])
    [(table, key, row)] = [item for item in effects if isinstance(item, Keep) and item.table == "maintenance"]
    assert row is not None
    state = State("M", Options(), 0.0)
    rows.restore(state, [Keep(table, key, codec.decode(codec.encode(row)))])
    assert (state.windows, state.down) == (windows, {("node2", "")})


@pytest.mark.parametrize(
    ("machine", "ip", "on_it"),
    [
        (("node1", ""), None, True),
        (("node1", "10.0.0.1"), None, True),
        (("node1", "10.0.0.1"), "10.0.0.1", True),
        (("node1", "10.0.0.1"), "10.0.0.2", False),
        (("", "10.0.0.1"), "10.0.0.1", True),
        (("", "10.0.0.1"), None, False),
        (("node2", ""), "10.0.0.1", False),
        (("node2", "10.0.0.1"), "10.0.0.1", False),
    ],
)
def test_machines_are_known_by_name_or_address(machine: tuple[str, str], ip: str | None, on_it: bool) -> None:
    state = State("M", Options(), 0.0, down={machine})
    assert schedule.is_down(state, Agent("S", {"hostname": "Node1"}, scalars(), 0.0, ip=ip)) is on_it


def test_agents_that_are_not_back_yet_are_scheduled() -> None:
    info = {"hostname": "Node1", "port": 5051, "resources": to_json(scalars(cpus=8)), "id": identity("M-S1")}
    register = {"type": "REGISTER", "register": {"agent_info": info}}
    effects = Master("M", Options(), 1000.0).register(register, "a1", 1001.0)
    master = Master("M", Options(), 1020.0, [effect for effect in effects if isinstance(effect, Keep)])
    assert "M-S1" in master.state.recovered
    effects = ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1)]})
    assert master.state.recovered["M-S1"].unavailability == at(2000)
    assert "agents" in {effect.table for effect in effects if isinstance(effect, Keep)} and sends(effects) == []
    master.register(register, "a1", 1021.0)
    assert unavailable(master) == {"Node1": at(2000)}


def test_status_has_what_frameworks_have_answered() -> None:
    master = pool()
    ask(master, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window(2000, NODE1)]})
    answer = {"status": "ACCEPT", "framework_id": identity("F"), "timestamp": {"nanoseconds": 1}}
    next(iter(master.state.agents.values())).answers["F"] = answer
    assert look(master, "GET_MAINTENANCE_STATUS")["status"]["draining_machines"] == [
        {"id": NODE1, "statuses": [answer]}
    ]
