"""Sharing rules, experts, their mixture, and what they know of applications."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import InvalidInput, UnknownName
from coscheduler.algorithm import Mixture, Weights
from coscheduler.drive import drive
from coscheduler.ledger import Ledger
from coscheduler.nouns import (
    ACTIONS,
    FLOOR,
    Evict,
    JobStates,
    Keep,
    SetShare,
    SharedRun,
    StartGuest,
    WaitingJob,
    first_fit,
)
from coscheduler.profiles import ApplicationProfile, CoreUse, Profiles
from coscheduler.registry import EXPERTS, SHARING_RULES
from coscheduler.sharing.experts import Classifier, LearnedContention, MetricTree, cpu, elapsed, memory, stage
from coscheduler.sharing.scavenger import HOSTS_MOST, JobColumns, Residuals, guard, predict_pairs, roomiest
from coscheduler.testing import EXPERT_CHECKS, RULE_CHECKS, check_expert, check_sharing_rule, job_states
from coscheduler.workload import Load, phases
from coscheduler.world import SimulatedWorld

M = len(ACTIONS)


def state_columns(**columns):
    n = len(next(iter(columns.values())))
    default = {"cpu": 0.5, "memory": 0.5, "parallel": False, "elapsed": 0.5, "happiness": 2.0}
    return JobStates(**{name: np.array(columns.get(name, [value] * n)) for name, value in default.items()})


def peaks(expert, **columns):
    return [ACTIONS[action] for action in expert.vote(state_columns(**columns)).argmax(axis=1)]


def test_the_papers_trees():
    assert peaks(cpu(), cpu=[0.05, 0.3, 0.76, 0.99]) == [0.9, 0.7, 0.2, 0.0]
    assert peaks(memory(), memory=[0.2, 0.4, 0.41, 0.75, 0.76]) == [0.5, 0.5, 0.3, 0.3, 0.0]
    assert peaks(stage(), parallel=[False, True]) == [0.7, 0.2]
    assert peaks(elapsed(), elapsed=[0.1, 0.3, 0.6, 0.9]) == [0.2, 0.3, 0.4, 0.6]


@pytest.mark.parametrize("make", [cpu, memory, stage, elapsed])
def test_the_unhappy_give_nothing_and_those_near_one_half(make):
    tree = make()
    unhappy, near, happy = tree.vote(state_columns(happiness=[0.99, 1.0, 1.1])) @ np.array(ACTIONS)
    assert unhappy < 0.1
    assert unhappy < near < happy


def test_a_tree_survives_json():
    tree = cpu()
    again = MetricTree.of(json.loads(json.dumps(tree.table())))
    assert np.array_equal(again.vote(job_states(50)), tree.vote(job_states(50)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "mood"}, "'mood' is no metric"),
        ({"cuts": [0.5, 0.5]}, "increasing thresholds"),
        ({"cuts": [0.1, 0.2]}, "3 by 2 leaves expected"),
        ({"leaves": [[[0.5] * M] * 2] * 2}, "no distribution"),
        ({"leaves": [[[1.0]] * 2] * 2}, "voted with shape"),
    ],
)
def test_a_broken_tree_is_refused(change, message):
    table = {"metric": "cpu", "cuts": [0.5], "happy_cuts": [1.0], "leaves": [[[1 / M] * M] * 2] * 2}
    with pytest.raises(InvalidInput, match=message):
        MetricTree.of(table | change)


class FittedModel:
    """As scikit-learn's classifiers: knows actions 0 and 7 only."""

    classes_ = np.array([0, 7])

    def predict_proba(self, features):
        assert features.shape[1] == 5 and np.isfinite(features).all()
        return np.stack([features[:, 0], 1 - features[:, 0]], axis=1)


def test_any_classifier_is_an_expert():
    check_expert(lambda: Classifier(FittedModel()))
    assert peaks(Classifier(FittedModel()), cpu=[0.1, 0.9]) == [0.7, 0.0]


def test_classes_that_are_no_actions_are_refused():
    class Wrong(FittedModel):
        classes_ = np.array([0, 10])

    with pytest.raises(InvalidInput, match="numbers of actions"):
        Classifier(Wrong())


def test_a_scikit_learn_tree_is_an_expert():
    tree = pytest.importorskip("sklearn.tree")
    many = job_states(300)
    best = (many.cpu < 0.5) * 6
    model = tree.DecisionTreeClassifier(max_depth=2, random_state=0).fit(many.features(), best)
    check_expert(lambda: Classifier(model))
    assert peaks(Classifier(model), cpu=[0.1, 0.9]) == [0.6, 0.0]


def test_contention_is_learned_where_it_is_and_giving_less_never_looks_worse():
    expert = LearnedContention()
    assert peaks(expert, cpu=[0.1, 0.9]) == [0.9, 0.9]
    for _ in range(20):
        expert.learn(state_columns(cpu=[0.9]), 6, 0.8)
    busy, idle = peaks(expert, cpu=[0.9, 0.1])
    assert busy == 0.5
    assert idle == 0.9
    with pytest.raises(InvalidInput, match="shape"):
        expert.restore({"loss": [[0.0]], "count": [[0.0]]})


def ended_run(cores, run_time_s, parallel, cpu_s):
    return SharedRun("job", "app", cores, 1000.0, run_time_s, run_time_s, cpu_s, parallel, 0.1)


def test_a_profile_is_scaled_to_other_sizes():
    """A hundred seconds on one core, and two hundred core-seconds that may be shared out."""
    profiles = Profiles()
    profiles.learn(ended_run(4, 150.0, 50 / 150, 300.0))
    assert profiles["app"].use(4) == (pytest.approx(1 / 3), pytest.approx(1.0))
    for cores in (2, 8, 16):
        assert profiles["app"].use(cores).parallel == pytest.approx(200 / cores / (100 + 200 / cores))
    profiles.learn(ended_run(16, 112.5, 0.2, 300.0))
    assert profiles["app"].use(16).parallel == pytest.approx(0.2), "it was seen"
    assert profiles["app"].use(12).parallel == pytest.approx(0.2 * 16 / 12 / (0.2 * 16 / 12 + 0.8)), "the nearest"


def test_jobs_of_one_core_tell_nothing_about_larger_ones():
    profiles = Profiles()
    profiles.learn(ended_run(1, 300.0, 1.0, 300.0))
    assert profiles["app"].use(8) == CoreUse()
    assert profiles["app"].use(1) == (1.0, 1.0)


def test_an_unknown_application_has_a_middling_profile():
    assert Profiles()["new"].use(4) == CoreUse()
    assert Profiles()["new"].use(1) == (1.0, 1.0)


def test_memory_is_the_most_and_the_state_is_restored():
    profiles = Profiles()
    profiles.learn(ended_run(4, 150.0, 0.5, 300.0))
    profiles.learn(SharedRun("job", "app", 4, 1000.0, 200.0, None, 300.0, 0.5, 0.7))
    other = Profiles()
    other.restore(profiles.state())
    assert other.state() == profiles.state()
    assert isinstance(other["app"], ApplicationProfile) and other.arrays([("app", 4)]).shape == (3, 1)


TAX = 0.97


def crowd(*jobs):
    """Columns of jobs as (cores, parallel share, run time alone)."""
    cores, parallel, alone_s = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    return JobColumns(cores, 0.1 * cores, parallel, cores.copy(), alone_s, alone_s.copy(), 10 * alone_s)


def mixed(name, cores, parallel, alone_s, rng):
    """Many short phases in random order: what each does when is independent of the other."""
    parts = 60
    single = phases(alone_s / parts, parallel + (1 - parallel) / cores, cores)
    found = [phase for _ in range(parts) for phase in rng.permutation(np.array(single, dtype=object), axis=0)]
    shuffled = [type(single[0])(float(time_s), float(demand), bool(busy)) for time_s, demand, busy, *_ in found]
    return Load(WaitingJob(name, name, cores, 1e6), tuple(shuffled), 0.1)


@pytest.mark.parametrize(("host", "guest"), [((64, 0.25), (64, 0.3)), ((64, 0.3), (16, 0.6)), ((32, 0.05), (32, 0.8))])
def test_harm_and_work_saved_are_as_predicted(host, guest):
    rng = np.random.default_rng(0)
    jobs = crowd((*guest, 3000.0))
    pairs = predict_pairs(jobs, crowd((*host, 3000.0)), np.array([0]), np.array([0.9]), TAX)
    world = SimulatedWorld([mixed("host", *host, 3000.0, rng), mixed("guest", *guest, 3000.0, rng)], host[0])
    world.advance()
    world.apply([Start("host"), StartGuest("guest", "host", 0.1)])
    drive(world, SHARING_RULES.create("space"))
    found = {job.name: job for job in world.result().jobs}
    harm = sum(job.slowdown - 1 for job in found.values())
    assert pairs.harm[0, 0] == pytest.approx(harm, rel=0.25)
    assert pairs.own[0, 0] == pytest.approx(found["guest"].slowdown - 1, rel=0.25)
    assert 0 < pairs.saved[0, 0] <= guest[0] * 3000.0


def test_the_law_is_that_of_the_ledger():
    hosts = crowd((8, 0.1, 1000.0), (16, 0.1, 1000.0))
    pairs = predict_pairs(crowd((16, 0.1, 100.0)), hosts, np.arange(2), np.array([0.9, 0.9]), TAX)
    assert pairs.legal.tolist() == [[False, True]]


def test_more_company_does_more_harm():
    hosts, guest = crowd((64, 0.3, 3000.0)), crowd((16, 0.5, 3000.0))
    alone = predict_pairs(guest, hosts, np.array([0]), np.array([0.9]), TAX)
    both = predict_pairs(
        guest, crowd((64, 0.3, 3000.0), (16, 0.5, 3000.0)), np.array([0, 0]), np.array([0.8, 0.1]), TAX
    )
    assert both.harm[0, 0] > alone.harm[0, 0]
    assert both.rate[0, 0] < alone.rate[0, 0]


def test_a_guest_with_a_dwindling_host_is_harmed_less():
    guest, place, share = crowd((32, 0.8, 3000.0)), np.array([0]), np.array([0.9])
    harms = [
        predict_pairs(guest, crowd((64, 0.5, left_s)), place, share, TAX).own[0, 0] for left_s in (50.0, 500.0, 5000.0)
    ]
    assert harms == sorted(harms) and harms[0] < harms[-1] / 5


class Fixed:
    """An expert with the same vote on every job."""

    def __init__(self, votes):
        self.votes = np.asarray(votes, dtype=float) / np.sum(votes)

    def vote(self, states):
        return np.tile(self.votes, (len(states), 1))


def always(action):
    return Fixed(np.eye(M)[action])


def one(mixture, loss, job="job"):
    """A decision about one job and its loss; what was chosen."""
    states = job_states(1)
    choice = mixture.choose(("app",), np.zeros(1, dtype=int), states)
    mixture.hold([job], ["app"], choice, np.array([0]), states)
    mixture.settle(job, loss(int(choice.actions[0])))
    return choice


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.floats(0.05, 2), st.integers(0, 2**32 - 1), st.booleans())
def test_theorem_1_holds_for_realised_actions_and_a_constant_rate(n, gamma, seed, adversarial):
    """E = sum alpha_i p_i(x) l(a) - min_i sum p_i(x) l(a), over T closed rounds, is at most ln n / gamma + T gamma / 2.

    A risk is at most 2 when its round ends: it was at most 1 before the last case.
    """
    rng = np.random.default_rng(seed)
    experts = {f"e{i}": Fixed(rng.dirichlet(np.full(M, 0.3))) for i in range(n)}
    mixture = Mixture(experts, gamma=gamma, seed=seed)
    losses = rng.random(M)
    mixed, single, open_mixed, open_single = 0.0, np.zeros(n), 0.0, np.zeros(n)
    for _ in range(120):
        weights = mixture.weights("app")
        alpha, rounds = weights.shares, weights.rounds
        favourite = list(experts.values())[int(alpha.argmax())].votes

        def loss(action, favourite=favourite):
            return float(favourite[action] >= 0.1) if adversarial else float(losses[action])

        choice = one(mixture, loss)
        action = int(choice.actions[0])
        risk = choice.votes[:, 0, action] * loss(action)
        open_mixed, open_single = open_mixed + alpha @ risk, open_single + risk
        assert open_single.max() <= 2
        if mixture.weights("app").rounds > rounds:
            mixed, single = mixed + open_mixed, single + open_single
            open_mixed, open_single = 0.0, np.zeros(n)
    closed = mixture.weights("app").rounds
    assert mixed - single.min() <= (np.log(n) + closed * gamma**2 / 2) / gamma + 1e-9


def regrets(weights, risks):
    """The excess risk, and that weighted by the rates (the paper's inequality 11); the bound of the latter."""
    n = len(weights.risk)
    mixed, single, weighted_mixed, weighted_single, squares = 0.0, np.zeros(n), 0.0, np.zeros(n), 0.0
    for risk in risks:
        alpha, rate, before = weights.shares, weights.rate, weights.rounds
        mixed, single = mixed + alpha @ risk, single + risk
        weighted_mixed, weighted_single = weighted_mixed + rate * alpha @ risk, weighted_single + rate * risk
        weights.charge(risk)
        squares += rate**2 if weights.rounds > before else 0.0
    assert not weights.risk.any(), "whole rounds only"
    return mixed - single.min(), weighted_mixed - weighted_single.min(), np.log(n) + squares / 2


def test_rounds_are_counted_from_one_and_slow_the_learning():
    weights, rates = Weights(2, 2.0, 0.5), []
    for _ in range(3):
        rates.append(weights.rate)
        assert not weights.charge(np.array([1.0, 0.0])) and weights.charge(np.array([0.1, 0.0]))
    assert rates == pytest.approx([2.0, 2.0 / 2**0.5, 2.0 / 3**0.5])


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 2), st.floats(0.1, 1), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_for_other_rates_the_weighted_sum_is_bounded(gamma, decay, n, seed):
    rng = np.random.default_rng(seed)
    worst = rng.integers(n, size=200)
    risks = [risk for each in worst for risk in (np.eye(n)[each], np.eye(n)[each])]  # 1 + 1 ends a round
    _, weighted, bound = regrets(Weights(n, gamma, decay), risks)
    assert weighted <= bound + 1e-9


def test_for_falling_rates_theorem_1_does_not_hold():
    """The best expert changes: what was learned with high rates is unlearned with low ones, too slowly."""
    rounds = 1600
    losers = [1] * (rounds // 4) + [0] * (3 * rounds // 4)
    risks = [np.eye(2)[each] for each in losers for _ in range(2)]
    excess, _, bound = regrets(Weights(2, 1.0, 0.5), risks)
    assert excess > 5 * bound / (rounds**-0.5)


def test_a_round_ends_when_a_risk_has_passed_one():
    mixture = Mixture({"shy": always(0), "bold": always(9)}, seed=1)
    weights = []
    while mixture.weights("app").rounds == 0:
        choice = one(mixture, lambda action: 0.6 * (action == 9))
        weights.append(choice.weights[0].tolist())
    assert weights == [[0.5, 0.5]] * len(weights)
    assert mixture.weights("app").shares[1] == pytest.approx(1 / (1 + np.exp(1.2)))


def test_a_loss_comes_late_and_teaches_once():
    mixture = Mixture({"shy": always(0), "bold": always(9)})
    states = job_states(3)
    choice = mixture.choose(("a", "b"), np.array([0, 1, 0]), states)
    mixture.hold(["host"] * 3, ["a"] * 3, choice, np.arange(3), states)
    assert not mixture.weights("a").risk.any()
    assert mixture.settle("nobody", 1.0) == 0
    assert mixture.settle("host", 0.1) == 3
    assert mixture.settle("host", 0.1) == 0
    assert mixture.weights("a").risk.sum() == pytest.approx(0.3)


def test_an_unknown_loss_teaches_nothing():
    mixture = Mixture({"bold": always(9)})
    states = job_states(1)
    choice = mixture.choose(("a",), np.zeros(1, dtype=int), states)
    mixture.hold(["host"], ["a"], choice, np.array([0]), states)
    assert mixture.settle("host", None) == 0
    assert mixture.state()["pending"] == {}
    with pytest.raises(InvalidInput, match=r"loss is 1\.5"):
        mixture.settle("host", 1.5)


def test_a_new_application_begins_with_the_common_weights():
    mixture = Mixture({"shy": always(0), "bold": always(9)})
    for _ in range(30):
        one(mixture, lambda action: float(action == 9))
    learned = mixture.weights("app").shares
    assert learned[0] > 0.9
    assert mixture.weights("never seen").shares == pytest.approx(learned)


def test_importance_weights_divide_by_the_probability_and_are_clipped():
    plain, weighted = (
        Mixture({"even": Fixed(np.ones(M)), "bold": always(9)}, importance=importance, clip=3.0)
        for importance in (False, True)
    )
    for mixture in (plain, weighted):
        mixture.stream = Always(0.01)  # the first action, which only the even expert may take: probability 0.05
        assert one(mixture, lambda _: 0.2).actions[0] == 0
    assert plain.weights("app").risk.tolist() == pytest.approx([0.02, 0])
    assert weighted.weights("app").risk.tolist() == pytest.approx([0.06, 0])


class Always:
    def __init__(self, value):
        self.value = value

    def draw(self, count):
        return [self.value] * count


def test_actions_are_drawn_from_the_mixture():
    rng = np.random.default_rng(3)
    mixture = Mixture({f"e{i}": Fixed(rng.dirichlet(np.ones(M))) for i in range(3)}, seed=5)
    jobs = 20_000
    choice = mixture.choose(("a",), np.zeros(jobs, dtype=int), job_states(jobs))
    shares = np.bincount(choice.actions, minlength=M) / jobs
    assert shares == pytest.approx(choice.mixture[0], abs=4 * np.sqrt(0.25 / jobs))


def test_a_restored_mixture_goes_on_like_its_author():
    def made(seed):
        return Mixture({name: EXPERTS.create(name) for name in ("cpu", "memory", "contention")}, seed=seed)

    author = made(1)
    states = job_states(20)
    choice = author.choose(("a", "b"), np.arange(20) % 2, states)
    author.hold([f"job{row}" for row in range(20)], ["a", "b"] * 10, choice, np.arange(20), states)
    for row in range(10):
        author.settle(f"job{row}", 0.9)
    reader = made(2)
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    for mixture in (author, reader):
        for row in range(10, 20):
            mixture.settle(f"job{row}", 0.7)
    assert reader.state() == author.state()
    pair = [mixture.choose(("a",), np.zeros(20, dtype=int), states) for mixture in (author, reader)]
    assert pair[0].actions.tolist() == pair[1].actions.tolist()


def test_a_state_of_other_experts_is_refused():
    with pytest.raises(InvalidInput, match="expected those of"):
        Mixture({"a": always(0)}).restore(Mixture({"b": always(0)}).state())
    with pytest.raises(InvalidInput, match="no experts"):
        Mixture({})


def test_a_vote_that_is_no_distribution_is_found():
    class Wrong:
        def vote(self, states):
            return np.zeros((len(states), M))

    with pytest.raises(InvalidInput, match="'wrong' voted with what is no distribution"):
        Mixture({"wrong": Wrong()}).choose(("a",), np.zeros(1, dtype=int), job_states(1))


def view(running, waiting=(), *, cores=64, now=600.0, guests=(), **columns):
    """Hosts and waiting jobs as (name, cores, application), and guests as (name, host); all with 2 h of wall time."""
    ledger = Ledger(cores)
    for name, size, application in [*running, *waiting]:
        ledger.submit(WaitingJob(name, application, size, 7200.0, exclusive=name.startswith("exclusive")))
    for name, _, _ in running:
        host = dict(guests).get(name)
        ledger.apply(Start(name) if host is None else StartGuest(name, host, 0.1), 0.0)
    n = len(running)
    default = {"cpu": 0.3, "memory": 0.1, "parallel": False, "elapsed": now / 7200, "happiness": 2.0}
    states = JobStates(**{name: np.array(columns.get(name, [value] * n)) for name, value in default.items()})
    return ledger.view(now, states)


def taught(spec, **profiles):
    """A rule that knows applications: parallel share and memory of each."""
    rule = SHARING_RULES.create(spec)
    for name, (parallel, used) in profiles.items():
        for cores in (8, 16, 32, 64):
            cpu_s = 3600 * (parallel * cores + 1 - parallel)
            rule.learn(SharedRun(f"{name}-{cores}", name, cores, 7200.0, 3600.0, 3600.0, cpu_s, parallel, used))
    return rule


KNOWN = {"idle": (0.1, 0.1), "busy": (1.0, 0.4), "hungry": (0.5, 0.95)}


def guests(decisions):
    return [(each.job, each.host) for each in decisions if isinstance(each, StartGuest)]


def test_space_keeps_a_place_for_large_jobs_and_first_fit_does_not():
    seen = view([("a", 40, "x")], [("large", 64, "x"), ("small", 8, "x")], now=7100.0)
    assert SHARING_RULES.create("space").decide(seen) == []
    assert SHARING_RULES.create("space:queue=first-fit").decide(seen) == [Start("small")]


def test_static_fills_hosts_in_order():
    seen = view([("a", 8, "x"), ("b", 32, "x")], [("large", 32, "x"), ("small", 8, "x"), ("late", 8, "x")], cores=40)
    decided = SHARING_RULES.create("static:share=0.4,hard=true").decide(seen)
    assert decided == [StartGuest("large", "b", 0.4, True), StartGuest("small", "a", 0.4, True)]


def test_exclusive_jobs_are_left_alone_by_all_rules():
    running = [("exclusive host", 32, "idle"), ("host", 32, "idle")]
    seen = view(running, [("exclusive guest", 8, "idle"), ("guest", 8, "idle")])
    for spec in SHARING_RULES:
        assert set(guests(taught(spec, **KNOWN).decide(seen))) <= {("guest", "host")}


def test_asax_records_why_and_waits_before_it_asks_again():
    rule = SHARING_RULES.create("asax:seed=3")
    seen = view([("host", 64, "x")], [("guest", 8, "x")], happiness=[0.5])
    (kept,) = rule.decide(seen)
    assert isinstance(kept, Keep)
    assert set(kept.why) == {"state", "votes", "weights", "mixture", "action"}
    assert set(kept.why["votes"]) == {"cpu", "memory", "stage", "elapsed"}
    assert kept.why["action"] == 0
    assert rule.decide(seen) == []
    later = view([("host", 64, "x")], [("guest", 8, "x")], now=901.0, happiness=[2.0])
    assert guests(rule.decide(later)) == [("guest", "host")]


def test_asax_learns_from_hosts():
    rule = SHARING_RULES.create("asax")
    seen = view([("host", 64, "x")], [("guest", 8, "x")], cpu=[0.05])
    (guest,) = rule.decide(seen)
    assert guest.share > 0
    rule.learn(SharedRun("guest", "x", 8, 7200.0, 7200.0, 3600.0, 1.0, 0.5, 0.1))
    assert rule.state()["pending"]
    rule.learn(SharedRun("host", "x", 64, 7200.0, 7200.0, 3600.0, 1.0, 0.5, 0.1))
    state = rule.state()
    assert state["pending"] == {}
    assert max(state["applications"]["x"]["risk"]) > 0


def test_scavenger_prefers_idle_hosts_and_memory_that_suffices():
    running = [("busy", 32, "busy"), ("idle", 32, "idle")]
    rule = taught("scavenger", **KNOWN)
    assert guests(rule.decide(view(running, [("guest", 16, "busy")]))) == [("guest", "idle")]
    full = view(running, [("guest", 16, "busy")], memory=[0.4, 0.9])
    assert guests(taught("scavenger", **KNOWN).decide(full)) == []


def test_scavenger_looks_at_the_roomiest_of_many_hosts_only():
    hosts = [(f"h{place}", 1, "busy") for place in range(HOSTS_MOST + 50)]
    hosts[77] = ("roomy", 8, "idle")
    seen = view([*hosts, ("guest there", 1, "idle")], guests=[("guest there", "roomy")], cores=HOSTS_MOST + 57)
    rows = np.arange(len(hosts))
    rule = taught("scavenger:guests=2", **KNOWN)
    chosen = roomiest(seen, rows, rule.profiles)
    assert len(chosen) == HOSTS_MOST and 77 in chosen and (np.diff(chosen) > 0).all()
    assert roomiest(seen, rows[:HOSTS_MOST], rule.profiles).tolist() == rows[:HOSTS_MOST].tolist()


def test_scavenger_admits_more_the_more_it_is_worth():
    seen = view([("host", 64, "busy")], [("guest", 8, "idle")])
    assert guests(taught("scavenger:worth=0.001", **KNOWN).decide(seen)) == []
    assert guests(taught("scavenger:worth=1000,min_rate=0.01", **KNOWN).decide(seen)) == [("guest", "host")]


def test_scavenger_never_lets_a_job_run_late_knowingly():
    slow = view([("host", 64, "idle")], [("guest", 64, "busy")])
    assert guests(taught("scavenger:worth=1000", **KNOWN).decide(slow)) == [("guest", "host")]
    rule = taught("scavenger:worth=1000", **KNOWN)
    tight = SharedRun("x", "busy", 64, 3700.0, 3600.0, 3600.0, 230_400.0, 1.0, 0.4)
    for _ in range(10):
        rule.learn(tight)
    waiting = WaitingJob("guest", "busy", 64, 3700.0)
    seen = view([("host", 64, "idle")])
    assert guests(rule.decide(type(seen)(seen.now, 64, 0, (waiting,), seen.running))) == []


def test_scavenger_takes_as_many_guests_as_its_option_says():
    running = [("host", 64, "idle"), ("there", 8, "idle")]
    seen = view(running, [("guest", 8, "idle")], guests=[("there", "host")])
    assert guests(taught("scavenger", **KNOWN).decide(seen)) == []
    assert guests(taught("scavenger:guests=2", **KNOWN).decide(seen)) == [("guest", "host")]


def test_scavenger_starts_the_longest_first_by_default():
    rule = taught("scavenger")
    for name, alone_s in (("short", 600.0), ("long", 3600.0)):
        rule.learn(SharedRun(name, name, 32, 7200.0, alone_s, alone_s, alone_s, 0.0, 0.1))
    seen = view([], [("a", 32, "short"), ("b", 32, "long"), ("c", 32, "long")])
    assert rule.decide(seen)[:2] == [Start("b"), Start("c")]
    assert SHARING_RULES.create("scavenger:order=queue").decide(seen)[:2] == [Start("a"), Start("b")]


def test_a_pair_that_did_badly_is_avoided_and_forgiven():
    rule = taught("scavenger:worth=0.5", **KNOWN)
    running, waiting = [("host", 64, "idle")], [("guest", 32, "busy")]
    for _ in range(12):
        (guest,) = rule.decide(view(running, waiting))
        foreseen = rule.state()["pending"]["foreseen"]["guest"]
        bad = 3600 * (1 + 4 * foreseen)
        rule.learn(SharedRun("guest", "busy", 32, 7200.0, bad, 3600.0, 115_200.0, 1.0, 0.4))
        rule.learn(SharedRun("host", "idle", 64, 7200.0, 3600.0, None, 1.0, 0.1, 0.1))
        if not rule.decide(view(running, waiting)):
            break
    else:
        pytest.fail("it was admitted again and again")
    assert guest.why["harm"] > 0
    for _ in range(300):
        if guests(rule.decide(view(running, waiting))):
            return
    pytest.fail("it was never tried again")


def test_guard_protects_hosts():
    running = [("host", 64, "x"), ("first", 8, "x"), ("second", 8, "x")]
    there = [("first", "host"), ("second", "host")]

    def decided(**columns):
        return guard(view(running, guests=there, **columns), 0.1)

    assert decided() == []
    assert decided(memory=[0.9, 0.5, 0.5]) == [Evict("second")]
    assert decided(happiness=[0.95, 2.0, 2.0]) == [SetShare("first", FLOOR), SetShare("second", FLOOR)]
    assert decided(happiness=[0.85, 2.0, 2.0]) == [Evict("second")]
    assert guard(view(running, guests=there), 0.2) == [SetShare("first", 0.2), SetShare("second", 0.2)]


def test_residuals_stay_within_bounds():
    residuals = Residuals()
    for _ in range(100):
        residuals.learn(("a", "b"), 0.1, 100.0)
        residuals.learn(("b", "a"), 0.1, 0.0)
    assert residuals["a", "b"] <= 4
    assert residuals["b", "a"] >= 0.25


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("static:share=0.99", InvalidInput, "share is 0.99"),
        ("asax:loss=lateness", UnknownName, "unknown loss"),
        ("asax:experts=cpu+mood", UnknownName, "unknown expert 'mood'"),
        ("scavenger:share=0.5,guests=2", InvalidInput, "leave their host less"),
        ("scavenger:order=shortest", UnknownName, "unknown order"),
        ("scavenger:wort=2", UnknownName, "did you mean 'worth'"),
        ("scavenger:worth=0", InvalidInput, "worth is 0"),
        ("scavenger:min_rate=0", InvalidInput, "min_rate is 0.*: expected a number above 0, at most 1"),
        ("scavenger:tax=1.5", InvalidInput, "tax is 1.5: expected a number above 0, at most 1"),
        ("space:queue=eazy", UnknownName, "did you mean 'easy'"),
    ],
)
def test_options_that_make_no_sense_are_refused(spec, error, message):
    with pytest.raises(error, match=message):
        SHARING_RULES.create(spec)


def test_a_host_that_does_not_tell_its_pace_has_guests_all_the_same():
    """It counts as just on time; that it has no time to lose must not follow from that."""
    waits = [("guest", 16, "idle")]
    silent = view([("host", 32, "idle")], waits, cores=32, happiness=[1.0])
    assert guests(taught("scavenger", **KNOWN).decide(silent)) == [("guest", "host")]
    unknown = view([("host", 32, "new")], [("guest", 16, "other")], cores=32, happiness=[1.0], cpu=[0.1])
    assert guests(SHARING_RULES.create("scavenger").decide(unknown)) == [("guest", "host")]
    late = view([("host", 32, "idle")], waits, cores=32, happiness=[0.999])
    assert guests(taught("scavenger", **KNOWN).decide(late)) == []


RULES = (
    *SHARING_RULES,
    "space:queue=first-fit",
    "static:hard=true,share=0.9",
    "asax:importance=true,loss=walltime,decay=0.5",
    "asax:experts=cpu+contention",
    "scavenger:guests=3,order=queue",
    "scavenger:worth=100,min_rate=0.01,queue=easy",
)


@pytest.mark.parametrize("check", EXPERT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXPERTS.names())
def test_experts(name, check):
    check(lambda: EXPERTS.create(name))


@pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("spec", RULES)
def test_sharing_rules(spec, check):
    check(lambda seed: SHARING_RULES.create(spec, seed=seed))


class Even:
    def vote(self, states):
        return np.full((len(states), len(ACTIONS)), 1 / len(ACTIONS))


class TooMuch(Even):
    def vote(self, states):
        return 1.1 * super().vote(states)


class Herd(Even):
    def vote(self, states):
        votes = np.full((len(states), len(ACTIONS)), 0.05)
        votes[:, len(states) % len(ACTIONS)] += 0.5
        return votes


class Moody(Even):
    calls = 0

    def vote(self, states):
        self.calls += 1
        return np.roll(np.eye(len(ACTIONS)), self.calls, axis=0)[np.zeros(len(states), dtype=int)]


class Forgetful(Even):
    def __init__(self):
        self.action = 0

    def vote(self, states):
        return np.eye(len(ACTIONS))[np.full(len(states), self.action)]

    def learn(self, states, action, loss):
        self.action = action

    def state(self):
        return {}

    def restore(self, state):
        pass


def test_a_good_expert_passes():
    check_expert(Even)


def test_every_check_is_needed():
    """Each check finds one that passes the checks before it."""
    for check, broken in zip(EXPERT_CHECKS, (TooMuch, Herd, Moody, Forgetful), strict=True):
        with pytest.raises(AssertionError):
            check(broken)


class Plain:
    def __init__(self, seed=0):
        self.seed = seed

    def decide(self, view):
        return [Start(job.name) for job in first_fit(view.queue, view.free)]

    def learn(self, run):
        pass

    def state(self):
        return {}

    def restore(self, state):
        pass


class Greedy(Plain):
    def decide(self, view):
        return [Start(job.name) for job in view.queue]


class Idle(Plain):
    def decide(self, view):
        return []


class Crusher(Plain):
    def decide(self, view):
        hosts = [name for name, host in zip(view.running.names, view.running.host, strict=True) if host < 0]
        starts = super().decide(view)
        left = [job.name for job in view.queue if Start(job.name) not in starts]
        return [*starts, *(StartGuest(name, host, 0.99) for name, host in zip(left, hosts, strict=False))]


class Confused(Plain):
    def decide(self, view):
        return [*super().decide(view), *(SetShare(name, 0.5) for name in view.running.names[:1])]


class Killer(Plain):
    def decide(self, view):
        return [*super().decide(view), *(Evict(name) for name in view.running.names[:1])]


class Foreign(Plain):
    def decide(self, view):
        return [*super().decide(view), "nothing else"]


class Secretive(Plain):
    runs = 0

    def decide(self, view):
        return super().decide(view)[: 1 + self.runs % 3]

    def learn(self, run):
        self.runs += 1


def test_a_good_rule_passes():
    check_sharing_rule(Plain)


@pytest.mark.parametrize("broken", [Greedy, Idle, Crusher, Confused, Killer, Foreign, Secretive])
def test_a_broken_rule_is_found(broken):
    with pytest.raises(AssertionError):
        check_sharing_rule(broken)
