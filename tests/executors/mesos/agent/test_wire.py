"""Whatever the API lets operators ask, what the agent answers is what the API lets it say."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from asa.web.errors import HTTPError
from executors.mesos.agent.api import VIEWS
from executors.mesos.codec import BadMessage, decode, encode
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.oracle import API, check, made


def test_what_an_agent_answers(new_node: Any, task: Any, executor: Any) -> None:
    node, rng, answered = new_node(), random.Random(1), Counter[str]()
    node.register()
    node.run(task("t1"), task("t2"))
    node.run(task("t3", resources=to_json(scalars(cpus=1), "*")), executor=executor("e1"))
    for owner in ("t1", "t2", "e1"):
        node.start(owner)
    node.exit("t2")
    kinds = sorted({*API.enums["agent.Call.Type"], *VIEWS})
    for kind in kinds * 10:
        payload = API.messages["agent.Call"].get(kind.lower())
        words = ("t1", "e1", *node.agent.state.instances)
        call = {"type": kind} | ({} if payload is None else {kind.lower(): made(payload.type, rng, words)})
        try:
            answer, effects = node.agent.operate(call, lambda container: None, node.now)
        except (HTTPError, BadMessage):
            continue
        node.do(effects)
        if answer is not None:
            check("agent.Response", decode(encode(answer)))
            answered[kind] += 1
    assert set(VIEWS) | {"GET_CONTAINERS"} <= answered.keys()
