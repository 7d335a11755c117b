"""The master between agents and frameworks that do what real ones may do, at any moment.

The model is what everybody knows by himself: an agent knows what runs on it and what it still has to tell, a framework
knows what it launched and what it was told. Streams break, the master dies, agents forget: whatever happens, the master
never gives away more than there is, never runs a task twice behind its framework's back, tells updates in order, and in
the end everybody agrees on what runs.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from executors.mesos.master.allocator import RoleUsage
from executors.mesos.master.machine import Master
from executors.mesos.messages import TERMINAL, identity
from executors.mesos.resources import NONE
from tests.executors.mesos.master.model import Model, durable

TROUBLES = ("agent cut off", "framework cut off", "framework fails over", "framework torn down", "master killed")


class Pool(Model, RuleBasedStateMachine):
    # ---------------------------------------------------------------- who is there

    @rule()
    def agent_joins(self) -> None:
        self.join_agent()

    @rule()
    def framework_joins_again(self) -> None:
        self.join_framework(len(self.schedulers) % 2 == 0)

    @initialize(aware=st.booleans(), other=st.booleans())
    def somebody_is_there(self, aware: bool, other: bool) -> None:
        for _ in range(2):
            self.join_agent()
        self.join_framework(aware)
        self.join_framework(other)

    @rule()
    def whoever_is_away_comes_back(self) -> None:
        self.all_come_back()

    # ---------------------------------------------------------------- frameworks

    @rule(pick=st.integers(0, 5), cpus=st.sampled_from([1, 2, 3]), custom=st.booleans(), arrives=st.booleans())
    def task_is_launched(self, pick: int, cpus: int, custom: bool, arrives: bool) -> None:
        self.launch(pick, cpus, custom, again=False)
        if arrives:
            for node in self.nodes:
                if node.id in self.world.stream_of:
                    self.obey(node)

    @rule(pick=st.integers(0, 5), cpus=st.sampled_from([1, 2, 3]))
    def lost_task_is_launched_again(self, pick: int, cpus: int) -> None:
        self.launch(pick, cpus, custom=False, again=True)

    @rule(pick=st.integers(0, 5))
    def framework_listens(self, pick: int) -> None:
        if one := self.scheduler(pick, True):
            self.listen(one)

    @rule(much=st.booleans())
    def all_goes_well_for_a_while(self, much: bool) -> None:
        for node in self.nodes:
            for task in node.tasks.values() if much else ():
                self.advance(task)
        self.settle()

    @rule(pick=st.integers(0, 5))
    def framework_acknowledges(self, pick: int) -> None:
        if (one := self.scheduler(pick, True)) and one.unacknowledged:
            self.world.acknowledge(one.id, *one.unacknowledged.pop(0))

    @rule(pick=st.integers(0, 5))
    def framework_kills(self, pick: int) -> None:
        if (one := self.scheduler(pick, True)) and one.told:
            name = sorted(one.told)[pick % len(one.told)]
            self.world.call(one.id, "KILL", {"task_id": identity(name)})

    # ---------------------------------------------------------------- agents

    @rule(pick=st.integers(0, 5))
    def agent_listens(self, pick: int) -> None:
        if node := self.node(pick, True):
            self.obey(node)

    @rule(pick=st.integers(0, 5), which=st.integers(0, 9))
    def task_makes_progress(self, pick: int, which: int) -> None:
        node = self.node(pick, True) or self.node(pick, False)
        live = [] if node is None else [task for task in node.tasks.values() if task.state not in TERMINAL]
        if live:
            self.advance(live[which % len(live)])

    @rule(pick=st.integers(0, 5), which=st.integers(0, 9))
    def agent_says_what_is_next(self, pick: int, which: int) -> None:
        if (node := self.node(pick, True)) is None or not self.hears(node):
            return
        waiting = [key for key, task in node.tasks.items() if task.acknowledged < len(task.updates)]
        if waiting:
            key = waiting[which % len(waiting)]
            self.say(node, key, node.tasks[key].acknowledged)

    @rule(pick=st.integers(0, 5), which=st.integers(0, 9))
    def agent_repeats_itself(self, pick: int, which: int) -> None:
        if (node := self.node(pick, True)) is None or not self.hears(node):
            return
        told = [(key, number) for key, task in node.tasks.items() for number in range(task.acknowledged)]
        if told:
            self.say(node, *told[which % len(told)])

    @rule(pick=st.integers(0, 5), forgets=st.integers(0, 4))
    def agent_comes_back(self, pick: int, forgets: int) -> None:
        if node := self.node(pick, False):
            if forgets == 0:  # its disk was lost
                node.tasks.clear()
                node.executors.clear()
            self.register(node)

    @rule(pick=st.integers(0, 5))
    def executor_exits(self, pick: int) -> None:
        if (node := self.node(pick, True)) and node.executors and self.hears(node):
            framework, info = sorted(node.executors.items())[0]
            alive = [t for t in node.tasks.values() if t.framework == framework and "executor" in t.info]
            if all(task.state in TERMINAL for task in alive):
                del node.executors[framework]
                ids = {"framework_id": identity(framework), "executor_id": info["executor_id"]}
                assert node.id is not None
                self.world.hear(node.id, "EXITED_EXECUTOR", **ids, status=0)

    # ---------------------------------------------------------------- the master and the time

    @rule(trouble=st.sampled_from(TROUBLES), pick=st.integers(0, 5))
    def there_is_trouble(self, trouble: str, pick: int) -> None:
        node, one = self.node(pick, True), self.scheduler(pick, True)
        if trouble == "agent cut off" and node is not None:
            self.cut(node)
        elif trouble == "framework cut off" and one is not None:
            one.unacknowledged.clear()
            self.world.cut(one.id)
        elif trouble == "framework fails over" and one is not None:
            one.unacknowledged.clear()
            self.subscribe(one)
        elif trouble == "framework torn down" and one is not None and pick == 0:
            self.world.call(one.id, "TEARDOWN")
            del self.world.stream_of[one.id]
            one.removed = True
        elif trouble == "master killed":
            self.world.restart()
            for each in self.schedulers:
                each.unacknowledged.clear()

    @rule(seconds=st.sampled_from([1, 1, 1, 20, 70, 95, 110]))
    def time_passes(self, seconds: int) -> None:
        self.world.sleep(seconds)

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def nothing_is_given_away_twice(self) -> None:
        state = self.world.state
        for agent in (*state.agents.values(), *state.recovered.values()):
            used = sum((task.resources for task in agent.tasks.values() if task.state not in TERMINAL), start=NONE)
            used += sum((executor.resources for executor in agent.executors.values()), start=NONE)
            offered = sum((offer.resources for offer in agent.offers.values()), start=NONE)
            assert (agent.used, agent.offered) == (used, offered)
            assert agent.total.covers(used + offered)
        assert self.world.master.core.usage == RoleUsage.of(state)

    @invariant()
    def all_lists_agree(self) -> None:
        state = self.world.state
        for framework in state.frameworks.values():
            for task in framework.tasks.values():
                holder = state.agents.get(task.agent) or state.recovered[task.agent]
                assert holder.tasks[task.key] is task
            aside = {id(task) for tasks in state.unreachable_tasks.values() for task in tasks}
            assert all(id(task) in aside for task in framework.unreachable.values())
        assert {id(offer) for offer in state.offers.values()} == {
            id(offer) for agent in state.agents.values() for offer in agent.offers.values()
        }
        for stream, (kind, name) in state.streams.items():
            assert {"framework": state.frameworks, "agent": state.agents}[kind][name].stream == stream

    @invariant()
    def what_runs_is_known(self) -> None:
        """Whatever runs on an agent that the master hears, takes resources there, once the agent has heard the same."""
        for node in self.nodes:
            if node.id not in self.world.stream_of or not self.hears(node):
                continue
            known = self.world.state.agents[node.id]
            inbox = self.world.inbox[self.world.stream_of[node.id]]
            ended = [record for record in inbox if "SHUTDOWN" in record["type"]]
            for key, task in node.tasks.items():
                if task.state not in TERMINAL and not ended:
                    assert known.tasks[key].state not in TERMINAL

    @invariant()
    def the_journal_has_everything(self) -> None:
        again = Master("M", self.world.options, self.world.now, self.world.rows()).state
        assert durable(again) == durable(self.world.state)

    def teardown(self) -> None:
        """Everybody comes back, listens and answers: then all agree."""
        self.world.sleep(1)
        for node in self.nodes:
            if node.id in self.world.stream_of:
                self.obey(node)
        self.all_come_back()
        for _ in range(12):
            self.settle()
        for one in self.schedulers:
            if one.id in self.world.stream_of:
                asked = [{"task_id": identity(name)} for name, state in one.told.items() if state not in TERMINAL]
                if asked:
                    self.world.call(one.id, "RECONCILE", {"tasks": asked})
                self.listen(one)
                self.agree(one)
        for agent in self.world.state.agents.values():
            ended = [task for task in agent.tasks.values() if task.state in TERMINAL]
            assert not ended, "what was acknowledged to its end is forgotten"


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = Pool.TestCase


@pytest.mark.parametrize("seed", range(12))
def test_a_long_walk(seed: int) -> None:
    """The same rules for longer than hypothesis goes, which likes short stories."""
    chance, pool = random.Random(seed), Pool()
    pool.somebody_is_there(bool(seed % 2), bool(seed % 3))

    def pick() -> int:
        return chance.randrange(6)

    def often() -> bool:
        return chance.random() < 0.5

    rules = [
        *[lambda: pool.task_is_launched(pick(), chance.randint(1, 3), often(), often())] * 6,
        lambda: pool.lost_task_is_launched_again(pick(), 1),
        *[lambda: pool.all_goes_well_for_a_while(often())] * 2,
        *[lambda: pool.task_makes_progress(pick(), pick())] * 4,
        *[lambda: pool.agent_says_what_is_next(pick(), pick())] * 5,
        *[lambda: pool.agent_listens(pick())] * 3,
        *[lambda: pool.framework_listens(pick())] * 3,
        *[lambda: pool.framework_acknowledges(pick())] * 5,
        *[pool.whoever_is_away_comes_back] * 3,
        lambda: pool.agent_repeats_itself(pick(), pick()),
        lambda: pool.agent_comes_back(pick(), pick()),
        lambda: pool.framework_kills(pick()),
        lambda: pool.executor_exits(pick()),
        lambda: pool.there_is_trouble(chance.choice(TROUBLES), pick()),
        lambda: pool.time_passes(chance.choice([1, 1, 20, 95])),
        pool.framework_joins_again,
        pool.agent_joins,
    ]
    for _ in range(300):
        chance.choice(rules)()
        pool.nothing_is_given_away_twice()
        pool.all_lists_agree()
        pool.what_runs_is_known()
        pool.the_journal_has_everything()
    pool.teardown()
    assert pool.launched > 5
