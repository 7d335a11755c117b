"""One subscription to the scheduler API: events come down one connection, calls go up another."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.codec import BadMessage, Message, Records, encode
from executors.mesos.connection import Answer, Connection
from executors.mesos.endpoint import Endpoint
from executors.mesos.messages import field

_FLIGHT_MOST = 256
_UNSENT_MOST = 1 << 20
_SILENT = 5
_UNANSWERED_S = 75.0


class Handler(Protocol):
    """Who is told; always on the client's thread. What it raises ends the client, and is raised again by `join`."""

    def subscribe(self) -> Message:
        """The call to subscribe with, at each connection anew."""

    def event(self, message: Message) -> None:
        """Something came."""

    def lost(self) -> None:
        """The connection is gone, after SUBSCRIBED had come."""

    def refused(self, call: bytes, status: int, reason: str) -> None:
        """A call was answered with an error."""

    def failed(self, reason: str) -> None:
        """The client has given up."""


class Session:
    """One subscription: its two connections, and the calls on their way.

    Parameters
    ----------
    bell
        Written to by other threads when there is something to do.
    """

    def __init__(self, endpoint: Endpoint, path: str, handler: Handler, bell: int) -> None:
        self.endpoint, self.subscribed = endpoint, False
        self.muted = False
        """Whether events are handed over no more."""
        self.calls = deque[bytes]()
        """Calls that are not sent yet; others may add to it."""
        self._path, self._handler, self._bell = path, handler, bell
        self._flying = deque[tuple[bytes, float]]()
        self._records = Records()
        self._identity: dict[str, str] = {}
        self._patience = _UNANSWERED_S
        self._watched = False
        self._selector = selectors.DefaultSelector()
        self._stream: Connection | None = None
        self._caller: Connection | None = None
        self._heard = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether calls are not answered yet."""
        return self.subscribed and bool(self.calls or self._flying)

    def begin(self) -> None:
        """Connect and subscribe; raises `OSError`."""
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._stream = Connection(self.endpoint)
        self._stream.post(self._path, encode(_told(self._handler.subscribe)), {})
        self._selector.register(self._stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._heard = time.monotonic()

    def step(self, ends: float | None) -> None:
        """Wait for something, at the latest until `ends`, and do it.

        Raises
        ------
        OSError
            When a connection broke or has been silent for too long.
        """
        ready = self._selector.select(self._timeout(ends))
        active = {key.fileobj for key, _ in ready}
        for key, mask in ready:
            if key.fileobj == self._bell:
                silence(self._bell)
            elif key.fileobj is self._stream:
                self._read(self._stream, mask)
            elif self._caller is not None:
                self._answers(self._caller, mask)
        self._send()
        self._check(self._stream in active, self._caller in active)

    def close(self) -> None:
        """Close both connections."""
        for connection in (self._stream, self._caller):
            if connection is not None:
                connection.close()
        self._selector.close()

    def _check(self, speaking: bool, answering: bool) -> None:
        """Give up a silent peer; it does not matter if we slept, since what came meanwhile has been read by now."""
        now = time.monotonic()
        if not speaking and now - self._heard > self._patience and (self._watched or not self.subscribed):
            raise TimeoutError(f"nothing was heard for {now - self._heard:.0f} s")
        if not answering and self._flying and now - self._flying[0][1] > self._patience:
            raise TimeoutError(f"a call was not answered for {now - self._flying[0][1]:.0f} s")

    def _timeout(self, ends: float | None) -> float:
        often = self._patience / 4
        return often if ends is None else max(0.0, min(often, ends - time.monotonic()))

    def _read(self, stream: Connection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            stream.flush()
            if not stream.unsent:
                self._selector.modify(stream, selectors.EVENT_READ)
        if not mask & selectors.EVENT_READ:
            return
        stream.receive()
        self._heard = time.monotonic()
        if not stream.answers:
            return
        answer = stream.answers[0]
        if answer.status == 200:
            data = bytes(answer.body)
            answer.body.clear()
            self._identity = {STREAM_HEADER: answer.headers[STREAM_HEADER.lower()]} if _has_stream(answer) else {}
            try:
                for message in self._records.feed(data):
                    if not self.muted:
                        self._note(message)
                        _told(self._handler.event, message)
            except BadMessage as error:
                raise ConnectionAbortedError(f"the stream makes no sense: {error}") from error
            if answer.complete:
                raise ConnectionResetError("the stream was ended")
        elif answer.complete:
            _raise_for(answer)

    def _note(self, message: Message) -> None:
        if message.get("type") == "SUBSCRIBED":
            interval: float = field(message, "subscribed.heartbeat_interval_seconds", float, 0.0)
            if interval > 0:
                self._patience, self._watched = _SILENT * interval, True
            self.subscribed = True

    def _answers(self, caller: Connection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            caller.flush()
        if mask & selectors.EVENT_READ:
            caller.receive()
        while caller.answers and caller.answers[0].complete:
            answer = caller.answers.popleft()
            if answer.status < 200:
                continue  # an interim answer
            if not self._flying:
                raise ConnectionAbortedError("an answer came to no call")
            call, _ = self._flying.popleft()
            if answer.status >= 300:
                _told(self._handler.refused, call, answer.status, _text(answer))

    def _send(self) -> None:
        if self.calls and self._caller is None:
            self._caller = Connection(self.endpoint)
            self._selector.register(self._caller, selectors.EVENT_READ)
        if self._caller is None:
            return
        while self.calls and len(self._flying) < _FLIGHT_MOST and self._caller.unsent < _UNSENT_MOST:
            call = self.calls.popleft()
            self._flying.append((call, time.monotonic()))
            self._caller.post(self._path, call, self._identity)
        self._caller.flush()
        writing = selectors.EVENT_WRITE if self._caller.unsent else 0
        self._selector.modify(self._caller, selectors.EVENT_READ | writing)


class CallbackFailed(Exception):
    """The handler raised something, which is the cause: it must not be taken for a broken connection."""


class Moved(Exception):
    """The server sends us elsewhere."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class Busy(Exception):
    """The server asks us to come again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Rejected(Exception):
    """The server will not have us, now or later."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _told(callback: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return callback(*arguments)
    except Exception as error:
        raise CallbackFailed from error


def _raise_for(answer: Answer) -> None:
    if answer.status in (307, 308) and "location" in answer.headers:
        raise Moved(answer.headers["location"])
    if answer.status >= 500:
        seconds = 1.0
        with suppress(KeyError, ValueError):
            seconds = min(max(0.0, float(answer.headers["retry-after"])), 60.0)
        raise Busy(seconds)
    if answer.status >= 200:
        raise Rejected(f"the subscription was answered with {answer.status}: {_text(answer)}")


def _text(answer: Answer) -> str:
    return bytes(answer.body[:1000]).decode(errors="replace").strip()


def _has_stream(answer: Answer) -> bool:
    value = answer.headers.get(STREAM_HEADER.lower(), "")
    return 0 < len(value) <= 128 and value.isascii() and value.isprintable()


def silence(bell: int) -> None:
    """It has been heard."""
    with suppress(BlockingIOError):
        os.eventfd_read(bell)
