from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from asa.core.errors import StateError
from executors.mesos.client import ClientConnection, SchedulerClient
from executors.mesos.codec import Message, frame
from executors.mesos.endpoint import Endpoint, of_url
from tests.executors.mesos.scripted import DEADLINE_S, Scripted, subscribed, until

HEAD = b"HTTP/1.1 200 OK\r\nMesos-Stream-Id: s1\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Raw:
    """Talks as it is told on each connection, the n-th one first: ``talk(n, socket)``; then it closes it."""

    def __init__(self, talk: Callable[[int, socket.socket], None]) -> None:
        self._talk, self.taken = talk, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(("127.0.0.1",), self._listener.getsockname()[1])
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


class Handler:
    """Remembers."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.losses, self.failures = 0, list[str]()
        self.refusals: list[int] = []

    def subscribe(self) -> Message:
        return {"type": "SUBSCRIBE"}

    def event(self, message: Message) -> None:
        self.events.append(message)

    def lost(self) -> None:
        self.losses += 1

    def refused(self, call: bytes, status: int, reason: str) -> None:
        self.refusals.append(status)

    def failed(self, reason: str) -> None:
        self.failures.append(reason)


Start = Callable[..., tuple[SchedulerClient, Handler]]


@pytest.fixture
def start() -> Iterator[Start]:
    clients: list[SchedulerClient] = []

    def start(find: Any, **options: Any) -> tuple[SchedulerClient, Handler]:
        handler = Handler()
        client = SchedulerClient(find if callable(find) else lambda: find, "/api/v1/scheduler", handler, **options)
        clients.append(client)
        client.start()
        return client, handler

    yield start
    for client in clients:
        client.stop(wait_s=0.0)
        with suppress(Exception):  # what the handler has raised
            client.join()


def stay(stream: socket.socket) -> None:
    """Until the peer closes."""
    while stream.recv(1 << 16):
        pass


def test_a_stream_however_its_bytes_arrive(start: Start) -> None:
    records = chunk(frame(subscribed())) + chunk(frame({"type": "A"}) + frame({"type": "B", "b": {"x": "y" * 9}}))
    data = b"\r\n" + HEAD + records  # an empty line before an answer is allowed

    def talk(number: int, stream: socket.socket) -> None:
        for n in range(len(data)):
            stream.sendall(data[n : n + 1])
        stay(stream)

    with Raw(talk) as server:
        client, handler = start(server.endpoint)
        until(lambda: len(handler.events) == 3)
        assert [event["type"] for event in handler.events] == ["SUBSCRIBED", "A", "B"]
        assert client.endpoint == server.endpoint
        client.stop(wait_s=0.0)
        client.join()
        assert not client.running and client.endpoint is None


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
        client, handler = start(server.endpoint)
        until(lambda: handler.events)
        assert server.taken == 3 and handler.losses == 0 and handler.failures == []
        client.stop(wait_s=0.0)
        client.join()


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
        client, handler = start(server.endpoint)
        until(lambda: handler.events)
        assert client.call({"type": "REVIVE"})
        until(lambda: len(handler.events) == 2)
        assert handler.losses == 1 and handler.refusals == []
        client.stop(wait_s=0.0)
        client.join()


def test_interim_answers_are_no_answers(start: Start) -> None:
    def talk(number: int, stream: socket.socket) -> None:
        stream.recv(1 << 16)
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        stream.sendall(HEAD + chunk(frame(subscribed())) if number == 0 else interim + refusal)
        stay(stream)

    with Raw(talk) as server:
        client, handler = start(server.endpoint)
        until(lambda: handler.events)
        client.call({"type": "REVIVE"})
        until(lambda: handler.refusals == [403])
        assert handler.losses == 0
        client.stop(wait_s=0.0)
        client.join()


def test_the_first_host_that_answers_is_taken(start: Start) -> None:
    with Scripted() as master:
        client, handler = start(Endpoint(("127.255.255.255", "", "127.0.0.1"), master.port))
        until(lambda: handler.events)
        assert client.call({"type": "REVIVE"})
        until(lambda: master.calls)
        assert master.heads[0]["Host"].endswith(f":{master.port}")


def test_it_waits_for_a_master_and_stops_while_it_does(start: Start) -> None:
    found: list[Endpoint] = []
    client, handler = start(lambda: found[0] if found else None)
    assert not client.call({"type": "REVIVE"}) and client.running
    with Scripted() as master:
        found.append(of_url(master.address))
        until(lambda: handler.events)
        found.clear()
    until(lambda: handler.losses)
    before = time.monotonic()
    client.stop({"type": "TEARDOWN"}, wait_s=DEADLINE_S)
    client.join()
    assert time.monotonic() - before < DEADLINE_S / 2 and handler.failures == []


def test_it_gives_up_when_it_was_told_to(start: Start) -> None:
    client, handler = start(lambda: None, give_up_s=0.2, longest_s=0.05)
    client.join(DEADLINE_S)
    assert handler.failures == ["no server could be reached for 0.2 s"] and not client.running


def test_a_damaged_directory_ends_it(start: Start) -> None:
    def find() -> Endpoint:
        raise StateError("master.json is damaged")

    client, handler = start(find)
    client.join(DEADLINE_S)
    assert handler.failures == ["master.json is damaged"] and not client.running


def test_a_client_that_was_never_started_can_be_stopped() -> None:
    client = SchedulerClient(lambda: None, "/", Handler())
    assert not client.running and not client.call({"type": "X"})
    client.stop()
    client.join()


def test_large_calls_and_small_ones_stay_in_order(start: Start) -> None:
    with Scripted() as master:
        client, handler = start(of_url(master.address))
        until(lambda: handler.events)
        for n in range(40):
            client.call({"type": "X", "n": n, "data": "x" * (1 << 20 if n % 10 == 0 else 1)})
        until(lambda: len(master.calls) == 40)
        assert [call["n"] for call in master.calls] == list(range(40))


def test_a_connection_nobody_answers_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ClientConnection(Endpoint(("127.0.0.1",), port))
    with pytest.raises(OSError, match="no host"):
        ClientConnection(Endpoint((), port))
