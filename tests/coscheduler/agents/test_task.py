from __future__ import annotations

import math

import pytest

from asa.core.units import MIB
from coscheduler.agents.containers import command_task, need_of
from coscheduler.real.machine import ContainerProgram, SharedNode
from executors.mesos.agent.state import TaskShare
from executors.mesos.agent.task_info import argv, share
from executors.mesos.framework import parse_offer
from executors.mesos.resources import LEAST_CPUS
from tests.coscheduler.agents.test_offers import offer
from tests.executors.mesos.oracle import check

NODE = SharedNode("a", 4, 1 << 30)


def test_parts_that_fill_a_node_are_never_counted_as_more_than_it_has() -> None:
    thirds = [need_of(SharedNode("a", 1, 1 << 30), 1 / 3, 1.0).cpus] * 3
    assert 0.99 < sum(thirds) <= 1.0
    assert need_of(NODE, 0.3, 4.0).cpus == 0.3, "rounding down is not for what cannot be written exactly"


def test_a_little_is_counted_of_the_smallest() -> None:
    assert need_of(SharedNode("a", 1, MIB, speed=0.1), 0.05, 1.0) == (LEAST_CPUS, MIB, 0)


@pytest.mark.parametrize(("limit", "cores"), [(1.5, 1.5), (math.inf, math.inf), (None, math.inf)])
def test_an_agent_understands_the_task(limit: float | None, cores: float) -> None:
    there = parse_offer(offer("O1", "A"), 1.0)
    taken = need_of(NODE, 0.5, 4.0).of(there.resources)
    assert taken is not None
    info = command_task("job.1.0", there, ContainerProgram(("/bin/sh", "-c", "exit"), {"ASA_RANK": "0"}), taken, limit)
    check("TaskInfo", info)
    assert share(info, quotas=True) == TaskShare(0.5, cores, math.inf)
    assert argv(info["command"]) == ("/bin/sh", "-c", "exit")
    assert info["command"]["environment"]["variables"] == [{"name": "ASA_RANK", "value": "0"}]
