"""What drivers tell the scheduler, without a driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from executors.mesos.framework import Framework, FrameworkOutcome, TaskGang, TaskNeed, TaskProgram
from executors.mesos.messages import identity
from executors.mesos.resources import scalars, to_json
from executors.mesos.scheduler import FrameworkScheduler
from tests.waiting import until


class Driver:
    """Writes down what it is to tell the master."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.called.append((name, *arguments))

    def names(self) -> list[str]:
        return [name for name, *_ in self.called]


@pytest.fixture
def told() -> list[FrameworkOutcome]:
    return []


@pytest.fixture
def scheduler(told: list[FrameworkOutcome]) -> Iterator[FrameworkScheduler]:
    found = FrameworkScheduler(Framework(), told.extend)
    yield found
    found.close()


def offer(name: str) -> dict[str, Any]:
    return {
        "id": identity(f"o-{name}"),
        "agent_id": identity(name),
        "hostname": name,
        "allocation_info": {"role": "asa"},
        "resources": to_json(scalars(cpus=2, mem=64), "asa"),
    }


def test_why_the_driver_has_given_up_is_told(scheduler: FrameworkScheduler, told: list[FrameworkOutcome]) -> None:
    scheduler.error(Driver(), "Framework has been removed")
    assert scheduler.ready.is_set() and scheduler.error_text == "Framework has been removed"
    assert told == [FrameworkOutcome("framework", "failed", "Framework has been removed")]


def test_what_was_rescinded_is_not_used(scheduler: FrameworkScheduler) -> None:
    driver = Driver()
    scheduler.registered(driver, identity("F1"), {})
    scheduler.want(
        lambda framework, now: framework.gang(TaskGang("g", (TaskProgram(("true",)),) * 2, TaskNeed(2.0)), now)
    )
    scheduler.resourceOffers(driver, [offer("a")])
    scheduler.offerRescinded(driver, identity("o-a"))
    scheduler.resourceOffers(driver, [offer("b")])
    assert "acceptOffers" not in driver.names()
    scheduler.resourceOffers(driver, [offer("c")])
    taken = [arguments[0] for name, *arguments in driver.called if name == "acceptOffers"]
    assert sorted(taken, key=str) == [[identity("o-b")], [identity("o-c")]]


def test_what_waits_for_the_time_is_done_when_it_comes(scheduler: FrameworkScheduler) -> None:
    driver = Driver()
    scheduler.registered(driver, identity("F1"), {})
    waiting = TaskGang("g", (TaskProgram(("true",)),) * 2, TaskNeed(2.0))
    scheduler.want(lambda framework, now: framework.gang(waiting, now - 10_000.0))
    scheduler.want(lambda framework, now: framework.offers([offer("a")], now - 10_000.0))
    until(lambda: "declineOffer" in driver.names())
