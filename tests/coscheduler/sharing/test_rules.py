import numpy as np
import pytest

from asa.core.decision import Start
from asa.core.errors import InvalidInput, UnknownName
from coscheduler.ledger import Ledger
from coscheduler.nouns import FLOOR, Evict, JobStates, Keep, SetShare, SharedRun, StartGuest, WaitingJob
from coscheduler.registry import SHARING_RULES
from coscheduler.sharing.scavenger import HOSTS_MOST, Residuals, guard, roomiest


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
    for name, (parallel, memory) in profiles.items():
        for cores in (8, 16, 32, 64):
            cpu_s = 3600 * (parallel * cores + 1 - parallel)
            rule.learn(SharedRun(f"{name}-{cores}", name, cores, 7200.0, 3600.0, 3600.0, cpu_s, parallel, memory))
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


def test_scavenger_takes_as_many_guests_as_it_is_told():
    running = [("host", 64, "idle"), ("there", 8, "idle")]
    seen = view(running, [("guest", 8, "idle")], guests=[("there", "host")])
    assert guests(taught("scavenger", **KNOWN).decide(seen)) == []
    assert guests(taught("scavenger:guests=2", **KNOWN).decide(seen)) == [("guest", "host")]


def test_scavenger_starts_the_longest_first_unless_told_otherwise():
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
