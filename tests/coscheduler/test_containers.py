"""Offers, and containers launched with them."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.core.units import MIB
from coscheduler.agents.containers import (
    PATIENCE_S,
    AgentContainers,
    HoldCall,
    Offers,
    ShareCall,
    SignalCall,
    command_task,
    need_of,
)
from coscheduler.real.machine import ContainerEnded, ContainerEvent, ContainerProgram, ContainerStarted, SharedNode
from executors.mesos.agent.state import TaskShare
from executors.mesos.agent.task_info import argv, share
from executors.mesos.agent.tasks import exit_text
from executors.mesos.codec import BadMessage, Message
from executors.mesos.framework import Accept, Kill, Reconcile, TaskNeed, parse_offer
from executors.mesos.messages import identity
from executors.mesos.resources import LEAST_CPUS, scalars, to_json
from tests.executors.mesos.oracle import check


def offer(name: str, agent: str, cpus: float = 4.0, mem: float = 1024.0, **more: Any) -> Message:
    """An offer message; the hostname is the agent's name in small letters."""
    found = {"id": identity(name), "agent_id": identity(agent), "hostname": agent.lower()}
    return found | {"resources": to_json(scalars(cpus=cpus, mem=mem), "cosched")} | more


def scalar(name: str, value: float) -> Message:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def test_a_node_that_was_offered_in_part() -> None:
    """What an agent's earlier containers had is offered once these have ended."""
    offers = Offers()
    capacity = {"attributes": [scalar("capacity", 1.0)]}
    offers.offered(offer("O1", "A", cpus=2.2, mem=512.0, **capacity), 1.0)
    assert [node.cores for node in offers.nodes] == [2]
    offers.offered(offer("O2", "A", cpus=1.8, mem=512.0, **capacity), 2.0)
    assert offers.nodes == (SharedNode("a", 4, 1 << 30, 0.25),)


def test_a_node_is_what_its_agent_offers_first() -> None:
    offers = Offers()
    offers.offered(offer("O1", "B", cpus=2.5), 1.0)
    offers.offered(offer("O2", "A", attributes=[scalar("capacity", 1.0)]), 1.0)
    first = (SharedNode("a", 4, 1 << 30, 0.25), SharedNode("b", 2, 1 << 30))
    assert offers.nodes == first
    offers.spent(offers.look("B"))  # type: ignore[arg-type]
    offers.offered(offer("O3", "B", cpus=0.5), 2.0)
    assert offers.nodes == first
    assert offers.find("b") == ("B", first[1])
    assert offers.find("c") is None


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_capacity_that_makes_no_sense_is_passed_over(value: float) -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", attributes=[scalar("capacity", value)]), 1.0)
    assert offers.nodes[0].speed == 1.0


def test_agents_of_one_host_have_names_of_their_own() -> None:
    offers = Offers()
    for number in range(3):
        offers.offered(offer(f"O{number}", f"S{number}", hostname="host"), 1.0)
    assert [node.name for node in offers.nodes] == ["host", "host-2", "host-3"]
    offers.lost("S1")
    offers.offered(offer("O9", "S9", hostname="host"), 2.0)
    assert offers.find("host-2") == ("S9", SharedNode("host-2", 4, 1 << 30))


def test_an_agent_without_a_whole_core_is_no_node_until_it_offers_one() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", cpus=0.6), 1.0)
    assert offers.nodes == ()
    offers.offered(offer("O2", "A", cpus=0.6, mem=0.0), 2.0)
    assert offers.nodes == (SharedNode("a", 1, 1 << 30),)


def test_offers_of_an_agent_are_one_from_which_parts_are_taken() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A", cpus=1.0, mem=100.0), 1.0)
    offers.offered(offer("O2", "A", cpus=1.0, mem=50.0), 2.0)
    there = offers.look("A")
    assert there is not None
    assert there.ids == ("O1", "O2")
    assert there.take(TaskNeed(1.5, 120 * MIB)) is not None
    assert there.take(TaskNeed(0.6)) is None, "there is half a core left"
    assert there.take(TaskNeed(0.5, 30 * MIB)) is not None
    offers.spent(there)
    assert offers.look("A") is None


def test_void_offers_are_forgotten_and_nodes_stay_until_they_are_lost() -> None:
    offers = Offers()
    offers.offered(offer("O1", "A"), 1.0)
    offers.offered(offer("O2", "A"), 1.0)
    offers.rescinded("O1")
    there = offers.look("A")
    assert there is not None
    assert there.ids == ("O2",)
    offers.void()
    assert offers.look("A") is None
    assert len(offers.nodes) == 1
    offers.lost("A")
    assert offers.nodes == ()


def test_a_message_that_is_no_offer_is_refused() -> None:
    with pytest.raises(BadMessage, match="agent_id"):
        Offers().offered({"id": identity("O1"), "resources": []}, 1.0)


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


PROGRAM = ContainerProgram(("/bin/true",), {})


def status(name: str, state: str, **more: Any) -> Message:
    return {"task_id": identity(name), "agent_id": identity("A"), "state": f"TASK_{state}"} | more


def runs(name: str) -> Message:
    return status(name, "RUNNING", container_status={"container_id": identity(f"id-{name}")})


def told(containers: AgentContainers) -> list[ContainerEvent]:
    found, containers.news = containers.news, []
    return found


@pytest.fixture
def containers() -> AgentContainers:
    """One agent, A, that offers four cores worth two of the processor as node a."""
    found = AgentContainers()
    assert found.offered([offer("O1", "A", attributes=[scalar("capacity", 2.0)])], 0.0) == []
    return found


def start(
    containers: AgentContainers, name: str, request: float = 1.0, limit: float = 4.0, now: float = 1.0
) -> list[Any]:
    return containers.start(name, "a", PROGRAM, request, limit, now=now)


def running(containers: AgentContainers, name: str, request: float = 1.0, limit: float = 4.0) -> None:
    start(containers, name, request, limit)
    containers.update(runs(name))
    assert told(containers) == [ContainerStarted(name)]


def test_one_is_launched_on_what_its_node_offers(containers: AgentContainers) -> None:
    (accept,) = start(containers, "c", request=1.0, limit=2.0)
    assert isinstance(accept, Accept)
    assert accept.offers == ("O1",)
    (info,) = accept.tasks
    assert info["limits"] == {"cpus": {"value": 1.0}, "mem": {"value": "Infinity"}}
    assert [item["scalar"]["value"] for item in info["resources"]] == [0.5, 10.0], "in cores of the processor"
    assert containers.update(runs("c")) == []
    assert containers.update(runs("c")) == [], "it is told again"
    assert told(containers) == [ContainerStarted("c")]
    assert containers.running() == {"c": "A"}


def test_the_cores_of_the_node_are_no_limit(containers: AgentContainers) -> None:
    (accept,) = start(containers, "c", limit=4.0)
    assert accept.tasks[0]["limits"]["cpus"] == {"value": "Infinity"}


def test_those_that_wait_for_the_rest_of_an_offer_are_launched_together(containers: AgentContainers) -> None:
    start(containers, "first")
    assert start(containers, "second", 1.5) == start(containers, "third", 2.0) == start(containers, "large", 4.0) == []
    (accept,) = containers.offered([offer("O2", "A", cpus=1.9)], 2.0)
    assert [info["name"] for info in accept.tasks] == ["second", "third"]
    assert containers.offered([offer("O3", "A", cpus=0.1)], 3.0) == []


def test_one_that_is_offered_nothing_ends_in_time(containers: AgentContainers) -> None:
    start(containers, "first")
    start(containers, "second", now=5.0)
    assert containers.due() == 5.0 + PATIENCE_S
    containers.wake(4.9 + PATIENCE_S)
    assert told(containers) == []
    containers.wake(5.0 + PATIENCE_S)
    (ended,) = told(containers)
    assert isinstance(ended, ContainerEnded)
    assert ended.container == "second"
    assert "did not offer 1 cores" in ended.problem
    assert not ended.lost
    assert containers.due() == math.inf


def test_one_whose_offer_was_rescinded_on_the_way_is_launched_again(containers: AgentContainers) -> None:
    start(containers, "c")
    assert containers.update(status("c", "DROPPED", reason="REASON_INVALID_OFFERS")) == []
    (accept,) = containers.offered([offer("O2", "A")], 2.0)
    assert accept.offers == ("O2",)
    assert told(containers) == []


@pytest.mark.parametrize(
    ("state", "more", "problem", "lost"),
    [
        ("FINISHED", {}, "", False),
        ("FAILED", {"message": "Command exited with status 1"}, "Command exited with status 1", False),
        ("ERROR", {}, "TASK_ERROR", False),
        ("KILLED", {"message": "killed by hand"}, "killed by hand", False),
        ("KILLED", {"message": "ends", "reason": "REASON_AGENT_DRAINING"}, "or its agent was lost: ends", True),
        ("UNREACHABLE", {}, "or its agent was lost", True),
        ("DROPPED", {}, "or its agent was lost", True),
        ("GONE_BY_OPERATOR", {}, "or its agent was lost", True),
    ],
)
def test_how_one_ends(containers: AgentContainers, state: str, more: dict[str, str], problem: str, lost: bool) -> None:
    running(containers, "c")
    containers.update(status("c", state, **more))
    (ended,) = told(containers)
    assert ended == ContainerEnded("c", ended.problem, lost)  # type: ignore[union-attr]
    assert ended.problem.endswith(problem) if not lost else problem in ended.problem  # type: ignore[union-attr]
    containers.update(status("c", state, **more))
    assert told(containers) == []
    assert containers.left() == []


@pytest.mark.parametrize(("code", "killed"), [(-signal.SIGKILL, True), (-signal.SIGTERM, False), (1, False)])
def test_a_killed_container_is_known_by_its_message(containers: AgentContainers, code: int, killed: bool) -> None:
    running(containers, "c")
    containers.update(status("c", "FAILED", message=exit_text(code)))
    assert told(containers) == [ContainerEnded("c", exit_text(code), killed=killed)]


def test_one_that_was_stopped_may_have_lost_its_node(containers: AgentContainers) -> None:
    running(containers, "c")
    containers.stop("c")
    containers.update(status("c", "UNREACHABLE"))
    (ended,) = told(containers)
    assert isinstance(ended, ContainerEnded) and ended.lost


@pytest.mark.parametrize("state", ["KILLED", "FAILED"])
def test_one_that_was_stopped_has_no_problem(containers: AgentContainers, state: str) -> None:
    running(containers, "c")
    assert containers.stop("c") == [Kill("c", "A")]
    containers.update(status("c", state, message="Command terminated with signal Killed"))
    assert told(containers) == [ContainerEnded("c")]
    assert containers.stop("c") == []


def test_what_is_said_before_it_runs_or_after_it_has_ended_changes_nothing(containers: AgentContainers) -> None:
    (accept,) = start(containers, "c")
    assert containers.update(status("c", "STARTING")) == []
    assert told(containers) == []
    containers.update(status("c", "FINISHED"))
    containers.refused({"accept": {"operations": [{"launch": {"task_infos": list(accept.tasks)}}]}}, "late")
    assert told(containers) == [ContainerEnded("c")]


def test_one_that_waits_is_stopped_at_once(containers: AgentContainers) -> None:
    start(containers, "first")
    start(containers, "c")
    assert containers.stop("c") == []
    assert told(containers) == [ContainerEnded("c")]
    assert containers.offered([offer("O2", "A")], 2.0) == []


def test_all_on_an_agent_that_is_lost_end_and_its_node_is_gone(containers: AgentContainers) -> None:
    containers.offered([offer("O9", "B")], 0.0)
    running(containers, "runs")
    start(containers, "waits")
    containers.start("elsewhere", "b", PROGRAM, 1.0, 4.0, now=1.0)
    containers.lost("A")
    problem = "node 'a' was lost"
    assert told(containers) == [ContainerEnded("runs", problem, True), ContainerEnded("waits", problem, True)]
    assert [node.name for node in containers.offers.nodes] == ["b"]
    start(containers, "late")
    assert told(containers) == [ContainerEnded("late", "node 'a' is not there any more", True)]


def test_one_that_comes_back_with_its_agent_is_killed(containers: AgentContainers) -> None:
    running(containers, "c")
    containers.lost("A")
    assert containers.update(runs("c")) == [Kill("c", "A")]
    assert containers.update(status("c", "UNREACHABLE")) == []


def test_shares_are_sent_in_cores_of_the_processor(containers: AgentContainers) -> None:
    running(containers, "c")
    assert containers.share("c", 2.0, 3.0, 7.0) == [ShareCall("A", "id-c", 1.0, 1.5, 7.0)]
    assert containers.share("c", 0.001, 4.0, None) == [ShareCall("A", "id-c", 0.01, math.inf, None)]


def test_shares_are_sent_once_the_container_runs(containers: AgentContainers) -> None:
    """Those that count by then: what is for good ends a lease, and the last lease ends those before it."""
    start(containers, "c")
    for request, until in ((4.0, 5.0), (4.0, None), (2.0, None), (0.5, 7.0), (1.0, 9.0)):
        assert containers.share("c", request, 4.0, until) == []
    assert containers.update(runs("c")) == [
        ShareCall("A", "id-c", 1.0, math.inf, None),
        ShareCall("A", "id-c", 0.5, math.inf, 9.0),
    ]


def test_memory_is_held_and_signals_are_sent_while_a_container_runs(containers: AgentContainers) -> None:
    start(containers, "c")
    assert containers.hold_memory("c", 7, 5.0) == containers.signal("c", "USR1") == []
    containers.update(runs("c"))
    assert containers.hold_memory("c", 7, 5.0) == [HoldCall("A", "id-c", 7, 5.0)]
    assert containers.signal("c", "USR1") == [SignalCall("A", "id-c", "USR1")]
    containers.update(status("c", "FINISHED"))
    assert containers.hold_memory("c", None, None) == containers.signal("c", "USR1") == []


def test_one_with_a_limit_below_its_request_has_its_weight_once_it_runs(containers: AgentContainers) -> None:
    (accept,) = start(containers, "c", request=3.0, limit=1.0)
    assert accept.tasks[0]["resources"][0]["scalar"]["value"] == 0.5, "masters take no request above the limit"
    assert containers.update(runs("c")) == [ShareCall("A", "id-c", 1.5, None, None)]


def test_the_share_of_one_that_has_ended_is_nothing_and_of_one_that_never_was_is_refused(
    containers: AgentContainers,
) -> None:
    running(containers, "c")
    containers.update(status("c", "FINISHED"))
    assert containers.share("c", 1.0, 4.0, None) == []
    with pytest.raises(InvalidInput, match="no container 'd'"):
        containers.share("d", 1.0, 4.0, None)


@pytest.mark.parametrize(("request_", "limit"), [(0.0, 1.0), (4.1, 4.0), (1.0, 0.0), (math.nan, 1.0)])
def test_requests_and_limits_out_of_range_are_refused(
    containers: AgentContainers, request_: float, limit: float
) -> None:
    with pytest.raises(InvalidInput, match="at most the 4 cores of node 'a'"):
        start(containers, "c", request_, limit)


def test_a_name_is_used_once(containers: AgentContainers) -> None:
    running(containers, "c")
    with pytest.raises(InvalidInput, match="'c' was started before"):
        start(containers, "c")
    containers.update(status("c", "FINISHED"))
    with pytest.raises(InvalidInput, match="'c' was started before"):
        start(containers, "c")


def test_a_master_that_is_back_gets_kills_and_reconciles(containers: AgentContainers) -> None:
    running(containers, "c")
    containers.offered([offer("O2", "A")], 2.0)
    running(containers, "stopped")
    containers.stop("stopped")
    containers.offered([offer("O3", "A")], 3.0)
    assert containers.subscribed() == [Kill("stopped", "A"), Reconcile((("c", "A"), ("stopped", "A")))]
    assert containers.offers.look("A") is None
    assert start(containers, "waits") == []


def test_one_that_was_launched_without_a_master_is_asked_after_until_that_answers(containers: AgentContainers) -> None:
    start(containers, "c")
    ask = Reconcile((("c", "A"),))
    assert containers.subscribed() == [ask]
    assert containers.offered([offer("O2", "B", hostname="b")], 2.0) == []
    assert containers.offered([offer("O3", "A")], 3.0) == [ask], "the agent is back, and the master knows what it has"
    containers.update(status("c", "GONE"))
    assert [(item.container, item.lost) for item in told(containers) if isinstance(item, ContainerEnded)] == [
        ("c", True)
    ]
    assert containers.offered([offer("O4", "A")], 4.0) == []


def test_what_the_master_refuses_was_not_launched(containers: AgentContainers) -> None:
    (accept,) = start(containers, "c")
    operations = [{"type": "LAUNCH", "launch": {"task_infos": list(accept.tasks)}}]
    containers.refused({"type": "ACCEPT", "accept": {"operations": operations}}, "no (400)")
    containers.refused({"type": "KILL", "kill": {"task_id": identity("c")}}, "no (400)")
    assert told(containers) == [ContainerEnded("c", "the master has refused it: no (400)")]


def test_without_a_framework_nothing_is_left(containers: AgentContainers) -> None:
    running(containers, "c")
    containers.over("it was torn down")
    assert told(containers) == [ContainerEnded("c", "it was torn down", True)]
    assert containers.offers.nodes == ()
