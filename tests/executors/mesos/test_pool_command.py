from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asa.core.command import CommandResult
from asa.core.errors import BackendError, InvalidInput, RunNotFound, UnknownName
from asa.log.rundir import RunDirectory
from asa.security.files import private_directory
from executors.mesos.codec import encode
from executors.mesos.driver import SchedulerDriver
from executors.mesos.pool_command import PoolCommand
from executors.mesos.pool_directory import MasterAddress, PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.scripted import Scripted, until


def asa_pool(*words: str) -> CommandResult:
    parser, command = argparse.ArgumentParser(), PoolCommand()
    parser.add_argument("--json")
    command.configure(parser)
    return command.run(parser.parse_args(words))


class Busy:
    """Keeps a task running on each agent."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.both = threading.Event()

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        for offer in offers:
            own = f"t-{offer['agent_id']['value']}"
            tasks = [] if own in self.running else [live.command(own, offer, "exec sleep 600", cpus=1.5)]
            driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0.1})

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        self.running.add(status["task_id"]["value"])
        if len(self.running) == 2:
            self.both.set()


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    with live.pool(tmp_path, agents=2) as directory:
        busy = Busy()
        driver = SchedulerDriver(busy, live.FRAMEWORK, directory)
        driver.start()
        assert busy.both.wait(20)
        yield "--directory", str(directory.path)
        driver.stop()
        driver.join()


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
    assert rows("quota", *where) == [{"role": "test", "weight": 1.0, "limits": "cpus=2 mem=512"}]
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
    with pytest.raises(RunNotFound, match="beginning of several runs: montage-1a, montage-2b"):
        asa_pool("nodes", "--run", "montage")
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
