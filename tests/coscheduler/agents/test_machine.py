"""The machine on real agents: processes of their own, on this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from asa.core.errors import StateError
from asa.web.hosts import LOOPBACK
from coscheduler.agents import groups as pools
from coscheduler.agents import machine as agents
from coscheduler.agents.groups import LocalAgents, NamedPool, OwnMaster, local_agents
from coscheduler.agents.machine import AgentMachine
from coscheduler.real.machine import (
    ContainerEnded,
    ContainerEvent,
    ContainerProgram,
    ContainerStarted,
    ContainerUsage,
    SharedMachine,
)
from executors.cgroup import probe
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER
from tests.executors.mesos.scripted import until

pytestmark = pytest.mark.slow

PATIENCE_S = 40.0
ROOT = Path(__file__).parents[3]
WINDOW_S = 2.0
SLEEP = ContainerProgram(("/bin/sleep", "1000"), {})
BURN = ContainerProgram(("/bin/sh", "-c", "while :; do :; done"), {})


def shell(script: str, **environment: str) -> ContainerProgram:
    return ContainerProgram(("/bin/sh", "-c", script), environment)


class Heard:
    """All that a machine has told."""

    def __init__(self, machine: SharedMachine) -> None:
        self.machine, self.news = machine, list[ContainerEvent]()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.news
            self.news += self.machine.news(0.2)

    def all(self, *wanted: ContainerEvent) -> None:
        """Wait for these, in any order."""
        self.until(lambda: set(wanted) <= set(self.news))

    def end(self, container: str) -> ContainerEnded:
        found: list[ContainerEnded] = []

        def told() -> bool:
            found.extend(item for item in self.news if isinstance(item, ContainerEnded) and item.container == container)
            return bool(found)

        self.until(told)
        return found[0]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> LocalAgents:
    """Two nodes of one core each; an agent is lost after two seconds."""
    monkeypatch.setattr(pools, "_PING_S", 0.5)
    monkeypatch.setattr(pools, "_PINGS", 4)
    return local_agents(2, cores=1)


@pytest.fixture
def machine(pool: LocalAgents) -> Iterator[AgentMachine]:
    with AgentMachine(pool) as machine:
        yield machine


@pytest.fixture
def heard(machine: AgentMachine) -> Heard:
    return Heard(machine)


def test_containers_start_on_their_nodes_and_end_as_they_do(
    machine: AgentMachine, heard: Heard, tmp_path: Path
) -> None:
    assert [(node.name, node.cores, node.speed) for node in machine.nodes] == [("node0", 1, 1.0), ("node1", 1, 1.0)]
    assert machine.nodes[0].memory > 1 << 20
    machine.start("job.0", "node0", shell(f'printf %s "$RANK" >{tmp_path}/rank', RANK="0 of 2"), 0.5, 1.0)
    machine.start("job.1", "node1", shell("exit 3"), 0.5, 1.0)
    machine.start("none", "node1", ContainerProgram(("/no/such/program",), {}), 0.5, 1.0)
    heard.all(
        ContainerStarted("job.0"),
        ContainerEnded("job.0"),
        ContainerStarted("job.1"),
        ContainerEnded("job.1", "Command exited with status 3"),
    )
    assert heard.news.index(ContainerStarted("job.0")) < heard.news.index(ContainerEnded("job.0"))
    assert (tmp_path / "rank").read_text() == "0 of 2"
    assert heard.end("none").problem
    assert not heard.end("none").lost


def test_those_started_together_fill_a_node_and_have_used_something(machine: AgentMachine, heard: Heard) -> None:
    names = [f"c{number}" for number in range(3)]
    for name in names:
        machine.start(name, "node0", BURN, 1 / 3, 1.0)
    heard.all(*map(ContainerStarted, names))
    first = machine.used()
    assert set(first) == set(names)
    until(lambda: all(used.cpu_s > first[name].cpu_s + 0.05 for name, used in machine.used().items()), "some use")
    for name in names:
        machine.stop(name)
    heard.all(*map(ContainerEnded, names))
    assert machine.used() == {}


def test_memory_is_what_a_container_has_now(machine: AgentMachine, heard: Heard) -> None:
    large = 8_000_000
    machine.start("c", "node0", shell(f"x=$(head -c {large} /dev/zero | tr '\\0' a); sleep 1000; :"), 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    until(lambda: "c" in (used := machine.used()) and (used["c"].memory or 0) >= large, "its memory")


def test_one_that_is_stopped_ends_without_a_problem_whatever_it_does_about_it(
    machine: AgentMachine, heard: Heard
) -> None:
    machine.start("c", "node0", shell("trap 'exit 5' TERM; while :; do sleep 0.05; done"), 0.5, 1.0)
    machine.start("stubborn", "node1", shell("trap '' TERM; while :; do sleep 0.05; done"), 0.5, 1.0)
    heard.all(ContainerStarted("c"), ContainerStarted("stubborn"))
    for name in ("c", "stubborn", "c", "never started"):
        machine.stop(name)
    heard.all(ContainerEnded("c"), ContainerEnded("stubborn"))
    assert machine.news(0.1) == []


def test_what_runs_on_an_agent_that_dies_is_lost_and_its_node_is_gone(
    pool: LocalAgents, machine: AgentMachine, heard: Heard
) -> None:
    machine.start("here", "node0", SLEEP, 0.5, 1.0)
    machine.start("there", "node1", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("here"), ContainerStarted("there"))
    pool.agents["node0"].kill()
    machine.start("late", "node0", SLEEP, 0.5, 1.0)
    assert heard.end("here").lost
    assert heard.end("late").lost
    heard.until(lambda: [node.name for node in machine.nodes] == ["node1"])
    assert set(machine.used()) == {"there"}
    machine.start("later", "node0", SLEEP, 0.5, 1.0)
    assert heard.end("later").lost


def test_what_runs_on_an_agent_that_is_told_to_end_is_lost(
    pool: LocalAgents, machine: AgentMachine, heard: Heard
) -> None:
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    pool.agents["node0"].terminate()
    assert heard.end("c").lost
    heard.until(lambda: [node.name for node in machine.nodes] == ["node1"])


def test_an_agent_that_is_silent_holds_up_nobody(pool: LocalAgents, machine: AgentMachine, heard: Heard) -> None:
    machine.start("here", "node0", SLEEP, 0.5, 1.0)
    machine.start("there", "node1", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("here"), ContainerStarted("there"))
    pool.agents["node0"].send_signal(signal.SIGSTOP)
    try:
        machine.share("here", 0.1, 1.0, None)
        machine.share("there", 0.1, 0.5, None)
        assert set(machine.used()) == {"there"}
        until(lambda: limits(pool, "node1") == {"there": 0.5}, "the other's limit")
        assert heard.end("here").lost
    finally:
        pool.agents["node0"].send_signal(signal.SIGCONT)


def limits(pool: LocalAgents, node: str) -> dict[str, float]:
    """The limits of the containers on a node, by container."""
    with Operator(pool.directory, READER) as operator:
        (agent,) = (item["agent_info"] for item in operator.get_agents() if item["agent_info"]["hostname"] == node)
        found = operator.containers(agent["id"]["value"])
    return {
        item["executor_id"]["value"]: item["resource_statistics"]["cpus_limit"]
        for item in found
        if "cpus_limit" in item["resource_statistics"]
    }


def test_a_share_is_for_good_or_comes_back_by_itself(pool: LocalAgents, machine: AgentMachine, heard: Heard) -> None:
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    machine.share("c", 0.5, 0.5, None)
    heard.all(ContainerStarted("c"))
    until(lambda: limits(pool, "node0") == {"c": 0.5}, "the limit that it was given before it ran")
    machine.share("c", 0.5, 0.3, 600.0)
    until(lambda: limits(pool, "node0") == {"c": 0.3}, "a lease")
    machine.share("c", 0.5, 0.3, 0.0)
    until(lambda: limits(pool, "node0") == {"c": 0.5}, "the end of the lease")
    machine.share("c", 0.5, 0.2, 0.3)
    until(lambda: limits(pool, "node0") == {"c": 0.2}, "a short lease")
    until(lambda: limits(pool, "node0") == {"c": 0.5}, "its end")
    machine.share("c", 0.5, 1.0, None)
    until(lambda: limits(pool, "node0") == {}, "no limit")


def _has_weights() -> bool:
    try:
        return probe.best(f"test-{os.getpid()}").name.startswith("cgroup")
    except StateError:
        return False


def rates(machine: SharedMachine) -> dict[str, float]:
    """CPU time of each container in `WINDOW_S`."""
    before = machine.used()
    time.sleep(WINDOW_S)
    return {name: used.cpu_s - before[name].cpu_s for name, used in machine.used().items()}


@pytest.mark.slow
@pytest.mark.skipif(not _has_weights(), reason="needs control groups that may be written")
def test_those_that_want_the_same_processor_have_it_by_their_requests(machine: AgentMachine, heard: Heard) -> None:
    machine.start("host", "node0", BURN, 0.8, 1.0)
    machine.start("guest", "node0", BURN, 0.1, 1.0)
    heard.all(ContainerStarted("host"), ContainerStarted("guest"))
    found = rates(machine)
    assert found["host"] > 4 * found["guest"]
    machine.share("host", 0.1, 1.0, None)
    machine.share("guest", 0.8, 1.0, 600.0)
    time.sleep(0.5)
    found = rates(machine)
    assert found["guest"] > 4 * found["host"]


@pytest.mark.slow
@pytest.mark.skipif(not _has_weights(), reason="needs control groups that may be written")
def test_nodes_of_a_fraction_are_slow() -> None:
    with AgentMachine(local_agents(1, cores=1, capacity=0.3)) as machine:
        heard = Heard(machine)
        assert [(node.cores, node.speed) for node in machine.nodes] == [(1, pytest.approx(0.3))]
        machine.start("host", "node0", BURN, 0.9, 1.0)
        machine.start("guest", "node0", BURN, 0.05, 1.0)
        heard.all(ContainerStarted("host"), ContainerStarted("guest"))
        found = rates(machine)
        assert sum(found.values()) < 0.45 * WINDOW_S
        assert found["host"] > 4 * found["guest"]


def marked(mark: str) -> list[psutil.Process]:
    """Processes that have this in their environment."""
    found = psutil.process_iter(["environ", "status"])
    lives = [process for process in found if process.info["status"] != psutil.STATUS_ZOMBIE]
    return [process for process in lives if (process.info["environ"] or {}).get("TEST_OF_AGENTS") == mark]


def test_all_is_ended_and_removed_at_close(pool: LocalAgents) -> None:
    mark = uuid.uuid4().hex
    with AgentMachine(pool) as machine:
        heard = Heard(machine)
        machine.start("c", "node0", shell("sleep 1000 & exec sleep 1000", TEST_OF_AGENTS=mark), 0.5, 1.0)
        heard.all(ContainerStarted("c"))
        until(lambda: len(marked(mark)) == 2, "its processes")
    assert [agent.returncode for agent in pool.agents.values()] == [128 + signal.SIGTERM] * 2
    assert marked(mark) == []
    assert not pool.directory.path.parent.exists()


DRIVER = """
import sys, time
from coscheduler.agents.machine import AgentMachine
from coscheduler.real.machine import ContainerProgram, ContainerStarted
from coscheduler.agents.groups import local_agents
pool = local_agents(1, cores=1)
with AgentMachine(pool) as machine:
    machine.start("c", "node0", ContainerProgram(("/bin/sleep", "1000"), {"TEST_OF_AGENTS": sys.argv[1]}), 0.5, 1.0)
    while ContainerStarted("c") not in machine.news(1.0):
        pass
    print(pool.directory.path.parent, flush=True)
    time.sleep(1000)
"""


@pytest.mark.slow
def test_nothing_runs_on_for_long_when_the_co_scheduler_is_killed() -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "-c", DRIVER, mark], stdout=subprocess.PIPE, text=True, cwd=ROOT) as driver:
        assert driver.stdout is not None
        place = driver.stdout.readline().strip()
        driver.kill()
    assert len(marked(mark)) == 1
    until(lambda: marked(mark) == [], "the end of the container")
    until(lambda: not any(place in word for word in _words()), "the end of its agent")
    shutil.rmtree(place)


def _words() -> list[str]:
    """All words of all command lines."""
    return [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()]


def test_a_framework_that_is_torn_down_has_lost_everything(
    pool: LocalAgents, machine: AgentMachine, heard: Heard
) -> None:
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    with Operator(pool.directory) as operator:
        (framework,) = (item["framework_info"]["id"] for item in operator.get_frameworks())
        operator.call("TEARDOWN", framework_id=framework)
    assert heard.end("c").lost
    heard.until(lambda: machine.nodes == ())
    with pytest.raises(StateError, match=r"does not know the co-scheduler any more: .*asa cosched run .* --resume"):
        machine.news(0.0)


def test_a_master_that_is_started_again_knows_its_containers(
    pool: LocalAgents, machine: AgentMachine, heard: Heard
) -> None:
    """What was launched just before that, or just after, is told to be lost, and not waited for without end."""
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    pool.own.master.close()
    pool.own.master = MasterService(pool.directory, MasterOptions(user=getpass.getuser()), host=LOOPBACK)
    pool.own.master.start()
    machine.start("next", "node1", SLEEP, 0.5, 1.0)
    machine.stop("c")
    heard.all(ContainerEnded("c"))
    heard.until(
        lambda: (
            {type(item) for item in heard.news if item.container == "next"} & {ContainerStarted, ContainerEnded}
            != set()
        )
    )
    machine.start("last", "node1", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("last"))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[OwnMaster]:
    """A pool with a master and without agents."""
    own = OwnMaster(tmp_path, LOOPBACK)
    yield own
    own.close()


def test_nodes_that_do_not_come_are_told_how_they_would(empty: OwnMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NamedPool, "patience_s", 0.1)
    told = r"0 of 1 nodes have come, and no job was run: all were .* within 0.1 s. Start agents with: asa agent --dir"
    with pytest.raises(StateError, match=told):
        AgentMachine(NamedPool(empty.directory.path))


def test_a_master_that_does_not_answer_is_given_up(empty: OwnMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_MASTER_S", 0.2)
    pool = NamedPool(empty.directory.path)
    empty.master.close()
    with pytest.raises(StateError, match=r"the master of .* the co-scheduler: it has not answered for 0.2 s"):
        AgentMachine(pool)


def test_what_a_master_says_or_refuses_harms_nobody_else(
    machine: AgentMachine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    machine.callbacks.slaveLost(None, {"valu": "A"})
    machine.start("a/b", "node0", SLEEP, 0.5, 1.0)
    assert heard.end("a/b").problem
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    assert "a message of the master makes no sense, and is ignored" in caplog.text


def test_an_existing_pool_goes_on_without_us(pool: LocalAgents) -> None:
    try:
        with Operator(pool.directory, READER) as operator:
            until(lambda: len(operator.get_agents()) == 2, "the agents")
            with AgentMachine(NamedPool(pool.directory.path)) as machine:
                heard = Heard(machine)
                machine.start("c", "node1", SLEEP, 0.5, 1.0)
                heard.all(ContainerStarted("c"))
                until(lambda: "c" in machine.used(), "what it has used")
                assert isinstance(machine.used()["c"], ContainerUsage)
            until(lambda: operator.get_frameworks() == [], "the end of the framework")
            assert len(operator.get_agents()) == 2
    finally:
        pool.close()


def test_agents_that_cannot_run_here_say_why() -> None:
    with pytest.raises(StateError, match=r"the agent node0 ended with exit code 1: .*--capacity 5"):
        AgentMachine(local_agents(1, cores=1, capacity=5.0))
