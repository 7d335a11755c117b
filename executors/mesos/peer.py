"""Whose process is at the other end of a loopback connection: the kernel's table of sockets says.

For clients that can neither speak TLS nor send a token: they are let in because they are ours.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterable

_ESTABLISHED = b"01"
Address = tuple[str, int]
"""IP address and port."""


def is_ours(local: Address, remote: Address) -> bool:
    """Whether the process that connected from `remote` to our `local` belongs to our own user.

    To be asked once, when the connection has just been accepted. One that the peer has closed already has no owner.
    """
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", "rb") as table:
                if (uid := owner(table, remote, local)) is not None:
                    return uid == os.geteuid()
        except FileNotFoundError:  # no IPv6 here
            continue
    return False


def owner(rows: Iterable[bytes], local: Address, remote: Address) -> int | None:
    """The user to whom the socket between two addresses belongs; None when it is not among these rows.

    Parameters
    ----------
    rows
        Lines of ``/proc/net/tcp`` or ``/proc/net/tcp6``.
    local, remote
        As the owner sees them.

    Examples
    --------
    >>> row = b"0: 0100007F:9C40 0100007F:13BA 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1"
    >>> owner([row], ("127.0.0.1", 40000), ("127.0.0.1", 5050)), owner([row], ("127.0.0.1", 5050), ("127.0.0.1", 40000))
    (1000, None)
    """
    here, there = _spelled(local), _spelled(remote)
    for row in rows:
        fields = row.split(maxsplit=10)
        if len(fields) < 10 or fields[1] not in here or fields[2] not in there:
            continue
        if fields[3] == _ESTABLISHED and fields[9] != b"0":  # without an inode, no process has it any more
            return int(fields[7])
    return None


def _spelled(address: Address) -> tuple[bytes, ...]:
    """An address as the kernel writes it: words of four bytes in the machine's own order, then the port."""
    host, port = address
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    forms = [found.packed]
    if isinstance(found, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + found.packed)  # the same, through a socket for both families
    return tuple(b"%b:%04X" % (_words(form), port) for form in forms)


def _words(packed: bytes) -> bytes:
    step = -1 if sys.byteorder == "little" else 1
    return b"".join(packed[k : k + 4][::step].hex().upper().encode() for k in range(0, len(packed), 4))


def ends(connection: socket.socket) -> tuple[Address, Address]:
    """Our own and the peer's address of a TCP connection."""
    here, there = connection.getsockname(), connection.getpeername()
    return (here[0], here[1]), (there[0], there[1])
