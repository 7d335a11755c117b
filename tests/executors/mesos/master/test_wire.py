"""Whatever the API lets clients ask, in any order, what the master says is what the API lets it say."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message, decode, encode
from executors.mesos.master import operator
from executors.mesos.messages import identity
from executors.mesos.resources import scalars
from tests.executors.mesos.master.world import MULTI, World, executor_info, launch, task_info
from tests.executors.mesos.oracle import API, check, made

WORDS = ("M-S1", "M-0001", "t1", "e", "hpc", "*", "cpus", "M-O1", "10.0.0.1", "me")
ROLES: dict[str, Any] = {"roles": ["hpc", "*"], "capabilities": [MULTI]}


class Wire:
    """A master with an agent, a framework and an operator who watches; all that it says is checked."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.asked, self.refused = Counter[str](), 0
        self.world.do(self.world.master.watch(self.world.stream("master.Event"), self.world.now))
        self.back()

    def back(self) -> None:
        """Whoever has gone comes back."""
        world = self.world
        if "M-S1" not in world.stream_of and "M-S1" not in world.state.gone:
            world.agent("M-S1" if world.state.serial.get("agent") else None, resources=scalars(cpus=8, mem=800))
        if not any(framework.stream for framework in world.state.frameworks.values()):
            world.subscribe(**ROLES, labels={"labels": [{"key": "k", "value": "v"}]})

    def works(self) -> None:
        """What a framework really does."""
        world = self.world
        framework = next((one.id for one in world.state.frameworks.values() if one.offers), None)
        if framework is None:
            return
        offer = next(iter(world.state.frameworks[framework].offers.values()))
        name = f"t{self.rng.randint(1, 99)}"
        more = {"executor": executor_info("e")} if self.rng.random() < 0.5 else {}
        world.accept(framework, [offer.id], launch(task_info(name, offer.agent, **more)), refuse_s=0)
        states = self.rng.sample(["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED", "TASK_FAILED"], 2)
        if name in world.state.frameworks[framework].tasks and offer.agent in world.stream_of:
            for state in states:
                world.update(offer.agent, framework, name, state)

    def calls(self) -> None:
        """A scheduler's call, as good or bad as the API allows."""
        kind = self.rng.choice(API.enums["scheduler.Call.Type"])
        payload = API.messages["scheduler.Call"].get(kind.lower())
        framework = next((one for one in self.world.state.frameworks.values() if one.stream), None)
        if framework is None or kind == "SUBSCRIBE":
            return
        call = {"type": kind, "framework_id": identity(framework.id)}
        if payload is not None:
            call[kind.lower()] = made(payload.type, self.rng, WORDS)
        self.count(kind, lambda: self.world.do(self.world.master.call(call, "p", framework.stream, self.world.now)))

    def operates(self) -> None:
        """An operator's call."""
        kind = self.rng.choice([one for one in API.enums["master.Call.Type"] if one != "SUBSCRIBE"])
        payload = API.messages["master.Call"].get(kind.lower())
        call: Message = {"type": kind}
        if payload is not None:
            call[kind.lower()] = made(payload.type, self.rng, WORDS)
        self.count(kind, lambda: self.looks(call))

    def looks(self, call: Message) -> None:
        answer, effects = self.world.master.operate(call, self.world.now)
        if answer is not None:
            check("master.Response", decode(encode(answer)))
        self.world.do(effects)

    def count(self, kind: str, step: Any) -> None:
        try:
            step()
            self.asked[kind] += 1
        except HTTPError:
            self.refused += 1


@pytest.mark.parametrize("seed", range(8))
def test_a_long_random_run(seed: int) -> None:
    wire = Wire(seed)
    for _ in range(1000):
        step = wire.rng.choice([wire.works, wire.calls, wire.operates, wire.operates])
        step()
        if wire.rng.random() < 0.1:
            wire.world.sleep(wire.rng.choice([1.0, 30.0]))
        if wire.rng.random() < 0.02:
            wire.world.restart()
            wire.world.do(wire.world.master.watch(wire.world.stream("master.Event"), wire.world.now))
        wire.back()
    for kind in operator.LOOKS:
        if not kind.startswith("ASA_"):
            wire.looks({"type": kind})
    assert wire.asked["GET_STATE"] and wire.refused and sum(wire.asked.values()) > 50
