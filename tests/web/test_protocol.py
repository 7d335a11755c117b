"""What a connection receives, without I/O."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asa.web.protocol import TRANSITIONS, BodyData, EndOfMessage, Event, Happening, Receiving, RequestReader

REQUESTS = (
    b"POST /a HTTP/1.1\r\nHost: h\r\nX: 1\r\nx: 2\r\nContent-Length: 5\r\n\r\nhello"
    b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    b"GET /c HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    b"GET /d HTTP/1.0\r\n\r\n"
)


def joined(events: list[Event]) -> list[object]:
    """Events, with the pieces of each body put together."""
    found: list[object] = []
    body = b""
    for event in events:
        if isinstance(event, BodyData):
            body += event.data
            continue
        if isinstance(event, EndOfMessage):
            found.append(body)
            body = b""
        found.append((event[0], event[1], dict(event[3]), event[4]) if len(event) == 5 else type(event).__name__)
    return found


@given(st.lists(st.integers(1, len(REQUESTS) - 1), max_size=8).map(sorted))
def test_however_bytes_arrive_the_events_are_the_same(cuts: list[int]) -> None:
    whole, reader = joined(RequestReader().receive(REQUESTS)), RequestReader()
    ends = [*cuts, len(REQUESTS)]
    pieces = [REQUESTS[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    assert joined([event for piece in pieces for event in reader.receive(piece)]) == whole
    assert [one[1] for one in whole if isinstance(one, tuple)] == ["/a", "/b", "/c", "/d"]
    assert [one for one in whole if isinstance(one, bytes)] == [b"hello", b"abcde", b"", b""]
    assert [one[3] for one in whole if isinstance(one, tuple)] == [True, True, True, False]
    assert reader.state is Receiving.IDLE


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_comes_is_taken_and_nothing_after_it_was_malformed(first: bytes, second: bytes) -> None:
    reader = RequestReader()
    events = reader.receive(first)
    if any(type(event).__name__ == "MalformedMessage" for event in events):
        assert reader.state is Receiving.DISCARDING and reader.receive(second) == []


def test_after_a_refusal_nothing_is_received() -> None:
    reader = RequestReader()
    reader.receive(REQUESTS[:70])
    reader.discard()
    assert reader.receive(REQUESTS[70:]) == [] and reader.state is Receiving.DISCARDING
    assert all(
        TRANSITIONS[state, happening] is Receiving.DISCARDING
        for state in Receiving
        for happening in (Happening.MALFORMED, Happening.REFUSED)
    )
