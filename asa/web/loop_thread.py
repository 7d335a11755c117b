"""An event loop in a thread of its own: what a master and an agent run in, inside whatever program starts them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
_SLICE_S = 1.0


class LoopThread(Generic[Result]):
    """Serves until what it serves has ended; then it can be started again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Future[Result] = Future()

    def __bool__(self) -> bool:
        """Whether it was started, and `join` not called since."""
        return self._thread is not None

    def start(self, serve: Callable[[Future[None]], Coroutine[Any, Any, Result]]) -> None:
        """Run this; returns once it has set the result of the future that it is given, or raises what it died of."""
        started: Future[None] = Future()
        self._ended = Future()
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run, serve, started), name=self._name, daemon=True
        )
        self._thread.start()
        started.result()

    def tell(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Have the loop call this soon; when it has ended, nothing happens."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(callback, *arguments)

    def wait(self, timeout: float | None = None) -> Result:
        """What was served has returned this; raises what it died of.

        Raises
        ------
        TimeoutError
            After `timeout` [s].
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._ended.done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # In slices: Python acts on a signal that comes just before a wait begins only when that wait ends.
            futures.wait([self._ended], min(left, _SLICE_S))
        return self._ended.result()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = self._loop = None

    def _run(self, serve: Callable[[Future[None]], Coroutine[Any, Any, Result]], started: Future[None]) -> None:
        async def life() -> Result:
            self._loop = asyncio.get_running_loop()
            return await serve(started)

        try:
            found = asyncio.run(life())
        except BaseException as error:
            (self._ended if started.done() else started).set_exception(error)
        else:
            self._ended.set_result(found)
