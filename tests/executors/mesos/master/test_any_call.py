"""Whatever the API lets clients ask, and whatever else is sent, the master stays sound and says what the API allows."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Send
from executors.mesos.master import operator
from executors.mesos.master.allocator import RoleUsage
from executors.mesos.master.machine import Master
from executors.mesos.messages import identity, message
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.master.world import AWARE, MULTI, World, executor_info, launch, task_info, uuid
from tests.executors.mesos.oracle import API, check, made

# ---------------------------------------------------------------------- wire


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
    for kind in operator.QUERIES:
        if not kind.startswith("ASA_"):
            wire.looks({"type": kind})
    assert wire.asked["GET_STATE"] and wire.refused and sum(wire.asked.values()) > 50


# ---------------------------------------------------------------------- hostile


FILTERS = {"refuse_seconds": 1}
EXECUTOR = {"executor_id": identity("e"), "agent_id": identity("M-S1")}
TASK = {"task_id": identity("t"), "agent_id": identity("M-S1")}
STATUS = TASK | {"state": "TASK_RUNNING", "uuid": uuid(7), "container_status": {}, "timestamp": 1.0}
INFO = {"user": "me", "name": "x", "id": identity("M-0001"), "capabilities": [AWARE], "failover_timeout": 9}
OPERATIONS: list[Message] = [
    launch(task_info("n", "M-S1", executor=executor_info("e")), task_info("c", "M-S1", limits={"cpus": {"value": 2}})),
    launch(task_info("u", "M-S1", executor=executor_info("g"))),
]
CALLS = [
    message("ACCEPT", offer_ids=[identity("M-O1")], operations=OPERATIONS, filters=FILTERS),
    message("DECLINE", offer_ids=[identity("M-O1")], filters=FILTERS),
    message("REVIVE", roles=["*"]),
    message("SUPPRESS", roles=["*"]),
    message("KILL", **TASK, kill_policy={"grace_period": {"nanoseconds": 5}}),
    message("SHUTDOWN", **EXECUTOR),
    message("ACKNOWLEDGE", **TASK, uuid=uuid(1)),
    message("ACKNOWLEDGE_OPERATION_STATUS", operation_id=identity("r"), uuid=uuid(1)),
    message("RECONCILE", tasks=[TASK]),
    message("MESSAGE", **EXECUTOR, data="aGk="),
    message("REQUEST", requests=[]),
    message("UPDATE_FRAMEWORK", framework_info=INFO, suppressed_roles=[]),
    message("TEARDOWN"),
]
CHANGES = [
    message("TEARDOWN", framework_id=identity("M-0001")),
    message("MARK_AGENT_GONE", agent_id=identity("M-S2")),
    message("DRAIN_AGENT", agent_id=identity("M-S1"), max_grace_period="5s", mark_gone=True),
    message("DEACTIVATE_AGENT", agent_id=identity("M-S1")),
    message("REACTIVATE_AGENT", agent_id=identity("M-S1")),
    message("UPDATE_QUOTA", quota_configs=[{"role": "a", "limits": {"cpus": {"value": 1.0}}}], force=True),
]
ITEMS = [
    message("UPDATE", framework_id=identity("M-0001"), status=STATUS, latest_state="TASK_FINISHED"),
    message("EXITED_EXECUTOR", framework_id=identity("M-0001"), executor_id=identity("e"), status=9),
    message("MESSAGE", framework_id=identity("M-0001"), executor_id=identity("e"), data="aGk="),
    message("UNREGISTER", reason="x"),
    message("PONG"),
]
REPORTED = TASK | {
    "framework_id": identity("M-0001"),
    "name": "t",
    "resources": to_json(scalars(cpus=1), "*"),
    "state": "TASK_RUNNING",
    "statuses": [STATUS],
    "status_update_uuid": uuid(7),
    "task_info": task_info("t", "M-S1", executor=executor_info("e")),
    "executor_id": identity("e"),
}
REGISTER = message(
    "REGISTER",
    agent_info={"hostname": "n", "port": 1, "id": identity("M-S1"), "resources": to_json(scalars(cpus=4))},
    version="1.11.0",
    ip="10.0.0.1",
    frameworks=[INFO, INFO | {"id": identity("F9"), "roles": ["a"]}],
    executors=[{"framework_id": identity("F9"), "executor_info": executor_info("e")}],
    tasks=[REPORTED, REPORTED | {"framework_id": identity("F9")}],
    unavailability={"start": {"nanoseconds": 5}},
)
SUBSCRIBE = {"type": "SUBSCRIBE", "framework_id": identity("M-0001"), "subscribe": {"framework_info": INFO}}
GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "*", "..", "Infinity", "-1", "TASK_LOST", "a b", "M-S1", "M-0001", "DEFAULT", "x" * 300]),
    st.sampled_from([1e308, -1, 10**400, -(10**400), "1e999", "9" * 5000, [[[[[]]]]]]),
    st.sampled_from([[], {}, [[]], [{}], {"value": {}}, {"value": "x"}, {"value": 1e300}, [None], {"type": "SET"}]),
)


def paths(value: Any) -> list[list[Any]]:
    """Where one can change something."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[]] + [[key, *path] for key, item in inner for path in paths(item)]


def changed(draw: st.DrawFn, original: Message) -> Any:
    """The message, a few things in it replaced by garbage or left out."""
    found: Any = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(found)))
        if not path or path == ["type"]:
            continue
        holder = found
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[path[-1]] = copy.deepcopy(draw(GARBAGE))
        else:
            del holder[path[-1]]
    return found


@st.composite
def things(draw: st.DrawFn) -> tuple[str, Message]:
    kind, choices = draw(
        st.sampled_from(
            [
                ("call", CALLS),
                ("item", ITEMS),
                ("change", CHANGES),
                ("register", [REGISTER]),
                ("subscribe", [SUBSCRIBE]),
            ]
        )
    )
    return kind, changed(draw, draw(st.sampled_from(choices)))


def small_pool() -> World:
    found = World(user="me", strict=False)  # what agents say wrongly is passed on
    found.agent(), found.agent()
    found.subscribe()
    found.start("M-0001", task_info("t", "M-S1"), refuse_s=0)
    return found


@settings(max_examples=400, deadline=None)
@given(st.lists(things(), min_size=1, max_size=4))
def test_nothing_breaks_the_machine(sent: list[tuple[str, Message]]) -> None:
    pool = small_pool()
    master = pool.master
    for kind, thing in sent:
        framework = master.state.frameworks.get("M-0001")
        problem: Exception | None = None
        try:
            if kind == "call":
                call = {"framework_id": identity("M-0001")} | thing
                effects = master.call(call, "p", framework and framework.stream, pool.now)
            elif kind == "item":
                effects, problem = master.from_agent(pool.stream_of["M-S1"], [thing], pool.now)
            elif kind == "change":
                _, effects = master.operate(thing, pool.now)
            elif kind == "register":
                pool.stream_of["M-S1"] = pool.stream()
                effects = master.register(thing, pool.stream_of["M-S1"], pool.now)
            else:
                effects = master.subscribe(thing, "p", pool.stream(), pool.now)
        except HTTPError as error:
            effects, problem = master.core.take_effects(), error
        if problem is not None:
            assert isinstance(problem, HTTPError), problem
            assert (effects, master.core.dirty, master.core.emptied) == ([], set(), set())
        for effect in effects:
            if isinstance(effect, Send):
                encode(effect.message)
        pool.do(effects)
        assert master.core.usage == RoleUsage.of(master.state)
    pool.sleep(200)
    again = Master("M", pool.options, pool.now, pool.rows()).state
    assert again.frameworks.keys() == master.state.frameworks.keys()
    assert master.operate({"type": "GET_STATE"}, pool.now)[0]
