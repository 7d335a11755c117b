"""Connections, with a service that answers as it is told; what master and agent make of it is tested with them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from asa.security import ca
from asa.web import protocol, server
from asa.web.errors import HTTPError
from asa.web.protocol import Headers
from asa.web.server import (
    Admission,
    Answer,
    Deferred,
    Durable,
    Listener,
    Request,
    Response,
    ResponseStream,
    StreamResponse,
    listening_socket,
)

DEADLINE_S = 20.0


class Service:
    """Says back what it is asked; ``/later`` waits, as do ``/slow`` and ``/stream``, until it is told to go on."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.bodies: list[bytes] = []
        self.durable = Durable()
        self.gate = asyncio.Event()
        self.streams: list[ResponseStream] = []
        self.over: list[ResponseStream] = []
        self.listener = Listener(self.admit, "the service")

    def admit(self, request: Request) -> Admission:
        if request.path == "/no":
            raise HTTPError(403, "no")
        return Admission(100, self.answer)

    def answer(self, request: Request) -> Answer:
        self.seen.append(request.path)
        self.bodies.append(request.body)
        if request.path == "/later":
            return Deferred(self.durable, Response(202, b"later"))
        if request.path == "/slow":
            return self.slow()
        if request.path == "/stream":
            self.streams.append(ResponseStream(request.connection, self.over.append, beating=False))
            return StreamResponse(self.streams[-1], {"X-Stream": "1"})
        if request.path == "/fault":
            raise ZeroDivisionError
        return Response(200, f"{request.path} {request.query} {request.body.decode()}".encode(), "text/plain")

    async def slow(self) -> Response:
        await self.gate.wait()
        return Response(200, b"slow", "text/plain")


class Client:
    """A socket to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, text: str) -> None:
        self.writer.write(text.replace("\n", "\r\n").encode("latin-1"))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            length = int(headers.get("content-length", 0))
            return int(head[0].split()[1]), headers, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """All that comes until the connection is closed."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()


Story = Callable[[Service, Client], Awaitable[None]]


def play(story: Story) -> None:
    async def life() -> None:
        service = Service()
        sock = listening_socket("127.0.0.1", 0)
        await service.listener.listen(sock, None)
        client = Client(*await asyncio.open_connection("127.0.0.1", sock.getsockname()[1]))
        try:
            async with asyncio.timeout(2 * DEADLINE_S):
                await story(service, client)
        finally:
            client.writer.close()
            await service.listener.close(0.1)
            async with asyncio.timeout(DEADLINE_S):
                while service.listener.connections:
                    await asyncio.sleep(0.001)

    asyncio.run(life())


def post(path: str, body: str = "", more: str = "") -> str:
    return f"POST {path} HTTP/1.1\nHost: h\n{more}Content-Length: {len(body)}\n\n{body}"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_however_bytes_arrive_requests_are_answered_in_order(size: int) -> None:
    async def story(service: Service, client: Client) -> None:
        text = post("/a?x=1&x=2&y=", "one") + post("/no") + post("/b%20c", "three") + post("/fault") + post("/d")
        data = text.replace("\n", "\r\n").encode()
        for at in range(0, len(data), size):
            client.writer.write(data[at : at + size])
            await asyncio.sleep(0)
        found = [(status, body) for status, _, body in [await client.answer() for _ in range(5)]]
        assert [status for status, _ in found] == [200, 403, 200, 500, 200]
        assert found[0][1] == b"/a {'y': '', 'x': '1'} one" and found[2][1] == b"/b c {} three"

    play(story)


def test_what_waits_to_be_durable_holds_up_answers_and_no_request() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(post("/later") + post("/a") + post("/later"))
        await until(lambda: service.seen == ["/later", "/a", "/later"])
        service.durable.set()
        assert [(await client.answer())[0] for _ in range(3)] == [202, 200, 202]

    play(story)


def test_what_takes_its_time_holds_up_what_follows() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(post("/slow") + post("/a"))
        await until(lambda: service.seen == ["/slow"])
        client.say(post("/b"))
        await asyncio.sleep(0.01)
        assert service.seen == ["/slow"]
        service.gate.set()
        assert [(await client.answer())[2][:2] for _ in range(3)] == [b"sl", b"/a", b"/b"]

    play(story)


def test_a_stream_comes_in_its_turn_and_what_follows_after_its_end() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(post("/later") + post("/stream") + post("/a"))
        await until(lambda: bool(service.streams))
        service.streams[0].put(b"one")
        service.durable.set()
        assert (await client.answer())[0] == 202
        status, headers, _ = await client.answer()
        assert (status, headers["transfer-encoding"], headers["x-stream"]) == (200, "chunked", "1")
        service.streams[0].put(b"two")
        service.streams[0].end()
        assert await client.reader.readexactly(21) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        assert (await client.answer())[2] == b"/a {} " and service.over == service.streams

    play(story)


def test_a_stream_hears_once_that_its_peer_has_gone() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(post("/stream"))
        await client.answer()
        client.writer.close()
        await until(lambda: bool(service.over))
        service.streams[0].put(b"to nobody")
        service.streams[0].end()
        assert service.over == service.streams

    play(story)


def test_an_answer_without_a_reader_is_given_up() -> None:
    async def story(service: Service, client: Client) -> None:
        ended = asyncio.Event()

        async def slow() -> Response:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        service.slow = slow  # type: ignore[method-assign]
        client.say(post("/slow"))
        await until(lambda: service.seen == ["/slow"])
        client.writer.close()
        await ended.wait()

    play(story)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (post("/no", "x" * 50)[:-10], 403),
        (post("/a", "x" * 101)[:-10], 413),
        ("POST /a HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\nff\n" + "x" * 255, 413),
        ("POST /a HTTP/1.1\nHost: h\nContent-Length: 1\nContent-Length: 2\n\n", 400),
        ("POST /a HTTP/1.1\nHost: h\nContent-Length: 1\nTransfer-Encoding: chunked\n\n", 400),
        ("GET /a HTTP/1.1\nHost: h\nX: " + "x" * 400_000, 400),
        ("GET /a HTTP/1.1\nHost: h\n" + "X: x\n" * 50_000, 400),
        ("CONNECT a:1 HTTP/1.1\nHost: h\n\n", 400),
    ],
)
def test_what_is_not_wanted_is_refused_and_nothing_behind_it_read(text: str, status: int) -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(text)
        found, headers, _ = await client.answer()
        assert (found, headers["connection"]) == (status, "close")
        client.say(post("/a"))
        assert await client.rest() == b"" and service.seen == []

    play(story)


def test_the_head_of_a_request_may_not_come_in_pieces_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_MOST", 1000)

    async def story(service: Service, client: Client) -> None:
        client.say("GET /a HTTP/1.1\nHost: h\nX: ")
        for _ in range(200):
            client.say("x" * 10)
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 400

    play(story)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.02)

    async def story(service: Service, client: Client) -> None:
        client.say(post("/a", "x" * 50)[:-10])
        assert (await client.answer())[0] == 408
        assert await client.rest() == b"" and service.seen == []

    play(story)


def test_a_client_that_expects_100_continue_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(service: Service, client: Client) -> None:
        expect = "Expect: 100-continue\n"
        client.say(post("/a", "body", expect)[:-4])
        assert (await client.answer())[0] == 100
        client.say("body")
        assert (await client.answer())[2] == b"/a {} body"
        client.say(post("/no", "body", expect)[:-4])
        assert (await client.answer())[0] == 403

    play(story)


def test_another_protocol_is_not_spoken_and_not_missed() -> None:
    """As Java's client asks, with its first request."""

    async def story(service: Service, client: Client) -> None:
        more = "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk\n"
        client.say(post("/a", "one", more) + post("/b", "two", more) + post("/c", "three"))
        found = [await client.answer() for _ in range(3)]
        assert [body for _, _, body in found] == [b"/a {} one", b"/b {} two", b"/c {} three"]

    play(story)


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        ("GET /a HTTP/1.1\nHost: h\nConnection: close\n\n", False),
        ("GET /a HTTP/1.0\nHost: h\n\n", False),
        ("GET /a HTTP/1.0\nHost: h\nConnection: keep-alive\n\n", True),
        ("GET http://h/a HTTP/1.1\nHost: h\n\n", True),
    ],
)
def test_a_connection_lasts_as_long_as_the_client_wants(text: str, lasts: bool) -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(text)
        status, headers, body = await client.answer()
        assert (status, body) == (200, b"/a {} ")
        if lasts:
            client.say(text)
            assert (await client.answer())[0] == 200
        else:
            assert headers["connection"] == "close" and await client.rest() == b""

    play(story)


def test_head_has_no_body() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say("HEAD /a HTTP/1.1\nHost: h\nConnection: close\n\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert b"Content-Length: 6" in head and body == b""

    play(story)


def test_who_asks_without_reading_answers_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PIPELINED_MOST", 10)

    async def story(service: Service, client: Client) -> None:
        client.say(post("/slow"))
        await until(lambda: service.seen == ["/slow"])
        for _ in range(12):
            client.say(post("/a"))
            await asyncio.sleep(0.001)
        (connection,) = service.listener.connections
        assert connection.transport is not None
        await until(lambda: not connection.transport.is_reading())  # type: ignore[union-attr]
        service.gate.set()
        assert [(await client.answer())[0] for _ in range(13)] == [200] * 13
        assert connection.transport.is_reading()

    play(story)


def test_who_does_not_read_a_stream_gets_it_later_and_whole() -> None:
    size, count = 1 << 16, 32

    async def story(service: Service, client: Client) -> None:
        client.say(post("/stream"))
        await client.reader.readuntil(b"\r\n\r\n")
        (stream,) = service.streams
        (connection,) = service.listener.connections
        assert connection.transport is not None
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        for number in range(count):
            stream.put(bytes([number]) * size)
        held = stream.waiting
        stream.beat(b"!")
        assert held > 0 and stream.waiting == held, "that something waits says as much as a heartbeat"
        stream.end()
        body = b""
        while chunk := int(await asyncio.wait_for(client.reader.readline(), DEADLINE_S), 16):
            body += (await asyncio.wait_for(client.reader.readexactly(chunk + 2), DEADLINE_S))[:-2]
        assert body == b"".join(bytes([number]) * size for number in range(count))
        await until(lambda: service.over == [stream])
        stream.put(b"late")
        stream.drop()
        assert stream.waiting == 0

    play(story)


def test_a_listener_that_never_listened_can_be_closed() -> None:
    async def life() -> None:
        listener = Service().listener
        await listener.close(DEADLINE_S)
        assert not listener.connections

    asyncio.run(life())


def test_closing_waits_for_what_is_being_answered() -> None:
    async def story(service: Service, client: Client) -> None:
        client.say(post("/slow"))
        await until(lambda: service.seen == ["/slow"])
        closing: Coroutine[Any, Any, None] = service.listener.close(DEADLINE_S)
        task = asyncio.create_task(closing)
        await asyncio.sleep(0)
        service.gate.set()
        assert (await client.answer())[:1] == (200,) and await client.rest() == b""
        await task

    play(story)


def test_closing_does_not_wait_for_a_client_that_keeps_its_connection(tmp_path: Path) -> None:
    """With TLS neither: a connection that is closed is closed by both, but one of them need not wait."""
    ca.create(tmp_path, "run")
    service, sock = Service(), listening_socket("127.0.0.1", 0)

    def ask(asked: threading.Event, closed: threading.Event) -> bytes:
        """As a client does that sleeps until it has its next request."""
        with (
            socket.create_connection(sock.getsockname()) as plain,
            ca.node_context(tmp_path).wrap_socket(plain, server_hostname=ca.DRIVER_NAME) as secured,
        ):
            secured.sendall(post("/a").replace("\n", "\r\n").encode())
            found = secured.recv(1000)
            asked.set()
            assert closed.wait(DEADLINE_S)
            return found + secured.recv(1000)

    async def life() -> None:
        await service.listener.listen(sock, ca.driver_context(tmp_path))
        asked, closed = threading.Event(), threading.Event()
        answer = asyncio.create_task(asyncio.to_thread(ask, asked, closed))
        assert await asyncio.to_thread(asked.wait, DEADLINE_S)
        began = time.monotonic()
        await service.listener.close(DEADLINE_S)
        assert time.monotonic() - began < DEADLINE_S / 4
        closed.set()
        assert (await answer).startswith(b"HTTP/1.1 200")

    asyncio.run(life())


def test_headers_are_found_in_whatever_case() -> None:
    headers = Headers({"host": "n1", "accept": "text/html"})
    assert headers["Host"] == headers.get("HOST") == "n1" and "Accept" in headers and 5 not in headers
    assert dict(headers) == {"host": "n1", "accept": "text/html"} and len(headers) == 2
    assert headers.get("Origin") is None
    with pytest.raises(KeyError):
        headers["Origin"]
