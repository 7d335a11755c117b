from __future__ import annotations

import itertools

import httptools
from hypothesis import given
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.tunnel import ForwardedRequests


class Bodies:
    """The bodies of requests, and their headers."""

    def __init__(self, data: bytes) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        httptools.HttpRequestParser(self).feed_data(data)

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.booleans(), st.lists(st.integers(0, 2000)))
def test_requests_are_the_same_however_their_bytes_arrive(bodies: list[bytes], chunked: bool, cuts: list[int]) -> None:
    data = b""
    for body in bodies:
        data += b"POST /a?b=1 HTTP/1.1\r\nHost: localhost:1\r\nauthorization: Basic x\r\nX-Y:  z\r\n"
        if chunked:
            data += b"Transfer-Encoding: chunked\r\n\r\n"
            data += (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
        else:
            data += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    requests = ForwardedRequests("m:2", "Bearer t", "127.0.0.1")
    found = Bodies(b"".join(requests.feed(data[begin:end]) for begin, end in itertools.pairwise(edges)))
    assert found.bodies == bodies
    length = [] if chunked else [str(len(body)).encode() for body in bodies]
    assert [value for name, value in found.headers if name == b"Content-Length"] == length
    rest = [header for header in found.headers if header[0] not in (b"Content-Length", b"Transfer-Encoding")]
    assert rest == [(b"Host", b"m:2"), (b"Authorization", b"Bearer t"), (b"X-Y", b"z")] * len(bodies)


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_waited_for(data: bytes) -> None:
    requests = ForwardedRequests("m:2", "Bearer t", "127.0.0.1")
    try:
        assert requests.feed(data) == b""
    except HTTPError as refused:
        assert refused.status in (400, 403, 421)  # noqa: PT017 - either is fine
