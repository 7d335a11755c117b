"""What a connection receives, without I/O."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.web.protocol import (
    HEAD_MOST,
    TRANSITIONS,
    BodyData,
    EndOfMessage,
    Event,
    Happening,
    MessageReader,
    Receiving,
    RequestReader,
    ResponseReader,
)
from tests.mutation import garbled, refused_or_read

REQUESTS = (
    b"POST /a HTTP/1.1\r\nHost: h\r\nX: 1\r\nx: 2\r\nContent-Length: 5\r\n\r\nhello"
    b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    b"GET /c HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    b"GET /d HTTP/1.0\r\n\r\n"
)

RESPONSES = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nX: 1\r\nx: 2\r\nContent-Length: 0\r\n\r\n"
    b"HTTP/1.1 102 Processing\r\nX: 3\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"
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
        elif event:
            found.append(tuple(dict(item) if isinstance(item, Mapping) else item for item in event))
    return found


def in_pieces(reader: MessageReader, data: bytes, cuts: list[int]) -> list[object]:
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    found = joined([event for piece in pieces for event in reader.receive(piece)])
    assert reader.state is Receiving.IDLE
    return found


CUTS = st.lists(st.integers(1, 250), max_size=8).map(sorted)


@given(CUTS)
def test_however_bytes_arrive_the_requests_are_the_same(cuts: list[int]) -> None:
    whole = joined(RequestReader().receive(REQUESTS))
    assert in_pieces(RequestReader(), REQUESTS, cuts) == whole
    assert [one[1] for one in whole if isinstance(one, tuple)] == ["/a", "/b", "/c", "/d"]
    assert [one for one in whole if isinstance(one, bytes)] == [b"hello", b"abcde", b"", b""]
    assert [one[4] for one in whole if isinstance(one, tuple)] == [True, True, True, False]


@given(CUTS)
def test_however_bytes_arrive_the_responses_are_the_same_without_interim_ones(cuts: list[int]) -> None:
    assert in_pieces(ResponseReader(), RESPONSES, cuts) == [
        (202, {"x": "1, 2", "content-length": "0"}),
        b"",
        (200, {"transfer-encoding": "chunked"}),
        b"abcde",
        (404, {"content-length": "5"}),
        b"hello",
    ]


READERS = pytest.mark.parametrize("kind", [RequestReader, ResponseReader])


def attempt(kind: type[MessageReader], rng: random.Random, count: int) -> None:
    """Damaged messages are events, whatever they are, and no more is kept of them than was sent."""

    def read(data: bytes) -> None:
        reader, half = kind(), rng.randint(0, len(data))
        events = [*reader.receive(data[:half]), *reader.receive(data[half:])]
        assert len(events) <= len(data) + 1
        assert sum(len(event.data) for event in events if isinstance(event, BodyData)) <= len(data)

    for _ in range(count):
        refused_or_read(read, garbled(REQUESTS if kind is RequestReader else RESPONSES, rng), _Nothing)


class _Nothing(Exception):
    """Is never raised."""


@READERS
@settings(max_examples=200)
@given(rng=st.randoms(use_true_random=True))
def test_damaged_messages_are_events(kind: type[MessageReader], rng: random.Random) -> None:
    attempt(kind, rng, 10)


@pytest.mark.slow
@READERS
def test_messages_damaged_a_hundred_thousand_times_are_events(kind: type[MessageReader]) -> None:
    deadline = time.monotonic() + 300.0
    for seed in range(10_000):
        if time.monotonic() < deadline:
            attempt(kind, random.Random(seed), 10)


@READERS
@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_nothing_is_read_behind_malformed_bytes(kind: type[MessageReader], first: bytes, second: bytes) -> None:
    reader = kind()
    events = reader.receive(first)
    if any(type(event).__name__ == "MalformedMessage" for event in events):
        assert reader.state is Receiving.DISCARDING and reader.receive(second) == []


@READERS
@pytest.mark.parametrize(
    "line", [b"", b"X: ", b"GET / HTTP/1.1\r\nX: ", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 101 S\r\n\r\n"]
)
def test_a_head_without_end_is_malformed(kind: type[MessageReader], line: bytes) -> None:
    reader = kind()
    for _ in range(HEAD_MOST // 1000 + 2):
        reader.receive(line + 1000 * b"a")
        line = b""
    assert reader.state is Receiving.DISCARDING


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
