"""A pool for those who look after it: its directory, the operator client, and asa pool."""

from __future__ import annotations

import argparse
import math
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from asa.core.command import CommandResult
from asa.core.errors import BackendError, InvalidInput, RunNotFound, StateError, UnknownName
from asa.log.rundir import RunDirectory
from asa.security.files import private_directory
from executors.mesos import pool_rows
from executors.mesos.codec import Message, encode
from executors.mesos.driver import SchedulerDriver
from executors.mesos.operator import CallRefused, Operator
from executors.mesos.pool_command import PoolCommand
from executors.mesos.pool_directory import AGENT_NAME, MASTER_NAME, READER, ROLES, WRITER, MasterAddress, PoolDirectory
from executors.mesos.pool_directory import FRAMEWORK as FRAMEWORK_ROLE
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos import live
from tests.executors.mesos.scripted import Scripted, until

# ---------------------------------------------------------------------- pool directory


HERE = MasterAddress(("n1", "10.0.0.1"), 5050, True, 4711, "m1")


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "test")


def test_no_other_user_can_read_any_of_it(directory: PoolDirectory) -> None:
    directory.publish(HERE)
    for path in [directory.path, *directory.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_each_role_has_a_secret_of_its_own(directory: PoolDirectory) -> None:
    tokens = [directory.token(role) for role in ROLES]
    assert len(set(tokens)) == len(ROLES) and all(len(bytes.fromhex(token)) == 32 for token in tokens)


def test_who_comes_early_can_see_that_it_is_not_whole(tmp_path: Path) -> None:
    assert not PoolDirectory(tmp_path / "pool").is_whole()
    assert PoolDirectory.create(tmp_path / "pool", "test").is_whole()


def test_making_it_again_changes_nothing(directory: PoolDirectory) -> None:
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    assert PoolDirectory.create(directory.path, "test") == directory
    assert {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()} == before


def test_a_secret_that_others_could_read_is_not_used(directory: PoolDirectory) -> None:
    directory.token_file("agent").chmod(0o640)
    with pytest.raises(StateError, match="chmod 600"):
        directory.token("agent")


def test_the_address_is_that_of_the_last_master(directory: PoolDirectory) -> None:
    assert directory.master() is None
    newer = MasterAddress(("n2",), 1, False, 1, "m2")
    directory.publish(HERE)
    assert directory.master() == HERE
    directory.publish(newer)
    directory.withdraw(HERE)
    assert directory.master() == newer
    directory.withdraw(newer)
    assert directory.master() is None


def test_a_damaged_address_says_what_to_do(directory: PoolDirectory) -> None:
    directory.publish(HERE)
    (directory.path / "master.json").write_text("{}")
    with pytest.raises(StateError, match="remove it and start the master again"):
        directory.master()


@pytest.mark.parametrize("name", [MASTER_NAME, AGENT_NAME])
def test_tls_is_for_this_pool_and_this_name_only(directory: PoolDirectory, tmp_path: Path, name: str) -> None:
    stranger = PoolDirectory.create(tmp_path / "other", "other")
    assert handshake(directory.server_context(name), directory.client_context(), name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(directory.server_context(name), stranger.client_context(), name)
    other = {MASTER_NAME: AGENT_NAME, AGENT_NAME: MASTER_NAME}[name]
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(directory.server_context(name), directory.client_context(), other)


def test_without_certificates_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        PoolDirectory(tmp_path).client_context()


@pytest.mark.parametrize("name", ["ca.pem", "driver.pem"])
def test_damaged_certificates_say_what_to_do(directory: PoolDirectory, name: str) -> None:
    (directory.path / "tls" / name).write_text("nonsense")
    with pytest.raises(StateError, match="remove that directory, then start the master and its agents again"):
        directory.client_context() if name == "ca.pem" else directory.server_context(MASTER_NAME)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """The version that both agree on; no sockets needed."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(down, up, server_hostname=name)
    other = server.wrap_bio(up, down, server_side=True)
    for _ in range(10):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return one.version()


# ---------------------------------------------------------------------- operator


class Busy:
    """Keeps a task running on each agent."""

    def __init__(self, cpus: float) -> None:
        self.cpus, self.running, self.ended = cpus, set[str](), threading.Event()

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        for offer in offers:
            own = f"t-{offer['agent_id']['value']}"
            tasks = [] if own in self.running else [live.command(own, offer, "exec sleep 600", cpus=self.cpus)]
            driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0.1})

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        if status["state"] == "TASK_RUNNING":
            self.running.add(status["task_id"]["value"])
        else:
            self.ended.set()


@contextmanager
def working(directory: PoolDirectory, agents: int, cpus: float) -> Iterator[Busy]:
    scheduler = Busy(cpus)
    driver = SchedulerDriver(scheduler, live.FRAMEWORK, directory)
    driver.start()
    until(lambda: len(scheduler.running) == agents, "tasks on all agents")
    yield scheduler
    driver.stop()
    driver.join()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDirectory]:
    with live.pool(tmp_path) as directory:
        yield directory


@pytest.fixture
def busy(pool: PoolDirectory) -> Iterator[Busy]:
    with working(pool, 1, 2.0) as scheduler:
        yield scheduler


def test_what_it_sees(pool: PoolDirectory, busy: Busy) -> None:
    with Operator(pool, READER) as operator:
        (agent,) = operator.get_agents()
        (framework,) = operator.get_frameworks()
        assert framework["framework_info"]["name"] == "test" and framework["connected"]
        (task,) = operator.get_state()["get_tasks"]["tasks"]
        assert task["task_id"]["value"] in busy.running and task["agent_id"] == agent["agent_info"]["id"]
        (container,) = operator.containers(agent["agent_info"]["id"]["value"])
        assert container["framework_id"] == framework["framework_info"]["id"]
        assert container["resource_statistics"]["cpus_limit"] == 2.0
        assert operator.call("GET_HEALTH") == {"healthy": True}


def test_a_limit_holds_for_its_lease(pool: PoolDirectory, busy: Busy) -> None:
    def limit() -> Any:
        return operator.containers(own)[0]["resource_statistics"]["cpus_limit"]

    with Operator(pool) as operator:
        own = operator.get_agents()[0]["agent_info"]["id"]["value"]
        container = operator.containers(own)[0]["container_id"]["value"]
        operator.update_limits(own, container, 0.5, 600.0)
        assert limit() == 0.5
        operator.update_limits(own, container, 0.25, 0.2)
        until(lambda: limit() == 2.0)
        operator.update_limits(own, container, 0.5, 600.0)
        operator.update_limits(own, container, 0.5, 0)
        assert limit() == 2.0
        assert operator.update_limits(own, container, math.inf, 600.0)["limits"] == {"cpus": {"value": "Infinity"}}
        answer = operator.update_limits(own, container, 1.5, request=0.5)
        assert (answer["limits"], answer["requests"]) == ({"cpus": {"value": 1.5}}, {"cpus": {"value": 0.5}})
        assert limit() == 1.5 and "until" not in answer
        answer = operator.update_limits(own, container, lease_s=600.0, request=0.25)
        assert (answer["limits"], answer["requests"]) == ({"cpus": {"value": 1.5}}, {"cpus": {"value": 0.25}})
        assert operator.update_limits(own, container, 1.0, 0, request=1.0)["requests"] == {"cpus": {"value": 0.5}}
        with pytest.raises(InvalidInput, match="nothing is to be changed"):
            operator.update_limits(own, container)
        with pytest.raises(InvalidInput, match="ASA_UPDATE_LIMITS"):
            operator.update_limits(own, container, 1000.0, 1.0)
        with pytest.raises(InvalidInput, match="cannot be found"):
            operator.update_limits(own, "nobody", 1.0, 1.0)


def test_quotas(pool: PoolDirectory) -> None:
    with Operator(pool) as operator:
        assert operator.quota() == []
        operator.set_quota("test", {"cpus": 3, "mem": 512})
        (quota,) = operator.quota()
        assert (quota["role"], quota["limits"]["cpus"]) == ("test", {"value": 3.0})
        operator.set_quota("test", {})
        assert operator.quota() == []


def test_a_drained_agent_loses_its_tasks(pool: PoolDirectory, busy: Busy) -> None:
    with Operator(pool) as operator:
        own = operator.get_agents()[0]["agent_info"]["id"]["value"]
        operator.drain(own, 0.0)
        assert busy.ended.wait(20)
        until(lambda: operator.get_agents()[0]["drain_info"]["state"] == "DRAINED")
        operator.reactivate(own)
        assert "drain_info" not in operator.get_agents()[0]
        operator.deactivate(own)
        assert operator.get_agents()[0]["deactivated"]


def shims(path: Path) -> list[psutil.Process]:
    """The processes, started below this one, that start containers for agents there."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE and any(str(path) in word for word in process.cmdline())
    ]


def test_an_agent_that_was_started_again_is_found_where_it_is_now(tmp_path: Path) -> None:
    def is_found() -> bool:
        try:
            return operator.containers(own) == []
        except BackendError:
            return False

    with live.pool(tmp_path, agents=0) as directory, Operator(directory, READER) as operator:
        agent = live.agent(directory, tmp_path / "work")
        agent.start()
        own = until(operator.get_agents, "the agent")[0]["agent_info"]["id"]["value"]
        assert is_found()
        agent.kill()
        assert not is_found()
        until(lambda: not shims(tmp_path), "the end of its shim, which has nothing to wait for")
        with live.agent(directory, tmp_path / "work"):
            until(is_found, "the agent in its new place")


def test_who_may_only_look_changes_nothing(pool: PoolDirectory) -> None:
    with Operator(pool, READER) as operator:
        with pytest.raises(InvalidInput, match=r"refused UPDATE_QUOTA \(403\).*operator-write"):
            operator.set_quota("test", {"cpus": 1})
        assert operator.quota() == []
    with Operator(pool, FRAMEWORK_ROLE) as operator, pytest.raises(InvalidInput, match="403"):
        operator.get_state()


def test_refusals_are_raised_with_their_reason(pool: PoolDirectory) -> None:
    with Operator(pool) as operator:
        with pytest.raises(CallRefused, match=r"refused NO_SUCH_CALL \(501\)") as refused:
            operator.call("NO_SUCH_CALL")
        assert refused.value.status == 501
        with pytest.raises(InvalidInput, match=r"no agent 'nobody'; the master knows .*-S"):
            operator.containers("nobody")


def test_a_pool_without_a_master(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    with Operator(directory) as operator:
        with pytest.raises(BackendError, match="has no master: asa master --directory") as caught:
            operator.get_state()
        assert caught.value.transient
        directory.publish(MasterAddress(("127.0.0.1",), 1, True, 1, "m"))
        with pytest.raises(BackendError, match="does not answer GET_STATE") as caught:
            operator.get_state()
        assert caught.value.transient


def test_only_the_pools_own_master_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, other = (PoolDirectory.create(tmp_path / name, "p") for name in ("pool", "other"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.path / "tls" / "ca.pem"))
    with Scripted(context=other.server_context(MASTER_NAME)) as stranger, Operator(directory) as operator:
        directory.publish(MasterAddress(("127.0.0.1",), stranger.port, True, 1, "m"))
        with pytest.raises(BackendError, match=r"(?i)certificate"):
            operator.get_state()
        assert stranger.heads == []
    with Scripted(context=directory.server_context(MASTER_NAME)) as master, Operator(directory) as operator:
        master.status = lambda call: (200, '{"type": "GET_HEALTH", "get_health": {"healthy": true}}')
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, 1, "m"))
        assert operator.call("GET_HEALTH") == {"healthy": True}
        assert master.heads[0]["Authorization"] == f"Bearer {directory.token(WRITER)}"


def test_answers_that_make_no_sense(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    with Scripted() as master, Operator(directory) as operator:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, False, 1, "m"))
        for text in ("nonsense", "[]", '{"get_state": 1}'):
            master.status = lambda call, text=text: (200, text)  # type: ignore[misc]
            with pytest.raises(BackendError, match="makes no sense"):
                operator.get_state()
        master.status = lambda call: (503, "later")
        with pytest.raises(BackendError, match="later") as caught:
            operator.get_state()
        assert caught.value.transient


def test_a_redirect_is_not_followed_with_our_token(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    with Scripted() as thief, Scripted() as master, Operator(directory) as operator:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, False, 1, "m"))
        master.entry = lambda: web.Response(status=307, headers={"Location": f"http://{thief.address}/api/v1"})
        with pytest.raises(InvalidInput, match="307"):
            operator.call("SUBSCRIBE")
        assert thief.heads == []


def test_a_damaged_directory_is_reported(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    (directory.path / "master.json").write_text("{")
    (directory.path / "master.json").chmod(0o600)
    with Operator(directory) as operator, pytest.raises(StateError, match="damaged"):
        operator.get_state()


# ---------------------------------------------------------------------- pool rows


class OneAgent:
    """A master with one agent."""

    def __init__(self, **agent: object) -> None:
        own = {"agent_info": {"id": {"value": "S1"}, "hostname": "n1"}, "total_resources": to_json(scalars(cpus=2))}
        self._agent = own | agent

    def get_agents(self) -> list[Message]:
        return [self._agent]

    def ends(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("agent", "state"),
    [
        ({"active": True}, "active"),
        ({"active": False}, "disconnected"),
        ({"active": False, "deactivated": True}, "deactivated"),
        ({"deactivated": True, "drain_info": {"state": "DRAINING"}}, "draining"),
    ],
)
def test_how_a_node_stands(agent: Message, state: str) -> None:
    [row] = pool_rows.nodes(OneAgent(**agent))  # type: ignore[arg-type]
    assert (row["node"], row["agent"], row["cores"], row["state"]) == ("n1", "S1", 2.0, state)
    assert row["ends_in_s"] is None


# ---------------------------------------------------------------------- pool command


def asa_pool(*words: str) -> CommandResult:
    parser, command = argparse.ArgumentParser(), PoolCommand()
    parser.add_argument("--json")
    command.configure(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def where(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    with live.pool(tmp_path, agents=2) as directory, working(directory, 2, 1.5):
        yield "--directory", str(directory.path)


def rows(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asa_pool(*words).data["rows"]
    return found


def test_what_it_shows(where: tuple[str, ...]) -> None:
    nodes = rows("nodes", *where)
    assert sorted((n["node"], n["allocation"], n["state"], n["cores"], n["used"], n["memory_gib"]) for n in nodes) == [
        ("127.0.0.1", "job-0", "active", 4.0, 1.5, 1.0),
        ("127.0.0.1", "job-1", "active", 4.0, 1.5, 1.0),
    ]
    allocations = sorted(rows("allocations", *where), key=lambda row: str(row["allocation"]))
    assert [(row["allocation"], row["nodes"], row["cores"], row["used"]) for row in allocations] == [
        ("job-0", 1, 4.0, 1.5),
        ("job-1", 1, 4.0, 1.5),
    ]
    containers = rows("containers", *where)
    assert [(c["state"], c["limit_cores"]) for c in containers] == [("running", 1.5)] * 2
    assert {c["executor"] for c in containers} == {f"t-{n['agent']}" for n in nodes}
    (framework,) = rows("frameworks", *where)
    assert (framework["name"], framework["roles"], framework["tasks"], framework["cores"]) == ("test", "test", 2, 3.0)
    assert rows("quota", *where) == [] and asa_pool("quota", *where).text == "there are none"
    lines = asa_pool("nodes", *where).text.splitlines()
    assert lines[0].split() == ["node", "agent", "allocation", "state", "cores", "used", "memory_gib", "ends_in_s"]
    assert len(lines) == 3


def test_when_allocations_end(tmp_path: Path) -> None:
    with live.pool(tmp_path, agents=1) as directory:
        where = "--directory", str(directory.path)
        attribute = {"name": "allocation", "type": "TEXT", "text": {"value": "short"}}
        with live.agent(directory, tmp_path / "short", attributes=[attribute], ends=time.time() + 600):
            until(lambda: len(rows("nodes", *where)) == 2, "agents")
            for what in ("nodes", "allocations"):
                ends = {row["allocation"]: row["ends_in_s"] for row in rows(what, *where)}
                assert ends["job-0"] is None and 500 < ends["short"] <= 600


def test_quotas_are_set_and_taken_away(where: tuple[str, ...]) -> None:
    assert (
        asa_pool("set-quota", "test", "cpus=2", "mem=512", *where).text == "role test may have at most cpus 2, mem 512"
    )
    assert rows("quota", *where) == [{"role": "test", "limits": "cpus=2 mem=512"}]
    assert asa_pool("set-quota", "test", *where).text == "role test may have as much as there is"
    assert rows("quota", *where) == []
    for word in ("cpus", "cpus=", "=1", "cpus=-1", "cpus=inf", "cpus=nan", "cpus=x"):
        with pytest.raises(InvalidInput, match="expected a limit such as cpus=8"):
            asa_pool("set-quota", "test", word, *where)
    with pytest.raises(UnknownName, match="unknown resource 'cpu': did you mean 'cpus'"):
        asa_pool("set-quota", "test", "cpu=8", *where)


def test_a_containers_limit_is_changed(where: tuple[str, ...]) -> None:
    agent = rows("nodes", *where)[0]["agent"]
    container = next(c for c in rows("containers", *where) if c["executor"] == f"t-{agent}")["container"]
    text = asa_pool("limit", agent, container, "0.5", "--lease", "600", *where).text
    assert text == f"container {container} may have 0.5 cores for 600 s"
    assert sorted(c["limit_cores"] for c in rows("containers", *where)) == [0.5, 1.5]
    asa_pool("limit", agent, container, "0.5", "--lease", "0", *where)
    assert [c["limit_cores"] for c in rows("containers", *where)] == [1.5, 1.5]


def test_a_node_is_drained(where: tuple[str, ...]) -> None:
    agent = rows("nodes", *where)[0]["agent"]
    assert asa_pool("drain", agent, "--grace", "0", *where).text == f"{agent} gets no more tasks"
    until(lambda: {n["state"] for n in rows("nodes", *where)} == {"drained", "active"})
    with pytest.raises(InvalidInput, match=r"more than one agent is called '127.0.0.1'; there are .*-S"):
        asa_pool("drain", "127.0.0.1", *where)
    with pytest.raises(InvalidInput, match="no agent is called 'nobody'"):
        asa_pool("drain", "nobody", *where)


def test_the_option_for_json_may_stand_before_and_after(tmp_path: Path) -> None:
    parser, command = argparse.ArgumentParser(), PoolCommand()
    parser.add_argument("--json")
    command.configure(parser)
    for words in (["--json", "out", "nodes"], ["nodes", "--json", "out"], ["drain", "n1", "--json", "out"]):
        assert parser.parse_args(words).json == "out"
    assert parser.parse_args(["nodes"]).json is None


def test_pools_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(InvalidInput, match=r"there is no pool in .*pools/default: start one with asa master"):
        asa_pool("nodes")
    PoolDirectory.create(tmp_path / "state" / "pools" / "mine", "mine")
    with pytest.raises(BackendError, match="mine has no master: asa master --directory"):
        asa_pool("nodes", "--name", "mine")
    for name in ("", "..", "a/b"):
        with pytest.raises(InvalidInput, match="is no name of a pool"):
            asa_pool("nodes", "--name", name)


def test_the_first_letters_of_a_runs_name_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("ASA_STATE_DIR", str(state))
    for name in ("montage-1a", "montage-2b", "blast-3c"):
        PoolDirectory.create(RunDirectory.create(private_directory(state), name).path / "pool", name)
    with pytest.raises(BackendError, match="blast-3c/pool has no master: the run is over, or not as far yet"):
        asa_pool("nodes", "--run", "bla")
    with pytest.raises(RunNotFound, match="no run 'montaga'"):
        asa_pool("nodes", "--run", "montaga")
    RunDirectory.create(state, "alone")
    with pytest.raises(InvalidInput, match="there is no pool in"):
        asa_pool("nodes", "--run", "alone")


def test_a_node_that_does_not_answer_is_shown_as_such(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    info = {"id": {"value": "S1"}, "hostname": "127.0.0.1", "port": 1}
    with Scripted() as master:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, False, 1, "m"))
        agents = {"type": "GET_AGENTS", "get_agents": {"agents": [{"agent_info": info, "pid": "slave(1)@127.0.0.1:1"}]}}
        master.status = lambda call: (200, encode(agents).decode())
        (row,) = rows("containers", "--directory", str(directory.path))
        assert (row["node"], row["state"], row["container"]) == ("127.0.0.1", "no answer", None)
        agents["get_agents"] = {"agents": [{"agent_info": "nonsense"}]}
        with pytest.raises(BackendError, match="makes no sense"):
            asa_pool("nodes", "--directory", str(directory.path))
