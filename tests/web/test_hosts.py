import socket

import pytest

from asa.web import hosts
from asa.web.errors import HTTPError


def verdict(headers: dict[str, str], local: str | None = None) -> int:
    try:
        hosts.check_addressed(headers, hosts.known_names(["Node1", "node1.example.org."]), local)
    except HTTPError as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    "host",
    ["node1", "NODE1:5050", "node1.example.org", "node1.", "localhost:80", "127.0.0.1", "127.8.8.8:1", "[::1]:9"],
)
def test_our_own_names_are_known(host: str) -> None:
    assert verdict({"Host": host}) == 200


@pytest.mark.parametrize(
    "host",
    ["node2", "node1.evil.example", "evil.example", "10.0.0.1", "[2001:db8::1]:80", "[", "node1@evil", "0.0.0.0"],
)
def test_other_names_are_not_ours(host: str) -> None:
    assert verdict({"Host": host}) == 421


def test_the_address_that_was_connected_to_is_ours() -> None:
    assert verdict({"Host": "10.0.0.1:5050"}, "10.0.0.1") == 200
    assert verdict({"Host": "10.0.0.1:5050"}, "::ffff:10.0.0.1") == 200
    assert verdict({"Host": "10.0.0.1:5050"}, "10.0.0.2") == 421


def test_a_request_of_a_web_page_is_refused() -> None:
    assert verdict({"Host": "node1", "Origin": "https://node1"}) == 403
    assert verdict({}) == 400


def test_this_machine_comes_first() -> None:
    found = hosts.own_hosts()
    assert found[0] == socket.gethostname() and len(set(found)) == len(found)


@pytest.mark.parametrize(("host", "alone"), [("127.0.0.1", True), ("::1", True), ("", False), ("::", False)])
def test_what_only_this_machine_reaches(host: str, alone: bool) -> None:
    assert hosts.is_loopback(host) is alone
