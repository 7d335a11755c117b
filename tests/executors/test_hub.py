import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed, TasksKept
from asa.core.job import Resources
from asa.core.launch import Launch
from asa.core.ports import Executor, RunContext
from asa.core.registry import EXECUTORS
from asa.core.task import Task
from asa.security.files import write_private
from executors.dask import dask
from executors.hub import Hub, HubExecutor, local, node_resources, task_order
from executors.wire import (
    LARGEST,
    RENDEZVOUS,
    Alive,
    ChannelListener,
    ExpectCommands,
    ForgetCommands,
    Hello,
    KeepOrders,
    KeptOrder,
    KeptOrders,
    Leaving,
    OrderOutcome,
    OutcomesLogged,
    ReleaseNode,
    RunOrders,
    TaskOrder,
    TaskReport,
    UnixListener,
    Welcome,
    connect,
    listen,
)
from tests.waiting import until

WELCOME = Welcome("module:Crew", {}, "/values", "/work", (), 15.0)


class Guest:
    """A client of the hub, by hand."""

    def __init__(self, directory: Path, introduction: object) -> None:
        self.channel = connect(str(directory))
        self.channel.largest = LARGEST
        self.heard: list[Any] = []
        self.passed: list[Any] = []
        self.channel.send(introduction)

    def hear(self, kind: type) -> Any:
        """The next message of this kind; those before it are passed over."""

        def next_one() -> Any:
            self.heard += self.channel.receive()
            while self.heard:
                if isinstance(message := self.heard.pop(0), kind):
                    return (message,)  # which may be empty, and then false
                self.passed.append(message)
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
        self.logged: Callable[[], None] | None = None

    def __call__(self, events: Any, logged: Any = None) -> None:
        self.events += events
        self.logged = logged

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


def test_orders_that_a_node_returns_are_sent_again(hub: Hub, tmp_path: Path, post: Post) -> None:
    hub.launch([task()], "a")
    node = Node(tmp_path)
    (order,) = node.hear(RunOrders).orders
    node.channel.send(TaskReport([], [order.ticket]))
    assert node.hear(RunOrders).orders == [order]


def test_nodes_that_return_orders_are_not_sent_ahead_again(hub: Hub, tmp_path: Path, post: Post) -> None:
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


def test_a_node_that_sends_no_message_is_dropped_and_others_stay(hub: Hub, tmp_path: Path, post: Post) -> None:
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


class TestAnEarlierDriversTasks:
    """Nodes that say what they have kept; the hub that says what of it is wanted."""

    @staticmethod
    def kept(ticket: int, index: int, identity: str = "", hosts: tuple[str, ...] = ()) -> KeptOrder:
        return KeptOrder(ticket, "s", index, identity, hosts)

    def node(self, directory: Path, *kept: KeptOrder, name: str = "n1", cores: int = 2) -> Guest:
        node = Guest(directory, Hello("a", name, 1, cores, 0, 0, len(kept)))
        node.hear(Welcome)
        if kept:
            node.channel.send(KeptOrders(list(kept)))
        return node

    def test_what_is_wanted_goes_on_and_its_room_is_taken(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        node = self.node(tmp_path, self.kept(7, 0), self.kept(8, 1))
        post.wait(NodeJoined)
        hub.adopt([task(0)], "a", ["n1"])
        hub.launch([task(2), task(3)], "a")
        assert node.hear(KeepOrders).tickets == [7]
        assert [order.number for order in node.hear(RunOrders).orders] == [2], "one core is free"
        assert post.wait(TasksKept)[0].tasks == (("s", 0),)
        node.channel.send(TaskReport([OrderOutcome(7, 1.0, 2.0, b"seven")], []))
        (done,) = post.wait(TaskDone)
        assert (done.index, done.value) == (0, b"seven")
        assert [order.number for order in node.hear(RunOrders).orders] == [3]

    def test_all_nodes_are_waited_for(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        first = self.node(tmp_path, self.kept(7, 0))
        post.wait(NodeJoined)
        hub.adopt([task(0), task(1), task(2)], "a", ["n1", "n2"])
        second = self.node(tmp_path, self.kept(8, 1), self.kept(9, 2, "another input"), name="n2")
        (event,) = post.wait(TasksKept)
        assert sorted(event.tasks) == [("s", 0), ("s", 1)]
        assert (first.hear(KeepOrders).tickets, second.hear(KeepOrders).tickets) == ([7], [8])

    def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever(self, tmp_path: Path, post: Post) -> None:
        listener = UnixListener(tmp_path, "door")
        write_private(tmp_path / RENDEZVOUS, json.dumps(listener.address()).encode())
        hub = Hub(listener, WELCOME, post, heartbeat_s=1.0)
        try:
            first = self.node(tmp_path)
            post.wait(NodeJoined)
            hub.adopt([task(0)], "a", ["n1", "n2"])

            def alive() -> bool:
                first.channel.send(Alive())
                return any(isinstance(event, TasksKept) for event in post.events)

            until(alive)
            assert post.wait(TasksKept)[0].tasks == ()
            late = self.node(tmp_path, self.kept(7, 0), name="n2")
            assert late.hear(KeepOrders).tickets == [], "it may run elsewhere by now"
        finally:
            hub.close()

    def test_a_task_that_spans_nodes_has_them_all_again(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        first = self.node(tmp_path, self.kept(7, 0, hosts=("n1", "n2")), name="n1", cores=1)
        post.wait(NodeJoined)
        hub.adopt([task(0, cores=2, nodes=2)], "a", ["n1", "n2"])
        second = self.node(tmp_path, name="n2", cores=1)
        post.wait(TasksKept)
        hub.launch([task(1), task(2)], "a")
        first.channel.send(TaskReport([OrderOutcome(7, 1.0, 2.0, b"")], []))
        assert [order.number for node in (first, second) for order in node.hear(RunOrders).orders] == [1, 2]
        kinds = [type(event) for event in post.events]
        assert kinds.index(TaskDone) < len(kinds)

    def test_a_node_hears_when_an_outcome_is_logged(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        hub.launch([task()], "a")
        node = Node(tmp_path)
        (order,) = node.hear(RunOrders).orders
        node.channel.send(TaskReport([OrderOutcome(order.ticket, 1.0, 2.0, b"")], []))
        post.wait(TaskDone)
        assert post.logged is not None
        post.logged()
        assert node.hear(OutcomesLogged).tickets == [order.ticket]


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

    def test_an_idle_node_is_released(self, hub: Hub, tmp_path: Path, post: Post) -> None:
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
        again = Node(tmp_path, pid=2)
        assert again.hear(Welcome) == WELCOME
        post.wait(NodeJoined, 2)
        hub.launch([task()], "a")
        assert [order.number for order in again.hear(RunOrders).orders] == [0]
        first.channel.close()
        again.channel.send(Leaving("it is over"))
        again.channel.close()
        assert [lost.reason for lost in post.wait(NodeLost, 2)] == ["it is lent to others", "it is over"], (
            "reported once"
        )

    def test_what_is_launched_where_all_nodes_are_lent_is_returned(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        """Nothing would fetch them back: whoever launched it did not know that yet, and wants nothing more."""
        node = Node(tmp_path)
        post.wait(NodeJoined)
        hub.dismiss_idle(0.0)
        hub.launch([task()], "a")
        node.hear(ReleaseNode)
        (failed,) = post.wait(TaskFailed)
        assert (failed.index, failed.infrastructure) == (0, True)
        assert failed.error == "node n1 was lost: it is lent to others"
        assert post.wait(NodeLost)

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

    def test_one_that_keeps_what_an_earlier_driver_gave_it_stays(self, hub: Hub, tmp_path: Path, post: Post) -> None:
        node = Guest(tmp_path, Hello("a", "n1", 1, 2, 0, 0, 1))
        node.hear(Welcome)
        node.channel.send(KeptOrders([KeptOrder(7, "s", 0, "", ())]))
        post.wait(NodeJoined)
        hub.dismiss_idle(0.0)
        hub.adopt([task(0)], "a", ["n1"])
        assert node.hear(KeepOrders).tickets == [7]
        node.channel.send(TaskReport([OrderOutcome(7, 1.0, 2.0, b"seven")], []))
        assert post.wait(TaskDone)[0].value == b"seven"
        assert not [event for event in post.events if isinstance(event, NodeLost)]

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


class TestRemoteCommands:
    """A task that mpirun launches has two of three nodes; its launcher will ask the second for ranks."""

    @pytest.fixture
    def nodes(self, hub: Hub, tmp_path: Path, post: Post) -> list[Node]:
        launched = replace(task(cores=2, nodes=2), launch=Launch(("mpirun",), ranks=2, cores=1))
        hub.launch([launched], "a")
        nodes = []
        for number in range(1, 4):
            nodes.append(Node(tmp_path, f"n{number}", number))
            post.wait(NodeJoined, number)
        return nodes

    @pytest.fixture
    def order(self, nodes: list[Node]) -> TaskOrder:
        (order,) = nodes[0].hear(RunOrders).orders
        assert nodes[1].hear(ExpectCommands).ticket == order.ticket
        return order

    def test_only_its_other_node_expects_commands(self, hub: Hub, nodes: list[Node], order: TaskOrder) -> None:
        hub.release("a")
        for node in (nodes[0], nodes[2]):
            node.hear(ReleaseNode)
            assert not any(isinstance(message, ExpectCommands) for message in node.passed)

    def test_when_the_task_ends_they_are_forgotten(self, nodes: list[Node], order: TaskOrder) -> None:
        nodes[0].channel.send(TaskReport([OrderOutcome(order.ticket, 1.0, 2.0, b"")], []))
        assert nodes[1].hear(ForgetCommands).ticket == order.ticket

    def test_when_its_first_node_is_lost_they_are_forgotten(self, nodes: list[Node], order: TaskOrder) -> None:
        nodes[0].channel.close()
        assert nodes[1].hear(ForgetCommands).ticket == order.ticket


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


def test_reports_of_a_released_node_are_dropped(hub: Hub, tmp_path: Path, post: Post) -> None:
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


# ------------------------------------------------------- the executor


class FakeProxy:
    """Stands proxy, and has tasks launched while it gets ready."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.station, self.closed = error, HubExecutor("m:C"), 0
        self.published = False

    def __call__(self, context: RunContext, listener: ChannelListener) -> "FakeProxy":
        self.file: Path = context.directory / RENDEZVOUS
        return self

    def front(self, listener: ChannelListener) -> ChannelListener:
        return listener

    def wait(self) -> None:
        self.published = self.file.exists()
        self.station.launch([], "a")
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed += 1


def station(proxy: FakeProxy) -> HubExecutor:
    proxy.station = HubExecutor("m:C", proxy=lambda context, listener: proxy(context, listener))
    return proxy.station


def test_nodes_may_come_and_be_given_tasks_while_a_proxy_gets_ready(context: RunContext) -> None:
    proxy = FakeProxy()
    made = station(proxy)
    made.start(context, lambda events, logged=None: None)
    assert proxy.published and not proxy.closed
    made.close()
    made.close()
    assert proxy.closed == 1 and not proxy.file.exists()


def test_when_it_does_not_get_ready_nothing_is_left(context: RunContext) -> None:
    proxy = FakeProxy(ValueError("no port"))
    made = station(proxy)
    with pytest.raises(ValueError, match="no port"):
        made.start(context, lambda events, logged=None: None)
    assert proxy.closed == 1 and not proxy.file.exists()
    with pytest.raises(InvalidInput, match="start"):
        made.launch([], "a")


def test_a_new_drivers_address_stays(context: RunContext) -> None:
    first, second = HubExecutor("m:C"), HubExecutor("m:C")
    first.start(context, lambda events, logged=None: None)
    second.start(context, lambda events, logged=None: None)
    address = (context.directory / RENDEZVOUS).read_bytes()
    first.close()
    assert (context.directory / RENDEZVOUS).read_bytes() == address
    second.close()
    assert not (context.directory / RENDEZVOUS).exists()


def test_a_directory_that_takes_no_socket_is_named(context: RunContext, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(StateError, match=rf"cannot make a socket in {gone}: No such file .* Set ASA_STATE_DIR"):
        listen(replace(context, directory=gone))
    (tmp_path / "hub-1.sock").mkdir()
    with pytest.raises(StateError, match=rf"cannot make a socket in {tmp_path}: Is a directory"):
        listen(replace(context, directory=tmp_path))


SECRETIVE = RunContext("r", Path("/state/r"), "/home/u", ("/lib",), orphan_grace_s=60.0)


@pytest.mark.parametrize("spec", ["local:workers=threads,heartbeat-s=5", "dask:port=0,heartbeat-s=5"])
def test_it_is_an_executor_by_name(spec: str) -> None:
    executor: Executor = EXECUTORS.create(spec)
    assert isinstance(executor, HubExecutor)
    with pytest.raises(InvalidInput, match="start"):
        executor.launch([], "a")
    executor.close()


def test_the_program_of_each_node() -> None:
    allocation = Allocation("key", Resources(cores=8, nodes=2, memory=100, gpus=3), 60.0)
    argv = local().bootstrap(allocation, SECRETIVE)
    assert argv[:4] == (sys.executable, "-P", "-m", "executors.supervisor")
    words = "--directory /state/r --allocation key --grace 60.0 --cores 4 --memory 50 --gpus 2"
    assert argv[4:] == tuple(words.split())


def test_on_one_machine_all_nodes_are_that_machine() -> None:
    argv = local().bootstrap(Allocation("key", Resources(cores=8, nodes=2), 60.0), replace(SECRETIVE, local=True))
    assert argv[argv.index("--cores") + 1] == "8"


@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((local, options) for options in ({"workers": "greenlets"}, {"heartbeat_s": 0.0}, {"heartbeat_s": -1.0})),
        *((dask, options) for options in ({"port": 70000}, {"port": -1}, {"heartbeat_s": 0.0})),
    ],
)
def test_options_are_checked(make: Callable[..., Executor], options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        make(**options)


def test_a_directory_that_is_open_to_others(context: RunContext) -> None:
    context.directory.mkdir()
    context.directory.chmod(0o755)
    with pytest.raises(StateError, match="chmod"):
        local().start(context, lambda events, logged=None: None)


def test_closing_twice(context: RunContext) -> None:
    executor = local()
    executor.start(context, lambda events, logged=None: None)
    executor.close()
    executor.close()


@given(
    nodes=st.integers(1, 7), cores=st.integers(1, 4), memory=st.none() | st.integers(1, 10**12), gpus=st.integers(0, 9)
)
def test_a_task_of_all_an_allocation_has_fits_its_nodes(nodes: int, cores: int, memory: int | None, gpus: int) -> None:
    all_of_it = Resources(nodes * cores, nodes, memory, gpus)
    context = RunContext("r", Path("/state/r"), "/work", ())
    node = node_resources(Allocation("key", all_of_it, 60.0), context)
    asked = task_order(Task("s", 0, "", b"", (), all_of_it), 0, spanning=True)
    assert (asked.cores, asked.memory, asked.gpus) == (node["cores"], node.get("memory", 0), node.get("gpus", 0))
    alone = task_order(Task("s", 0, "", b"", (), all_of_it), 0, spanning=False)
    assert (alone.cores, alone.memory, alone.gpus) == (nodes * cores, memory or 0, gpus)


def test_a_hub_whose_driver_was_replaced_gives_no_orders(tmp_path: Path, post: Post) -> None:
    """A node's word for that is not enough: only the node is not taken."""
    newest = 3
    listener = UnixListener(tmp_path, "door")
    write_private(tmp_path / RENDEZVOUS, json.dumps(listener.address()).encode())
    hub = Hub(listener, WELCOME._replace(generation=3), post, newest=lambda: newest)
    try:
        liar = Guest(tmp_path, Hello("a", "n2", 2, 1, 0, 0, newest=4))
        with pytest.raises((ConnectionError, EOFError)):
            liar.hear(Welcome)
        node = Node(tmp_path)
        assert node.hear(Welcome).generation == 3
        time.sleep(1.1)  # what was asked a moment ago is taken to hold
        newest = 4
        hub.launch([task()], "a")
        with pytest.raises((ConnectionError, EOFError)):
            node.hear(RunOrders)
        assert "another driver" in post.wait(NodeLost)[0].reason, "the runner finds that its log takes nothing"
    finally:
        hub.close()
