"""The connection to the master: what is heard and said, how it ends, and how it is made again."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.agent import link
from executors.mesos.agent.link import MasterConnection, MasterLink, Outbox, connect_to_master
from executors.mesos.agent_protocol import PATH, STREAM_HEADER
from executors.mesos.codec import Message, decode, encode, frame
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, MASTER_NAME, MasterAddress, PoolDirectory

PATIENCE_S = 30.0
REGISTER = message("REGISTER", agent_info={"hostname": "n1"})


class Node:
    """An agent that only takes notes."""

    def __init__(self, directory: PoolDirectory, patience_s: float = 1000.0) -> None:
        self.notes: list[str] = []
        self.link = MasterLink(
            directory,
            connected=self.connected,
            disconnected=lambda: self.notes.append("disconnected"),
            received=lambda item: self.notes.append(item["type"]),
            patience_s=patience_s,
        )

    def connected(self) -> None:
        self.notes.append("connected")
        self.link.send(REGISTER)


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not found():
            await asyncio.sleep(0.005)


class Master:
    """A master that does as a test tells it."""

    def __init__(self, directory: PoolDirectory, *, tls: bool = False, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.directory, self.tls, self.hosts = directory, tls, hosts
        self.streams: list[web.StreamResponse] = []
        self.transport: asyncio.Transport | None = None
        self.batches: list[list[Message]] = []
        self.registered: list[Message] = []
        self.ping_s, self.pings = 1.0, 30
        self.status = 202
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self, port: int = 0) -> None:
        server = web.Server(self.answer)
        self.runner = web.ServerRunner(server, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        context = self.directory.server_context(MASTER_NAME) if self.tls else None
        site = web.TCPSite(self.runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        self.port = self.runner.addresses[0][1]
        self.directory.publish(MasterAddress(self.hosts, self.port, self.tls, os.getpid(), "m"))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.directory.token(AGENT)}":
            return web.Response(status=401, text="who are you?")
        assert request.path == PATH and request.headers["Content-Type"] == "application/json"
        said = decode(await request.read())
        if said["type"] == "BATCH":
            assert request.headers[STREAM_HEADER] == f"s{len(self.streams)}"
            await self.gate.wait()
            self.batches.append(said["batch"]["items"])
            return web.Response(status=self.status)
        self.registered.append(said)
        response = web.StreamResponse(headers={STREAM_HEADER: f"s{len(self.streams) + 1}"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.streams.append(response)
        self.transport = request.transport
        told = {"agent_id": {"value": "a1"}, "ping_s": self.ping_s, "pings": self.pings}
        await response.write(frame(message("REGISTERED", **told)))
        await asyncio.Event().wait()
        raise AssertionError

    async def say(self, data: bytes) -> None:
        await self.streams[-1].write(data)

    async def close(self) -> None:
        await self.runner.cleanup()

    @property
    def items(self) -> list[Message]:
        return [item for batch in self.batches for item in batch]


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "test")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SOONEST_S", 0.01)
    monkeypatch.setattr(link, "LATEST_S", 0.05)


Story = Callable[[Master, MasterLink, Node], Awaitable[None]]


def play(directory: PoolDirectory, story: Story, patience_s: float = 1000.0, **options: Any) -> None:
    async def life() -> None:
        master, node = Master(directory, **options), Node(directory, patience_s)
        link = node.link
        await master.start()
        running = asyncio.create_task(link.run())
        try:
            await story(master, link, node)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await master.close()

    asyncio.run(life())


@pytest.mark.parametrize("tls", [False, True])
def test_it_registers_and_items_go_both_ways(directory: PoolDirectory, tls: bool) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        assert master.registered == [REGISTER]
        record = frame(message("PING"))
        for piece in (record[:3], record[3:] + record + record[:5], record[5:]):  # however it arrives
            await master.say(piece)
        await until(lambda: node.notes.count("PING") == 3)
        link.send(message("PONG"))
        await until(lambda: master.items == [message("PONG")])
        assert node.notes[0] == "connected"

    play(directory, story, tls=tls)


def test_items_that_are_sent_meanwhile_make_up_the_next_batch(directory: PoolDirectory) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        master.gate.clear()
        items = [message("UPDATE", number=number) for number in range(2500)]
        for item in items[:2]:
            link.send(item)
        await asyncio.sleep(0.05)  # the first batch is on its way
        for item in items[2:]:
            link.send(item)
        assert master.batches == []
        master.gate.set()
        await link.flush(PATIENCE_S)
        assert master.items == items, "in order, each once"
        assert max(map(len, master.batches)) == 1000 and len(master.batches) <= 5

    play(directory, story)


def test_nothing_is_sent_without_a_master(directory: PoolDirectory) -> None:
    async def life() -> None:
        link = Node(directory).link
        link.send(message("PONG"))
        await asyncio.wait_for(link.flush(PATIENCE_S), PATIENCE_S / 2)

    asyncio.run(life())


@pytest.mark.parametrize("end", ["close", "nonsense", "answer"])
def test_when_it_breaks_it_registers_anew(directory: PoolDirectory, end: str) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        if end == "close":
            assert master.transport is not None
            master.transport.abort()
        elif end == "nonsense":
            await master.say(b"x" * 100)
        else:
            master.status = 400
            link.send(message("PONG"))
        await until(lambda: "disconnected" in node.notes)
        master.status = 202
        await until(lambda: node.notes.count("REGISTERED") == 2)
        assert node.notes == ["connected", "REGISTERED", "disconnected", "connected", "REGISTERED"]
        link.send(message("PONG"))
        await until(lambda: master.items[-1:] == [message("PONG")])

    play(directory, story)


def test_what_was_not_sent_is_dropped_when_it_breaks(directory: PoolDirectory) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        master.gate.clear()
        link.send(message("UPDATE", number=1))
        await asyncio.sleep(0.05)
        link.send(message("UPDATE", number=2))
        assert master.transport is not None
        master.transport.abort()
        await until(lambda: node.notes.count("REGISTERED") == 2)
        master.gate.set()
        link.send(message("UPDATE", number=3))
        await until(lambda: message("UPDATE", number=3) in master.items)
        assert message("UPDATE", number=2) not in master.items, "the machine says it again"

    play(directory, story)


def test_another_master_is_found_at_the_address_it_publishes(directory: PoolDirectory) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        await master.close()
        second = Master(directory)
        await second.start()
        try:
            await until(lambda: second.registered == [REGISTER])
        finally:
            await second.close()

    play(directory, story)


def test_its_addresses_are_tried_in_turn(directory: PoolDirectory) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        assert node.notes == ["connected", "REGISTERED"], "one attempt"

    play(directory, story, hosts=("nowhere.invalid", "127.0.0.1"))


def test_a_silent_master_is_given_up(directory: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_S", (0.05, 3600.0))
    monkeypatch.setattr(link, "AGAIN_S", 0.05)

    async def story(master: Master, link: MasterLink, node: Node) -> None:
        master.ping_s, master.pings = 0.01, 5
        await until(lambda: node.notes.count("REGISTERED") >= 2)
        assert "silent" in link.problem

    play(directory, story)


def test_a_master_that_takes_nothing_is_given_up(directory: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "UNSENT_MOST", 100)

    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "REGISTERED" in node.notes)
        master.gate.clear()
        for _ in range(200):
            link.send(message("MESSAGE", data=""))
        await until(lambda: "disconnected" in node.notes)
        assert "does not take" in link.problem
        master.gate.set()
        await until(lambda: node.notes.count("REGISTERED") == 2)

    play(directory, story)


def test_after_a_pause_what_has_come_meanwhile_counts(
    directory: PoolDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP and SIGCONT: the time is over, but the master has spoken."""
    monkeypatch.setattr(link, "SILENCE_S", (0.3, 3600.0))

    async def story(master: Master, link: MasterLink, node: Node) -> None:
        master.ping_s, master.pings = 0.1, 3
        await until(lambda: "REGISTERED" in node.notes)
        loop = asyncio.get_running_loop()
        await master.say(frame(message("PING")))
        threading.Event().wait(0.5)  # nothing in this loop goes on
        for _ in range(3):
            await asyncio.sleep(0)
        assert loop.is_running()
        await until(lambda: "PING" in node.notes)
        assert "disconnected" not in node.notes

    play(directory, story)


def test_a_refused_token_is_the_problem_that_is_named(directory: PoolDirectory) -> None:
    async def story(master: Master, link: MasterLink, node: Node) -> None:
        await until(lambda: "disconnected" in node.notes)
        assert "401" in link.problem and "who are you?" in link.problem
        assert "REGISTERED" not in node.notes
        right = directory.token(AGENT)
        assert right not in link.problem and "wrong" not in link.problem

    class Forgetful(Master):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=401, text="who are you?")

    async def life() -> None:
        master, node = Forgetful(directory), Node(directory)
        link = node.link
        await master.start()
        running = asyncio.create_task(link.run())
        await story(master, link, node)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await master.close()

    asyncio.run(life())


def test_patience_has_an_end(directory: PoolDirectory) -> None:
    async def life(published: bool) -> str:
        link = Node(directory, 0.1).link
        with socket.socket() as deaf:  # bound, so that no other process is given the port, and listening to none
            deaf.bind(("127.0.0.1", 0))
            if published:
                directory.publish(MasterAddress(("127.0.0.1",), deaf.getsockname()[1], False, os.getpid(), "m"))
            await asyncio.wait_for(link.run(), PATIENCE_S)
        return link.problem

    assert "no master has started" in asyncio.run(life(False))
    assert "no master at http://127.0.0.1" in asyncio.run(life(True))


def test_a_damaged_address_is_named(directory: PoolDirectory) -> None:
    (directory.path / "master.json").write_text("{")
    (directory.path / "master.json").chmod(0o600)

    async def life() -> str:
        link = Node(directory, 0.05).link
        await asyncio.wait_for(link.run(), PATIENCE_S)
        return link.problem

    assert "damaged" in asyncio.run(life())


def test_another_pools_master_is_refused(directory: PoolDirectory, tmp_path: Path) -> None:
    stranger = PoolDirectory.create(tmp_path / "other", "other")

    async def life() -> None:
        master, node = Master(stranger, tls=True), Node(directory)
        await master.start()
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, os.getpid(), "m"))
        link = node.link
        running = asyncio.create_task(link.run())
        await until(lambda: "disconnected" in node.notes)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await master.close()
        assert master.registered == [] and "certificate" in link.problem.lower()

    asyncio.run(life())


# ------------------------------------------------------- line


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def exchanged(answer: bytes, hear: Callable[[bytes], object] | None) -> tuple[int, str]:
    """Ask a master that answers with these bytes, in one piece, and goes on listening: the status, and the end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(answer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        line = await connect_to_master("127.0.0.1", server.sockets[0].getsockname()[1], None, None, hear)
        try:
            async with asyncio.timeout(10):
                found = await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")
                if hear is None:
                    return found.status, found.text
                await asyncio.wait([line.broken])
        finally:
            line.close()
        return found.status, str(line.broken.exception())


def test_an_answer() -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nlater"
    assert asyncio.run(exchanged(answer, None)) == (503, "later")


def test_data_before_the_end_of_a_stream_are_received() -> None:
    heard: list[bytes] = []
    ended = asyncio.run(exchanged(HEAD + chunk(b"one") + chunk(b"two") + END, heard.append))
    assert (b"".join(heard), ended) == (b"onetwo", (200, "the master has ended it"))


def test_headers_without_end_break_the_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(10_000)) + b"\r\n"
    with pytest.raises(OSError, match="something else than HTTP"):
        asyncio.run(exchanged(answer, None))


def test_a_line_that_broke_before_the_answer_takes_no_request_any_more() -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            line = await connect_to_master("127.0.0.1", server.sockets[0].getsockname()[1], None, None, None)
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionResetError, match="the master has closed it"):
                    await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")
                with pytest.raises(ConnectionResetError, match="the connection is gone"):
                    await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")

    asyncio.run(main())


@pytest.mark.parametrize("junk", [b"zz\r\n", b"\0\0\0\0"])
def test_data_before_malformed_bytes_are_received(junk: bytes) -> None:
    heard: list[bytes] = []
    status, end = asyncio.run(exchanged(HEAD + chunk(b"one") + junk, heard.append))
    assert (b"".join(heard), status) == (b"one", 200)
    assert "something else than HTTP" in end


# ------------------------------------------------------- outbox


SIZES = st.lists(st.integers(0, 300), max_size=50)


@given(SIZES, st.integers(1, 7), st.integers(1, 500))
def test_all_items_are_sent_in_order_and_no_batch_is_too_large(sizes: list[int], most: int, bytes_most: int) -> None:
    items = [message("MESSAGE", data="x" * size, number=number) for number, size in enumerate(sizes)]
    said, box = [], Outbox()
    for item in items:
        box.put(item)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "BATCH_MOST", most)
        patch.setattr(link, "BATCH_BYTES", bytes_most)
        while box:
            batch = decode(box.batch())
            assert batch["type"] == "BATCH"
            found = batch["batch"]["items"]
            assert 0 < len(found) <= most and sum(len(encode(item)) for item in found[:-1]) < bytes_most
            said += found
    assert said == items
    with pytest.raises(IndexError):
        box.batch()


def test_it_is_full_by_number_or_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "UNSENT_MOST", 3)
    monkeypatch.setattr(link, "UNSENT_BYTES", 100)
    box, pong = Outbox(), message("PONG")
    for _ in range(3):
        box.put(pong)
    assert not box.is_full
    box.put(pong)
    assert box.is_full
    assert decode(box.take()) == pong and not box.is_full
    box.put(message("MESSAGE", data="x" * 90))
    box.take()
    assert box.is_full
    box.clear()
    assert not box and not box.is_full


def test_a_call_on_a_broken_connection_leaves_no_exception_behind() -> None:
    found: list[dict[str, Any]] = []

    async def call() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
        connection = MasterConnection()
        connection.connection_lost(None)
        with pytest.raises(ConnectionResetError):
            connection.post("POST / HTTP/1.1\r\n", b"")
        connection.close()
        del connection
        gc.collect()

    asyncio.run(call())
    assert found == []


def test_a_connection_that_is_lost_is_not_ended_again() -> None:
    """asyncio closes the socket of a transport that its peer has closed; to abort it then raises in the loop."""

    class Transport(asyncio.Transport):
        def abort(self) -> None:
            raise AssertionError("it has ended")

    async def lose() -> None:
        connection = MasterConnection()
        connection.connection_made(Transport())
        connection.connection_lost(None)
        connection.close()
        assert isinstance(connection.broken.exception(), ConnectionResetError)

    asyncio.run(lose())
