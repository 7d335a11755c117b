"""Conformance suites for sharing rules and experts: what their Protocols promise beyond the signatures.

Run one in a test of your own::

    import pytest
    from coscheduler.testing import RULE_CHECKS

    @pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(lambda seed: MyRule(seed=seed))

Each check takes a function that makes a fresh rule from a seed, or a fresh expert (`EXPERT_CHECKS`), and raises
`AssertionError` saying which promise was broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from asa.core.decision import Start
from coscheduler.nouns import (
    ACTIONS,
    ALONE,
    FLOOR,
    Evict,
    Expert,
    JobStates,
    Keep,
    LookAgain,
    RunningJobs,
    SetShare,
    SharedRun,
    SharingDecision,
    SharingRule,
    SharingView,
    StartGuest,
    WaitingJob,
)

MakeRule = Callable[[int], SharingRule]
MakeExpert = Callable[[], Expert]

APPLICATIONS = ("alpha", "beta", "gamma")
_SLACK = 1e-9


def sharing_view(seed: int, *, cores: int = 64, hosts: int = 6, waiting: int = 8) -> SharingView:
    """A machine with hosts, some of them with a guest, and a queue; drawn at random."""
    rng = np.random.default_rng(seed)
    sizes, free = [], cores
    for _ in range(hosts):
        size = int(rng.choice([1, 2, 4, 8, 16, 32]))
        if size <= free:
            sizes.append(size)
            free -= size
    first = len(sizes)
    host = np.full(first, ALONE)
    for place in range(first):
        if rng.random() < 0.3:
            sizes.append(int(rng.integers(1, sizes[place] + 1)))
            host = np.append(host, place)
    n = len(sizes)
    guests = np.bincount(host[host != ALONE], minlength=n)
    running = RunningJobs(
        names=tuple(f"run{seed}-{number}" for number in range(n)),
        applications=APPLICATIONS,
        application=rng.integers(len(APPLICATIONS), size=n),
        cores=np.array(sizes, dtype=np.int64),
        walltime=rng.uniform(600, 7200, n),
        started=np.zeros(n),
        states=job_states(n, seed),
        host=host,
        share=np.where(host == ALONE, 1 - 0.1 * guests, 0.1),
        exclusive=(rng.random(n) < 0.2) & (host == ALONE) & (guests == 0),
        bound=np.where(np.arange(n) % 2, np.inf, 0.1),
        by_pressure=np.arange(n) % 4 == 0,
        done=np.where(np.arange(n) % 3, np.linspace(0, 1, n), np.nan),
        unhindered=np.where(np.arange(n)[:, None] % 2, np.nan, [250.0, 290.0]),
        instructions=np.where(np.arange(n) % 3, np.nan, 1000.0),
    )
    queue = tuple(
        WaitingJob(
            f"wait{seed}-{number}",
            str(rng.choice(APPLICATIONS)),
            int(rng.choice([1, 2, 4, 8, 16, 32, 64])),
            float(rng.uniform(600, 7200)),
            exclusive=bool(rng.random() < 0.2),
        )
        for number in range(waiting)
    )
    return SharingView(300.0, cores, free, queue, running)


def shared_run(name: str, seed: int = 0, *, known: bool = True) -> SharedRun:
    """A job that has ended; `known`: so is its run time alone."""
    rng = np.random.default_rng(seed)
    alone_s = float(rng.uniform(300, 3000))
    run_time_s = alone_s * float(rng.uniform(1, 2))
    parallel, cores = float(rng.random()), int(rng.choice([4, 8, 16]))
    cpu_s = alone_s * (parallel * cores + 1 - parallel)
    application, memory = str(rng.choice(APPLICATIONS)), float(rng.random())
    return SharedRun(
        name, application, cores, 1.3 * alone_s, run_time_s, alone_s if known else None, cpu_s, parallel, memory
    )


def check_decisions_are_legal(make: MakeRule) -> None:
    """Decisions can be done, in order: cores suffice, no share is below the floor, exclusive jobs are left alone."""
    rule = make(0)
    for seed in range(60):
        view = sharing_view(seed)
        _replay(view, rule.decide(view))
        rule.learn(shared_run(f"run{seed}-0", seed, known=seed % 3 > 0))


def check_idle_machine_is_used(make: MakeRule) -> None:
    """On an idle machine a job starts."""
    for seed in range(10):
        queue = sharing_view(seed).queue
        idle = SharingView(0.0, 64, 64, queue, sharing_view(seed, hosts=0).running)
        started = [each for each in make(0).decide(idle) if isinstance(each, Start)]
        assert started, f"none of the jobs of {[job.cores for job in queue]} cores was started on 64 idle ones"


def check_nothing_to_do(make: MakeRule) -> None:
    """A rule may be asked when no job waits, and when none runs."""
    for view in (sharing_view(0, waiting=0), sharing_view(0, hosts=0, waiting=0)):
        for decision in make(0).decide(view):
            assert not isinstance(decision, Start | StartGuest), f"{decision}: no job waits"


def check_view_is_not_changed(make: MakeRule) -> None:
    """A rule gets an immutable view, and leaves it so."""
    for seed in range(10):
        view = sharing_view(seed)
        before = _numbers(view)
        make(0).decide(view)
        assert _numbers(view) == before, "decide() has changed the view"


def check_seed(make: MakeRule) -> None:
    """Equal seeds, views and outcomes give equal decisions."""
    first, second = (_decisions(make(7)) for _ in range(2))
    assert first == second, "two rules with the same seed decided differently about the same views"


def check_state_round_trip(make: MakeRule) -> None:
    """A state survives JSON, is a copy, and a rule that restores it goes on exactly like its author."""
    author = make(0)
    _decisions(author)
    state = author.state()
    written = json.dumps(state, allow_nan=False)
    reader = make(1)
    reader.restore(json.loads(written))
    assert json.dumps(reader.state(), allow_nan=False) == written, "state() after restore() is not what was restored"
    expected = _decisions(author, first=100)
    assert json.dumps(state) == written, "a state changed after state() had returned it: hand out copies"
    reader.restore(json.loads(written))
    assert _decisions(reader, first=100) == expected, "decisions differ after restore()"


def check_shared_state(make: MakeRule) -> None:
    """What belongs to one run may be missing from a state: ``"pending"`` and ``"random"``."""
    author, reader = make(0), make(1)
    _decisions(author)
    reader.restore({name: value for name, value in author.state().items() if name not in ("pending", "random")})
    _decisions(reader, first=100)


def check_reasons_are_json(make: MakeRule) -> None:
    """Why a decision was made can be written down."""
    rule = make(0)
    for seed in range(30):
        for decision in rule.decide(sharing_view(seed)):
            json.dumps(dict(getattr(decision, "why", None) or {}), allow_nan=False)


RULE_CHECKS = (
    check_decisions_are_legal,
    check_idle_machine_is_used,
    check_nothing_to_do,
    check_view_is_not_changed,
    check_seed,
    check_state_round_trip,
    check_shared_state,
    check_reasons_are_json,
)


def check_sharing_rule(make: MakeRule) -> None:
    """All checks, one after the other."""
    for check in RULE_CHECKS:
        check(make)


def job_states(jobs: int, seed: int = 0) -> JobStates:
    """States of so many jobs, drawn at random; among them jobs at every bound, and one with nothing left to do."""
    rng = np.random.default_rng(seed)
    edges = np.array([0.0, 1.0, 0.5, 0.75])
    columns = [np.concatenate([edges, rng.random(jobs)])[:jobs] for _ in range(2)]
    parallel = rng.random(jobs) < 0.5
    elapsed = np.concatenate([[0.0, 0.25, 1.0, 1.7], rng.random(jobs)])[:jobs]
    happiness = np.concatenate([[0.0, 1.0, np.inf, 1.1], rng.uniform(0, 3, jobs)])[:jobs]
    return JobStates(columns[0], columns[1], parallel, elapsed, happiness)


def check_distributions(make: MakeExpert) -> None:
    """A vote is a distribution over the actions, whatever the state, also for no job at all."""
    for jobs in (0, 1, 200):
        votes = make().vote(job_states(jobs))
        assert votes.shape == (jobs, len(ACTIONS)), (
            f"vote() of {jobs} jobs has shape {votes.shape}: expected {(jobs, len(ACTIONS))}"
        )
        assert np.isfinite(votes).all() and (votes >= 0).all(), "a vote is negative or not finite: expected shares"
        sums = votes.sum(axis=1)
        assert np.allclose(sums, 1, atol=1e-6), f"votes sum to {sums[np.abs(sums - 1).argmax()]}: expected 1"


def check_each_job_by_itself(make: MakeExpert) -> None:
    """The vote on a job does not depend on which others are asked about with it, nor on their order."""
    expert, states = make(), job_states(50)
    together = expert.vote(states)
    for rows in ([7], [49, 3, 20], list(range(49, -1, -1))):
        some = expert.vote(states.take(np.array(rows)))
        assert np.allclose(some, together[rows]), f"jobs {rows} have other votes by themselves than among all"


def check_vote_is_pure(make: MakeExpert) -> None:
    """Asking changes nothing, and the same question has the same answer."""
    expert, states = make(), job_states(50)
    first = expert.vote(states).copy()
    expert.vote(job_states(80, seed=1))
    assert np.array_equal(expert.vote(states), first), "the same states were voted on differently the second time"


def check_learned_round_trip(make: MakeExpert) -> None:
    """An expert that learns (it has ``learn``, ``state`` and ``restore``) goes on, restored, like its author."""
    author: Any = make()
    if not hasattr(author, "learn"):
        return
    for seed in range(40):
        author.learn(job_states(3, seed), seed % len(ACTIONS), seed % 5 / 4)
    reader: Any = make()
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    for _ in range(2):
        votes = [expert.vote(job_states(100)) for expert in (author, reader)]
        assert np.array_equal(*votes), "votes differ after restore()"
        for expert in (author, reader):
            expert.learn(job_states(5, 99), 7, 1.0)


EXPERT_CHECKS = (check_distributions, check_each_job_by_itself, check_vote_is_pure, check_learned_round_trip)


def check_expert(make: MakeExpert) -> None:
    """All checks, one after the other."""
    for check in EXPERT_CHECKS:
        check(make)


def _decisions(rule: SharingRule, first: int = 0) -> list[SharingDecision]:
    """What a rule decides about twenty views, while jobs of those before end."""
    found: list[SharingDecision] = []
    for seed in range(first, first + 20):
        view = sharing_view(seed)
        found += rule.decide(view)
        for place, name in enumerate(view.running.names[:2]):
            rule.learn(shared_run(name, seed + place, known=seed % 4 > 0))
    return found


def _replay(view: SharingView, decisions: Sequence[SharingDecision]) -> None:
    """Do the decisions on paper, and see that each can be done."""
    running = view.running
    rows, jobs = {name: row for row, name in enumerate(running.names)}, {job.name: job for job in view.queue}
    guest = {name: float(running.share[row]) for name, row in rows.items() if running.host[row] != ALONE}
    free, own = view.free, {name: float(running.share[row]) for name, row in rows.items() if name not in guest}
    host_of = {name: running.names[int(running.host[rows[name]])] for name in guest}
    for decision in decisions:
        match decision:
            case Start(job=name):
                assert name in jobs, f"{decision}: no such job waits"
                free -= jobs.pop(str(name)).cores
                assert free >= 0, f"{decision}: there are not as many cores free"
            case StartGuest():
                assert decision.job in jobs, f"{decision}: no such job waits"
                assert decision.host in own, f"{decision}: the host must run, on cores of its own"
                job, row = jobs.pop(decision.job), rows[decision.host]
                assert not job.exclusive and not running.exclusive[row], f"{decision}: one of the two is exclusive"
                assert job.cores <= running.cores[row], f"{decision}: it needs more cores than its host has"
                own[decision.host] -= decision.share
                assert decision.share >= FLOOR - _SLACK, f"{decision}: a share of {FLOOR} at least expected"
                assert own[decision.host] >= FLOOR - _SLACK, f"{decision}: its host is left less than {FLOOR}"
            case SetShare():
                assert decision.guest in guest, f"{decision}: no such guest runs"
                own[host_of[decision.guest]] += guest[decision.guest] - decision.share
                guest[decision.guest] = decision.share
                assert not decision.share or decision.share >= FLOOR - _SLACK, f"{decision}: 0, or {FLOOR}, expected"
                assert own[host_of[decision.guest]] >= FLOOR - _SLACK, f"{decision}: its host is left too little"
            case Evict():
                assert decision.guest in guest, f"{decision}: no such guest runs"
                own[host_of[decision.guest]] += guest.pop(decision.guest)
            case Keep():
                assert decision.host in rows, f"{decision}: no such job runs"
            case LookAgain():
                assert decision.at > view.now, f"{decision}: a time after {view.now:g} expected"
            case _:
                raise AssertionError(f"{decision!r}: Start, StartGuest, SetShare, Evict, Keep or LookAgain expected")


def _numbers(value: Any) -> Any:
    """All that a view holds, as something that can be compared."""
    if is_dataclass(value):
        return [_numbers(getattr(value, each.name)) for each in fields(value)]
    return str(value.tolist()) if isinstance(value, np.ndarray) else value  # NaN is equal to NaN
