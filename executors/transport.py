"""How a supervisor finds its run's driver, and how each makes sure who the other is.

The driver listens and then writes ``rendezvous.json`` (0600) into the run's own directory (0700). When all nodes are
this machine, that is a Unix socket in the same directory, and both sides ask the kernel for the other's user id. Else
it is TCP with mutual TLS under the run's own certificate authority (`asa.security.ca`).
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from executors.wire import Channel

if TYPE_CHECKING:  # a supervisor starts sooner without it
    from pathlib import Path

RENDEZVOUS = "rendezvous.json"
CERTIFICATES = "tls"
"""Directory of the run's certificates, in the run's directory."""

_CONNECT_S = 5.0
_HANDSHAKE_S = 10.0
_BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Listener(Protocol):
    """Where supervisors knock."""

    def fileno(self) -> int: ...
    def address(self) -> dict[str, Any]:
        """What `connect` must know."""

    def accept(self) -> Channel | None:
        """The next peer; None when it is not one of ours, or gone again."""

    def close(self) -> None: ...


class UnixListener:
    """A Unix socket in a directory of our own.

    Parameters
    ----------
    directory
        Where; the path may be longer than a socket address holds.
    name
        The socket's file name.

    Raises
    ------
    OSError
        When the file system has no sockets, or the directory cannot be written.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path, self._name = directory / name, name
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            _by_descriptor(directory, name, self._socket.bind)
            self._path.chmod(0o600)
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def address(self) -> dict[str, Any]:
        return {"unix": self._name}

    def accept(self) -> Channel | None:
        try:
            stream, _ = self._socket.accept()
        except OSError:
            return None
        if not _same_user(stream):
            stream.close()
            return None
        return Channel(stream)

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


class TlsListener:
    """TCP on every interface, mutual TLS.

    Parameters
    ----------
    certificates
        Directory of the run's certificates.

    Raises
    ------
    StateError
        When the certificates cannot be used.
    OSError
        When no port can be had.
    """

    def __init__(self, certificates: Path) -> None:
        import ssl

        from asa.security.ca import driver_context

        self._context = driver_context(certificates)
        self._waits = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._socket = socket.create_server(("", 0), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def address(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "addresses": _addresses(), "port": self._socket.getsockname()[1]}

    def accept(self) -> Channel | None:
        try:
            stream, _ = self._socket.accept()
            stream.setblocking(False)
            _keep_alive(stream)
            secure = self._context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False)
        except OSError:
            return None
        return Channel(secure, self._waits, secure.do_handshake)

    def close(self) -> None:
        self._socket.close()


def connect(directory: str) -> Channel:
    """A channel to the driver that the rendezvous file names.

    Raises
    ------
    OSError
        When there is no such file, nobody listens there, it is not our driver, or the certificates cannot be used.
    ValueError
        When the file is damaged.
    """
    address = _read(directory, RENDEZVOUS)
    if "unix" in address:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.settimeout(_CONNECT_S)
            _by_descriptor(directory, address["unix"], stream.connect)
            if not _same_user(stream):
                raise PermissionError("the driver's socket belongs to another user")
        except BaseException:
            stream.close()
            raise
        return Channel(stream)
    return _connect_tls(directory, address)


def _connect_tls(directory: str, address: dict[str, Any]) -> Channel:
    import ssl
    from pathlib import Path

    from asa.core.errors import StateError
    from asa.security.ca import DRIVER_NAME, node_context

    try:
        context = node_context(Path(directory, CERTIFICATES))
    except StateError as error:
        raise ConnectionError(str(error)) from error  # a network file system may show them a little later
    same_host = address["host"] == socket.gethostname()
    failures = []
    for host in (["127.0.0.1"] if same_host else []) + address["addresses"]:
        try:
            stream = socket.create_connection((host, address["port"]), timeout=_CONNECT_S)
        except OSError as error:
            failures.append(f"{host}: {error}")
            continue
        try:
            stream.settimeout(_HANDSHAKE_S)
            _keep_alive(stream)
            secure = context.wrap_socket(stream, server_hostname=DRIVER_NAME)
        except OSError as error:
            stream.close()
            failures.append(f"{host}: {error}")
            continue
        return Channel(secure, (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError))
    raise ConnectionError(f"port {address['port']}: " + "; ".join(failures))


def _read(directory: str, name: str) -> dict[str, Any]:
    path = os.path.join(directory, name)
    os.listdir(directory)  # a network file system may remember for long that a file was not there
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{path} is not ours alone: it must belong to us, with mode 600")
        address: dict[str, Any] = json.load(file)
        return address


def _by_descriptor(directory: str | Path, name: str, call: Callable[[str], object]) -> None:
    """Bind or connect a socket in a directory whose path may be longer than the 107 bytes that an address holds."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        call(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _same_user(stream: socket.socket) -> bool:
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _keep_alive(stream: socket.socket) -> None:
    """The kernels find out within about a minute that the other machine is gone."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)


def _addresses() -> list[str]:
    """This machine, as others may know it: its name, what the name resolves to, and where its default route leaves."""
    name = socket.gethostname()
    found = [name]
    with suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):  # no route
        probe.connect(("192.0.2.1", 9))  # an address for documentation; nothing is sent
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys(found))
