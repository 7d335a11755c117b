"""Whatever reaches the hub, it goes on, and each of its tasks is reported once."""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import Event, NodeJoined, TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.core.task import Task
from asa.log.proc import parse
from asa.security import ca
from asa.security.files import write_private
from executors.hub import Hub, HubExecutor
from executors.wire import (
    HEAD,
    RENDEZVOUS,
    Alive,
    CommandEnded,
    ForgetCommands,
    Hello,
    KeptOrder,
    KeptOrders,
    Leaving,
    OrderOutcome,
    ReleaseNode,
    RunOrders,
    TaskReport,
    UnixListener,
    Welcome,
    connect,
    frame,
)
from tests.mutation import VALUES, garbled
from tests.waiting import until

WELCOME = Welcome("module:Crew", {}, "/values", "/work", (), 15.0)
OUTCOME = OrderOutcome(1, 1.0, 2.0, b"value")
KEPT = KeptOrder(1, "k", 0, "i", ("n1", "n2"), (1, 1))
SENT: tuple[Any, ...] = (
    Hello("a", "n1", 1, 2, 0, 0),
    Hello("a", "n2", 2, 2, 1 << 30, 1, kept=1),
    Hello("gone", "n1", 1, 2, 0, 0),
    TaskReport([OUTCOME], []),
    TaskReport([OUTCOME._replace(value=None, error="e")], [1]),
    KeptOrders([KEPT]),
    Alive(),
    Leaving("why"),
    ReleaseNode(),
    ForgetCommands(1),
    CommandEnded(0),
    RunOrders([]),
)
INPUTS, LONGEST_S = 100_000, float(os.environ.get("ASA_FUZZ_S", "12"))
GROWTH_MOST = 64 << 20


def resident() -> int:
    return parse(Path("/proc/self/stat").read_text()).resident * os.sysconf("SC_PAGE_SIZE")


class Fuzzed:
    """A hub, what it posts, and a peer after the other that is none."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.events = directory, list[Event]()
        listener = UnixListener(directory, "door")
        write_private(directory / RENDEZVOUS, json.dumps(listener.address()).encode())
        self.hub = Hub(listener, WELCOME, self.post)
        self.hub.release("gone")
        self.launched = 0

    def post(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        self.events += events
        if logged is not None:
            logged()

    def launch(self) -> None:
        """One more task; that of a few is for several nodes."""
        nodes = 1 + (self.launched % 7 == 0)
        needs = Resources(cores=nodes, nodes=nodes)
        self.hub.launch([Task("s", self.launched, "f", b"", (), needs)], "a")
        self.launched += 1
        if self.launched % 50 == 0:
            self.hub.adopt([Task("k", 0, "f", b"", (), Resources(cores=2, nodes=2), identity="i")], "a", ["n1", "n2"])

    def peer(self, rng: random.Random) -> int:
        """One that begins as a node does and goes on as none would; how many inputs that were."""
        channel, count = connect(str(self.directory)), 0
        bare = socket.socket(fileno=os.dup(channel.fileno()))
        tickets = [1]
        try:
            for number in range(rng.randint(1, 8)):
                message = SENT[0] if number == 0 and rng.random() < 0.7 else rng.choice(SENT)
                if rng.random() < 0.8:
                    message = odd(message, rng, rng.choice(tickets))
                data = frame(message)
                if rng.random() < 0.1:
                    data = garbled(data[: HEAD.size], rng) + data[HEAD.size :]
                count += 1
                bare.sendall(data)
                for said in channel.receive():
                    if isinstance(said, RunOrders):
                        tickets += [order.ticket for order in said.orders]
        except OSError:  # it has hung up
            pass
        finally:
            bare.close()
            channel.close()
        return count


def odd(message: Any, rng: random.Random, ticket: int) -> Any:
    """The message with a ticket that may exist, and some parts of another kind."""
    if isinstance(message, TaskReport) and rng.random() < 0.5:
        return TaskReport([OUTCOME._replace(ticket=ticket, value=rng.choice((b"", "/p", None)))], [])
    if not message:
        return message
    at = rng.randrange(len(message))
    fields = list(message)
    inner = fields[at]
    if isinstance(inner, list) and inner and isinstance(inner[0], tuple) and rng.random() < 0.8:
        changed = odd(inner[0], rng, ticket)
        fields[at] = [changed._replace(ticket=ticket) if rng.random() < 0.7 else changed]
    elif isinstance(inner, tuple) and inner and rng.random() < 0.8:
        fields[at] = (rng.choice(VALUES), *inner[1:])
    else:
        fields[at] = rng.choice(VALUES)
    return type(message)(*fields)


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[Fuzzed]:
    made = Fuzzed(tmp_path)
    yield made
    made.hub.close()


def attack(fuzzed: Fuzzed, inputs: int, caplog: pytest.LogCaptureFixture) -> None:
    """Send so many inputs, or as many as the time allows; then an honest node does what is left."""
    caplog.set_level(logging.CRITICAL)  # what is refused is many lines
    rng, sent, began = random.Random(int(os.environ.get("ASA_FUZZ_SEED", "1"))), 0, time.monotonic()
    before = 0
    while sent < inputs and time.monotonic() < began + LONGEST_S:
        fuzzed.launch()
        sent += fuzzed.peer(rng)
        assert any(thread.name == "asa-hub" for thread in threading.enumerate()), "the hub has died"
        if sent > 2_000 and not before:
            before = resident()
    if before:
        # tasks and events of the test itself are some of it
        assert resident() - before < GROWTH_MOST + 2_000 * fuzzed.launched
    nodes = [connect(str(fuzzed.directory)) for _ in range(2)]
    for number, channel in enumerate(nodes):
        channel.send(Hello("a", f"good{number}", number, 2, 0, 0))

    def work() -> bool:
        for channel in nodes:
            channel.largest = 1 << 31
            orders = [order for said in channel.receive() if isinstance(said, RunOrders) for order in said.orders]
            if orders:
                channel.send(TaskReport([OUTCOME._replace(ticket=order.ticket) for order in orders], []))
        return len(ends(fuzzed.events)) >= fuzzed.launched

    until(work, lambda: f"{fuzzed.launched - len(ends(fuzzed.events))} tasks")
    for channel in nodes:
        channel.close()
    assert sorted(ends(fuzzed.events)) == list(range(fuzzed.launched)), "each once"


def ends(events: Sequence[Event]) -> list[int]:
    return [event.index for event in events if isinstance(event, TaskDone | TaskFailed) and event.stage == "s"]


def test_whatever_a_node_says_each_task_is_reported_once(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture) -> None:
    attack(fuzzed, 2_000, caplog)


@pytest.mark.slow
def test_whatever_a_node_says_at_length(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture) -> None:
    attack(fuzzed, INPUTS, caplog)


def greet(address: tuple[str, int], greeting: bytes, rng: random.Random) -> None:
    """A connection that begins as a node's would, more or less."""
    ours = f"127.0.0.{rng.randint(1, 250)}", 0  # of one address the ports would not suffice
    with socket.create_connection(address, source_address=ours) as stream, suppress(OSError):
        stream.sendall(garbled(greeting, rng))
        if rng.random() < 0.05:
            stream.settimeout(0.005)
            stream.recv(1 << 14)
            stream.sendall(garbled(greeting, rng))


def go_astray(directory: str, rng: random.Random) -> None:
    """A node of the run whose bytes are damaged on their way, below TLS."""
    channel = connect(directory)
    with socket.socket(fileno=os.dup(channel.fileno())) as bare, suppress(OSError):
        channel.send(SENT[0])
        record = b"\x17\x03\x03\x00\x20" + rng.randbytes(32)
        bare.sendall(garbled(record, rng))
    channel.close()


def attack_tls(context: RunContext, inputs: int, caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    caplog.set_level(logging.ERROR, "executors.hub")  # what is refused is many lines

    def post(more: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        events.extend(more)

    executor = HubExecutor("module:Crew")
    executor.start(context, post)
    try:
        said = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            node = ca.node_context(context.directory / "tls")
            node.wrap_bio(ssl.MemoryBIO(), said, server_hostname=ca.DRIVER_NAME).do_handshake()
        greeting = said.read()
        port = json.loads((context.directory / RENDEZVOUS).read_text())["port"]
        rng, sent, began = random.Random(int(os.environ.get("ASA_FUZZ_SEED", "1"))), 0, time.monotonic()
        before = files = 0
        while sent < inputs and time.monotonic() < began + LONGEST_S:
            if rng.random() < 0.01:
                go_astray(str(context.directory), rng)
            else:
                greet(("127.0.0.1", port), greeting, rng)
            sent += 1
            if sent == 100:
                before, files = resident(), len(os.listdir("/proc/self/fd"))
        channel = connect(str(context.directory))
        channel.send(SENT[0])
        until(lambda: any(isinstance(message, Welcome) for message in channel.receive()))
        channel.close()
        until(lambda: any(isinstance(event, NodeJoined) for event in events))
        assert len(os.listdir("/proc/self/fd")) < files + 300, "connections are closed"
        assert resident() - before < GROWTH_MOST
        assert not [record for record in caplog.records if record.exc_info]
    finally:
        executor.close()


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    return RunContext("run", tmp_path / "run", str(tmp_path), tuple(sys.path))


def test_whatever_begins_a_connection(run: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    attack_tls(run, 1_000, caplog)


@pytest.mark.slow
def test_whatever_begins_connections_at_length(run: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    attack_tls(run, INPUTS, caplog)
