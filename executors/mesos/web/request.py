"""Requests as Mesos takes them and refuses them: methods, content types, bodies.

References
----------
Apache Mesos, ``src/master/http.cpp``: the order of the checks and their statuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from executors.mesos.codec import BadMessage, Message, decode, encode
from executors.mesos.effects import Refused
from executors.mesos.messages import field
from executors.mesos.web.http import Request, Response

JSON = "application/json"

PATIENCE_S = 1.0
"""How long those are held, at least, who are told to try again later [s]."""

_log = logging.getLogger(__name__)
_ACCEPTED = frozenset({JSON, "application/*", "*/*", "application/recordio"})


class WrongMethod(Refused):
    """Another method than the one that is `allowed` here."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(405, f"expected {allowed}, found {found[:20]}")
        self.allowed = allowed


def check_method(request: Request, method: str) -> None:
    """Raises `WrongMethod` when it is another; HEAD is as good as GET."""
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise WrongMethod(request.method, method)


def accepts_json(request: Request) -> None:
    """Raises `Refused` (406) when the client does not understand JSON."""
    header = request.headers.get("Accept", "*/*")
    if not any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in header.split(",")):
        raise Refused(406, f"expected Accept to allow {JSON}: it is all that is spoken here")


def refusal(error: Exception, target: str, who: str) -> Response | Coroutine[Any, Any, Response]:
    """As `told`, but those who are to try again later hear of it later: some clients do at once."""
    response = told(error, target, who)
    return _held_back(response) if response.status in (429, 503) else response


def told(error: Exception, target: str, who: str) -> Response:
    """What is answered where this was raised.

    Parameters
    ----------
    target
        Of the request.
    who
        Whose fault it is when it is not the client's: "the master".
    """
    if isinstance(error, BadMessage):
        error = Refused(400, str(error))
    elif not isinstance(error, Refused):
        _log.error("a request to %.100r could not be answered", target, exc_info=error)
        error = Refused(500, f"{who} failed to answer this; its log says why")
    _log.info("%.80r is answered with %d: %s", target, error.status, error.reason)
    headers = {"Cache-Control": "no-store"}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="asa", Bearer realm="asa"'
    elif isinstance(error, WrongMethod):
        headers["Allow"] = "POST" if error.allowed == "POST" else "GET, HEAD"
    return Response(error.status, error.reason.encode(errors="replace"), "text/plain; charset=utf-8", headers)


async def _held_back(response: Response) -> Response:
    await asyncio.sleep(PATIENCE_S + asyncio.get_running_loop().time() % PATIENCE_S)
    return response


def check_content(request: Request) -> None:
    """Raises `Refused` (400 or 415) when a call is not sent as plain JSON."""
    content = request.headers.get("Content-Type")
    if content is None:
        raise Refused(400, "Expecting 'Content-Type' to be present")
    if content != JSON and content.partition(";")[0].strip().lower() != JSON:
        raise Refused(415, f"expected Content-Type {JSON}: JSON is all that is spoken here")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Refused(415, "expected a body that is not compressed")


def call_of(request: Request) -> tuple[Message, str]:
    """The call in a request, and its type; raises `BadMessage` when it is none."""
    call = decode(request.body)
    kind = field(call, "type", str)
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s calls %.80r at %.80r", request.connection.peer, kind, request.path)
    return call, kind


def in_json(found: Any) -> Response:
    """An answer that has something to say."""
    return Response(200, encode(found), JSON)
