from __future__ import annotations

import threading
from typing import Any

import pytest

from executors.mesos.codec import frame
from executors.mesos.driver import SchedulerDriver
from tests.executors.mesos.driven import INFO, Recorder, Start, status
from tests.executors.mesos.scripted import Message, Scripted, until


def test_it_registers_and_hands_over_every_event(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    _, own, info = scheduler.heard("registered")
    assert own == {"value": "F1"} and info["version"] == "1.11.0" and info["port"] == master.port
    assert driver.framework_id == "F1" and driver.connected and not driver.aborted
    assert driver.version == "1.11.0" and driver.master == master.address
    info = master.subscriptions[0]["subscribe"]["framework_info"]
    assert info == INFO | {"failover_timeout": 100.0} and "framework_id" not in master.subscriptions[0]
    ids = {"agent_id": {"value": "S1"}, "executor_id": {"value": "e"}}
    master.say(
        {"type": "OFFERS", "offers": {"offers": [{"id": {"value": "O1"}}]}},
        {"type": "OFFERS", "offers": {"offers": []}},
        {"type": "RESCIND", "rescind": {"offer_id": {"value": "O1"}}},
        status("t1", 1),
        {"type": "MESSAGE", "message": ids | {"data": "aGk="}},
        {"type": "FAILURE", "failure": {"agent_id": {"value": "S1"}}},
        {"type": "FAILURE", "failure": ids | {"status": 9}},
        {"type": "SOMETHING_NEW", "something_new": {}},
        {"type": "HEARTBEAT"},
    )
    scheduler.heard("processHeartBeat")
    assert [told[1:] for told in scheduler.told[1:]] == [
        ([{"id": {"value": "O1"}}],),
        ({"value": "O1"},),
        (status("t1", 1)["update"]["status"],),
        ({"value": "e"}, {"value": "S1"}, "aGk="),
        ({"value": "S1"},),
        ({"value": "e"}, {"value": "S1"}, 9),
        (),
    ]
    assert scheduler.threads == {"asa-mesos"}


OFFER, TASK, OF_AGENT, EXECUTOR = ({"value": text} for text in ("O1", "t1", "S1", "e"))
OPERATION = {"type": "LAUNCH", "launch": {"task_infos": [{"name": "x"}]}}
TOLD = {"task_id": TASK, "agent_id": OF_AGENT, "state": "TASK_RUNNING"}
GRACE = {"grace_period": {"nanoseconds": 1}}
CALLS: list[tuple[str, tuple[Any, ...], str, Message | None]] = [
    ("acceptOffers", (OFFER, [OPERATION]), "ACCEPT", {"offer_ids": [OFFER], "operations": [OPERATION]}),
    (
        "launchTasks",
        ([OFFER], [{"name": "x"}], {"refuse_seconds": 1}),
        "ACCEPT",
        {"offer_ids": [OFFER], "operations": [OPERATION], "filters": {"refuse_seconds": 1}},
    ),
    ("acceptOffers", ([OFFER], []), "DECLINE", {"offer_ids": [OFFER]}),
    (
        "declineOffer",
        (OFFER, {"refuse_seconds": 2}),
        "DECLINE",
        {"offer_ids": [OFFER], "filters": {"refuse_seconds": 2}},
    ),
    ("reviveOffers", (["a"],), "REVIVE", {"roles": ["a"]}),
    ("reviveOffers", (), "REVIVE", None),
    ("suppressOffers", (("b",),), "SUPPRESS", {"roles": ["b"]}),
    ("killTask", (TASK,), "KILL", {"task_id": TASK}),
    ("killTask", (TASK, OF_AGENT, GRACE), "KILL", {"task_id": TASK, "agent_id": OF_AGENT, "kill_policy": GRACE}),
    ("shutdownExecutor", (EXECUTOR, OF_AGENT), "SHUTDOWN", {"executor_id": EXECUTOR, "agent_id": OF_AGENT}),
    (
        "acknowledgeStatusUpdate",
        (TOLD | {"uuid": "u"},),
        "ACKNOWLEDGE",
        {"agent_id": OF_AGENT, "task_id": TASK, "uuid": "u"},
    ),
    ("acknowledgeStatusUpdate", (TOLD,), "", None),  # it asks for none
    ("reconcileTasks", ([TOLD],), "RECONCILE", {"tasks": [{"task_id": TASK, "agent_id": OF_AGENT}]}),
    ("reconcileTasks", ([],), "RECONCILE", {"tasks": []}),
    (
        "sendFrameworkMessage",
        (EXECUTOR, OF_AGENT, "aGk="),
        "MESSAGE",
        {"agent_id": OF_AGENT, "executor_id": EXECUTOR, "data": "aGk="},
    ),
]
"""A method of the driver, its arguments, the call that is sent and what it says; "" for none."""


def test_calls_are_those_of_the_api(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")
    for method, arguments, _, _ in CALLS:
        getattr(driver, method)(*arguments)
    driver.updateFramework({"user": "me", "name": "new", "id": {"value": "other"}}, ["a"])
    last = driver._framework
    expected = [(kind, payload) for _, _, kind, payload in CALLS if kind]
    expected += [("UPDATE_FRAMEWORK", {"framework_info": last, "suppressed_roles": ["a"]})]
    until(lambda: len(master.calls) >= len(expected))
    own = {"framework_id": {"value": "F1"}}
    assert master.calls == [
        {"type": kind} | own | ({} if payload is None else {kind.lower(): payload}) for kind, payload in expected
    ]
    assert last["id"] == {"value": "F1"} and last["name"] == "new"
    assert {head["Mesos-Stream-Id"] for head in master.heads[1:]} == {"s1"}
    assert {head[""] for head in master.heads} == {"/api/v1/scheduler"}


def test_updates_are_acknowledged_once_the_scheduler_has_seen_them(master: Scripted, start: Start) -> None:
    seen_before = []
    scheduler = Recorder(lambda driver, name, arguments: seen_before.append(list(master.kinds())))
    start(master, scheduler)
    master.say(*(status("t1", n) for n in range(300)))
    scheduler.heard("statusUpdate", 300)
    until(lambda: len(master.calls) == 300)
    assert [call["acknowledge"]["uuid"] for call in master.calls] == [f"{n:024d}" for n in range(300)]
    assert seen_before[1] == []


def test_updates_without_a_uuid_or_with_explicit_acknowledgements_are_left_to_the_scheduler(
    master: Scripted, start: Start
) -> None:
    driver, scheduler = start(master, implicit_acknowledgements=False)
    master.say(status("t1", 1), {"type": "HEARTBEAT"})
    scheduler.heard("processHeartBeat")
    driver.acknowledgeStatusUpdate(scheduler.heard("statusUpdate")[1])
    driver.reviveOffers()
    until(lambda: "REVIVE" in master.kinds())
    assert master.kinds() == ["ACKNOWLEDGE", "REVIVE"]


def test_events_that_make_no_sense_are_left_out(master: Scripted, start: Start) -> None:
    _, scheduler = start(master)
    master.say(
        {"type": "OFFERS", "offers": {"offers": "many"}},
        {"type": "UPDATE", "update": {"status": {"task_id": "t1"}}},
        {"type": "UPDATE", "update": {"status": {"task_id": {"value": "t"}, "uuid": "AAAA"}}},
        {"type": "FAILURE"},
        {"no": "type"},
        {"type": "HEARTBEAT"},
    )
    scheduler.heard("processHeartBeat")
    assert scheduler.names() == ["registered", "processHeartBeat"] and master.calls == []


def test_refused_calls_are_told(master: Scripted, start: Start) -> None:
    master.status = lambda call: (400, "no such task") if call["type"] == "KILL" else (202, "")
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.reviveOffers()
    driver.killTask({"value": "t1"})
    _, call, code, reason = scheduler.heard("callRefused")
    assert (call["kill"], code, reason) == ({"task_id": {"value": "t1"}}, 400, "no such task")
    assert driver.connected


def test_a_scheduler_needs_no_callback(master: Scripted) -> None:
    driver = SchedulerDriver(object(), INFO, master.address)
    driver.start()
    master.say(status("t1", 1))
    until(lambda: master.kinds() == ["ACKNOWLEDGE"])
    driver.stop()
    driver.join()
    assert master.kinds() == ["ACKNOWLEDGE", "TEARDOWN"]


def test_stop_tears_down_after_the_calls_before(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")
    for _ in range(1000):
        driver.reviveOffers()
    driver.stop()
    driver.join()
    assert master.kinds() == ["REVIVE"] * 1000 + ["TEARDOWN"]
    assert driver.aborted and not driver.connected
    driver.reviveOffers()
    driver.stop()
    assert scheduler.names() == ["registered"]


@pytest.mark.parametrize("how", ["failover option", "failover argument", "abort"])
def test_tasks_may_outlive_the_driver(master: Scripted, start: Start, how: str) -> None:
    driver, scheduler = start(master, failover=how == "failover option")
    scheduler.heard("registered")
    driver.abort() if how == "abort" else driver.stop(*([True] if how == "failover argument" else []))
    driver.join()
    assert master.kinds() == [] and driver.aborted


def test_stop_does_not_wait_for_a_master_that_does_not_answer(
    master: Scripted, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executors.mesos.driver._GOODBYE_S", 0.2)
    master.status = lambda call: None
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.stop()
    driver.join()
    assert driver.aborted


def test_an_error_ends_it_before_the_scheduler_is_told(master: Scripted, start: Start) -> None:
    ended = []
    scheduler = Recorder(lambda driver, name, arguments: ended.append(driver.aborted) if name == "error" else None)
    driver, _ = start(master, scheduler)
    error = {"type": "ERROR", "error": {"message": "Framework failed over"}}
    master.raw(frame(error) + frame({"type": "HEARTBEAT"}))
    driver.join()
    assert scheduler.told[-1] == ("error", "Framework failed over") and ended == [True]
    assert len(master.subscriptions) == 1


def test_events_of_the_same_chunk_are_not_handed_over_after_stop(master: Scripted, start: Start) -> None:
    scheduler = Recorder(lambda driver, name, arguments: driver.stop() if name == "processHeartBeat" else None)
    driver, _ = start(master, scheduler)
    master.raw(frame({"type": "HEARTBEAT"}) * 3)
    driver.join()
    assert scheduler.names() == ["registered", "processHeartBeat"] and master.kinds() == ["TEARDOWN"]


def test_what_a_callback_raises_comes_out_of_join(master: Scripted, start: Start) -> None:
    def fail(driver: SchedulerDriver, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "processHeartBeat":
            raise ConnectionError("mine, not the driver's")

    driver, scheduler = start(master, Recorder(fail))
    master.say({"type": "HEARTBEAT"})
    with pytest.raises(ConnectionError, match="mine"):
        driver.join()
    assert driver.aborted and scheduler.names() == ["registered", "processHeartBeat", "error"] and master.kinds() == []


def test_calls_of_many_threads_all_arrive_each_threads_in_order(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")

    def tell(name: str) -> None:
        for n in range(200):
            driver.sendFrameworkMessage({"value": name}, {"value": "S1"}, str(n))

    threads = [threading.Thread(target=tell, args=(f"e{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(master.calls) == 800)
    for k in range(4):
        told = [call["message"] for call in master.calls if call["message"]["executor_id"] == {"value": f"e{k}"}]
        assert [message["data"] for message in told] == [str(n) for n in range(200)]


def test_an_error_is_logged_when_the_scheduler_does_not_want_to_know(
    master: Scripted, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    driver, _ = start(master, object())
    master.say({"type": "ERROR", "error": {"message": "Framework failed over"}})
    driver.join()
    assert driver.aborted and "the driver has given up: Framework failed over" in caplog.text
