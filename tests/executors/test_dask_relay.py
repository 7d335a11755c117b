import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from executors.dask_bench import Given
from executors.dask_relay import Relay
from executors.dask_wire import Gone, Scheduler
from executors.wire import LARGEST, Alive, Channel, Hello, Order, Outcome, Release, Report, Run, Welcome

HELLO = Hello("a", "n1", 7, 1, 0, 0)
WELCOME = Welcome("module:Crew", {}, "/values", "/work", (), 15.0)
PATIENCE_S = 30.0


def order(ticket: int) -> Order:
    return Order(ticket, "s", ticket, "f", b"", (), 1, 0, 0, 1)


class Farm:
    def __init__(self) -> None:
        self.given: list[Given] = []
        self.forgotten: list[int] = []

    def submit(self, given: Sequence[Given]) -> None:
        self.given += given

    def forget(self, tickets: Iterable[int]) -> None:
        self.forgotten += tickets


class Scene:
    """A relay, with the test at both its ends."""

    def __init__(self) -> None:
        (node, relays), (hub, other) = socket.socketpair(), socket.socketpair()
        self.node, self.hub, self.farm, self.left = Channel(node), Channel(hub), Farm(), False
        self.node.largest = self.hub.largest = LARGEST
        self.relay = Relay(Channel(relays), Channel(other), itertools.count(1), self._leave)

    def _leave(self, relay: Relay) -> None:
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

    async def introduce(self) -> Scheduler:
        """Both sides greet one another; dask is there."""
        self.node.send(HELLO)
        assert await self.hear(self.hub) == HELLO
        self.hub.send(WELCOME)
        assert await self.hear(self.node) == WELCOME
        self.relay.use(self.farm, ("h",), 8)
        (scheduler,) = (await self.hear(self.node)).orders
        assert isinstance(scheduler, Scheduler)
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
        scene.hub.send(Release())
        assert await scene.hear(scene.node) == Release()

    play(scenario)


def test_orders_turn_off_to_dask_and_outcomes_come_from_the_crew() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        scene.hub.send(Run([order(1), order(2)]))
        scene.relay.sit("n1-x:1", "tls://w")
        await scene.until(lambda: scene.farm.given)
        assert [(each.order.ticket, each.address) for each in scene.farm.given] == [(1, "tls://w")]
        outcome = Outcome(1, 0.0, 9.0, b"value")
        scene.node.send(Report([outcome], []))
        assert await scene.hear(scene.hub) == Report([outcome], [])
        assert scene.farm.forgotten == [1] and [each.order.ticket for each in scene.farm.given] == [1, 2]

    play(scenario)


def test_a_worker_that_is_gone_is_no_matter_of_the_hubs() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.introduce()
        scene.hub.send(Run([order(1)]))
        scene.relay.sit("n1-x:1", "tls://w1")
        await scene.until(lambda: scene.farm.given)
        scene.node.send(Gone("n1-x:1"))
        await scene.until(lambda: scene.farm.forgotten)
        scene.relay.sit("n1-x:2", "tls://w2")
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
