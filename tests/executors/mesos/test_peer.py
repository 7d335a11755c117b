import os
import socket

import pytest

from executors.mesos import peer


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


def test_a_connection_that_its_peer_has_closed_is_nobodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with server:
            ends = peer.ends(server)
            client.close()
            assert not peer.is_ours(*ends)


def test_others_are_told_apart() -> None:
    here, there = ("127.0.0.1", 40000), ("127.0.0.1", 5050)
    rows = [
        b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        b"0: 0100007F:9C40 0100007F:13BA 01 00000000:00000000 00:00000000 00000000 %d 0 4711 1" % (os.geteuid() + 1),
    ]
    assert peer.owner(rows, here, there) == os.geteuid() + 1
    assert peer.owner(rows[:1], here, there) is None
    waiting = rows[1].replace(b" 01 ", b" 06 ")
    assert peer.owner([waiting], here, there) is None
