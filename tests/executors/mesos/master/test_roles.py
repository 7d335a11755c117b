from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import KeepRow, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import message
from executors.mesos.resources import scalars, to_json


def pool(*roles: str) -> Master:
    """A master with an agent of 8 cores, and a framework in some roles."""
    master = Master("M", MasterOptions(), 1000.0)
    info = {"hostname": "node1", "port": 5051, "resources": to_json(scalars(cpus=8, mem=1024))}
    master.register({"type": "REGISTER", "register": {"agent_info": info}}, "a", 1000.0)
    framework = {"name": "one", "user": "ann", "roles": list(roles), "capabilities": [{"type": "MULTI_ROLE"}]}
    if roles:
        master.subscribe(message("SUBSCRIBE", framework_info=framework), None, "f", 1000.0)
    return master


def ask(master: Master, kind: str, **payload: Any) -> list[Any]:
    return master.operate({"type": kind, kind.lower(): payload}, 1010.0)[1]


def look(master: Master, kind: str) -> Any:
    answer, _ = master.operate({"type": kind}, 1010.0)
    assert answer is not None
    return answer[kind.lower()]


def kinds(effects: list[Any]) -> list[str]:
    return [effect.message["type"] for effect in effects if isinstance(effect, Send)]


def config(role: str, **limits: float) -> Message:
    return {"role": role, "limits": {name: {"value": amount} for name, amount in limits.items()}}


def test_roles_are_those_that_something_is_known_of() -> None:
    master = pool("web", "hpc")
    ask(master, "UPDATE_WEIGHTS", weight_infos=[{"role": "heavy", "weight": 3}])
    ask(master, "UPDATE_QUOTA", quota_configs=[config("tight", cpus=1)])
    found = {role["name"]: role for role in look(master, "GET_ROLES")["roles"]}
    assert found.keys() == {"heavy", "hpc", "tight", "web"}
    assert (found["heavy"]["weight"], found["web"]["weight"]) == (3.0, 1.0)
    assert [len(found[name]["frameworks"]) for name in found] == [0, 1, 0, 1]
    [offer] = master.state.offers.values()
    assert found[offer.role]["resources"] == to_json(scalars(cpus=8, mem=1024))


def test_weights() -> None:
    master = pool("web")
    infos = [{"role": "web", "weight": 2.5}, {"role": "eng/dev", "weight": 1}]
    effects = ask(master, "UPDATE_WEIGHTS", weight_infos=infos)
    assert kinds(effects) == ["RESCIND", "OFFERS"]
    assert any(isinstance(effect, KeepRow) and effect.table == "roles" for effect in effects)
    infos.reverse()
    assert look(master, "GET_WEIGHTS") == {"weight_infos": infos}
    assert kinds(ask(master, "UPDATE_WEIGHTS", weight_infos=[{"role": "other", "weight": 2}])) == []


@pytest.mark.parametrize(
    "info",
    [
        {"role": "web", "weight": 0},
        {"role": "web", "weight": -1},
        {"role": "web", "weight": "Infinity"},
        {"role": "web", "weight": "NaN"},
        {"role": "web"},
        {"role": "a//b", "weight": 1},
        {"role": 5, "weight": 1},
        5,
    ],
)
def test_weights_are_checked_before_any_is_changed(info: Any) -> None:
    master = pool("web")
    with pytest.raises(HTTPError):
        ask(master, "UPDATE_WEIGHTS", weight_infos=[{"role": "first", "weight": 2}, info])
    assert look(master, "GET_WEIGHTS") == {"weight_infos": []}


def test_quota_bites_at_once() -> None:
    master = pool("web")
    effects = ask(master, "UPDATE_QUOTA", quota_configs=[config("web", cpus=3)])
    assert kinds(effects) == ["RESCIND", "OFFERS"]
    [offer] = master.state.offers.values()
    assert offer.resources.scalar("cpus") == 3.0
    status = look(master, "GET_QUOTA")["status"]
    assert status["configs"] == [config("web", cpus=3.0) | {"guarantees": {}}]
    ask(master, "UPDATE_QUOTA", quota_configs=[{"role": "web"}])
    [offer] = master.state.offers.values()
    assert offer.resources.scalar("cpus") == 8.0


def test_weights_and_quota_survive_a_restart() -> None:
    master = pool()
    kept = ask(master, "UPDATE_WEIGHTS", weight_infos=[{"role": "web", "weight": 2}])
    kept += ask(master, "UPDATE_QUOTA", quota_configs=[config("web", cpus=3)])
    rows = {(effect.table, effect.key): effect for effect in kept if isinstance(effect, KeepRow)}
    again = Master("M", MasterOptions(), 2000.0, rows.values())
    for kind in ("GET_WEIGHTS", "GET_QUOTA"):
        assert look(again, kind) == look(master, kind)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([config("*", cpus=1)], "cannot have quota"),
        ([config("a//b", cpus=1)], "empty parts"),
        ([config("a", cpus=1), config("a", cpus=2)], "named twice"),
        ([{"role": "a", "guarantees": {"cpus": {"value": 1}}}], "not guaranteed"),
        (["a"], "quota_config"),
        ([{}], "role"),
        ([{"role": 3}], "role"),
        ([{"role": "a", "limits": []}], "limits"),
        ([{"role": "a", "limits": {"cpus": 3}}], "limits"),
        ([config("a", cpus=-1)], "between 0 and"),
        ([{"role": "a", "limits": {"cpus": {"value": "Infinity"}}}], "between 0 and"),
        ([{"role": "a", "limits": {"cpus": {"value": "NaN"}}}], "a number"),
    ],
)
def test_quota_that_makes_no_sense_changes_nothing(configs: list[Any], words: str) -> None:
    master = pool("a")
    ask(master, "UPDATE_QUOTA", quota_configs=[config("b", cpus=5)])
    with pytest.raises(HTTPError, match=words):
        ask(master, "UPDATE_QUOTA", quota_configs=[config("b", cpus=7), *configs], force=True)
    assert master.state.quota == {"b": {"cpus": 5000}}


def test_a_limit_below_what_runs_takes_force_and_stops_new_tasks_only() -> None:
    master = pool("a/x")
    [offer] = master.state.offers.values()
    task = {
        "name": "t",
        "task_id": {"value": "t"},
        "agent_id": {"value": offer.agent},
        "command": {"value": "true"},
        "resources": to_json(scalars(cpus=4, mem=100)),
    }
    launch = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
    call = message("ACCEPT", offer_ids=[{"value": offer.id}], operations=[launch], filters={"refuse_seconds": 0})
    master.call(call | {"framework_id": {"value": offer.framework}}, None, "f", 1005.0)
    with pytest.raises(HTTPError, match=r"has 4\.0 cpus, more than 3\.0; use 'force'"):
        ask(master, "UPDATE_QUOTA", quota_configs=[config("a", cpus=3)])
    ask(master, "UPDATE_QUOTA", quota_configs=[config("a", cpus=3)], force=True)
    assert [one.resources for one in master.state.offers.values()] == [scalars(mem=924)]
