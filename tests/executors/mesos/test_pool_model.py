"""Master, agent and framework with everything between them, any of which may fail at any moment."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from asa.web.errors import HTTPError
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.state import AgentOptions as AgentOptions
from executors.mesos.agent.state import ContainerSpec, StartContainer, StopContainer, ToMaster
from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Close, KeepRow, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import TERMINAL, identity, message, value_of
from executors.mesos.resources import scalars, to_json

# ---------------------------------------------------------------------- pool model


AGENT = AgentOptions("n1", 5051, scalars(cpus=4, mem=4096), "/sandboxes", "10.0.0.1:5051")
OPTIONS = MasterOptions(agent_reregister_s=30.0)
INFO = {"user": "me", "name": "f", "failover_timeout": 1e6, "capabilities": [{"type": "PARTITION_AWARE"}]}


class Side:
    """A machine with its journal, and what it wants done that is not written yet."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Message] = {}
        self.waiting: deque[list[Any]] = deque()

    def take(self, effects: list[Any]) -> None:
        if effects:
            self.waiting.append(effects)

    def write(self) -> list[Any]:
        """Write the first of what waits; what is to be done now."""
        effects = self.waiting.popleft()
        for effect in effects:
            if isinstance(effect, KeepRow) and effect.row is None:
                self.rows.pop((effect.table, effect.key), None)
            elif isinstance(effect, KeepRow):
                self.rows[effect.table, effect.key] = decode(encode(effect.row))
        return [effect for effect in effects if not isinstance(effect, KeepRow)]

    def kept(self) -> list[KeepRow]:
        return [KeepRow(table, key, row) for (table, key), row in self.rows.items()]

    def die(self, torn: bool) -> list[KeepRow]:
        """Lose what is not written, or is written but not done."""
        if torn and self.waiting:
            self.write()
        self.waiting.clear()
        return self.kept()


class Model:
    """Both machines, what is on its way between them, and what the framework and the containers know by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.serial, self.fresh = 1000.0, 0, itertools.count(1)
        self.m, self.a = Side(), Side()
        self.master, self.agent = Master("M", OPTIONS, self.now), self.new_agent([])
        self.calls, self.events = deque[Message](), deque[Message]()  # framework and master
        self.ups, self.downs = deque[Message](), deque[Message]()  # agent and master
        self.said = deque[Message](maxlen=20)
        self.stream_f = self.stream_a = ""
        self.offers: list[Message] = []
        self.id: str | None = None
        self.launched: dict[str, str] = {}
        self.told: dict[str, list[str]] = {}
        self.to_start: list[ContainerSpec] = []
        self.running: dict[str, str] = {}
        self.unheard: list[str] = []
        self.ended: dict[str, int] = {}
        self.starts = Counter[str]()
        self.come_back()

    def new_agent(self, rows: list[KeepRow]) -> NodeAgent:
        return NodeAgent(AGENT, self.now, rows, fresh=lambda: next(self.fresh).to_bytes(16, "big"))

    # ------------------------------------------------------- what is carried out

    def commit_master(self) -> None:
        for effect in self.m.write():
            if isinstance(effect, Send):
                copy = decode(encode(effect.message))
                if effect.stream == self.stream_f:
                    self.events.append(copy)
                elif effect.stream == self.stream_a:
                    self.downs.append(copy)
            elif isinstance(effect, Close) and effect.stream == self.stream_a:
                self.downs.append({"type": "CLOSED"})

    def commit_agent(self) -> None:
        for effect in self.a.write():
            if isinstance(effect, ToMaster):
                if self.stream_a:
                    self.ups.append(decode(encode(effect.item)))
            elif isinstance(effect, StartContainer):
                self.to_start.append(effect.container)
            elif isinstance(effect, StopContainer):
                self.kill(effect.id)

    def kill(self, container: str) -> None:
        waiting = [item for item in self.to_start if item.id == container]
        for item in waiting:  # the server starts first, then stops
            self.begin(item)
        if self.running.pop(container, None) is not None:
            self.ended[container] = -15

    def begin(self, container: ContainerSpec) -> None:
        self.to_start.remove(container)
        task = container.executor
        assert not self.is_over(task), f"{task} starts although it was told to be {self.told[task]}"
        self.starts[task] += 1
        assert self.starts[task] == 1, f"{task} runs twice"
        self.running[container.id] = task
        self.unheard.append(container.id)

    def is_over(self, task: str) -> bool:
        return any(state in TERMINAL for state in self.told[task])

    # ------------------------------------------------------- who is connected

    def come_back(self) -> None:
        if not self.stream_f:
            self.stream_f = self.new_stream()
            info = INFO if self.id is None else INFO | {"id": identity(self.id)}
            call = message("SUBSCRIBE", framework_info=info)
            call |= {} if self.id is None else {"framework_id": identity(self.id)}
            self.m.take(self.master.subscribe(call, "p", self.stream_f, self.now))
            self.settle_master()
            self.hear_all()
            open_tasks = [{"task_id": identity(t), "agent_id": identity(a)} for t, a in self.unfinished().items()]
            self.call("RECONCILE", tasks=open_tasks)
        if not self.stream_a:
            while self.a.waiting:  # it says nothing when it registers that a crash could undo (`Engine.connected`)
                self.commit_agent()
            self.stream_a = self.new_stream()
            first, *rest = self.agent.connected(self.now)
            assert isinstance(first, ToMaster)
            item = decode(encode(first.item))
            self.m.take(self.master.register(item, self.stream_a, self.now))
            self.a.take(rest)

    def unfinished(self) -> dict[str, str]:
        return {task: agent for task, agent in self.launched.items() if not self.is_over(task)}

    def new_stream(self) -> str:
        self.serial += 1
        return f"s{self.serial}"

    def settle_master(self) -> None:
        while self.m.waiting:
            self.commit_master()

    def call(self, kind: str, **payload: Any) -> None:
        if self.stream_f and self.id:
            self.calls.append(message(kind, **payload) | {"framework_id": identity(self.id)})

    def cut_framework(self) -> str:
        stream, self.stream_f = self.stream_f, ""
        self.calls.clear()
        self.events.clear()
        self.offers.clear()
        return stream

    def cut_agent(self) -> str:
        stream, self.stream_a = self.stream_a, ""
        self.ups.clear()
        self.downs.clear()
        return stream

    def disconnect_agent(self) -> None:
        stream = self.cut_agent()
        self.m.take(self.master.closed(stream, self.now))
        self.a.take(self.agent.disconnected(self.now))

    # ------------------------------------------------------- what the framework and the master hear

    def launch_tasks(self, count: int) -> None:
        offer = self.offers.pop()
        names = [f"t{len(self.launched) + n}" for n in range(count)]
        base = {"agent_id": offer["agent_id"], "resources": to_json(scalars(cpus=0.5)), "command": {"value": "x"}}
        infos = [base | {"name": name, "task_id": identity(name)} for name in names]
        self.launched |= dict.fromkeys(names, value_of(offer, "agent_id"))
        self.told |= {name: [] for name in names}
        operations = [{"type": "LAUNCH", "launch": {"task_infos": infos}}]
        self.call("ACCEPT", offer_ids=[offer["id"]], operations=operations, filters={"refuse_seconds": 0})

    def hear(self) -> None:
        """The framework hears the next event."""
        event = self.events.popleft()
        if event["type"] == "SUBSCRIBED":
            self.id = value_of(event["subscribed"], "framework_id")
        elif event["type"] == "OFFERS":
            self.offers += event["offers"]["offers"]
        elif event["type"] == "RESCIND":
            self.offers = [offer for offer in self.offers if offer["id"] != event["rescind"]["offer_id"]]
        elif event["type"] == "UPDATE":
            self.heard(event["update"]["status"])

    def heard(self, status: Message) -> None:
        task, state = value_of(status, "task_id"), status["state"]
        ends = {one for one in (*self.told[task], state) if one in TERMINAL}
        # what the master says of itself needs no acknowledgement: a question that crosses it finds the task gone
        assert len(ends - {"TASK_GONE"}) < 2, f"{task}: {self.told[task]}, {state}"
        assert ends != {"TASK_FINISHED", "TASK_GONE"}, f"{task}: {self.told[task]}, {state}"
        self.told[task].append(state)
        if state in TERMINAL:
            assert task not in self.running.values(), f"{task} runs although it is told to be {state}"
            assert state != "TASK_FINISHED" or self.starts[task] == 1
            assert state != "TASK_DROPPED" or self.starts[task] == 0
        if "uuid" in status:
            self.call("ACKNOWLEDGE", **{name: status[name] for name in ("agent_id", "task_id", "uuid")})

    def hear_all(self) -> None:
        while self.events:
            self.hear()

    def hear_agent(self, item: Message) -> None:
        effects, problem = self.master.from_agent(self.stream_a, [item], self.now)
        self.m.take(effects)
        assert problem is None or isinstance(problem, HTTPError)
        if problem is not None:
            self.disconnect_agent()


# ---------------------------------------------------------------------- pool model


class Pool(Model, RuleBasedStateMachine):
    # ------------------------------------------------------- what may happen

    @rule()
    def connect(self) -> None:
        """Whoever is not connected is now."""
        self.come_back()

    @precondition(lambda self: self.offers)
    @rule(count=st.integers(1, 2))
    def launch(self, count: int) -> None:
        self.launch_tasks(count)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), reconcile=st.booleans())
    def ask(self, data: st.DataObject, reconcile: bool) -> None:
        task = data.draw(st.sampled_from(sorted(self.unfinished())))
        one = {"task_id": identity(task), "agent_id": identity(self.launched[task])}
        self.call("RECONCILE", tasks=[one]) if reconcile else self.call("KILL", **one)

    @precondition(lambda self: self.calls)
    @rule()
    def call_arrives(self) -> None:
        self.m.take(self.master.call(self.calls.popleft(), "p", self.stream_f, self.now))

    @precondition(lambda self: self.events)
    @rule()
    def event_arrives(self) -> None:
        self.hear()

    @precondition(lambda self: self.ups)
    @rule()
    def up_arrives(self) -> None:
        item = self.ups.popleft()
        self.said.append(item)
        self.hear_agent(item)

    @precondition(lambda self: self.stream_a and any(item["type"] == "UPDATE" for item in self.said))
    @rule(data=st.data())
    def update_is_repeated(self, data: st.DataObject) -> None:
        """Also one of long ago, which was acknowledged and followed by others, on another connection perhaps."""
        self.hear_agent(data.draw(st.sampled_from([item for item in self.said if item["type"] == "UPDATE"])))

    @precondition(lambda self: self.downs)
    @rule()
    def down_arrives(self) -> None:
        item = self.downs.popleft()
        if item["type"] == "CLOSED":
            self.disconnect_agent()
        else:
            self.a.take(self.agent.from_master(item, self.now))

    @precondition(lambda self: self.m.waiting)
    @rule()
    def master_writes(self) -> None:
        self.commit_master()

    @precondition(lambda self: self.a.waiting)
    @rule()
    def agent_writes(self) -> None:
        self.commit_agent()

    @precondition(lambda self: self.to_start)
    @rule()
    def container_starts(self) -> None:
        self.begin(self.to_start[0])

    @precondition(lambda self: self.unheard)
    @rule()
    def start_is_heard(self) -> None:
        self.a.take(self.agent.started(self.unheard.pop(0), 5, 5, self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]))
    def container_ends(self, data: st.DataObject, code: int) -> None:
        container = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[container]
        self.ended[container] = code

    @precondition(lambda self: any(container not in self.unheard for container in self.ended))
    @rule()
    def end_is_heard(self) -> None:
        container = next(name for name in self.ended if name not in self.unheard)
        self.a.take(self.agent.exited(container, self.ended.pop(container), "", self.now))

    @rule(seconds=st.sampled_from([1.0, 15.0, 80.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := min(self.master.due(), self.agent.due())) <= end:
            self.now = max(self.now, due)
            self.m.take(self.master.wake(self.now))
            self.a.take(self.agent.wake(self.now))
        self.now = end

    # ------------------------------------------------------- what may fail

    @precondition(lambda self: self.stream_f)
    @rule()
    def framework_dies(self) -> None:
        """Or its connection breaks; it has written down what it launched and heard."""
        stream = self.cut_framework()
        self.m.take(self.master.closed(stream, self.now))

    @precondition(lambda self: self.stream_a)
    @rule()
    def agents_connection_breaks(self) -> None:
        self.disconnect_agent()

    @rule(torn=st.booleans())
    def master_dies(self, torn: bool) -> None:
        rows = self.m.die(torn)
        self.cut_framework()
        if self.stream_a:
            self.cut_agent()
            self.a.take(self.agent.disconnected(self.now))
        self.master = Master("M", OPTIONS, self.now, rows)

    @rule(torn=st.booleans())
    def agent_dies(self, torn: bool) -> None:
        """Containers go on; what the next one does not know of it ends."""
        rows = self.a.die(torn)
        if self.stream_a:
            self.m.take(self.master.closed(self.cut_agent(), self.now))
        self.to_start.clear()
        self.unheard.clear()
        self.agent = self.new_agent(rows)
        known = {name for name, _, _ in self.agent.recovered()}
        for container in [name for name in self.running if name not in known]:
            del self.running[container]
        gone = [name for name in sorted(known) if name not in self.running]
        for container in gone:
            self.a.take(self.agent.exited(container, self.ended.get(container), "", self.now))
        self.ended.clear()

    # ------------------------------------------------------- the end

    @rule(steps=st.integers(1, 20))
    def things_go_on(self, steps: int) -> None:
        """Several steps of what would happen anyway: failures would come too often otherwise."""
        self.go_on(steps)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.one_step()

    @rule(steps=st.integers(0, 25))
    def a_launch_gets_so_far(self, steps: int) -> None:
        """From ACCEPT to the acknowledgement of RUNNING it takes some twenty steps."""
        self.come_back()
        self.work()
        if self.offers:
            self.launch_tasks(1)
        self.go_on(steps)

    def one_step(self) -> bool:
        """One thing that can be done without anything new happening: whether there is any."""
        todo = (
            (self.m.waiting, self.master_writes),
            (self.a.waiting, self.agent_writes),
            (self.calls, self.call_arrives),
            (self.events, self.event_arrives),
            (self.ups, self.up_arrives),
            (self.downs, self.down_arrives),
            (self.to_start, self.container_starts),
            (self.unheard, self.start_is_heard),
            (set(self.ended) - set(self.unheard), self.end_is_heard),
        )
        act = next((act for there, act in todo if there), None)
        if act is not None:
            act()
        return act is not None

    def work(self) -> None:
        steps = 0
        while self.one_step():
            steps += 1
            assert steps < 10_000, "it never comes to rest"

    def teardown(self) -> None:
        for _ in range(8):  # longer than agents have to come back, and to answer pings
            self.come_back()
            self.work()
            for container in list(self.running):
                del self.running[container]
                self.ended[container] = 0
            self.work()
            self.time_passes(15.0)
            self.work()
            if self.stream_f:
                one = [{"task_id": identity(t), "agent_id": identity(a)} for t, a in self.unfinished().items()]
                self.call("RECONCILE", tasks=one) if one else None
            self.work()
        # an agent that died before it had written down its id came back under another: the first stays unreachable
        lost = {task for task, agent in self.unfinished().items() if agent != self.agent.state.id}
        assert all(self.told[task][-1] == "TASK_UNREACHABLE" and not self.starts[task] for task in lost)
        assert set(self.unfinished()) == lost, (
            f"never told to be over: { {task: self.told[task] for task in self.unfinished()} }"
        )
        assert not self.agent.state.instances and not self.agent.state.frameworks
        assert [key for key in self.a.rows if key[0] not in ("agent",)] == []
        assert all(not framework.tasks for framework in self.master.state.frameworks.values())
        assert {key[1].split()[1] for key in self.m.rows if key[0] == "tasks"} <= lost
        assert all(agent.used == scalars() for agent in self.master.state.agents.values())


def test_whatever_fails_no_task_is_lost_or_run_twice_without_a_word() -> None:
    run_state_machine_as_test(Pool, settings=settings(max_examples=150, stateful_step_count=50, deadline=None))


# ---------------------------------------------------------------------- what one says the other understands


def launched() -> Pool:
    """Task `t0` runs on the agent, and the framework knows."""
    pool = Pool()
    pool.work()
    pool.launch_tasks(1)
    pool.work()
    assert list(pool.running.values()) == ["t0"] and pool.told == {"t0": ["TASK_RUNNING"]}
    return pool


def end(pool: Pool, code: int) -> None:
    """What runs ends with this exit code."""
    pool.ended |= dict.fromkeys(pool.running, code)
    pool.running.clear()
    pool.work()


@pytest.mark.parametrize("forgets", [False, True])
def test_a_task_runs_on_while_both_are_restarted_even_if_the_master_forgets_everything(forgets: bool) -> None:
    pool = launched()
    agent = pool.agent.state.id
    if forgets:
        pool.m.rows.clear()
    pool.master_dies(torn=False)
    pool.agent_dies(torn=False)
    pool.come_back()
    pool.work()
    assert pool.agent.state.id == agent and agent is not None and set(pool.told["t0"]) == {"TASK_RUNNING"}
    assert pool.master.state.agents[agent].used == scalars(cpus=0.5)
    [framework] = pool.master.state.frameworks.values()
    assert [task.state for task in framework.tasks.values()] == ["TASK_RUNNING"]
    end(pool, 3)
    assert pool.told["t0"][-1] == "TASK_FAILED" and not framework.tasks


@pytest.mark.parametrize("how", ["KILL", "TEARDOWN", "MARK_AGENT_GONE"])
def test_a_task_is_ended(how: str) -> None:
    pool = launched()
    agent = pool.agent.state.id or ""
    if how == "KILL":
        pool.call("KILL", task_id=identity("t0"))
    elif how == "TEARDOWN":
        pool.call("TEARDOWN")
    else:
        pool.m.take(pool.master.operate(message("MARK_AGENT_GONE", agent_id=identity(agent)), pool.now)[1])
        pool.settle_master()
        while pool.downs:
            pool.down_arrives()
        while pool.a.waiting:
            pool.agent_writes()
    pool.work()
    assert not pool.running
    if how == "MARK_AGENT_GONE":
        assert pool.told["t0"][-1] == "TASK_GONE_BY_OPERATOR" and agent in pool.master.state.gone
    else:
        assert not pool.master.state.agents[agent].used
        assert how == "TEARDOWN" or pool.told["t0"][-1] == "TASK_KILLED"
