"""The page's server: requests in, answers and streams out.

::

    GET  /                              all       the page, without a word about any run
    GET  /page/NAME                     all       its scripts and style
    POST /api/session                   the code  a token, for all that follows
    GET  /api/list                      token     runs and queues
    GET  /api/KIND/NAME/stream          token     the page of a run or queue, then what changes: a line of JSON each
    GET  /api/KIND/NAME/at?t=SECONDS    token     the page as it was
    GET  /api/runs/NAME/beliefs         token     what estimators believe of waits now, in the whole queue
    GET  /api/runs/NAME/containers      token     containers on the run's agents now: not every log has them
    GET  /api/runs/NAME/output          token     the last lines that tasks have printed; stage=, index=, failed=1
    GET  /api/runs/NAME/tasks           token     a page of its tasks: see `asa.dashboard.tasks.TaskQuery`; t= as above
    GET  /api/runs/NAME/task            token     all that is known of one; stage=, index=, t=
    POST /api/runs/NAME/ACTION          token     cancel, hold, release or resume it, as `asa ACTION NAME` does
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
import json
import logging
import math
import os
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from asa.core.errors import AsaError, InvalidInput, RunNotFound, StateError
from asa.core.event import RunStarted
from asa.dashboard.beliefs import beliefs
from asa.dashboard.containers import containers, pool_of
from asa.dashboard.document import Document, difference
from asa.dashboard.feed import Feed, OutputTails, Sources, View
from asa.dashboard.tasks import PAGE_MOST, Arguments, TaskQuery, TaskTable, curves
from asa.log.events import EventLog
from asa.log.messages import log_to_file, logged_in
from asa.log.rundir import RunDirectory
from asa.security.files import check_private, private_directory, write_private
from asa.web.errors import HTTPError
from asa.web.hosts import FailedAttempts, host_of, is_loopback
from asa.web.loop_thread import LoopThread
from asa.web.server import (
    Admission,
    Listener,
    Request,
    Response,
    ResponseStream,
    StreamResponse,
    check_method,
    error_response,
    listening_socket,
)

_JSON = "application/json"
_DIGITS_MOST = 19
_TEXT_MOST = 500
Answered = TypeVar("Answered")
_Answering = Coroutine[Any, Any, Response | StreamResponse]
_Answer = Callable[[Request], _Answering]


class Site:
    """Answers requests for one state directory."""

    def __init__(self, sources: Sources, access: Access, host: str, scheme: str, opens: tuple[str, str]) -> None:
        self._sources, self._access, self._host, self._scheme, self._opens = sources, access, host, scheme, opens
        self._watches: dict[tuple[str, str], Watch] = {}
        self._outputs = OutputTails()
        self._acting: set[str] = set()  # runs of which a command is being carried out
        self.authenticated: Callable[[Any], object] = lambda connection: None
        """Called with connections that have authenticated."""

    async def warm(self) -> None:
        """Read what is likely to be asked for first; what is wrong with it is the answer to all requests."""
        with contextlib.suppress(AsaError):
            if self._opens[1]:
                await self._watch(*self._opens)

    def end(self) -> None:
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
        match path.split("/")[2:]:
            case ["runs", name, action] if action in ACTIONS:
                check_method(request, "POST")
                return 0, partial(self._act, name, action)
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
            case ["runs", name, "output"]:
                return 0, partial(self._output, name)
            case ["runs", name, "tasks"]:
                return 0, partial(self._tasks, name)
            case ["runs", name, "task"]:
                return 0, partial(self._task, name)
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

    async def _output(self, name: str, request: Request) -> Response:
        which = request.query.get("stage"), _number(request, "index", None), "failed" in request.query
        rows = await asyncio.to_thread(lambda: self._outputs.rows(self._sources.directory(name), *which))
        return _answer({"rows": rows}, request)

    async def _tasks(self, name: str, request: Request) -> Response:
        texts = {key: request.query.get(key, "")[:_TEXT_MOST] for key in ("text", "state", "stage", "node", "order")}
        first, count = _number(request, "first", 0), _number(request, "count", TaskQuery.count)
        query = TaskQuery(**texts, first=first or 0, count=min(count or 0, PAGE_MOST))
        watch = await self._watch("runs", name)
        found = await watch.ask(lambda tasks: tasks.page(query), _when(request))
        return _answer({"rows": [], "total": 0, "states": {}, "nodes": []} if found is None else found, request)

    async def _task(self, name: str, request: Request) -> Response:
        stage, index = request.query.get("stage", ""), _number(request, "index", 0) or 0
        watch = await self._watch("runs", name)
        found = await watch.ask(lambda tasks: tasks.one(stage, index), _when(request))
        if found is None:
            raise HTTPError(404, f"run {name} has no task {stage[:100]}[{index}], or not yet")
        directory, until = self._sources.directory(name), _when(request)
        arguments = await asyncio.to_thread(watch.arguments, directory)
        shown = await asyncio.to_thread(curves, directory.path, found, math.inf if until is None else until)
        return _answer(found | {"arguments": arguments.of(stage, index), "curves": shown}, request)

    async def _act(self, name: str, action: str, request: Request) -> Response:
        directory = self._sources.directory(name)
        if name in self._acting:
            raise HTTPError(409, f"run {name} is being asked already: wait until that is done")
        self._acting.add(name)
        try:
            done, words = await asyncio.to_thread(act, directory, action)
        finally:
            self._acting.discard(name)
        if not done:
            raise HTTPError(409, words)
        return _answer({"said": words}, request)

    async def _watch(self, kind: str, name: str) -> Watch:
        key = (kind, name)
        if key not in self._watches:
            feed = await asyncio.to_thread(self._sources.open, kind, name)
            if key in self._watches:  # another request was faster
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


def _number(request: Request, name: str, default: int | None) -> int | None:
    text = request.query.get(name)
    if text is not None and not (text.isdecimal() and text.isascii() and len(text) < _DIGITS_MOST):
        raise HTTPError(400, f"expected {name}, a whole number, found {text[:50]!r}")
    return default if text is None else int(text)


def _when(request: Request) -> float | None:
    return _seconds(request.query["t"]) if "t" in request.query else None


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise HTTPError(400, f"expected t, a number of seconds, found {text[:50]!r}")
    return found


_PATIENCE = ("--wait", "30s")
ACTIONS = {"cancel": _PATIENCE, "hold": _PATIENCE, "release": _PATIENCE, "resume": ("--detach",)}
"""Commands that the page may have carried out, with their options."""
_ACT_MOST_S = 120.0


def act(directory: RunDirectory, action: str) -> tuple[bool, str]:
    """Carry out a command of `ACTIONS`: the very same, in a process of its own, for it may load the user's code.

    Returns
    -------
    tuple
        Whether it succeeded, and what it has printed.
    """
    with logged_in(directory.log), log_to_file(directory.log):
        _log.info("asked on the live page: asa %s %s", action, directory.name)
        command = [sys.executable, "-P", "-m", "asa", action, directory.name, *ACTIONS[action]]
        try:
            found = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"ASA_STATE_DIR": str(directory.state)},
                start_new_session=True,  # Ctrl-C is for the dashboard
                timeout=_ACT_MOST_S,
            )
        except subprocess.TimeoutExpired:
            return False, f"asa {action} {directory.name} has not ended after {_ACT_MOST_S:g} s, and was ended"
        words = found.stdout.decode(errors="replace").strip()
        _log.info("asa %s %s: exit code %d", action, directory.name, found.returncode)
    return found.returncode == 0, words.removeprefix("asa: ").removeprefix("error: ") or f"exit code {found.returncode}"


SESSIONS_MOST = 32
"""Pages that may be open at a time; of more, the oldest has to be opened anew."""
CODE_MOST = 200
"""Longest body of a request for a token [bytes]."""


class Access:
    """Who may look: a one-time code, from a file that only its owner can read, is exchanged for a token.

    The code is in the fragment of a link, which browsers keep to themselves; the page sends it once, in the body of a
    request, and forgets it. The token is kept by the browser for this page alone (host *and* port: cookies would go to
    every port of the host, and so to servers of other users of a login node), and ends with this process.

    Parameters
    ----------
    file
        Where the link with the next code is kept; mode 0600.
    """

    def __init__(self, file: Path, address: str, clock: Callable[[], float]) -> None:
        self._file, self._address = file, address
        self._code = ""
        self._tokens: dict[str, None] = {}
        self._failures = FailedAttempts(clock)
        self.renew()

    @property
    def link(self) -> str:
        """Opens the page, once."""
        return f"{self._address}/#{self._code}"

    def renew(self) -> None:
        self._code = secrets.token_urlsafe(32)
        write_private(self._file, f"{self.link}\n".encode())

    def token_for(self, code: str, peer: str) -> str:
        """A token for who has the code, which is used up by that.

        Raises
        ------
        HTTPError
            403 when it is another; 429 when that has happened too often from this address.
        """
        if not hmac.compare_digest(code.encode(errors="replace"), self._code.encode()):
            if self._failures.too_many(peer):
                raise HTTPError(429, "too many codes that are not ours: wait a second")
            raise HTTPError(403, "this link was used already, or is not of this page: take the one in the file again")
        self.renew()
        token = secrets.token_urlsafe(32)
        while len(self._tokens) >= SESSIONS_MOST:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[token] = None
        return token

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises `HTTPError` (401) when these headers have no token of ours."""
        scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
        given, known = rest.strip().encode(errors="replace"), False
        for token in self._tokens:  # all of them: the time it takes reveals nothing
            known |= hmac.compare_digest(token.encode(), given)
        if scheme.lower() != "bearer" or not known:
            raise HTTPError(401, "expected the token of an open page: open the link that asa dashboard has written")

    def close(self) -> None:
        """All tokens are revoked."""
        self._tokens.clear()
        self._file.unlink(missing_ok=True)


def check_addressed(headers: Mapping[str, str], host: str, scheme: str) -> None:
    """Refuse what a browser sends for another page, even one whose name resolves to this machine.

    Parameters
    ----------
    host
        What we listen on; names of loopback are taken where that is loopback.
    scheme
        ``http`` or ``https``.

    Raises
    ------
    HTTPError
        421 when another host is meant, 403 when another page asks.
    """
    header = headers.get("Host", "")
    named = host_of(header)
    if named != host.lower() and not (is_loopback(host) and is_loopback(named)):
        raise HTTPError(421, f"this is not {header[:100]!r}: open the address that asa dashboard has printed")
    origin = headers.get("Origin")
    if origin is not None and (urlsplit(origin).scheme, urlsplit(origin).netloc) != (scheme, header):
        raise HTTPError(403, "another page has asked for this")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise HTTPError(403, "another page has asked for this")


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def files() -> dict[str, bytes]:
    """The page's files by name, squeezed."""
    found = resources.files("asa.dashboard") / "page"
    names = [file.name for file in found.iterdir() if file.name.rpartition(".")[2] in _TYPES]
    return {name: gzip.compress((found / name).read_bytes(), mtime=0) for name in sorted(names)}


def take(path: str, accepts: str) -> Response:
    """The file for a path: ``/`` or ``/page/NAME``.

    Parameters
    ----------
    accepts
        The request's ``Accept-Encoding``.

    Raises
    ------
    HTTPError
        404 when there is none.
    """
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    if name not in files() or (path != "/" and not path.startswith("/page/")):
        raise HTTPError(404, "there is nothing here")
    return squeezed(files()[name], _TYPES[name.rpartition(".")[2]], accepts)


def squeezed(body: bytes, content: str, accepts: str) -> Response:
    """An answer whose body was compressed by gzip, for clients that accept that."""
    if "gzip" in accepts:
        return Response(200, body, content, HEADERS | {"Content-Encoding": "gzip"})
    return Response(200, gzip.decompress(body), content, HEADERS)


LOOK_S = 0.1
"""How often a log is looked at for news [s]."""
REFRESH_S = 1.0
"""How often what depends on the time is sent again, while time goes on [s]."""
BEHIND_MOST = 4 << 20
"""A viewer for whom more than this waits to be sent is sent no further changes until it has read that [bytes]."""
BARS_MOST = 1000
"""Runs of tasks in one record."""

_log = logging.getLogger(__name__)
_BEAT = b"\n"
_BEAT_EVERY = 100
ALONE_MOST = 600  # looks at a log without viewers: to read it again takes seconds


class Viewer:
    """An open page: what it was sent, and the stream that it is sent on."""

    def __init__(self, stream: ResponseStream) -> None:
        self.stream = stream
        self._document: Document = {}
        self._bars = self._due = 0
        self._sent: tuple[float, bool] | None = None

    def send(self, feed: Feed[Any], view: View) -> None:
        """Send what it does not have yet; nothing while it does not keep up."""
        if self.stream.waiting > BEHIND_MOST:
            return
        change, first = difference(self._document, view.document), self._bars
        sent = (view.now, view.live)
        if not change and view.bars == self._due and self._sent == sent:
            return
        self._document, self._due, self._sent = view.document, view.bars, sent
        self._bars = first if self._due - first > BARS_MOST else self._due  # many come later: see `more`
        start, end = feed.span
        record = {"change": change, "now": view.now, "from": start, "to": max(end, view.now)}
        self.stream.put(line(record | {"live": view.live, "bars": feed.bars(first, self._bars)}))

    def more(self, feed: Feed[Any]) -> bool:
        """Send more of the runs of tasks that it does not have yet; whether there may be further ones."""
        first, last = self._bars, min(self._bars + BARS_MOST, self._due)
        if first >= last or self.stream.waiting > BEHIND_MOST:
            return False
        self._bars = last
        self.stream.put(line({"bars": feed.bars(first, last)}))
        return True

    def fail(self, words: str) -> None:
        """Send the reason for which nothing more will come, and end."""
        self.stream.put(line({"error": words}))
        self.stream.end()


class Watch:
    """One feed, and those who look at it; it is read while there are viewers, and a little longer."""

    def __init__(self, feed: Feed[Any], over: Callable[[], object]) -> None:
        self.feed, self._over = feed, over
        self._viewers: set[Viewer] = set()
        self._view: View | None = None
        self._reading = asyncio.Lock()
        self._arguments: Arguments | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, viewer: Viewer) -> None:
        """One more looks."""
        self._viewers.add(viewer)
        if self._view is not None:
            viewer.send(self.feed, self._view)

    def discard(self, viewer: Viewer) -> None:
        """It looks no more."""
        self._viewers.discard(viewer)

    def end(self) -> None:
        for viewer in list(self._viewers):
            viewer.stream.end()

    async def at(self, when: float) -> View:
        async with self._reading:  # two replays at once are no faster
            return await asyncio.to_thread(self.feed.look_at, when)

    async def ask(self, question: Callable[[TaskTable], Answered], when: float | None) -> Answered | None:
        """Something of the run's tasks, now or at a time [s]; None where it has none."""
        async with self._reading:
            if self._view is None:
                await asyncio.to_thread(self.feed.advance)
            return await asyncio.to_thread(self._answer, question, when)

    def _answer(self, question: Callable[[TaskTable], Answered], when: float | None) -> Answered | None:
        tasks = self.feed.tasks(when)
        return None if tasks is None else question(tasks)

    def arguments(self, directory: RunDirectory) -> Arguments:
        """What its tasks are called with, read once."""
        if self._arguments is None:
            self._arguments = Arguments(directory)
        return self._arguments

    async def _run(self) -> None:
        try:
            await self._follow()
        except (AsaError, OSError) as error:
            self._fail(f"the log cannot be read: {error}")
        except Exception:
            _log.exception("a log cannot be shown")
            self._fail("the dashboard cannot show this log; its terminal says why")
        finally:
            self._over()
            self.feed.close()

    def _fail(self, words: str) -> None:
        for viewer in list(self._viewers):
            viewer.fail(words)

    async def _follow(self) -> None:
        loop, looked, alone, turn = asyncio.get_running_loop(), 0.0, 0, 0
        while alone < ALONE_MOST:
            async with self._reading:  # what is asked meanwhile is of one moment
                news = await asyncio.to_thread(self.feed.advance)
            due = self._view is None or (self._view.live and loop.time() >= looked + REFRESH_S)
            if news or due:
                self._view, looked = await asyncio.to_thread(self.feed.look), loop.time()
                for viewer in list(self._viewers):
                    viewer.send(self.feed, self._view)
            for viewer in list(self._viewers):
                while viewer.more(self.feed):
                    await asyncio.sleep(0)  # what was sent may be drawn meanwhile
            turn, alone = turn + 1, 0 if self._viewers else alone + 1
            if turn % _BEAT_EVERY == 0:  # this finds clients that are gone
                for viewer in list(self._viewers):
                    viewer.stream.put(_BEAT)
            await asyncio.sleep(LOOK_S)


def line(record: dict[str, Any]) -> bytes:
    """A record as it is sent: JSON, and the end of a line.

    >>> line({"a": [1.5, None]})
    b'{"a":[1.5,null]}\\n'
    """
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


LOOPBACK = "127.0.0.1"

_CLOSING_S = 1.0


@dataclass(frozen=True)
class Address:
    """Where a dashboard listens, and the file in which the link is that opens it."""

    host: str
    port: int
    scheme: str
    file: Path

    @property
    def url(self) -> str:
        """The page, without the code that opens it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Dashboard:
    """Serves the page of a state directory; a context manager.

    Parameters
    ----------
    name
        The run or queue that the page shows first, or a beginning of it; "" for the newest run, else the newest queue.
    host
        The name or address to listen on; other machines reach it only over TLS.
    port
        0 for any.
    certificate
        File with a private key and a certificate (PEM, mode 0600) to speak TLS with; None for plain HTTP.

    Raises
    ------
    InvalidInput
        When other machines could reach it without TLS.
    """

    def __init__(
        self, state: Path, name: str = "", *, host: str = LOOPBACK, port: int = 0, certificate: Path | None = None
    ) -> None:
        if certificate is None and not is_loopback(host):
            raise InvalidInput(
                f"without TLS one listens on loopback only, not on {host or 'all addresses'}: leave the host out and "
                "come through ssh, or give a certificate"
            )
        self._sources = Sources(state)
        try:
            self._opens = self._sources.find(name)
        except RunNotFound:  # those to come are listed
            if name:
                raise
            self._opens = "runs", ""
        self._state, self._host, self._port = state, host, port
        self._context = None if certificate is None else _context(certificate)
        self._thread = LoopThread[None]("asa-dashboard")
        self._stopped: asyncio.Future[None] | None = None
        self._address: Address | None = None
        self._access: Access | None = None

    @property
    def address(self) -> Address:
        """Where it listens; raises `StateError` before it was started."""
        if self._address is None:
            raise StateError("the dashboard listens nowhere yet: start it first")
        return self._address

    @property
    def link(self) -> str:
        """Opens the page, once; for the user who started it only."""
        assert self._access is not None
        return self._access.link

    @property
    def shows(self) -> str:
        return self._opens[1]

    def start(self) -> None:
        """Listen, and write the link."""
        self._thread.start(self._serve)

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended.

        Raises
        ------
        TimeoutError
            After `timeout` [s].
        """
        self._thread.wait(timeout)

    def close(self) -> None:
        """Listen no more; links and open pages are of no use from now on."""
        if self._thread:
            self._thread.tell(self._hear)
            self._thread.join()
            if self._access is not None:
                self._access.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------- its own thread

    def _hear(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def _serve(self, started: Future[None]) -> None:
        self._stopped = asyncio.get_running_loop().create_future()
        with listening_socket(self._host, self._port) as sock:
            scheme, port = "http" if self._context is None else "https", sock.getsockname()[1]
            links = private_directory(self._state / "dashboard")
            self._address = Address(self._host, port, scheme, links / f"link-{os.getpid()}-{port}")
            self._access = Access(self._address.file, self._address.url, time.monotonic)
            site = Site(self._sources, self._access, self._host, scheme, self._opens)
            listener = Listener(site.admit, "the dashboard")
            site.authenticated = listener.authenticated
            await listener.listen(sock, self._context)
            started.set_result(None)
            warming = asyncio.create_task(site.warm())
            await self._stopped
            warming.cancel()
            site.end()
            await listener.close(_CLOSING_S)


def _context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(check_private(certificate))
    except OSError as error:  # ssl.SSLError is one
        raise StateError(f"the certificate in {certificate} cannot be used: {error}") from error
    return context
