"""What the framework makes of tasks that nobody wants any more."""

from __future__ import annotations

from executors.mesos.framework import Framework, Kill, NodeProgram
from tests.executors.mesos.test_framework import TRUE, gang, offer, outcomes, tasks, tell


def test_a_crew_that_is_withdrawn() -> None:
    framework = Framework()
    framework.add_program(NodeProgram("nodes", lambda offer: TRUE, {"of": "nodes"}), 0.0)
    framework.add_program(NodeProgram("others", lambda offer: TRUE, {"of": "others"}), 0.0)
    launched = tasks(framework.offers([offer("a", of="nodes"), offer("b", of="others")], 0.0))
    assert len(launched) == 2
    calls = framework.withdraw("others", 0.0)
    assert [call for call in calls if isinstance(call, Kill)] == [
        Kill(task, agent) for task, agent in launched.items() if agent == "b"
    ]
    assert tasks(framework.offers([offer("c", of="others")], 0.0)).keys() & launched.keys() == set()
    framework.withdraw("nobody's", 0.0)


def test_what_has_ended_is_over_whatever_is_told_later() -> None:
    framework = Framework()
    framework.gang(gang(), 0.0)
    launched = tasks(framework.offers([offer("a"), offer("b")], 0.0))
    tell(framework, launched, "TASK_RUNNING")
    first = dict([next(iter(launched.items()))])
    tell(framework, first, "TASK_FINISHED")
    assert tell(framework, first, "TASK_FAILED") == tell(framework, first, "TASK_RUNNING") == []
    assert outcomes(framework) == [("g", "started")]
