"""Jobs that run on when their co-scheduler has died, and another one that looks after them from then on."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.decision import Start
from asa.core.errors import InvalidInput, StateError
from coscheduler import queuefile
from coscheduler.agents.containers import AgentContainers, HoldCall, need_of
from coscheduler.cli import Cosched
from coscheduler.drive import drive
from coscheduler.history import Entry, JobRun
from coscheduler.nouns import SetShare, StartGuest, WaitingJob
from coscheduler.queuefile import NAME, QueuedCommand, SharedQueueLog, StateSaving, bound_of, read
from coscheduler.real.gangs import LEASE_S, STOPPED_CPUS
from coscheduler.real.machine import ContainerEnded, ContainerStarted, SharedNode
from coscheduler.real.world import NODES_S, RealWorld
from coscheduler.registry import SHARING_RULES
from coscheduler.standing import QUEUE_LOG_VERSION, Begun, GangStarted, LeftQueue, RankEnded, Standings, entry_of
from executors.mesos.codec import Message
from executors.mesos.framework import Kill, Reconcile
from executors.mesos.messages import identity
from executors.mesos.pool_directory import PoolDirectory
from tests.coscheduler.fake_machine import FakeMachine, Script, nodes
from tests.coscheduler.test_containers import offer

LOG = Path("work/log.jsonl")
FIRST = Begun(0.0, QUEUE_LOG_VERSION, 5000.0, "/pool", "F1")
NODES = tuple(SharedNode(name, 2, 1 << 30, 1.0, name.upper()) for name in ("n0", "n1"))
HOST = GangStarted(1.0, "host", 1, ("n0", "n1"), (2, 2), (1.8, 1.8), "run host")
GUEST = GangStarted(2.0, "guest", 2, ("n1",), (1,), (0.05,), "run guest")


def entries(*more: Entry) -> list[Entry]:
    """A host that runs on two nodes, and a guest of it that has run once before."""
    found: list[Entry] = [entry_of(FIRST)]
    found += [{"at": 0.0, "event": "node", "node": asdict(node)} for node in NODES]
    found += [{"at": 0.0, "event": "queued", "job": name, "cores": 4, "bound": None} for name in ("guest", "host")]
    evicted = {"at": 0.8, "decision": "Evict", "guest": "guest", "why": None}
    found += [{"at": 0.5, "decision": "Start", "job": "guest", "why": None}, evicted]
    found += [{"at": 1.0, "decision": "Start", "job": "host", "why": None}, entry_of(HOST)]
    shared = {"decision": "StartGuest", "job": "guest", "host": "host", "share": 0.5, "hard": True}
    found += [{"at": 2.0, **shared, "why": None}, entry_of(GUEST)]
    found += [{"at": 3.0, "decision": "SetShare", "guest": "guest", "share": 0.0, "why": None}, *more]
    return [json.loads(json.dumps(entry)) for entry in found]


def left(*more: Entry) -> LeftQueue | None:
    return Standings(entries(*more), LOG).left()


def of(*more: Entry) -> LeftQueue:
    found = left(*more)
    assert found is not None
    return found


def ended(job: str, problem: str = "") -> Entry:
    return {"at": 4.0, "event": "ended", "job": job, "problem": problem}


def test_what_runs_by_a_log_hosts_first() -> None:
    found = of()
    assert found.begun == FIRST and found.nodes == NODES and [node.agent for node in found.nodes] == ["N0", "N1"]
    host, guest = found.jobs
    assert (host.job, host.since, host.host, host.run) == ("host", 1.0, None, HOST)
    assert (guest.job, guest.first, guest.since, guest.evictions) == ("guest", 0.5, 2.0, 1)
    assert (guest.host, guest.share, guest.hard, guest.run) == ("host", 0.0, True, GUEST)
    assert [stay[:2] for stay in host.stays[:2]] == [(1.0, 2.0), (2.0, 3.0)]
    assert [stay.share for stay in host.stays] == [1.0, 0.5, 1.0], "what its guest left to it"
    assert [stay[1:] for stay in guest.stays[:2]] == [(0.8, None, 1.0), (3.0, "host", 0.5)]
    assert math.isnan(guest.stays[2].until)
    assert found.at(5060.0) == 60.0


def test_a_guest_of_a_host_that_has_ended_has_its_cores_to_itself() -> None:
    (guest,) = of(ended("host")).jobs
    assert (guest.job, guest.host, guest.hard) == ("guest", None, False)


def test_ranks_that_have_ended() -> None:
    end = RankEnded(4.0, "host", 1, "Command exited with status 3", False, False)
    host, _ = of(entry_of(end)).jobs
    assert host.ended == {1: end}


@pytest.mark.parametrize(
    "more",
    [
        [ended("host"), ended("guest", "it failed")],
        [{"at": 9.0, "event": "closed"}],
        [entry_of(FIRST._replace(at=9.0, framework="F2"))],
        [entry_of(FIRST._replace(at=9.0, pool=None, framework=None))],
        [{"at": 4.0, "event": "requeued", "job": name, "because": "lost"} for name in ("guest", "host")],
    ],
)
def test_where_nothing_runs(more: list[Entry]) -> None:
    found = left(*more)
    assert found is None or found.jobs == ()


def test_a_job_that_was_not_yet_to_be_started_does_not_run() -> None:
    started = [entry for entry in entries() if entry.get("job") != "guest" or entry.get("event") != "started"]
    found = Standings(started, LOG).left()
    assert found is not None and [job.job for job in found.jobs] == ["host"]


def test_whoever_takes_over_can_die_too() -> None:
    again = FIRST._replace(at=60.0, time=5060.0)
    found = of(entry_of(again), {"at": 60.0, "event": "taken over", "job": "host", "started": 1.0})
    assert [job.since for job in found.jobs] == [1.0, 2.0] and found.begun == again


def test_a_log_of_version_1_is_read_and_its_jobs_begin_anew() -> None:
    old: list[Entry] = [
        {"at": 0.0, "event": "queued", "job": "a", "cores": 1, "bound": None},
        {"at": 0.0, "decision": "Start", "job": "a", "why": None},
        {"at": 0.0, "event": "started", "job": "a", "nodes": ["n0"]},
    ]
    found = Standings(old, LOG)
    assert found.left() is None and found.jobs["a"].state == "running"


@pytest.mark.parametrize(
    "entry",
    [
        {"at": 4.0, "event": "started", "job": "host", "nodes": ["n0"]},
        {"at": 4.0, "event": "node", "node": {"name": "n2"}},
        {"event": "ended", "job": "host"},
        {"at": 4.0, "event": "begun", "version": 2},
    ],
)
def test_a_damaged_log_is_refused_by_name(entry: Entry) -> None:
    with pytest.raises(StateError, match=r"work/log.jsonl is damaged: entry 13 makes no sense .*give another --work"):
        left(entry)


def test_a_log_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    with SharedQueueLog(tmp_path) as log:
        log.write(entry_of(FIRST._replace(version=QUEUE_LOG_VERSION + 1)))
    with pytest.raises(StateError, match=rf"{NAME} has version 4 of a queue's log, .* reads 3 at most"):
        read(tmp_path / NAME)


def test_an_orderly_end_is_in_the_log_and_no_other(tmp_path: Path) -> None:
    with SharedQueueLog(tmp_path / "well") as log:
        log.begin(7.0, Path("/pool"), "F1")
    begun, closed = read(log.path)
    assert (begun["at"], begun["pool"], begun["framework"]) == (7.0, "/pool", "F1")
    assert closed["event"] == "closed" and closed["at"] >= 7.0
    log = SharedQueueLog(tmp_path / "ill")
    with pytest.raises(InvalidInput, match="boundless"), log:
        bound_of("boundless", what=f"{log.begin(7.0)}")
    assert [entry["event"] for entry in read(log.path)] == ["begun"]


def command(name: str, cores: int, **more: Any) -> QueuedCommand:
    return QueuedCommand(WaitingJob(name, name, cores, 1000.0, **more), f"run {name}")


def asa_cosched_run(tmp_path: Path, pool: Path) -> None:
    """Go on with a queue that ran in this pool."""
    with SharedQueueLog(tmp_path / "work") as log:
        for entry in entries(entry_of(FIRST._replace(pool=str(pool)))):
            log.write(entry)
    jobs = [f'[[jobs]]\nname = "{name}"\ncores = 1\nwalltime = "1m"\ncommand = "true"' for name in ("host", "guest")]
    (tmp_path / "queue.toml").write_text("\n".join(["cores = 1", *jobs]))
    where = ("--on", f"pool:{pool}", "--work", str(tmp_path / "work"), "--resume")
    parser = argparse.ArgumentParser()
    Cosched().configure(parser)
    Cosched().run(parser.parse_args(["run", str(tmp_path / "queue.toml"), *where]))


def test_where_a_master_does_not_answer_nobody_knows_what_runs(tmp_path: Path) -> None:
    PoolDirectory.create(tmp_path / "pool", "test")
    with pytest.raises(StateError, match=r"what runs in the pool .* is not known \(.*asa master --directory"):
        asa_cosched_run(tmp_path, tmp_path / "pool")


def test_jobs_of_a_pool_that_is_no_more_begin_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StateError, match="there is no pool with a master in"):
        asa_cosched_run(tmp_path, tmp_path / "pool")
    assert "which does not know it any more: begin anew: host, guest" in capsys.readouterr().err


class Night:
    """A queue on a fake machine, and a log; its co-scheduler dies whenever `run` has returned."""

    def __init__(self, path: Path, machine: FakeMachine, jobs: list[QueuedCommand]) -> None:
        self.path, self.machine, self.jobs = path, machine, jobs
        self.origin = machine.now

    def run(self, script: Any, until_s: float = math.inf) -> dict[str, JobRun]:
        """Go on for so long [s since the start]; jobs that have ended."""
        resume, now = (self.path / NAME).exists(), self.machine.now - self.origin
        log = SharedQueueLog(self.path, resume=resume)
        found = Standings(log.before, log.path).left()
        log.begin(now, Path("/pool"), "F1")
        world = RealWorld(
            self.jobs,
            self.machine,
            self.path / "jobs",
            log=log.write,
            since=now,
            left=found,
            clock=self.machine.clock,
        )
        drive(world, script, until=lambda: self.machine.now - self.origin >= until_s)
        log.file.close()
        return {job.name: job for job in world.result().jobs}

    def pass_time(self, seconds: float) -> None:
        """Nobody looks: what happens is reported later."""
        kept, until = [], self.machine.now + seconds
        while self.machine.now < until:
            kept += [event._replace(ended=self.machine.now) if isinstance(event, ContainerEnded) else event
                     for event in self.machine.news(min(1.0, until - self.machine.now))]  # fmt: skip
        self.machine.pending = kept


def host_and_guest(tmp_path: Path, host_s: float, guest_s: float) -> Night:
    machine = FakeMachine(nodes(2), {"host": host_s, "guest": guest_s, "late": 5.0})
    return Night(tmp_path, machine, [command("host", 2), command("guest", 1), command("late", 2, exclusive=True)])


SHARED = [Start("host"), StartGuest("guest", "host", 0.5, True)]


def test_jobs_that_run_are_taken_over_with_all_that_was_known_of_them(tmp_path: Path) -> None:
    night = host_and_guest(tmp_path, 300.0, 500.0)
    night.run(Script(SHARED), until_s=20.0)
    night.pass_time(80.0)
    assert {each.limit for each in night.machine.running.values() if each.job == "host"} == {1.0}
    script = Script([], [])
    script.at[2] = lambda: seen.extend((each.name, each.limit) for each in night.machine.running.values())
    seen: list[tuple[str, float]] = []
    jobs = night.run(script)
    assert [each.job for each in night.machine.past] == ["host", "host", "guest", "late", "late"], "each once"
    assert dict(seen) == {"host.1.0": 1.0, "host.1.1": 0.5, "guest.1.0": 0.5}, "their shares are leased again"
    host, guest = jobs["host"], jobs["guest"]
    assert (host.started, host.ended, guest.started, guest.ended) == pytest.approx((0.0, 300.0, 0.0, 500.0))
    assert host.cpu_s == pytest.approx(600.0), "all of it: containers count from their start"
    assert [stay.host for stay in guest.stays] == ["host", None]
    assert [stay[2:] for stay in host.stays] == [(None, 0.5)]
    assert math.isnan(host.slowdown), "it shared its cores, so nobody knows how long it runs alone"
    assert [run.job for run in script.runs] == ["host", "guest", "late"]
    first = script.views[0].running
    assert first.names == ("host", "guest") and first.states.elapsed.tolist() == pytest.approx([0.1, 0.1])


def test_what_ended_meanwhile_has_its_time_and_teaches_nothing(tmp_path: Path) -> None:
    night = host_and_guest(tmp_path, 50.0, 70.0)
    night.machine.problems["guest"] = "Command exited with status 3"
    night.run(Script(SHARED), until_s=20.0)
    night.pass_time(80.0)
    script = Script()
    jobs = night.run(script)
    assert [each.name for each in night.machine.past] == ["host.1.0", "host.1.1", "guest.1.0", "late.1.0", "late.1.1"]
    assert (jobs["host"].ended, jobs["guest"].ended, jobs["late"].started) == pytest.approx((50.0, 70.0, 100.0))
    assert jobs["guest"].problem.startswith("Command exited with status 3; its output is in ")
    assert [run.job for run in script.runs] == ["late"]
    assert {job.state for job in Standings(read(tmp_path / NAME), LOG).jobs.values()} == {"ended", "failed"}


def test_a_guest_that_was_stopped_stays_so_without_a_co_scheduler_while_its_host_may_run(tmp_path: Path) -> None:
    """Its host has lost what its bound allows. Nothing is throttled for ever: the wall time of the host is the end."""
    night = host_and_guest(tmp_path, 300.0, 5000.0)
    night.run(Script(SHARED, [SetShare("guest", 0.0)]), until_s=20.0)
    guest, walltime_s = night.machine.running["guest.1.0"], night.jobs[0].request.walltime_s
    host = [each for each in night.machine.running.values() if each.job == "host"]
    night.pass_time(walltime_s - 21.0)
    assert guest.limit == STOPPED_CPUS
    assert {(each.request, each.limit) for each in host} == {(0.9, 1.0)}, "hosts have their cores sooner"
    assert "guests that are stopped stay so until the wall time of their host" in queuefile.status(tmp_path).text
    night.pass_time(10.0)
    assert guest.limit == 0.5


def test_a_guest_that_was_stopped_stands_still_again_until_its_host_has_ended(tmp_path: Path) -> None:
    night = host_and_guest(tmp_path, 300.0, 500.0)
    night.run(Script(SHARED, [SetShare("guest", 0.0)]), until_s=20.0)
    night.pass_time(2 * LEASE_S)
    guest = night.machine.running["guest.1.0"]
    night.run(Script([], []), until_s=40.0)
    assert guest.limit == STOPPED_CPUS
    assert night.run(Script())["guest"].evictions == 0


def test_a_guest_that_was_asked_to_save_its_state_is_not_done(tmp_path: Path) -> None:
    """Whether it has ended since it was seen last, or still runs."""
    for ends_s in (20.0, 1000.0):
        machine = FakeMachine(nodes(1), {"host": 300.0, "guest": 500.0}, memory={"host": 0.5, "guest": 0.46})
        guest = replace(command("guest", 1), saves=StateSaving("USR1", 30.0))
        night = Night(tmp_path / str(ends_s), machine, [command("host", 1), guest])
        machine.on_signal = lambda its, ends_s=ends_s: setattr(its, "ends", min(its.ends, its.started + ends_s))
        night.run(Script([Start("host"), StartGuest("guest", "host", 0.5)]), until_s=8.0)
        assert machine.signals != []
        night.pass_time(80.0)
        jobs = night.run(Script())
        assert (jobs["guest"].evictions, jobs["guest"].started) == (1, 0.0)
        assert [each.stopped for each in machine.past if each.job == "guest"] == [ends_s > 100.0, False]
        assert jobs["host"].evictions == 0 and jobs["guest"].ended == pytest.approx(800.0)


def test_memory_is_held_as_long_as_somebody_looks(tmp_path: Path) -> None:
    """A guest is not held up for good when its co-scheduler dies, and its queue is not resumed."""
    machine = FakeMachine(nodes(1), {"host": 300.0, "guest": 500.0}, memory={"host": 0.5, "guest": 0.4})
    night = Night(tmp_path, machine, [command("host", 1), command("guest", 1)])
    script, seen = Script([Start("host"), StartGuest("guest", "host", 0.5)]), list[int | None]()
    script.at |= dict.fromkeys(range(3, 30), lambda: seen.append(machine.running["guest.1.0"].memory))
    night.run(script, until_s=100.0)
    assert len(seen) > 10 and None not in seen and len(machine.held) == 1, "renewed, and not changed"
    night.pass_time(LEASE_S + 0.1)
    assert machine.running["guest.1.0"].memory is None


def test_it_can_be_killed_again_and_again(tmp_path: Path) -> None:
    night = host_and_guest(tmp_path, 300.0, 500.0)
    night.run(Script(SHARED), until_s=20.0)
    for place in range(2, 12):
        night.pass_time(20.0)
        night.run(Script(), until_s=40.0 * place)
    jobs = night.run(Script())
    assert [each.name for each in night.machine.past][:3] == ["host.1.0", "host.1.1", "guest.1.0"]
    assert jobs["late"].ended == pytest.approx(jobs["late"].started + 5.0)


def test_of_a_job_that_has_failed_in_part_the_rest_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(nodes(2), {"wide": 300.0})
    night = Night(tmp_path, machine, [command("wide", 2)])
    script = Script(at={2: lambda: machine.end_container("wide.1.0", "Command exited with status 1")})
    with monkeypatch.context() as lost:
        lost.setattr(machine, "stop", lambda container: None)  # the call is lost
        night.run(script, until_s=20.0)
    assert list(machine.running) == ["wide.1.1"]
    (wide,) = night.run(Script()).values()
    assert wide.problem.startswith("Command exited with status 1") and wide.ended < 30.0


def test_a_job_of_which_a_node_was_lost_meanwhile_runs_anew(tmp_path: Path) -> None:
    night = host_and_guest(tmp_path, 300.0, 500.0)
    night.run(Script(SHARED), until_s=20.0)
    night.pass_time(10.0)
    night.machine.lose("n0")
    jobs = night.run(Script())
    assert (jobs["guest"].ended, jobs["guest"].evictions) == (pytest.approx(500.0), 0)
    assert jobs["host"].problem == "it needs 2 cores, of which 1 are left"
    assert jobs["host"].ended >= jobs["guest"].ended + NODES_S - 10.0


def test_a_bound_is_kept_from_when_a_host_is_seen(tmp_path: Path) -> None:
    """Of what it lost before nothing is known: its guest stands still until it was seen alone for long enough."""
    machine = FakeMachine(nodes(1), {"host": 3000.0, "guest": 800.0})
    jobs = [command("host", 1, bound=0.1), command("guest", 1)]
    night = Night(tmp_path, machine, jobs)

    def tell() -> None:
        (tmp_path / "jobs/host/1/progress.0").write_text(f"{machine.now - night.origin:g} 3000\n")

    night.run(Script([Start("host"), StartGuest("guest", "host", 0.1)], at=dict.fromkeys(range(2, 99), tell)), 100.0)
    scavenger = SHARING_RULES.create("scavenger")

    class Telling:
        """The rule, while the host reports at each look."""

        def decide(self, view: Any) -> Any:
            tell()
            return scavenger.decide(view)

        def learn(self, run: Any) -> None:
            scavenger.learn(run)

    night.run(Telling(), until_s=130.0)
    account = scavenger.state()["pending"]["accounts"]["host"]
    assert account["alone_s"] + account["shared_s"] < 31.0, "from the takeover on"
    assert machine.running["guest.1.0"].limit == STOPPED_CPUS


def taken_over() -> AgentContainers:
    """Two containers on one node of four cores, of which they have three."""
    containers, node = AgentContainers(takes_over=True), SharedNode("a", 4, 1 << 30, 1.0, "A")
    containers.offers.take_over(node, 3)
    containers.take_over("host.1.0", node, 2.7)
    containers.take_over("guest.1.0", node, 0.15)
    return containers


def status(task: str, state: str, **more: Any) -> Message:
    return {"task_id": identity(task), "agent_id": identity("A"), "state": f"TASK_{state}", **more}


def test_the_master_is_asked_about_what_is_taken_over_and_about_all_else() -> None:
    containers = taken_over()
    both = (("host.1.0", "A"), ("guest.1.0", "A"))
    assert containers.subscribed() == [Reconcile(both), Reconcile(())]
    assert containers.update(status("host.1.0", "RUNNING")) == [HoldCall("A", "host.1.0", None)]
    assert containers.news == [ContainerStarted("host.1.0")] and containers.running() == {"host.1.0": "A"}
    assert containers.update(status("evicted.1.0", "RUNNING")) == [Kill("evicted.1.0", "A")], "no log has it"
    assert containers.offered([offer("O1", "A", cpus=1.0)], 1.0) == [Reconcile((("guest.1.0", "A"),))]


@pytest.mark.parametrize(
    ("state", "more", "end"),
    [
        ("FINISHED", {"timestamp": 7.0}, ("", False, 7.0)),
        ("FAILED", {"timestamp": 7.0, "message": "Command exited with status 3"},
         ("Command exited with status 3", False, 7.0)),
        ("KILLED", {"timestamp": 7.0, "message": "the framework has killed it"}, (None, True, None)),
        ("GONE", {"message": "Task is not known to its agent"}, (None, True, None)),
        ("DROPPED", {"reason": "REASON_INVALID_OFFERS"}, (None, True, None)),
    ],
)  # fmt: skip
def test_how_containers_ended_that_were_taken_over(state: str, more: Message, end: Any) -> None:
    containers = taken_over()
    assert containers.update(status("host.1.0", state, **more)) == []
    (found,) = containers.news
    assert isinstance(found, ContainerEnded)
    assert (found.lost or found.problem == end[0], found.lost, found.ended) == (True, *end[1:])
    assert containers.left() == ["guest.1.0"] and [node.name for node in containers.offers.nodes] == ["a"]


@pytest.mark.parametrize("state", ["UNREACHABLE", "UNKNOWN", "GONE_BY_OPERATOR"])
def test_an_agent_that_is_gone_is_no_node(state: str) -> None:
    containers = taken_over()
    containers.update(status("host.1.0", state))
    assert [(event.container, event.lost) for event in containers.news if isinstance(event, ContainerEnded)] == [
        ("host.1.0", True), ("guest.1.0", True),
    ]  # fmt: skip
    assert containers.offers.nodes == ()


def test_a_node_is_as_large_as_it_was_once_the_rest_is_offered() -> None:
    containers = taken_over()
    taken = sum(need_of(SharedNode("a", 4, 1 << 30), request, 4.0).cpus for request in (2.7, 0.15))
    containers.offered([offer("O1", "A", cpus=0.2)], 1.0)
    assert [node.cores for node in containers.offers.nodes] == [3], "somebody else has the rest"
    containers.offered([offer("O2", "A", cpus=3.8 - taken)], 2.0)
    assert [(node.name, node.cores) for node in containers.offers.nodes] == [("a", 4)]
    containers.offered([offer("O3", "A", cpus=1.0)], 2.0)
    assert [node.cores for node in containers.offers.nodes] == [4], "no larger than it was by what is only counted"
