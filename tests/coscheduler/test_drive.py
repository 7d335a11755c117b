import json

import pytest

from asa.log.database import LearnedStore
from coscheduler.drive import Remembered
from coscheduler.registry import SHARING_RULES
from coscheduler.testing import shared_run, sharing_view

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


def test_what_one_run_learns_the_next_one_knows(store):
    first = remembered(store)
    for number, host in enumerate(hosts_of(first)):
        first.learn(shared_run(host, number))
    first.close()
    second = remembered(store, "second", seed=1)
    assert shared(second.state()) == json.loads(json.dumps(shared(first.state())))
    assert second.state()["pending"] == {}


def test_runs_at_the_same_time_teach_one_another(store):
    both = [remembered(store, "a"), remembered(store, "b", seed=1)]
    for rule in both:
        rule.hosts = hosts_of(rule)
    for rule in both:
        for number, host in enumerate(rule.hosts[:3]):
            rule.learn(shared_run(host, number))
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


def test_what_belongs_to_a_run_goes_with_it(store):
    rule = remembered(store)
    host = hosts_of(rule)[0]
    rule.learn(shared_run(host, 1))
    rule.close()
    assert store.get(f"sharing {SPEC}")["runs"] == {}
