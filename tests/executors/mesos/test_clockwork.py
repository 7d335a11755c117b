import asyncio
import math
import time
from collections.abc import Callable

import pytest

from executors.mesos import clockwork
from executors.mesos.clockwork import Clockwork
from tests.waiting import DEADLINE_S


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
    monkeypatch.setattr(clockwork, "_AGAIN_S", 0.05)
    woken: list[float] = []

    def fail() -> None:
        woken.append(time.monotonic())
        raise KeyError("ours")

    run(lambda: 0.0, fail, lambda: len(woken) >= 3)
    assert woken[2] - woken[0] >= 0.09 and "timer failed" in caplog.text
