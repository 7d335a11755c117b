"""A client of the scheduler API: subscribes, passes events on, sends calls, and subscribes again after a break.

One thread does it all and calls its handler. Two connections belong together: events come down the one that subscribed,
calls go up the other, one behind the other, without waiting for answers. When either breaks both are given up and a new
pair subscribes. Calls that were not answered by then are lost, whether or not they were carried out: that cannot be
known, and an ACCEPT that is carried out twice would be answered with the loss of tasks that run.
"""

from __future__ import annotations

import logging
import math
import os
import random
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import httptools

from asa.core.errors import AsaError
from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.codec import LARGEST, BadMessage, Message, Records, encode
from executors.mesos.endpoint import CONNECT_S, Endpoint, Finder
from executors.mesos.messages import field as field_of

_CHUNK = 1 << 18
_HEADERS_MOST = 256


@dataclass
class HTTPAnswer:
    """A response, as far as it has come."""

    status: int = 0
    """0 until the headers are complete."""
    headers: dict[str, str] = field(default_factory=dict)
    """By name in small letters."""
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False


class ClientConnection:
    """One connection; `fileno` makes it known to a selector.

    Raises
    ------
    OSError
        When no address answers, or its certificate is not the one that was expected.
    """

    def __init__(self, endpoint: Endpoint, timeout: float = CONNECT_S) -> None:
        self._socket, self._host = _dial(endpoint, timeout)
        self._authorization = endpoint.authorization
        self._parser = httptools.HttpResponseParser(self)
        self._out = bytearray()
        self._deciphered: Callable[[], int] = getattr(self._socket, "pending", int)
        self.answers: deque[HTTPAnswer] = deque()
        """Responses, oldest first; the reader removes them. The last may be incomplete."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._out)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        """Queue a request; `flush` sends it."""
        common = {"Host": self._host, "Content-Type": "application/json", "Accept": "application/json"}
        if self._authorization:
            common["Authorization"] = self._authorization
        lines = "".join(f"{name}: {value}\r\n" for name, value in (common | headers).items())
        self._out += f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    def flush(self) -> None:
        """Send what the socket takes; raises `OSError` when the peer is gone."""
        while self._out:
            try:
                sent = self._socket.send(self._out[:_CHUNK])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            del self._out[:sent]

    def receive(self) -> None:
        """Take what is there apart into `answers`.

        Raises
        ------
        OSError
            When the peer is gone, or what it sends is no HTTP.
        """
        try:
            while True:
                chunk = self._socket.recv(_CHUNK)
                if not chunk:
                    raise ConnectionResetError("the connection was closed")
                self._parser.feed_data(chunk)
                if not self._deciphered():  # bytes inside the TLS layer would not wake a selector
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ConnectionAbortedError(f"what came is no HTTP response: {error}") from error

    def close(self) -> None:
        """Close it; what waits to be sent is dropped."""
        self._socket.close()

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self.answers.append(HTTPAnswer())

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.answers[-1].headers
        if len(headers) >= _HEADERS_MOST:
            raise ValueError(f"more than {_HEADERS_MOST} headers")
        headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answers[-1].status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        answer = self.answers[-1]
        if len(answer.body) + len(body) > LARGEST:
            raise ValueError(f"more than {LARGEST} bytes in a response")
        answer.body += body

    def on_message_complete(self) -> None:
        self.answers[-1].complete = True


def _dial(endpoint: Endpoint, timeout: float) -> tuple[socket.socket, str]:
    """A connected socket that does not block, and the Host header for it."""
    problem = OSError("no host to connect to")
    for host in endpoint.hosts:
        try:
            stream = socket.create_connection((host, endpoint.port), timeout)
        except OSError as error:
            problem = error
            continue
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.context is not None:
                stream = endpoint.context.wrap_socket(stream, server_hostname=endpoint.name)
            stream.setblocking(False)
        except OSError as error:  # ssl.SSLError is one
            stream.close()
            problem = error
            continue
        return stream, f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
    raise problem


_FLIGHT_MOST = 256
_UNSENT_MOST = 1 << 20
_SILENT = 5
_UNANSWERED_S = 75.0


class ClientHandler(Protocol):
    """Called on the client's thread. What it raises ends the client, and is raised again by `join`."""

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


class Subscription:
    """One subscription: its two connections, and the calls on their way.

    Parameters
    ----------
    wakeup
        Written to by other threads when there is something to do.
    """

    def __init__(self, endpoint: Endpoint, path: str, handler: ClientHandler, wakeup: int) -> None:
        self.endpoint, self.subscribed = endpoint, False
        self.muted = False
        """Whether events are handed over no more."""
        self.calls = deque[bytes]()
        """Calls that are not sent yet; others may add to it."""
        self._path, self._handler, self._wakeup = path, handler, wakeup
        self._flying = deque[tuple[bytes, float]]()
        self._records = Records()
        self._identity: dict[str, str] = {}
        self._patience = _UNANSWERED_S
        self._watched = False
        self._selector = selectors.DefaultSelector()
        self._stream: ClientConnection | None = None
        self._caller: ClientConnection | None = None
        self._received_at = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether calls are not answered yet."""
        return self.subscribed and bool(self.calls or self._flying)

    def begin(self) -> None:
        """Connect and subscribe; raises `OSError`."""
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._stream = ClientConnection(self.endpoint)
        self._stream.post(self._path, encode(_call_back(self._handler.subscribe)), {})
        self._selector.register(self._stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._received_at = time.monotonic()

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
            if key.fileobj == self._wakeup:
                clear_wakeup(self._wakeup)
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
        if not speaking and now - self._received_at > self._patience and (self._watched or not self.subscribed):
            raise TimeoutError(f"nothing was received for {now - self._received_at:.0f} s")
        if not answering and self._flying and now - self._flying[0][1] > self._patience:
            raise TimeoutError(f"a call was not answered for {now - self._flying[0][1]:.0f} s")

    def _timeout(self, ends: float | None) -> float:
        often = self._patience / 4
        return often if ends is None else max(0.0, min(often, ends - time.monotonic()))

    def _read(self, stream: ClientConnection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            stream.flush()
            if not stream.unsent:
                self._selector.modify(stream, selectors.EVENT_READ)
        if not mask & selectors.EVENT_READ:
            return
        stream.receive()
        self._received_at = time.monotonic()
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
                        self._subscribed_by(message)
                        _call_back(self._handler.event, message)
            except BadMessage as error:
                raise ConnectionAbortedError(f"the stream makes no sense: {error}") from error
            if answer.complete:
                raise ConnectionResetError("the stream was ended")
        elif answer.complete:
            _raise_for(answer)

    def _subscribed_by(self, message: Message) -> None:
        if message.get("type") == "SUBSCRIBED":
            interval: float = field_of(message, "subscribed.heartbeat_interval_seconds", float, 0.0)
            if interval > 0:
                self._patience, self._watched = _SILENT * interval, True
            self.subscribed = True
            _LOG.info("subscribed at %s:%s", self.endpoint.hosts[0], self.endpoint.port)

    def _answers(self, caller: ClientConnection, mask: int) -> None:
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
                _call_back(self._handler.refused, call, answer.status, _text(answer))

    def _send(self) -> None:
        if self.calls and self._caller is None:
            self._caller = ClientConnection(self.endpoint)
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


def _call_back(callback: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return callback(*arguments)
    except Exception as error:
        raise CallbackFailed from error


def _raise_for(answer: HTTPAnswer) -> None:
    if answer.status in (307, 308) and "location" in answer.headers:
        raise Moved(answer.headers["location"])
    if answer.status >= 500:
        seconds = 1.0
        with suppress(KeyError, ValueError):
            seconds = min(max(0.0, float(answer.headers["retry-after"])), 60.0)
        raise Busy(seconds)
    if answer.status >= 200:
        raise Rejected(f"the subscription was answered with {answer.status}: {_text(answer)}")


def _text(answer: HTTPAnswer) -> str:
    return bytes(answer.body[:1000]).decode(errors="replace").strip()


def _has_stream(answer: HTTPAnswer) -> bool:
    value = answer.headers.get(STREAM_HEADER.lower(), "")
    return 0 < len(value) <= 128 and value.isascii() and value.isprintable()


def clear_wakeup(wakeup: int) -> None:
    """Reset the event."""
    with suppress(BlockingIOError):
        os.eventfd_read(wakeup)


_LOG = logging.getLogger(__name__)
_REDIRECTS_MOST = 8
_FIRST_S, _LONGEST_S, _GOODBYE_S = 0.05, 15.0, 5.0


class SchedulerClient:
    """Keeps a subscription alive on a thread of its own.

    Parameters
    ----------
    find
        Where the server is.
    path
        Of the API: ``/api/v1/scheduler``.
    longest_s
        The longest pause between attempts to connect [s]; the first is 50 ms, and each is twice the one before.
    give_up_s
        For how long it tries without success [s].
    """

    def __init__(
        self,
        find: Finder,
        path: str,
        handler: ClientHandler,
        *,
        longest_s: float = _LONGEST_S,
        give_up_s: float = math.inf,
    ) -> None:
        self._find, self._path, self._handler = find, path, handler
        self._longest, self._give_up = longest_s, give_up_s
        self._wakeup = -1
        self._lock = threading.Lock()
        self._session: Subscription | None = None
        self._ends: float | None = None  # when even unanswered calls are given up; None before `stop`
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="asa-mesos", daemon=True)

    @property
    def running(self) -> bool:
        """Whether events may still come."""
        return self._ends is None and self._thread.is_alive()

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it is subscribed; None while it is not."""
        session = self._session
        return session.endpoint if session is not None and session.subscribed else None

    def start(self) -> None:
        """Begin to connect."""
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread.start()

    def call(self, message: Message) -> bool:
        """Queue a call; False when there is no subscription. From any thread."""
        call = encode(message)
        with self._lock:  # so that a call is never queued for a connection that is gone already
            queued = self._ends is None and self._queued(call)
        self._wake()
        return queued

    def stop(self, last: Message | None = None, wait_s: float = _GOODBYE_S) -> None:
        """No more events; end once the calls so far, and `last`, are answered, at the latest after `wait_s` [s]."""
        with self._lock:
            if self._ends is not None:
                return
            self._ends = time.monotonic() + wait_s
            if last is not None:
                self._queued(encode(last))
            if self._session is not None:
                self._session.muted = True
        self._wake()

    def _queued(self, call: bytes) -> bool:
        session = self._session
        if session is None or not session.subscribed:
            return False
        session.calls.append(call)
        return True

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; raises what the handler raised."""
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout)
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:
            with self._lock:
                if self._wakeup >= 0:
                    os.eventfd_write(self._wakeup, 1)

    # ------------------------------------------------------- the client's thread

    def _run(self) -> None:
        try:
            self._stay_subscribed()
        except Exception as error:
            cause = error.__cause__ if isinstance(error, CallbackFailed) else error
            _LOG.error("the driver ends, since this was raised", exc_info=cause)
            self._raised = cause
            with suppress(Exception):  # it is raised on the thread that joins; which may not happen
                self._handler.failed(f"the driver has ended: {cause!r}")
        finally:
            self._ends = self._ends or time.monotonic()
            self._disconnect()
            with self._lock:
                os.close(self._wakeup)
                self._wakeup = -1

    def _stay_subscribed(self) -> None:
        pause, since, redirects = _FIRST_S, time.monotonic(), 0
        moved: Endpoint | None = None
        while self._ends is None:
            retry_s = 0.0
            try:
                endpoint, moved = moved or self._find(), None
                if endpoint is None:
                    raise ConnectionError("there is no master yet")
                try:
                    self._serve(endpoint)
                except Moved as found:
                    redirects += 1
                    if redirects <= _REDIRECTS_MOST:
                        moved = endpoint.redirected(found.location)
                        self._disconnect()
                        continue
            except Rejected as rejected:
                return self._handler.failed(rejected.reason)
            except AsaError as error:
                return self._handler.failed(str(error))
            except Busy as busy:
                retry_s = busy.seconds
            except OSError as error:
                if self._ends is None:
                    _LOG.warning("no connection for %s: %s", self._path, error)
            redirects = 0
            if self._disconnect():
                pause, since = _FIRST_S, time.monotonic()
                if self._ends is None:
                    self._handler.lost()
            elif time.monotonic() - since > self._give_up:
                return self._handler.failed(f"no server could be reached for {self._give_up:g} s")
            if self._ends is None:
                self._pause(max(retry_s, pause * random.uniform(0.5, 1.0)))
                pause = min(2 * pause, self._longest)
        return None

    def _serve(self, endpoint: Endpoint) -> None:
        session = Subscription(endpoint, self._path, self._handler, self._wakeup)
        with self._lock:
            self._session = session
        session.begin()
        while self._ends is None or (session.busy and time.monotonic() < self._ends):
            session.step(self._ends)

    def _disconnect(self) -> bool:
        """Close the connections; whether it had been subscribed."""
        with self._lock:
            session, self._session = self._session, None
        if session is None:
            return False
        session.close()
        return session.subscribed

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            while self._ends is None and (left := until - time.monotonic()) > 0:
                if selector.select(left):
                    clear_wakeup(self._wakeup)
