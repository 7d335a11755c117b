from __future__ import annotations

import threading

import pytest

from asa.core.clock import ManualClock


def test_a_wait_that_would_never_end_is_refused() -> None:
    clock, signal = ManualClock(), threading.Event()
    clock.call_at(5.0, lambda: None)
    with pytest.raises(RuntimeError, match="no event left to wait for"):
        clock.wait(signal)
    assert clock.now() == 5.0
    assert clock.wait(signal, until=9.0) is False
    assert clock.now() == 9.0
