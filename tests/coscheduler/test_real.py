"""Jobs that share real cores, on nodes in virtual time."""

import itertools
import math
import os
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import BackendError, InvalidInput, Starved
from coscheduler.agents.groups import LocalAgents
from coscheduler.agents.machine import AgentMachine
from coscheduler.drive import drive
from coscheduler.ledger import Ledger
from coscheduler.nouns import Evict, SetShare, StartGuest, WaitingJob, first_fit
from coscheduler.profiles import Profiles
from coscheduler.queuefile import QueuedCommand, SharedQueueLog, ended_well, read
from coscheduler.real.gangs import AGAIN_S, LEASE_S, RENEW_S, STOPPED_CPUS, Leases, NodeCores, Places
from coscheduler.real.machine import ContainerUsage
from coscheduler.real.monitor import ContainerPlace, Monitor
from coscheduler.real.world import NODES_S, RealWorld
from coscheduler.registry import SHARING_RULES
from coscheduler.run import promises
from coscheduler.sharing.promise import Promise
from executors.cgroup import probe
from tests.coscheduler.fake_machine import FakeMachine, Script, has_weights, nodes


def test_the_smallest_gap_that_is_large_enough():
    places = Places(nodes(3, cores=4))
    places.own("a", 3)
    assert places.own("b", 2) == (NodeCores("n1", 2),)
    assert places.own("c", 1) == (NodeCores("n0", 1),)
    assert places.own("d", 6) == (NodeCores("n2", 4), NodeCores("n1", 2))


def test_guests_beside_one_another():
    places = Places(nodes(2, cores=2))
    places.own("host", 4)
    assert places.beside("a", 3, "host", []) == (NodeCores("n1", 2), NodeCores("n0", 1))
    assert places.beside("c", 1, "host", ["a"]) == (NodeCores("n0", 1),)
    assert places.on("n0") == ["a", "c", "host"], "guests first"


def test_a_node_that_is_lost():
    places = Places(nodes(2, cores=2))
    places.own("a", 1)
    places.lose("n1")
    assert places.own("b", 1) == (NodeCores("n0", 1),)
    places.leave("a")
    places.join("n1", 2)
    assert places.own("c", 3) == (NodeCores("n1", 2), NodeCores("n0", 1))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=30))
def test_no_core_belongs_to_two(steps):
    """Owners come, take guests, leave, and guests inherit: no core has two owners, nor two guests of one host."""
    size, places = {node.name: node.cores for node in nodes(3, cores=3)}, Places(nodes(3, cores=3))
    owners, guests = {}, {}
    for number, (cores, choice) in enumerate(steps):
        name, free = f"j{number}", sum(size.values()) - sum(owners.values())
        if 0 < cores <= free:
            places.own(name, cores)
            owners[name] = cores
        elif cores and owners:
            host = sorted(owners)[choice % len(owners)]
            beside = [guest for guest, its in guests.items() if its == host]
            if cores <= owners[host] - sum(place.cores for guest in beside for place in places[guest]):
                places.beside(name, cores, host, beside)
                guests[name] = host
        elif owners:
            host = sorted(owners)[choice % len(owners)]
            places.leave(host)
            del owners[host]
            for guest in [guest for guest, its in guests.items() if its == host]:
                places.inherit(guest)
                owners[guest] = sum(place.cores for place in places[guest])
                del guests[guest]
        for who in (owners, *({g for g, h in guests.items() if h == host} for host in owners)):
            used = Counter()
            for job in who:
                used.update({place.node: place.cores for place in places[job]})
            assert all(count <= size[node] for node, count in used.items())
    assert sum(owners.values()) <= sum(size.values())


class Asked:
    """A machine that notes what it is asked for."""

    def __init__(self):
        self.asked, self.fails = [], False

    def share(self, *what):
        self.asked.append(what)
        if self.fails:
            raise BackendError("the agent does not answer", transient=True)


@pytest.fixture
def machine():
    return Asked()


def test_first_shares_of_containers(machine):
    leases = Leases(machine)
    assert leases.begin("host", 4, guest=False, limit=4.0) == (pytest.approx(3.6), 4.0)
    assert leases.begin("guest", 2, guest=True, limit=4.0) == (pytest.approx(0.1), 4.0)
    leases.want("host", 4 * 0.95, 4.0, now=0.0)
    assert machine.asked == [], "nearly what it has"
    assert leases.due() == math.inf


def test_a_leased_share_is_renewed_until_it_is_returned(machine):
    leases = Leases(machine)
    leases.begin("host", 4, guest=False, limit=4.0)
    leases.want("host", 2.0, 4.0, now=10.0)
    leases.want("host", 2.0, 4.0, now=10.5)
    assert machine.asked == [("host", 2.0, 4.0, LEASE_S)], "once"
    assert leases.due() == 10 + RENEW_S
    leases.renew(11.0)
    leases.renew(12.0)
    assert len(machine.asked) == 2
    leases.want("host", 4.0, 4.0, now=13.0)
    assert machine.asked[-1] == ("host", pytest.approx(3.6), 4.0, 0.0)
    assert leases.due() == math.inf


def test_a_stop_lasts_without_a_renewal_and_its_end_is_not_lost(machine):
    """An agent that misses the message would keep the guest stopped for as long: it is sent until it is undone."""
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=4.0)
    leases.want("guest", 0.2, STOPPED_CPUS, now=10.0, until=1000.0)
    leases.renew(10.0 + RENEW_S)
    leases.want("guest", 0.2, 4.0, now=20.0)
    leases.renew(20.0 + AGAIN_S)
    asked = [(limit, lease_s) for _, _, limit, lease_s in machine.asked]
    assert asked == [(STOPPED_CPUS, 990.0), (STOPPED_CPUS, 988.0), (4.0, None), (4.0, None)]


@pytest.mark.parametrize(("until", "lease_s"), [(0.0, LEASE_S), (1e9, 86400.0)])
def test_a_stop_lasts_no_shorter_than_a_lease_and_no_longer_than_agents_allow(machine, until, lease_s):
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=4.0)
    leases.want("guest", 0.2, STOPPED_CPUS, now=10.0, until=until)
    assert machine.asked == [("guest", 0.2, STOPPED_CPUS, lease_s)]


def test_an_agent_that_does_not_answer_is_asked_again(machine):
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=4.0)
    machine.fails = True
    leases.want("guest", 2.0, 4.0, now=0.0)
    leases.renew(RENEW_S)
    assert len(machine.asked) == 2


def test_an_heir_has_its_cores_for_good(machine):
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=2.0)
    leases.want("guest", 2.0, 2.0, now=0.0)
    leases.inherit("guest", 4, 4.0, now=1.0)
    assert machine.asked[-1] == ("guest", pytest.approx(3.6), 4.0, None)
    leases.renew(1.0 + AGAIN_S)
    assert machine.asked[-2:] == [machine.asked[-1]] * 2, "told again: it may not have been heard"
    leases.want("guest", 2.0, 4.0, now=20.0)
    leases.want("guest", 4.0, 4.0, now=21.0)
    assert leases.due() == 21.0 + AGAIN_S
    leases.end("guest")
    count = len(machine.asked)
    leases.renew(100.0)
    assert len(machine.asked) == count


MIB = 1 << 20
IDLE = {"h0": ContainerUsage(0.0, None)}


@pytest.fixture
def two_jobs():
    two_jobs = Ledger(4)
    two_jobs.submit(WaitingJob("host", "a", 4, 1000.0))
    two_jobs.submit(WaitingJob("guest", "b", 2, 1000.0))
    two_jobs.apply(Start("host"), 0.0)
    two_jobs.apply(StartGuest("guest", "host", 0.05), 0.0)
    return two_jobs


@pytest.fixture
def monitor(two_jobs, tmp_path):
    """Nodes of two cores, a quarter of a real one each."""
    monitor = Monitor()
    for name, containers in (("host", ("h0", "h1")), ("guest", ("g0",))):
        (tmp_path / name).mkdir()
        where = [ContainerPlace(container, 2, 0.25, 100 * MIB) for container in containers]
        monitor.begin(two_jobs.running[name].job, tmp_path / name, where, 0.0)
    return monitor


def test_cores_and_memory(monitor, two_jobs):
    monitor.look(
        10.0,
        {"h0": ContainerUsage(5.0, 50 * MIB), "h1": ContainerUsage(2.5, None), "g0": ContainerUsage(0.5, 100 * MIB)},
        two_jobs,
    )
    states = monitor.states(two_jobs, 10.0)
    assert states.cpu.tolist() == pytest.approx([0.75, 0.1]), "7.5 s at a quarter are 30 core-seconds of 40"
    assert states.memory.tolist() == pytest.approx([0.25, 1.0])
    assert states.parallel.tolist() == [True, False]
    assert monitor.busy() == pytest.approx(3.2)
    assert monitor.jobs["host"].busy_s == pytest.approx(32.0), "its guest's too"
    assert monitor.jobs["host"].memory_s == pytest.approx(10 * (0.25 * 4 + 1.0 * 2))
    assert monitor.jobs["guest"].busy_s == 0
    monitor.look(20.0, {"h0": ContainerUsage(6.0, 10 * MIB)}, two_jobs)
    assert monitor.jobs["host"].cores == pytest.approx(0.4)
    assert monitor.jobs["host"].most == pytest.approx(0.25)
    assert monitor.jobs["host"].parallel_s == 10.0


def test_one_core_is_enough_to_be_parallel_where_there_is_one(tmp_path):
    two_jobs, monitor = Ledger(1), Monitor()
    two_jobs.submit(WaitingJob("a", "a", 1, 1000.0))
    two_jobs.apply(Start("a"), 0.0)
    monitor.begin(two_jobs.running["a"].job, tmp_path, [ContainerPlace("c", 1, 1.0, MIB)], 0.0)
    monitor.look(1.0, {"c": ContainerUsage(0.9, None)}, two_jobs)
    assert monitor.jobs["a"].is_parallel


def test_progress_of_all_ranks_counts(monitor, two_jobs, tmp_path):
    looks = [(0, 10), (2, 10), (4, 10)]
    for at, (done, total) in zip((10.0, 110.0, 210.0), looks, strict=True):
        for rank in (0, 1):
            (tmp_path / "host" / f"progress.{rank}").write_text(f"{done} {total}\n")
        monitor.look(at, IDLE, two_jobs)
    host = monitor.jobs["host"]
    assert host.done == pytest.approx(0.4)
    assert host.rate == pytest.approx(0.002)
    monitor.look(260.0, IDLE, two_jobs)
    assert host.left() == pytest.approx(0.5), "half a step is on its way"
    monitor.look(900.0, IDLE, two_jobs)
    assert host.left() == pytest.approx(0.4), "but a step at most"
    happy = monitor.states(two_jobs, 900.0).happiness
    assert happy[0] == pytest.approx(100 * 0.002 / 0.4)
    assert happy[1] == 1.0, "it does not tell"


def test_how_long_a_container_has_waited_for_memory(monitor, two_jobs):
    for at, stalled_s, memory in ((10.0, 4.0, 9), (20.0, 5.0, 7), (30.0, 5.0, 8)):
        used = {"h0": ContainerUsage(0.0, memory * MIB, stalled_s, 50 * MIB), "h1": ContainerUsage(0.0, None)}
        monitor.look(at, used, two_jobs)
        lately = 0.1 if at == 20.0 else 0.0  # not what was before it was seen first
        assert monitor.jobs["host"].stalled == {"h0": lately}
    assert monitor.jobs["host"].peaks == {"h0": 9 * MIB, "h1": 0}
    assert monitor.jobs["host"].available == {"h0": 50 * MIB}


def waits(h0, h1, throttled=(None, None)):
    return {
        name: ContainerUsage(0.0, None, waited_s=waited_s, throttled_s=throttled_s)
        for name, waited_s, throttled_s in zip(("h0", "h1"), (h0, h1), throttled, strict=True)
    }


def test_how_long_a_job_has_waited_for_cpus(monitor, two_jobs):
    """Two containers of two cores each."""
    monitor.look(10.0, waits(4.0, 3.0), two_jobs)
    assert monitor.unhindered(two_jobs, 10.0)[0].tolist() == [0.0, 0.0], "not what was before it was seen first"
    assert np.isnan(monitor.unhindered(two_jobs, 10.0)[1]).all(), "nor what is not measured"
    monitor.look(20.0, waits(4.5, 4.0), two_jobs)  # for 5 and 10 % of the time
    least, most = monitor.unhindered(two_jobs, 20.0)[0]
    assert least == pytest.approx(10 - 2 * 0.5 - 2 * 1.0), "each of four processors at another time"
    assert most == pytest.approx(10 - 0.75)
    assert monitor.unhindered(two_jobs, 21.0)[0].tolist() == pytest.approx([7.7, 10.175]), "at the same pace"
    monitor.look(25.0, waits(9.0, 4.0), two_jobs)
    assert monitor.unhindered(two_jobs, 25.0)[0, 0] == pytest.approx(7.0), "no longer than there was time"


def test_while_a_node_does_not_answer_it_is_not_known(monitor, two_jobs):
    for at, h0 in ((10.0, 0.0), (20.0, 1.0)):
        monitor.look(at, waits(h0, 0.0), two_jobs)
    monitor.look(30.0, {"h0": ContainerUsage(0.0, None, waited_s=1.0)}, two_jobs)
    assert np.isnan(monitor.unhindered(two_jobs, 30.0)[0]).all()
    monitor.look(40.0, waits(1.5, 0.0), two_jobs)
    assert monitor.unhindered(two_jobs, 40.0)[0].tolist() == pytest.approx([30 - 3.0, 30 - 0.75])


def test_quotas_hold_back_too(monitor, two_jobs):
    """Which is the sum over processors; alone it says how long a job has waited at least."""
    for at, h0, held in ((0.0, 0.0, 0.0), (10.0, 0.2, 3.0)):
        monitor.look(at, waits(h0, 0.0, (held, 0.0)), two_jobs)
    assert monitor.unhindered(two_jobs, 10.0)[0].tolist() == pytest.approx([7.0, 9.25])
    monitor.look(20.0, waits(None, None, (7.0, 0.0)), two_jobs)
    least, most = monitor.unhindered(two_jobs, 20.0)[0]
    assert np.isnan(least) and most == pytest.approx(9.25 + 9.0)


def test_instructions_are_those_of_all_ranks(two_jobs, tmp_path):
    """Where the job's bound goes by them, and each rank's are known; of each of its cores."""
    monitor, job = Monitor(), two_jobs.running["host"].job
    where = [ContainerPlace(container, 2, 0.25, 100 * MIB) for container in ("h0", "h1")]
    monitor.begin(replace(job, bound_by="instructions"), tmp_path, where, 0.0)
    monitor.begin(two_jobs.running["guest"].job, tmp_path, where, 0.0)
    (tmp_path / "instructions.0").write_text(f"{3_000_000_000:020d}\n")
    monitor.look(10.0, IDLE, two_jobs)
    assert np.isnan(monitor.instructions(two_jobs)).all()
    (tmp_path / "instructions.1").write_text("5e9")
    monitor.look(11.0, IDLE, two_jobs)
    assert monitor.instructions(two_jobs).tolist() == pytest.approx([2.0, math.nan], nan_ok=True)


@pytest.mark.parametrize("text", ["", "3", "a b", "nan 10", "5 0", "1 " * 1000])
def test_files_without_progress_are_ignored(monitor, two_jobs, tmp_path, text):
    (tmp_path / "host" / "progress.0").write_text(text)
    monitor.look(10.0, IDLE, two_jobs)
    assert monitor.jobs["host"].done is None
    assert np.isfinite(monitor.states(two_jobs, 10.0).happiness).all()


def test_a_job_is_as_far_as_its_slowest_rank(monitor, two_jobs, tmp_path):
    """It ends with that one. Ranks that do not report do not count."""
    (tmp_path / "host" / "progress.0").write_text("3 4")
    monitor.look(10.0, IDLE, two_jobs)
    assert monitor.jobs["host"].done == 0.75
    (tmp_path / "host" / "progress.1").write_text("40 80")
    monitor.look(11.0, IDLE, two_jobs)
    assert monitor.jobs["host"].done == 0.5


def test_silent_is_just_on_time(monitor, two_jobs):
    """To the last digit: a host that is a little late has its guests' shares cut."""
    assert all(monitor.states(two_jobs, at / 7).happiness.tolist() == [1.0, 1.0] for at in range(1, 2000))


def test_late_and_silent(monitor, two_jobs):
    assert monitor.states(two_jobs, 1001.0).happiness.tolist() == [0.0, 0.0]


def test_what_containers_did_after_the_last_look_is_taken_from_before(monitor, two_jobs):
    monitor.look(4.0, {"h0": ContainerUsage(2.0, None), "h1": ContainerUsage(1.0, None)}, two_jobs)
    host, guest = monitor.jobs["host"], monitor.jobs["guest"]
    assert (host.cpu_s, guest.cpu_s) == (12.0, 0.0)
    monitor.look(5.0, {}, two_jobs)
    assert host.cores == 3.0, "nothing is known of a job of which nothing runs"
    assert host.used(6.0).cpu_s == pytest.approx(18.0)
    assert guest.used(6.0).cpu_s == 0.0


def command(name, cores, *, walltime=1000.0, submit=0.0, exclusive=False, application=None):
    return QueuedCommand(WaitingJob(name, application or name, cores, walltime, submit, exclusive), f"run {name}")


def run(jobs, machine, script, tmp_path, **options):
    world = RealWorld(jobs, machine, tmp_path / "jobs", clock=machine.clock, **options)
    drive(world, script)
    return {job.name: job for job in world.result().jobs}


def test_a_job_runs_once_on_each_of_its_nodes(tmp_path):
    machine = FakeMachine(nodes(3, cores=2), {"wide": 10.0})
    jobs = run([command("wide", 5)], machine, Script(), tmp_path)
    told = [each.program.environment for each in machine.past]
    assert [each.node for each in machine.past] == ["n0", "n1", "n2"]
    assert [(each["ASA_RANK"], each["ASA_RANKS"], each["ASA_CORES"]) for each in told] == [
        ("0", "3", "2"), ("1", "3", "2"), ("2", "3", "1"),
    ]  # fmt: skip
    assert machine.past[0].program.argv[-1] == "run wide"
    assert Path(told[0]["ASA_JOB_DIRECTORY"]) == tmp_path / "jobs" / "wide" / "1"
    assert oct((tmp_path / "jobs" / "wide" / "1").stat().st_mode)[-3:] == "700"
    assert jobs["wide"].ended - jobs["wide"].started == pytest.approx(10.0)
    assert jobs["wide"].slowdown == 1, "it never shared, so it was alone"
    assert jobs["wide"].cpu_s == pytest.approx(30.0), "a core on each of three nodes"


def test_a_guest_is_on_its_hosts_last_nodes_and_keeps_them(tmp_path):
    machine = FakeMachine(nodes(4), {"host": 20.0, "guest": 50.0, "next": 5.0})
    script = Script([Start("host"), StartGuest("guest", "host", 0.05)])
    jobs = run([command("host", 4), command("guest", 2), command("next", 2)], machine, script, tmp_path)
    where = {name: [each.node for each in machine.past if each.job == name] for name in machine.run_time}
    assert where == {"host": ["n0", "n1", "n2", "n3"], "guest": ["n3", "n2"], "next": ["n0", "n1"]}
    assert [stay.host for stay in jobs["guest"].stays] == ["host", None]
    assert jobs["next"].started == pytest.approx(20.0)
    for_good = [asked[1:4] for asked in machine.asked if asked[4] is None]
    assert set(for_good) == {("guest.1.0", 0.9, 1.0), ("guest.1.1", 0.9, 1.0)}
    assert len(for_good) == 2 * 3, "and told again every ten seconds"
    assert [lease for _, _, _, _, lease in machine.asked if lease is not None] == [], "the least share needs no lease"
    assert math.isnan(jobs["host"].slowdown), "nobody knows how long it would have run alone"
    assert script.runs[0].alone_s is None


def test_a_share_is_leased_as_long_as_it_is_wanted(tmp_path):
    machine = FakeMachine(nodes(2), {"host": 40.0, "guest": 100.0})
    script = Script([Start("host"), StartGuest("guest", "host", 0.05)], [SetShare("guest", 0.5)], [], [], [], [])
    script.at[4] = lambda: script.steps.insert(0, [SetShare("guest", 0.05)])
    seen = []
    script.at[3] = lambda: seen.extend((each.name, each.request) for each in machine.running.values())
    run([command("host", 2), command("guest", 1)], machine, script, tmp_path)
    assert dict(seen) == {"host.1.0": 0.9, "host.1.1": 0.5, "guest.1.0": 0.5}, "the node without a guest stays as it is"
    leased = [at for at, container, _, _, lease in machine.asked if container == "host.1.1" and lease == LEASE_S]
    assert all(later - sooner < LEASE_S / 2 for sooner, later in itertools.pairwise(leased))
    back = [(container, lease) for _, container, _, _, lease in machine.asked if lease == 0.0]
    assert sorted(back) == [("guest.1.0", 0.0), ("host.1.1", 0.0)]


def test_a_dead_co_scheduler_leaves_hosts_their_cores(tmp_path):
    machine = FakeMachine(nodes(2), {"host": 100.0, "guest": 100.0})
    world = RealWorld([command("host", 2), command("guest", 2)], machine, tmp_path / "jobs", clock=machine.clock)
    world.advance()
    world.apply([Start("host"), StartGuest("guest", "host", 0.5, hard=True)])
    assert [each.limit for each in machine.running.values() if each.job == "host"] == [0.5, 0.5]
    machine.pending.clear()
    for _ in range(3):
        machine.news(LEASE_S)
    assert [(each.request, each.limit) for each in machine.running.values() if each.job == "host"] == [(0.9, 1.0)] * 2
    assert [each.request for each in machine.running.values() if each.job == "guest"] == [0.05, 0.05]


def test_a_job_goes_on_beyond_its_wall_time(tmp_path):
    """As the page says: a guest may have been stopped meanwhile."""
    (job,) = run([command("a", 1, walltime=10.0)], FakeMachine(nodes(1), {"a": 60.0}), Script(), tmp_path).values()
    assert (job.problem, job.over_walltime, job.ended - job.started) == ("", True, pytest.approx(60.0))


def test_when_a_container_fails_its_job_does(tmp_path):
    machine = FakeMachine(nodes(4), {"bad": 10.0, "good": 30.0}, problems={"bad": "Command exited with status 3"})
    script = Script()
    entries = []
    jobs = run([command("bad", 2), command("good", 2)], machine, script, tmp_path, log=entries.append)
    assert jobs["bad"].problem.startswith("Command exited with status 3; its output is in ")
    assert jobs["good"].problem == ""
    assert [each.job for each in script.runs] == ["good"], "nothing is learned from failures"
    ended = [entry for entry in entries if entry.get("event") == "ended"]
    assert [(entry["job"], bool(entry["problem"])) for entry in ended] == [("bad", True), ("good", False)]


def test_an_evicted_guest_begins_anew(tmp_path):
    machine = FakeMachine(nodes(2), {"host": 20.0, "guest": 10.0})
    script = Script([Start("host"), StartGuest("guest", "host", 0.05)], [Evict("guest")])
    jobs = run([command("host", 2), command("guest", 1)], machine, script, tmp_path)
    assert jobs["guest"].evictions == 1
    assert [each.stopped for each in machine.past if each.job == "guest"] == [True, False]
    assert jobs["guest"].ended == pytest.approx(30.0)
    assert (tmp_path / "jobs" / "guest" / "2").is_dir()
    assert jobs["guest"].started == 0


def test_a_job_that_loses_a_node_runs_anew_on_the_others(tmp_path):
    machine = FakeMachine(nodes(3), {"host": 30.0, "guest": 100.0, "large": 5.0})
    script = Script([Start("host"), StartGuest("guest", "host", 0.05)])
    script.at[2] = lambda: machine.lose("n0")
    jobs = run([command("host", 2), command("guest", 1), command("large", 3)], machine, script, tmp_path)
    assert jobs["large"].problem == "it needs 3 cores, of which 2 are left"
    assert jobs["large"].ended == pytest.approx(max(jobs[name].ended for name in ("host", "guest")) + NODES_S, abs=5.1)
    assert jobs["host"].evictions == 1
    assert jobs["guest"].evictions == 0, "it was on the host's other node, and has that to itself now"
    assert jobs["host"].started == 0 and jobs["host"].ended > jobs["guest"].ended
    assert {each.node for each in machine.past if each.name.startswith("host.2")} == {"n1", "n2"}


def test_jobs_that_are_too_large_wait_for_nodes_to_come_back(tmp_path):
    machine = FakeMachine(nodes(2), {"wide": 5.0, "late": 5.0, "small": 20.0})
    script = Script(at={2: lambda: machine.lose("n1"), 5: lambda: setattr(machine, "nodes", nodes(2))})
    all_jobs = [command("small", 1), command("wide", 2), command("late", 2, submit=8.0)]
    jobs = run(all_jobs, machine, script, tmp_path)
    assert [job.problem for job in jobs.values()] == ["", "", ""]
    assert all("late" not in [job.name for job in view.queue] for view in script.views if view.cores == 1)
    assert {view.cores for view in script.views} == {1, 2}


def test_a_rank_that_fails_because_a_node_of_its_job_was_lost(tmp_path):
    """The others may notice first, and end with an error of their own."""
    machine = FakeMachine(nodes(3), {"mpi": 30.0})

    def lose():
        machine.end_container("mpi.1.0", "Command exited with status 1")
        machine.lose("n1")

    jobs = run([command("mpi", 2)], machine, Script(at={2: lose}), tmp_path)
    assert (jobs["mpi"].problem, jobs["mpi"].evictions) == ("", 1)


def test_a_guest_that_was_killed_gives_way(tmp_path):
    machine = FakeMachine(nodes(1), {"host": 20.0, "guest": 10.0})

    def kill():
        machine.end_container("guest.1.0", "it is no more", killed=True)

    script = Script([Start("host"), StartGuest("guest", "host", 0.05)], at={2: kill})
    jobs = run([command("host", 1), command("guest", 1)], machine, script, tmp_path)
    assert (jobs["guest"].problem, jobs["guest"].evictions) == ("", 1)


def test_a_node_whose_memory_runs_out_loses_its_guest(tmp_path):
    """By itself each job has enough, on average."""
    machine = FakeMachine(nodes(4), {"host": 20.0, "guest": 10.0}, memory={"host": 0.6, "guest": 0.6})
    script = Script([Start("host"), StartGuest("guest", "host", 0.05)])
    entries = []
    jobs = run([command("host", 4), command("guest", 1)], machine, script, tmp_path, log=entries.append)
    assert jobs["guest"].evictions == 1
    (evicted,) = [entry for entry in entries if entry.get("decision") == "Evict"]
    why = "host's memory is short: 0% of that of n3 is left; pressure is not measured there"
    assert evicted["why"] == {"because": why}


def test_a_host_alone_may_have_more_memory_than_its_node(tmp_path):
    machine = FakeMachine(nodes(1), {"host": 60.0}, memory={"host": 1.5})
    (host,) = run([command("host", 1)], machine, Script(), tmp_path).values()
    assert (host.problem, host.evictions, host.ended) == ("", 0, 60.0)


def test_what_is_measured_is_kept_for_a_picture(tmp_path):
    machine = FakeMachine(nodes(2), {"host": 40.0, "guest": 100.0})
    world = RealWorld([command("host", 2), command("guest", 1)], machine, tmp_path, sampled=True, clock=machine.clock)
    drive(world, Script([Start("host"), StartGuest("guest", "host", 0.05)]))
    samples = world.result().samples
    assert [sample.at for sample in samples] == sorted({sample.at for sample in samples})
    assert {tuple(sample.happiness) for sample in samples} == {("host", "guest"), ("guest",)}
    assert [sample.busy for sample in samples if 0 < sample.at < 40] == pytest.approx([3.0] * 39)
    assert samples[-1].share == {"guest": 1.0}


def test_guests_of_one_host_never_share_cores(tmp_path):
    machine = FakeMachine(nodes(4), {"host": 20.0, "a": 30.0, "b": 30.0})
    step = [Start("host"), *(StartGuest(name, "host", 0.05) for name in "ab")]
    entries = []
    jobs = run(
        [command("host", 4), command("a", 2), command("b", 2)], machine, Script(step), tmp_path, log=entries.append
    )
    assert [stay.host for stay in jobs["b"].stays] == ["host", None]
    where = {entry["job"]: set(entry["nodes"]) for entry in entries if entry.get("event") == "started"}
    assert where["a"] | where["b"] == where["host"] and not where["a"] & where["b"]


def test_jobs_are_submitted_when_they_say(tmp_path):
    machine = FakeMachine(nodes(1), {"a": 5.0, "b": 5.0})
    jobs = run([command("b", 1, submit=100.0), command("a", 1)], machine, Script(), tmp_path)
    assert jobs["b"].started == pytest.approx(100.0)
    assert jobs["b"].wait_s == pytest.approx(0.0)


def test_a_rule_that_starts_no_job(tmp_path):
    machine = FakeMachine(nodes(1), {"a": 5.0})
    with pytest.raises(Starved, match="job 'a' waits on an idle machine"):
        run([command("a", 1)], machine, Script([], []), tmp_path)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([command("a", 1), command("a", 1)], "two jobs called 'a'"),
        ([command("../a", 1)], "a name of letters"),
        ([command("a", 9)], "asks for 9 cores: the machine has 2"),
    ],
)
def test_jobs_that_cannot_run_are_refused(tmp_path, jobs, words):
    machine = FakeMachine(nodes(2), {})
    with pytest.raises(InvalidInput, match=words):
        RealWorld(jobs, machine, tmp_path, clock=machine.clock)


def test_a_queue_that_was_killed_goes_on(tmp_path):
    """Times go on from there; what had not ended runs anew in a directory of its own, jobs to come come in time."""
    machine = FakeMachine(nodes(2), {"short": 5.0, "long": 50.0, "late": 5.0})
    jobs = [command("short", 1), command("long", 1), command("late", 1, submit=100.0)]
    with SharedQueueLog(tmp_path) as log:
        first = RealWorld(jobs, machine, tmp_path / "jobs", clock=machine.clock, log=log.write)
        drive(first, Script(), until=lambda: machine.now > 1020)
    log.path.write_text(log.path.read_text() + '{"at": 20.0, "deci')
    machine.close()
    machine.pending.clear()
    machine.past.clear()
    with SharedQueueLog(tmp_path, resume=True) as log:
        done = ended_well(log.before)
        assert done == {job.name: job for job in first.result().jobs}
        assert list(done) == ["short"]
        since = log.before[-1]["at"]
        again = run(jobs[1:], machine, Script(), tmp_path, log=log.write, since=since)
    assert again["long"].ended == pytest.approx(since + 50.0, abs=0.1)
    assert again["late"].started == pytest.approx(100.0)
    assert [each.program.environment["ASA_JOB_DIRECTORY"][-6:] for each in machine.past] == ["long/2", "late/1"]
    assert sorted(ended_well(read(log.path))) == ["late", "long", "short"]


def test_a_rule_that_would_be_asked_without_end(tmp_path):
    machine = FakeMachine(nodes(1), {})
    with pytest.raises(InvalidInput, match="period_s is 0"):
        RealWorld([command("a", 1)], machine, tmp_path, period_s=0, clock=machine.clock)


def test_progress_makes_happiness(tmp_path):
    machine = FakeMachine(nodes(2), {"a": 40.0})
    script = Script()

    def tell(done):
        for rank in (0, 1):
            (tmp_path / "jobs" / "a" / "1" / f"progress.{rank}").write_text(f"{done} 10\n")

    script.at |= {2: lambda: tell(1), 3: lambda: tell(2), 4: lambda: tell(4)}
    run([command("a", 2, walltime=100.0)], machine, script, tmp_path)
    happy = [view.running.states.happiness.item() for view in script.views[1:5]]
    assert happy[:2] == [1.0, 1.0], "there is no rate before a second step"
    assert happy[2] == pytest.approx((100 - 15) * 0.02 / (0.8 - 4 * 0.02)), "a tenth in five seconds, four of them ago"
    assert happy[3] > happy[2], "two tenths in the next five"


@pytest.mark.parametrize("limits", [True, False])
def test_a_guest_stops_before_its_host_is_beyond_its_bound(tmp_path, limits):
    """The host reports a thousandth of its work each second, and nothing at all while it has a guest. Where no limits
    are kept, the guest is evicted."""
    machine, promise, at = FakeMachine(nodes(1), {"host": 1000.0, "guest": 500.0}, limits=limits), Promise(), {}

    class Rule(Script):
        def decide(self, view):
            names = view.running.names
            if "host" not in names:
                return super().decide(view)
            if "stopped" in at:
                at["stops"] = view.stops
                return []
            decisions = promise.watch(view, Profiles(), lambda: np.full(len(names), 1000.0), 0.1)
            if decisions:
                at["stopped"] = view.now
            elif view.now > 200 and not at:
                at["started"] = view.now
                decisions = [StartGuest("guest", "host", 0.1)]
            if "started" not in at:
                done = view.now
                (tmp_path / "jobs" / "host" / "1" / "progress.0").write_text(f"{done} 1000\n")
            return [*decisions, *promise.decided(view, decisions)]

    jobs = [command("host", 1, walltime=3000.0), command("guest", 1, walltime=3000.0)]
    jobs[0] = replace(jobs[0], request=jobs[0].request.bounded(0.1))
    ended = run(jobs, machine, Rule(), tmp_path)
    assert 5 <= at["stopped"] - at["started"] < 0.1 * at["started"]
    assert at["stops"] is limits, "views say whether guests can be stopped"
    assert STOPPED_CPUS in [each[3] for each in machine.asked if each[1].startswith("guest")]
    guest, host = ended["guest"], ended["host"]
    if limits:
        assert guest.evictions == 0 and guest.ended - host.ended == pytest.approx(500 - (at["stopped"] - at["started"]))
    else:
        assert guest.evictions == 1


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_rule_brings_any_queue_to_its_end(tmp_path_factory, data):
    """The fake machine asserts that nobody requests more than a node has."""
    count, cores = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, count * cores), min_size=1, max_size=8))
    times = {f"j{place}": data.draw(st.floats(1.0, 60.0)) for place in range(len(sizes))}
    jobs = [
        command(f"j{place}", size, walltime=data.draw(st.floats(20.0, 90.0)), application=f"app{place % 3}",
                submit=data.draw(st.sampled_from([0.0, 7.0])), exclusive=data.draw(st.booleans()))
        for place, size in enumerate(sizes)
    ]  # fmt: skip
    machine = FakeMachine(nodes(count, cores), times)
    rule = SHARING_RULES.create(data.draw(st.sampled_from(["space", "static", "asax:hard=true", "scavenger:guests=2"])))
    ended = run(jobs, machine, rule, tmp_path_factory.mktemp("any"))
    assert sorted(ended) == sorted(times)
    assert not machine.running
    for job in ended.values():
        assert job.evictions or job.ended - job.started == pytest.approx(times[job.name], abs=1e-6)


class Worker(FakeMachine):
    """Its host reports each so many seconds of its work as done, and is this many times slower while its guest runs."""

    def prepare(self, reports, step_s, slower, work_s):
        self.reports, self.step_s, self.slower, self.work_s = reports, step_s, slower, work_s
        self.done_s = self.seen = 0.0
        return self

    def used(self):
        guest = [each for each in self.running.values() if each.job == "guest" and each.left_s is None]
        over_s, self.seen = self.now - 1000.0 - self.seen, self.now - 1000.0
        self.done_s += over_s / (self.slower if guest else 1.0)
        done = min(self.work_s, self.step_s * math.floor(self.done_s / self.step_s + 1e-9))
        self.reports.parent.mkdir(parents=True, exist_ok=True)
        self.reports.write_text(f"{done} {self.work_s}\n")
        return super().used()


@settings(max_examples=12, deadline=None)
@given(slower=st.floats(1.0, 3.0), step_s=st.integers(1, 8), after_s=st.integers(20, 50), stays=st.booleans())
def test_how_much_a_host_was_slowed_down_is_estimated_from_its_reports(
    tmp_path_factory, slower, step_s, after_s, stays
):
    """Whatever the rule. Its run time alone is 300 s, which the co-scheduler does not know."""
    path, after_s = tmp_path_factory.mktemp("host"), 5 * after_s
    shared_s = (300.0 - after_s) * slower if stays else 50.0
    host_s = after_s + shared_s if stays else 300.0 + shared_s * (1 - 1 / slower)
    machine = Worker(nodes(1), {"host": host_s, "guest": 2 * host_s if stays else shared_s})
    machine.prepare(path / "jobs/host/1/progress.0", step_s, slower, 300.0)

    class Rule(Script):
        def decide(self, view):
            if len(view.running) == 1 and view.queue and view.now >= after_s:
                return [StartGuest("guest", "host", 0.1)]
            return [] if view.now else [Start("host")]

    jobs = [command("host", 1, walltime=9e3), command("guest", 1, walltime=9e3)]
    jobs[0] = replace(jobs[0], request=jobs[0].request.bounded(0.1))
    entries = []
    world = RealWorld(jobs, machine, path / "jobs", clock=machine.clock, log=entries.append)
    drive(world, Rule(), until=lambda: "host" in [job.name for job in world.result().jobs])
    host = next(job for job in world.result().jobs if job.name == "host")
    assert host.estimated and host.host_slowdown == pytest.approx(host_s / 300.0, abs=0.04)
    (kept, *broken) = promises(world.result())
    assert kept.endswith("by no more than their bound (1 by an estimate from their own reports)")
    assert len(broken) == (not host.promise)
    said = [entry for entry in entries if entry.get("event") == "slowdown"]
    assert {(each["job"], *each["guests"], each["bound"]) for each in said} == {("host", "guest", 0.1)}
    past = [each for each in said if each["at"] > after_s + 30.0]
    assert all(each["slower"] == pytest.approx((slower - 1) * (each["at"] - after_s) / (
        slower * after_s + each["at"] - after_s), abs=0.06) for each in past)  # fmt: skip
    assert abs(host_s / 300.0 - 1.1) < 0.04 or host.promise is (host_s <= 330.0)


@pytest.mark.parametrize(("reports", "after_s"), [(True, 5.0), (False, 50.0)])
def test_of_a_host_that_was_not_seen_alone_it_is_not_known(tmp_path, reports, after_s):
    machine = Worker(nodes(1), {"host": 100.0, "guest": 150.0})
    name = "progress.0" if reports else "elsewhere"
    machine.prepare(tmp_path / "jobs/host/1" / name, 1, 1.0, 100.0)
    jobs = [command("host", 1, walltime=9e3), command("guest", 1, walltime=9e3)]
    jobs[0] = replace(jobs[0], request=jobs[0].request.bounded(0.1))
    script = Script([Start("host")], *([[]] * (int(after_s) // 5 - 1)), [StartGuest("guest", "host", 0.1)])
    world = RealWorld(jobs, machine, tmp_path / "jobs", clock=machine.clock)
    drive(world, script)
    found = world.result()
    assert found.to_json()["promises"] == {"hosts": 0, "broken": [], "estimated": [], "unknown": ["host"]}
    assert math.isnan(found.jobs[0].host_slowdown) and found.jobs[0].unjudged
    (said,) = promises(found)
    assert said.startswith("it is not known whether guests slowed these down by more than their bound: host. State")


class Bounded:
    """Starts what fits, and any job beside any host whose account is open: the promise decides when it stops."""

    def __init__(self, share):
        self.promise, self.share = Promise(), share

    def decide(self, view):
        running, left = view.running, np.full(len(view.running), 1000.0)
        kept = self.promise.watch(view, Profiles(), lambda: left, self.share)
        own = [Start(job.name) for job in first_fit(view.queue, view.free)]
        found = [*kept, *own]
        hosts = np.flatnonzero((running.host < 0) & (running.guests() == 0))
        guests = [job for job in view.queue if Start(job.name) not in own][:1]
        if guests and len(hosts):
            one = np.ones((1, len(hosts)))
            fits = self.promise.stay_s(view, hosts, left[hosts], one, one)[0] > 0
            found += [StartGuest(guests[0].name, running.names[row], self.share) for row in hosts[fits][:1]]
        return [*found, *self.promise.decided(view, found)]

    def learn(self, run): ...


def pressed(name, bound):
    return WaitingJob(name, name, 1, 5000.0, bound=bound, bound_by="pressure")


def burdened(machine, job):
    """The host's processor is its guest's from the fifth second of sharing on, while that is not stopped."""
    guest = [each for each in machine.running.values() if each.job == "guest"]
    return float(job == "host" and bool(guest) and guest[0].left_s is None and machine.now > guest[0].started + 5.0)


@pytest.mark.parametrize("bound", [0.1, 0.5])
def test_a_silent_host_is_rid_of_its_guest_before_its_bound_is_broken(tmp_path, bound):
    """As far as pressure shows, which is measured once a second."""
    machine, entries = FakeMachine(nodes(1), {"host": 600.0, "guest": 300.0}, waits=burdened), []
    jobs = [replace(command("host", 1), request=pressed("host", bound)), command("guest", 1, walltime=5000.0)]
    run(jobs, machine, Bounded(0.05), tmp_path, log=entries.append)
    began = next(each["at"] for each in entries if each.get("decision") == "StartGuest")
    stops = [each for each in entries if each.get("decision") == "SetShare" and not each["share"]]
    breach = began + 5.0 + bound * began  # when it has lost what it may by then, but for what five quiet seconds allow
    assert began + 5.0 < stops[0]["at"] <= breach + 2.0
    assert stops[0]["why"]["waited_most"] > 0.1
    sent = next(at for at, name, _, limit, _ in machine.asked if name.startswith("guest") and limit <= STOPPED_CPUS)
    assert sent - 1000.0 == pytest.approx(stops[0]["at"], abs=1.0)
    lost_s = max(waited for waited, _ in machine.waited.values())
    assert 0 < lost_s <= bound * (600.0 - lost_s)


def test_where_pressure_is_not_measured_a_silent_host_has_no_guest(tmp_path):
    jobs = [replace(command("host", 1), request=pressed("host", 0.5)), command("guest", 1, walltime=5000.0)]
    found = run(jobs, FakeMachine(nodes(1), {"host": 600.0, "guest": 300.0}), Bounded(0.05), tmp_path)
    assert [stay.host for stay in found["guest"].stays] == [None]


needs_pressure = pytest.mark.skipif(
    not (has_weights() and probe.best(f"test-{os.getpid()}").name == "cgroup v2"), reason="needs cgroups of version 2"
)
BURNS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): sum(range(100000))"


@pytest.mark.slow
@pytest.mark.skipif(not has_weights(), reason="needs control groups with weights")
@pytest.mark.parametrize("by", [pytest.param("pressure", marks=needs_pressure), "instructions"])
def test_a_guest_that_takes_its_hosts_cpu_is_stopped(tmp_path, monkeypatch, by):
    """Both want the same one; neither reports progress. CPU time stands for instructions: every machine counts it."""
    monkeypatch.setattr("coscheduler.real.gangs.EVENT", "task-clock")
    bound, over, seen, entries = 0.5, tmp_path / "over", [], []

    class Rule(Bounded):
        def decide(self, view):
            if view.running.names[:1] == ("host",):
                work = view.running.unhindered[0, 0] if by == "pressure" else view.running.instructions[0]
                seen.append((view.now, work))
            return super().decide(view)

    def log(entry):
        entries.append(entry)
        if entry.get("decision") == "SetShare" and not entry["share"]:
            over.touch()

    line = f"exec taskset -c 0 {sys.executable} -S -c {shlex.quote(BURNS)} {over}"
    host = replace(pressed("host", bound), bound_by=by)
    jobs = [QueuedCommand(host, line), QueuedCommand(WaitingJob("guest", "guest", 1, 5000.0), line)]
    with AgentMachine(LocalAgents(1, cores=1)) as machine:
        drive(RealWorld(jobs, machine, tmp_path / "jobs", log=log), Rule(0.9))
    began = next(each["at"] for each in entries if each.get("decision") == "StartGuest")
    stop = next(each for each in entries if each.get("decision") == "SetShare")
    assert by != "pressure" or stop["why"]["waited_most"] > 0.5
    alone = [each for each in seen if each[0] <= began and not math.isnan(each[1])]
    pace = (alone[-1][1] - alone[0][1]) / (alone[-1][0] - alone[0][0])
    now, least = next(each for each in seen if each[0] >= stop["at"] - 0.5)
    done = (least - alone[-1][1]) / pace  # so long would it have taken alone
    lost = now - alone[-1][0] - done
    assert lost <= bound * (alone[-1][0] - alone[0][0] + done) + 1.0
    assert not [each for each in entries if each.get("decision") == "Evict"]
