from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import json
import os
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import StateError
from executors.dask.driver import DaskProxy, NodeProxy, ProxyListener, WorkerAssignment
from executors.dask.library import PIECE, pieces
from executors.dask.messages import AssignedOrder, RecallOrders, RetireWorker, SchedulerAddress, WorkerGone
from executors.dask.node import ScratchDirectory
from executors.wire import (
    LARGEST,
    RENDEZVOUS,
    Alive,
    Channel,
    Hello,
    OrderOutcome,
    ReleaseNode,
    RunOrders,
    TaskOrder,
    TaskReport,
    UnixListener,
    Welcome,
    connect,
)


def test_it_is_our_own_and_goes_again(tmp_path: Path) -> None:
    scratch = ScratchDirectory(str(tmp_path))
    assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700 and scratch.path.parent == tmp_path
    scratch.close()
    assert not list(tmp_path.iterdir())


def test_those_of_killed_crews_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        (ScratchDirectory(str(tmp_path)).path / "file").touch()
        os._exit(1)
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    first = ScratchDirectory(str(tmp_path))
    second = ScratchDirectory(str(tmp_path))
    assert not left.exists() and first.path.exists() and second.path.exists()
    first.close()
    second.close()


def test_what_only_looks_like_one_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "asa-dask-link").symlink_to(tmp_path / "target")
    ScratchDirectory(str(tmp_path)).close()
    assert (tmp_path / "target").exists() and (tmp_path / "asa-dask-link").is_symlink()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_those_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "asa-dask-theirs").mkdir()
    os.chown(tmp_path / "asa-dask-theirs", 54321, -1)
    ScratchDirectory(str(tmp_path)).close()
    assert (tmp_path / "asa-dask-theirs").exists()


def blocks() -> None:
    raise BlockingIOError(errno.EWOULDBLOCK, "locked")


@pytest.mark.parametrize("then", [blocks, lambda: None])
def test_one_that_another_crew_tidies_up_before_it_is_locked_is_made_again(
    then: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, made = fcntl.flock, list[Path]()

    def tidied(descriptor: int, operation: int) -> None:
        if not made:
            made.extend(tmp_path.iterdir())
            shutil.rmtree(made[0])
            then()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", tidied)
    scratch = ScratchDirectory(str(tmp_path))
    assert [scratch.path] == list(tmp_path.iterdir()) != made
    scratch.close()


def test_a_file_system_without_locks_is_named_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        ScratchDirectory(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


HELLO = Hello("a", "n1", 7, 1, 0, 0)
WELCOME = Welcome("module:Crew", {}, "/values", "/work", (), 15.0)
PATIENCE_S = 30.0


def order(ticket: int) -> TaskOrder:
    return TaskOrder(ticket, "s", ticket, "f", b"", (), 1, 0, 0, 1)


class Farm:
    def __init__(self) -> None:
        self.given: list[AssignedOrder] = []
        self.forgotten: list[int] = []

    def submit(self, given: Sequence[AssignedOrder]) -> None:
        self.given += given

    def forget(self, tickets: Iterable[int]) -> None:
        self.forgotten += tickets


class Scene:
    """A relay, with the test at both its ends."""

    def __init__(self) -> None:
        (node, relays), (hub, other) = socket.socketpair(), socket.socketpair()
        self.node, self.hub, self.farm, self.left = Channel(node), Channel(hub), Farm(), False
        self.node.largest = self.hub.largest = LARGEST
        self.relay = NodeProxy(Channel(relays), Channel(other), itertools.count(1), self._leave)

    def _leave(self, relay: NodeProxy) -> None:
        self.left = True

    async def hear(self, end: Channel) -> Any:
        """The next message at one end."""
        async with asyncio.timeout(PATIENCE_S):
            while not (messages := end.receive()):
                await asyncio.sleep(0.001)
        (message,) = messages
        return message

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await asyncio.sleep(0.001)

    async def introduce(self) -> SchedulerAddress:
        """Both sides greet one another; dask is there."""
        self.node.send(HELLO)
        assert await self.hear(self.hub) == HELLO
        self.hub.send(WELCOME)
        assert await self.hear(self.node) == WELCOME
        self.relay.use(self.farm, ("h",), 8)
        (scheduler,) = (await self.hear(self.node)).orders
        assert isinstance(scheduler, SchedulerAddress)
        return scheduler


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        await scenario(scene)
        scene.relay.close()

    asyncio.run(main())


def played(scenario: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    return lambda: play(scenario)


@played
async def test_messages_about_the_node_pass(scene: Scene) -> None:
    scheduler = await scene.introduce()
    assert (scheduler.hosts, scheduler.port) == (("h",), 8) and scheduler.prefix == scene.relay.prefix
    scene.node.send(Alive())
    assert await scene.hear(scene.hub) == Alive()
    scene.hub.send(ReleaseNode())
    assert await scene.hear(scene.node) == ReleaseNode()


@played
async def test_orders_go_to_dask_and_outcomes_come_from_the_workers(scene: Scene) -> None:
    await scene.introduce()
    scene.hub.send(RunOrders([order(1), order(2)]))
    scene.relay.add_worker("n1-x:1", "tls://w")
    await scene.until(lambda: scene.farm.given)
    assert [(each.order.ticket, each.address) for each in scene.farm.given] == [(1, "tls://w")]
    outcome = OrderOutcome(1, 0.0, 9.0, b"value")
    scene.node.send(TaskReport([outcome], []))
    assert await scene.hear(scene.hub) == TaskReport([outcome], [])
    assert scene.farm.forgotten == [1] and [each.order.ticket for each in scene.farm.given] == [1, 2]


@played
async def test_a_worker_that_is_gone_is_not_reported_to_the_hub(scene: Scene) -> None:
    await scene.introduce()
    scene.hub.send(RunOrders([order(1)]))
    scene.relay.add_worker("n1-x:1", "tls://w1")
    await scene.until(lambda: scene.farm.given)
    scene.node.send(WorkerGone("n1-x:1"))
    await scene.until(lambda: scene.farm.forgotten)
    scene.relay.add_worker("n1-x:2", "tls://w2")
    assert [(each.order.ticket, each.address) for each in scene.farm.given] == [(1, "tls://w1"), (1, "tls://w2")]
    scene.node.send(Alive())
    assert await scene.hear(scene.hub) == Alive()


@pytest.mark.parametrize("end", ["node", "hub"])
def test_one_end_that_hangs_up_ends_the_other(end: str) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        one, other = (scene.node, scene.hub) if end == "node" else (scene.hub, scene.node)
        one.close()
        with pytest.raises(ConnectionResetError):
            await scene.hear(other)
        assert scene.left

    play(scenario)


@played
async def test_a_node_that_is_gone_before_dask_is_there(scene: Scene) -> None:
    scene.node.send(HELLO)
    await scene.hear(scene.hub)
    scene.hub.send(WELCOME)
    await scene.hear(scene.node)
    scene.node.close()
    scene.relay.use(scene.farm, ("h",), 8)
    assert scene.left


@played
async def test_nonsense_from_a_node_ends_its_connection(scene: Scene) -> None:
    stream = socket.fromfd(scene.node.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    stream.sendall(b"\xff" * 100)
    stream.close()
    with pytest.raises(ConnectionResetError):
        await scene.hear(scene.hub)


def test_what_waits_for_long_goes_back_to_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executors.dask.driver.STUCK_S", 0.02)

    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        scene.relay.add_worker("n1-x:1", "tls://w")
        scene.hub.send(RunOrders([order(1), order(2)]))
        assert await scene.hear(scene.hub) == TaskReport([], [2])
        monkeypatch.setattr("executors.dask.driver.STUCK_S", 1000.0)
        scene.hub.send(RunOrders([order(3)]))
        await scene.until(lambda: scene.relay.timer)
        scene.relay.close()
        assert scene.relay.timer is not None and scene.relay.timer.cancelled()

    play(scenario)


@played
async def test_a_long_message_passes_to_a_node_that_is_slow_to_read(scene: Scene) -> None:
    long = WELCOME._replace(values="/values" * 600_000)
    scene.hub.send(long)
    while scene.hub.unsent:
        scene.hub.flush()
        await asyncio.sleep(0.001)
    await scene.until(lambda: scene.relay.node.unsent)
    assert await scene.hear(scene.node) == long


@played
async def test_what_comes_before_hello_or_before_dask_is_no_harm(scene: Scene) -> None:
    scene.relay.add_worker("n1-x:1", "tls://w")
    scene.node.send(HELLO)
    assert await scene.hear(scene.hub) == HELLO
    outcome = OrderOutcome(1, 0.0, 9.0, b"value")
    scene.node.send(TaskReport([outcome], []))
    assert await scene.hear(scene.hub) == TaskReport([outcome], [])
    assert scene.farm.forgotten == []


def test_a_node_that_connects_to_the_front_reaches_the_hub_through_a_relay(tmp_path: Path) -> None:
    adopted: list[tuple[Channel, Channel]] = []
    listener = UnixListener(tmp_path, "door")
    front = ProxyListener(listener, lambda node, hub: adopted.append((node, hub)))
    assert (front.fileno(), front.address()) == (listener.fileno(), {"unix": "door"})
    assert front.accept() is None and adopted == []
    (tmp_path / RENDEZVOUS).write_text(json.dumps(front.address()))
    (tmp_path / RENDEZVOUS).chmod(0o600)
    knocking = connect(str(tmp_path))
    guest = front.accept()
    ((node, hub),) = adopted
    assert guest is not None
    hub.send(Alive())
    assert guest.receive() == [Alive()]
    for channel in (knocking, guest, node, hub):
        channel.close()
    front.close()
    assert not (tmp_path / "door").exists()


SHORT_S = 0.001


def plain(ticket: int, stage: str = "s", cores: int = 1, gpus: int = 0) -> TaskOrder:
    return TaskOrder(ticket, stage, ticket, "f", b"", (), cores, 0, gpus, 1)


def bench(cores: int = 2, gpus: int = 0) -> WorkerAssignment:
    bench = WorkerAssignment(Hello("a", "n1", 1, cores, 0, gpus), itertools.count(1))
    for number in range(cores):
        bench.add_worker(f"w{number}", f"tls://w{number}")
    return bench


def end(bench: WorkerAssignment, *tickets: int, seconds: float = 10.0, now: float = 0.0) -> None:
    for ticket in tickets:
        bench.finish(OrderOutcome(ticket, 0.0, seconds, b""), now)


def tickets(given: list[AssignedOrder]) -> list[int]:
    return [each.order.ticket for each in given]


@pytest.fixture
def quick() -> WorkerAssignment:
    """A node that knows stage "s" to be short."""
    known = bench()
    known.accept([plain(900)], 0.0)
    known.assign(0.0)
    end(known, 900, seconds=SHORT_S)
    return known


def test_one_order_for_each_worker_while_nothing_is_known() -> None:
    node = bench()
    node.accept(map(plain, range(1, 6)), 0.0)
    given = node.assign(0.0)
    assert tickets(given) == [1, 2] and {each.address for each in given} == {"tls://w0", "tls://w1"}
    assert node.assign(0.0) == []
    end(node, 2)
    assert [(each.order.ticket, each.address) for each in node.assign(0.0)] == [(3, "tls://w1")]


def test_orders_wait_for_workers_that_have_not_come() -> None:
    node = WorkerAssignment(Hello("a", "n1", 1, 2, 0, 0), itertools.count(1))
    node.accept([plain(1), plain(2)], 0.0)
    assert node.assign(0.0) == [] and node.review(100.0) == ([], []), "and are not handed back meanwhile"
    node.add_worker("w0", "tls://w0")
    assert tickets(node.assign(0.0)) == [1]


def test_a_large_order_has_its_cores_to_itself_and_keeps_its_turn() -> None:
    node = bench(cores=3)
    node.accept([plain(1), plain(2, "large", cores=3), plain(3)], 0.0)
    assert tickets(node.assign(0.0)) == [1]
    end(node, 1)
    assert tickets(node.assign(0.0)) == [2]
    end(node, 2)
    assert tickets(node.assign(0.0)) == [3]


def test_short_orders_are_given_several_at_once_and_shared_fairly(quick: WorkerAssignment) -> None:
    quick.accept(map(plain, range(1, 9)), 0.0)
    given = quick.assign(0.0)
    count = sum(each.address == "tls://w0" for each in given)
    assert tickets(given) == list(range(1, 9)) and 3 <= count <= 5
    assert len({each.serial for each in given}) == 8


def test_a_worker_gets_more_before_it_has_run_out(quick: WorkerAssignment) -> None:
    quick.accept(map(plain, range(1, 101)), 0.0)
    first = quick.assign(0.0)
    assert 20 <= len(first) <= 40, "20 ms' work for each worker"
    mine = [each.order.ticket for each in first if each.address == "tls://w0"]
    end(quick, *mine[:3], seconds=SHORT_S)
    assert quick.assign(0.0) == [], "not one by one"
    end(quick, *mine[3:-3], seconds=SHORT_S)
    assert {each.address for each in quick.assign(0.0)} == {"tls://w0"}


def test_large_orders_are_not_sent_ahead_by_the_dozen(quick: WorkerAssignment) -> None:
    quick.accept([plain(ticket)._replace(arguments=bytes(100_000)) for ticket in range(1, 41)], 0.0)
    assert len(quick.assign(0.0)) == 10, "half a megabyte for each worker"


def test_what_waits_behind_a_long_task_is_recalled_and_given_to_others(quick: WorkerAssignment) -> None:
    quick.accept(map(plain, range(1, 9)), 0.0)
    given = quick.assign(0.0)
    long, *behind = [each for each in given if each.address == "tls://w0"]
    end(quick, *(each.order.ticket for each in given if each.address == "tls://w1"), seconds=SHORT_S)
    due = quick.due(0.0)
    assert due is not None and quick.review(due / 2) == ([], [])
    (recall,), returned = quick.review(due)
    assert recall == RecallOrders("w0", {each.serial: each.order.ticket for each in (long, *behind)}) and returned == []
    assert quick.review(due) == ([], []), "and again only if nothing comes of it"
    assert quick.review(2 * due) == ([recall], [])
    quick.back([each.order.ticket for each in behind])
    again = quick.assign(due)
    assert tickets(again) == tickets(behind) and {each.address for each in again} == {"tls://w1"}
    assert not {each.serial for each in again} & {each.serial for each in behind}


def test_what_cannot_be_started_for_long_goes_back() -> None:
    node = bench()
    node.accept(map(plain, range(1, 5)), 0.0)
    node.assign(0.0)
    due = node.due(0.0)
    assert due is not None and node.review(due) == ([], [3, 4])
    assert node.due(due) is None


def test_a_dead_workers_orders_wait_again_and_first() -> None:
    node = bench()
    node.accept(map(plain, range(1, 4)), 0.0)
    node.assign(0.0)
    assert node.remove_worker("w0") == [1]
    assert node.assign(0.0) == []
    node.add_worker("w2", "tls://w2")
    assert [(each.order.ticket, each.address) for each in node.assign(0.0)] == [(1, "tls://w2")]


def test_an_outcome_of_a_dead_workers_order_counts() -> None:
    node = bench()
    node.accept([plain(1)], 0.0)
    node.assign(0.0)
    end(node, 1)
    assert node.remove_worker("w0") == []
    assert node.assign(0.0) == []


def test_strangers_are_ignored() -> None:
    node = bench()
    end(node, 77)
    node.back([78])
    assert node.remove_worker("w9") == [] and node.assign(0.0) == []


def test_gpus_are_shared_out_and_a_worker_keeps_to_its_own() -> None:
    node = bench(cores=3, gpus=2)
    node.accept([plain(1, gpus=1), plain(2, gpus=1), plain(3)], 0.0)
    given = node.assign(0.0)
    assert [each.gpus for each in given] == [(0,), (1,), ()]
    end(node, 1, 2)
    node.accept([plain(4, gpus=1), plain(5, gpus=1)], 0.0)
    again = node.assign(0.0)
    assert {(each.address, each.gpus) for each in again} == {(each.address, each.gpus) for each in given[:2]}


@pytest.mark.parametrize(("first", "then"), [(1, 2), (1, 0), (0, 1)])
def test_a_worker_whose_libraries_know_other_gpus_is_replaced(first: int, then: int) -> None:
    """Also by one that knows none: what has once looked for GPUs finds the same ones ever after."""
    node = bench(cores=1, gpus=2)
    node.accept([plain(1, gpus=first)], 0.0)
    node.assign(0.0)
    end(node, 1)
    node.accept([plain(2, gpus=then)], 0.0)
    assert node.assign(0.0) == []
    assert node.review(0.0) == ([RetireWorker("w0")], [])
    assert node.assign(0.0) == [] and node.review(0.0) == ([], [])
    node.remove_worker("w0")
    node.add_worker("w1", "tls://w1")
    assert [each.gpus for each in node.assign(0.0)] == [tuple(range(then))]


def test_more_gpus_than_the_node_has() -> None:
    (refused,) = bench(gpus=1).accept([plain(1, gpus=2)], 0.0)
    assert refused.ticket == 1 and "needs 2 GPUs" in refused.error


@pytest.mark.slow
def test_a_scheduler_that_cannot_listen_is_named_and_nodes_are_sent_away(tmp_path: Path) -> None:
    cluster = DaskProxy(str(tmp_path / "none"), "127.0.0.1", ("127.0.0.1",), None)
    with pytest.raises(StateError, match="none"):
        cluster.wait()
    cluster.close()
    ends = [socket.socketpair() for _ in ("node", "hub")]
    cluster.adopt(*(Channel(ours) for ours, _ in ends))
    assert [theirs.recv(1) for _, theirs in ends] == [b"", b""]
    for _, theirs in ends:
        theirs.close()


def given(number: int, size: int) -> AssignedOrder:
    return AssignedOrder(number, TaskOrder(number, "s", number, "f", b"x" * size, (), 1, 0, 0, 1), "tls://w", ())


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([10, 10, 10], [[0, 1, 2]]),
        ([PIECE // 2, PIECE // 3, PIECE // 2, 10], [[0, 1], [2, 3]]),
        ([10, 2 * PIECE, 10], [[0], [1], [2]]),
        ([2 * PIECE], [[0]]),
    ],
)
@pytest.mark.slow
def test_dask_is_given_large_orders_in_parts(sizes: list[int], parts: list[list[int]]) -> None:
    """In order, and each one once; one that is too large for a part is a part of its own."""
    found = pieces([given(number, size) for number, size in enumerate(sizes)])
    assert [[each.serial for each in part] for part in found] == parts
