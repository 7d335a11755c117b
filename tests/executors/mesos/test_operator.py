from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from asa.core.errors import BackendError, InvalidInput, StateError
from executors.mesos.driver import SchedulerDriver
from executors.mesos.operator import CallRefused, Operator
from executors.mesos.pool_directory import FRAMEWORK as FRAMEWORK_ROLE
from executors.mesos.pool_directory import MASTER_NAME, READER, WRITER, MasterAddress, PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.scripted import Scripted, until


class Sleeper:
    """Runs one task that sleeps."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.ended = threading.Event()

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        if not self.running.is_set():
            driver.launchTasks(offers[0]["id"], [live.command("t1", offers[0], "exec sleep 600", cpus=2)])

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        (self.running if status["state"] == "TASK_RUNNING" else self.ended).set()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDirectory]:
    with live.pool(tmp_path) as directory:
        yield directory


@pytest.fixture
def busy(pool: PoolDirectory) -> Iterator[Sleeper]:
    sleeper = Sleeper()
    driver = SchedulerDriver(sleeper, live.FRAMEWORK, pool)
    driver.start()
    assert sleeper.running.wait(20)
    yield sleeper
    driver.stop()
    driver.join()


def test_what_it_sees(pool: PoolDirectory, busy: Sleeper) -> None:
    with Operator(pool, READER) as operator:
        (agent,) = operator.get_agents()
        (framework,) = operator.get_frameworks()
        assert framework["framework_info"]["name"] == "test" and framework["connected"]
        (task,) = operator.get_state()["get_tasks"]["tasks"]
        assert task["task_id"] == {"value": "t1"} and task["agent_id"] == agent["agent_info"]["id"]
        (container,) = operator.containers(agent["agent_info"]["id"]["value"])
        assert container["framework_id"] == framework["framework_info"]["id"]
        assert container["resource_statistics"]["cpus_limit"] == 2.0
        assert operator.call("GET_HEALTH") == {"healthy": True}


def test_a_limit_holds_for_its_lease(pool: PoolDirectory, busy: Sleeper) -> None:
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


def test_quotas_and_weights(pool: PoolDirectory) -> None:
    with Operator(pool) as operator:
        assert operator.quota() == [] and operator.weights() == {}
        operator.set_quota("test", {"cpus": 3, "mem": 512})
        operator.call("UPDATE_WEIGHTS", weight_infos=[{"role": "test", "weight": 2.5}])
        (quota,) = operator.quota()
        assert (quota["role"], quota["limits"]["cpus"]) == ("test", {"value": 3.0})
        assert operator.weights() == {"test": 2.5}
        operator.set_quota("test", {})
        assert operator.quota() == []


def test_a_drained_agent_loses_its_tasks(pool: PoolDirectory, busy: Sleeper) -> None:
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
        with pytest.raises(InvalidInput, match=r"refused UPDATE_WEIGHTS \(403\).*operator-write"):
            operator.call("UPDATE_WEIGHTS", weight_infos=[{"role": "test", "weight": 2.0}])
        assert operator.weights() == {}
    with Operator(pool, FRAMEWORK_ROLE) as operator, pytest.raises(InvalidInput, match="403"):
        operator.get_state()


def test_what_is_refused_is_told(pool: PoolDirectory) -> None:
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


def test_a_damaged_directory_is_told(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    (directory.path / "master.json").write_text("{")
    (directory.path / "master.json").chmod(0o600)
    with Operator(directory) as operator, pytest.raises(StateError, match="damaged"):
        operator.get_state()
