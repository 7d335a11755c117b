import asyncio
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from executors.dask.driver import NodeProxy, ProxyListener
from executors.dask.messages import AssignedOrder, SchedulerAddress, WorkerGone
from executors.wire import (
    LARGEST,
    RENDEZVOUS,
    Alive,
    Channel,
    Hello,
    ReleaseNode,
    RunOrders,
    TaskOrder,
    TaskOutcome,
    TaskReport,
    UnixListener,
    Welcome,
    connect,
)

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


def test_what_is_about_the_node_passes() -> None:
    async def scenario(scene: Scene) -> None:
        scheduler = await scene.introduce()
        assert (scheduler.hosts, scheduler.port) == (("h",), 8) and scheduler.prefix == scene.relay.prefix
        scene.node.send(Alive())
        assert await scene.hear(scene.hub) == Alive()
        scene.hub.send(ReleaseNode())
        assert await scene.hear(scene.node) == ReleaseNode()

    play(scenario)


def test_orders_turn_off_to_dask_and_outcomes_come_from_the_crew() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        scene.hub.send(RunOrders([order(1), order(2)]))
        scene.relay.add_worker("n1-x:1", "tls://w")
        await scene.until(lambda: scene.farm.given)
        assert [(each.order.ticket, each.address) for each in scene.farm.given] == [(1, "tls://w")]
        outcome = TaskOutcome(1, 0.0, 9.0, b"value")
        scene.node.send(TaskReport([outcome], []))
        assert await scene.hear(scene.hub) == TaskReport([outcome], [])
        assert scene.farm.forgotten == [1] and [each.order.ticket for each in scene.farm.given] == [1, 2]

    play(scenario)


def test_a_worker_that_is_gone_is_no_matter_of_the_hubs() -> None:
    async def scenario(scene: Scene) -> None:
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

    play(scenario)


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


def test_a_node_that_is_gone_before_dask_is_there() -> None:
    async def scenario(scene: Scene) -> None:
        scene.node.send(HELLO)
        await scene.hear(scene.hub)
        scene.hub.send(WELCOME)
        await scene.hear(scene.node)
        scene.node.close()
        scene.relay.use(scene.farm, ("h",), 8)
        assert scene.left

    play(scenario)


def test_nonsense_from_a_node_ends_its_connection() -> None:
    async def scenario(scene: Scene) -> None:
        stream = socket.fromfd(scene.node.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
        stream.sendall(b"\xff" * 100)
        stream.close()
        with pytest.raises(ConnectionResetError):
            await scene.hear(scene.hub)

    play(scenario)


def test_what_waits_for_long_goes_back_to_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executors.dask.driver._STUCK_S", 0.02)

    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        scene.relay.add_worker("n1-x:1", "tls://w")
        scene.hub.send(RunOrders([order(1), order(2)]))
        assert await scene.hear(scene.hub) == TaskReport([], [2])
        monkeypatch.setattr("executors.dask.driver._STUCK_S", 1000.0)
        scene.hub.send(RunOrders([order(3)]))
        await scene.until(lambda: scene.relay._timer)
        scene.relay.close()
        assert scene.relay._timer is not None and scene.relay._timer.cancelled()

    play(scenario)


def test_a_long_message_passes_to_a_node_that_is_slow_to_read() -> None:
    async def scenario(scene: Scene) -> None:
        long = WELCOME._replace(values="/values" * 600_000)
        scene.hub.send(long)
        while scene.hub.unsent:
            scene.hub.flush()
            await asyncio.sleep(0.001)
        await scene.until(lambda: scene.relay._node.unsent)
        assert await scene.hear(scene.node) == long

    play(scenario)


def test_what_comes_before_hello_or_before_dask_is_no_harm() -> None:
    async def scenario(scene: Scene) -> None:
        scene.relay.add_worker("n1-x:1", "tls://w")
        scene.node.send(HELLO)
        assert await scene.hear(scene.hub) == HELLO
        outcome = TaskOutcome(1, 0.0, 9.0, b"value")
        scene.node.send(TaskReport([outcome], []))
        assert await scene.hear(scene.hub) == TaskReport([outcome], [])
        assert scene.farm.forgotten == []

    play(scenario)


def test_who_knocks_at_the_front_is_the_hubs_guest_through_a_relay(tmp_path: Path) -> None:
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
