"""Requests as Mesos takes them and refuses them: methods, content types, bodies.

References
----------
Apache Mesos, ``src/master/http.cpp``: the order of the checks and their statuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from aiohttp import hdrs, web

from executors.mesos.codec import BadMessage, Message, decode
from executors.mesos.effects import Refused
from executors.mesos.master.limits import body_limit, read_body
from executors.mesos.messages import field

JSON = "application/json"
SCHEDULER_PATH = "/api/v1/scheduler"
OPERATOR_PATHS = ("/api/v1", "/api/v1/operator")

PATIENCE_S = 1.0
"""How long those are held, at least, who are told to try again later [s]: some clients do at once."""

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_ACCEPTED = frozenset({JSON, "application/*", "*/*", "application/recordio"})


def path_of(request: web.BaseRequest) -> str:
    """The path of a request, without ``/master`` before it and ``/`` behind it."""
    path = request.path.removeprefix("/master")
    return path.rstrip("/") or "/"


class WrongMethod(Refused):
    """Another method than the one that is `allowed` here."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(405, f"expected {allowed}, found {found[:20]}")
        self.allowed = allowed


def check_method(request: web.BaseRequest, method: str) -> None:
    """Raises `WrongMethod` when it is another; HEAD is as good as GET."""
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise WrongMethod(request.method, method)


def accepts_json(request: web.BaseRequest) -> None:
    """Raises `Refused` (406) when the client does not understand JSON."""
    header = request.headers.get(hdrs.ACCEPT, "*/*")
    if not any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in header.split(",")):
        raise Refused(406, f"expected Accept to allow {JSON}: it is all that is spoken here")


async def answered(request: web.BaseRequest, answering: Awaitable[Answer], who: str) -> Answer | web.Response:
    """An answer, or that of a refusal when there is none.

    Parameters
    ----------
    who
        Whose fault it is otherwise: "the master".
    """
    try:
        return await answering
    except Refused as refused:
        return await refusal(refused)
    except BadMessage as error:
        return await refusal(Refused(400, str(error)))
    except ConnectionError:
        raise
    except Exception:
        _log.exception("a request to %.100r could not be answered", request.path)
        return await refusal(Refused(500, f"{who} failed to answer this; its log says why"))


async def refusal(refused: Refused) -> web.Response:
    """The answer that says so."""
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    if refused.status in (429, 503):
        await asyncio.sleep(PATIENCE_S + asyncio.get_running_loop().time() % PATIENCE_S)
    elif refused.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = 'Basic realm="asa", Bearer realm="asa"'
    elif isinstance(refused, WrongMethod):
        headers[hdrs.ALLOW] = "POST" if refused.allowed == "POST" else "GET, HEAD"
    return web.Response(status=refused.status, text=refused.reason, headers=headers)


async def read_call(request: web.BaseRequest, role: str) -> tuple[Message, str]:
    """The call in a request, and its type.

    Raises
    ------
    Refused
        400 or 415 when it is not sent as JSON; 413 when it is too long for this role.
    BadMessage
        When it is no call.
    """
    content = request.headers.get(hdrs.CONTENT_TYPE)
    if content is None:
        raise Refused(400, "Expecting 'Content-Type' to be present")
    if content.partition(";")[0].strip().lower() != JSON:
        raise Refused(415, f"expected Content-Type {JSON}: JSON is all that is spoken here")
    call = decode(await read_body(request, body_limit(role)))
    return call, field(call, "type", str)


def as_object(found: object) -> Message:
    """Raises `BadMessage` when it is no JSON object."""
    if not isinstance(found, dict):
        raise BadMessage(f"expected an object, found {type(found).__name__}")
    return found
