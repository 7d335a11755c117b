"""The queue as the watch sees it, for those who want to know."""

from __future__ import annotations

import threading

from asa.allocations.watch import JobWatch
from asa.core.errors import BackendError
from tests.allocations.test_watch import AWAY, Desk, request


def test_the_queue_is_looked_at_for_those_who_want_to_know() -> None:
    desk = Desk()
    assert desk.watch.seen() is None
    looks = JobWatch(desk.batch, desk.clock, lambda _events: None, looks=True)
    looks.step()
    assert looks.seen() == desk.batch.look()


def test_a_look_without_an_answer_is_tried_again() -> None:
    desk = Desk()
    desk.batch.break_next("look", AWAY)
    looks = JobWatch(desk.batch, desk.clock, desk.events.extend, looks=True)
    looks.submit([request("a")])
    again = looks.step()
    assert looks.trouble == str(AWAY) and looks.seen() is None
    desk.clock.wait(threading.Event(), again)
    looks.step()
    assert looks.trouble == "" and looks.seen() is not None


def test_a_site_that_shows_nothing_holds_up_nobody() -> None:
    desk = Desk()
    desk.batch.break_next("look", BackendError("Access denied"))
    looks = JobWatch(desk.batch, desk.clock, lambda _events: None, looks=True)
    looks.submit([request("a")])
    looks.step()
    assert looks.trouble == "" and looks.seen() is None
    assert [item.token for item, _ in desk.batch.jobs()] == ["a"]
