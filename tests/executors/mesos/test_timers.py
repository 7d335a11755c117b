"""Deadlines, and who is woken when they are due."""

from __future__ import annotations

import asyncio
import math
import pickle
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos import clockwork
from executors.mesos.clockwork import Clockwork
from executors.mesos.timers import Timers
from tests.waiting import DEADLINE_S

# ---------------------------------------------------------------------- timers


STEPS = st.tuples(st.sampled_from(["at", "cancel", "expired"]), st.sampled_from("abc"), st.integers(0, 20))


@given(st.lists(STEPS, max_size=300))
def test_what_is_due_is_what_was_asked_for_last(steps: list[tuple[str, str, int]]) -> None:
    timers, model = Timers(), {}
    for what, name, when in steps:
        if what == "at":
            timers.at((name,), float(when))
            model[name,] = float(when)
        elif what == "cancel":
            timers.cancel(name)
            model.pop((name,), None)
        else:
            due = sorted((at, key) for key, at in model.items() if at <= when)
            assert [model.pop(key) for key in timers.expired(when)] == [at for at, _ in due]
        assert timers.due() == min(model.values(), default=float("inf"))


def test_deadlines_that_were_taken_back_do_not_pile_up() -> None:
    timers = Timers()
    for turn in range(20_000):
        timers.at(("lease",), float(turn))
        timers.cancel("lease")
    assert len(pickle.dumps(timers)) < 10_000


# ---------------------------------------------------------------------- clockwork


def run(due: Callable[[], float], wake: Callable[[], object], over: Callable[[], bool] = lambda: True) -> None:
    async def scenario() -> None:
        clock = Clockwork(due, wake)
        clock.arm()
        await asyncio.sleep(0.02)
        async with asyncio.timeout(DEADLINE_S):
            while not over():
                await asyncio.sleep(0.005)
        clock.stop()

    asyncio.run(scenario())


def test_a_machine_is_woken_until_nothing_is_due() -> None:
    left = [0.0, 0.0, 0.0]
    run(lambda: left[-1] if left else math.inf, left.pop, lambda: not left)


@pytest.mark.parametrize("due", [math.inf, math.nan])
def test_one_that_wants_nothing_is_let_be(due: float) -> None:
    woken: list[int] = []
    run(lambda: due, lambda: woken.append(1))
    assert woken == []


def test_one_that_fails_is_woken_again_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clockwork, "AGAIN_S", 0.05)
    woken: list[float] = []

    def fail() -> None:
        woken.append(time.monotonic())
        raise KeyError("ours")

    run(lambda: 0.0, fail, lambda: len(woken) >= 3)
    assert woken[2] - woken[0] >= 0.09 and "timer failed" in caplog.text
