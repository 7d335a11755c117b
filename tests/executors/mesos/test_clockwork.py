import asyncio
import math
from collections.abc import Callable

import pytest

from executors.mesos import clockwork
from executors.mesos.clockwork import Clockwork


def run(due: Callable[[], float], wake: Callable[[], object], seconds: float = 0.2) -> None:
    async def scenario() -> None:
        clock = Clockwork(due, wake)
        clock.arm()
        await asyncio.sleep(seconds)
        clock.stop()

    asyncio.run(scenario())


def test_a_machine_is_woken_until_nothing_is_due() -> None:
    left = [0.0, 0.0, 0.0]
    run(lambda: left[-1] if left else math.inf, left.pop)
    assert left == []


@pytest.mark.parametrize("due", [math.inf, math.nan])
def test_one_that_wants_nothing_is_let_be(due: float) -> None:
    woken: list[int] = []
    run(lambda: due, lambda: woken.append(1), 0.02)
    assert woken == []


def test_one_that_fails_is_woken_again_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clockwork, "_AGAIN_S", 0.05)
    woken: list[int] = []

    def fail() -> None:
        woken.append(1)
        raise KeyError("ours")

    run(lambda: 0.0, fail)
    assert 2 <= len(woken) <= 5 and "timer failed" in caplog.text
