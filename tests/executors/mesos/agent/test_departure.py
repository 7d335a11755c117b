"""What an agent does when its allocation ends."""

from __future__ import annotations

import math

import pytest

from executors.mesos.agent.state import StopContainer


def test_everything_is_stopped_before_the_allocation_ends(new_node, task):
    node = new_node(ends=5000.0)
    assert node.agent.due() == 5000.0 - 15.0, "5 s to end, and 10 s to be heard"
    node.register()
    node.run(task("t1"))
    node.start("t1")
    node.acknowledge("t1")
    node.wake(4984.9)
    assert node.stops == []
    node.wake(4985.0)
    assert node.stops == [StopContainer(node.container("t1").id, 5.0)]
    node.run(task("t2"))
    node.exit("t1", -15)
    assert node.updates()[-2:] == [("t2", "TASK_LOST"), ("t1", "TASK_KILLED")]
    assert node.last["reason"] == "REASON_AGENT_DRAINING" and "allocation ends" in node.last["message"]
    assert node.code is None
    node.acknowledge("t2")
    node.acknowledge("t1")
    assert node.ups[-1]["type"] == "UNREGISTER" and node.code == 0


def test_it_does_not_wait_for_acknowledgements_beyond_the_end(new_node, task):
    node = new_node(ends=5000.0)
    node.register()
    node.run(task("t1"))
    node.wake(4999.0)
    node.exit("t1", -9)
    assert node.code == 0 and node.now < 5000


@pytest.mark.parametrize(("margin_s", "begins"), [(60.0, 4940.0), (2.0, 4998.0), (None, math.inf)])
def test_the_margin_is_to_choose(new_node, task, margin_s, begins):
    node = new_node(ends=5000.0, margin_s=margin_s)
    assert node.agent.due() == begins
    node.register()
    node.run(task("t1"))
    node.start("t1")
    node.acknowledge("t1")
    node.wake(min(begins, 6000.0))
    assert bool(node.stops) == (margin_s is not None) and node.code is None
    node.exit("t1", 0)
    assert node.updates()[-1] == ("t1", "TASK_KILLED" if margin_s else "TASK_FINISHED")
    node.acknowledge("t1")
    assert node.code == (0 if margin_s else None)
