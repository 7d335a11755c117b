import itertools

import pytest

from executors.dask.driver import WorkerAssignment
from executors.dask.messages import AssignedOrder, RecallOrders, RetireWorker
from executors.wire import Hello, TaskOrder, TaskOutcome

SHORT_S = 0.001


def order(ticket: int, stage: str = "s", cores: int = 1, gpus: int = 0) -> TaskOrder:
    return TaskOrder(ticket, stage, ticket, "f", b"", (), cores, 0, gpus, 1)


def bench(cores: int = 2, gpus: int = 0) -> WorkerAssignment:
    bench = WorkerAssignment(Hello("a", "n1", 1, cores, 0, gpus), itertools.count(1))
    for number in range(cores):
        bench.add_worker(f"w{number}", f"tls://w{number}")
    return bench


def end(bench: WorkerAssignment, *tickets: int, seconds: float = 10.0, now: float = 0.0) -> None:
    for ticket in tickets:
        bench.finish(TaskOutcome(ticket, 0.0, seconds, b""), now)


def tickets(given: list[AssignedOrder]) -> list[int]:
    return [each.order.ticket for each in given]


@pytest.fixture
def quick() -> WorkerAssignment:
    """A node that knows stage "s" to be short."""
    known = bench()
    known.accept([order(900)], 0.0)
    known.assign(0.0)
    end(known, 900, seconds=SHORT_S)
    return known


def test_one_order_for_each_worker_while_nothing_is_known() -> None:
    node = bench()
    node.accept(map(order, range(1, 6)), 0.0)
    given = node.assign(0.0)
    assert tickets(given) == [1, 2] and {each.address for each in given} == {"tls://w0", "tls://w1"}
    assert node.assign(0.0) == []
    end(node, 2)
    assert [(each.order.ticket, each.address) for each in node.assign(0.0)] == [(3, "tls://w1")]


def test_orders_wait_for_workers_that_have_not_come() -> None:
    node = WorkerAssignment(Hello("a", "n1", 1, 2, 0, 0), itertools.count(1))
    node.accept([order(1), order(2)], 0.0)
    assert node.assign(0.0) == [] and node.review(100.0) == ([], []), "and are not handed back meanwhile"
    node.add_worker("w0", "tls://w0")
    assert tickets(node.assign(0.0)) == [1]


def test_a_large_order_has_its_cores_to_itself_and_keeps_its_turn() -> None:
    node = bench(cores=3)
    node.accept([order(1), order(2, "large", cores=3), order(3)], 0.0)
    assert tickets(node.assign(0.0)) == [1]
    end(node, 1)
    assert tickets(node.assign(0.0)) == [2]
    end(node, 2)
    assert tickets(node.assign(0.0)) == [3]


def test_short_orders_are_given_several_at_once_and_shared_fairly(quick: WorkerAssignment) -> None:
    quick.accept(map(order, range(1, 9)), 0.0)
    given = quick.assign(0.0)
    count = sum(each.address == "tls://w0" for each in given)
    assert tickets(given) == list(range(1, 9)) and 3 <= count <= 5
    assert len({each.serial for each in given}) == 8


def test_a_worker_gets_more_before_it_has_run_out(quick: WorkerAssignment) -> None:
    quick.accept(map(order, range(1, 101)), 0.0)
    first = quick.assign(0.0)
    assert 20 <= len(first) <= 40, "20 ms' work for each worker"
    mine = [each.order.ticket for each in first if each.address == "tls://w0"]
    end(quick, *mine[:3], seconds=SHORT_S)
    assert quick.assign(0.0) == [], "not one by one"
    end(quick, *mine[3:-3], seconds=SHORT_S)
    assert {each.address for each in quick.assign(0.0)} == {"tls://w0"}


def test_large_orders_are_not_sent_ahead_by_the_dozen(quick: WorkerAssignment) -> None:
    quick.accept([order(ticket)._replace(arguments=bytes(100_000)) for ticket in range(1, 41)], 0.0)
    assert len(quick.assign(0.0)) == 10, "half a megabyte for each worker"


def test_what_waits_behind_a_long_task_is_recalled_and_given_to_others(quick: WorkerAssignment) -> None:
    quick.accept(map(order, range(1, 9)), 0.0)
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
    node.accept(map(order, range(1, 5)), 0.0)
    node.assign(0.0)
    due = node.due(0.0)
    assert due is not None and node.review(due) == ([], [3, 4])
    assert node.due(due) is None


def test_a_dead_workers_orders_wait_again_and_first() -> None:
    node = bench()
    node.accept(map(order, range(1, 4)), 0.0)
    node.assign(0.0)
    assert node.remove_worker("w0") == [1]
    assert node.assign(0.0) == []
    node.add_worker("w2", "tls://w2")
    assert [(each.order.ticket, each.address) for each in node.assign(0.0)] == [(1, "tls://w2")]


def test_what_was_told_of_a_dead_workers_order_counts() -> None:
    node = bench()
    node.accept([order(1)], 0.0)
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
    node.accept([order(1, gpus=1), order(2, gpus=1), order(3)], 0.0)
    given = node.assign(0.0)
    assert [each.gpus for each in given] == [(0,), (1,), ()]
    end(node, 1, 2)
    node.accept([order(4, gpus=1), order(5, gpus=1)], 0.0)
    again = node.assign(0.0)
    assert {(each.address, each.gpus) for each in again} == {(each.address, each.gpus) for each in given[:2]}


def test_a_worker_whose_libraries_know_other_gpus_is_replaced() -> None:
    node = bench(cores=1, gpus=2)
    node.accept([order(1, gpus=1)], 0.0)
    node.assign(0.0)
    end(node, 1)
    node.accept([order(2, gpus=2)], 0.0)
    assert node.assign(0.0) == []
    assert node.review(0.0) == ([RetireWorker("w0")], [])
    assert node.assign(0.0) == [] and node.review(0.0) == ([], [])
    node.remove_worker("w0")
    node.add_worker("w1", "tls://w1")
    assert [each.gpus for each in node.assign(0.0)] == [(0, 1)]


def test_more_gpus_than_the_node_has() -> None:
    (refused,) = bench(gpus=1).accept([order(1, gpus=2)], 0.0)
    assert refused.ticket == 1 and "needs 2 GPUs" in refused.error
