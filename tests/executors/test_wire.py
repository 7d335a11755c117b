import pickle
import socket
import struct
from collections.abc import Iterator

import pytest

from executors.wire import LARGEST, LARGEST_FIRST, Alive, Channel, Hello, RunOrders, frame, read

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
    peer.sendall(struct.pack("!Q", LARGEST_FIRST + 1))
    with pytest.raises(ConnectionAbortedError, match=f"at most {LARGEST_FIRST}"):
        channel.receive()


def test_no_message_is_read_before_the_handshake_is_done() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return pytest.fail, ("a stranger's pickle was loaded",)

    def handshake() -> None:
        raise ConnectionAbortedError("not one of us")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = pickle.dumps(Bomb())
        theirs.sendall(struct.pack("!Q", len(body)) + body)
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
