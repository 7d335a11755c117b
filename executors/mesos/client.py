"""A client of the scheduler API: subscribes, hands over events, sends calls, comes back when all is lost.

One thread does it all and calls its handler. Two connections belong together: events come down the one that subscribed,
calls go up the other, one behind the other, without waiting for answers. When either breaks both are given up and a new
pair subscribes. Calls that were not answered by then are lost, whether or not they were carried out: nobody could tell,
and an ACCEPT that is carried out twice would be answered with the loss of tasks that run.
"""

from __future__ import annotations

import logging
import math
import os
import random
import selectors
import threading
import time
from contextlib import suppress

from asa.core.errors import AsaError
from executors.mesos.codec import Message, encode
from executors.mesos.endpoint import Endpoint, Finder
from executors.mesos.session import Busy, CallbackFailed, Handler, Moved, Rejected, Session, silence

_LOG = logging.getLogger(__name__)
_REDIRECTS_MOST = 8
_FIRST_S, _LONGEST_S, _GOODBYE_S = 0.05, 15.0, 5.0


class Client:
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
        handler: Handler,
        *,
        longest_s: float = _LONGEST_S,
        give_up_s: float = math.inf,
    ) -> None:
        self._find, self._path, self._handler = find, path, handler
        self._longest, self._give_up = longest_s, give_up_s
        self._bell = -1
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._ends: float | None = None  # when even unanswered calls are given up; None while nobody wants to stop
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
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread.start()

    def call(self, message: Message) -> bool:
        """Queue a call; False when there is no subscription, and so nobody to call. From any thread."""
        call = encode(message)
        with self._lock:  # so that a call is never queued for a connection that is gone already
            queued = self._ends is None and self._queued(call)
        self._ring()
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
        self._ring()

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

    def _ring(self) -> None:
        if threading.current_thread() is not self._thread:
            with self._lock:
                if self._bell >= 0:
                    os.eventfd_write(self._bell, 1)

    # ------------------------------------------------------- the client's thread

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:
            cause = error.__cause__ if isinstance(error, CallbackFailed) else error
            _LOG.error("the driver ends, since this was raised", exc_info=cause)
            self._raised = cause
            with suppress(Exception):  # it is raised on the thread that joins; but perhaps nobody does
                self._handler.failed(f"the driver has ended: {cause!r}")
        finally:
            self._ends = self._ends or time.monotonic()
            self._forget()
            with self._lock:
                os.close(self._bell)
                self._bell = -1

    def _keep(self) -> None:
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
                        self._forget()
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
            if self._forget():
                pause, since = _FIRST_S, time.monotonic()
                if self._ends is None:
                    self._handler.lost()
            elif time.monotonic() - since > self._give_up:
                return self._handler.failed(f"nobody could be reached for {self._give_up:g} s")
            if self._ends is None:
                self._pause(max(retry_s, pause * random.uniform(0.5, 1.0)))
                pause = min(2 * pause, self._longest)
        return None

    def _serve(self, endpoint: Endpoint) -> None:
        session = Session(endpoint, self._path, self._handler, self._bell)
        with self._lock:
            self._session = session
        session.begin()
        while self._ends is None or (session.busy and time.monotonic() < self._ends):
            session.step(self._ends)

    def _forget(self) -> bool:
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
            selector.register(self._bell, selectors.EVENT_READ)
            while self._ends is None and (left := until - time.monotonic()) > 0:
                if selector.select(left):
                    silence(self._bell)
