import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput, Starved, UnknownName
from coscheduler.drive import drive
from coscheduler.history import SharedQueue
from coscheduler.nouns import Evict, SetShare, StartGuest, WaitingJob, first_fit
from coscheduler.registry import SHARING_RULES
from coscheduler.workload import PAPER_LIKE, Contention, Load, LoadPhase, capped, named, paper_queue, weighted
from coscheduler.world import SimulatedWorld


def load(name, cores, phases, *, memory=0.1, submit=0.0, walltime=1e4):
    parts = tuple(LoadPhase(time_s, demand, demand * cores > 1) for time_s, demand in phases)
    return Load(WaitingJob(name, name, cores, walltime, submit), parts, memory)


class Script:
    """Decisions at given looks; then first fit."""

    def __init__(self, *steps):
        self.steps, self.views = list(steps), []

    def decide(self, view):
        self.views.append(view)
        return self.steps.pop(0) if self.steps else [Start(job.name) for job in first_fit(view.queue, view.free)]

    def learn(self, run):
        pass


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


def test_memory_that_does_not_suffice_slows_everybody_until_the_guest_is_evicted():
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


def test_monitoring_tells_what_there_is():
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


def test_a_rule_that_starts_nobody_is_told():
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


def test_a_queue_of_which_nothing_has_ended():
    found = SharedQueue(8, ())
    assert math.isnan(found.makespan_s)
    assert found.metrics() == {}
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == {
        "cores": 8, "metrics": {}, "jobs": [], "decisions": [],
    }  # fmt: skip


CORES = st.integers(1, 128)
JOBS = st.lists(st.tuples(st.floats(0.1, 128), st.floats(0.05, 0.95)), min_size=1, max_size=5)


@given(CORES, st.floats(0.05, 0.95), st.floats(0.1, 128), st.floats(0.1, 128))
def test_two_jobs_get_what_the_closed_form_says(cores, share, host, guest):
    host = min(host, cores)
    got = weighted(cores, [host, guest], [1 - share, share])
    expected = min(host, max((1 - share) * cores, cores - guest))
    assert got == pytest.approx([expected, min(guest, cores - expected)])


@given(CORES, JOBS)
def test_weights_waste_nothing_and_keep_promises(cores, jobs):
    demands, shares = zip(*jobs, strict=True)
    got = weighted(cores, demands, shares)
    assert sum(got) == pytest.approx(min(cores, sum(demands)))
    for each, demand, share in zip(got, demands, shares, strict=True):
        assert min(demand, share / sum(shares) * cores) - 1e-9 <= each <= demand + 1e-9


@given(CORES, JOBS)
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
