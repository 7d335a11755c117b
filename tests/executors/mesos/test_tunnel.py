"""The tunnel: which connections it takes, and what it passes on."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.web.errors import HTTPError
from executors.mesos import peer
from executors.mesos.codec import frame
from executors.mesos.pool_directory import FRAMEWORK, MASTER_NAME, WRITER, MasterAddress, PoolDirectory
from executors.mesos.tunnel import ForwardedRequests, Tunnel
from tests.executors.mesos.scripted import DEADLINE_S, Scripted, subscribed, until

# ---------------------------------------------------------------------- tunnel


JSON = {"Content-Type": "application/json"}


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "p")


@pytest.fixture
def master(directory: PoolDirectory) -> Iterator[Scripted]:
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(MasterAddress(("127.0.0.1",), master.port, True, 1, "m"))
        yield master


@pytest.fixture
def tunnel(directory: PoolDirectory, master: Scripted) -> Iterator[Tunnel]:
    with Tunnel(directory) as tunnel:
        yield tunnel


def connection(tunnel: Tunnel) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(tunnel.address, timeout=DEADLINE_S)


def test_every_request_of_a_connection_gets_the_token(
    directory: PoolDirectory, master: Scripted, tunnel: Tunnel
) -> None:
    client = connection(tunnel)
    for n in range(3):
        client.request("POST", "/api/v1/scheduler", json.dumps({"type": f"C{n}"}), JSON | {"Authorization": "Basic x"})
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (202, b"")
    client.close()
    assert master.kinds() == ["C0", "C1", "C2"]
    assert {head["Authorization"] for head in master.heads} == {f"Bearer {directory.token(FRAMEWORK)}"}
    assert {head["Host"] for head in master.heads} == {master.address}
    assert {head["Content-Type"] for head in master.heads} == {"application/json"}


def test_the_role_decides_about_the_token(directory: PoolDirectory, master: Scripted) -> None:
    with Tunnel(directory, WRITER) as tunnel:
        client = connection(tunnel)
        client.request("POST", "/api/v1", json.dumps({"type": "GET_STATE"}), JSON)
        client.getresponse().read()
        client.close()
    assert master.heads[0]["Authorization"] == f"Bearer {directory.token(WRITER)}"


def test_large_bodies_pass_both_ways(master: Scripted, tunnel: Tunnel) -> None:
    master.status = lambda call: (200, call["data"][::-1])
    data = "0123456789" * 500_000
    client = connection(tunnel)
    body = json.dumps({"type": "ECHO", "data": data}).encode()
    client.request("POST", "/api/v1", iter([body[:100], body[100:]]), JSON, encode_chunked=True)
    assert client.getresponse().read().decode() == data[::-1]
    client.close()


def test_events_come_through_one_by_one_as_they_are_sent(master: Scripted, tunnel: Tunnel) -> None:
    host, _, port = tunnel.address.partition(":")
    body = b'{"type":"SUBSCRIBE"}'
    head = f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {tunnel.address}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), DEADLINE_S) as client:
        client.sendall(head.encode() + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        reader = client.makefile("rb")
        assert b"200" in reader.readline()
        while (line := reader.readline()) != b"\r\n":
            assert line
        for event in (subscribed(), {"type": "HEARTBEAT"}, {"type": "HEARTBEAT"}):
            record = frame(event)
            if event["type"] == "HEARTBEAT":
                master.say(event)
            assert reader.readline() == b"%x\r\n" % len(record)
            assert reader.read(len(record) + 2) == record + b"\r\n"
        master.cut()
        assert reader.read() == b""


def test_when_the_client_goes_the_master_sees_it(master: Scripted, tunnel: Tunnel) -> None:
    client = connection(tunnel)
    client.request("POST", "/api/v1/scheduler", '{"type":"SUBSCRIBE"}', JSON)
    client.getresponse()
    _, request = until(lambda: master.streams)[0]
    assert request.transport and not request.transport.is_closing()
    client.sock.close() if client.sock else None
    client.close()
    tunnel.close()
    until(lambda: request.transport is None or request.transport.is_closing(), "the end of the stream")


def test_other_users_are_not_let_in(master: Scripted, tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executors.mesos.peer.os.geteuid", lambda: 12345)
    client = connection(tunnel)
    client.request("GET", "/version")
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (403, b"this tunnel belongs to another user")
    client.close()
    assert master.heads == []


STRANGER = """
import encodings.idna, os, socket, sys
os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as client:
    client.sendall(b"GET /version HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    print(client.recv(100).split()[1].decode())
"""


@pytest.mark.root
def test_a_real_other_user_is_not_let_in(master: Scripted, tunnel: Tunnel) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    port = tunnel.address.partition(":")[2]
    run = subprocess.run([sys.executable, "-c", STRANGER, port], capture_output=True, text=True, check=True)
    assert run.stdout == "403\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "10.0.0.1:5050"}, 421),
        ({"Transfer-Encoding": "chunked", "Content-Length": "3"}, 400),
        ({"Transfer-Encoding": "gzip, identity"}, 400),
        ({"X": "y" * 70_000}, 400),
        ({"X": "y\x01"}, 400),
        ({"X": "y\x7f"}, 400),
    ],
)
def test_what_a_browser_or_a_smuggler_sends_is_refused(
    master: Scripted, tunnel: Tunnel, headers: dict[str, str], status: int
) -> None:
    client = connection(tunnel)
    client.putrequest("POST", "/api/v1/scheduler", skip_host="Host" in headers)
    for name, value in headers.items():
        client.putheader(name, value)
    if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
        client.putheader("Content-Length", "0")
    client.endheaders()
    answer = client.getresponse()
    assert answer.status == status
    client.close()
    assert master.heads == []


def test_it_is_no_proxy(master: Scripted, tunnel: Tunnel) -> None:
    for request in (
        b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT evil:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        host, _, port = tunnel.address.partition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as client:
            client.sendall(request)
            assert client.makefile("rb").readline().split()[1] == b"400"


@pytest.mark.parametrize("address", ["", "host", "host:port", "host:70000", ":5051"])
def test_an_agent_has_a_host_and_a_port(directory: PoolDirectory, address: str) -> None:
    with pytest.raises(InvalidInput, match="an agent as host:port"):
        Tunnel(directory, WRITER, address)


def test_the_master_may_move(directory: PoolDirectory, master: Scripted, tunnel: Tunnel) -> None:
    with Scripted(context=directory.server_context(MASTER_NAME)) as other:
        directory.publish(MasterAddress(("127.0.0.1",), other.port, True, 1, "m2"))
        client = connection(tunnel)
        client.request("POST", "/api/v1/scheduler", '{"type":"X"}', JSON)
        assert client.getresponse().status == 202
        client.close()
        assert other.kinds() == ["X"] and master.kinds() == []


@pytest.mark.parametrize("what", ["none", "dead", "false", "damaged"])
def test_without_a_master_the_client_is_to_retry_later(
    directory: PoolDirectory, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executors.mesos.tunnel.HOLD_S", 0.05)
    other = PoolDirectory.create(tmp_path / "other", "p")
    with Scripted(context=other.server_context(MASTER_NAME)) as false, Tunnel(directory) as tunnel:
        if what in ("dead", "false"):
            directory.publish(MasterAddress(("127.0.0.1",), false.port if what == "false" else 1, True, 1, "m"))
        if what == "damaged":
            (directory.path / "master.json").write_text("{}")
        client = connection(tunnel)
        client.request("GET", "/version")
        assert client.getresponse().status == 503
        client.close()
        assert false.heads == []


def test_closing_ends_open_connections_and_its_thread(master: Scripted, directory: PoolDirectory) -> None:
    before = threading.active_count()
    with Tunnel(directory) as tunnel:
        client = connection(tunnel)
        client.request("POST", "/api/v1/scheduler", '{"type":"SUBSCRIBE"}', JSON)
        answer = client.getresponse()
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()
    client.close()
    tunnel.close()
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(tunnel.address.partition(":")[2])), 5)


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
    assert [value for name, value in found.headers if name == b"content-length"] == length
    rest = [header for header in found.headers if header[0] not in (b"content-length", b"transfer-encoding")]
    assert rest == [(b"Host", b"m:2"), (b"Authorization", b"Bearer t"), (b"x-y", b"z")] * len(bodies)


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_waited_for(data: bytes) -> None:
    requests = ForwardedRequests("m:2", "Bearer t", "127.0.0.1")
    try:
        assert requests.feed(data) == b""
    except HTTPError as refused:
        assert refused.status in (400, 403, 421)  # noqa: PT017 - either is fine


# ---------------------------------------------------------------------- peer


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("", None)])
def test_our_own_connections_are_ours(host: str, family: socket.AddressFamily | None) -> None:
    if family != socket.AF_INET and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        both = family is None
        listener = socket.create_server((host, 0), family=family or socket.AF_INET6, dualstack_ipv6=both)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with listener, socket.create_connection((host or "127.0.0.1", listener.getsockname()[1])):
        server, _ = listener.accept()
        with server:
            local, remote = peer.ends(server)
            assert peer.is_ours(local, remote)
            assert not peer.is_ours(local, (remote[0], remote[1] ^ 1)), "nobody's"


def test_a_connection_that_its_peer_has_closed_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with server:
            ends = peer.ends(server)
            client.close()
            assert not peer.is_ours(*ends)


def test_other_users_are_recognized() -> None:
    here, there = ("127.0.0.1", 40000), ("127.0.0.1", 5050)
    rows = [
        b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        b"0: 0100007F:9C40 0100007F:13BA 01 00000000:00000000 00:00000000 00000000 %d 0 4711 1" % (os.geteuid() + 1),
    ]
    assert peer.owner(rows, here, there) == os.geteuid() + 1
    assert peer.owner(rows[:1], here, there) is None
    waiting = rows[1].replace(b" 01 ", b" 06 ")
    assert peer.owner([waiting], here, there) is None
