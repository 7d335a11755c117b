"""A driver finds its master, leaves it, and comes back."""

from __future__ import annotations

import threading

import pytest
from aiohttp import web

from asa.core.errors import InvalidInput
from executors.mesos.driver import SchedulerDriver
from tests.executors.mesos.driven import INFO, Recorder, Start
from tests.executors.mesos.scripted import Scripted, subscribed, until


@pytest.mark.parametrize("nonsense", [b"x\n{}", b"5\nnull!", b"99999999999\n"])
def test_a_stream_that_makes_no_sense_is_given_up_for_a_new_one(
    master: Scripted, start: Start, nonsense: bytes
) -> None:
    _, scheduler = start(master)
    scheduler.heard("registered")
    master.raw(nonsense)
    scheduler.heard("reregistered")
    assert scheduler.names() == ["registered", "disconnected", "reregistered"]


def test_it_comes_back_with_its_id_and_what_it_has_suppressed(master: Scripted, start: Start) -> None:
    driver, scheduler = start(master)
    scheduler.heard("registered")
    driver.suppressOffers()
    driver.reviveOffers(["b"])
    until(lambda: len(master.calls) == 2)
    master.cut()
    scheduler.heard("reregistered")
    again = master.subscriptions[1]
    assert again["framework_id"] == again["subscribe"]["framework_info"]["id"] == {"value": "F1"}
    assert again["subscribe"]["suppressed_roles"] == ["a"]
    driver.reviveOffers()
    until(lambda: len(master.calls) == 3)
    assert master.heads[-1]["Mesos-Stream-Id"] == "s2"


def test_a_driver_with_an_id_takes_its_place(master: Scripted, start: Start) -> None:
    _, scheduler = start(master, framework=INFO | {"id": {"value": "F1"}, "failover_timeout": 7})
    scheduler.heard("reregistered")
    assert master.subscriptions[0]["framework_id"] == {"value": "F1"}
    assert master.subscriptions[0]["subscribe"]["framework_info"]["failover_timeout"] == 7


def test_a_master_that_has_fallen_silent_is_left(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.05)) as master:
        _, scheduler = start(master)
        scheduler.heard("reregistered")
        assert scheduler.names()[:2] == ["registered", "disconnected"]


def test_a_master_whose_heart_beats_is_not_left(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.2)) as master:
        _, scheduler = start(master)
        for n in range(1, 40):
            master.say({"type": "HEARTBEAT"})
            scheduler.heard("processHeartBeat", n)
            threading.Event().wait(0.05)
        assert set(scheduler.names()) == {"registered", "processHeartBeat"}


def test_a_call_that_is_never_answered_means_that_the_master_is_gone(start: Start) -> None:
    with Scripted(subscribed(heartbeat_s=0.1)) as master:
        master.status = lambda call: None
        driver, scheduler = start(master)
        scheduler.heard("registered")
        driver.reviveOffers()
        while "disconnected" not in scheduler.names() and scheduler.names().count("processHeartBeat") < 500:
            master.say({"type": "HEARTBEAT"})
            threading.Event().wait(0.02)
        scheduler.heard("reregistered")


@pytest.mark.parametrize("code", [400, 401, 403, 406])
def test_a_master_that_will_not_have_us_is_not_asked_again(master: Scripted, start: Start, code: int) -> None:
    master.entry = lambda: web.Response(status=code, text="not you")
    driver, scheduler = start(master)
    driver.join()
    assert scheduler.told == [("error", f"the subscription was answered with {code}: not you")]
    assert len(master.subscriptions) == 1


def test_a_master_that_is_not_ready_is_asked_again(master: Scripted, start: Start) -> None:
    answers = [web.Response(status=503, headers={"Retry-After": "0"}) for _ in range(3)]
    master.entry = lambda: answers.pop() if answers else None
    _, scheduler = start(master)
    scheduler.heard("registered")
    assert len(master.subscriptions) == 4 and scheduler.names() == ["registered"]


@pytest.mark.parametrize("form", ["//{}/api/v1/scheduler", "{}", "http://{}/"])
def test_redirects_are_followed(master: Scripted, start: Start, form: str) -> None:
    with Scripted(subscribed("F2")) as leader:
        master.entry = lambda: web.Response(status=307, headers={"Location": form.format(leader.address)})
        driver, scheduler = start(master)
        scheduler.heard("registered")
        assert driver.framework_id == "F2" and driver.master == leader.address
        driver.reviveOffers()
        until(lambda: leader.kinds() == ["REVIVE"])


def test_redirects_that_lead_nowhere_end(master: Scripted, start: Start) -> None:
    turns = []

    def turn() -> web.Response | None:
        turns.append(1)
        return web.Response(status=307, headers={"Location": master.address}) if len(turns) < 15 else None

    master.entry = turn
    _, scheduler = start(master)
    scheduler.heard("registered")


@pytest.mark.parametrize("master_url", ["", "zk://host/mesos", "http://", "host:port", "ftp://host"])
def test_masters_that_cannot_be(master_url: str) -> None:
    with pytest.raises(InvalidInput, match="master"):
        SchedulerDriver(Recorder(), INFO, master_url)
