"""An agent and a master as they serve: tasks, executors and operators; deaths, full disks, damaged files."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

import asa.web.server
from asa.core.errors import InvalidInput, StateError
from executors.cgroup import kernel, probe
from executors.mesos import commit, host
from executors.mesos.agent.containers import OrphanPolicy, Unlimited
from executors.mesos.agent.engine import AgentEngine
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.service import NO_MASTER, AgentService
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.state import AgentOptions, Effect
from executors.mesos.codec import Message, encode
from executors.mesos.effects import KeepRow
from executors.mesos.journal import Entry, Journal
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import identity, message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, WRITER, PoolDirectory
from executors.mesos.resources import scalars
from tests.executors.mesos.agent.conftest import Node
from tests.executors.mesos.agent.live_pool import (
    OFFERED,
    PATIENCE_S,
    SPACE,
    Executor,
    Pool,
    process_of,
    sandbox_has,
    sandbox_of,
)
from tests.mutation import answers_to_damaged, changed, http_request
from tests.waiting import until


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
            offers |= {offer["hostname"]: offer for offer in scheduler.next("resourceOffers")[0]}
        for n, offer in enumerate(offers.values()):
            scheduler.launch(f"t{n}", "while :; do sleep .05; done", offer)
        processes = [process_of(scheduler.update(f"t{n}", "TASK_RUNNING")) for n in range(2)]
        limited.restart_agent()
        other.kill()
        other.start()
        assert [birth_of(pid) for pid, _ in processes] == [birth for _, birth in processes]
        for n in range(2):
            scheduler.kill(f"t{n}")
    finally:
        other.close()


def test_a_task_is_killed_with_all_it_has_started(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "sleep 1000 & echo $!; wait")
    pid, birth = process_of(scheduler.update("t1", "TASK_RUNNING"))
    until(lambda: (sandbox_of(pool, "t1") / "stdout").read_text().endswith("\n"))
    child = int((sandbox_of(pool, "t1") / "stdout").read_text())
    scheduler.kill("t1")
    assert birth_of(pid) != birth and birth_of(child) is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make cgroups")
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
    limited.restart_agent()
    assert birth_of(pid) == birth
    before = _statistics(limited)
    until(lambda: _statistics(limited)["cpus_user_time_secs"] > before["cpus_user_time_secs"])
    assert _statistics(limited)["processes"] == 1
    scheduler.kill("t1")
    assert birth_of(pid) != birth
    assert _groups() == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make cgroups")
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
    scheduler.launch_custom()
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
    assert scheduler.next("frameworkMessage")[2] == base64.b64encode(b"hello").decode()

    pool.restart_agent()
    executor.close()
    executor.subscribe()
    executor.next("SUBSCRIBED")
    (pid,) = _pids(pool)
    os.kill(pid, signal.SIGKILL)
    assert scheduler.update("t1")["state"] == "TASK_FAILED"
    assert scheduler.next("executorLost")[0] == identity("e1")
    executor.close()


def _pids(pool: Pool) -> list[int]:
    answer = pool.operator("GET_CONTAINERS").json()["get_containers"]["containers"]
    return [item["container_status"]["executor_pid"] for item in answer]


# ------------------------------------------------------- when something goes wrong


def _agents(pool: Pool) -> int:
    answer = requests.post(
        f"http://127.0.0.1:{pool.master.address.port}/api/v1",
        encode(message("GET_AGENTS")),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {pool.directory.token(WRITER)}"},
        timeout=PATIENCE_S,
    )
    return len(answer.json()["get_agents"].get("agents", []))


@pytest.mark.slow
def test_tasks_outlive_the_death_of_their_agent(pool: Pool) -> None:
    scheduler = pool.scheduler()
    script = "while [ ! -e go ]; do sleep .01; done; exit 4"
    offer = scheduler.launch("t1", script)
    scheduler.update("t1", "TASK_RUNNING")
    scheduler.launch("t2", script)
    pid, birth = process_of(scheduler.update("t2", "TASK_RUNNING"))
    endpoint = pool.agent.options.endpoint
    pool.agent.kill()
    (sandbox_of(pool, "t1") / "go").touch()
    until(lambda: len(list((pool.path / "work" / "run").glob("*.status"))) == 1)
    assert birth_of(pid) == birth
    pool.agent = pool.new_agent()
    pool.agent.start()
    assert pool.agent.options.endpoint == endpoint, "executors that run know no other"
    assert "4" in scheduler.update("t1", "TASK_FAILED")["message"], "what happened meanwhile"
    (sandbox_of(pool, "t2") / "go").touch()
    failed = scheduler.update("t2", "TASK_FAILED")
    assert "4" in failed["message"] and failed["agent_id"] == offer["agent_id"]


@pytest.mark.slow
def test_tasks_outlive_the_death_of_the_master(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "while [ ! -e go ]; do sleep .01; done")
    scheduler.update("t1", "TASK_RUNNING")
    pool.master.kill()
    pool.master = pool.new_master()
    pool.master.start()
    until(lambda: _agents(pool) == 1)
    (sandbox_of(pool, "t1") / "go").touch()
    scheduler.update("t1", "TASK_FINISHED")


@pytest.mark.slow
def test_an_agent_that_is_closed_leaves_nothing_and_unregisters(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "trap '' TERM; while :; do sleep 1; done")
    pid, birth = process_of(scheduler.update("t1", "TASK_RUNNING"))
    closing = threading.Thread(target=pool.agent.close)
    closing.start()
    assert scheduler.update("t1")["state"] == "TASK_KILLED"
    closing.join(PATIENCE_S)
    assert not closing.is_alive() and birth_of(pid) != birth
    until(lambda: _agents(pool) == 0)


@pytest.mark.slow
def test_faults_of_ours_and_of_the_masters_are_passed_over_and_the_agent_lives(
    pool: Pool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_master, faults = NodeAgent.from_master, [ZeroDivisionError]

    def stumble(agent: NodeAgent, item: Message, now: float) -> list[Effect]:
        if item["type"] == "PING" and faults:
            raise faults.pop()
        return from_master(agent, message("RUN", framework_info=5) if item["type"] == "PING" else item, now)

    monkeypatch.setattr(NodeAgent, "from_master", stumble)
    until(lambda: "ZeroDivisionError" in caplog.text and "makes no sense" in caplog.text)
    assert {record.getMessage() for record in caplog.records if record.exc_info} == {"the agent's machine failed"}
    monkeypatch.undo()
    scheduler = pool.scheduler()
    scheduler.launch("t1", "true")
    assert scheduler.update("t1", "TASK_FINISHED")


def test_without_a_master_it_ends(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    options = AgentOptions("n1", 0, OFFERED, "", "", grace_s=0.1)
    agent = AgentService(directory, options, Unlimited(), work=tmp_path / "work", tls=False, patience_s=0.1)
    agent.start()
    assert agent.wait(PATIENCE_S) == NO_MASTER
    agent.close()


@pytest.mark.slow
def test_one_agent_holds_a_directory(pool: Pool) -> None:
    with pytest.raises(StateError, match="another agent works in"):
        pool.new_agent().start()


def test_plain_http_is_for_this_machine(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    for more in ({"tls": False}, {"authenticate": False}):
        with pytest.raises(InvalidInput, match="loopback only"):
            AgentService(
                directory, AgentOptions("n1", 0, OFFERED, "", ""), Unlimited(), work=tmp_path / "work", host="", **more
            )


def test_a_port_that_is_taken_is_named(pool: Pool, tmp_path: Path) -> None:
    taken = pool.agent.options.port
    options = AgentOptions("n1", 0, OFFERED, "", "")
    agent = AgentService(pool.directory, options, Unlimited(), work=tmp_path / "other", tls=False, port=taken)
    with pytest.raises(StateError, match=f"port {taken}"):
        agent.start()


@pytest.mark.slow
def test_a_damaged_journal_is_named(pool: Pool) -> None:
    pool.agent.close()
    (pool.path / "work" / "agent.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StateError, match=r"agent\.db"):
        pool.new_agent().start()
    (pool.path / "work" / "agent.db").unlink()
    pool.agent = pool.new_agent()
    pool.agent.start()


class Fragile(Journal):
    """A journal on a disk that may be full."""

    full = False

    def write(self, entries: Sequence[Entry]) -> None:
        if Fragile.full:
            raise StateError(f"{self.path}: the disk is full: free some space")
        super().write(entries)


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Fragile]]:
    def journal(path: Path, holds: str, *, outlasts: bool) -> Journal:  # the agent's, and not the master's
        return (Fragile if path.name == "agent.db" else Journal)(path, holds, outlasts=outlasts)

    monkeypatch.setattr(host, "Journal", journal)
    monkeypatch.setattr(commit, "RETRY_S", 0.02)
    yield Fragile
    Fragile.full = False


@pytest.mark.slow
def test_while_its_journal_is_full_tasks_fail_and_the_agent_lives(fragile: type[Fragile], pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "while [ ! -e go ]; do sleep .01; done")
    scheduler.update("t1", "TASK_RUNNING")
    fragile.full = True
    scheduler.launch("t2", "true")
    failed = scheduler.update("t2", "TASK_FAILED")
    assert "the disk is full: free some space" in failed["message"]
    (sandbox_of(pool, "t1") / "go").touch()
    scheduler.update("t1", "TASK_FINISHED")
    fragile.full = False
    until(lambda: pool.operator("GET_TASKS").status_code == 200)
    scheduler.launch("t3", "true")
    assert scheduler.update("t3")["state"] in ("TASK_STARTING", "TASK_RUNNING")
    scheduler.update("t3", "TASK_FINISHED")


@pytest.mark.slow
def test_executors_wait_for_a_full_journal(fragile: type[Fragile], pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch_custom()
    executor = Executor(pool, scheduler)
    until(lambda: sandbox_has(pool, "MESOS_AGENT_ENDPOINT"))
    executor.subscribe()
    executor.next("LAUNCH")
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": base64.b64encode(bytes(16)).decode()}
    fragile.full = True
    answers: list[int] = []
    calling = threading.Thread(target=lambda: answers.append(executor.call("UPDATE", status=status).status_code))
    calling.start()
    scheduler.next("statusUpdate")
    assert answers == [], "it is not durable yet"
    fragile.full = False
    calling.join(PATIENCE_S)
    assert answers == [202]
    executor.close()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_on_a_full_disk_tasks_fail_and_the_agent_lives(pool: Pool, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(small)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        pool.agent.close()
        pool.path = small
        pool.agent = pool.new_agent()
        pool.agent.start()
        scheduler = pool.scheduler()
        scheduler.launch("t1", "true")
        scheduler.update("t1", "TASK_FINISHED")
        with suppress(OSError), open(small / "ballast", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        scheduler.launch("t2", "true")
        failed = scheduler.update("t2", "TASK_FAILED")
        assert "free some space" in failed["message"] or "No space left" in failed["message"]
        (small / "ballast").unlink()
        until(lambda: pool.operator("GET_TASKS").status_code == 200)
        scheduler.launch("t3", "true")
        scheduler.update("t3", "TASK_FINISHED")
        pool.close()
        pool.schedulers.clear()
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


# ------------------------------------------------------- server


JSON = {"Content-Type": "application/json"}


class Alone:
    """An alone without a master, and requests to it."""

    def __init__(self, path: Path) -> None:
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.work = path / "work"
        options = AgentOptions("n1", 0, scalars(cpus=2, mem=512), "", "", attributes=[_text("rack", "r1")])
        self.service = AgentService(self.directory, options, Unlimited(), work=self.work, tls=False)
        self.service.start()
        self.session = requests.Session()
        self.session.trust_env = False
        self.sandboxes = self.work / "sandboxes"

    @property
    def outside(self) -> str:
        return f"http://127.0.0.1:{self.service.options.port}"

    @property
    def loopback(self) -> str:
        return f"http://{self.service.options.endpoint}"

    def token(self, role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.directory.token(role)}"}

    def get(self, path: str, role: str | None = READER, door: str | None = None, **more: Any) -> requests.Response:
        headers = self.token(role) if role else {}
        return self.session.get((door or self.outside) + path, headers=headers, timeout=PATIENCE_S, **more)

    def post(self, path: str, call: Message, role: str | None = READER, door: str | None = None) -> requests.Response:
        headers = JSON | (self.token(role) if role else {})
        return self.session.post((door or self.outside) + path, encode(call), headers=headers, timeout=PATIENCE_S)


def _text(name: str, value: str) -> Message:
    return {"name": name, "type": "TEXT", "text": {"value": value}}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asa.web.server, "RETRY_S", 1e-3)  # who fails too often is answered late
        alone = Alone(tmp_path_factory.mktemp("agent"))
        yield alone
        alone.session.close()
        alone.service.close()


GETS = ["/", "/state", "/files/read?path=x"]
READS = [f"GET_{what}" for what in ("HEALTH", "VERSION", "STATE", "FRAMEWORKS", "EXECUTORS", "CONTAINERS", "TASKS")]
CHANGES: list[Message] = [
    message("ASA_UPDATE_LIMITS", container_id={"value": "c"}, limits={"cpus": {"value": 1}}, lease_seconds=1),
    message("ASA_HOLD_MEMORY", container_id={"value": "c"}, memory_bytes=1),
    message("ASA_SIGNAL_CONTAINER", container_id={"value": "c"}, signal="USR1"),
]
PATHS = ["/api/v1", "/api/v1/operator", "/api/v1/"]


@pytest.mark.parametrize("path", GETS)
def test_no_get_without_a_readers_token(alone: Alone, path: str) -> None:
    assert alone.get(path, None).status_code in (401, 429)
    assert alone.session.get(alone.outside + path, headers={"Authorization": "Bearer x"}).status_code in (401, 429)
    assert alone.session.get(alone.outside + path, auth=("me", "x")).status_code in (401, 429)
    for role in (FRAMEWORK, AGENT):
        assert alone.get(path, role).status_code == 403
    for role in (READER, WRITER):
        answer = alone.get(path, role)
        assert answer.status_code == 404 and "calls of operators go to /api/v1" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_no_call_without_a_token_that_suffices(alone: Alone, path: str) -> None:
    for call in [*map(message, READS), *CHANGES, message("NONSENSE")]:
        assert alone.post(path, call, None).status_code in (401, 429)
        for role in (FRAMEWORK, AGENT):
            assert alone.post(path, call, role).status_code == 403
    for kind in READS:
        assert alone.post(path, message(kind), READER).json()["type"] == kind
    for call in CHANGES:
        assert alone.post(path, call, READER).status_code == 403
        assert alone.post(path, call, WRITER).status_code == 404, "there is no such container"
    assert alone.post(path, message("NONSENSE"), WRITER).status_code == 501


def test_executors_are_not_let_in_from_outside(alone: Alone) -> None:
    for role in (None, FRAMEWORK, AGENT, READER, WRITER):
        answer = alone.post("/api/v1/executor", message("SUBSCRIBE"), role)
        assert answer.status_code in (401, 403, 404, 405, 429)


def test_on_loopback_our_own_processes_are_executors_without_a_token(alone: Alone) -> None:
    ids = {"framework_id": {"value": "F"}, "executor_id": {"value": "e"}}
    for call in (message("SUBSCRIBE") | ids, message("UPDATE", status={}) | ids, message("NONSENSE"), {"type": 5}):
        answer = alone.post("/api/v1/executor", call, None, alone.loopback)
        assert answer.status_code == 400, "it is not known"
    assert alone.get("/api/v1/executor", None, alone.loopback).status_code == 405


def test_on_loopback_operators_are_not_served(alone: Alone) -> None:
    for role in (None, READER, WRITER):
        for path in GETS:
            assert alone.get(path, role, alone.loopback).status_code == 403
        for path in PATHS:
            for call in [*map(message, READS), *CHANGES, message("NONSENSE")]:
                answer = alone.post(path, call, role, alone.loopback)
                assert answer.status_code == 403 and f"port {alone.service.options.port}" in answer.text


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("door", ["agent", "loopback", "master"])
def test_damaged_requests_are_answered_or_refused(
    alone: Alone, tmp_path: Path, count: int, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No error of ours, no hang, and no more memory than before; as many as the time allows."""
    directory, master, rng = alone.directory, None, random.Random(count)
    until_s = time.monotonic() + (5.0 if count < 1000 else 30.0)
    ids = {"framework_id": {"value": "F"}, "executor_id": {"value": "e"}}
    calls = [*map(message, READS), *CHANGES]
    if door == "master":
        directory = PoolDirectory.create(tmp_path / "pool", "test")
        master = MasterService(directory, MasterOptions(), tls=False, host="127.0.0.1")
        master.start()
        address = until(directory.master)
        url = f"http://127.0.0.1:{address.port}"
        calls += [message("GET_ROLES"), message("GET_FRAMEWORKS"), message("UPDATE_QUOTA", quota_configs=[])]
        calls += [message("REVIVE", **ids), message("ACCEPT", offer_ids=[{"value": "o"}], operations=[])]
        calls += [message("SUBSCRIBE", framework_info={"user": "me", "name": "f", "roles": ["a"]})]
    else:
        url = alone.outside if door == "agent" else alone.loopback
        calls += [message("SUBSCRIBE") | ids, message("UPDATE", status={"state": "TASK_RUNNING"}) | ids]
    paths = [*PATHS, "/api/v1/executor", "/api/v1/scheduler", "/asa/v1/agent", "/state", "/files/read?path=x"]

    def make() -> bytes:
        role = rng.choice((READER, WRITER, WRITER, FRAMEWORK, AGENT))
        body = json.dumps(changed(rng.choice(calls), rng) if rng.random() < 0.5 else rng.choice(calls)).encode()
        headers = JSON | {"Authorization": f"Bearer {directory.token(role)}"}
        return http_request(url, rng.choice(("POST", "POST", "GET")), rng.choice(paths), body, **headers)

    try:
        half = door != "loopback"  # it asks the kernel whose connection it is, which does not tell of one half closed
        found = answers_to_damaged(url, make, rng, 100, until_s, half)
        before = psutil.Process().memory_info().rss
        found |= answers_to_damaged(url, make, rng, count, until_s, half)
    finally:
        if master:
            master.kill()
    assert {400, 403} <= found.keys(), found
    assert not [record for record in caplog.records if record.exc_info and record.name.startswith(("asa", "executors"))]
    assert psutil.Process().memory_info().rss < before + (50 << 20)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_on_loopback_others_find_the_connection_broken(alone: Alone) -> None:
    port = alone.service.options.endpoint.rpartition(":")[2]
    script = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(b'GET /api/v1/executor HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(100))"
    )
    command = ["/usr/bin/env", "python3", "-c", script, port]
    interpreter = [os.path.realpath(sys.executable), "-I", "-S", "-c", script, port]
    assert b"HTTP/1.1 405" in subprocess.run(interpreter, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    other = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, user=65534, group=65534, cwd="/")
    if b"No such file" in other.stderr or b"Permission denied" in other.stderr:
        pytest.skip("another user has no Python here")
    assert other.stdout in (b"", b"b''\n") and b"HTTP" not in other.stdout


def test_web_pages_are_not_served(alone: Alone) -> None:
    for door in (alone.outside, alone.loopback):
        answer = alone.session.get(f"{door}/state", headers={"Origin": "http://evil.example"} | alone.token(WRITER))
        assert answer.status_code == 403
        answer = alone.session.get(f"{door}/state", headers={"Host": "evil.example"} | alone.token(WRITER))
        assert answer.status_code == 421


def test_requests_are_taken_as_mesos_takes_them(alone: Alone) -> None:
    url, token = f"{alone.outside}/api/v1", alone.token(READER)
    assert alone.session.get(url, headers=token).status_code == 405
    assert alone.session.post(url, b"{}", headers=token).status_code == 400, "no content type"
    assert alone.session.post(url, b"x", headers=token | {"Content-Type": "application/x-protobuf"}).status_code == 415
    assert alone.session.post(url, b"{", headers=token | JSON).status_code == 400
    assert alone.session.post(url, b"{}", headers=token | JSON).status_code == 400
    body = encode(message("GET_STATE"))
    assert alone.session.post(url, body, headers=token | JSON | {"Accept": "text/html"}).status_code == 406


def test_an_idle_connection_stays_open(alone: Alone) -> None:
    """Executors keep one for their calls, and take its end for the alone's."""
    port = int(alone.service.options.endpoint.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.5)
        for _ in range(2):
            connection.sendall(b"GET /api/v1/executor HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 405")
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_an_executor_that_cannot_read_chunks_gets_no_stream(alone: Alone) -> None:
    body = encode(message("SUBSCRIBE"))
    head = "POST /api/v1/executor HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(alone.service.options.endpoint.rpartition(":")[2]))) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b" 505 " in answer.splitlines()[0] and b"expected HTTP/1.1" in answer


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    (tmp_path / "work").mkdir(mode=0o755)
    options = AgentOptions("n1", 0, scalars(), "", "")
    service = AgentService(directory, options, Unlimited(), work=tmp_path / "work", tls=False)
    with pytest.raises(StateError, match="open to other users"):
        service.start()


# ------------------------------------------------------- engine


def test_it_registers_once_its_journal_is_written(
    node: Node, task: Callable[..., Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an agent that dies then would contradict, the next time, what was reported to the framework meanwhile."""
    node.run(task())
    node.start("t1")
    node.acknowledge("t1")
    container = node.container("t1").id
    journal = Journal(tmp_path / "agent.db")
    said: list[tuple[str, list[KeepRow]]] = []

    async def connect() -> None:
        directory = PoolDirectory.create(tmp_path / "pool", "test")
        engine = AgentEngine(
            node.agent, journal, directory, Unlimited(),
            run=tmp_path / "run", lock=tmp_path / "lock", orphans=OrphanPolicy(1.0), patience_s=1.0,
        )  # fmt: skip
        monkeypatch.setattr(engine.link, "send", lambda item: said.append((item["type"], journal.rows())))
        monkeypatch.setattr(engine.link, "clear", lambda: said.append(("nothing is left to say", journal.rows())))
        engine.exited(container, 3, "")  # its update is to be said once it is written, in the next turn of the loop
        assert said == []
        engine.connected()

    asyncio.run(connect())
    assert [what for what, _ in said] == ["UPDATE", "nothing is left to say", "REGISTER"]
    assert {keep.table for keep in said[1][1]} == {"updates"} and said[2][1] == said[1][1] == journal.rows()
    journal.close()
