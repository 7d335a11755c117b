"""Waiting for what is about to happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
DEADLINE_S = 60.0
"""How long a test waits before it fails [s]: long, for a machine that is busy with other things."""


def until(
    condition: Callable[[], Found | None], what: str | Callable[[], str] = "", *, within_s: float = DEADLINE_S
) -> Found:
    """What `condition` returns as soon as that is true; `what` says in words what is waited for."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what() if callable(what) else what or condition}"
        time.sleep(0.005)
    return found
