from __future__ import annotations

import os
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.launch import Launch
from executors import node as host
from executors.assignment import AssignedNode, Assignment, Batching
from executors.wire import Hello, KeptOrder, TaskOrder


def node(name: str = "n1", cores: int = 2, memory: int = 0, gpus: int = 0) -> AssignedNode:
    return AssignedNode(Hello("a", name, 1, cores, memory, gpus))


def orders(
    count: int, *, cores: int = 1, memory: int = 0, gpus: int = 0, nodes: int = 1, first: int = 1
) -> list[TaskOrder]:
    return [TaskOrder(first + n, "s", n, "f", b"", (), cores, memory, gpus, nodes) for n in range(count)]


def deal(share: Assignment, pace: Batching | None = None) -> dict[str, list[int]]:
    given = share.assign(pace or Batching(), lambda node: True)
    return {node.name: [order.ticket for order in orders] for node, orders in given.items()}


def share_of(*nodes: AssignedNode) -> Assignment:
    share = Assignment()
    for each in nodes:
        share.join(each)
    return share


def test_each_node_gets_what_fits_and_the_rest_waits() -> None:
    share = share_of(node("n1"), node("n2"))
    share.add(orders(6))
    assert deal(share) == {"n1": [1, 3], "n2": [2, 4]}
    assert [order.ticket for order in share.queue] == [5, 6]
    assert share.finish(share.nodes[1], 2) is not None
    assert deal(share) == {"n2": [5]}


def test_short_tasks_are_sent_ahead() -> None:
    share, pace = share_of(node(cores=1)), Batching()
    pace.learn("s", 0.005)
    share.add(orders(10))
    assert deal(share, pace) == {"n1": [1, 2, 3, 4]}


def test_a_large_order_is_not_overtaken() -> None:
    share = share_of(node())
    share.add([*orders(1), *orders(1, cores=2, first=2), *orders(1, first=3)])
    assert deal(share) == {"n1": [1]}
    assert deal(share) == {}
    share.finish(share.nodes[0], 1)
    assert deal(share) == {"n1": [2]}


def test_memory_and_gpus_count() -> None:
    share = share_of(node(cores=8, memory=100, gpus=1))
    share.add([*orders(2, memory=60), *orders(2, gpus=1, first=3)])
    assert deal(share) == {"n1": [1]}
    share.finish(share.nodes[0], 1)
    assert deal(share) == {"n1": [2, 3]}


def test_a_task_larger_than_the_node_gets_all_of_it() -> None:
    share = share_of(node(cores=2, memory=100))
    share.add([*orders(1, cores=5, memory=500), *orders(1, first=2)])
    assert deal(share) == {"n1": [1]}


def test_an_order_may_span_nodes() -> None:
    share = share_of(node("n1"))
    share.add([*orders(1, cores=2, nodes=2), *orders(2, cores=2, first=2)])
    assert deal(share) == {}
    share.join(node("n2"))
    assert deal(share) == {"n1": [1]}
    assert deal(share) == {}, "both nodes are taken"
    share.finish(share.nodes[0], 1)
    assert sorted(deal(share).values()) == [[2], [3]]


def test_what_comes_back_is_first_again() -> None:
    share, pace = share_of(node(cores=1)), Batching()
    pace.learn("s", 0.005)
    share.add(orders(6))
    deal(share, pace)
    assert share.take_back(share.nodes[0], [3, 4, 99]) == {"s"}
    assert [order.ticket for order in share.queue] == [3, 4, 5, 6]


def test_a_node_that_leaves_takes_its_orders_and_the_last_one_all() -> None:
    share = share_of(node("n1", cores=1), node("n2", cores=1))
    share.add(orders(4))
    deal(share)
    first, second = share.nodes
    assert [order.ticket for order in share.leave(first)] == [1]
    assert [order.ticket for order in share.leave(second)] == [2, 3, 4]
    assert not share.queue


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), max_size=30),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([None, 0.001, 0.004, 1.0]),
    st.randoms(use_true_random=False),
)
def test_nothing_is_lost_or_done_twice(
    sizes: list[tuple[int, int]], cores: list[int], seconds: float | None, random: Random
) -> None:
    nodes = [node(f"n{number}", cores=count) for number, count in enumerate([*cores, 4, 4])]
    share, pace = share_of(*nodes), Batching()
    if seconds:
        pace.learn("s", seconds)
    for ticket, (size, span) in enumerate(sizes):
        share.add([TaskOrder(ticket, "s", ticket, "f", b"", (), size, 0, 0, span)])
    ended: list[int] = []
    while len(ended) < len(sizes):
        share.assign(pace, lambda node: True)
        busy = [(node, ticket) for node in nodes for ticket in node.orders]
        assert busy, "something can always run"
        for holder, ticket in busy:
            action = random.random()
            if action < 0.2:
                share.take_back(holder, [ticket])
            elif action < 0.8:
                assert share.finish(holder, ticket) is not None
                assert share.finish(holder, ticket) is None
                ended.append(ticket)
    assert sorted(ended) == list(range(len(sizes)))
    assert all(each.slots.fits(orders(1, cores=each.slots.cores)[0]) for each in nodes), "all room is free again"


def test_a_launched_order_learns_which_nodes_it_has() -> None:
    share = share_of(node("n1"), node("n2"), node("n3"))
    launch = Launch(("srun",), ranks=4, cores=1)
    wide, narrow, plain = orders(3, cores=2)
    share.add([wide._replace(nodes=2, launch=launch), narrow._replace(launch=launch)])
    given = share.assign(Batching(), lambda node: True)
    assert [order.hosts for orders in given.values() for order in orders] == [("n1", "n2"), ("n3",)]
    share.finish(share.nodes[0], 1)
    share.add([plain])
    given = share.assign(Batching(), lambda node: True)
    assert [order.hosts for orders in given.values() for order in orders] == [()]


def test_what_needs_more_nodes_than_are_left_does_not_wait_for_ever() -> None:
    share = share_of(node("n1"), node("n2"))
    share.add([*orders(1, cores=2, nodes=2), *orders(1, cores=2, nodes=2, first=2), *orders(1, first=3)])
    assert deal(share) == {"n1": [1]}
    assert [order.ticket for order in share.leave(share.nodes[1])] == [2]
    assert [order.ticket for order in share.queue] == [3]


def test_an_order_that_has_lost_one_of_its_nodes_is_not_to_blame() -> None:
    share = share_of(*(node(f"n{number}") for number in range(3)))
    share.add([*orders(1, cores=2, nodes=2), *orders(1, first=2)])
    assert deal(share) == {"n0": [1], "n2": [2]}
    share.leave(share.nodes[1])
    assert share.is_hurt(1) and not share.is_hurt(2)
    assert share.finish(share.nodes[0], 1) is not None
    assert not share.is_hurt(1)


def test_unknown_stages_go_singly() -> None:
    pace = Batching()
    pace.learn("other", 1e-5)
    assert pace.fit("s", 1.0) == 1


def test_a_long_task_is_remembered_for_a_while() -> None:
    pace = Batching()
    pace.learn("s", 0.05)
    short = 0
    while pace.fit("s", 0.005) == 1:
        pace.learn("s", 1e-4)
        short += 1
    assert 50 < short < 200


def test_no_more_than_so_many() -> None:
    pace = Batching()
    pace.learn("s", 0.0)
    assert pace.fit("s", 10.0) == 128


def test_resources_are_slurms_or_else_the_machines() -> None:
    of_job = {"SLURM_CPUS_ON_NODE": "3", "SLURM_MEM_PER_NODE": "64", "SLURMD_NODENAME": "n3"}
    assert (host.cores(None, of_job), host.memory(None, of_job), host.name(of_job)) == (3, 64 << 20, "n3")
    assert host.cores(None, {}) == len(os.sched_getaffinity(0)) and host.name({})
    assert host.memory(None, {"SLURM_MEM_PER_NODE": "0"}) == host.memory(None, {}) > 1 << 27
    assert (host.cores(2, of_job), host.memory(5, of_job)) == (2, 5)


def test_files_go_where_they_may(tmp_path: Path) -> None:
    slurms, users = tmp_path / "slurm", tmp_path / "user"
    environ = {"SLURM_TMPDIR": str(slurms), "TMPDIR": str(users)}
    assert host.scratch(environ) == "/tmp"
    users.mkdir()
    assert host.scratch(environ) == str(users)
    slurms.touch()
    assert host.scratch(environ) == str(users), "a file is no directory"
    slurms.unlink()
    slurms.mkdir()
    assert host.scratch(environ) == str(slurms)


def launched(ranks: int, cores: int = 1, memory: int = 0) -> TaskOrder:
    """Ranks wherever there are cores."""
    return TaskOrder(1, "s", 0, "f", b"", (), ranks * cores, memory, 0, 0, Launch(("srun",), ranks, cores))


def test_ranks_take_uneven_pieces_whole_and_give_them_back() -> None:
    share = share_of(node("n1", 1), node("n2", 3), node("n3", 4))
    share.add([launched(8)])
    ((first, [sent]),) = share.assign(Batching(), lambda node: True).items()
    assert (first.name, sent.cores, sent.nodes) == ("n1", 1, 3), "as much as its ranks take there"
    assert dict(zip(sent.hosts, sent.ranks, strict=True)) == {"n1": 1, "n2": 3, "n3": 4}
    share.add(orders(3, first=2))
    assert deal(share) == {}, "nothing is free"
    assert not any(share.is_idle(each) for each in share.nodes)
    finished = share.finish(first, 1)
    assert finished is not None and finished.nodes == 0
    assert sum(map(len, deal(share).values())) == 3


def test_ranks_of_several_cores_are_not_parted() -> None:
    share = share_of(node("n1", 1), node("n2", 3, 300), node("n3", 4, 400))
    share.add([launched(3, 2, memory=600)])
    ((_, [sent]),) = share.assign(Batching(), lambda node: True).items()
    assert (sent.hosts, sent.ranks, sent.cores, sent.memory) == (("n2", "n3"), (1, 2), 2, 200)


def test_ranks_wait_for_room_but_not_for_more_than_there_is() -> None:
    share = share_of(node("n1", 2), node("n2", 2))
    share.add([*orders(1, first=7), launched(5)])
    assert deal(share) == {"n1": [7]}
    share.finish(share.nodes[0], 7)
    ((_, [sent]),) = share.assign(Batching(), lambda node: True).items()
    assert sent.ranks == (3, 2), "a batch system may give less than it was asked for"


def test_ranks_are_lost_with_one_of_their_nodes() -> None:
    share = share_of(node("n1", 1), node("n2", 3), node("n3", 4))
    share.add([launched(8)])
    deal(share)
    share.add([launched(8)._replace(ticket=2)])
    assert [order.ticket for order in share.leave(share.nodes[1])] == [2], "what waited has lost its room"
    assert share.is_hurt(1)


def test_ranks_that_come_back_wait_as_they_came() -> None:
    share = share_of(node("n1", 1), node("n2", 3))
    share.add([launched(4)])
    deal(share)
    share.take_back(share.nodes[0], [1])
    (order,) = share.queue
    assert order._replace(hosts=(), ranks=()) == launched(4)


def test_a_task_is_not_given_to_a_node_that_is_too_small_while_there_are_larger_ones() -> None:
    share = share_of(node("n1", 1), node("n2", 3), node("n3", 4))
    share.add(orders(4, cores=2))
    given = deal(share)
    assert "n1" not in given and sorted(ticket for tickets in given.values() for ticket in tickets) == [1, 2, 3]


def test_ranks_of_an_earlier_driver_hold_what_they_have_on_each_node() -> None:
    n1, n2, n3 = node("n1", 1), node("n2", 3), node("n3", 4)
    share = share_of(n1, n2)
    share.adopt([launched(6)._replace(identity="i")], ["n1"], 10.0)
    kept = KeptOrder(9, "s", 0, "i", ("n1", "n2", "n3"), (1, 3, 2))
    assert share.claim(n1, [kept]) == [9]
    share.join(n3)
    share.add(orders(3, first=2))
    assert deal(share) == {"n3": [2, 3]}, "two cores are left"
    share.finish(n1, 9)
    assert sum(map(len, deal(share).values())) == 1
    assert share.is_idle(n1) or share.is_idle(n2)


def test_guests_go_where_others_leave_cores_and_wait_without_holding_others_up() -> None:
    host, guest = (orders(1, cores=4)[0]._replace(stage="h", shares=True), orders(1)[0]._replace(guest=True))
    share = share_of(node("n1", cores=4), node("n2", cores=4))
    share.add([host])
    assert deal(share) == {"n1": [1]}
    assert share.note_unused(share.nodes[0], {"h": (2, 0)}) == {"h": (2, 0)}
    share.add([guest._replace(ticket=ticket) for ticket in range(2, 10)])
    assert sum(map(len, deal(share).values())) == 6, "two beside the host, four on the free node"
    share.add(orders(1, first=10))
    assert deal(share) == {}
    share.finish(share.nodes[0], 1)
    assert deal(share) == {"n1": [8, 9]}, "its guests hold two cores like other tasks"
    ticket = next(iter(share.nodes[0].orders))
    share.finish(share.nodes[0], ticket)
    assert deal(share) == {"n1": [10]}
