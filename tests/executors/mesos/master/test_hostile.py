"""Whatever anybody sends, the machine refuses it or carries it out, and what it knows stays sound."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.codec import Message, encode
from executors.mesos.effects import Send
from executors.mesos.master.allocator import RoleUsage
from executors.mesos.master.machine import Master
from executors.mesos.messages import identity, message
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.master.world import AWARE, World, executor_info, launch, task_info, uuid

FILTERS = {"refuse_seconds": 1}
EXECUTOR = {"executor_id": identity("e"), "agent_id": identity("M-S1")}
TASK = {"task_id": identity("t"), "agent_id": identity("M-S1")}
GROUP = {"executor": executor_info("g"), "task_group": {"tasks": [task_info("u", "M-S1")]}}
STATUS = TASK | {"state": "TASK_RUNNING", "uuid": uuid(7), "container_status": {}, "timestamp": 1.0}
INFO = {"user": "me", "name": "x", "id": identity("M-0001"), "capabilities": [AWARE], "failover_timeout": 9}
OPERATIONS: list[Message] = [
    launch(task_info("n", "M-S1", executor=executor_info("e")), task_info("c", "M-S1", limits={"cpus": {"value": 2}})),
    {"type": "LAUNCH_GROUP", "launch_group": GROUP},
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
ITEMS = [
    message("UPDATE", framework_id=identity("M-0001"), status=STATUS, latest_state="TASK_FINISHED"),
    message("EXITED_EXECUTOR", framework_id=identity("M-0001"), executor_id=identity("e"), status=9),
    message("MESSAGE", framework_id=identity("M-0001"), executor_id=identity("e"), data="aGk="),
    message("UNAVAILABLE", start={"nanoseconds": 5}, duration={"nanoseconds": 5}),
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
        st.sampled_from([("call", CALLS), ("item", ITEMS), ("register", [REGISTER]), ("subscribe", [SUBSCRIBE])])
    )
    return kind, changed(draw, draw(st.sampled_from(choices)))


def world() -> World:
    found = World(user="me", strict=False)  # what agents say wrongly is passed on
    found.agent(), found.agent()
    found.subscribe()
    found.start("M-0001", task_info("t", "M-S1"), refuse_s=0)
    return found


@settings(max_examples=400, deadline=None)
@given(st.lists(things(), min_size=1, max_size=4))
def test_nothing_breaks_the_machine(sent: list[tuple[str, Message]]) -> None:
    pool = world()
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
            elif kind == "register":
                pool.stream_of["M-S1"] = pool.stream()
                effects = master.register(thing, pool.stream_of["M-S1"], pool.now)
            else:
                effects = master.subscribe(thing, "p", pool.stream(), pool.now)
        except HTTPError as error:
            effects, problem = master.core.taken(), error
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
