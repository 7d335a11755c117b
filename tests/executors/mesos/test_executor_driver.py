from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from executors.mesos.executor_driver import ExecutorDriver, duration
from tests.executors.mesos.scripted import Message, Scripted, until

GREETING: Message = {
    "type": "SUBSCRIBED",
    "subscribed": {
        "executor_info": {"executor_id": {"value": "e"}},
        "framework_info": {"id": {"value": "F1"}},
        "agent_info": {"id": {"value": "S1"}, "hostname": "n1"},
    },
}
RUNNING = {"task_id": {"value": "t1"}, "state": "TASK_RUNNING"}


class Recorder:
    def __init__(self, do: Callable[..., None] = lambda driver, name, arguments: None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._do = do

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def callback(driver: ExecutorDriver, *arguments: Any) -> None:
            self.told.append((name, *arguments))
            self._do(driver, name, arguments)

        return callback

    def names(self) -> list[str]:
        return [name for name, *_ in self.told]

    def heard(self, name: str) -> tuple[Any, ...]:
        until(lambda: name in self.names(), name)
        return self.told[self.names().index(name)]


@pytest.fixture
def agent() -> Iterator[Scripted]:
    with Scripted(GREETING) as agent:
        yield agent


Start = Callable[..., tuple[ExecutorDriver, Recorder]]


@pytest.fixture
def start(agent: Scripted) -> Iterator[Start]:
    drivers: list[ExecutorDriver] = []

    def start(recorder: Recorder | None = None, **environ: str) -> tuple[ExecutorDriver, Recorder]:
        recorder = recorder or Recorder()
        ids = {"MESOS_FRAMEWORK_ID": "F1", "MESOS_EXECUTOR_ID": "e", "MESOS_LOCAL": "1"}
        driver = ExecutorDriver(recorder, ids | {"MESOS_AGENT_ENDPOINT": agent.address} | environ)
        drivers.append(driver)
        driver.start()
        return driver, recorder

    yield start
    for driver in drivers:
        driver.abort()
        driver._client._thread.join()


SHORT = {"MESOS_SUBSCRIPTION_BACKOFF_MAX": "20ms"}


def launch(*tasks: str) -> list[Message]:
    return [{"type": "LAUNCH", "launch": {"task": {"task_id": {"value": task}, "name": "x"}}} for task in tasks]


def acknowledged(update: Message) -> Message:
    status = update["update"]["status"]
    return {"type": "ACKNOWLEDGED", "acknowledged": {"task_id": status["task_id"], "uuid": status["uuid"]}}


def test_it_registers_and_hands_over_every_event(agent: Scripted, start: Start) -> None:
    driver, executor = start()
    infos = GREETING["subscribed"]
    assert executor.heard("registered")[1:] == (infos["executor_info"], infos["framework_info"], infos["agent_info"])
    ids = {"framework_id": {"value": "F1"}, "executor_id": {"value": "e"}}
    nothing = {"unacknowledged_tasks": [], "unacknowledged_updates": []}
    assert agent.subscriptions == [{"type": "SUBSCRIBE", "subscribe": nothing} | ids]
    assert agent.heads[0][""] == "/api/v1/executor" and "Authorization" not in agent.heads[0]
    group = {"type": "LAUNCH_GROUP", "launch_group": {"task_group": {"tasks": [{"task_id": {"value": "t2"}}]}}}
    agent.say(
        *launch("t1"),
        group,
        {"type": "KILL", "kill": {"task_id": {"value": "t1"}, "kill_policy": {}}},
        {"type": "MESSAGE", "message": {"data": "aGk="}},
        {"type": "LAUNCH", "launch": {"task": {"task_id": "nonsense"}}},
        {"type": "SOMETHING_NEW"},
        {"type": "HEARTBEAT"},
        {"type": "SHUTDOWN"},
    )
    driver.join()
    assert executor.told[1:] == [
        ("launchTask", {"task_id": {"value": "t1"}, "name": "x"}),
        ("launchTaskGroup", [{"task_id": {"value": "t2"}}]),
        ("killTask", {"value": "t1"}),
        ("frameworkMessage", "aGk="),
        ("shutdown",),
    ]
    assert driver.aborted


def test_updates_and_messages(agent: Scripted, start: Start) -> None:
    driver, executor = start(MESOS_EXECUTOR_AUTHENTICATION_TOKEN="abc")
    executor.heard("registered")
    driver.sendStatusUpdate(RUNNING)
    driver.sendStatusUpdate(RUNNING | {"timestamp": 1, "uuid": "mine", "message": "m"})
    driver.sendFrameworkMessage("aGk=")
    until(lambda: len(agent.calls) == 3)
    first, second, message = agent.calls
    ids = {"framework_id": {"value": "F1"}, "executor_id": {"value": "e"}}
    status = first["update"]["status"]
    assert first == {"type": "UPDATE", "update": {"status": status}} | ids
    assert status["source"] == "SOURCE_EXECUTOR" and status["timestamp"] > 1e9 and len(status["uuid"]) == 24
    assert status["executor_id"] == {"value": "e"} and "uuid" not in RUNNING
    assert (second["update"]["status"]["uuid"], second["update"]["status"]["timestamp"]) == ("mine", 1)
    assert message == {"type": "MESSAGE", "message": {"data": "aGk="}} | ids
    assert {head["Authorization"] for head in agent.heads} == {"Bearer abc"}


def test_a_restarted_agent_is_told_what_no_agent_has_acknowledged(agent: Scripted, start: Start) -> None:
    driver, executor = start(MESOS_CHECKPOINT="1")
    agent.say(*launch("t1", "t2", "t3"))
    until(lambda: executor.names().count("launchTask") == 3)
    for task in ("t1", "t2"):
        driver.sendStatusUpdate(RUNNING | {"task_id": {"value": task}})
    until(lambda: len(agent.calls) == 2)
    agent.say(acknowledged(agent.calls[0]), {"type": "MESSAGE", "message": {"data": ""}})
    executor.heard("frameworkMessage")
    agent.cut()
    assert executor.heard("reregistered")[1]["hostname"] == "n1"
    again = agent.subscriptions[1]["subscribe"]
    assert [task["task_id"]["value"] for task in again["unacknowledged_tasks"]] == ["t2", "t3"]
    assert again["unacknowledged_updates"] == [agent.calls[1]["update"]]
    assert executor.names().count("disconnected") == 1
    driver.sendStatusUpdate(RUNNING)
    until(lambda: len(agent.calls) == 3)


def test_updates_while_the_agent_is_away_reach_it_when_it_is_back(agent: Scripted, start: Start) -> None:
    away = threading.Event()
    agent.entry = lambda: web.Response(status=503, headers={"Retry-After": "0"}) if away.is_set() else None
    driver, executor = start(MESOS_CHECKPOINT="1")
    executor.heard("registered")
    away.set()
    agent.cut()
    executor.heard("disconnected")
    driver.sendStatusUpdate(RUNNING | {"message": "one"})
    driver.stop()  # as executors do once their last task has ended
    away.clear()
    driver.join()
    assert executor.names() == ["registered", "disconnected"] and agent.calls == []
    told = agent.subscriptions[-1]["subscribe"]["unacknowledged_updates"]
    assert [update["status"]["message"] for update in told] == ["one"]


def test_updates_during_the_subscription_follow_it_in_order(agent: Scripted, start: Start) -> None:
    asked, go = threading.Event(), threading.Event()

    def slow() -> None:
        asked.set()
        assert go.wait(20)

    driver, executor = start()
    executor.heard("registered")
    original = driver._client._handler.subscribe

    def subscribe() -> Message:
        call = original()
        slow()
        return call

    driver._client._handler.subscribe = subscribe  # type: ignore[method-assign]
    driver._checkpoint = True
    agent.cut()
    assert asked.wait(20)
    for n in range(5):
        driver.sendStatusUpdate(RUNNING | {"message": str(n)})
    go.set()
    until(lambda: len(agent.calls) == 5)
    assert [call["update"]["status"]["message"] for call in agent.calls] == list("01234")
    assert agent.subscriptions[-1]["subscribe"]["unacknowledged_updates"] == []


@pytest.mark.parametrize("environ", [{}, {"MESOS_CHECKPOINT": "0"}])
def test_without_checkpoints_it_ends_with_the_agent(agent: Scripted, start: Start, environ: dict[str, str]) -> None:
    driver, executor = start(**environ)
    executor.heard("registered")
    agent.cut()
    driver.join()
    assert executor.names() == ["registered", "disconnected", "shutdown"] and len(agent.subscriptions) == 1


def test_an_agent_that_does_not_come_back_is_given_up(agent: Scripted, start: Start) -> None:
    driver, executor = start(
        MESOS_CHECKPOINT="1", MESOS_RECOVERY_TIMEOUT="300ms", MESOS_SUBSCRIPTION_BACKOFF_MAX="20ms"
    )
    executor.heard("registered")
    agent.entry = lambda: web.Response(status=503, headers={"Retry-After": "0"})
    agent.cut()
    driver.join()
    assert executor.names() == ["registered", "disconnected", "error", "shutdown"] and len(agent.subscriptions) > 2


def test_an_agent_that_does_not_know_us_is_not_asked_again(agent: Scripted, start: Start) -> None:
    agent.entry = lambda: web.Response(status=400, text="unknown executor")
    driver, executor = start(MESOS_CHECKPOINT="1")
    driver.join()
    assert executor.told == [
        ("error", "the subscription was answered with 400: unknown executor"),
        ("shutdown",),
    ]
    assert len(agent.subscriptions) == 1


def test_stop_waits_until_the_agent_has_the_updates(agent: Scripted, start: Start) -> None:
    def finish(driver: ExecutorDriver, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "launchTask":
            for state in ("TASK_RUNNING", "TASK_FINISHED"):
                driver.sendStatusUpdate({"task_id": arguments[0]["task_id"], "state": state})
            driver.stop()

    driver, _ = start(Recorder(finish))
    agent.say(*launch("t1"))
    driver.join()
    assert [call["update"]["status"]["state"] for call in agent.calls] == ["TASK_RUNNING", "TASK_FINISHED"]


STUBBORN = """
import os, sys, time
os.setsid()
from executors.mesos.executor_driver import ExecutorDriver
class Stubborn:
    def shutdown(self, driver): print("shutdown", flush=True)
ExecutorDriver(Stubborn()).run()
time.sleep(60)
"""


def test_a_process_that_does_not_end_after_its_shutdown_is_killed(agent: Scripted) -> None:
    own = {"MESOS_FRAMEWORK_ID": "F1", "MESOS_EXECUTOR_ID": "e", "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "100ms"}
    environ = os.environ | own | {"MESOS_AGENT_ENDPOINT": agent.address}
    with subprocess.Popen([sys.executable, "-c", STUBBORN], env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            agent.say({"type": "SHUTDOWN"})
            assert process.communicate(timeout=30)[0] == "shutdown\n" and process.returncode == -signal.SIGKILL
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_AGENT_ENDPOINT"])
def test_only_an_agent_can_start_one(name: str) -> None:
    environ = {"MESOS_FRAMEWORK_ID": "F1", "MESOS_EXECUTOR_ID": "e", "MESOS_AGENT_ENDPOINT": "h:1"}
    with pytest.raises(InvalidInput, match=f"{name} is not set"):
        ExecutorDriver(Recorder(), environ | {name: ""})


@given(st.floats(0, 1e6), st.sampled_from([("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("secs", 1), ("hrs", 3600)]))
def test_durations(number: float, unit: tuple[str, float]) -> None:
    assert duration(f"{number:.6f}{unit[0]}") == pytest.approx(number * unit[1], abs=1e-6 * unit[1])


@pytest.mark.parametrize("text", ["", "5", "secs", "-5secs", "5 secs", "nansecs", "1e5secs", "5s", "5secs5secs"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput, match="5secs"):
        duration(text)


def test_an_error_ends_it_and_is_logged_when_the_executor_does_not_want_to_know(
    agent: Scripted, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    driver, _ = start(object())
    until(lambda: driver.connected, "the agent")
    agent.say({"type": "ERROR", "error": {"message": "no"}})
    driver.join()
    assert driver.aborted and not driver.connected
    assert "the driver has given up: no" in caplog.text


def test_a_call_that_is_refused_is_logged(agent: Scripted, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    agent.status = lambda call: (400, "unknown task")
    driver, executor = start()
    executor.heard("registered")
    driver.sendFrameworkMessage("aGk=")
    until(lambda: caplog.records, "the log")
    assert "MESSAGE was answered with 400: unknown task" in caplog.text
