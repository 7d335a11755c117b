"""Whatever an agent is sent, it stays sound, and refuses what is no message."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message, decode, encode
from executors.mesos.messages import base64_of, identity, message, task_status
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.agent.conftest import Node
from tests.mutation import changed

F, E = identity("F1"), identity("e1")
COMMAND = {"value": "echo", "user": "me"}
EXECUTOR = {"executor_id": E, "framework_id": F, "command": COMMAND, "resources": to_json(scalars(cpus=0.1), "*")}
TASK = {
    "name": "t",
    "task_id": identity("t1"),
    "agent_id": identity("S1"),
    "resources": to_json(scalars(cpus=1, mem=64), "*"),
    "kill_policy": {"grace_period": {"nanoseconds": 5}},
}
INFO = {"id": F, "name": "f", "user": "me", "capabilities": [{"type": "PARTITION_AWARE"}], "labels": {"labels": []}}
STATUS = task_status("t2", "TASK_RUNNING", 5.0, source="SOURCE_EXECUTOR", uuid=b"0" * 16)
BY_MASTER = [
    message("RUN", framework_info=INFO, tasks=[TASK | {"command": COMMAND}]),
    message("RUN", framework_info=INFO, tasks=[TASK | {"executor": EXECUTOR}], executor_info=EXECUTOR),
    message("KILL", framework_id=F, task_id=identity("t1"), kill_policy={"grace_period": {"nanoseconds": 5}}),
    message("ACKNOWLEDGE", framework_id=F, task_id=identity("t1"), uuid=base64_of(b"0" * 16)),
    message("FRAMEWORK", framework_info=INFO),
    message("SHUTDOWN_FRAMEWORK", framework_id=F),
    message("MESSAGE", framework_id=F, executor_id=E, data="aGk="),
    message("REGISTERED", agent_id=identity("S1"), ping_s=15.0, pings=5),
    message("PING"),
]
BY_EXECUTOR = [
    {"executor_id": E, "framework_id": F} | message("UPDATE", status=STATUS),
    {"executor_id": E, "framework_id": F} | message("MESSAGE", data="aGk="),
]
BY_OPERATOR = [
    message("ASA_UPDATE_LIMITS", container_id=identity("c"), limits={"cpus": {"value": 1.0}}, lease_seconds=5.0),
    message("ASA_HOLD_MEMORY", container_id=identity("c"), memory_bytes=1 << 30),
    message("ASA_SIGNAL_CONTAINER", container_id=identity("c"), signal="USR1"),
    message("GET_STATE"),
    message("GET_CONTAINERS"),
]


def attempt(node: Node, rng: random.Random, count: int) -> None:
    for _ in range(count):
        by = rng.choice((BY_MASTER, BY_MASTER, BY_EXECUTOR, BY_OPERATOR))
        try:
            sent: Message = decode(encode(changed(rng.choice(by), rng)))
        except (BadMessage, ValueError):  # a number that JSON does not have
            continue
        try:
            if by is BY_MASTER:
                node.do(node.agent.from_master(sent, node.now))
            elif by is BY_EXECUTOR:
                node.do(node.agent.call(sent, node.now))
            else:
                answer, effects = node.agent.operate(sent, lambda _: None, node.now)
                encode(answer or {})
                node.do(effects)
        except HTTPError:
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {str(sent)[:3000]}") from error
    answer, _ = node.agent.operate(message("GET_STATE"), lambda _: None, node.now)
    encode(answer or {})
    node.restart()


def story(rng: random.Random, count: int = 10) -> None:
    node = Node()
    node.register()
    node.run(TASK | {"command": COMMAND})
    node.run(TASK | {"task_id": identity("t2"), "executor": EXECUTOR}, executor=EXECUTOR)
    attempt(node, rng, count)


@settings(max_examples=200)
@given(st.randoms(use_true_random=True))
def test_nothing_breaks_the_machine(rng: random.Random) -> None:
    story(rng)


@pytest.mark.slow
def test_a_hundred_thousand_messages_do_not_break_the_machine() -> None:
    deadline = time.monotonic() + 300.0
    for seed in range(10_000):
        if time.monotonic() < deadline:
            story(random.Random(seed))
