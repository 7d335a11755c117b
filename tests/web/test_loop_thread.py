"""A loop in a thread: what it dies of is told, before it serves and afterwards."""

from __future__ import annotations

import asyncio
import threading
from concurrent import futures
from concurrent.futures import Future
from typing import Any

import pytest

from asa.web.loop_thread import LoopThread

PATIENCE_S = 20.0


def test_it_serves_until_it_is_stopped_and_again() -> None:
    thread = LoopThread[str]("asa-test")
    assert not thread
    thread.tell(print, "nobody hears this")
    for word in ("one", "two"):
        ends: list[asyncio.Future[str]] = []

        async def serve(started: Future[None], ends: list[asyncio.Future[str]] = ends) -> str:
            ends.append(asyncio.get_running_loop().create_future())
            started.set_result(None)
            return await ends[0]

        thread.start(serve)
        assert thread and "asa-test" in [each.name for each in threading.enumerate()]
        with pytest.raises(TimeoutError):
            thread.wait(0.01)
        thread.tell(ends[0].set_result, word)
        assert thread.wait(PATIENCE_S) == word
        thread.tell(ends[0].set_result, "too late")
        thread.join()
        assert not thread and thread.wait() == word


def test_what_it_dies_of() -> None:
    async def at_once(started: Future[None]) -> None:
        raise ValueError("at once")

    async def later(started: Future[None]) -> None:
        started.set_result(None)
        raise ValueError("later")

    thread = LoopThread[None]("asa-test")
    with pytest.raises(ValueError, match="at once"):
        thread.start(at_once)
    thread.join()
    thread.start(later)
    with pytest.raises(ValueError, match="later"):
        thread.wait(PATIENCE_S)
    thread.join()


def test_a_signal_just_before_the_wait_is_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the handler ran only once a wait has ended: that must not be the one for the end itself."""
    ends: list[asyncio.Future[str]] = []

    async def serve(started: Future[None]) -> str:
        ends.append(asyncio.get_running_loop().create_future())
        started.set_result(None)
        return await ends[0]

    thread = LoopThread[str]("asa-test")
    thread.start(serve)
    slept = futures.wait

    def late(*arguments: Any) -> Any:
        try:
            return slept(*arguments)
        finally:
            if not ends[0].done():
                thread.tell(ends[0].set_result, "told")

    monkeypatch.setattr(futures, "wait", late)
    assert thread.wait() == "told"
    thread.join()
