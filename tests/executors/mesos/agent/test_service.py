"""An agent and a master as they serve: tasks and executors from their launch to their end."""

import base64
import os
import signal
from pathlib import Path

import pytest

from executors.cgroup import kernel, probe
from executors.mesos.agent.service import AgentService
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.state import AgentOptions
from executors.mesos.codec import Message
from executors.mesos.messages import identity
from tests.executors.mesos.agent.live_pool import (
    OFFERED,
    SPACE,
    Executor,
    Pool,
    launch_custom,
    process_of,
    sandbox_has,
    sandbox_of,
    until,
)


def test_a_command_task_from_offer_to_end(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", 'echo "$MESOS_SANDBOX"; exit 3')
    failed = scheduler.update("t1", "TASK_FAILED")
    assert "3" in failed["message"]
    sandbox = sandbox_of(pool, "t1")
    assert (sandbox / "stdout").read_text() == f"{sandbox}\n"


def test_an_agent_that_tidies_up_leaves_its_neighbours_containers_alone(limited: Pool, tmp_path: Path) -> None:
    """What an agent finds in its name space when it starts, and does not know, it ends."""
    options = AgentOptions("other", 0, OFFERED, "", "", environment={"PATH": os.environ["PATH"]}, grace_s=1.0)
    quotas = probe.best(f"{SPACE}-b", limited.quotas().name)  # its name begins like the other's
    other = AgentService(limited.directory, options, quotas, work=tmp_path / "b", tls=False, orphan_grace_s=20.0)
    other.start()
    try:
        scheduler = limited.scheduler()
        offers: dict[str, Message] = {}
        while len(offers) < 2:
            offers |= {offer["hostname"]: offer for offer in scheduler.next("OFFERS")["offers"]["offers"]}
        for n, offer in enumerate(offers.values()):
            scheduler.launch(f"t{n}", "while :; do sleep .05; done", offer)
        processes = [process_of(scheduler.update(f"t{n}", "TASK_RUNNING")) for n in range(2)]
        limited.agent.kill()
        limited.agent = limited.new_agent()
        limited.agent.start()
        other.kill()
        other.start()
        assert [birth_of(pid) for pid, _ in processes] == [birth for _, birth in processes]
        for n, offer in enumerate(offers.values()):
            scheduler.call("KILL", task_id=identity(f"t{n}"), agent_id=offer["agent_id"])
            scheduler.update(f"t{n}", "TASK_KILLED")
    finally:
        other.close()


def test_files_are_copied_first(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho copied\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("1")
    uris = [{"value": str(tmp_path / "tool"), "executable": True}, {"value": f"file://{tmp_path}/data"}]
    scheduler = pool.scheduler()
    offer = scheduler.launch("t1", "", command={"value": "./tool; cat data/x", "uris": uris})
    scheduler.update("t1", "TASK_FINISHED")
    assert (sandbox_of(pool, "t1") / "stdout").read_text() == "copied\n1"
    offer = scheduler.next("OFFERS")["offers"]["offers"][0]
    scheduler.launch("t2", "", offer, command={"value": "true", "uris": [{"value": "/no/such/file"}]})
    assert "/no/such/file" in scheduler.update("t2", "TASK_FAILED")["message"]


def test_a_task_is_killed_with_all_it_has_started(pool: Pool) -> None:
    scheduler = pool.scheduler()
    offer = scheduler.launch("t1", "sleep 1000 & echo $!; wait")
    pid, birth = process_of(scheduler.update("t1", "TASK_RUNNING"))
    until(lambda: (sandbox_of(pool, "t1") / "stdout").read_text().endswith("\n"))
    child = int((sandbox_of(pool, "t1") / "stdout").read_text())
    scheduler.call("KILL", task_id=identity("t1"), agent_id=offer["agent_id"])
    scheduler.update("t1", "TASK_KILLED")
    assert birth_of(pid) != birth and birth_of(child) is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="groups are made by root where nothing is delegated")
def test_quotas_are_kept_and_changed_across_a_restart(limited: Pool) -> None:
    scheduler = limited.scheduler()
    scheduler.launch("t1", "while :; do :; done")
    pid, birth = process_of(scheduler.update("t1", "TASK_RUNNING"))
    until(lambda: _statistics(limited).get("cpus_user_time_secs", 0) > 0)
    assert (_groups() != []) is limited.quotas().name.startswith("cgroup")
    found = _statistics(limited)
    assert found["cpus_limit"] == 0.5 and found["processes"] == 1
    container = _container(limited)
    changed = {"container_id": identity(container["container_id"]["value"]), "lease_seconds": 60.0}
    assert limited.operator("ASA_UPDATE_LIMITS", limits={"cpus": {"value": 0.1}}, **changed).status_code == 200
    assert _statistics(limited)["cpus_limit"] == 0.1
    limited.agent.kill()
    limited.agent = limited.new_agent()
    limited.agent.start()
    assert birth_of(pid) == birth
    before = _statistics(limited)
    until(lambda: _statistics(limited)["cpus_user_time_secs"] > before["cpus_user_time_secs"])
    assert _statistics(limited)["processes"] == 1
    assert limited.operator("KILL_CONTAINER", container_id=changed["container_id"]).status_code == 200
    scheduler.update("t1", "TASK_FAILED")
    assert birth_of(pid) != birth
    assert _groups() == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="groups are made by root where nothing is delegated")
def test_a_weight_is_changed_for_good(limited: Pool) -> None:
    scheduler = limited.scheduler()
    scheduler.launch("t1", "sleep 1000")
    scheduler.update("t1", "TASK_RUNNING")
    shown = [Path(group, name) for group in _groups() for name in ("cpu.shares", "cpu.weight")]
    shown = [file for file in shown if file.exists()]
    assert bool(shown) is limited.quotas().name.startswith("cgroup")

    def is_told() -> bool:
        return all(int(file.read_text()) == weights[file.name] for file in shown)

    weights = {"cpu.shares": 128, "cpu.weight": kernel.weight_of(128)}
    asked = {"container_id": _container(limited)["container_id"], "requests": {"cpus": {"value": 0.125}}}
    answer = limited.operator("ASA_UPDATE_LIMITS", **asked)
    assert answer.json()["asa_update_limits"]["requests"] == {"cpus": {"value": 0.125}}
    until(is_told)
    limited.agent.kill()
    for file in shown:
        file.write_text("512")  # as if the agent had died before it came to that
    limited.agent = limited.new_agent()
    limited.agent.start()
    until(is_told)


def _container(pool: Pool) -> Message:
    (found,) = pool.operator("GET_CONTAINERS").json()["get_containers"]["containers"]
    return found


def _statistics(pool: Pool) -> Message:
    return _container(pool)["resource_statistics"]


def _groups() -> list[str]:
    """Groups of containers that are left; that of the agent itself may stay for as long as it lives."""
    found = Path("/sys/fs/cgroup").rglob(f"*{SPACE}*/*")
    return [str(path) for path in found if path.is_dir() and len(path.name) == 36]


def test_a_custom_executor_from_subscription_to_exit(pool: Pool) -> None:
    scheduler = pool.scheduler()
    launch_custom(scheduler)
    executor = Executor(pool, scheduler)
    until(lambda: sandbox_has(pool, "MESOS_AGENT_ENDPOINT"))
    variables = (sandbox_of(pool, "e1") / "stdout").read_text()
    assert f"MESOS_AGENT_ENDPOINT={pool.agent.options.endpoint}" in variables
    executor.subscribe()
    assert executor.next("SUBSCRIBED")["subscribed"]["executor_info"]["executor_id"] == identity("e1")
    assert executor.next("LAUNCH")["launch"]["task"]["task_id"] == identity("t1")
    uuid = base64.b64encode(bytes(16)).decode()
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": uuid, "source": "SOURCE_EXECUTOR"}
    assert executor.call("UPDATE", status=status).status_code == 202
    assert scheduler.update("t1", "TASK_RUNNING")["uuid"] == uuid
    assert executor.next("ACKNOWLEDGED")["acknowledged"]["uuid"] == uuid
    assert executor.call("MESSAGE", data=base64.b64encode(b"hello").decode()).status_code == 202
    assert scheduler.next("MESSAGE")["message"]["data"] == base64.b64encode(b"hello").decode()

    pool.agent.kill()  # and it comes back
    executor.close()
    pool.agent = pool.new_agent()
    pool.agent.start()
    executor.subscribe()
    executor.next("SUBSCRIBED")
    (pid,) = _pids(pool)
    os.kill(pid, signal.SIGKILL)
    assert scheduler.update("t1")["state"] == "TASK_FAILED"
    scheduler.next("FAILURE")
    executor.close()


def _pids(pool: Pool) -> list[int]:
    answer = pool.operator("GET_CONTAINERS").json()["get_containers"]["containers"]
    return [item["container_status"]["executor_pid"] for item in answer]
