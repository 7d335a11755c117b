"""When a host's memory is short: which guest is squeezed, asked to save its state, and evicted."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import InvalidInput
from coscheduler.agents.groups import LocalAgents
from coscheduler.agents.machine import AgentMachine
from coscheduler.drive import drive
from coscheduler.history import Entry, JobRun
from coscheduler.nouns import SetShare, StartGuest, WaitingJob, first_fit
from coscheduler.queuefile import QueuedCommand, StateSaving, commands_of, describe
from coscheduler.real import memory as rules
from coscheduler.real.machine import ContainerUsage, SharedNode
from coscheduler.real.memory import (
    AWAY_S,
    CALM_S,
    LEAST,
    SETTLE_S,
    SQUEEZE,
    STALLED,
    TABLE,
    GuestState,
    MemoryStep,
    NodeMemory,
    decide,
    most,
)
from coscheduler.real.world import RealWorld
from executors.cgroup.kernel import own_groups
from tests.coscheduler.fake_machine import Container, FakeMachine, Script, needs_weights, nodes

NODE = NodeMemory("n0", 1000, {"host": 500}, {"a": 100, "b": 300})
SHORT, OUT = replace(NODE, available=40), replace(NODE, available=10)
WHY = "host's memory is short: 4% of that of n0 is left; pressure is not measured there"


def guest(state: Any = "running", since: float = 0.0, grace_s: float | None = 60.0) -> GuestState:
    return GuestState("host", state, since, grace_s)


def next_of(now: float, node: NodeMemory, **guests: GuestState) -> dict[str, str]:
    return {step.guest: step.to for step in decide(now, [node], {"a": guest(), "b": guest()} | guests)}


def test_how_a_node_is() -> None:
    assert (NODE.left, NODE.condition) == (100, "enough")
    assert replace(NODE, hosts={"host": 560}).condition == "short", "40 of 1000"
    assert replace(NODE, hosts={"host": 590}).condition == "out", "10 of 1000"
    assert SHORT.condition == "short" and OUT.condition == "out", "the machine under it has less than it offers"
    assert replace(NODE, stalled={"host": STALLED}).condition == "short", "its host waits, whatever is left"
    assert replace(NODE, stalled={"host": STALLED / 2}).condition == "enough"


def test_why_in_words() -> None:
    assert SHORT.because("host") == WHY
    assert replace(SHORT, stalled={"host": 0.0}).because("host") == "host's memory is short: 4% of that of n0 is left"
    waits = replace(NODE, stalled={"host": 0.12, "other": 0.01})
    assert waits.because("host") == "host waits for memory, for 12% of the time on n0"


def test_who_has_most_memory_gives_way_step_by_step() -> None:
    assert decide(0.0, [SHORT], {"a": guest(), "b": guest()}) == [MemoryStep("b", "squeezed", WHY)]
    assert next_of(SETTLE_S / 2, SHORT, b=guest("squeezed")) == {}, "it is waited for what that does"
    assert next_of(SETTLE_S, SHORT, b=guest("squeezed")) == {"b": "asked"}
    assert next_of(SETTLE_S, SHORT, b=guest("squeezed", grace_s=None)) == {"b": "evicted"}, "it cannot save its state"
    assert next_of(59.0, SHORT, b=guest("asked")) == {}, "and the other one is left alone meanwhile"
    assert next_of(60.0, SHORT, b=guest("asked")) == {"b": "evicted"}
    assert next_of(60.0, NODE, b=guest("asked")) == {"b": "evicted"}, "it may have stopped to work"
    assert next_of(61.0, replace(SHORT, settles=62.0)) == {}, "one was evicted just now"


def test_with_enough_memory_again_it_goes_on() -> None:
    assert next_of(CALM_S - 1, NODE, b=guest("squeezed")) == {}
    assert next_of(CALM_S, NODE, b=guest("squeezed")) == {"b": "running"}
    assert next_of(CALM_S, SHORT, a=guest("asked"), b=guest("squeezed")) == {}, "another one was asked there"


@pytest.mark.parametrize("state", ["running", "squeezed", "asked"])
def test_with_next_to_nothing_left_one_goes_at_once(state: str) -> None:
    assert next_of(0.0, OUT, b=guest(state)) == {"b": "evicted"}


def test_a_guest_on_two_nodes_goes_by_the_worse_one() -> None:
    other = replace(OUT, node="n1", memory=10_000, guests={"b": 10}, available=100)
    (step,) = decide(0.0, [SHORT, other], {"a": guest(), "b": guest()})
    assert (step.guest, step.to) == ("b", "evicted") and "of n1 is left" in step.because


def test_how_much_a_guest_may_have() -> None:
    assert most(NODE, "a", "running") == 100 + 100 - LEAST * 1000
    assert most(OUT, "a", "running") == 100
    assert most(SHORT, "b", "squeezed") == int(SQUEEZE * 300)
    assert most(SHORT, "b", "asked") is None, "to save its state it may need more"


STATES = st.builds(
    guest, st.sampled_from(["running", "squeezed", "asked"]), st.floats(0, 100), st.none() | st.floats(0, 60)
)


@st.composite
def views(draw: Any) -> tuple[float, list[NodeMemory], dict[str, GuestState]]:
    guests = draw(st.dictionaries(st.sampled_from("abcd"), STATES, min_size=1))
    found = []
    for name in draw(st.lists(st.sampled_from(["n0", "n1", "n2"]), unique=True, min_size=1)):
        has = draw(st.dictionaries(st.sampled_from(sorted(guests)), st.integers(0, 600)))
        hosts = draw(st.dictionaries(st.sampled_from(["host", "other"]), st.integers(0, 600), min_size=1))
        stalled = draw(st.dictionaries(st.sampled_from(sorted(hosts)), st.floats(0, 1)))
        settles = draw(st.floats(0, 120))
        found.append(NodeMemory(name, 1000, hosts, has, draw(st.none() | st.integers(0, 1000)), stalled, settles))
    return draw(st.floats(0, 120)), found, guests


@given(views())
def test_every_step_is_in_the_table_and_in_time(view: tuple[float, list[NodeMemory], dict[str, GuestState]]) -> None:
    now, places, guests = view
    for step in decide(now, places, guests):
        was = guests[step.guest]
        here = [place for place in places if step.guest in place.guests]
        out = any(place.condition == "out" and now >= place.settles for place in here)
        assert step.to in {to for (state, _), to in TABLE.items() if state == was.state}
        if step.to == "asked":
            assert was.state == "squeezed" and was.grace_s is not None and now >= was.since + SETTLE_S
        if step.to == "evicted" and not out:
            assert was.state == "asked" or (was.state == "squeezed" and was.grace_s is None)
            assert now >= was.since + (SETTLE_S if was.state == "squeezed" else was.grace_s or 0.0)
        if step.to == "running":
            assert now >= was.since + CALM_S and all(place.condition == "enough" for place in here)


@given(views())
def test_one_guest_of_a_node_at_a_time(view: tuple[float, list[NodeMemory], dict[str, GuestState]]) -> None:
    now, places, guests = view
    worse = [step.guest for step in decide(now, places, guests) if step.to != "running"]
    over = [name for name in worse if guests[name].state == "asked"]
    assert len(worse) <= len(places) + len(over)


# ------------------------------------------------------- a queue in virtual time


def command(name: str, cores: int = 1, saves: StateSaving | None = None) -> QueuedCommand:
    return QueuedCommand(WaitingJob(name, name, cores, 10_000.0), f"run {name}", saves=saves)


SAVES = StateSaving("TERM", 20.0)
BESIDE = [Start("host"), StartGuest("census", "host", 0.05)]


def run(
    machine: FakeMachine, rule: Any, directory: Path, *jobs: QueuedCommand
) -> tuple[dict[str, JobRun], list[Entry]]:
    entries: list[Entry] = []
    world = RealWorld(jobs, machine, directory / "jobs", clock=machine.clock, log=entries.append)
    drive(world, rule)
    return {job.name: job for job in world.result().jobs}, entries


def told(entries: list[Entry], job: str) -> list[tuple[float, str]]:
    """What was done to a guest, and when [s]."""
    kinds = ("squeezed", "eased", "asked", "requeued", "Evict")
    about = [entry for entry in entries if job in (entry.get("job"), entry.get("guest"))]
    return [(round(entry["at"]), kind) for entry in about if (kind := entry.get("decision") or entry["event"]) in kinds]


def beside(**more: Any) -> FakeMachine:
    return FakeMachine(nodes(1), {"host": 100.0, "census": 300.0}, memory={"host": 0.5, "census": 0.46}, **more)


def test_a_guest_that_does_not_react_has_its_grace(tmp_path: Path) -> None:
    machine = beside()
    jobs, entries = run(machine, Script(BESIDE), tmp_path, command("host"), command("census", saves=SAVES))
    (_, squeezed), (at, asked), (end, evicted) = told(entries, "census")
    assert (squeezed, asked, evicted) == ("squeezed", "asked", "Evict")
    assert at >= SETTLE_S and end - at == pytest.approx(20.0, abs=2.0)
    assert [(container, name) for _, container, name in machine.signals] == [("census.1.0", "TERM")]
    assert machine.past[0].program.argv[-1].splitlines() == ["trap : 15", "run census"], "its shell goes on"
    (entry,) = [entry for entry in entries if entry.get("event") == "asked"]
    said = "asked to save its state: host's memory is short: 4% of that of n0 is left; pressure is not measured there"
    assert describe(entry, "census") == said
    assert (jobs["host"].problem, jobs["host"].evictions, jobs["host"].ended) == ("", 0, pytest.approx(100.0))
    assert (jobs["census"].evictions, jobs["census"].problem) == (1, ""), "it had cores of its own in the end"
    assert machine.held == [("census.1.0", int(SQUEEZE * int(0.46 * (1 << 30)))), ("census.1.0", None)]


def test_a_guest_that_ends_after_the_signal_is_not_done(tmp_path: Path) -> None:
    """Nor has it failed, whatever its exit code."""
    for problem in ("", "Command exited with status 3"):
        machine = beside()
        machine.on_signal = lambda its, machine=machine, problem=problem: machine.end_container(its.name, problem)
        where = tmp_path / (problem or "well")
        jobs, entries = run(machine, Script(BESIDE), where, command("host"), command("census", saves=SAVES))
        assert [kind for _, kind in told(entries, "census")] == ["squeezed", "asked", "requeued"]
        assert (jobs["census"].evictions, jobs["census"].problem) == (1, "")
        runs = [each.program.environment for each in machine.past if each.job == "census"]
        assert {each["ASA_CHECKPOINT"] for each in runs} == {str(where / "jobs" / "census" / "checkpoint")}
        assert len({each["ASA_JOB_DIRECTORY"] for each in runs}) == 2


def test_a_guest_that_cannot_save_is_evicted_after_it_was_squeezed(tmp_path: Path) -> None:
    machine = beside()
    jobs, entries = run(machine, Script(BESIDE), tmp_path, command("host"), command("census"))
    assert [kind for _, kind in told(entries, "census")] == ["squeezed", "Evict"] and machine.signals == []
    assert "ASA_CHECKPOINT" not in machine.past[0].program.environment
    assert jobs["census"].evictions == 1


def test_a_host_that_waits_for_memory_is_enough(tmp_path: Path) -> None:
    machine = beside(stalled={"host": 0.2})
    machine.memory = {"host": 0.1, "census": 0.1}
    _, entries = run(machine, Script(BESIDE), tmp_path, command("host"), command("census", saves=SAVES))
    (first, *_) = [entry for entry in entries if entry.get("event") == "squeezed"]
    assert first["because"] == "host waits for memory, for 20% of the time on n0"


def test_a_guest_that_was_stopped_runs_while_it_saves(tmp_path: Path) -> None:
    machine = beside()
    limits: list[float] = []
    script = Script(BESIDE, [SetShare("census", 0.0)])
    script.at[5] = lambda: limits.append(machine.running["census.1.0"].limit)
    run(machine, script, tmp_path, command("host"), command("census", saves=SAVES))
    assert machine.signals and limits == [1.0], "no limit"


def test_whose_host_ends_meanwhile_keeps_its_memory(tmp_path: Path) -> None:
    machine = beside()
    machine.run_time["host"] = 3.0
    jobs, entries = run(machine, Script(BESIDE), tmp_path, command("host"), command("census", saves=SAVES))
    assert [kind for _, kind in told(entries, "census")] == ["squeezed"] and machine.held[-1] == ("census.1.0", None)
    assert (jobs["census"].evictions, jobs["census"].ended) == (0, pytest.approx(300.0))


def test_for_a_while_it_is_nobodys_guest(tmp_path: Path) -> None:
    machine = beside()
    machine.run_time["host"] = AWAY_S + 100.0
    script = Script(BESIDE)
    run(machine, script, tmp_path, command("host"), command("census"))
    waits = [(view.now, job.exclusive) for view in script.views for job in view.queue if job.name == "census"]
    since = next(at for at, exclusive in waits if exclusive)
    assert {exclusive for at, exclusive in waits if since <= at < since + AWAY_S - 10} == {True}
    assert {exclusive for at, exclusive in waits if at > since + AWAY_S} == {False}


class GivesWay(FakeMachine):
    """Guests have no more memory than they may."""

    def hold_memory(self, container: str, memory: int | None, lease_s: float | None) -> None:
        super().hold_memory(container, memory, lease_s)
        if memory is not None:
            self.memory["census"] = min(self.memory["census"], memory / (1 << 30))


def test_who_gives_way_is_not_asked(tmp_path: Path) -> None:
    machine = GivesWay(nodes(1), {"host": 100.0, "census": 300.0}, memory={"host": 0.1, "census": 0.86})
    _, entries = run(machine, Script(BESIDE), tmp_path, command("host"), command("census", saves=SAVES))
    assert [kind for _, kind in told(entries, "census")] == ["squeezed", "eased"]
    amounts = [None if memory is None else round(memory / (1 << 30), 2) for _, memory in machine.held]
    assert amounts == [0.77, 0.88, None], "squeezed; all but what is kept free; and all, on its own cores"


# ------------------------------------------------------- faults


class Beside:
    """Starts what fits, and other guests wherever there is room."""

    def decide(self, view: Any) -> list[Any]:
        own = list(first_fit(view.queue, view.free))
        decisions: list[Any] = [Start(job.name) for job in own]
        running = view.running
        room = {name: int(running.cores[row]) for row, name in enumerate(running.names) if running.host[row] < 0}
        for row, host in enumerate(running.host):
            if host >= 0:
                room[running.names[host]] -= int(running.cores[row])
        for job in view.queue:
            host = max(room, key=room.__getitem__, default=None)
            if job.name[0] == "g" and job not in own and not job.exclusive and host and room[host] >= job.cores:
                decisions.append(StartGuest(job.name, host, 0.05))
                room[host] -= job.cores
        return decisions

    def learn(self, run: Any) -> None: ...


@dataclass
class Demands(FakeMachine):
    """Jobs whose memory comes and goes, and hosts that wait for it; what guests do upon their signal is drawn."""

    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.peaks: dict[str, int] = {}
        self.waited: dict[str, tuple[float, float]] = {}

    def used(self) -> dict[str, ContainerUsage]:
        found = {}
        for name, used in super().used().items():
            here = self.running[name]
            drawn = random.Random(f"{name} {(self.now - here.started) // 15} {self.run_time}")
            share = drawn.choice([0.1, 0.2, 0.3] if name[0] == "h" else [0.02, 0.1, 0.2, 0.3])
            waited, at = self.waited.get(name, (0.0, self.now))
            waited += drawn.choice([0.0, 0.05, 0.5]) * (self.now - at)
            self.waited[name] = waited, self.now
            found[name] = used._replace(memory=int(share * (1 << 30)), stalled_s=waited)
            self.seen[name] = int(share * (1 << 30))
            self.peaks[name] = max(self.seen[name], self.peaks.get(name, 0))
        return found

    def react(self, its: Container) -> None:
        match self.rng.choice(["ignores", "saves", "dies", "saves late"]):
            case "dies":
                self.end_container(its.name, "terminated with signal User defined signal 1", killed=True)
            case "saves":
                its.ends = min(its.ends, self.now + self.rng.uniform(0.0, 10.0))
            case "saves late":
                its.ends = min(its.ends, self.now + self.rng.uniform(10.0, 60.0))


def play(seed: int, directory: Path) -> Counter[str]:
    """A random queue, checked step by step; how guests went."""
    rng = random.Random(seed)
    hosts = [command(f"h{number}", rng.randint(2, 4)) for number in range(2)]
    kinds: list[StateSaving | None] = [None, StateSaving("USR1", 5.0), StateSaving("TERM", 20.0)]
    guests = [command(f"g{number}", rng.randint(1, 2), rng.choice(kinds)) for number in range(rng.randint(2, 6))]
    times = {job.request.name: rng.uniform(100.0, 400.0) for job in (*hosts, *guests)}
    machine = Demands(nodes(rng.randint(2, 3), cores=2), times, rng=rng)
    machine.on_signal = machine.react
    saves = {job.request.name: job.saves for job in guests}
    whose: dict[str, str | None] = {}
    counts: Counter[str] = Counter()

    def left(job: str) -> float:
        """The least left on any node of this job, as a share."""
        here = {each.node for each in machine.running.values() if each.job == job}
        has: Counter[str] = Counter()
        for each in machine.running.values():
            has[each.node] += (machine.peaks if whose[each.job] is None else machine.seen).get(each.name, 0)
        return min(1 - has[node] / (1 << 30) for node in here)

    def check(entry: Entry) -> None:
        kind, name = entry.get("decision") or entry["event"], entry.get("job") or entry.get("guest")
        if kind in ("Start", "StartGuest"):
            whose[name] = entry.get("host")
        elif kind == "ended" or (kind == "requeued"):
            assert kind == "ended" or not name.startswith("h"), "no host is ever ended"
            for other in [other for other, host in whose.items() if host == name]:
                whose[other] = None
            del whose[name]
            counts["requeued"] += kind == "requeued"
        elif kind == "Evict":
            assert whose[name] is not None, "only guests are"
            if left(name) >= LEAST:
                its = [each.name for each in machine.running.values() if each.job == name]
                signals = [at for at, container, _ in machine.signals if container in its]
                assert (saves[name] is None) == (signals == []), "who can save its state is asked first"
                if signals:
                    assert machine.now >= max(signals) + saves[name].grace_s, "and has the time that it declared"
                counts["asked" if signals else "squeezed"] += 1
            else:
                counts["at once"] += 1
            del whose[name]

    world = RealWorld([*hosts, *guests], machine, directory, clock=machine.clock, log=check)
    drive(world, Beside())
    found = {job.name: job for job in world.result().jobs}
    assert {name: job.problem for name, job in found.items()} == dict.fromkeys(times, ""), "no job is lost"
    assert all(found[job.request.name].evictions == 0 for job in hosts)
    stopped = {each.job for each in machine.past if each.stopped}
    assert not stopped & {job.request.name for job in hosts}, "nothing of a host is ever ended"
    return counts


@pytest.mark.parametrize("evictions", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_nothing_of_a_host_is_ended_for_a_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evictions: int
) -> None:
    """Whatever memory jobs want, and whatever they do upon their signal."""
    monkeypatch.setattr(rules, "AWAY_S", 10.0)
    counts: Counter[str] = Counter()
    for seed in itertools.count():
        counts += play(seed, tmp_path / str(seed))
        if counts.total() >= evictions:
            break
    print(f"{seed + 1} queues: {dict(counts)}")
    assert min(counts[kind] for kind in ("asked", "squeezed", "requeued")) >= evictions / 50


# ------------------------------------------------------- in a queue's file


def queue(**more: Any) -> QueuedCommand:
    job = {"name": "census", "cores": 1, "walltime": "10m", "command": "true"}
    return commands_of({"cores": 1, "jobs": [job | more]}).jobs[0]


def test_how_a_job_declares_that_it_saves_its_state() -> None:
    assert queue().saves is None
    assert queue(checkpoint=True).saves == StateSaving("USR1", 60.0), "a tenth of the wall time"
    assert queue(checkpoint=True, signal="SIGTERM", signal_before="5m").saves == StateSaving("TERM", 300.0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"checkpoint": "yes"}, "job 1: checkpoint is 'yes': true or false expected"),
        ({"signal": "USR1"}, "job 1: signal is for jobs that save their state: say checkpoint = true, too"),
        ({"checkpoint": True, "signal": "KILL"}, "job 1: signal must be the name of one that a program can handle"),
        ({"checkpoint": True, "signal_before": "soon"}, "job 1: signal_before"),
    ],
)
def test_declarations_that_make_no_sense(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        queue(**more)


# ------------------------------------------------------- on a real node

MIB = 1 << 20
HOST = """
import os, sys, time

held, until = b"x" * (300 << 20), time.time() + 180
while not os.path.exists(sys.argv[1]) and time.time() < until:
    time.sleep(0.1)
time.sleep(2)
"""
CENSUS = """
import os, signal, sys, time
from pathlib import Path

place = Path(os.environ["ASA_CHECKPOINT"])
begins = place / "begins"
step = int((place / "step").read_text()) if (place / "step").exists() else 0
with begins.open("a") as file:
    file.write(f"{step}\\n")

def save(number, frame):
    (place / "step").write_text(str(step))
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
held = []
while step < 300:
    time.sleep(0.1)
    step += 1
    if len(held) < 60:
        held.append(b"x" * (10 << 20))
"""


class SmallNodes(AgentMachine):
    """Agents on nodes of 1000 MiB."""

    @property
    def nodes(self) -> tuple[SharedNode, ...]:
        return tuple(replace(node, memory=1000 * MIB) for node in super().nodes)


def limits() -> Iterator[int]:
    """How much containers may have before they are held up [bytes], of those that may not have any amount."""
    own = own_groups(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    for controller, name in (("memory", "memory.soft_limit_in_bytes"), ("", "memory.high")):
        if controller in own:
            for file in own[controller].glob(f"asa/*/*/{name}"):
                if (text := file.read_text().strip()).isdecimal():
                    yield int(text)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make cgroups")
@needs_weights
def test_a_guest_that_eats_memory_goes_on_from_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is squeezed, saves its state upon the signal, and goes on from there; its host ends undisturbed."""
    monkeypatch.setattr(rules, "SETTLE_S", 2.0)
    monkeypatch.setattr(rules, "MARGIN", 0.15)
    entries: list[Entry] = []
    least: list[int] = []

    def log(entry: Entry) -> None:
        entries.append(entry)
        if entry.get("event") == "asked":
            least.append(min(limits()))

    python, saved = f"exec {sys.executable} -S -c", tmp_path / "jobs/census/checkpoint"
    jobs = [
        QueuedCommand(WaitingJob("host", "host", 1, 600.0), f"{python} {shlex.quote(HOST)} {saved / 'step'}"),
        QueuedCommand(
            WaitingJob("census", "census", 1, 600.0),
            f"{sys.executable} -S -c {shlex.quote(CENSUS)}; echo $? >>{saved / 'codes'}",
            saves=StateSaving("TERM", 20.0),
        ),
    ]
    with SmallNodes(LocalAgents(1, cores=1)) as machine:
        world = RealWorld(jobs, machine, tmp_path / "jobs", log=log)
        drive(world, Script(BESIDE))
    found = {job.name: job for job in world.result().jobs}
    assert {name: job.problem for name, job in found.items()} == {"host": "", "census": ""}
    assert [kind for _, kind in told(entries, "census")] == ["squeezed", "asked", "requeued"]
    assert found["host"].evictions == 0
    assert 0 < least[0] < 700 * MIB, "memory is held back"
    first, second = map(int, (saved / "begins").read_text().split())
    assert first == 0 and second > 40
    assert (saved / "codes").read_text() == "0\n0\n", "the shell outlives the signal, too"
