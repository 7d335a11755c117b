"""Master and agent with their journals, and a framework: what `test_pool_model` has fail at any moment."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import Any

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
