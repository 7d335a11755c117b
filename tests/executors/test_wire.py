import json
import os
import pickle
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.ports import RunContext
from asa.security import ca
from asa.testing import tasks
from asa.testing.executors import Bench
from executors import wire
from executors.hub import local
from executors.wire import LARGEST, LARGEST_FIRST, Alive, Channel, Hello, RunOrders, frame, read
from tests.mutation import garbled

HELLO = Hello("a", "n1", 1, 2, 0, 0)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_however_they_are_cut(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    data, found = frame(HELLO) + frame(Alive()), []
    for position in range(len(data)):
        peer.send(data[position : position + 1])
        found += channel.receive()
    assert found == [HELLO, Alive()]


def test_messages_that_came_with_the_end_are_not_lost(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(frame(HELLO))
    peer.close()
    assert channel.receive() == [HELLO]
    with pytest.raises(ConnectionResetError):
        channel.receive()


def test_nor_are_they_when_both_are_read_at_once(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    channel.largest = LARGEST
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    message = b"x" * ((1 << 18) - len(frame(b"x" * 100_000)) + 100_000)
    assert len(frame(message)) == 1 << 18, "fills one reading exactly, so that another follows"
    peer.sendall(frame(message))
    peer.close()
    assert channel.receive() == [message]


def test_a_first_message_is_short(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(wire.HEAD.pack(wire.MARK, wire.WIRE_VERSION, LARGEST_FIRST + 1))
    with pytest.raises(ConnectionAbortedError, match=f"at most {LARGEST_FIRST}"):
        channel.receive()


@pytest.mark.parametrize(
    ("mark", "version", "said"), [(wire.MARK, 1, "messages of version 1"), (b"??", 2, "no message")]
)
def test_another_version_is_refused_by_name(
    pair: tuple[Channel, socket.socket], mark: bytes, version: int, said: str
) -> None:
    """Before anything is unpickled: names of classes may be others there."""
    channel, peer = pair
    peer.sendall(wire.HEAD.pack(mark, version, 4) + b"none")
    with pytest.raises(ConnectionAbortedError, match=f"{said}.* this version of ASA reads {wire.WIRE_VERSION}"):
        channel.receive()


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\x80\x05.", b"cno.such\nmodule\n.", b"\x80\xff.", frame(HELLO)[wire.HEAD.size : -9], b"(" * 99],
)
def test_a_message_that_cannot_be_read_ends_the_connection(pair: tuple[Channel, socket.socket], body: bytes) -> None:
    channel, peer = pair
    peer.sendall(wire.HEAD.pack(wire.MARK, wire.WIRE_VERSION, len(body)) + body)
    with pytest.raises(ConnectionAbortedError, match="cannot be read"):
        channel.receive()


@given(st.randoms(use_true_random=True))
def test_lengths_that_are_damaged_are_waited_for_or_end_the_connection(rng: random.Random) -> None:
    ours, theirs = socket.socketpair()
    channel, size = Channel(ours), wire.HEAD.size
    try:
        for _ in range(10):
            data = frame(HELLO)
            theirs.sendall(garbled(data[:size], rng)[:size] + data[size : rng.randint(size, len(data))])
            channel.receive()
    except ConnectionAbortedError:
        pass
    finally:
        ours.close()
        theirs.close()


def test_no_message_is_read_before_the_handshake_is_done() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return pytest.fail, ("a stranger's pickle was loaded",)

    def handshake() -> None:
        raise ConnectionAbortedError("not one of us")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = pickle.dumps(Bomb())
        theirs.sendall(wire.HEAD.pack(wire.MARK, wire.WIRE_VERSION, len(body)) + body)
        with pytest.raises(ConnectionAbortedError, match="not one of us"):
            Channel(ours, handshake=handshake).receive()


def test_sending_never_blocks(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    message = RunOrders([], 7)
    large = ["x" * 1_000_000] * 3
    channel.send(large)
    channel.send(message)
    assert channel.unsent > 0
    other = Channel(peer)
    other.largest = LARGEST
    found: list[object] = []
    while len(found) < 2:
        channel.flush()
        found += other.receive()
    assert found == [large, message] and channel.unsent == 0


def test_a_worker_sees_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs.makefile("rb") as stream:
        ours.sendall(frame(HELLO) + frame(HELLO)[:-3])
        ours.shutdown(socket.SHUT_WR)
        assert read(stream) == HELLO
        assert read(stream) is None and read(stream) is None
    theirs.close()


@pytest.fixture
def remote(context: RunContext) -> Iterator[Bench]:
    """A run whose nodes might be anywhere."""
    with Bench(local, replace(context, local=False)) as bench:
        yield bench


def stranger_of(bench: Bench) -> socket.socket:
    """A bare connection to the driver's port."""
    address = json.loads((bench.context.directory / wire.RENDEZVOUS).read_text())
    return socket.create_connection(("127.0.0.1", address["port"]))


def read_to_end(stream: socket.socket) -> None:
    """Until the driver has hung up."""
    stream.settimeout(20)
    with suppress(ConnectionError, ssl.SSLError):
        while stream.recv(4096):
            pass


def test_strangers_are_refused_and_disturb_no_node(remote: Bench, tmp_path: Path) -> None:
    driver = remote.driver()
    silent, garbage, plain = stranger_of(remote), stranger_of(remote), stranger_of(remote)
    garbage.sendall(os.urandom(4096))
    plain.sendall(frame(("never", "loaded")))
    ca.create(tmp_path / "other", "another run")
    with pytest.raises(ssl.SSLCertVerificationError):
        ca.node_context(tmp_path / "other").wrap_socket(stranger_of(remote), server_hostname=ca.DRIVER_NAME)
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    careless.load_cert_chain(tmp_path / "other" / "node.pem")
    stranger = careless.wrap_socket(stranger_of(remote))  # the driver looks at its certificate after that
    read_to_end(stranger)
    remote.node()
    driver.launch(tasks.echo, [(1,), (2,)])
    assert driver.values(2) == [1, 2]
    assert len(driver.joined()) == 1
    for stream in (garbage, plain, stranger):
        read_to_end(stream)
        stream.close()
    silent.close()


def test_damaged_greetings_of_tls_disturb_no_node(remote: Bench, caplog: pytest.LogCaptureFixture) -> None:
    driver = remote.driver()
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname=ca.DRIVER_NAME).do_handshake()
    greeting = said.read()
    for seed in range(100):
        with stranger_of(remote) as stream, suppress(OSError):
            stream.sendall(garbled(greeting, random.Random(seed)))
    remote.node()
    driver.launch(tasks.echo, [(1,)])
    assert driver.values(1) == [1]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_node_does_not_talk_to_another_runs_driver(remote: Bench, tmp_path: Path) -> None:
    remote.driver()
    other = tmp_path / "other"
    ca.create(other / wire.CERTIFICATES, "another run")
    (other / wire.RENDEZVOUS).write_bytes((remote.context.directory / wire.RENDEZVOUS).read_bytes())
    (other / wire.RENDEZVOUS).chmod(0o600)
    with pytest.raises(ConnectionError, match="certificate verify failed"):
        wire.connect(str(other))


def test_a_path_longer_than_a_socket_address(context: RunContext, tmp_path: Path) -> None:
    with Bench(local, replace(context, directory=tmp_path / ("d" * 150) / "run")) as bench:
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.echo, [(1,)])
        assert driver.values(1) == [1]


def test_files_of_a_driver_are_private_and_go_with_it(bench: Bench) -> None:
    driver = bench.driver()
    found = {path.name: path for path in bench.context.directory.iterdir() if not path.is_dir()}
    assert {name.split("-")[0] for name in found} == {"hub", wire.RENDEZVOUS}
    assert all(path.stat().st_mode & 0o077 == 0 for path in found.values())
    driver.executor.close()
    assert not any(path.exists() for path in found.values())


def test_a_driver_that_closes_late_leaves_its_successors_address_alone(bench: Bench) -> None:
    first, second = bench.driver(), bench.driver()
    first.executor.close()
    bench.node()
    second.joined()


def test_an_address_that_others_could_have_written_is_not_followed(bench: Bench) -> None:
    bench.driver()
    (bench.context.directory / wire.RENDEZVOUS).chmod(0o644)
    with pytest.raises(PermissionError, match="mode 600"):
        wire.connect(str(bench.context.directory))


def test_the_other_end_must_be_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = wire.UnixListener(tmp_path, "door")
    (tmp_path / wire.RENDEZVOUS).write_text(json.dumps(listener.address()))
    (tmp_path / wire.RENDEZVOUS).chmod(0o600)
    channel = wire.connect(str(tmp_path))
    assert isinstance(listener.accept(), Channel)
    monkeypatch.setattr(wire, "peer_credentials", lambda stream: (1, -1))
    with pytest.raises(PermissionError, match="another user"):
        wire.connect(str(tmp_path))
    assert listener.accept() is None
    channel.close()
    listener.close()


def test_without_a_driver_there_is_no_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wire.connect(str(tmp_path))


def test_a_socket_that_cannot_be_bound_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    wire.UnixListener(tmp_path, "door").close()
    (tmp_path / "door").touch()
    with pytest.raises(OSError, match="Address already in use"):
        wire.UnixListener(tmp_path, "door")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_driver_elsewhere_that_cannot_be_reached_is_named_by_its_addresses(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed, so that no process listens there
    address = {"host": "n1.elsewhere", "addresses": ["127.0.0.1", "none.invalid"], "port": port}
    (tmp_path / wire.RENDEZVOUS).write_text(json.dumps(address))
    (tmp_path / wire.RENDEZVOUS).chmod(0o600)
    with pytest.raises(ConnectionError, match=r"ca.pem: No such file"):
        wire.connect(str(tmp_path))
    ca.create(tmp_path / wire.CERTIFICATES, "run")
    with pytest.raises(ConnectionError, match=rf"port {port}: 127.0.0.1: .*refused; none.invalid: "):
        wire.connect(str(tmp_path))


def test_addresses_name_this_host() -> None:
    listener_name = socket.gethostname()
    assert wire.own_addresses()[0] == listener_name


def test_idle_connections_of_strangers_keep_no_node_out(remote: Bench) -> None:
    driver = remote.driver()
    guests = [stranger_of(remote) for _ in range(300)]
    remote.node()
    driver.joined()
    for guest in guests:
        guest.close()
