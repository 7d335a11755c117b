"""Names and addresses of this machine, whether a request was meant for it, and peers that fail to authenticate."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from asa.core.errors import InvalidInput
from asa.web.errors import HTTPError

LOOPBACK = "127.0.0.1"

FAILURES_MOST = 10
"""How often one address may fail to authenticate before it has to wait; one failure is forgotten each second."""

_PEERS_MOST = 4096


def own_hosts() -> tuple[str, ...]:
    """Its name, what the name resolves to, and the address with which its default route leaves; likeliest first."""
    name = socket.gethostname()
    found = [name]
    with suppress(OSError):
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
        found += [str(entry[4][0]) for entry in entries]
        found += [entry[3] for entry in entries if entry[3]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):  # no route
        probe.connect(("192.0.2.1", 9))  # an address for documentation; nothing is sent
        found.append(probe.getsockname()[0])
    return tuple(dict.fromkeys(found))


def address_among(hosts: Iterable[str]) -> str | None:
    """The first of these that is an address other machines may reach, rather one of version 4, which all clients know.

    >>> address_among(["node1", "127.0.1.1", "0.0.0.0", "2001:db8::1", "10.0.0.1", "10.0.0.2"])
    '10.0.0.1'
    """
    found = [address for host in hosts if (address := _address(host)) and not _is_private_to_one(address)]
    return next((str(address) for address in sorted(found, key=lambda address: address.version)), None)


def _is_private_to_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_loopback or address.is_unspecified or address.is_link_local


def known_names(hosts: Collection[str]) -> frozenset[str]:
    """What a ``Host`` header may name: `hosts` and ``localhost``."""
    return frozenset(host.rstrip(".").lower() for host in (*hosts, "localhost"))


def check_addressed(headers: Mapping[str, str], names: frozenset[str], local: str | None) -> None:
    """Refuse what a browser sends for some web page, even one whose name was made to resolve to this machine.

    Parameters
    ----------
    names
        What `known_names` says.
    local
        The address that the connection came in at; it may be named, and so may loopback.

    Raises
    ------
    HTTPError
        403 when there is an ``Origin``, 400 when there is no ``Host``, 421 when it is another machine's.
    """
    if "Origin" in headers:
        raise HTTPError(403, "requests of web pages are not taken: this one has an Origin header")
    header = headers.get("Host", "")
    if not header:
        raise HTTPError(400, "expected a Host header")
    host = host_of(header)
    if host in names:
        return
    address = _address(host)
    if address is None or not (address.is_loopback or address == _address(local or "")):
        raise HTTPError(421, f"this is not {header[:100]!r}: connect by one of {', '.join(sorted(names))}")


def host_of(header: str) -> str:
    """The host in a ``Host`` header, in small letters.

    >>> host_of("Node1:5050"), host_of("[::1]:5050"), host_of("127.0.0.1"), host_of("node1.")
    ('node1', '::1', '127.0.0.1', 'node1')
    """
    host = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return host.rstrip(".").lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback(""), is_loopback("node1")
    (True, True, False, False)
    """
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def listening_host(host: str | None, *, secured: bool) -> str:
    """The address to listen on: ``""`` for all, which is the default if `secured`, while otherwise it is loopback.

    Parameters
    ----------
    secured
        Whether there are both TLS and authentication: else only this machine may reach what listens.

    Raises
    ------
    InvalidInput
        When others could.
    """
    found = ("" if secured else LOOPBACK) if host is None else host
    if not secured and not is_loopback(found):
        raise InvalidInput(
            "without TLS or without authentication one listens on loopback only, not on "
            f"{found or 'all addresses'}: leave the host out, or give {LOOPBACK}"
        )
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


class FailedAttempts:
    """Counts failures by address, for a bounded number of addresses: a leaky bucket for each.

    >>> failures = FailedAttempts(lambda: 0.0)
    >>> [failures.too_many("10.0.0.1") for _ in range(12)].count(True)
    2
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def too_many(self, peer: str) -> bool:
        """Count one more, and say whether these are too many."""
        now = self._clock()
        level, since = self._levels.pop(peer, (0.0, now))
        level = max(0.0, level - (now - since)) + 1
        while len(self._levels) >= _PEERS_MOST:
            del self._levels[next(iter(self._levels))]
        self._levels[peer] = (min(level, FAILURES_MOST + 1.0), now)
        return level > FAILURES_MOST
