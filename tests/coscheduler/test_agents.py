"""Agents as the nodes of a queue: pools of them, calls to them, and what runs on them."""

from __future__ import annotations

import getpass
import math
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from asa.backends.local import Local
from asa.core.errors import BackendError, InvalidInput, StateError, UnknownName
from asa.core.job import JobState
from asa.web.hosts import LOOPBACK
from coscheduler.agents import groups as pools
from coscheduler.agents import machine as agents
from coscheduler.agents import machine as module
from coscheduler.agents.containers import HoldCall, ShareCall, SignalCall
from coscheduler.agents.groups import BatchAgents, LocalAgents, NamedPool, OwnMaster
from coscheduler.agents.machine import AgentCalls, AgentMachine
from coscheduler.real.gangs import STOPPED_CPUS
from coscheduler.real.machine import (
    ContainerEnded,
    ContainerEvent,
    ContainerProgram,
    ContainerStarted,
    ContainerUsage,
    SharedMachine,
)
from coscheduler.standing import QUEUE_LOG_VERSION, Begun, GangStarted, JobStanding, LeftQueue
from executors.mesos.codec import Message
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.operator import CallRefused, Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from tests.coscheduler.fake_machine import needs_weights
from tests.executors.mesos.scripted import DEADLINE_S
from tests.waiting import until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def batch() -> BatchAgents:
    return BatchAgents(1, 1, 120.0, "local:cores=1,poll_s=0.1")


def test_a_job_runs_the_agents_until_they_are_sent_away(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = batch()
    with AgentMachine(pool) as machine:
        (node,) = machine.nodes
        assert node.cores == 1
        machine.start("c", node.name, ContainerProgram(("/bin/true",), {}), 1.0, 1.0)
        told = []
        until(lambda: told.extend(machine.news(0.1)) or ContainerEnded("c") in told, "its end")
        assert told == [ContainerStarted("c"), ContainerEnded("c")]
    assert f"job {pool.job.job_id} with 1 nodes: " in capsys.readouterr().err
    assert list(state.glob("asa-cosched-*")) == []


def test_a_job_that_ends_before_its_agents_register_is_an_error_with_their_output(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("/bin/sh", "-c", "echo no room; exit 4")
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: words)
    with pytest.raises(StateError, match=r"has ended \(failed.*\), and none .* was run. Its agents have said: no room"):
        AgentMachine(batch())
    assert list(state.glob("asa-cosched-*")) == []


def test_a_job_whose_agents_do_not_come_is_given_up_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coscheduler.agents.groups.AGENTS_S", 0.5)
    monkeypatch.setattr("coscheduler.agents.groups.JOB_ENDS_S", 0.5)
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sleep", "1000"))
    ended = []
    pool = batch()
    cancel = pool.backend.cancel
    monkeypatch.setattr(pool.backend, "cancel", lambda handles: ended.extend(handles) or cancel(handles))
    with pytest.raises(StateError, match=r"not all of its agents have come within 0\.5 s"):
        AgentMachine(pool)
    assert ended == [pool.job]


def test_a_refused_job_is_an_error(state: Path) -> None:
    with pytest.raises(BackendError, match="refuses 1 nodes of 100000 cores"):
        BatchAgents(1, 100000, 60.0, "local:cores=1")
    assert list(state.glob("asa-cosched-*")) == []


def test_a_batch_system_that_does_not_answer(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A passing error is ignored, a lasting one is reported, and closing goes on in either case."""
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/true",))
    pool, errors = batch(), [BackendError("busy", transient=True)]
    asked = []

    def refuse(handles: object) -> None:
        asked.append(handles)
        raise errors[-1]

    monkeypatch.setattr(pool.backend, "query", refuse)
    monkeypatch.setattr(pool.backend, "cancel", refuse)
    monkeypatch.setattr(pool, "poll_s", 1000.0)
    pool.check()
    pool.check()
    assert len(asked) == 1, "the second time it was too soon to ask again"
    errors.append(BackendError("no such job"))
    monkeypatch.setattr(pool, "poll_s", 0.0)
    with pytest.raises(BackendError, match="no such job"):
        pool.check()
    pool.close()
    assert f"job {pool.job.job_id} could not be cancelled: no such job" in capsys.readouterr().err
    assert list(state.glob("asa-cosched-*")) == []


def test_agents_that_have_not_even_a_file_have_said_nothing() -> None:
    pool = batch()
    pool.output.unlink(missing_ok=True)
    assert pool.last_words() == "Its agents have said nothing"
    pool.close()


@pytest.mark.parametrize(("nodes", "cores", "walltime_s"), [(0, 1, 60.0), (1, 0, 60.0), (1, 1, 0.0)])
def test_jobs_of_nothing_are_refused(nodes: int, cores: int, walltime_s: float) -> None:
    with pytest.raises(InvalidInput, match="at least 1 node, 1 core"):
        BatchAgents(nodes, cores, walltime_s)


def test_backends_that_there_are_not_are_refused() -> None:
    with pytest.raises(UnknownName, match="slurm"):
        BatchAgents(1, 1, 60.0, "slrum")


@pytest.mark.parametrize(("nodes", "cores", "capacity"), [(0, 1, None), (1, 0, None), (1, 1, 0.0)])
def test_pools_of_nothing_are_refused(nodes: int, cores: int, capacity: float | None) -> None:
    with pytest.raises(InvalidInput, match="at least 1 node, 1 core"):
        LocalAgents(nodes, cores, capacity)


def test_a_pool_without_a_master_is_none(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no pool with a master"):
        NamedPool(tmp_path / "none")
    PoolDirectory.create(tmp_path / "pool", "test")
    with pytest.raises(StateError, match="asa master --directory"):
        NamedPool(tmp_path / "pool")


def test_output_of_agents_is_private_and_in_errors(tmp_path: Path) -> None:
    pool = LocalAgents(1, cores=1)
    try:
        folder = pool.directory.path.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        pool.check()
        pool.agents["node0"].kill()
        pool.agents["node0"].wait(10)
        with pytest.raises(StateError, match="the agent node0 was killed by signal 9"):
            pool.check()
        assert pool.last_words().startswith("node0: ")
        (folder / "node0.log").unlink()
        assert pool.last_words() == "node0: it has said nothing"
    finally:
        pool.close()
    assert not folder.exists()


def test_what_begins_anew_waits_for_the_agents_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pools.alone(tmp_path / "lock") as held:
        pool = LocalAgents(1, cores=1, held=held)
    try:
        with pytest.raises(StateError, match=r"still run after 1 s, .*lock open"), pools.alone(tmp_path / "lock", 1.0):
            pytest.fail("an agent lives, and has the lock")
        assert "waiting until they have ended" in capsys.readouterr().err
        pool.agents["node0"].kill()
        with pools.alone(tmp_path / "lock"):
            assert pool.agents["node0"].wait(10)
    finally:
        pool.close()


def sleepers() -> list[psutil.Process]:
    return [found for found in psutil.Process().children(recursive=True) if found.name() == "sleep"]


def test_what_begins_anew_ends_the_batch_job_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sleep", "1000"))
    record = tmp_path / "agents.json"
    pools.end_recorded(record)
    before = BatchAgents(1, 1, 120.0, f"local:cores=1,poll_s=0.1,directory={tmp_path / 'jobs'}", record)
    until(lambda: before.backend.query([before.job])[0].state is JobState.RUNNING, "its start")
    (process,) = until(sleepers, "its program")
    before.backend.close()  # as far as a killed co-scheduler lets go
    pools.end_recorded(record)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert f"in job {before.job.job_id}: it is cancelled" in capsys.readouterr().err
    assert not record.exists()


def test_a_batch_job_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sleep", "1000"))
    record = tmp_path / "agents.json"
    before = BatchAgents(1, 1, 120.0, f"local:cores=1,poll_s=0.1,directory={tmp_path / 'jobs'}", record)
    monkeypatch.setattr(Local, "cancel", lambda backend, handles: None)
    try:
        with pytest.raises(StateError, match=f"job {before.job.job_id} with the agents before has not ended"):
            pools.end_recorded(record, patience_s=0.2)
        assert record.exists()
    finally:
        monkeypatch.undo()
        pools.end_recorded(record)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"backend": "local"}', "\xff"])
def test_a_record_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    record = tmp_path / "agents.json"
    record.write_bytes(text.encode("latin-1"))
    with pytest.raises(StateError, match="does not say which batch job ran the agents before"):
        pools.end_recorded(record)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pools are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_agents_that_cannot_be_started_leave_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: (str(folder / "none"),))
    with pytest.raises(FileNotFoundError, match="none"):
        LocalAgents(1, cores=1)
    assert list(folder.iterdir()) == []


def test_an_agent_that_does_not_end_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "ENDING_S", 0.1)
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sh", "-c", script))
    pool = LocalAgents(1, cores=1)
    until(lambda: pool.last_words() == "node0: ready", "its trap")
    pool.close()
    assert pool.agents["node0"].returncode == -signal.SIGKILL
    assert list(folder.iterdir()) == []


LASTING = ShareCall("A", "id-1", 0.5, math.inf, None)
LEASED = ShareCall("A", "id-2", 0.5, 1.0, 107.0)


class Said:
    """Records the calls of all operators; `answers` are raised, or called, one for each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: list[Exception | Callable[[], object]] = []
        self.closed = 0

    def __call__(self, directory: object) -> Said:
        return self

    def update_limits(self, agent: str, id: str, cpus: float, lease_s: float, *, request: float) -> None:
        self._said(agent, id, request, cpus, lease_s)

    def hold_memory(self, agent: str, id: str, memory: int | None, lease_s: float | None) -> None:
        self._said(agent, id, memory, lease_s)

    def signal(self, agent: str, id: str, name: str) -> None:
        self._said(agent, id, name)

    def containers(self, agent: str) -> list[Message]:
        self._said(agent)
        return [{"agent": agent}]

    def close(self) -> None:
        self.closed += 1

    def _said(self, *call: Any) -> None:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            answer()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    said = Said()
    monkeypatch.setattr(module, "Operator", said)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    return said


@pytest.fixture
def calls(said: Said) -> Iterator[AgentCalls]:
    calls = AgentCalls(None, now=lambda: 100.0)  # type: ignore[arg-type]
    yield calls
    calls.close()


def silent() -> BackendError:
    return BackendError("the agent does not answer", transient=True)


def test_calls_to_an_agent_are_made_in_order(calls: AgentCalls, said: Said) -> None:
    calls.share(LASTING)
    calls.share(LEASED)
    calls.share(ShareCall("A", "id-2", 0.5, 1.0, 99.0))
    until(lambda: len(said.calls) == 3)
    assert said.calls == [
        ("A", "id-1", 0.5, math.inf, None), ("A", "id-2", 0.5, 1.0, 7.0), ("A", "id-2", 0.5, 1.0, 0.0),
    ]  # fmt: skip


def test_memory_is_held_and_signals_are_sent_until_an_agent_answers(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent(), CallRefused("no such container", 404), silent()]
    calls.tell(HoldCall("A", "id-1", 7, 5.0))
    calls.tell(SignalCall("A", "id-1", "USR1"))
    until(lambda: len(said.calls) == 4)
    assert said.calls == [("A", "id-1", 7, 5.0)] * 2 + [("A", "id-1", "USR1")] * 2


def test_permanent_shares_are_retried_and_leased_ones_are_not(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent(), silent()]
    calls.share(LASTING)
    until(lambda: len(said.calls) == 3)
    said.answers = [silent()]
    calls.share(LEASED)
    calls.share(LASTING)
    until(lambda: len(said.calls) == 5)
    assert [id for _, id, *_ in said.calls] == ["id-1"] * 3 + ["id-2", "id-1"]


def test_an_agent_that_never_answers_is_called_five_times(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent()] * 5
    calls.share(LASTING)
    calls.share(LEASED)
    until(lambda: len(said.calls) == 6)
    assert [id for _, id, *_ in said.calls] == ["id-1"] * 5 + ["id-2"]


def test_refusals_are_logged_unless_the_container_has_ended(
    calls: AgentCalls, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    said.answers = [CallRefused("it has ended", 404)]
    calls.share(LASTING)
    until(lambda: len(said.calls) == 1)
    said.answers = [CallRefused("expected a limit", 400)]
    calls.share(LASTING)
    until(lambda: "expected a limit" in caplog.text)
    said.answers = [InvalidInput("there is no agent 'A'")]
    calls.share(LASTING)
    until(lambda: "no agent" in caplog.text)
    assert "it has ended" not in caplog.text
    assert len(said.calls) == 3


def test_unexpected_errors_of_calls_are_logged(calls: AgentCalls, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    said.answers = [RuntimeError("a fault of ours")]
    calls.share(LASTING)
    until(lambda: "a fault of ours" in caplog.text)
    calls.share(LASTING)
    until(lambda: len(said.calls) == 2)


def test_an_agent_that_is_late_is_left_out_and_not_asked_again_meanwhile(
    calls: AgentCalls, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(item["agent"] for item in calls.containers(["A", "B"])) == ["A", "B"]
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    hold, said.calls = threading.Event(), []
    said.answers = [lambda: hold.wait(DEADLINE_S)]
    assert calls.containers(["A"]) == []
    assert calls.containers(["A"]) == []
    assert said.calls == [("A",)]
    hold.set()
    until(lambda: calls.containers(["A"]) == [{"agent": "A"}])


def test_an_agent_that_cannot_answer_is_left_out(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent()]
    assert calls.containers(["A"]) == []
    assert calls.containers(["A"]) == [{"agent": "A"}]


def test_an_agent_that_is_gone_is_not_called(calls: AgentCalls, said: Said) -> None:
    hold = threading.Event()
    said.answers = [lambda: hold.wait(DEADLINE_S)]
    calls.share(LASTING)
    calls.share(LEASED)
    calls.forget("A")
    hold.set()
    until(lambda: said.closed == 1)
    assert len(said.calls) <= 1


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
    monkeypatch.setattr(pools, "PING_S", 0.5)
    monkeypatch.setattr(pools, "PINGS", 4)
    return LocalAgents(2, cores=1)


@pytest.fixture
def machine(pool: LocalAgents) -> Iterator[AgentMachine]:
    with AgentMachine(pool) as machine:
        yield machine


@pytest.fixture
def heard(machine: AgentMachine) -> Heard:
    return Heard(machine)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_memory_is_what_a_container_has_now(machine: AgentMachine, heard: Heard) -> None:
    large = 8_000_000
    machine.start("c", "node0", shell(f"x=$(head -c {large} /dev/zero | tr '\\0' a); sleep 1000; :"), 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    until(lambda: "c" in (used := machine.used()) and (used["c"].memory or 0) >= large, "its memory")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_containers_on_a_terminated_agent_are_lost(pool: LocalAgents, machine: AgentMachine, heard: Heard) -> None:
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    pool.agents["node0"].terminate()
    assert heard.end("c").lost
    heard.until(lambda: [node.name for node in machine.nodes] == ["node1"])


@pytest.mark.slow
def test_a_silent_agent_holds_up_no_other(pool: LocalAgents, machine: AgentMachine, heard: Heard) -> None:
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


@pytest.mark.slow
def test_a_share_is_permanent_or_leased(pool: LocalAgents, machine: AgentMachine, heard: Heard) -> None:
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


def burn_side_by_side(machine: AgentMachine, heard: Heard, host: float, guest: float) -> None:
    """Two containers that want the same core, with these requests."""
    machine.start("host", "node0", BURN, host, 1.0)
    machine.start("guest", "node0", BURN, guest, 1.0)
    heard.all(ContainerStarted("host"), ContainerStarted("guest"))


def rates(machine: SharedMachine) -> dict[str, float]:
    """CPU time of each container in `WINDOW_S`."""
    before = machine.used()
    time.sleep(WINDOW_S)
    return {name: used.cpu_s - before[name].cpu_s for name, used in machine.used().items()}


@pytest.mark.slow
@needs_weights
def test_those_that_want_the_same_processor_have_it_by_their_requests(machine: AgentMachine, heard: Heard) -> None:
    burn_side_by_side(machine, heard, 0.8, 0.1)
    found = rates(machine)
    assert found["host"] > 4 * found["guest"]
    machine.share("host", 0.1, 1.0, None)
    machine.share("guest", 0.8, 1.0, 600.0)
    time.sleep(0.5)
    found = rates(machine)
    assert found["guest"] > 4 * found["host"]


@pytest.mark.slow
@needs_weights
def test_one_that_is_stopped_uses_next_to_nothing_and_goes_on(machine: AgentMachine, heard: Heard) -> None:
    burn_side_by_side(machine, heard, 0.9, 0.05)
    machine.share("guest", 0.05, STOPPED_CPUS, 600.0)
    time.sleep(0.5)
    found = rates(machine)
    assert found["guest"] < 0.03 * WINDOW_S
    assert found["host"] > 10 * found["guest"]
    machine.share("guest", 0.05, STOPPED_CPUS, 0.0)
    machine.stop("host")
    time.sleep(0.5)
    assert rates(machine)["guest"] > 0.3 * WINDOW_S


@pytest.mark.slow
@needs_weights
def test_nodes_of_a_fraction_are_slow() -> None:
    with AgentMachine(LocalAgents(1, cores=1, capacity=0.3)) as machine:
        heard = Heard(machine)
        assert [(node.cores, node.speed) for node in machine.nodes] == [(1, pytest.approx(0.3))]
        burn_side_by_side(machine, heard, 0.9, 0.05)
        found = rates(machine)
        assert sum(found.values()) < 0.45 * WINDOW_S
        assert found["host"] > 4 * found["guest"]


def marked(mark: str) -> list[psutil.Process]:
    """Processes that have this in their environment."""
    found = psutil.process_iter(["environ", "status"])
    lives = [process for process in found if process.info["status"] != psutil.STATUS_ZOMBIE]
    return [process for process in lives if (process.info["environ"] or {}).get("TEST_OF_AGENTS") == mark]


@pytest.mark.slow
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
from coscheduler.agents.groups import LocalAgents
pool = LocalAgents(1, cores=1)
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_missing_nodes_are_an_error_with_a_remedy(empty: OwnMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NamedPool, "patience_s", 0.1)
    told = r"0 of 1 nodes have come, and no job was run: all were .* within 0.1 s. Start agents with: asa agent --dir"
    with pytest.raises(StateError, match=told):
        AgentMachine(NamedPool(empty.directory.path))


@pytest.mark.slow
def test_a_master_that_does_not_answer_is_given_up(empty: OwnMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MASTER_S", 0.2)
    pool = NamedPool(empty.directory.path)
    empty.master.close()
    with pytest.raises(StateError, match=r"the master of .* the co-scheduler: it has not answered for 0.2 s"):
        AgentMachine(pool)


@pytest.mark.slow
def test_a_bad_message_of_the_master_harms_no_other_container(
    machine: AgentMachine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    machine.callbacks.slaveLost(None, {"valu": "A"})
    machine.start("a/b", "node0", SLEEP, 0.5, 1.0)
    assert heard.end("a/b").problem
    machine.start("c", "node0", SLEEP, 0.5, 1.0)
    heard.all(ContainerStarted("c"))
    assert "a message of the master makes no sense, and is ignored" in caplog.text


@pytest.mark.slow
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


@pytest.mark.slow
def test_who_takes_over_is_told_what_the_one_before_took_no_note_of(pool: LocalAgents) -> None:
    """An end is acknowledged when `news` is asked for what comes after it."""
    place = NamedPool(pool.directory.path)
    try:
        with Operator(pool.directory, READER) as operator:
            until(lambda: len(operator.get_agents()) == 2, "the agents")
            first = AgentMachine(place, outlives_s=60.0)
            heard, framework = Heard(first), first.framework
            heard.until(lambda: len(first.nodes) == 2)
            first.start("goes-on.1.0", "node1", SLEEP, 0.9, 1.0)
            heard.all(ContainerStarted("goes-on.1.0"))
            first.start("ends.1.0", "node0", shell("exit 3"), 0.9, 1.0)
            heard.all(ContainerEnded("ends.1.0", "Command exited with status 3"))
            nodes = first.nodes
            first.close(leave=True)
            jobs = tuple(
                JobStanding(name, 1, "running", run=GangStarted(0.0, name, 1, (node,), (1,), (0.9,), ""))
                for name, node in (("ends", "node0"), ("goes-on", "node1"))
            )
            begun = Begun(0.0, QUEUE_LOG_VERSION, time.time(), str(pool.directory.path), framework)
            with AgentMachine(place, outlives_s=60.0, left=LeftQueue(begun, nodes, jobs)) as second:
                assert (second.framework, second.nodes) == (framework, nodes)
                again = Heard(second)
                again.all(ContainerStarted("goes-on.1.0"))
                end = again.end("ends.1.0")
                assert (end.problem, end.lost) == ("Command exited with status 3", False)
                assert end.ended is not None and end.ended <= time.monotonic()
                second.start("next.1.0", "node0", shell("exit 0"), 0.9, 1.0)
                again.all(ContainerEnded("next.1.0"))
            until(lambda: operator.get_frameworks() == [], "the end of the framework: this was an orderly one")
    finally:
        pool.close()


@pytest.mark.slow
def test_agents_that_cannot_run_here_say_why() -> None:
    with pytest.raises(StateError, match=r"the agent node0 ended with exit code 1: .*--capacity 5"):
        AgentMachine(LocalAgents(1, cores=1, capacity=5.0))
