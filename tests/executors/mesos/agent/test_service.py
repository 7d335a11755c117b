import base64
import getpass
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import hierarchy, probe
from executors.cgroup.group import Quotas
from executors.mesos import commit
from executors.mesos.agent import service
from executors.mesos.agent.options import Options
from executors.mesos.agent.service import NO_MASTER, AgentService
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.unlimited import Unlimited
from executors.mesos.codec import Message, Records, encode
from executors.mesos.journal import Entry, Journal
from executors.mesos.master.service import MasterService
from executors.mesos.master.state import Options as MasterOptions
from executors.mesos.messages import field, identity, message
from executors.mesos.pool_directory import FRAMEWORK, WRITER, PoolDirectory
from executors.mesos.resources import scalars

PATIENCE_S = 30.0
OFFERED = scalars(cpus=2, mem=512)


def hang_up(response: requests.Response) -> None:
    """End a stream; merely to close it would wait for what comes next."""
    connection = response.raw.connection
    if connection is not None and connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


class Scheduler:
    """A framework that talks to a master, one call at a time, and hears what it says in a thread."""

    def __init__(self, directory: PoolDirectory, id: str | None = None) -> None:
        address = directory.master()
        assert address is not None
        self.url = f"http://127.0.0.1:{address.port}/api/v1/scheduler"
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {directory.token(FRAMEWORK)}"}
        info: Message = {"user": getpass.getuser(), "name": "test", "roles": ["test"], "checkpoint": True}
        info |= {"failover_timeout": 3600.0, "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}]}
        call = message("SUBSCRIBE", framework_info=info if id is None else info | {"id": identity(id)})
        body = encode(call if id is None else call | {"framework_id": identity(id)})
        self.response = requests.post(self.url, body, headers=self.headers, stream=True, timeout=PATIENCE_S)
        assert self.response.status_code == 200, self.response.text
        self.headers["Mesos-Stream-Id"] = self.response.headers["Mesos-Stream-Id"]
        self.events: queue.Queue[Message] = queue.Queue()
        self.passed: list[Message] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        self.id = field(self.next("SUBSCRIBED"), "subscribed.framework_id.value", str)
        self.session = requests.Session()

    def _read(self) -> None:
        records = Records()
        with suppress(requests.RequestException):  # closed below
            for chunk in self.response.iter_content(None):
                for event in records.feed(chunk):
                    self.events.put(event)

    def next(self, kind: str, matching: Callable[[Message], bool] = lambda event: True) -> Message:
        """The next event of a kind; others are kept for later."""
        for event in self.passed:
            if event["type"] == kind and matching(event):
                self.passed.remove(event)
                return event
        deadline = time.monotonic() + PATIENCE_S
        while True:
            event = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            if event["type"] == kind and matching(event):
                return event
            self.passed.append(event)

    def call(self, kind: str, **payload: Any) -> None:
        body = encode(message(kind, **payload) | {"framework_id": identity(self.id)})
        answer = self.session.post(self.url, body, headers=self.headers, timeout=PATIENCE_S)
        assert answer.status_code == 202, answer.text

    def launch(self, id: str, script: str, offer: Message | None = None, **more: Any) -> Message:
        """Launch a command task on the next offer; that offer."""
        offer = offer or self.next("OFFERS")["offers"]["offers"][0]
        task: Message = {
            "name": id,
            "task_id": identity(id),
            "agent_id": offer["agent_id"],
            "command": {"value": script},
            "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}}],
        }
        operation = {"type": "LAUNCH", "launch": {"task_infos": [task | more]}}
        self.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation], filters={"refuse_seconds": 0})
        return offer

    def update(self, id: str, state: str | None = None) -> Message:
        """The next update of a task, or the one that tells of `state`; acknowledged, like those before it."""
        while True:
            event = self.next("UPDATE", lambda event: event["update"]["status"]["task_id"]["value"] == id)
            status: Message = event["update"]["status"]
            if "uuid" in status:
                self.call("ACKNOWLEDGE", agent_id=status["agent_id"], task_id=status["task_id"], uuid=status["uuid"])
            if state in (None, status["state"]):
                return status

    def close(self) -> None:
        if self.thread.is_alive():
            self.call("TEARDOWN")
        hang_up(self.response)
        self.thread.join(PATIENCE_S)
        self.session.close()


class Pool:
    """A master and an agent."""

    def __init__(self, path: Path, quotas: Callable[[], Quotas] = Unlimited) -> None:
        self.path, self.quotas = path, quotas
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.master = self.new_master()
        self.agent = self.new_agent()
        self.schedulers: list[Scheduler] = []

    def new_master(self) -> MasterService:
        options = MasterOptions(ping_s=0.5, pings=20)
        return MasterService(self.directory, options, tls=False, host="127.0.0.1")

    def new_agent(self) -> AgentService:
        options = Options("127.0.0.1", 0, OFFERED, "", "", environment={"PATH": os.environ["PATH"]}, grace_s=1.0)
        work = self.path / "work"
        return AgentService(self.directory, options, self.quotas(), work=work, tls=False, orphan_grace_s=20.0)

    def scheduler(self, id: str | None = None) -> Scheduler:
        self.schedulers.append(Scheduler(self.directory, id))
        return self.schedulers[-1]

    def operator(self, kind: str, role: str = WRITER, **payload: Any) -> requests.Response:
        return requests.post(
            f"http://127.0.0.1:{self.agent.options.port}/api/v1",
            encode(message(kind, **payload)),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.directory.token(role)}"},
            timeout=PATIENCE_S,
        )

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.close()
        self.agent.close()
        self.master.kill()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(tmp_path)
    pool.master.start()
    pool.agent.start()
    yield pool
    pool.close()


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


SPACE = f"test-agent-{os.getpid()}"


@pytest.fixture(params=["cgroup v2", "cgroup v1", "duty cycle"])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """A pool whose agent keeps quotas."""
    try:
        probe.best(SPACE, request.param)
    except StateError as error:
        pytest.skip(str(error))
    pool = Pool(tmp_path, lambda: probe.best(SPACE, request.param))
    pool.master.start()
    pool.agent.start()
    yield pool
    pool.close()


def process_of(status: Message) -> tuple[int, int]:
    pid = field(status, "container_status.executor_pid", int)
    birth = birth_of(pid)
    assert birth is not None
    return pid, birth


def sandbox_of(pool: Pool, id: str) -> Path:
    (found,) = (pool.path / "work" / "sandboxes").glob(f"slaves/*/frameworks/*/executors/{id}/runs/*")
    return found


def test_a_command_task_from_offer_to_end(pool: Pool) -> None:
    scheduler = pool.scheduler()
    scheduler.launch("t1", 'echo "$MESOS_SANDBOX"; exit 3')
    failed = scheduler.update("t1", "TASK_FAILED")
    assert "3" in failed["message"]
    sandbox = sandbox_of(pool, "t1")
    assert (sandbox / "stdout").read_text() == f"{sandbox}\n"


def test_an_agent_that_tidies_up_leaves_its_neighbours_containers_alone(limited: Pool, tmp_path: Path) -> None:
    """What an agent finds in its name space when it starts, and does not know, it ends."""
    options = Options("other", 0, OFFERED, "", "", environment={"PATH": os.environ["PATH"]}, grace_s=1.0)
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


def _agents(pool: Pool) -> int:
    answer = requests.post(
        f"http://127.0.0.1:{pool.master.address.port}/api/v1",
        encode(message("GET_AGENTS")),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {pool.directory.token(WRITER)}"},
        timeout=PATIENCE_S,
    )
    return len(answer.json()["get_agents"].get("agents", []))


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

    weights = {"cpu.shares": 128, "cpu.weight": hierarchy.weight_of(128)}
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


def test_without_a_master_it_ends(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    options = Options("n1", 0, OFFERED, "", "", grace_s=0.1)
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
        agent = AgentService(
            directory, Options("n1", 0, OFFERED, "", ""), Unlimited(), work=tmp_path / "work", host="", **more
        )
        with pytest.raises(InvalidInput, match="loopback only"):
            agent.start()


def test_a_port_that_is_taken_is_named(pool: Pool, tmp_path: Path) -> None:
    taken = pool.agent.options.port
    options = Options("n1", 0, OFFERED, "", "")
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
    until(lambda: _sandbox_has(pool, "MESOS_AGENT_ENDPOINT"))
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


class Executor:
    """A custom executor as the agent sees it: its process sleeps, the test speaks for it."""

    def __init__(self, pool: Pool, scheduler: Scheduler, id: str = "e1") -> None:
        self.url = f"http://{pool.agent.options.endpoint}/api/v1/executor"
        self.ids = {"framework_id": identity(scheduler.id), "executor_id": identity(id)}
        self.events: queue.Queue[Message] = queue.Queue()

    def subscribe(self) -> None:
        body = encode(message("SUBSCRIBE", unacknowledged_tasks=[], unacknowledged_updates=[]) | self.ids)
        headers = {"Content-Type": "application/json"}
        self.response = requests.post(self.url, body, headers=headers, stream=True, timeout=PATIENCE_S)
        assert self.response.status_code == 200, self.response.text
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        records = Records()
        with suppress(requests.RequestException):  # closed below
            for chunk in self.response.iter_content(None):
                for event in records.feed(chunk):
                    self.events.put(event)

    def next(self, kind: str) -> Message:
        while (event := self.events.get(timeout=PATIENCE_S))["type"] != kind:
            pass
        return event

    def call(self, kind: str, **payload: Any) -> requests.Response:
        body = encode(message(kind, **payload) | self.ids)
        return requests.post(self.url, body, headers={"Content-Type": "application/json"}, timeout=PATIENCE_S)

    def close(self) -> None:
        hang_up(self.response)
        self.thread.join(PATIENCE_S)


def launch_custom(scheduler: Scheduler) -> None:
    offer = scheduler.next("OFFERS")["offers"]["offers"][0]
    cpus = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}}]
    executor = {
        "executor_id": identity("e1"),
        "framework_id": identity(scheduler.id),
        "command": {"value": "env; sleep 1000"},
    }
    task = {
        "name": "t1",
        "task_id": identity("t1"),
        "agent_id": offer["agent_id"],
        "executor": executor,
        "resources": cpus,
    }
    operation = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
    scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation])


def test_a_custom_executor_from_subscription_to_exit(pool: Pool) -> None:
    scheduler = pool.scheduler()
    launch_custom(scheduler)
    executor = Executor(pool, scheduler)
    until(lambda: _sandbox_has(pool, "MESOS_AGENT_ENDPOINT"))
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


def _sandbox_has(pool: Pool, text: str) -> bool:
    with suppress(ValueError, FileNotFoundError):
        return text in (sandbox_of(pool, "e1") / "stdout").read_text()
    return False


def _pids(pool: Pool) -> list[int]:
    answer = pool.operator("GET_CONTAINERS").json()["get_containers"]["containers"]
    return [item["container_status"]["executor_pid"] for item in answer]
