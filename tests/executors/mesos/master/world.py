"""A master with everything around it: what goes to whom, and what is in the journal."""

from __future__ import annotations

import base64
import itertools
from typing import Any

from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Close, Effect, KeepRow, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions, MasterState
from executors.mesos.messages import identity, message
from executors.mesos.resources import Resources, scalars, to_json
from tests.executors.mesos.oracle import check

AWARE = {"type": "PARTITION_AWARE"}
MULTI = {"type": "MULTI_ROLE"}


def uuid(number: int) -> str:
    return base64.b64encode(number.to_bytes(16, "big")).decode()


def task_info(id: str, agent: str, cpus: float = 1, **more: Any) -> Message:
    base = {"name": id, "task_id": identity(id), "agent_id": identity(agent), "resources": to_json(scalars(cpus=cpus))}
    return base | ({} if "executor" in more else {"command": {"value": "true"}}) | more


def executor_info(id: str, cpus: float = 0.5, **more: Any) -> Message:
    return {"executor_id": identity(id), "command": {"value": "run"}, "resources": to_json(scalars(cpus=cpus))} | more


def launch(*infos: Message) -> Message:
    return {"type": "LAUNCH", "launch": {"task_infos": list(infos)}}


class World:
    """`strict`: frameworks and operators are told nothing but what the API knows."""

    def __init__(self, *, strict: bool = True, **options: Any) -> None:
        self.strict = strict
        self.kinds: dict[str, str] = {}
        self.options = MasterOptions(**options)
        self.now = 1000.0
        self.journal: dict[tuple[str, str], Message] = {}
        self.inbox: dict[str, list[Message]] = {}
        self.open: set[str] = set()
        self.master = Master("M", self.options, self.now)
        self._names, self._uuids = itertools.count(1), itertools.count(1)
        self.stream_of: dict[str, str] = {}
        self.hosts: dict[str, str] = {}
        self.principal = "p" if self.options.authenticated else None

    @property
    def state(self) -> MasterState:
        return self.master.state

    # ---------------------------------------------------------------- the server's part

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, KeepRow):
                if effect.row is None:
                    self.journal.pop((effect.table, effect.key), None)
                else:
                    self.journal[effect.table, effect.key] = decode(encode({"row": effect.row, "of": effect.key}))
        for effect in effects:
            if isinstance(effect, Send):
                said = decode(encode(effect.message))
                if self.strict and effect.stream in self.kinds:
                    check(self.kinds[effect.stream], said)
                if effect.stream in self.open:
                    self.inbox[effect.stream].append(said)
            elif isinstance(effect, Close):
                self.open.discard(effect.stream)

    def rows(self) -> list[KeepRow]:
        return [KeepRow(table, key, held.get("row")) for (table, key), held in self.journal.items()]

    def restart(self) -> None:
        self.open.clear()
        self.stream_of.clear()
        self.master = Master("M", self.options, self.now, self.rows())

    def sleep(self, seconds: float, *, answer: bool = True) -> None:
        """Let time pass; agents that are connected answer pings, or do not."""
        end = self.now + seconds
        while (due := self.master.due()) <= end:
            self.now = max(self.now, due)
            self.do(self.master.wake(self.now))
            if answer:
                self._pong()
        self.now = end

    def _pong(self) -> None:
        ping = message("PING")
        for name in [name for name, stream in self.stream_of.items() if ping in self.inbox[stream]]:
            stream = self.stream_of[name]
            self.inbox[stream] = [record for record in self.inbox[stream] if record != ping]
            if stream in self.open:
                self.hear(name, "PONG")

    def stream(self, kind: str | None = None) -> str:
        """Open a stream; `kind` is the type of its events."""
        name = f"stream{next(self._names)}"
        if kind is not None:
            self.kinds[name] = kind
        self.open.add(name)
        self.inbox[name] = []
        return name

    def take(self, who: str) -> list[Message]:
        """What a framework, an agent or a stream was told since this was asked last."""
        stream = self.stream_of.get(who, who)
        found, self.inbox[stream] = self.inbox[stream], []
        return found

    def types(self, who: str) -> list[str]:
        return [record["type"] for record in self.take(who)]

    def cut(self, who: str) -> None:
        stream = self.stream_of.pop(who)
        self.open.discard(stream)
        self.do(self.master.closed(stream, self.now))

    # ---------------------------------------------------------------- agents

    def agent(self, id: str | None = None, resources: Resources | None = None, **item: Any) -> str:
        resources = scalars(cpus=4, mem=4096) if resources is None else resources
        hostname = self.hosts.get(id or "", f"n{len(self.hosts) + 1}")
        info: Message = {"hostname": hostname, "port": 5051, "resources": to_json(resources)}
        if id is not None:
            info["id"] = identity(id)
        stream = self.stream()
        item = {"agent_info": info, "version": "1.11.0"} | item
        self.do(self.master.register(message("REGISTER", **item), stream, self.now))
        first = self.inbox[stream].pop(0)
        if first["type"] != "REGISTERED":
            self.inbox[stream].insert(0, first)
            return stream
        name = str(first["registered"]["agent_id"]["value"])
        self.stream_of[name] = stream
        self.hosts[name] = hostname
        return name

    def hear(self, agent: str, kind: str, **payload: Any) -> None:
        effects, problem = self.master.from_agent(self.stream_of[agent], [message(kind, **payload)], self.now)
        self.do(effects)
        if problem is not None:
            raise problem

    def update(
        self, agent: str, framework: str, task: str, state: str, latest: str | None = None, *, number: int | None = None
    ) -> str:
        text = uuid(next(self._uuids) if number is None else number)
        status = {
            "task_id": identity(task),
            "agent_id": identity(agent),
            "executor_id": identity(task),
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "timestamp": self.now,
            "uuid": text,
        }
        self.hear(agent, "UPDATE", framework_id=identity(framework), status=status, latest_state=latest or state)
        return text

    # ---------------------------------------------------------------- operators

    def operate(self, kind: str, **payload: Any) -> Message:
        """An operator's call: what the answer says, nothing where it is empty."""
        answer, effects = self.master.operate({"type": kind, kind.lower(): payload}, self.now)
        self.do(effects)
        if answer is None:
            return {}
        found = decode(encode(answer))
        if self.strict and not kind.startswith("ASA_"):
            check("master.Response", found)
        said: Message = found[kind.lower()]
        return said

    def watch(self) -> str:
        """The stream of an operator who has subscribed."""
        stream = self.stream("master.Event")
        self.do(self.master.watch(stream, self.now))
        return stream

    # ---------------------------------------------------------------- frameworks

    def subscribe(self, id: str | None = None, *, quiet: list[str] | None = None, **info: Any) -> str:
        """A framework's id; or when it is refused, the stream on which it was told so."""
        given = {"user": "me", "name": "test", "failover_timeout": 100, "capabilities": [AWARE]} | info
        call: Message = {"type": "SUBSCRIBE", "subscribe": {"framework_info": given}}
        if id is not None:
            call["framework_id"] = given["id"] = identity(id)
        if quiet is not None:
            call["subscribe"]["suppressed_roles"] = quiet
        stream = self.stream("scheduler.Event")
        self.do(self.master.subscribe(call, self.principal, stream, self.now))
        first = self.inbox[stream][0]
        if first["type"] != "SUBSCRIBED":
            return stream
        name = str(first["subscribed"]["framework_id"]["value"])
        self.stream_of[name] = stream
        return name

    def call(self, framework: str, kind: str, payload: Message | None = None) -> None:
        call: Message = {"type": kind, "framework_id": identity(framework)}
        if payload is not None:
            call[kind.lower()] = payload
        self.do(self.master.call(call, self.principal, self.stream_of.get(framework), self.now))

    def offers(self, framework: str) -> list[Message]:
        """The offers that it has been told of since its inbox was looked at last."""
        events = [record["offers"] for record in self.take(framework) if record["type"] == "OFFERS"]
        return [offer for event in events for offer in event["offers"]]

    def accept(self, framework: str, offers: list[str], *operations: Message, refuse_s: float = 5) -> None:
        ids = [identity(offer) for offer in offers]
        payload = {"offer_ids": ids, "operations": list(operations), "filters": {"refuse_seconds": refuse_s}}
        self.call(framework, "ACCEPT", payload)

    def start(self, framework: str, *infos: Message, refuse_s: float = 5) -> None:
        """Launch on whatever is offered on the agent of the first task."""
        agent = infos[0]["agent_id"]["value"]
        names = [o.id for o in self.state.offers.values() if (o.framework, o.agent) == (framework, agent)]
        self.accept(framework, names, launch(*infos), refuse_s=refuse_s)

    def acknowledge(self, framework: str, agent: str, task: str, text: str) -> None:
        payload = {"agent_id": identity(agent), "task_id": identity(task), "uuid": text}
        self.call(framework, "ACKNOWLEDGE", payload)

    def updates(self, framework: str) -> list[tuple[str, str]]:
        """Task and state of the updates since its inbox was looked at last."""
        statuses = [record["update"]["status"] for record in self.take(framework) if record["type"] == "UPDATE"]
        return [(status["task_id"]["value"], status["state"]) for status in statuses]
