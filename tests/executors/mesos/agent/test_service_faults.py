"""An agent when something goes wrong: deaths, no master, what it needs is taken or damaged, full disks."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from asa.core.errors import InvalidInput, StateError
from executors.mesos import commit
from executors.mesos.agent import service
from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.service import NO_MASTER, AgentService
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.state import AgentOptions, Effect
from executors.mesos.codec import Message, encode
from executors.mesos.journal import Entry, Journal
from executors.mesos.messages import identity, message
from executors.mesos.pool_directory import WRITER, PoolDirectory
from tests.executors.mesos.agent.live_pool import (
    OFFERED,
    PATIENCE_S,
    Executor,
    Pool,
    launch_custom,
    process_of,
    sandbox_has,
    sandbox_of,
    until,
)

pytestmark = pytest.mark.slow


def _agents(pool: Pool) -> int:
    answer = requests.post(
        f"http://127.0.0.1:{pool.master.address.port}/api/v1",
        encode(message("GET_AGENTS")),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {pool.directory.token(WRITER)}"},
        timeout=PATIENCE_S,
    )
    return len(answer.json()["get_agents"].get("agents", []))


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


def test_tasks_outlive_the_death_of_the_master(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "while [ ! -e go ]; do sleep .01; done")
    scheduler.update("t1", "TASK_RUNNING")
    pool.master.kill()
    pool.master = pool.new_master()
    pool.master.start()
    until(lambda: _agents(pool) == 1)
    (sandbox_of(pool, "t1") / "go").touch()
    again = pool.scheduler(scheduler.id)
    again.update("t1", "TASK_FINISHED")


def test_an_agent_that_is_closed_leaves_nothing_and_says_so(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", "trap '' TERM; while :; do sleep 1; done")
    pid, birth = process_of(scheduler.update("t1", "TASK_RUNNING"))
    closing = threading.Thread(target=pool.agent.close)
    closing.start()
    assert scheduler.update("t1")["state"] == "TASK_KILLED"
    closing.join(PATIENCE_S)
    assert not closing.is_alive() and birth_of(pid) != birth
    until(lambda: _agents(pool) == 0)


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
    monkeypatch.setattr(service, "Journal", Fragile)
    monkeypatch.setattr(commit, "RETRY_S", 0.02)
    yield Fragile
    Fragile.full = False


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
    offer = scheduler.next("OFFERS")["offers"]["offers"][0]
    scheduler.launch("t3", "true", offer)
    assert scheduler.update("t3")["state"] in ("TASK_STARTING", "TASK_RUNNING")
    scheduler.update("t3", "TASK_FINISHED")


def test_executors_wait_for_a_full_journal(fragile: type[Fragile], pool: Pool) -> None:
    scheduler = pool.scheduler()
    launch_custom(scheduler)
    executor = Executor(pool, scheduler)
    until(lambda: sandbox_has(pool, "MESOS_AGENT_ENDPOINT"))
    executor.subscribe()
    executor.next("LAUNCH")
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": base64.b64encode(bytes(16)).decode()}
    fragile.full = True
    answers: list[int] = []
    calling = threading.Thread(target=lambda: answers.append(executor.call("UPDATE", status=status).status_code))
    calling.start()
    scheduler.next("UPDATE")
    assert answers == [], "it is not durable yet"
    fragile.full = False
    calling.join(PATIENCE_S)
    assert answers == [202]
    executor.close()


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
