"""The machine as a whole: registration, restarts, any order of events, what operators ask, and the master beside it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from asa.web.errors import HTTPError
from executors.mesos.agent.records import registration, restored
from executors.mesos.agent.state import (
    CONTAINER_TRANSITIONS,
    TASK_TRANSITIONS,
    AgentState,
    LimitCpu,
    StopContainer,
    ToMaster,
    WeighCpu,
)
from executors.mesos.codec import BadMessage, Message
from executors.mesos.effects import KeepRow
from executors.mesos.messages import TERMINAL, identity, message, value_of
from tests.core.diagrams import drawn

SHUTDOWNS = ("SHUTDOWN", "SHUTDOWN_EXECUTOR", "SHUTDOWN_FRAMEWORK")


def test_registers_with_its_attributes_and_its_allocations_end(new_node):
    node = new_node(ends=5000.0, attributes=[{"name": "job", "type": "TEXT", "text": {"value": "4711"}}])
    said = node.register("S7")
    assert said["agent_info"]["hostname"] == "n1" and "id" not in said["agent_info"]
    assert said["agent_info"]["attributes"][0]["text"]["value"] == "4711"
    assert said["unavailability"] == {"start": {"nanoseconds": 5_000_000_000_000}}
    assert (said["frameworks"], said["executors"], said["tasks"]) == ([], [], [])
    assert node.register("S7")["agent_info"]["id"] == identity("S7")
    node.restart()
    assert node.register("S7")["agent_info"]["id"] == identity("S7")


def test_registers_no_more_once_it_has_ended(node):
    node.do(node.agent.leave("done", node.now))
    assert node.agent.connected(node.now) == []


def test_registers_without_data_that_only_executors_read(new_node, task):
    node = new_node(ip="10.0.0.1")
    assert node.register()["ip"] == "10.0.0.1"
    node.run(task("t1", data="AAAA", labels={"labels": []}))
    (said,) = node.register()["tasks"]
    assert "data" not in said["task_info"] and said["labels"] == {"labels": []}


def test_registers_again_with_all_that_it_has(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.do(node.agent.disconnected(node.now))
    said = node.register()
    assert [item["id"]["value"] for item in said["frameworks"]] == ["F1"]
    assert [item["executor_info"]["executor_id"]["value"] for item in said["executors"]] == ["e1"]
    first, second = said["tasks"]
    assert (first["state"], second["state"]) == ("TASK_RUNNING", "TASK_STAGING")
    assert "executor_id" not in first and second["executor_id"] == identity("e1")
    assert first["status_update_uuid"] == node.agent.state.task("F1", "t1").pending[0]["uuid"]
    assert first["task_info"]["command"] == {"value": "true"}


def test_a_new_agent_waits_and_answers_pings(new_node):
    node = new_node()
    assert node.agent.recovered() == [] and node.agent.due() == float("inf") and node.agent.state.id is None
    assert node.agent.from_master(message("PING"), node.now) == [ToMaster({"type": "PONG"})]


def test_takes_no_tasks_before_it_has_an_id(new_node, task):
    node = new_node()
    node.run(task())
    assert not node.running


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    GARBAGE,
    st.sampled_from(
        ["framework_info", "executor_info", "tasks", "group", "framework_id", "task_id", "kill_policy", "uuid", "data"]
    ),
    st.sampled_from(["REGISTERED", "RUN", "KILL", "ACKNOWLEDGE", "MESSAGE", "FRAMEWORK", *SHUTDOWNS]),
)
def test_survives_whatever_the_master_sends(new_node, value: Any, name: str, kind: str):
    from_scratch, whole = new_node(), new_node()
    whole.register()
    from_scratch.do(from_scratch.agent.from_master({"type": kind, kind.lower(): value}, from_scratch.now))
    usual = {
        "framework_info": {"id": identity("F1"), "name": "f"},
        "executor_info": {"executor_id": identity("e1"), "command": {"value": "run"}, "resources": []},
        "tasks": [{"name": "t", "task_id": identity("t1"), "resources": [], "command": {"value": "true"}}],
        "framework_id": identity("F1"),
        "task_id": identity("t1"),
        "executor_id": identity("e1"),
        "uuid": "AAAA",
    }
    whole.do(whole.agent.from_master(message(kind, **usual | {name: value}), whole.now))
    if whole.code is None:
        whole.register()  # it can still register


CALLS = ["framework_id", "executor_id", "type", "subscribe", "update", "message", "container_id", "limits", "unknown"]


@given(GARBAGE, st.sampled_from(CALLS), st.sampled_from(["SUBSCRIBE", "UPDATE", "MESSAGE", "ASA_UPDATE_LIMITS"]))
def test_calls_are_carried_out_or_change_nothing(new_node, task, executor, value: Any, name: str, kind: str):
    node = new_node()
    node.register()
    node.run(task("t1"), executor=executor())
    node.subscribe()
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}
    ids = {"framework_id": identity("F1"), "executor_id": identity("e1")}
    limits = {"container_id": identity(node.container("e1").id), "limits": {"cpus": {"value": 1}}, "lease_seconds": 1}
    usual = ids | {"type": kind, "subscribe": {}, "update": {"status": status}, "message": {"data": "AAAA"}}
    for item in (usual | {name: value}, usual | {kind.lower(): {name: value}}, {"asa_update_limits": limits} | usual):
        for call in (
            lambda item=item: node.agent.subscribe(item, "s2", node.now),
            lambda item=item: node.agent.call(item, node.now),
            lambda item=item: node.agent.operate(item, lambda _: None, node.now)[1],
        ):
            try:
                node.sent.setdefault("s2", [])
                node.do(call())
            except (BadMessage, HTTPError):
                assert node.agent.closed("none", node.now) == []  # nothing was half done
    node.restart()
    node.register()


def test_an_id_that_is_no_part_of_a_path_is_not_taken(new_node):
    node = new_node()
    node.register("../S1")
    assert node.agent.state.id is None


@given(
    st.sampled_from(
        ["name", "resources", "command", "limits", "kill_policy", "labels", "max_completion_time", "container"]
    ),
    st.sampled_from(
        [
            0,
            "x",
            [],
            [[]],
            [{}],
            {},
            {"value": 5},
            {"grace_period": 5},
            {"nanoseconds": "x"},
            {"cpus": {"value": -1}},
            True,
        ]
    ),
    st.booleans(),
)
def test_refuses_tasks_that_make_no_sense_without_a_fault(new_node, name: str, value: Any, custom: bool):
    node = new_node()
    node.register()
    task = {"name": "t", "task_id": identity("t1"), "resources": [], "command": {"value": "true"}}
    if custom:
        executor = {"executor_id": identity("e1"), "command": {"value": "run"}, "resources": []}
        node.run(task, executor=executor | {name: value})
    else:
        node.run(task | {name: value})
    said = node.register()
    assert [item["task_id"]["value"] for item in said["tasks"]] == ["t1"]
    assert (node.updates()[:1] == [("t1", "TASK_ERROR")]) != bool(node.running)


def test_an_item_that_makes_no_sense_is_logged(node, caplog):
    node.heard("LAUNCH")
    node.do(node.agent.from_master({"type": ["RUN"]}, node.now))
    assert [record.msg for record in caplog.records] == ["a message of the master makes no sense: %s"] * 2


@pytest.mark.parametrize("call", [{}, {"type": "SUBSCRIBE"}, {"framework_id": "F1", "executor_id": "e1"}])
def test_refuses_calls_of_executors_that_make_no_sense(node, call):
    with pytest.raises(BadMessage):
        node.agent.subscribe(call, "s1", node.now)
    with pytest.raises(BadMessage):
        node.agent.call(call, node.now)


def test_refuses_executors_that_are_not_known(node, task, executor):
    with pytest.raises(HTTPError, match="Framework cannot be found") as refused:
        node.subscribe()
    assert refused.value.status == 400
    node.run(task(), executor=executor())
    with pytest.raises(HTTPError, match="Executor cannot be found"):
        node.subscribe("e2")
    with pytest.raises(HTTPError, match="not subscribed") as refused:
        node.call("HEARTBEAT")
    assert refused.value.status == 403
    assert node.journal


@pytest.mark.parametrize(
    ("title", "table"), [("Container", CONTAINER_TRANSITIONS), ("Task of a container", TASK_TRANSITIONS)]
)
def test_the_documentation_has_the_tables_as_they_are(title: str, table: Any) -> None:
    page = (Path(__file__).parents[4] / "docs" / "states.md").read_text()
    assert f"\n```mermaid\n{drawn(table)}\n```" in page[page.index(f"## {title}\n") :]


def test_each_transition_of_a_container_is_logged(node, task, caplog) -> None:
    with caplog.at_level(logging.INFO, "executors.mesos.agent"):
        node.run(task("t1"), task("t2"))
        first, second = (node.container(name).id for name in ("t1", "t2"))
        pid = node.start("t1")
        node.kill("t1")
        node.exit("t1", -15)
        node.exit("t2", None, "no such directory")
    assert [line for line in caplog.messages if line.startswith("container")] == [
        f"container {first}: starting: '/bin/sh' for t1",
        f"container {second}: starting: '/bin/sh' for t2",
        f"container {first}: starting -> running (started: process {pid})",
        f"container {first}: running -> stopping (asked to end: within 3 s)",
        f"container {first}: stopping -> ended (ended: its process terminated with signal Terminated)",
        f"container {second}: starting -> ended (ended: its process ended in an unknown way: no such directory)",
    ]


# ------------------------------------------------------- rows


def test_containers_that_still_run_go_on(node, task):
    node.run(task("t1"))
    pid = node.start("t1")
    container = node.container("t1").id
    node.acknowledge("t1")
    node.updates()
    node.restart()
    assert node.agent.recovered() == [(container, pid, pid + 7)]
    said = node.register()
    assert [item["state"] for item in said["tasks"]] == ["TASK_RUNNING"] and node.updates() == []
    assert node.stops == [] and list(node.running) == [container]
    node.exit("t1", 0)
    assert node.updates() == [("t1", "TASK_FINISHED")]


def test_containers_that_ended_meanwhile_are_reported(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    node.updates()
    node.restart()
    node.exit("t1", 3)
    node.exit("e1", None, "its exit status is not known")
    node.register()
    assert node.updates() == [("t1", "TASK_RUNNING"), ("t2", "TASK_FAILED")]
    node.acknowledge("t1")
    assert node.updates() == [("t1", "TASK_FAILED")]
    node.acknowledge("t1")
    node.acknowledge("t2")
    assert set(node.journal) == {("agent", "id")}


def test_a_container_that_was_being_started_has_failed(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.run(task("t3"))
    node.start("t3")
    node.updates()
    node.restart()
    assert [item[0] for item in node.agent.recovered()] == [node.container("t3").id]
    node.wake(node.now)  # it wants to be woken at once
    node.register()
    assert node.updates() == [("t1", "TASK_FAILED"), ("t2", "TASK_FAILED"), ("t3", "TASK_RUNNING")]
    failed = node.agent.state.task("F1", "t1").pending[0]
    assert failed["reason"] == "REASON_CONTAINER_LAUNCH_FAILED"
    assert node.stops == [] and len(node.running) == 1


def test_an_agent_that_has_ended_for_good_leaves_nothing_whatever_still_runs(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.run(task("t2"))
    node.start("e1")
    node.do(node.agent.leave("done", node.now))
    node.wake(node.now + 1000.0)
    assert node.code == 0 and node.journal == {} and len(node.running) == 2


def test_executors_have_time_to_come_back(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.subscribe()
    node.update("t1", "TASK_RUNNING")
    node.restart()
    node.register()
    node.wake(node.now + 899)
    assert not node.stops
    events = node.subscribe(stream="s2")
    assert [event["type"] for event in events] == ["SUBSCRIBED"]
    node.wake(node.now + 10)
    assert not node.stops
    node.restart()
    node.wake(node.now + 900)
    assert node.stops == [StopContainer(node.container("e1").id, 0.0)]


def test_executors_that_had_not_subscribed_still_have_to(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.restart()
    node.kill("t1")
    node.wake(node.now + 60)
    assert [stop.id for stop in node.stops] == [node.container("e1").id]


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_about_to_end_is_ended(node, task, executor, gone):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    if gone:
        node.heard("SHUTDOWN_FRAMEWORK", framework_id=identity("F1"))
    else:
        node.kill("t1")
        node.heard("SHUTDOWN_EXECUTOR", framework_id=identity("F1"), executor_id=identity("e1"))
    node.stops.clear()
    node.updates()
    node.restart()
    said = node.register()
    assert {stop.id for stop in node.stops} == {node.container("t1").id, node.container("e1").id}
    assert [len(said[what]) for what in ("tasks", "executors", "frameworks")] == [2, 1, 0 if gone else 1]
    node.exit("t1", 0)
    node.exit("e1", 0)
    if gone:
        assert node.updates() == [("t1", "TASK_KILLED"), ("t2", "TASK_KILLED")]
        assert set(node.journal) == {("agent", "id")}
    else:
        assert node.agent.state.task("F1", "t1").state == "TASK_KILLED"


@pytest.mark.parametrize(
    ("limit", "request_", "seconds", "given", "after"),
    [
        (0.5, None, 30, (0.5, None), (2.0, None)),
        ("Infinity", 0.25, 30, (None, 0.25), (2.0, 2.0)),
        (0.5, 0.25, None, (0.5, 0.25), (0.5, 0.25)),
        ("Infinity", 0.25, None, (None, 0.25), (None, 0.25)),
    ],
)
def test_limits_and_weights_outlive_a_restart(node, task, limit, request_, seconds, given, after):
    node.run(task("t1", cpus=2))
    node.start("t1")
    container = node.container("t1").id
    node.change("t1", limit, request_, seconds)
    node.limits.clear(), node.weights.clear()
    node.restart()
    node.wake(node.now + 29)
    assert node.limits == [LimitCpu(container, given[0])], "it may not have been written"
    assert node.weights == ([] if given[1] is None else [WeighCpu(container, given[1])])
    if seconds is None:
        node.change("t1", 4, 4, 1)
    node.wake(node.now + 1)
    assert node.limits[-1] == LimitCpu(container, after[0])
    assert [weight.cpus for weight in node.weights[-1:]] == ([] if after[1] is None else [after[1]])


def test_a_limit_for_good_is_not_that_of_the_tasks_after_a_restart_either(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=0.5))
    container = node.container("e1").id
    node.start("e1")
    node.subscribe()
    node.change("e1", 0.7)
    node.limits.clear()
    node.restart()
    node.register()
    assert node.limits == [LimitCpu(container, 0.7)]
    node.run(task("t2", cpus=2), executor=executor())
    assert node.limits == [LimitCpu(container, 0.7)]


# ------------------------------------------------------- model


class Model:
    """What a master knows of an agent: the updates it was sent, each once, and those it has acknowledged."""

    def __init__(self) -> None:
        self.launched: set[str] = set()
        self.told: dict[str, list[tuple[str, str]]] = {}
        self.acknowledged: set[str] = set()

    def hear(self, items: list[Message]) -> None:
        for item in items:
            if item["type"] != "UPDATE":
                continue
            status = item["update"]["status"]
            said = self.told.setdefault(value_of(status, "task_id"), [])
            if (status["uuid"], status["state"]) not in said:
                # one at a time: all that were said before have been acknowledged
                assert all(uuid in self.acknowledged for uuid, _ in said)
                assert not said or said[-1][1] not in TERMINAL
                said.append((status["uuid"], status["state"]))

    def waiting(self) -> list[tuple[str, str]]:
        """Task and uuid of updates to be acknowledged."""
        last = [(task, said[-1][0]) for task, said in self.told.items()]
        return [(task, uuid) for task, uuid in last if uuid not in self.acknowledged]

    def over(self, task: str) -> bool:
        return task in self.told and self.told[task][-1][1] in TERMINAL


class World(RuleBasedStateMachine):
    """One agent, one framework; `make` is set by the test."""

    make: Any

    def __init__(self) -> None:
        super().__init__()
        self.node, self.task, self.executor = self.make()
        self.node.register()
        self.model = Model()
        self.ran: set[str] = set()
        self.launches: list[str] = []
        self.streams = self.uuids = 0

    def _any(self, data: st.DataObject, items: Any) -> Any:
        return data.draw(st.sampled_from(sorted(items)))

    def _hear(self) -> None:
        self.model.hear(self.node.ups)
        self.node.ups.clear()

    @rule(how=st.sampled_from(["command", "custom"]), count=st.integers(1, 2), known=st.booleans())
    def run(self, how: str, count: int, known: bool) -> None:
        names = [f"t{len(self.model.launched) + index}" for index in range(count)]
        if known and self.model.launched:
            names = [name for name in sorted(self.model.launched)[:1] if not self._forgotten(name)]
        tasks = [self.task(name) for name in names]
        if how == "command":
            self.node.run(*tasks)
        else:
            self.node.run(*tasks, executor=self.executor("e1"))
        self.model.launched |= set(names)

    def _forgotten(self, name: str) -> bool:
        return self.node.agent.state.task("F1", name) is None

    def _instances(self, *, started: bool) -> list[str]:
        return [item.id for item in self.node.agent.state.instances.values() if (item.pid is not None) == started]

    @precondition(lambda self: self._instances(started=False))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        container = self._any(data, self._instances(started=False))
        assert container not in self.ran
        self.ran.add(container)
        self.node.do(self.node.agent.started(container, 5, 5, self.node.now))

    @precondition(lambda self: self.node.running)
    @rule(data=st.data(), code=st.sampled_from([0, 1, -15, None]))
    def exit(self, data: st.DataObject, code: int | None) -> None:
        container = self._any(data, self.node.running)
        if container not in self.ran:
            code = None
        self.node.do(self.node.agent.exited(container, code, "", self.node.now))

    @precondition(lambda self: self.model.launched)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.node.kill(self._any(data, self.model.launched))

    @precondition(lambda self: self.model.waiting())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        task, uuid = self._any(data, self.model.waiting())
        self.model.acknowledged.add(uuid)
        self.node.heard("ACKNOWLEDGE", framework_id=identity("F1"), task_id=identity(task), uuid=uuid)

    @rule()
    def break_connection(self) -> None:
        self.node.do(self.node.agent.disconnected(self.node.now))

    @rule()
    def connect(self) -> None:
        said = self.node.register()
        known = {value_of(item, "task_id") for item in said["tasks"]}
        for task in self.model.launched:
            assert task in known or self.model.over(task), f"{task} is lost"

    @rule(seconds=st.sampled_from([0.0, 1.0, 60.0, 900.0]))
    def wait(self, seconds: float) -> None:
        self.node.wake(self.node.now + seconds)

    @rule()
    def restart(self) -> None:
        self._hear()
        self.node.restart()
        left = {item[0] for item in self.node.agent.recovered()}
        for container in [item for item in self.node.running if item not in left]:
            del self.node.running[container]  # containers that no journal knows are ended
        self.node.wake(self.node.now)

    def _executor(self) -> Any:
        found = self.node.agent.state.executor("F1", "e1")
        return found if found is not None and found.container in self.ran else None

    @precondition(lambda self: self._executor() is not None)
    @rule()
    def subscribe(self) -> None:
        self.streams += 1
        mine = [{"task_id": identity(name)} for name in self.launches]
        events = self.node.subscribe(stream=f"s{self.streams}", unacknowledged_tasks=mine)
        if self._executor() is not None and self._executor().verdict is None:
            assert events[0]["type"] == "SUBSCRIBED"

    @precondition(lambda self: self._executor() is not None and self._executor().stream and self.launches)
    @rule(data=st.data(), state=st.sampled_from(["TASK_RUNNING", "TASK_FINISHED"]), again=st.booleans())
    def update(self, data: st.DataObject, state: str, again: bool) -> None:
        name = self._any(data, set(self.launches))
        self.uuids += 1
        for _ in range(2 if again else 1):
            self.node.update(name, state, uuid=1_000_000 + self.uuids)

    @invariant()
    def hears(self) -> None:
        self._hear()
        for stream in self.node.sent.values():
            for event in stream:
                if event["type"] == "LAUNCH":
                    name = value_of(event, "launch.task.task_id")
                    assert name not in self.launches, f"{name} was launched twice"
                    self.launches.append(name)
            stream[:] = [event for event in stream if event["type"] != "LAUNCH"]

    @invariant()
    def runs_what_it_says(self) -> None:
        state = self.node.agent.state
        assert set(self.node.running) == set(state.instances)
        for framework in state.frameworks.values():
            for task in framework.tasks.values():
                if task.over:
                    assert task.pending and task.container not in self.node.running
                elif task.executor == "e1":
                    assert task.executor in framework.executors
                else:
                    assert task.container in self.node.running

    @invariant()
    def could_be_restarted(self) -> None:
        """The journal holds all that the agent would tell a master."""
        kept = restored([KeepRow(table, key, row) for (table, key), row in self.node.journal.items()], self.node.now)
        assert _told(kept, self.node) == _told(self.node.agent.state, self.node)

    def teardown(self) -> None:
        """In the end everything ends, is acknowledged, and leaves nothing."""
        self.connect()
        for _ in range(10):
            for container in list(self.node.running):
                self.node.do(self.node.agent.exited(container, -9, "", self.node.now))
            self._hear()
            for task, uuid in self.model.waiting():
                self.model.acknowledged.add(uuid)
                self.node.heard("ACKNOWLEDGE", framework_id=identity("F1"), task_id=identity(task), uuid=uuid)
        assert set(self.node.journal) == {("agent", "id")}
        assert all(self.model.over(task) for task in self.model.launched)
        assert set(self.model.told) <= self.model.launched
        assert self.node.agent.due() == float("inf")


def _told(state: AgentState, node: Any) -> Message:
    said = registration(state, node.options, "")["register"]
    for name in ("tasks", "executors", "frameworks"):
        said[name] = sorted(said[name], key=str)
    return said


def test_nothing_is_lost_whatever_happens(new_node, task, executor) -> None:
    class Mine(World):
        @staticmethod
        def make() -> Any:
            return new_node(), task, executor

    run_state_machine_as_test(Mine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
