"""The master between agents and frameworks that do what real ones may do, at any moment."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from executors.mesos.codec import Message
from executors.mesos.master.allocator import RoleUsage
from executors.mesos.master.machine import Master
from executors.mesos.master.state import AgentRecord, MasterState
from executors.mesos.messages import TERMINAL, identity
from executors.mesos.resources import NONE, Resources, scalars
from tests.executors.mesos.master.world import AWARE, World, executor_info, task_info, uuid

# ---------------------------------------------------------------------- model


CPUS = 4
EXECUTOR = executor_info("e", 0.5)
STATES = ("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


@dataclass
class Running:
    """A task on its agent: which updates it has made, and how many of them are acknowledged."""

    framework: str
    info: Message
    updates: list[str] = field(default_factory=list)
    acknowledged: int = 0
    killed: bool = False

    @property
    def state(self) -> str:
        return self.updates[-1] if self.updates else "TASK_STAGING"

    @property
    def over(self) -> bool:
        return self.state in TERMINAL and self.acknowledged == len(self.updates)


@dataclass
class Node:
    """An agent. `key` is its id in the model's own words: uuids are made from it."""

    key: int
    id: str | None = None
    tasks: dict[tuple[str, str], Running] = field(default_factory=dict)
    executors: dict[str, Message] = field(default_factory=dict)
    infos: dict[str, Message] = field(default_factory=dict)
    dead: bool = False


@dataclass
class Scheduler:
    """A framework: its tasks, and what it was told of each last."""

    id: str
    aware: bool
    told: dict[str, str] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    unacknowledged: list[tuple[str, str, str]] = field(default_factory=list)
    removed: bool = False


class Model:
    """What agents and frameworks know by themselves, and do when they are asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(agent_reregister_s=60)
        self.nodes: list[Node] = []
        self.schedulers: list[Scheduler] = []
        self.launched = 0
        self.numbers: dict[str, tuple[str, int]] = {}  # uuid -> task, how many updates were before it

    # ---------------------------------------------------------------- who is there

    def node(self, pick: int, connected: bool) -> Node | None:
        found = [node for node in self.nodes if (node.id in self.world.stream_of) == connected and not node.dead]
        return found[pick % len(found)] if found else None

    def scheduler(self, pick: int, connected: bool) -> Scheduler | None:
        found = [one for one in self.schedulers if (one.id in self.world.stream_of) == connected and not one.removed]
        return found[pick % len(found)] if found else None

    def join_agent(self) -> None:
        if sum(not node.dead for node in self.nodes) < 3:
            node = Node(len(self.nodes))
            self.nodes.append(node)
            node.id = self.world.agent(resources=scalars(cpus=CPUS))

    def join_framework(self, aware: bool) -> None:
        if sum(not one.removed for one in self.schedulers) < 3:
            id = self.world.subscribe(capabilities=[AWARE] if aware else [])
            self.schedulers.append(Scheduler(id, aware))

    def all_come_back(self) -> None:
        for node in self.nodes:
            if not node.dead and node.id not in self.world.stream_of:
                self.register(node)
        for one in self.schedulers:
            if one.id not in self.world.stream_of and not one.removed:
                self.subscribe(one)

    # ---------------------------------------------------------------- frameworks

    def launch(self, pick: int, cpus: int, custom: bool, again: bool) -> None:
        if (one := self.scheduler(pick, True)) is None:
            return
        self.listen(one)
        offers = [offer for offer in self.world.state.offers.values() if offer.framework == one.id]
        if not offers:
            return
        offer = offers[pick % len(offers)]
        self.launched += 1
        lost = [name for name, state in one.told.items() if state == "TASK_LOST"]
        if again and not lost:
            return
        name = lost[0] if again else f"t{self.launched}"
        more = {"executor": EXECUTOR} if custom else {}
        one.told[name], one.seen[name], one.where[name] = "TASK_STAGING", -1, offer.agent
        self.world.start(one.id, task_info(name, offer.agent, cpus, **more), refuse_s=0)

    def listen(self, one: Scheduler) -> None:
        for record in self.world.take(one.id):
            if record["type"] != "UPDATE":
                continue
            status = record["update"]["status"]
            name = status["task_id"]["value"]
            assert name in one.told, "a framework is told of its own tasks only"
            if "uuid" in status:
                task, number = self.numbers[status["uuid"]]
                agent = status["agent_id"]["value"]
                assert task == f"{one.id} {name} {agent}"
                if agent == one.where[name]:
                    assert number >= one.seen[name], "updates are told in order"
                    one.seen[name] = number
                one.unacknowledged.append((agent, name, status["uuid"]))
            if one.told[name] not in TERMINAL:
                one.told[name] = status["state"]

    def subscribe(self, one: Scheduler) -> None:
        answer = self.world.subscribe(one.id, capabilities=[AWARE] if one.aware else [])
        one.removed = answer != one.id
        assert one.removed == (one.id in self.world.state.completed)

    # ---------------------------------------------------------------- agents

    def obey(self, node: Node) -> None:
        assert node.id is not None
        stream = self.world.stream_of[node.id]
        for record in self.world.take(node.id):
            kind = record["type"]
            payload = record.get(kind.lower(), {})
            framework = payload.get("framework_id", {}).get("value", "")
            if kind == "RUN":
                self.run(node, payload)
            elif kind == "KILL":
                if found := node.tasks.get((framework, payload["task_id"]["value"])):
                    found.killed = True
            elif kind == "ACKNOWLEDGE":
                self.acknowledged(node, framework, payload)
            elif kind == "SHUTDOWN_FRAMEWORK":
                self.abandon(node, framework)
                node.infos.pop(framework, None)
            elif kind == "SHUTDOWN":
                node.dead = True
        if stream not in self.world.open:
            self.world.stream_of.pop(node.id, None)

    def abandon(self, node: Node, framework: str) -> None:
        """All its tasks end, and then its executor, which the master has to be told to know that they take nothing."""
        ids = {"framework_id": identity(framework)}
        for key in [key for key in node.tasks if key[0] == framework]:
            if node.tasks.pop(key).state not in TERMINAL and node.id in self.world.stream_of:
                status = {"task_id": identity(key[1]), "state": "TASK_KILLED", "uuid": uuid(len(self.numbers) + 1)}
                self.world.hear(node.id, "UPDATE", **ids, status=status, latest_state="TASK_KILLED")
        if (executor := node.executors.pop(framework, None)) is not None and node.id in self.world.stream_of:
            self.world.hear(node.id, "EXITED_EXECUTOR", **ids, executor_id=executor["executor_id"], status=0)

    def run(self, node: Node, payload: Message) -> None:
        framework = payload["framework_info"]["id"]["value"]
        for info in payload["tasks"]:
            name = info["task_id"]["value"]
            (one,) = [one for one in self.schedulers if one.id == framework]
            for other in self.nodes:
                twin = other.tasks.get((framework, name))
                assert twin is None or (other is not node and not one.aware), "a task runs once"
            node.tasks[framework, name] = Running(framework, info)
        node.infos[framework] = payload["framework_info"]
        if "executor_info" in payload:
            node.executors[framework] = payload["executor_info"]

    def acknowledged(self, node: Node, framework: str, payload: Message) -> None:
        key = framework, payload["task_id"]["value"]
        task = node.tasks.get(key)
        if task is None or task.acknowledged == len(task.updates):
            return
        if self.uuid(node, key, task.acknowledged) == payload["uuid"]:
            task.acknowledged += 1
            if task.over:
                del node.tasks[key]

    def uuid(self, node: Node, key: tuple[str, str], number: int) -> str:
        task = f"{key[0]} {key[1]} {node.id}"
        known = [text for text, found in self.numbers.items() if found == (task, number)]
        text = known[0] if known else uuid(len(self.numbers) + 1)
        self.numbers[text] = (task, number)
        return text

    def say(self, node: Node, key: tuple[str, str], number: int) -> None:
        assert node.id is not None
        task = node.tasks[key]
        status = {"task_id": identity(key[1]), "state": task.updates[number], "uuid": self.uuid(node, key, number)}
        ids = {"framework_id": identity(key[0])}
        self.world.hear(node.id, "UPDATE", **ids, status=status, latest_state=task.state)

    def advance(self, task: Running) -> None:
        if task.state not in TERMINAL:
            task.updates.append("TASK_KILLED" if task.killed else STATES[min(2, len(task.updates))])

    def hears(self, node: Node) -> bool:
        """Whether the master still listens to it."""
        return self.world.stream_of[node.id or ""] in self.world.state.streams

    def cut(self, node: Node) -> None:
        if node.id in self.world.stream_of:
            self.world.cut(node.id)

    def register(self, node: Node) -> None:
        tasks = [self.described(node, key, task) for key, task in node.tasks.items()]
        executors = [
            {"framework_id": identity(framework), "executor_info": info} for framework, info in node.executors.items()
        ]
        infos = [node.infos[name] for name in {key[0] for key in node.tasks} | node.executors.keys()]
        own = scalars(cpus=CPUS)
        answer = self.world.agent(node.id, resources=own, tasks=tasks, executors=executors, frameworks=infos)
        assert answer == node.id or node.id in self.world.state.gone
        node.dead = answer != node.id

    def described(self, node: Node, key: tuple[str, str], task: Running) -> Message:
        statuses = [
            {"task_id": identity(key[1]), "state": state, "uuid": self.uuid(node, key, number)}
            for number, state in enumerate(task.updates)
        ]
        found: dict[str, Any] = {
            "task_id": identity(key[1]),
            "framework_id": identity(key[0]),
            "name": key[1],
            "resources": task.info["resources"],
            "state": task.state,
            "statuses": statuses,
            "task_info": task.info,
        }
        if "executor" in task.info:
            found["executor_id"] = task.info["executor"]["executor_id"]
        if task.acknowledged < len(task.updates):
            found["status_update_uuid"] = self.uuid(node, key, task.acknowledged)
        return found

    # ---------------------------------------------------------------- the end

    def settle(self) -> None:
        """Everybody who is there listens and answers."""
        for node in self.nodes:
            if node.id in self.world.stream_of:
                self.obey(node)
            if node.id in self.world.stream_of and not node.dead:
                for key in list(node.tasks):
                    if (task := node.tasks.get(key)) and task.acknowledged < len(task.updates):
                        self.say(node, key, task.acknowledged)
        for one in self.schedulers:
            if one.id in self.world.stream_of:
                self.listen(one)
                while one.unacknowledged:
                    self.world.acknowledge(one.id, *one.unacknowledged.pop(0))

    def agree(self, one: Scheduler) -> None:
        runs = {
            key[1]: task.state
            for node in self.nodes
            for key, task in node.tasks.items()
            if key[0] == one.id and task.state not in TERMINAL and node.id == one.where[key[1]]
        }
        over = TERMINAL | {"TASK_UNKNOWN"}  # as good as an end: it was told, and runs nowhere
        believed = {name: state for name, state in one.told.items() if state not in over}
        if one.aware:
            assert believed == runs
        else:  # it takes for lost what may still have to be killed
            assert {name for name in believed if name in runs} == set(believed)


def durable(state: MasterState) -> Any:
    """What survives the master. Agents say which tasks have outlived their framework, before they are offered again."""
    agents = state.agents | state.recovered

    def used(one: AgentRecord) -> Resources:
        rest = (task.resources for task in one.tasks.values() if task.framework not in state.frameworks)
        return one.used - sum(rest, start=NONE)

    return {
        "frameworks": {
            one.id: (one.info, one.roles, one.suppressed, one.principal, one.registered)
            for one in state.frameworks.values()
        },
        "completed": set(state.completed),
        "agents": {one.id: (one.info, one.total, used(one), one.active) for one in agents.values()},
        "away": ({one: found.total for one, found in state.away.items()}, state.unreachable, state.gone),
        "executors": {
            (one.id, *key): (executor.info, executor.resources)
            for one in agents.values()
            for key, executor in one.executors.items()
        },
        "tasks": {
            task.key: (task.agent, task.state, task.statuses, task.info, task.kill)
            for one in state.frameworks.values()
            for task in (*one.tasks.values(), *one.unreachable.values())
        },
    }


# ---------------------------------------------------------------------- model


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
