from __future__ import annotations

import json
from typing import Any

import pytest

from executors.mesos import codec
from executors.mesos.master import legacy
from executors.mesos.master.state import Agent, Executor, Framework, Offer, Options, State, Task
from executors.mesos.messages import task_status
from executors.mesos.resources import Kind, Resources, scalars

PATHS = """version health flags state state.json state-summary slaves frameworks tasks roles weights quota
metrics/snapshot maintenance/schedule maintenance/status"""
SECRET = "aHVzaCBodXNo"


def full() -> State:
    state = State("M", Options(hostname="10.0.0.9", port=5050), started=1000.0)
    kind = Kind("cpus", "hpc", dynamic=True, principal="ann")
    total = scalars(cpus=6, mem=1024) + Resources({kind: 2000, Kind("ports"): ((31000, 32000), (40000, 40001))})
    attributes = [
        {"name": "slurm_job_id", "type": "TEXT", "text": {"value": "4711"}},
        {"name": "speed", "type": "SCALAR", "scalar": {"value": 2.5}},
        {"name": "slots", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 3}]}},
        {"name": "racks", "type": "SET", "set": {"item": ["b", "a"]}},
        {"name": "odd", "type": "SCALAR", "scalar": 5},
    ]
    info = {"id": {"value": "S1"}, "hostname": "node1", "port": 5051, "attributes": attributes}
    agent = Agent("S1", info, total, 1001.0, stream="a", reregistered=1002.0, ip="10.0.0.1")
    agent.used, agent.offered = scalars(cpus=1), scalars(cpus=2)
    state.agents["S1"] = agent
    state.recovered["S2"] = Agent("S2", {"hostname": "node2", "attributes": 5}, scalars(), 900.0)
    capabilities = [{"type": "MULTI_ROLE"}]
    known = {"name": "one", "user": "ann", "hostname": "login1", "capabilities": capabilities, "labels": 5}
    framework = Framework("F1", known, frozenset({"hpc"}), 1003.0, stream="f", principal="ann")
    state.frameworks["F1"] = framework
    for number, word in enumerate(("RUNNING", "STAGING", "FAILED", "UNREACHABLE")):
        task = launched(f"t{number}", f"TASK_{word}", 1010.0 + number)
        if word == "UNREACHABLE":
            framework.unreachable[task.id] = task
        elif word == "FAILED":
            framework.completed.append(task)
        else:
            framework.tasks[task.id] = agent.tasks[task.key] = task
    variable = {"name": "TOKEN", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": SECRET}}}
    command = {"value": "run", "arguments": ["run", "-x"], "environment": {"variables": [variable]}}
    agent.executors["F1", "e1"] = Executor("e1", "F1", "S1", {"command": command}, scalars(cpus=0.1), "hpc")
    offer = Offer("O1", "F1", "S1", "hpc", scalars(cpus=2), 1004.0)
    state.offers["O1"] = agent.offers["O1"] = framework.offers["O1"] = offer
    older = Framework("F0", {"name": "old"}, frozenset({"*"}), 990.0, disconnected=995.0)
    older.completed.append(launched("t9", "TASK_FINISHED", 980.0))
    state.completed["F0"] = older
    state.quota["hpc"] = {"cpus": 4000}
    return state


def launched(name: str, state: str, since: float) -> Task:
    info = {"name": "work", "labels": {"labels": [{"key": "a"}]}, "limits": {"cpus": {"value": "Infinity"}, "mem": 5}}
    status = task_status(
        name, state, since, source="SOURCE_EXECUTOR", container_status={"container_id": {"value": "c"}}
    )
    statuses = [] if state == "TASK_STAGING" else [status]
    return Task(name, "F1", "S1", "e1" if name == "t0" else None, info, scalars(cpus=1), "hpc", state, statuses)


def get(path: str, **query: str) -> Any:
    return legacy.get(full(), path, query, 1030.0)


def ids(**query: str) -> list[str]:
    return [task["id"] for task in get("/tasks", **query)["tasks"]]


@pytest.mark.parametrize("path", PATHS.split())
def test_every_path_on_an_empty_and_on_a_full_state(path: str) -> None:
    for state in (State("M", Options(), 0.0), full()):
        for spelled in (f"/{path}", f"/master/{path}", f"/{path}/", f"/master/{path}/"):
            found = legacy.get(state, spelled, {}, 1030.0)
            assert found is not None
            text = codec.encode(found).decode()
            assert SECRET not in text
            assert json.loads(text) == found
            assert found == legacy.get(state, path, {}, 1030.0)


@pytest.mark.parametrize("path", ["", "/", "/master", "/nothing", "/master/master/state", "/slave(1)/state"])
def test_unknown_paths(path: str) -> None:
    assert get(path) is None


def test_version_and_health() -> None:
    assert get("/version") == {"version": "1.11.0"}
    assert get("/health") == {}


def test_slaves() -> None:
    [agent] = get("/slaves")["slaves"]
    assert (agent["id"], agent["hostname"], agent["active"]) == ("S1", "node1", True)
    assert agent["pid"].split("@")[1] == "10.0.0.1:5051"
    assert agent["resources"] == {
        "cpus": 8.0,
        "gpus": 0.0,
        "mem": 1024.0,
        "disk": 0.0,
        "ports": "[31000-32000, 40000-40001]",
    }
    assert agent["reserved_resources"]["hpc"]["cpus"] == 2.0
    assert agent["unreserved_resources"]["cpus"] == 6.0
    assert agent["reserved_resources_full"]["hpc"][0]["role"] == "hpc"
    assert agent["attributes"] == {
        "slurm_job_id": "4711",
        "speed": 2.5,
        "slots": "[1-3]",
        "racks": "{a, b}",
        "odd": "",
    }
    assert [one["id"] for one in get("/slaves")["recovered_slaves"]] == ["S2"]
    assert get("/slaves", slave_id="S2")["slaves"] == []
    assert len(get("/slaves", agent_id="S1")["slaves"]) == 1


def test_frameworks() -> None:
    [found] = get("/frameworks")["frameworks"]
    assert (found["id"], found["name"], found["hostname"], found["active"]) == ("F1", "one", "login1", True)
    assert (found["roles"], found["principal"], found["capabilities"]) == (["hpc"], "ann", ["MULTI_ROLE"])
    assert [task["id"] for task in found["tasks"]] == ["t0", "t1"]
    assert [task["id"] for task in found["completed_tasks"]] == ["t2"]
    assert [task["id"] for task in found["unreachable_tasks"]] == ["t3"]
    assert found["used_resources"]["cpus"] == 2.1
    assert found["offered_resources"]["cpus"] == 2.0
    assert found["resources"]["cpus"] == 4.1
    assert [offer["slave_id"] for offer in found["offers"]] == ["S1"]
    [executor] = found["executors"]
    assert (executor["executor_id"], executor["command"]["argv"]) == ("e1", ["run", "-x"])
    [completed] = get("/frameworks")["completed_frameworks"]
    assert (completed["id"], completed["role"], completed["unregistered_time"]) == ("F0", "*", 995.0)
    assert get("/frameworks", framework_id="F0")["frameworks"] == []


def test_task() -> None:
    [task] = get("/tasks", task_id="t0")["tasks"]
    assert (task["id"], task["executor_id"], task["framework_id"], task["slave_id"]) == ("t0", "e1", "F1", "S1")
    assert (task["state"], task["role"], task["resources"]["cpus"]) == ("TASK_RUNNING", "hpc", 1.0)
    assert task["statuses"][0]["container_status"] == {"container_id": {"value": "c"}}
    assert task["labels"] == [{"key": "a"}]
    assert task["limits"] == {"cpus": "Infinity", "mem": 0.0}
    assert get("/tasks", task_id="t1")["tasks"][0]["executor_id"] == ""


def test_what_frameworks_and_agents_say_of_themselves() -> None:
    state = full()
    framework, agent = state.frameworks["F1"], state.agents["S1"]
    framework.reregistered = 1009.0
    task = framework.tasks["t0"]
    task.info = {"name": "bare", "command": {"value": "true", "user": "ann"}}
    task.statuses[0]["labels"] = {"labels": [{"key": "s"}]}
    agent.info["attributes"].append(5)
    agent.executors["F1", "e1"].info["command"] = 5
    [found] = legacy.get(state, "/frameworks", {})["frameworks"]
    assert found["reregistered_time"] == 1009.0
    assert found["executors"][0]["command"] == {}
    told = next(one for one in found["tasks"] if one["id"] == "t0")
    assert told["user"] == "ann" and "labels" not in told and "limits" not in told
    assert told["statuses"][0]["labels"] == [{"key": "s"}]
    assert len(legacy.get(state, "/slaves", {})["slaves"][0]["attributes"]) == 5


def test_tasks_are_sorted_and_cut() -> None:
    assert ids(order="asc") == ["t1", "t9", "t0", "t2", "t3"]
    assert ids() == ["t3", "t2", "t0", "t9", "t1"]
    assert ids(limit="2") == ["t3", "t2"]
    assert ids(limit="2", offset="3") == ["t9", "t1"]
    assert ids(limit="-1", offset="4") == ["t1"]
    assert ids(limit="x", offset="-1", order="asc") == ["t1", "t9", "t0", "t2", "t3"]
    assert ids(framework_id="F0") == ["t9"]
    assert ids(task_id="t2", framework_id="F0") == []


def test_tasks_are_limited_unless_all_are_asked_for() -> None:
    state = full()
    state.frameworks["F1"].tasks = {str(n): launched(str(n), "TASK_RUNNING", n) for n in range(legacy.TASKS_MOST + 9)}
    assert len(legacy.get(state, "/tasks", {})["tasks"]) == legacy.TASKS_MOST
    assert len(legacy.get(state, "/tasks", {"limit": "-1"})["tasks"]) > legacy.TASKS_MOST


def test_state() -> None:
    found = get("/master/state.json")
    assert (found["version"], found["id"], found["pid"]) == ("1.11.0", "M", "master@10.0.0.9:5050")
    assert (found["activated_slaves"], found["deactivated_slaves"], found["unreachable_slaves"]) == (1, 0, 0)
    assert found["slaves"][0]["used_resources"]["cpus"] == 1.0
    assert found["frameworks"] == get("/frameworks")["frameworks"]
    assert found["leader_info"]["hostname"] == "10.0.0.9"


def test_summary_counts_tasks() -> None:
    found = get("/state-summary")
    assert found["slaves"][0]["TASK_RUNNING"] == found["frameworks"][0]["TASK_RUNNING"] == 1
    assert found["frameworks"][0]["TASK_FAILED"] == 1
    assert found["slaves"][0]["framework_ids"] == ["F1"]
    assert found["frameworks"][0]["slave_ids"] == ["S1"]


def test_roles_and_metrics() -> None:
    roles = {role["name"]: role for role in get("/roles")["roles"]}
    assert roles["hpc"]["quota"] == {"role": "hpc", "guarantee": {}, "limit": {"cpus": 4.0}}
    assert (roles["hpc"]["allocated"]["cpus"], roles["hpc"]["offered"]["cpus"]) == (2.1, 2.0)
    assert roles["hpc"]["reserved"] == {"cpus": 2.0}
    assert get("/metrics/snapshot")["master/uptime_secs"] == 30.0
