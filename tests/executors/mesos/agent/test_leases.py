"""Limits and weights of running containers: lent for a while, given back, or changed for good."""

from __future__ import annotations

import pytest

from executors.mesos.agent.state import LimitCpu, WeighCpu


@pytest.fixture
def busy(node, task):
    """A node on which a task of two cores runs, of which nothing is to be done."""
    node.run(task("t1", cpus=2))
    node.start("t1")
    node.acknowledge("t1")
    return node


def test_both_come_back_by_themselves(busy):
    container = busy.container("t1").id
    busy.change("t1", 4, 0.5, 30)
    busy.wake(busy.now + 29)
    assert (busy.limits, busy.weights) == ([LimitCpu(container, 4.0)], [WeighCpu(container, 0.5)])
    busy.wake(busy.now + 1)
    assert (busy.limits[1:], busy.weights[1:]) == ([LimitCpu(container, 2.0)], [WeighCpu(container, 2.0)])
    assert busy.agent.due() == float("inf")


@pytest.mark.parametrize(("limit", "request_"), [(1, None), (None, 1), (1, 1)])
def test_what_is_named_is_given_back_at_once(busy, limit, request_):
    container = busy.container("t1").id
    busy.change("t1", 4, 0.5, 30)
    busy.change("t1", limit, request_, 0)
    assert busy.limits[1:] == ([] if limit is None else [LimitCpu(container, 2.0)])
    assert busy.weights[1:] == ([] if request_ is None else [WeighCpu(container, 2.0)])
    busy.change("t1", limit, request_, 0)
    busy.wake(busy.now + 30)
    assert (len(busy.limits), len(busy.weights)) == (2, 2), "each comes back once"


def test_each_has_a_lease_of_its_own(busy):
    container = busy.container("t1").id
    busy.change("t1", 0.5, seconds=20)
    busy.change("t1", request=4, seconds=30)
    busy.wake(busy.now + 20)
    assert (busy.limits[-1], busy.weights[-1]) == (LimitCpu(container, 2.0), WeighCpu(container, 4.0))
    busy.change("t1", request=3, seconds=30)
    busy.wake(busy.now + 29)
    assert busy.weights[-1] == WeighCpu(container, 3.0)
    busy.wake(busy.now + 1)
    assert busy.weights[-1] == WeighCpu(container, 2.0)


def test_for_good_it_ends_a_lease_and_stays(busy):
    container = busy.container("t1").id
    busy.change("t1", 4, 4, 30)
    answer = busy.change("t1", 1, 0.5)
    assert "until" not in answer and busy.agent.due() == float("inf")
    assert (busy.limits[-1], busy.weights[-1]) == (LimitCpu(container, 1.0), WeighCpu(container, 0.5))
    busy.change("t1", 4, 4, 0)
    busy.wake(busy.now + 60)
    assert (len(busy.limits), len(busy.weights)) == (2, 2), "there is nothing to give back"
    busy.change("t1", 3, 3, 30)
    busy.wake(busy.now + 30)
    assert (busy.limits[-1], busy.weights[-1]) == (LimitCpu(container, 1.0), WeighCpu(container, 0.5))


@pytest.mark.parametrize("seconds", [None, 30])
def test_no_limit_at_all(busy, seconds):
    container = busy.container("t1").id
    assert busy.change("t1", "Infinity", seconds=seconds)["limits"] == {"cpus": {"value": "Infinity"}}
    assert busy.limits == [LimitCpu(container, None)] and busy.weights == []
    busy.wake(busy.now + 60)
    assert busy.limits[1:] == ([] if seconds is None else [LimitCpu(container, 2.0)])


def test_a_limit_for_good_outlasts_what_an_executors_tasks_ask_for(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=1))
    node.subscribe()
    container = node.container("e1").id
    node.change("e1", 0.5)
    node.run(task("t2", cpus=2), executor=executor())
    node.change("e1", request=3)  # which says nothing of the limit
    assert (node.limits, node.weights) == ([LimitCpu(container, 0.5)], [WeighCpu(container, 3.0)])
    node.change("e1", 2, seconds=10)
    node.wake(node.now + 10)
    assert node.limits[-1] == LimitCpu(container, 0.5)


def test_leases_of_a_container_that_ends_end_with_it(busy):
    busy.change("t1", 4, 0.5, 30)
    busy.exit("t1")
    busy.acknowledge("t1")
    busy.wake(busy.now + 60)
    assert (len(busy.limits), len(busy.weights)) == (1, 1) and busy.agent.due() == float("inf")


def test_before_it_has_started_it_can_be_changed_too(node, task):
    node.run(task("t1", cpus=2))
    node.change("t1", 1, 0.5)
    container = node.container("t1").id
    assert (node.limits, node.weights) == ([LimitCpu(container, 1.0)], [WeighCpu(container, 0.5)])
