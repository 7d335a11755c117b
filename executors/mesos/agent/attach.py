"""Calls about nested containers, and what these say and are told, as records.

References
----------
Apache Mesos, ``include/mesos/v1/agent/agent.proto``: ``ProcessIO``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from asa.web.errors import HTTPError
from asa.web.server import Request, Response, ResponseStream, StreamResponse
from executors.mesos.agent.nested import Nested, Session
from executors.mesos.codec import BadMessage, Message, Records, frame
from executors.mesos.http_api import JSON, in_json
from executors.mesos.messages import field, octets

RECORDS = "application/recordio"
KINDS = frozenset(
    {f"{verb}{kind}_CONTAINER" for verb in ("LAUNCH", "WAIT", "KILL", "REMOVE") for kind in ("", "_NESTED")}
    | {"LAUNCH_NESTED_CONTAINER_SESSION", "ATTACH_CONTAINER_OUTPUT"}
)
"""Calls that may be about nested containers; the shorter names are the newer ones."""
_NOT_KEPT = "I/O switchboard server was disabled for this container"
"""What Mesos says of a container that has no terminal; its command line looks for that."""
_WAITING_MOST = 1 << 20
_LOOK_S = 0.02


async def carry_out(nested: Nested, request: Request, call: Message, kind: str) -> Response | StreamResponse | None:
    """One of `KINDS`: its answer, or None when it is about no nested container of ours.

    Raises
    ------
    HTTPError, BadMessage
        As `Nested` does.
    """
    asked: Message = field(call, kind.lower(), dict)
    if kind.startswith("ATTACH"):
        raise HTTPError(500, _NOT_KEPT)
    if kind.startswith("LAUNCH"):
        attached = kind.endswith("SESSION")
        session = await nested.launch(asked, attached=attached)
        return _opened(nested, request, session) if attached else Response(200)
    found = nested.find(asked)
    if found is None:
        return None
    if kind.startswith("WAIT"):
        await found.over.wait()
        return in_json({"type": kind, kind.lower(): {} if found.status is None else {"exit_status": found.status}})
    if kind.startswith("KILL"):
        nested.kill(found, asked)
    else:
        nested.remove(found)
    return Response(200)


def _opened(nested: Nested, request: Request, session: Session) -> StreamResponse:
    """What a session says until it has ended; it ends when the client goes."""

    def over(stream: ResponseStream) -> None:
        telling.cancel()
        nested.let_go(session)

    stream = ResponseStream(request.connection, over, beating=False)
    telling = asyncio.create_task(_tell(session, stream))
    if RECORDS not in request.headers.get("Accept", ""):
        return StreamResponse(stream)
    return StreamResponse(stream, {"Content-Type": RECORDS, "Message-Content-Type": JSON})


async def _tell(session: Session, stream: ResponseStream) -> None:
    async with aclosing(session.output()) as output:
        async for item in output:
            while stream.waiting > _WAITING_MOST:
                await asyncio.sleep(_LOOK_S)
            stream.put(frame(item))
    stream.end()


def is_input(request: Request) -> bool:
    """Whether a request's body consists of records, as only that of ATTACH_CONTAINER_INPUT does."""
    return str(request.headers.get("Content-Type", "")).partition(";")[0].strip().lower() == RECORDS


def take_input(nested: Nested, request: Request) -> Coroutine[Any, Any, Response]:
    """ATTACH_CONTAINER_INPUT: give a session what the records of the body hold; one that holds nothing ends its input.

    Raises
    ------
    HTTPError
        When its messages are not JSON (415), or there is no such session (404).
    BadMessage
        When they are not what they should be.
    """
    if str(request.headers.get("Message-Content-Type", JSON)).partition(";")[0].strip().lower() != JSON:
        raise HTTPError(415, f"expected Message-Content-Type {JSON}: JSON is all that is spoken here")
    session, pieces = None, []
    for call in Records().feed(request.body):
        if (kind := field(call, "type", str)) != "ATTACH_CONTAINER_INPUT":
            raise BadMessage(f"expected ATTACH_CONTAINER_INPUT, found {kind!r:.50}")
        asked: Message = field(call, "attach_container_input", dict)
        if session is None:
            session = nested.find(asked)
            if session is None or session.pipes is None:
                raise HTTPError(404, "there is no session of that id that could be given input")
        elif field(asked, "type", str) == "PROCESS_IO" and field(asked, "process_io.type", str) == "DATA":
            if field(asked, "process_io.data.type", str) != "STDIN":
                raise BadMessage("expected the data of 'process_io' to be of the type STDIN")
            pieces.append(octets(asked, "process_io.data.data", b""))
    if session is None:
        raise BadMessage("expected a record that names the container first, found none")
    return _give(session, pieces)


async def _give(session: Session, pieces: list[bytes]) -> Response:
    assert session.pipes
    for piece in pieces:
        await session.pipes.write(piece)
    return Response(200)
