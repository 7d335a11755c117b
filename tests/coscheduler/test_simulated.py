"""The simulated world, its ledger, and rules that remember."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput, Starved, UnknownName
from asa.log.database import LearnedStore
from coscheduler.drive import Remembered, drive
from coscheduler.history import JobRun, SharedQueue
from coscheduler.ledger import Ledger
from coscheduler.nouns import (
    ALONE,
    FLOOR,
    Evict,
    JobStates,
    Keep,
    RunningJobs,
    SetShare,
    StartGuest,
    WaitingJob,
    happiness,
    smoothed,
)
from coscheduler.registry import SHARING_RULES
from coscheduler.testing import shared_run, sharing_view
from coscheduler.workload import PAPER_LIKE, Contention, Load, LoadPhase, capped, named, paper_queue, weighted
from coscheduler.world import SimulatedWorld
from tests.coscheduler.fake_machine import Script

CORES = 16


def idle_states(n):
    return JobStates(np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n), np.ones(n))


def ledger(*sizes, cores=CORES):
    made = Ledger(cores)
    for number, size in enumerate(sizes):
        made.submit(WaitingJob(f"j{number}", "a", size, 60.0))
    return made


class Books(RuleBasedStateMachine):
    """Any decisions, legal or not, and any ends: nothing is lost, and no job falls below its floor."""

    def __init__(self):
        super().__init__()
        self.ledger, self.submitted, self.ended = Ledger(CORES), 0, 0

    @rule(cores=st.integers(1, CORES), exclusive=st.booleans())
    def submit(self, cores, exclusive):
        self.ledger.submit(WaitingJob(f"j{self.submitted}", "a", cores, 60.0, exclusive=exclusive))
        self.submitted += 1

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def decide(self, data):
        name = st.integers(0, self.submitted - 1).map("j{}".format)
        share = st.floats(0, 1)
        decision = data.draw(
            st.one_of(
                st.builds(Start, name),
                st.builds(StartGuest, name, name, share, st.booleans()),
                st.builds(SetShare, name, share),
                st.builds(Evict, name),
                st.builds(Keep, name),
            )
        )
        before = self.facts()
        try:
            self.ledger.apply(decision, 0.0)
        except IllegalDecision:
            assert self.facts() == before

    @precondition(lambda self: self.ledger.running)
    @rule(data=st.data())
    def end(self, data):
        self.ledger.end(data.draw(st.sampled_from(sorted(self.ledger.running))))
        self.ended += 1

    def facts(self):
        running = {name: (each.host, each.share, list(each.guests)) for name, each in self.ledger.running.items()}
        return running, self.ledger.queue, self.ledger.free

    @invariant()
    def nothing_is_lost(self):
        running = self.ledger.running
        held = sum(each.job.cores for each in running.values() if each.host is None)
        assert held + self.ledger.free == CORES and self.ledger.free >= 0
        assert len(running) + len(self.ledger.queue) + self.ended == self.submitted
        places = [int(job.name[1:]) for job in self.ledger.queue]
        assert places == sorted(places)

    @invariant()
    def no_job_is_below_its_floor(self):
        running = self.ledger.running
        for name, each in running.items():
            assert self.ledger.own_share(name) >= FLOOR - 1e-6
            if each.host is None:
                shares = [running[guest].share for guest in each.guests]
                assert sum(shares) + self.ledger.own_share(name) == pytest.approx(1)
                assert all(running[guest].host == name for guest in each.guests)
                assert sum(running[guest].job.cores for guest in each.guests) <= each.job.cores
            else:
                assert running[each.host].host is None and name in running[each.host].guests

    @invariant()
    def the_view_tells_it(self):
        view = self.ledger.view(1.0, idle_states(len(self.ledger.running)))
        for row, name in enumerate(view.running.names):
            host = int(view.running.host[row])
            assert (None if host == ALONE else view.running.names[host]) == self.ledger.running[name].host


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_guests_keep_the_cores_that_they_have():
    books = ledger(8, 4, 2, 3)
    books.apply(Start("j0"), 0.0)
    for guest in ("j1", "j2"):
        books.apply(StartGuest(guest, "j0", 0.1), 0.0)
    with pytest.raises(IllegalDecision, match="needs 3 cores, 2 of its host's are no other guest's"):
        books.apply(StartGuest("j3", "j0", 0.1), 0.0)
    assert books.end("j0") == ("j1", "j2")
    assert books.running["j1"].host is books.running["j2"].host is None
    assert books.free == CORES - 6


@pytest.mark.parametrize(
    ("decision", "law"),
    [
        (Start("j9"), "no such job waits"),
        (Start("j1"), "12 cores, 8 are free"),
        (StartGuest("j1", "j0", 0.1), "needs 12 cores, 8 of its host's are no other guest's"),
        (StartGuest("j2", "j9", 0.1), "the host must be a running job"),
        (StartGuest("j2", "j0", 0.01), "a share from 0.05 to 0.95"),
        (StartGuest("j3", "j0", 0.1), "exclusive"),
        (SetShare("j0", 0.1), "no such guest"),
        (Evict("j0"), "no such guest"),
        (Keep("j1"), "no such job runs"),
    ],
)
def test_laws(decision, law):
    books = ledger(8, 12, 4)
    books.submit(WaitingJob("j3", "a", 1, 60.0, exclusive=True))
    books.apply(Start("j0"), 0.0)
    with pytest.raises(IllegalDecision, match=law):
        books.apply(decision, 0.0)


def test_an_evicted_guest_has_its_place_again():
    books = ledger(8, 4, 4)
    books.apply(Start("j0"), 0.0)
    books.apply(StartGuest("j1", "j0", 0.1), 0.0)
    books.apply(Evict("j1"), 5.0)
    assert [job.name for job in books.queue] == ["j1", "j2"]


def test_jobs_that_never_fit_or_share_a_name_are_refused():
    with pytest.raises(InvalidInput, match="a machine of 0 cores: at least 1"):
        Ledger(0)
    with pytest.raises(InvalidInput, match="17 cores"):
        ledger(17)
    books = ledger(1)
    with pytest.raises(InvalidInput, match="two jobs called"):
        books.submit(WaitingJob("j0", "a", 1, 60.0))


def running(count: int) -> RunningJobs:
    whole = np.full(count, 4)
    return RunningJobs(
        names=tuple(f"job {number}" for number in range(count)), applications=("blast",),
        application=np.zeros(count, dtype=np.int64), cores=whole, walltime=np.full(count, 9.0),
        started=np.zeros(count), states=idle_states(count), host=np.full(count, ALONE), share=np.ones(count),
        exclusive=np.zeros(count, dtype=bool), bound=np.full(count, np.inf),
        by_pressure=np.zeros(count, dtype=bool), done=np.full(count, np.nan), unhindered=np.full((count, 2), np.nan),
        instructions=np.full(count, np.nan),
    )  # fmt: skip


@pytest.mark.parametrize("cpu", [np.zeros(3), np.zeros((2, 1)), np.float64(0.5)], ids=["longer", "wider", "a number"])
def test_columns_of_several_shapes_are_refused(cpu: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match=r"columns of shapes .*: all of the same shape \(n,\) expected"):
        replace(idle_states(2), cpu=cpu)


def test_so_are_tables_without_a_row_for_each_job() -> None:
    jobs = running(2)
    for changed in ({"states": idle_states(3)}, {"share": np.ones(3)}, {"names": ("a", "b", "c")}):
        with pytest.raises(InvalidInput, match=r"columns of lengths \[2, 3\]: one row for each running job expected"):
            replace(jobs, **changed)  # type: ignore[arg-type]


def test_what_rules_see_cannot_be_written_to() -> None:
    jobs = running(2)
    for column in (jobs.share, jobs.host, jobs.states.cpu):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def happiness_of(*values, form="rate"):
    return happiness(*(np.array([value]) for value in values), form).item()


@given(st.floats(60, 1e5), st.floats(0, 0.99), st.floats(1, 1e4), st.floats(0.1, 10))
def test_happiness_is_one_for_a_job_just_on_time(walltime, elapsed, remaining, factor):
    left = walltime * (1 - elapsed)
    just = remaining / left
    assert happiness_of(walltime, walltime * elapsed, remaining, factor * just) == pytest.approx(factor)


def test_bounds():
    assert happiness_of(100.0, 50.0, 0.0, 0.0) == np.inf  # nothing is left
    assert happiness_of(100.0, 100.0, 0.0, 0.0) == np.inf
    assert happiness_of(100.0, 100.0, 5.0, 1.0) == 0  # the wall time is over
    assert happiness_of(100.0, 50.0, 5.0, 0.0) == 0  # it stands still


def test_the_literal_formula_says_the_opposite_of_the_text():
    slow, fast = (happiness_of(100.0, 50.0, 20.0, rate, form="literal") for rate in (0.1, 1.0))
    assert slow > fast
    assert happiness_of(100.0, 50.0, 20.0, 0.0, form="literal") == np.inf
    assert happiness_of(100.0, 50.0, 0.0, 1.0, form="literal") == 0
    with pytest.raises(UnknownName, match="literal, rate"):
        happiness_of(1.0, 1.0, 1.0, 1.0, form="happy")


def test_averages_forget():
    assert smoothed(1.0, 3.0, 0.0) == 1
    assert smoothed(1.0, 3.0, 1e6) == pytest.approx(3)
    assert smoothed(smoothed(1.0, 3.0, 100.0), 3.0, 50.0) == pytest.approx(smoothed(1.0, 3.0, 150.0))


def test_the_world_measures_either():
    loads = paper_queue(64, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        SimulatedWorld(loads, 64, happiness_form="none")
    found = []
    for form in ("rate", "literal"):
        world = SimulatedWorld(loads, 64, happiness_form=form)
        view = world.advance()
        world.apply([Start(view.queue[0].name)])
        found.append(world.advance().running.states.happiness.item())
    assert found[1] > 100 * found[0]


def load(name, cores, phases, *, memory=0.1, submit=0.0, walltime=1e4):
    parts = tuple(LoadPhase(time_s, demand, demand * cores > 1) for time_s, demand in phases)
    return Load(WaitingJob(name, name, cores, walltime, submit), parts, memory)


HOST = load("host", 8, [(300.0, 1 / 8), (300.0, 1.0)])
GUEST = load("guest", 4, [(400.0, 1.0)])


def run(world, *steps):
    script = Script(*steps)
    drive(world, script)
    return {job.name: job for job in world.result().jobs}, script


def test_a_pair_by_hand():
    """Sequential host: the guest loses the tax only. Parallel host: 10 % of 8 cores of the 4 it wants."""
    world = SimulatedWorld([HOST, GUEST], 8)
    jobs, _ = run(world, [Start("host"), StartGuest("guest", "host", 0.1)])
    first = 300 / 0.97
    left = 400 - 300
    rate = 0.97 * 0.8 / 4
    host_ends = first + 300 / (0.97 * 7.2 / 8)
    assert jobs["host"].ended == pytest.approx(host_ends)
    done = (host_ends - first) * rate
    assert jobs["guest"].ended == pytest.approx(host_ends + left - done)
    assert [stay.host for stay in jobs["guest"].stays] == ["host", None]
    assert jobs["host"].cpu_s == pytest.approx(first * 1 + (host_ends - first) * 7.2)


def test_a_quota_leaves_idle_what_the_host_does_not_use():
    world = SimulatedWorld([HOST, GUEST], 8)
    jobs, _ = run(world, [Start("host"), StartGuest("guest", "host", 0.25, hard=True)])
    assert jobs["host"].ended == pytest.approx(300 / 0.97 + 300 / (0.97 * 0.75))
    together = jobs["host"].ended
    assert jobs["guest"].ended == pytest.approx(together + 400 - together * 0.97 * 2 / 4)


def test_scarce_memory_slows_all_until_the_guest_is_evicted():
    world = SimulatedWorld([HOST, load("guest", 8, [(400.0, 1.0)], memory=0.95)], 8)
    jobs, script = run(world, [Start("host"), StartGuest("guest", "host", 0.1)], [Evict("guest")])
    assert script.views[1].now == 60
    assert jobs["host"].ended == pytest.approx(60 + 600 - 60 * 0.97 * 0.4)
    assert jobs["guest"].evictions == 1
    assert jobs["guest"].started == 0
    assert jobs["guest"].ended == pytest.approx(jobs["host"].ended + 400)


def test_shares_may_change():
    world = SimulatedWorld([load("host", 8, [(600.0, 1.0)]), GUEST], 8)
    jobs, _ = run(world, [Start("host"), StartGuest("guest", "host", 0.5)], [SetShare("guest", 0.05)])
    assert jobs["host"].ended == pytest.approx(60 + (600 - 60 * 0.97 * 0.5) / (0.97 * 0.95))
    assert [stay.share for stay in jobs["guest"].stays[:2]] == [0.5, 0.05]


def test_monitoring_measures_running_jobs():
    world = SimulatedWorld([HOST], 8)
    assert world.advance().queue[0].name == "host"
    world.apply([Start("host")])
    at_60 = world.advance()
    assert at_60.running.states.parallel.tolist() == [False]
    assert at_60.running.states.cpu[0] == pytest.approx(1 / 8)
    assert at_60.running.states.elapsed[0] == pytest.approx(60 / 1e4)
    assert at_60.running.states.happiness[0] == pytest.approx((1e4 - 60) / 540)
    while (view := world.advance()).now < 539:
        pass
    assert view.running.states.parallel.tolist() == [True]
    assert view.running.states.cpu[0] == pytest.approx(1 - 7 / 8 * math.exp(-240 / 300), abs=0.01)
    with pytest.raises(ValueError, match="read-only"):
        view.running.states.cpu[0] = 0.0


def test_jobs_come_when_they_come():
    world = SimulatedWorld([load("a", 8, [(100.0, 1.0)]), load("b", 8, [(100.0, 1.0)], submit=500.0)], 8)
    drive(world, SHARING_RULES.create("space"))
    assert [(job.started, job.ended) for job in world.result().jobs] == [(0, 100), (500, 600)]


def test_a_rule_that_starts_no_job_is_an_error():
    with pytest.raises(Starved, match="'host' waits on an idle machine"):
        drive(SimulatedWorld([HOST], 8), Script([]))


def test_laws_hold():
    world = SimulatedWorld([HOST], 8)
    world.advance()
    with pytest.raises(IllegalDecision):
        world.apply([Start("nobody")])
    with pytest.raises(InvalidInput, match="period_s"):
        SimulatedWorld([HOST], 8, period_s=0)


@pytest.mark.parametrize("memory", [-0.1, 1.1, math.nan])
def test_alone_no_job_has_more_memory_than_there_is(memory):
    with pytest.raises(InvalidInput, match=r"memory is .*: a share from 0 to 1"):
        load("greedy", 8, [(100.0, 1.0)], memory=memory)


@pytest.mark.parametrize("phases", [[], [(0.0, 1.0)], [(100.0, 0.0)], [(100.0, 1.0), (100.0, 1.5)]])
def test_a_job_does_something_all_the_time(phases):
    with pytest.raises(InvalidInput, match=r"job 'odd': phases longer than 0 s with a demand in \(0, 1\] expected"):
        load("odd", 8, phases)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(["space", "static", "static:hard=true", "asax", "scavenger", "scavenger:guests=3,worth=50"]),
    st.integers(0, 1000),
    st.sampled_from([64, 128, 256]),
)
def test_nothing_is_lost(spec, seed, cores):
    """Every job ends once, uses the CPU time that its work takes or more, and is never faster than alone."""
    loads = paper_queue(cores, np.random.default_rng(seed))
    world = SimulatedWorld(loads, cores)
    drive(world, SHARING_RULES.create(spec, seed=seed))
    found = world.result()
    assert len(found.jobs) == len(loads)
    for job, each in zip(found.jobs, loads, strict=True):
        assert each.request.submitted <= job.started < job.ended
        assert job.slowdown >= 1 - 1e-9
        assert job.cpu_s >= each.cpu_s * (1 - 1e-9)
        gaps = [later.since - before.until for before, later in zip(job.stays, job.stays[1:], strict=False)]
        assert job.evictions or gaps == pytest.approx([0] * len(gaps), abs=1e-6)
    assert sum(job.held_s for job in found.jobs) <= cores * found.makespan_s * (1 + 1e-9)
    assert sum(job.busy_s for job in found.jobs) == pytest.approx(sum(job.cpu_s for job in found.jobs))
    assert 0 < found.metrics()["cpu_utilisation"] <= 1


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_an_independent_simulation_in_small_steps_agrees(seed, hard):
    """Host and guest, one second at a time, written anew."""
    rng = np.random.default_rng(seed)
    sizes = (16, int(rng.choice([4, 8, 16])))
    jobs = [
        load(name, cores, [(float(rng.uniform(50, 400)), float(rng.choice([1 / cores, 0.5, 1.0]))) for _ in range(4)])
        for name, cores in zip(("host", "guest"), sizes, strict=True)
    ]
    share = float(rng.choice([0.1, 0.3, 0.5]))
    world = SimulatedWorld(jobs, 16, Contention(tax=0.9))
    found, _ = run(world, [Start("host"), StartGuest("guest", "host", share, hard)])
    expected = stepped(jobs, share, hard, tax=0.9)
    for name, ended in expected.items():
        assert found[name].ended == pytest.approx(ended, abs=1.0)


def cores_of(host, guest, share, hard):
    """Cores that host and guest get of 16, when they want so many."""
    if hard:
        return min(host, 16 * (1 - share)), min(guest, 16 * share)
    if host + guest <= 16:
        return host, guest
    theirs = min(guest, max(16 * share, 16 - host))
    return 16 - theirs, theirs


def stepped(jobs, share, hard, tax, step=0.2):
    done, ended, now = {"host": 0.0, "guest": 0.0}, {}, 0.0
    while len(ended) < 2:
        alive = [job for job in jobs if job.request.name not in ended]
        wants = [demand(job, done[job.request.name]) * job.request.cores for job in alive]
        if len(alive) == 2:
            rates = [tax * got / want for got, want in zip(cores_of(*wants, share, hard), wants, strict=True)]
        else:
            rates = [1.0]
        now += step
        for job, rate in zip(alive, rates, strict=True):
            done[job.request.name] += rate * step
            if done[job.request.name] >= job.alone_s:
                ended[job.request.name] = now
    return ended


def demand(job, done):
    for phase in job.phases:
        if done < phase.alone_s:
            return phase.demand
        done -= phase.alone_s
    return math.nan


def job_run(name, started, ended, alone_s=math.nan, problem=""):
    return JobRun(
        name, "blast", 4, 60.0, 0.0, started, ended, alone_s, 8.0, 4 * (ended - started), 8.0, 0.0, (), 0, problem
    )


def test_jobs_that_failed_count_in_no_mean():
    well, failed = job_run("a", 2.0, 12.0, 5.0), job_run("b", 100.0, 200.0, problem="its node was lost")
    found = SharedQueue(4, (well, failed)).metrics()
    assert found | {"cpu_utilisation": 0.0} == SharedQueue(4, (well,)).metrics() | {
        "cpu_utilisation": 0.0, "makespan_h": 200 / 3600,
    }  # fmt: skip
    assert found["cpu_utilisation"] == pytest.approx(16.0 / (4 * 200)), "what it has used was not idle"
    assert SharedQueue(4, (failed,)).metrics() == {}


def test_a_queue_that_took_no_time():
    """The only node was lost before anything had run."""
    lost = job_run("a", 0.0, 0.0, problem="its node was lost")
    assert SharedQueue(4, (lost,)).metrics() == {} and SharedQueue(4, (lost,)).to_json()["jobs"][0]["slowdown"] is None
    found = SharedQueue(4, (job_run("a", 0.0, 0.0, alone_s=0.0),)).metrics()
    assert math.isnan(found["cpu_utilisation"]) and math.isnan(found["mean_slowdown"]) and found["makespan_h"] == 0


def test_a_queue_of_which_nothing_has_ended():
    found = SharedQueue(8, ())
    assert math.isnan(found.makespan_s)
    assert found.metrics() == {}
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == {
        "cores": 8, "metrics": {}, "promises": {"hosts": 0, "broken": [], "estimated": [], "unknown": []},
        "jobs": [], "decisions": [],
    }  # fmt: skip


CORE_COUNTS = st.integers(1, 128)
JOBS = st.lists(st.tuples(st.floats(0.1, 128), st.floats(0.05, 0.95)), min_size=1, max_size=5)


@given(CORE_COUNTS, st.floats(0.05, 0.95), st.floats(0.1, 128), st.floats(0.1, 128))
def test_two_jobs_get_what_the_closed_form_says(cores, share, host, guest):
    host = min(host, cores)
    got = weighted(cores, [host, guest], [1 - share, share])
    expected = min(host, max((1 - share) * cores, cores - guest))
    assert got == pytest.approx([expected, min(guest, cores - expected)])


@given(CORE_COUNTS, JOBS)
def test_weights_waste_nothing_and_keep_promises(cores, jobs):
    demands, shares = zip(*jobs, strict=True)
    got = weighted(cores, demands, shares)
    assert sum(got) == pytest.approx(min(cores, sum(demands)))
    for each, demand, share in zip(got, demands, shares, strict=True):
        assert min(demand, share / sum(shares) * cores) - 1e-9 <= each <= demand + 1e-9


@given(CORE_COUNTS, JOBS)
def test_quotas_never_give_more_than_weights_would_promise(cores, jobs):
    demands, shares = zip(*jobs, strict=True)
    for got, demand, share in zip(capped(cores, demands, shares), demands, shares, strict=True):
        assert got == min(demand, share * cores)


def test_the_factor_counts_heads_and_memory():
    assert PAPER_LIKE.factor(1, 0.9) == 1
    assert PAPER_LIKE.factor(2, 1.0) == pytest.approx(0.97)
    assert PAPER_LIKE.factor(3, 1.01) == pytest.approx(0.97**2 * 0.4)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidInput, match="tax is 0"):
        Contention(tax=0)
    with pytest.raises(UnknownName, match="paper-like"):
        named("paperlike")


SPEC = "asax:gamma=0.5"


@pytest.fixture
def store(tmp_path):
    store = LearnedStore(tmp_path / "learned.db")
    yield store
    store.close()


def remembered(store, run="first", seed=0):
    return Remembered(SHARING_RULES.create(SPEC, seed=seed), store, SPEC, run)


def hosts_of(rule, seeds=range(20)):
    """Jobs that were given a guest, after these views."""
    for seed in seeds:
        rule.decide(sharing_view(seed))
    return list(rule.state()["pending"])


def shared(state):
    return {name: value for name, value in state.items() if name not in ("pending", "random")}


def test_the_next_run_knows_what_one_has_learned(store):
    first = remembered(store)
    for number, host in enumerate(hosts_of(first)):
        first.learn(shared_run(host, number))
    first.close()
    second = remembered(store, "second", seed=1)
    assert shared(second.state()) == json.loads(json.dumps(shared(first.state())))
    assert second.state()["pending"] == {}


def test_runs_at_the_same_time_teach_one_another(store):
    both = [remembered(store, "a"), remembered(store, "b", seed=1)]
    for each in both:
        each.hosts = hosts_of(each)
    for each in both:
        for number, host in enumerate(each.hosts[:3]):
            each.learn(shared_run(host, number))
    alone = SHARING_RULES.create(SPEC)
    hosts_of(alone)
    for number, host in enumerate(both[0].hosts[:3]):
        alone.learn(shared_run(host, number))
    assert shared(both[1].state()) != shared(alone.state())  # it knows more than one run alone
    assert shared(store.get(f"sharing {SPEC}")).items() >= {"experts": both[1].state()["experts"]}.items()
    assert set(store.get(f"sharing {SPEC}")["runs"]) == {"a", "b"}


def test_a_run_that_was_killed_goes_on_where_it_stopped(store):
    killed = remembered(store)
    hosts = hosts_of(killed)
    assert hosts
    again = remembered(store, seed=5)
    assert again.state() == json.loads(json.dumps(killed.state()))
    again.learn(shared_run(hosts[0], 1))
    assert hosts[0] not in again.state()["pending"]


def test_what_belongs_to_a_run_that_failed_is_kept_for_when_it_goes_on(store):
    first = remembered(store)
    hosts = hosts_of(first)
    with pytest.raises(RuntimeError), first:
        raise RuntimeError
    assert list(remembered(store).state()["pending"]) == hosts != []


def test_a_state_is_taken_over(store):
    first = remembered(store)
    hosts_of(first)
    second = remembered(store, "second", seed=1)
    second.restore(first.state())
    assert second.state() == first.state()


def test_a_job_teaches_once(store):
    rule = remembered(store)
    host = hosts_of(rule)[0]
    rule.learn(shared_run(host, 1))
    before = store.get(f"sharing {SPEC}")
    rule.learn(shared_run(host, 1))
    assert store.get(f"sharing {SPEC}") == before


def test_state_of_a_run_is_dropped_at_its_end(store):
    rule = remembered(store)
    host = hosts_of(rule)[0]
    rule.learn(shared_run(host, 1))
    rule.close()
    assert store.get(f"sharing {SPEC}")["runs"] == {}
