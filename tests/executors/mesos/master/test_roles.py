from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import Keep, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import Options
from executors.mesos.messages import message
from executors.mesos.resources import scalars, to_json


def pool(*roles: str) -> Master:
    """A master with an agent of 8 cores, and a framework in some roles."""
    master = Master("M", Options(), 1000.0)
    info = {"hostname": "node1", "port": 5051, "resources": to_json(scalars(cpus=8, mem=1024))}
    master.register({"type": "REGISTER", "register": {"agent_info": info}}, "a", 1000.0)
    framework = {"name": "one", "user": "ann", "roles": list(roles), "capabilities": [{"type": "MULTI_ROLE"}]}
    if roles:
        master.subscribe(message("SUBSCRIBE", framework_info=framework), None, "f", 1000.0)
    return master


def ask(master: Master, kind: str, **payload: Any) -> list[Any]:
    return master.operate({"type": kind, kind.lower(): payload}, "ann", 1010.0)[1]


def look(master: Master, kind: str) -> Any:
    answer, _ = master.operate({"type": kind}, None, 1010.0)
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
    assert any(isinstance(effect, Keep) and effect.table == "roles" for effect in effects)
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


def test_older_quota_calls() -> None:
    master = pool("web")
    request = {"role": "web", "guarantee": to_json(scalars(cpus=2))}
    ask(master, "SET_QUOTA", quota_request=request)
    [info] = look(master, "GET_QUOTA")["status"]["infos"]
    assert (info["role"], info["guarantee"][0]["scalar"]["value"]) == ("web", 2.0)
    with pytest.raises(HTTPError):
        ask(master, "SET_QUOTA", quota_request=request)
    ask(master, "REMOVE_QUOTA", role="web")
    assert look(master, "GET_QUOTA") == {"status": {"infos": [], "configs": []}}
    with pytest.raises(HTTPError):
        ask(master, "REMOVE_QUOTA", role="web")


def test_weights_and_quota_survive_a_restart() -> None:
    master = pool()
    kept = ask(master, "UPDATE_WEIGHTS", weight_infos=[{"role": "web", "weight": 2}])
    kept += ask(master, "UPDATE_QUOTA", quota_configs=[config("web", cpus=3)])
    rows = {(effect.table, effect.key): effect for effect in kept if isinstance(effect, Keep)}
    again = Master("M", Options(), 2000.0, rows.values())
    for kind in ("GET_WEIGHTS", "GET_QUOTA"):
        assert look(again, kind) == look(master, kind)
