"""What is no input for a session."""

from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from asa.web.server import Headers, Request
from executors.mesos.agent.attach import take_input
from executors.mesos.codec import BadMessage, Message, frame
from executors.mesos.messages import identity, message


class Sessions:
    """One session, `s`, that could be given input."""

    pipes: Any = ()

    def find(self, asked: Message) -> Sessions | None:
        return self if asked["container_id"] == identity("s") else None


def take(*calls: Message, kind: str = "application/json") -> None:
    headers = Headers({"content-type": "application/recordio", "message-content-type": kind})
    request = Request(None, "POST", "/api/v1", "1.1", headers)  # type: ignore[arg-type]
    request.body = b"".join(map(frame, calls))
    take_input(Sessions(), request).close()  # type: ignore[arg-type]


def named(name: str) -> Message:
    return message("ATTACH_CONTAINER_INPUT", type="CONTAINER_ID", container_id=identity(name))


def data(**more: Any) -> Message:
    io = {"type": "DATA", "data": {"type": "STDIN", "data": "YQ=="} | more}
    return message("ATTACH_CONTAINER_INPUT", type="PROCESS_IO", process_io=io)


def test_input_begins_with_a_name() -> None:
    take(named("s"), data())
    with pytest.raises(BadMessage, match="names the container first, found none"):
        take()
    with pytest.raises(HTTPError, match="no session of that id") as refused:
        take(named("t"))
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (data(type="STDOUT"), "to be of the type STDIN"),
        (data(data=5), "process_io.data.data"),
        (message("ATTACH_CONTAINER_OUTPUT"), "expected ATTACH_CONTAINER_INPUT, found 'ATTACH_CONTAINER_OUTPUT'"),
    ],
)
def test_what_is_no_input(second: Message, text: str) -> None:
    with pytest.raises(BadMessage, match=text):
        take(named("s"), second)


def test_input_is_json() -> None:
    take(named("s"), kind="Application/JSON; charset=utf-8")
    with pytest.raises(HTTPError, match="expected Message-Content-Type application/json") as refused:
        take(named("s"), kind="application/x-protobuf")
    assert refused.value.status == 415
