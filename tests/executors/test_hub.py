import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.task import Task
from asa.security.files import write_private
from executors.hub import Hub
from executors.wire import (
    LARGEST,
    RENDEZVOUS,
    CommandEnded,
    CommandRefused,
    Hello,
    Leaving,
    OrderOutcome,
    ReleaseNode,
    RemoteCommand,
    RunOrders,
    StartCommand,
    StopCommand,
    TaskOrder,
    TaskReport,
    UnixListener,
    Welcome,
    connect,
)
from tests.waiting import until

WELCOME = Welcome("module:Crew", {}, "/values", "/work", (), 15.0)


class Guest:
    """Somebody who knocks, by hand."""

    def __init__(self, directory: Path, introduction: object) -> None:
        self.channel = connect(str(directory))
        self.channel.largest = LARGEST
        self.heard: list[Any] = []
        self.channel.send(introduction)

    def hear(self, kind: type) -> Any:
        """The next message of this kind; those before it are passed over."""

        def next_one() -> Any:
            self.heard += self.channel.receive()
            while self.heard:
                if isinstance(message := self.heard.pop(0), kind):
                    return (message,)  # which may be empty, and then false
            return None

        return until(next_one, kind.__name__)[0]


class Node(Guest):
    """A supervisor."""

    def __init__(self, directory: Path, name: str = "n1", pid: int = 1, cores: int = 1) -> None:
        super().__init__(directory, Hello("a", name, pid, cores, 0, 0))


class Post:
    """Collects events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, events: Any) -> None:
        self.events += events

    def wait(self, kind: type, count: int = 1) -> list[Any]:
        until(lambda: sum(isinstance(event, kind) for event in self.events) >= count, lambda: f"more of {self.events}")
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def hub(tmp_path: Path, post: Post) -> Iterator[Hub]:
    listener = UnixListener(tmp_path, "door")
    write_private(tmp_path / RENDEZVOUS, json.dumps(listener.address()).encode())
    hub = Hub(listener, WELCOME, post)
    yield hub
    hub.close()


def task(index: int = 0, **needs: int) -> Task:
    return Task("s", index, "f", b"arguments", ("/p",), Resources(**needs))


def test_a_node_is_welcomed_and_given_what_waited(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task()], "a")
    node = Node(tmp_path)
    assert node.hear(Welcome) == WELCOME
    assert [order.number for order in node.hear(RunOrders).orders] == [0]
    (joined,) = post.wait(NodeJoined)
    assert (joined.allocation, joined.node, joined.cores) == ("a", "n1", 1)


def test_outcomes_become_events(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task(0), task(1), task(2)], "a")
    node = Node(tmp_path, cores=3)
    orders = node.hear(RunOrders).orders
    assert [(order.number, order.arguments, order.inputs) for order in orders] == [
        (number, b"arguments", ("/p",)) for number in range(3)
    ]
    node.channel.send(
        TaskReport(
            [
                OrderOutcome(orders[0].ticket, 1.0, 2.0, b"value"),
                OrderOutcome(orders[1].ticket, 1.0, 2.0, "/file"),
                OrderOutcome(orders[2].ticket, 1.0, 2.0, None, "ValueError: x", "trace", "words"),
                OrderOutcome(99, 1.0, 2.0, b"never asked for"),
                OrderOutcome(orders[0].ticket, 1.0, 2.0, b"twice"),
            ],
            [],
        )
    )
    post.wait(TaskFailed)
    assert [event for event in post.events if not isinstance(event, NodeJoined)] == [
        TaskDone(2.0, "s", 0, "a", "n1", 1.0, b"value", None),
        TaskDone(2.0, "s", 1, "a", "n1", 1.0, None, "/file"),
        TaskFailed(2.0, "s", 2, "a", "n1", 1.0, "ValueError: x", "trace", "words"),
    ]


def test_what_a_node_hands_back_is_given_again(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task()], "a")
    node = Node(tmp_path)
    (order,) = node.hear(RunOrders).orders
    node.channel.send(TaskReport([], [order.ticket]))
    assert node.hear(RunOrders).orders == [order]


def test_nodes_that_hand_back_are_not_sent_ahead_again(hub: Hub, tmp_path: Path, post: Post) -> None:
    node = Node(tmp_path)
    hub.launch([task(0)], "a")
    (first,) = node.hear(RunOrders).orders
    hub.launch([task(number) for number in range(1, 9)], "a")
    node.channel.send(TaskReport([OrderOutcome(first.ticket, 1.0, 1.002, b"")], []))
    ahead = node.hear(RunOrders).orders
    assert [order.number for order in ahead] == list(range(1, 9)), "short tasks"
    node.channel.send(
        TaskReport([OrderOutcome(ahead[0].ticket, 1.0, 1.002, b"")], [order.ticket for order in ahead[1:]])
    )
    assert [order.number for order in node.hear(RunOrders).orders] == [2]


def test_a_node_that_talks_nonsense_is_dropped_and_others_stay(hub: Hub, tmp_path: Path, post: Post) -> None:
    good, bad = Node(tmp_path, "good"), Node(tmp_path, "bad")
    post.wait(NodeJoined, 2)
    bad.channel.send({"not": "a message"})
    (lost,) = post.wait(NodeLost)
    assert lost.node == "bad" and "dict was not expected" in lost.reason
    hub.launch([task()], "a")
    assert good.hear(RunOrders).orders


def test_a_node_that_connects_anew_replaces_itself(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task()], "a")
    Node(tmp_path, pid=7).hear(RunOrders)
    again = Node(tmp_path, pid=7)
    again.hear(Welcome)
    post.wait(NodeJoined, 2)
    kinds = [type(event) for event in post.events]
    assert kinds == [NodeJoined, TaskFailed, NodeLost, NodeJoined]
    assert post.wait(TaskFailed)[0].infrastructure


def test_a_task_may_span_nodes(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task(cores=4, nodes=2, memory=10, gpus=2)], "a")
    nodes = [Node(tmp_path, f"n{number}", cores=2) for number in range(2)]
    post.wait(NodeJoined, 2)
    (order,) = nodes[0].hear(RunOrders).orders
    assert (order.cores, order.memory, order.gpus, order.nodes) == (2, 5, 1, 2)


def test_closing_waits_until_a_release_is_sent(hub: Hub, tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.hear(Welcome)
    hub.launch([replace(task(), arguments=b"x" * 5_000_000)], "a")
    hub.release("a")
    closing = threading.Thread(target=hub.close)
    closing.start()
    assert node.hear(ReleaseNode) == ReleaseNode()
    node.channel.close()
    closing.join()


def test_a_released_allocation_takes_no_more(hub: Hub, tmp_path: Path, post: Post) -> None:
    node = Node(tmp_path)
    node.hear(Welcome)
    hub.release("a")
    hub.launch([task()], "a")
    assert node.hear(ReleaseNode) == ReleaseNode()
    assert Node(tmp_path, "late").hear(ReleaseNode) == ReleaseNode()
    node.channel.close()
    hub.close()
    assert [type(event) for event in post.events] == [NodeJoined]


class TestIdle:
    """Nodes that have had nothing to do for long end on demand, so that others may have them."""

    def test_one_that_has_had_nothing_to_do_is_told_to_end(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        node = Node(tmp_path)
        post.wait(NodeJoined)
        hub.dismiss_idle(0.0)
        assert node.hear(ReleaseNode) == ReleaseNode()
        (lost,) = post.wait(NodeLost)
        assert (lost.allocation, lost.node, lost.reason) == ("a", "n1", "it is lent to others")

    def test_its_allocation_goes_on(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        first = Node(tmp_path)
        post.wait(NodeJoined)
        hub.dismiss_idle(0.0)
        first.hear(ReleaseNode)
        hub.launch([task()], "a")
        again = Node(tmp_path, pid=2)
        assert again.hear(Welcome) == WELCOME
        assert [order.number for order in again.hear(RunOrders).orders] == [0]
        first.channel.close()
        again.channel.send(Leaving("it is over"))
        again.channel.close()
        assert [lost.reason for lost in post.wait(NodeLost, 2)] == ["it is lent to others", "it is over"], "told once"

    def test_one_that_works_or_has_just_worked_stays(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        nodes = []
        for number in range(1, 4):
            nodes.append(Node(tmp_path, f"n{number}", number))
            post.wait(NodeJoined, number)
        hub.launch([task(0), task(1)], "a")
        orders = [node.hear(RunOrders).orders[0] for node in nodes[:2]]
        hub.dismiss_idle(0.0)
        nodes[2].hear(ReleaseNode)
        nodes[0].channel.send(TaskReport([OrderOutcome(orders[0].ticket, 1.0, 2.0, b"")], []))
        post.wait(TaskDone)
        hub.dismiss_idle(600.0)
        hub.launch([task(2)], "a")
        assert [order.number for order in nodes[0].hear(RunOrders).orders] == [2], "the hub has heard all of that"
        assert [lost.node for lost in post.wait(NodeLost)] == ["n3"]

    def test_while_something_waits_for_room_nothing_is_idle(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        hub.launch([task(cores=2, nodes=2)], "a")
        first = Node(tmp_path)
        post.wait(NodeJoined)
        hub.dismiss_idle(0.0)
        second = Node(tmp_path, "n2", pid=2)
        (order,) = first.hear(RunOrders).orders
        assert not [event for event in post.events if isinstance(event, NodeLost)]
        first.channel.send(TaskReport([OrderOutcome(order.ticket, 1.0, 2.0, b"")], []))
        post.wait(TaskDone)
        hub.dismiss_idle(0.0)
        assert first.hear(ReleaseNode) == second.hear(ReleaseNode) == ReleaseNode(), "now nothing waits"

    def test_all_nodes_of_a_task_that_spans_them_work(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        hub.launch([task(cores=2, nodes=2)], "a")
        nodes = [Node(tmp_path, f"n{number}", pid=number) for number in range(3)]
        post.wait(NodeJoined, 3)
        hub.dismiss_idle(0.0)
        (lost,) = post.wait(NodeLost)
        spare = next(node for number, node in enumerate(nodes) if lost.node == f"n{number}")
        assert spare.hear(ReleaseNode) == ReleaseNode()
        spare.channel.close()
        hub.dismiss_idle(0.0)
        hub.close()
        assert len(post.wait(NodeLost)) == 1


class TestErrands:
    """A launched task has two of three nodes; its launcher's shell asks for the second."""

    @pytest.fixture
    def nodes(self, hub: Hub, tmp_path: Path, post: Post) -> list[Node]:
        hub.launch([task(cores=2, nodes=2)], "a")
        nodes = []
        for number in range(1, 4):
            nodes.append(Node(tmp_path, f"n{number}", number))
            post.wait(NodeJoined, number)
        return nodes

    @pytest.fixture
    def order(self, nodes: list[Node]) -> TaskOrder:
        (order,) = nodes[0].hear(RunOrders).orders
        return order

    @pytest.fixture
    def shell(self, order: TaskOrder, tmp_path: Path) -> Guest:
        return Guest(tmp_path, RemoteCommand(order.ticket, "n2", "orted", {"A": "b"}))

    def test_the_node_is_told_and_the_shell_hears_how_it_ended(self, nodes: list[Node], shell: Guest) -> None:
        start = nodes[1].hear(StartCommand)
        assert (start.command, start.environment) == ("orted", {"A": "b"})
        nodes[1].channel.send(CommandEnded(start.number, 3))
        assert shell.hear(CommandEnded).code == 3

    @pytest.mark.parametrize("host", ["n3", "n4"])
    def test_other_nodes_are_refused(self, order: TaskOrder, tmp_path: Path, host: str) -> None:
        shell = Guest(tmp_path, RemoteCommand(order.ticket, host, "orted", {}))
        assert "one of the task's nodes" in shell.hear(CommandRefused).reason

    def test_when_the_shell_ends_so_does_the_command(self, nodes: list[Node], shell: Guest) -> None:
        number = nodes[1].hear(StartCommand).number
        shell.channel.close()
        assert nodes[1].hear(StopCommand).number == number

    def test_when_the_task_ends_so_do_both(self, nodes: list[Node], order: TaskOrder, shell: Guest) -> None:
        number = nodes[1].hear(StartCommand).number
        nodes[0].channel.send(TaskReport([OrderOutcome(order.ticket, 1.0, 2.0, b"")], []))
        assert nodes[1].hear(StopCommand).number == number
        assert shell.hear(CommandRefused).reason == "the task has ended"

    def test_when_the_tasks_first_node_is_lost_so_do_both(self, nodes: list[Node], shell: Guest) -> None:
        number = nodes[1].hear(StartCommand).number
        nodes[0].channel.close()
        assert nodes[1].hear(StopCommand).number == number
        assert "first node" in shell.hear(CommandRefused).reason

    def test_when_its_node_is_lost_the_shell_hears_of_it(self, nodes: list[Node], shell: Guest) -> None:
        nodes[1].hear(StartCommand)
        nodes[1].channel.send(Leaving("the power is out"))
        nodes[1].channel.close()
        assert "the power is out" in shell.hear(CommandRefused).reason


def test_of_a_node_that_connects_anew_the_old_connection_is_closed(hub: Hub, tmp_path: Path, post: Post) -> None:
    old = Node(tmp_path, pid=7)
    old.hear(Welcome)
    again = Node(tmp_path, pid=7)
    again.hear(Welcome)
    post.wait(NodeJoined, 2)
    assert [type(event) for event in post.events] == [NodeJoined, NodeLost, NodeJoined]
    with pytest.raises(ConnectionResetError):
        old.hear(RunOrders)
    hub.launch([task()], "a")
    assert again.hear(RunOrders).orders


def test_what_a_released_node_still_reports_is_nobodys(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task()], "a")
    node = Node(tmp_path)
    (order,) = node.hear(RunOrders).orders
    hub.release("a")
    node.hear(ReleaseNode)
    node.channel.send(TaskReport([OrderOutcome(order.ticket, 1.0, 2.0, b"value")], []))
    other = Guest(tmp_path, Hello("b", "n2", 1, 1, 0, 0))
    other.hear(Welcome)
    assert [(type(event), event.node) for event in post.wait(NodeJoined, 2)] == [(NodeJoined, "n1"), (NodeJoined, "n2")]
    assert not any(isinstance(event, TaskDone | TaskFailed) for event in post.events)
