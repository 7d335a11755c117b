"""The scheduler driver: callbacks, calls, whom it believes, how it finds its master again."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from asa.security.files import write_private
from executors.mesos.client import ClientConnection, Endpoint
from executors.mesos.codec import frame
from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService
from executors.mesos.pool_directory import FRAMEWORK, MASTER_NAME, MasterAddress, PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.scripted import Message, Scripted, subscribed
from tests.waiting import DEADLINE_S, until

INFO = {"user": "me", "name": "test", "roles": ["a", "b"]}


class Recorder:
    """A scheduler that remembers all that it is told; `do` may do something about it."""

    def __init__(self, do: Callable[..., None] = lambda driver, name, arguments: None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.threads = set[str]()
        self._do = do

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def callback(driver: SchedulerDriver, *arguments: Any) -> None:
            self.told.append((name, *arguments))
            self.threads.add(threading.current_thread().name)
            self._do(driver, name, arguments)

        return callback

    def names(self) -> list[str]:
        return [name for name, *_ in self.told]

    def heard(self, name: str, times: int = 1) -> tuple[Any, ...]:
        until(lambda: self.names().count(name) >= times, f"{name}, {times} times")
        return [told for told in self.told if told[0] == name][times - 1]


Start = Callable[..., tuple[SchedulerDriver, Recorder]]


def status(task: str, n: int = 0, **more: Any) -> Message:
    ids = {"task_id": {"value": task}, "agent_id": {"value": "S1"}, "uuid": f"{n:024d}"}
    return {"type": "UPDATE", "update": {"status": ids | {"state": "TASK_RUNNING"} | more}}


@pytest.fixture
def master() -> Iterator[Scripted]:
    with Scripted() as master:
        yield master


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> PoolDirectory:
    return PoolDirectory.create(tmp_path_factory.mktemp("driver") / "pool", "p")


def published(pool: PoolDirectory, master: Scripted | Raw) -> PoolDirectory:
    pool.publish(MasterAddress(("127.0.0.1",), master.port, False, 1, "m"))
    return pool


@pytest.fixture
def start(pool: PoolDirectory) -> Iterator[Start]:
    drivers: list[SchedulerDriver] = []

    def start(master: Scripted | Raw | PoolDirectory, scheduler: Recorder | None = None, **options: Any) -> Any:
        recorder = scheduler or Recorder()
        where = master if isinstance(master, PoolDirectory) else published(pool, master)
        driver = SchedulerDriver(recorder, options.pop("framework", INFO), where, **options)
        drivers.append(driver)
        driver.start()
        return driver, recorder

    yield start
    for driver in drivers:
        driver.abort()
        with suppress(Exception):  # what a callback has raised
            driver.join()


HEAD = b"HTTP/1.1 200 OK\r\nMesos-Stream-Id: s1\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Raw:
    """Talks as it is told on each connection, the n-th one first: ``talk(n, socket)``; then it closes it."""

    def __init__(self, talk: Callable[[int, socket.socket], None]) -> None:
        self._talk, self.taken = talk, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._accept)
        self._main.start()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._main.join()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            number, self.taken = self.taken, self.taken + 1
            self._threads.append(threading.Thread(target=self._run, args=(number, stream)))
            self._threads[-1].start()

    def _run(self, number: int, stream: socket.socket) -> None:
        stream.settimeout(DEADLINE_S)
        with stream, suppress(OSError):
            self._talk(number, stream)


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
    last = {"failover_timeout": 100.0, "user": "me", "name": "new", "id": {"value": "F1"}}
    expected = [(kind, payload) for _, _, kind, payload in CALLS if kind]
    expected += [("UPDATE_FRAMEWORK", {"framework_info": last, "suppressed_roles": ["a"]})]
    until(lambda: len(master.calls) >= len(expected))
    own = {"framework_id": {"value": "F1"}}
    assert master.calls == [
        {"type": kind} | own | ({} if payload is None else {kind.lower(): payload}) for kind, payload in expected
    ]
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


def test_refused_calls_are_reported(master: Scripted, start: Start) -> None:
    master.status = lambda call: (400, "no such task") if call["type"] == "KILL" else (202, "")
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.reviveOffers()
    driver.killTask({"value": "t1"})
    _, call, code, reason = scheduler.heard("callRefused")
    assert (call["kill"], code, reason) == ({"task_id": {"value": "t1"}}, 400, "no such task")
    assert driver.connected


def test_a_scheduler_needs_no_callback(master: Scripted, pool: PoolDirectory) -> None:
    driver = SchedulerDriver(object(), INFO, published(pool, master))
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
    monkeypatch.setattr("executors.mesos.driver.GOODBYE_S", 0.2)
    master.status = lambda call: None
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.stop()
    driver.join()
    assert driver.aborted


def test_an_error_ends_it_before_the_callback(master: Scripted, start: Start) -> None:
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


# ------------------------------------------------------- driver access


def test_a_pool_is_found_by_its_directory_and_spoken_to_by_tls(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    driver, scheduler = start(directory)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, 1, "m1"))
        scheduler.heard("registered")
        assert master.heads[0]["Authorization"] == f"Bearer {directory.token(FRAMEWORK)}"
        master.say(*(status("t1", n, data="x" * 100_000) for n in range(20)))
        scheduler.heard("statusUpdate", 20)
        driver.sendFrameworkMessage({"value": "e"}, {"value": "S1"}, "x" * 3_000_000)
        until(lambda: len(master.calls) == 21)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, 1, "m2"))
        scheduler.heard("reregistered")
        driver.stop()
        driver.join()
        assert master.kinds() == ["TEARDOWN"]


def test_another_server_at_the_masters_address_is_not_believed(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    stranger = PoolDirectory.create(tmp_path / "other", "p")
    with (
        Scripted(context=stranger.server_context(MASTER_NAME)) as false,
        Scripted(context=directory.server_context(MASTER_NAME)) as true,
    ):
        directory.publish(MasterAddress(("127.0.0.1",), false.port, True, 1, "m1"))
        _, scheduler = start(directory)
        directory.publish(MasterAddress(("127.0.0.1",), true.port, True, 1, "m2"))
        scheduler.heard("registered")
        assert false.subscriptions == []


def test_secrets_that_others_can_read_are_not_sent(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    directory.token_file(FRAMEWORK).chmod(0o644)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, 1, "m1"))
        driver, scheduler = start(directory)
        driver.join()
        assert "chmod 600" in scheduler.heard("error")[1] and master.subscriptions == []


# ------------------------------------------------------- driver connection


@pytest.mark.parametrize("nonsense", [b"x\n{}", b"5\nnull!", b"99999999999\n"])
def test_a_stream_that_makes_no_sense_is_given_up_for_a_new_one(
    master: Scripted, start: Start, nonsense: bytes
) -> None:
    _, scheduler = start(master)
    scheduler.heard("registered")
    master.raw(nonsense)
    scheduler.heard("reregistered")
    assert scheduler.names() == ["registered", "disconnected", "reregistered"]


def test_it_comes_back_with_its_id_and_what_it_has_suppressed(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.suppressOffers()
    driver.reviveOffers(["b"])
    until(lambda: len(master.calls) == 2)
    master.cut()
    scheduler.heard("reregistered")
    again = master.subscriptions[1]
    assert again["framework_id"] == again["subscribe"]["framework_info"]["id"] == {"value": "F1"}
    assert again["subscribe"]["suppressed_roles"] == ["a"]
    driver.reviveOffers()
    until(lambda: len(master.calls) == 3)
    assert master.heads[-1]["Mesos-Stream-Id"] == "s2"


def test_a_driver_with_an_id_takes_its_place(master: Scripted, start: Start) -> None:
    _, scheduler = start(master, framework=INFO | {"id": {"value": "F1"}, "failover_timeout": 7})
    scheduler.heard("reregistered")
    assert master.subscriptions[0]["framework_id"] == {"value": "F1"}
    assert master.subscriptions[0]["subscribe"]["framework_info"]["failover_timeout"] == 7


def test_a_master_that_has_fallen_silent_is_left(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.05)) as master:
        _, scheduler = start(master)
        scheduler.heard("reregistered")
        assert scheduler.names()[:2] == ["registered", "disconnected"]


def test_a_master_whose_heart_beats_is_not_left(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.2)) as master:
        _, scheduler = start(master)
        for n in range(1, 40):
            master.say({"type": "HEARTBEAT"})
            scheduler.heard("processHeartBeat", n)
            threading.Event().wait(0.05)
        assert set(scheduler.names()) == {"registered", "processHeartBeat"}


def test_a_call_that_is_never_answered_means_that_the_master_is_gone(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.1)) as master:
        master.status = lambda call: None
        driver, scheduler = start(master)
        scheduler.heard("registered")
        driver.reviveOffers()
        while "disconnected" not in scheduler.names() and scheduler.names().count("processHeartBeat") < 500:
            master.say({"type": "HEARTBEAT"})
            threading.Event().wait(0.02)
        scheduler.heard("reregistered")


@pytest.mark.parametrize("code", [307, 400, 401, 403, 406])
def test_a_master_that_will_not_have_us_is_not_asked_again(master: Scripted, start: Start, code: int) -> None:
    master.entry = lambda: web.Response(status=code, text="not you")
    driver, scheduler = start(master)
    driver.join()
    assert scheduler.told == [("error", f"the subscription was answered with {code}: not you")]
    assert len(master.subscriptions) == 1


def test_a_master_that_is_not_ready_is_asked_again(master: Scripted, start: Start) -> None:
    answers = [web.Response(status=503, headers={"Retry-After": "0"}) for _ in range(3)]
    master.entry = lambda: answers.pop() if answers else None
    _, scheduler = start(master)
    scheduler.heard("registered")
    assert len(master.subscriptions) == 4 and scheduler.names() == ["registered"]


# ------------------------------------------------------- what a server may send


def stay(stream: socket.socket) -> None:
    """Until the peer closes."""
    while stream.recv(1 << 16):
        pass


def test_a_stream_is_understood_however_its_bytes_arrive(start: Start) -> None:
    beat = frame({"type": "HEARTBEAT"})
    rescind = frame({"type": "RESCIND", "rescind": {"offer_id": {"value": "y" * 9}}})
    data = b"\r\n" + HEAD + chunk(frame(subscribed())) + chunk(rescind + beat)  # an empty line may come first

    def talk(number: int, stream: socket.socket) -> None:
        for n in range(len(data)):
            stream.sendall(data[n : n + 1])
        stay(stream)

    with Raw(talk) as server:
        driver, scheduler = start(server)
        scheduler.heard("processHeartBeat")
        assert scheduler.names() == ["registered", "offerRescinded", "processHeartBeat"]
        assert driver.master == server.address
        driver.abort()
        driver.join()
        assert driver.aborted and driver.master is None


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x01nonsense",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(300)) + b"\r\n",
        HEAD + b"zz\r\n",
        HEAD + chunk(b"nonsense\n"),
        HEAD + b"0\r\n\r\n",
        b"",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000,
    ],
    ids=["no http", "headers", "chunk", "record", "end", "nothing", "upgrade", "too much"],
)
def test_answers_to_the_subscription_that_make_no_sense_are_tried_again(
    start: Start, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executors.mesos.client.LARGEST", 4000)

    def talk(number: int, stream: socket.socket) -> None:
        stream.recv(1 << 16)
        stream.sendall(answer if number < 2 else HEAD + chunk(frame(subscribed())))
        if number == 2:
            stay(stream)

    with Raw(talk) as server:
        driver, scheduler = start(server)
        scheduler.heard("registered")
        assert server.taken == 3 and scheduler.names() == ["registered"]
        driver.abort()
        driver.join()


@pytest.mark.parametrize("extra", [OK, b"nonsense", b""], ids=["one too many", "no http", "closed"])
def test_answers_to_calls_that_make_no_sense_cost_the_subscription(start: Start, extra: bytes) -> None:
    def talk(number: int, stream: socket.socket) -> None:
        stream.recv(1 << 16)
        if number == 1:
            stream.sendall(OK + extra if extra != b"nonsense" else extra)
        else:
            stream.sendall(HEAD + chunk(frame(subscribed())))
            stay(stream)

    with Raw(talk) as server:
        driver, scheduler = start(server)
        scheduler.heard("registered")
        driver.reviveOffers()
        scheduler.heard("reregistered")
        assert scheduler.names() == ["registered", "disconnected", "reregistered"]
        driver.abort()
        driver.join()


def test_interim_answers_are_no_answers(start: Start) -> None:
    def talk(number: int, stream: socket.socket) -> None:
        stream.recv(1 << 16)
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        stream.sendall(HEAD + chunk(frame(subscribed())) if number == 0 else interim + refusal)
        stay(stream)

    with Raw(talk) as server:
        driver, scheduler = start(server)
        scheduler.heard("registered")
        driver.reviveOffers()
        assert scheduler.heard("callRefused")[2] == 403 and "disconnected" not in scheduler.names()
        driver.abort()
        driver.join()


def test_the_first_host_that_answers_is_taken(tmp_path: Path, master: Scripted, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    directory.publish(MasterAddress(("127.255.255.255", "", "127.0.0.1"), master.port, False, 1, "m"))
    driver, scheduler = start(directory)
    scheduler.heard("registered")
    driver.reviveOffers()
    until(lambda: master.calls)
    assert master.heads[0]["Host"].endswith(f":{master.port}")


def test_it_waits_for_a_master_and_stops_while_it_does(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    driver, scheduler = start(directory)
    driver.reviveOffers()  # without effect
    assert not driver.connected and not driver.aborted
    with Scripted() as master:
        directory.publish(address := MasterAddress(("127.0.0.1",), master.port, False, 1, "m"))
        scheduler.heard("registered")
        directory.withdraw(address)
    scheduler.heard("disconnected")
    before = time.monotonic()
    driver.stop()
    driver.join()
    assert time.monotonic() - before < DEADLINE_S / 2 and "error" not in scheduler.names()


def test_a_damaged_directory_ends_it(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    write_private(directory.path / "master.json", b"{")
    driver, scheduler = start(directory)
    assert "master.json is damaged" in scheduler.heard("error")[1]
    driver.join()
    assert driver.aborted


def test_a_driver_that_was_never_started_can_be_stopped(pool: PoolDirectory) -> None:
    driver = SchedulerDriver(Recorder(), INFO, pool)
    driver.reviveOffers()
    driver.stop()
    driver.join()
    assert driver.aborted


def test_large_calls_and_small_ones_stay_in_order(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")
    for n in range(40):
        driver.sendFrameworkMessage({"value": str(n)}, {"value": "S1"}, "x" * (1 << 20 if n % 10 == 0 else 1))
    until(lambda: len(master.calls) == 40)
    assert [call["message"]["executor_id"]["value"] for call in master.calls] == [str(n) for n in range(40)]


def test_a_connection_that_no_server_takes_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ClientConnection(Endpoint(("127.0.0.1",), port))
    with pytest.raises(OSError, match="no host"):
        ClientConnection(Endpoint((), port))


# ------------------------------------------------------- drivers live


OWN_EXECUTOR = live.python(Path(__file__).parent / "programs" / "own_executor.py")


class Scheduler:
    """Launches tasks that wait for files, and remembers what it is told."""

    def __init__(self, *files: Path) -> None:
        self.files = list(files)
        self.told: list[str] = []
        self.states: dict[str, list[str]] = {}

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        for offer in offers:
            tasks = [self._task(offer, self.files.pop()) for _ in self.files[:]]
            driver.launchTasks(offer["id"], tasks)

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        self.states.setdefault(status["task_id"]["value"], []).append(status["state"])

    def registered(self, *_: Any) -> None:
        self.told.append("registered")

    def reregistered(self, *_: Any) -> None:
        self.told.append("reregistered")

    def disconnected(self, driver: SchedulerDriver) -> None:
        self.told.append("disconnected")

    def error(self, driver: SchedulerDriver, message: str) -> None:
        self.told.append(message)

    def reached(self, state: str, tasks: int) -> bool:
        return sum(state in states for states in list(self.states.values())) == tasks

    def _task(self, offer: dict[str, Any], file: Path) -> dict[str, Any]:
        task = live.command(file.name, offer, "", cpus=0.5)
        del task["command"]
        executor = {"executor_id": {"value": "own"}, "command": {"value": OWN_EXECUTOR}}
        return task | {"executor": executor, "data": base64.b64encode(str(file).encode()).decode()}


@contextmanager
def running(directory: PoolDirectory, scheduler: Scheduler) -> Iterator[SchedulerDriver]:
    info = live.FRAMEWORK | {"checkpoint": True, "failover_timeout": 60}
    driver = SchedulerDriver(scheduler, info, directory)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()
        driver.join()


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "test")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"t{n}" for n in range(3)]


def test_the_masters_death_costs_no_task(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    scheduler = Scheduler(*files)
    master = MasterService(directory)
    master.start()
    try:
        with live.agent(directory, tmp_path / "work"), running(directory, scheduler) as driver:
            until(lambda: scheduler.reached("TASK_RUNNING", 3), "tasks")
            own = driver.framework_id
            files[0].touch()
            until(lambda: scheduler.reached("TASK_FINISHED", 1), "the first to end")
            master.kill()
            files[1].touch()
            until(lambda: "disconnected" in scheduler.told)
            master.start()
            until(lambda: "reregistered" in scheduler.told)
            until(lambda: scheduler.reached("TASK_FINISHED", 2), "the update from meanwhile")
            files[2].touch()
            until(lambda: scheduler.reached("TASK_FINISHED", 3), "the last to end")
            assert driver.framework_id == own
    finally:
        master.close()
    assert scheduler.told == ["registered", "disconnected", "reregistered"]
    assert all(states[-1] == "TASK_FINISHED" and "TASK_LOST" not in states for states in scheduler.states.values())


def test_another_driver_takes_over_the_tasks(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    first, second = Scheduler(*files), Scheduler()
    with MasterService(directory), live.agent(directory, tmp_path / "work"):
        info = live.FRAMEWORK | {"failover_timeout": 60}
        driver = SchedulerDriver(first, info, directory)
        driver.start()
        until(lambda: first.reached("TASK_RUNNING", 3), "tasks")
        other = SchedulerDriver(second, info | {"id": {"value": driver.framework_id}}, directory)
        other.start()
        driver.join(20)
        assert driver.aborted and first.told[0] == "registered" and "failed over" in first.told[-1]
        until(lambda: "reregistered" in second.told)
        other.reconcileTasks([])
        until(lambda: second.reached("TASK_RUNNING", 3), "reconciliation")
        for file in files:
            file.touch()
        until(lambda: second.reached("TASK_FINISHED", 3), "their end")
        other.stop()
        other.join()
    assert not any("TASK_FINISHED" in states for states in first.states.values())
