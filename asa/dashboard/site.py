"""The page's server: requests in, answers and streams out.

::

    GET  /                              anybody   the page, without a word about any run
    GET  /page/NAME                     anybody   its scripts and style
    POST /api/session                   the code  a token, for all that follows
    GET  /api/list                      token     runs and queues
    GET  /api/KIND/NAME/stream          token     the page of a run or queue, then what changes: a line of JSON each
    GET  /api/KIND/NAME/at?t=SECONDS    token     the page as it was
    GET  /api/runs/NAME/beliefs         token     what estimators believe of waits now, in the whole queue
    GET  /api/runs/NAME/containers      token     containers on the run's agents now: not every log tells
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from asa.core.errors import AsaError, RunNotFound
from asa.core.event import RunStarted
from asa.dashboard.access import CODE_MOST, Access, check_addressed
from asa.dashboard.beliefs import beliefs
from asa.dashboard.containers import containers, pool_of
from asa.dashboard.shelf import HEADERS, squeezed, take
from asa.dashboard.sources import Sources
from asa.dashboard.watching import Viewer, Watch, line
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.web.errors import HTTPError
from asa.web.server import Admission, Request, Response, ResponseStream, StreamResponse, check_method, error_response

_JSON = "application/json"
_Answering = Coroutine[Any, Any, Response | StreamResponse]
_Answer = Callable[[Request], _Answering]


class Site:
    """Answers requests for one state directory.

    Parameters
    ----------
    sources
        Runs and queues.
    access
        Who may look at them.
    host, scheme
        Where we listen, and how: ``http`` or ``https``.
    opens
        Kind and name of what the page shows first.
    """

    def __init__(self, sources: Sources, access: Access, host: str, scheme: str, opens: tuple[str, str]) -> None:
        self._sources, self._access, self._host, self._scheme, self._opens = sources, access, host, scheme, opens
        self._watches: dict[tuple[str, str], Watch] = {}
        self.authenticated: Callable[[Any], object] = lambda connection: None
        """Called with connections that have authenticated."""

    async def warm(self) -> None:
        """Read what is likely to be asked for first; what is wrong with it is told to whoever asks."""
        with contextlib.suppress(AsaError):
            await self._watch(*self._opens)

    def end(self) -> None:
        """End all streams."""
        for watch in list(self._watches.values()):
            watch.end()

    def admit(self, request: Request) -> Admission:
        """Who may ask what."""
        try:
            most, answer = self._route(request)
        except (HTTPError, AsaError) as error:
            return Admission(CODE_MOST, partial(_refusal, error))
        return Admission(most, lambda request: _guarded(answer(request), request))

    def _route(self, request: Request) -> tuple[int, _Answer]:
        """How long the request's body may be [bytes], and what answers it."""
        check_addressed(request.headers, self._host, self._scheme)
        path = request.path
        if not path.startswith("/api/"):
            check_method(request, "GET")
            return 0, partial(_file, path)
        if path == "/api/session":
            check_method(request, "POST")
            return CODE_MOST, self._session
        self._access.check(request.headers)
        self.authenticated(request.connection)
        check_method(request, "GET")
        match path.split("/")[2:]:
            case ["list"]:
                return 0, self._list
            case [kind, name, "stream"]:
                return 0, partial(self._stream, kind, name)
            case [kind, name, "at"]:
                return 0, partial(self._at, kind, name)
            case ["runs", name, "beliefs"]:
                return 0, partial(self._beliefs, name)
            case ["runs", name, "containers"]:
                return 0, partial(self._containers, name)
        raise HTTPError(404, "there is nothing here")

    # ------------------------------------------------------- answers

    def _session(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self._enter(request.body, request)  # a request has its body until the answer has begun, no longer

    async def _enter(self, body: bytes, request: Request) -> Response:
        try:
            code = json.loads(body)["code"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HTTPError(400, "expected a code") from None
        token = self._access.token_for(str(code), request.connection.peer)
        kind, name = self._opens
        return _answer({"token": token, "kind": kind, "name": name}, request)

    async def _list(self, request: Request) -> Response:
        return _answer({"rows": await asyncio.to_thread(self._sources.listed)}, request)

    async def _stream(self, kind: str, name: str, request: Request) -> StreamResponse:
        watch = await self._watch(kind, name)
        seen: list[Viewer] = []
        stream = ResponseStream(request.connection, lambda _: watch.discard(seen[0]), beating=False)
        seen.append(Viewer(stream))
        watch.add(seen[0])
        return StreamResponse(stream, HEADERS | {"Content-Type": "application/x-ndjson"})

    async def _at(self, kind: str, name: str, request: Request) -> Response:
        when = _seconds(request.query.get("t", ""))
        watch = self._watches.get((kind, name))
        if watch is None:
            raise HTTPError(409, "expected a stream of the same to be open: its log is read for that")
        view = await watch.at(when)
        return _answer({"document": view.document, "bars": view.bars, "now": view.now}, request)

    async def _beliefs(self, name: str, request: Request) -> Response:
        return _answer({"rows": await asyncio.to_thread(_believed, self._sources.directory(name))}, request)

    async def _containers(self, name: str, request: Request) -> Response:
        rows = await asyncio.to_thread(_contained, self._sources.directory(name))
        return _answer({"rows": rows, "at": time.time()}, request)

    async def _watch(self, kind: str, name: str) -> Watch:
        key = (kind, name)
        if key not in self._watches:
            feed = await asyncio.to_thread(self._sources.open, kind, name)
            if key in self._watches:  # somebody else was faster
                feed.close()
            else:
                self._watches[key] = Watch(feed, lambda: self._watches.pop(key))
        return self._watches[key]


def _believed(directory: RunDirectory) -> list[dict[str, Any]]:
    start = _start(directory)
    return [] if start is None else beliefs(directory.state / "learned.db", start.site, start.partition)


def _contained(directory: RunDirectory) -> list[dict[str, Any]] | None:
    start = _start(directory)
    return None if start is None else containers(pool_of(directory, start.pool))


def _start(directory: RunDirectory) -> RunStarted | None:
    with EventLog(directory.events) as log:
        start = log.latest(RunStarted)
    return start if isinstance(start, RunStarted) else None


async def _file(path: str, request: Request) -> Response:
    return take(path, request.headers.get("Accept-Encoding", ""))


async def _guarded(answering: _Answering, request: Request) -> Response | StreamResponse:
    try:
        return await answering
    except (HTTPError, AsaError) as error:
        return _refusal(error, request)


def _refusal(error: Exception, request: Request) -> Response:
    """What to answer where an exception was raised."""
    if isinstance(error, AsaError):
        error = HTTPError(404 if isinstance(error, RunNotFound) else 503, str(error))
    found = error_response(error, request.target, "the dashboard")
    # No WWW-Authenticate: the page has a form of its own, and browsers would ask for a password.
    kept = {name: value for name, value in found.headers.items() if name != "WWW-Authenticate"}
    return found._replace(headers=kept | HEADERS)


def _answer(found: Any, request: Request) -> Response:
    body = gzip.compress(line(found), compresslevel=1)
    return squeezed(body, _JSON, request.headers.get("Accept-Encoding", ""))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise HTTPError(400, f"expected t, a number of seconds, found {text[:50]!r}")
    return found
