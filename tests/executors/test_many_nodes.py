"""Dozens of supervisors under one hub, over mutual TLS; benchmarks/nodes.py has thousands."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed, TasksKept
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.core.task import Task
from executors import wire
from executors.hub import HubExecutor
from executors.wire import Hello, Welcome, connect
from tests.executors.fleet import Fleet
from tests.waiting import until

NODES, SLOTS = 40, 5


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext("many", tmp_path / "run", str(tmp_path), tuple(sys.path))


class Driver:
    """An executor, and what it has reported."""

    def __init__(self, context: RunContext, heartbeat_s: float = 60.0) -> None:
        self.events: list[Event] = []
        self.executor = HubExecutor("tests.executors.fleet:Timers", heartbeat_s=heartbeat_s)
        self.executor.start(context, self.post)

    def post(self, events: Sequence[Event], logged: Callable[[], None] | None = None, /) -> None:
        self.events += events
        if logged is not None:
            logged()

    def launch(self, indices: Sequence[int], seconds: float) -> None:
        self.executor.launch([task(index, seconds) for index in indices], "a")

    def all(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def task(index: int, seconds: float) -> Task:
    return Task("s", index, "/function", pickle.dumps(((seconds,), {})), (), Resources(), identity=f"{index}")


class Nodes:
    """A fleet in a thread of its own."""

    def __init__(self, context: RunContext, count: int) -> None:
        self.fleet, self._calls, self._on = Fleet(str(context.directory), "a", SLOTS), list[Callable[[], None]](), True
        for number in range(count):
            self._calls.append(lambda number=number: self.fleet.join(f"n{number:03}"))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._on:
            while self._calls:
                self._calls.pop(0)()
            self.fleet.turn(0.02)

    def die(self, count: int) -> None:
        self._calls.append(lambda: self.fleet.die(count))

    def close(self) -> None:
        self._on = False
        self._thread.join()


@pytest.fixture
def nodes(context: RunContext) -> Iterator[Callable[[int], Nodes]]:
    made: list[Nodes] = []

    def make(count: int) -> Nodes:
        made.append(Nodes(context, count))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_tenth_of_the_nodes_is_lost_at_once(context: RunContext, nodes: Callable[[int], Nodes]) -> None:
    driver = Driver(context)
    with closing(driver.executor):
        fleet = nodes(NODES)
        driver.launch(range(3 * NODES * SLOTS), 0.5)
        until(lambda: len(driver.all(TaskDone)) >= NODES * SLOTS)
        fleet.die(NODES // 10)
        until(lambda: len(driver.all(NodeLost)) == NODES // 10)
        lost = [event for event in driver.all(TaskFailed) if isinstance(event, TaskFailed)]
        assert lost and all(event.infrastructure for event in lost)
        driver.launch([event.index for event in lost], 0.5)
        until(lambda: len(driver.all(TaskDone)) == 3 * NODES * SLOTS)
        done = [event for event in driver.all(TaskDone) if isinstance(event, TaskDone)]
        assert sorted(event.index for event in done) == list(range(3 * NODES * SLOTS)), "each once"
        assert max(Counter(event.node for event in done[: NODES * SLOTS]).values()) <= 2 * SLOTS, "all of them work"
        gone = {event.node for event in driver.all(NodeLost) if isinstance(event, NodeLost)}
        assert len(gone) == len(driver.all(NodeLost)) == NODES // 10
        assert {event.node for event in lost} <= gone
        driver.executor.release("a")
        until(lambda: not fleet.fleet.size)


def test_all_tasks_go_on_for_the_next_driver(context: RunContext, nodes: Callable[[int], Nodes]) -> None:
    first, everything = Driver(context), list(range(NODES * SLOTS))
    with closing(first.executor):
        fleet = nodes(NODES)
        until(lambda: len(first.all(NodeJoined)) == NODES)
        first.launch(everything, 3.0)
        until(lambda: fleet.fleet.look()["running"] == NODES * SLOTS)
    second = Driver(context)
    with closing(second.executor):
        names = {event.node for event in first.all(NodeJoined) if isinstance(event, NodeJoined)}
        second.executor.adopt([task(index, 3.0) for index in everything], "a", names)
        (kept,) = until(lambda: second.all(TasksKept))
        assert isinstance(kept, TasksKept) and sorted(index for _, index in kept.tasks) == everything
        second.launch([NODES * SLOTS], 0.1)
        until(lambda: len(second.all(TaskDone)) == NODES * SLOTS + 1)
        assert fleet.fleet.look()["ended"] == NODES * SLOTS + 1, "none has run twice"
        second.executor.release("a")
        until(lambda: not fleet.fleet.size)


def test_hundreds_may_come_at_once(context: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    """More than may be there without an introduction; nobody has to try again."""
    driver, failed = Driver(context), list[Exception]()
    ready = threading.Barrier(300)

    def come(number: int) -> None:
        ready.wait()
        try:
            channel = connect(str(context.directory))
            channel.send(Hello("a", f"n{number}", number, 1, 0, 0))
            channels.append(channel)
            until(lambda: any(isinstance(message, Welcome) for message in channel.receive()))
        except (OSError, AssertionError) as error:
            failed.append(error)

    channels: list[wire.Channel] = []
    with closing(driver.executor), caplog.at_level(logging.WARNING):
        threads = [threading.Thread(target=come, args=(number,)) for number in range(ready.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and "have not introduced themselves" not in caplog.text
        until(lambda: len(driver.all(NodeJoined)) == ready.parties)
        for channel in channels:
            channel.close()


def test_when_no_more_files_may_be_open_those_that_are_there_go_on(
    context: RunContext,
    nodes: Callable[[int], Nodes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = threading.Event()
    accept = wire.TlsListener.accept

    def accept_or_not(listener: wire.TlsListener) -> wire.Channel | None:
        if full.is_set():
            raise OSError(24, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(wire.TlsListener, "accept", accept_or_not)
    driver = Driver(context, heartbeat_s=2.0)
    with closing(driver.executor):
        nodes(2)
        until(lambda: len(driver.all(NodeJoined)) == 2)
        full.set()
        address = json.loads((context.directory / wire.RENDEZVOUS).read_text())
        with socket.create_connection(("127.0.0.1", address["port"])):
            until(lambda: "nodes cannot connect" in caplog.text)
            driver.launch([0], 0.01)
            until(lambda: driver.all(TaskDone))
        full.clear()
        nodes(1)
        until(lambda: len(driver.all(NodeJoined)) == 3)
        driver.executor.release("a")


def test_there_may_be_more_nodes_than_the_usual_limit_of_files(tmp_path: Path) -> None:
    program = f"""
import resource, socket
from pathlib import Path
from executors.wire import UnixListener
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
listener, kept = UnixListener(Path({str(tmp_path)!r}), "door"), []
for _ in range(400):
    client = socket.socket(socket.AF_UNIX)
    client.connect({str(tmp_path / "door")!r})
    kept += [client, listener.accept()]
print(kept.count(None), resource.getrlimit(resource.RLIMIT_NOFILE)[0], hard)
"""
    refused, soft, hard = map(int, subprocess.check_output([sys.executable, "-c", program]).split())
    assert refused == 0 and 800 < soft <= hard
