from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.compat import HttpParser

RESPONSE = b"HTTP/1.1 200 OK\r\nMesos-Stream-Id: s1\r\nX: 1\r\nX: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = b"POST /api/v1/scheduler?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


def fed(parser: HttpParser, data: bytes, cuts: list[int]) -> bytes:
    """All of the body, when `data` comes in pieces."""
    body, edges = b"", sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        assert parser.execute(data[begin:end], end - begin) == end - begin
        if parser.is_partial_body():
            body += parser.recv_body()
        assert not parser.is_partial_body() and parser.recv_body() == b""
    return body


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.lists(st.integers(0, 1000)), st.booleans())
def test_a_response_however_its_bytes_arrive(bodies: list[bytes], cuts: list[int], whole: bool) -> None:
    parser = HttpParser()
    data = RESPONSE + chunked(*bodies) + (b"0\r\n\r\n" if whole else b"")
    assert fed(parser, data, cuts) == b"".join(bodies)
    assert parser.is_headers_complete() and parser.is_chunked() and parser.get_status_code() == 200
    assert parser.get_headers() == {"MESOS-STREAM-ID": "s1", "X": "1, 2", "TRANSFER-ENCODING": "chunked"}
    assert parser.is_message_complete() == whole and parser.get_errno() == 0
    assert parser.get_method() == parser.get_url() == ""


@given(st.lists(st.integers(0, 1000)), st.sampled_from([0, 2]))
def test_a_request_however_its_bytes_arrive(cuts: list[int], kind: int) -> None:
    parser = HttpParser(kind)
    assert fed(parser, REQUEST, cuts) == b"abc"
    assert (parser.get_method(), parser.get_url()) == ("POST", "/api/v1/scheduler?x=1")
    assert parser.is_message_complete() and not parser.is_chunked() and parser.get_status_code() == 0


def test_only_as_many_bytes_as_one_says() -> None:
    parser = HttpParser()
    assert parser.execute(RESPONSE + b"nonsense", len(RESPONSE)) == len(RESPONSE) and parser.get_errno() == 0


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_what_is_no_http_is_not_understood(kind: int) -> None:
    parser = HttpParser(kind)
    assert parser.execute(b"\x16\x03\x01nonsense\r\n\r\n", 15) == 0
    assert parser.get_errno() != 0 and parser.execute(REQUEST, len(REQUEST)) == 0


def test_another_protocol_is_the_end_of_this_one() -> None:
    parser = HttpParser()
    data = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    assert parser.execute(data, len(data)) == len(data)
    assert parser.is_message_complete() and parser.get_status_code() == 101 and parser.get_errno() == 0


def test_before_anything_has_come() -> None:
    parser = HttpParser()
    assert not parser.is_headers_complete() and not parser.is_message_complete() and not parser.is_chunked()
    assert parser.get_headers() == {} and parser.get_errno() == 0 and parser.get_status_code() == 0
