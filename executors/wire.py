"""What driver, supervisors and workers send to one another, and how they find and authenticate one another.

Messages are tuples, pickled, each behind its length. Pickle runs code, so a channel must have authenticated its peer
first: mutual TLS under the run's own authority (`asa.security.ca`), or a Unix socket whose peer has our own user id.
Until then not a byte is read as a message.

The driver listens and then writes ``rendezvous.json`` (0600) into the run's own directory (0700). When all nodes are
this machine, that names a Unix socket in the same directory, and both sides ask the kernel for the other's user id.
Else it names TCP addresses, for mutual TLS.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import pickle
import resource
import secrets
import selectors
import socket
import stat
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from asa.core.launch import Launch
    from asa.core.ports import RunContext
    from asa.core.task import Checkpoints, Secrets, Staging, Value

log = logging.getLogger(__name__)

_SOURCES = ("", "rusage", "proc")  # those of `asa.core.task.SOURCES` that a node can name

LARGEST = 1 << 31
"""Longest message from a peer that has introduced itself [bytes]."""
LARGEST_FIRST = 1 << 20
"""Longest first message [bytes]."""

WIRE_VERSION = 7
"""Of the messages between driver, supervisors and workers: it changes with them. 1 was not sent."""
MARK = b"AS"
HEAD = struct.Struct("!2sHQ")
"""What stands before each message: a mark, the version, and how many bytes follow."""
_CHUNK = 1 << 18
_NAME_MOST = 1 << 10
_MOST = 1 << 63


class TaskOrder(NamedTuple):
    """A task on its way to a worker: the stage's `number`-th.

    `cores`, `memory` [bytes] and `gpus` are what it takes on each of `nodes` nodes; with 0 nodes, in all, on whichever
    nodes there are cores. The first of `hosts` gets the order, then with what it takes there; so many `ranks` run on
    each host, or as many on one as on another. None are named where it is one node and nothing is launched. `identity`,
    `shares` and `guest` are those of `asa.core.task.Task`.
    """

    ticket: int
    stage: str
    number: int
    function: str
    arguments: Value
    inputs: tuple[Value, ...]
    cores: int
    memory: int
    gpus: int
    nodes: int
    launch: Launch | None = None
    hosts: tuple[str, ...] = ()
    identity: str = ""
    ranks: tuple[int, ...] = ()
    secrets: Secrets | None = None
    timeout_s: float = 0.0
    checkpoints: Checkpoints | None = None
    ends: float = 0.0
    staging: Staging | None = None
    shares: bool = False
    guest: bool = False

    @property
    def threads(self) -> int:
        """Threads for the libraries of one of its processes."""
        return self.cores if self.launch is None else self.launch.cores

    @property
    def size(self) -> int:
        """How much of its arguments and inputs travels with it [bytes]."""
        return sum(len(stored) for stored in (self.arguments, *self.inputs))


class OrderOutcome(NamedTuple):
    """How a task ended: with a `value`, or with an `error`. Times are the node's own [s since the epoch].

    From `cause` on fields are as in `asa.core.event.TaskFailed`.
    """

    ticket: int
    started: float
    ended: float
    value: Value | None
    error: str = ""
    traceback: str = ""
    stderr: str = ""
    infrastructure: bool = False
    cause: str = ""
    exit: int | None = None
    peak: int = 0
    cpu_s: float = 0.0
    given: int = 0
    source: str = ""


class Hello(NamedTuple):
    """Supervisor to hub, first of all: who it is and what its node holds (memory 0: not limited).

    With `kept` orders of an earlier driver it sends `KeptOrders` once it is welcome. `newest` is the generation of the
    newest driver that it knows of: a hub of an earlier one is out of date.
    """

    allocation: str
    node: str
    pid: int
    cores: int
    memory: int
    gpus: int
    kept: int = 0
    newest: int = 0


class Welcome(NamedTuple):
    """Hub to supervisor: the worker pool to start, as ``module:Class``, with its options, and where its tasks run.

    A supervisor that has said nothing for `alive_s` [s] says that it is alive. It takes no orders of a driver of an
    earlier `generation` than one that it knows of.
    """

    worker_pool: str
    options: dict[str, Any]
    values: str
    workdir: str
    sys_path: tuple[str, ...]
    alive_s: float
    generation: int = 0


class RunOrders(NamedTuple):
    """Hub to supervisor, and supervisor to a worker's `slot`: run these, in order; `now` by the driver's clock [s]."""

    orders: list[TaskOrder]
    slot: int = 0
    now: float = 0.0


class TaskReport(NamedTuple):
    """Supervisor to hub: what ended, and tickets of what could not be started soon and goes back."""

    outcomes: list[OrderOutcome]
    returned: list[int]


class Unused(NamedTuple):
    """Supervisor to hub: of what orders hold that share, guests may use so many cores, and so much memory [bytes]; of
    each stage that has such orders."""

    stages: list[tuple[str, int, int]]


class KeptOrder(NamedTuple):
    """What a supervisor remembers of an order until its outcome is logged; the fields are those of `TaskOrder`."""

    ticket: int
    stage: str
    number: int
    identity: str
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


class KeptOrders(NamedTuple):
    """Supervisor to a new hub: orders of an earlier driver that run on, or have ended and were not logged."""

    orders: list[KeptOrder]


class KeepOrders(NamedTuple):
    """Hub to supervisor, in answer: report on these; end the others."""

    tickets: list[int]


class OutcomesLogged(NamedTuple):
    """Hub to supervisor: the outcomes of these orders are safe, and need not be kept any longer."""

    tickets: list[int]


class SlotEnded(NamedTuple):
    """Worker to supervisor: what ended in a slot, and whether the slot is free again.

    `unfit` says why the worker is of no use for other tasks; what it was given and has not begun goes to others.
    """

    slot: int
    outcomes: list[OrderOutcome]
    free: bool
    unfit: str = ""


class Alive(NamedTuple):
    """Supervisor to hub, when it has been silent for a while."""


class Leaving(NamedTuple):
    """Supervisor to hub, before it closes the connection: why."""

    reason: str


class ReleaseNode(NamedTuple):
    """Hub to supervisor: end the job with exit code 0."""


class ExpectCommands(NamedTuple):
    """Hub to supervisor: this order's launcher, on another node, will ask for commands here."""

    ticket: int


class ForgetCommands(NamedTuple):
    """Hub to supervisor: it will not any more; what commands of its still run ends."""

    ticket: int


class RemoteCommand(NamedTuple):
    """A launcher's remote shell to a supervisor, first of all: run this; `environment` comes on top of the node's."""

    ticket: int
    command: str
    environment: dict[str, str]


class CommandRefused(NamedTuple):
    """Supervisor to remote shell: the command may not run, or not any longer."""

    reason: str


class CommandEnded(NamedTuple):
    """Supervisor to remote shell: the command has ended, with this exit code or by signal -`code`."""

    code: int


_VALUE = (bytes, str, type(None))
_KINDS: dict[type, tuple[type | tuple[type, ...], ...]] = {
    Hello: (str, str, int, int, int, int, int, int),
    TaskReport: (list, list),
    Unused: (list,),
    OrderOutcome: (int, float, float, _VALUE, str, str, str, bool, str, (int, type(None)), int, float, int, str),
    KeptOrders: (list,),
    KeptOrder: (int, str, int, str, tuple, tuple),
    Alive: (),
    Leaving: (str,),
}


def check(message: Any) -> None:
    """Raise `ValueError` where this is nothing that a supervisor says to a hub, or fields are not of their kind."""
    if not _is_one(message, type(message)):
        raise ValueError(f"{type(message).__name__} was not expected, or is not as it should be")
    if isinstance(message, TaskReport):
        sound = all(map(_is_outcome, message.outcomes)) and all(isinstance(each, int) for each in message.returned)
    elif isinstance(message, Unused):
        sound = all(map(_is_unused, message.stages))
    elif isinstance(message, KeptOrders):
        sound = all(map(_is_kept, message.orders))
    elif isinstance(message, Hello):
        numbers = message[2:]
        sound = all(each and len(each.encode()) <= _NAME_MOST for each in message[:2]) and message.cores > 0
        sound = sound and all(0 <= each < _MOST for each in numbers)
    else:
        sound = not isinstance(message, Leaving) or bool(message.reason.encode())
    if not sound:
        raise ValueError(f"{type(message).__name__} has fields that are not as they should be")


def _is_one(message: Any, kind: type) -> bool:
    found, kinds = type(message), _KINDS.get(kind)
    if found is not kind or kinds is None or len(message) != len(kinds):
        return False
    return all(map(isinstance, message, kinds))


def _is_outcome(item: Any) -> bool:
    if not _is_one(item, OrderOutcome) or item.source not in _SOURCES:
        return False
    taken = 0 <= item.peak < _MOST and 0.0 <= item.cpu_s < math.inf and 0 <= item.given < _MOST
    return taken and math.isfinite(item.started) and math.isfinite(item.ended)


def _is_unused(found: Any) -> bool:
    plain = isinstance(found, tuple) and list(map(type, found)) == [str, int, int]
    return plain and all(0 <= amount < _MOST for amount in found[1:])


def _is_kept(item: Any) -> bool:
    return (
        _is_one(item, KeptOrder)
        and all(isinstance(host, str) for host in item.hosts)
        and all(isinstance(ranks, int) and ranks > 0 for ranks in item.ranks)
    )


def frame(message: object) -> bytes:
    """A message as it travels."""
    body = pickle.dumps(message, protocol=5)
    return HEAD.pack(MARK, WIRE_VERSION, len(body)) + body


def _length(head: bytes | bytearray, at: int = 0) -> int:
    """How long the message is that this is the head of.

    Raises
    ------
    ConnectionAbortedError
        When another version of ASA sends it, or something else does.
    """
    mark, version, length = HEAD.unpack_from(head, at)
    if mark != MARK or version != WIRE_VERSION:
        found = f"messages of version {version}" if mark == MARK else "something that is no message of this version"
        raise ConnectionAbortedError(
            f"the peer sends {found}, this version of ASA reads {WIRE_VERSION}: driver and nodes must run the same "
            "version; what older nodes run is run again"
        )
    return int(length)


def read(stream: BinaryIO) -> Any:
    """The next message of a blocking stream between parent and child; None at its end."""
    header = stream.read(HEAD.size)
    if len(header) < HEAD.size:
        return None
    length = _length(header)
    body = stream.read(length)
    return pickle.loads(body) if len(body) == length else None


class Channel:
    """Messages over a socket that never blocks.

    Parameters
    ----------
    stream
        A connected socket; TLS or not.
    waits
        What it raises when it would block.
    handshake
        Called until it does not raise one of `waits`; nothing is read before.
    peer
        Who it is, for the log.
    """

    def __init__(
        self,
        stream: socket.socket,
        waits: tuple[type[OSError], ...] = (BlockingIOError,),
        handshake: Callable[[], None] | None = None,
        peer: str = "a child",
    ) -> None:
        stream.setblocking(False)
        self._stream, self._waits, self._handshake = stream, waits, handshake
        self._deciphered: Callable[[], int] = getattr(stream, "pending", int)
        self._in, self._out = bytearray(), deque[memoryview]()
        self.largest, self.peer = LARGEST_FIRST, peer
        self.unsent = 0
        """Bytes that wait to be sent."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def send(self, *messages: object) -> None:
        """Queue messages and send what the socket takes, together if that takes them.

        Raises
        ------
        OSError
            When the peer is gone.
        """
        data = frame(messages[0]) if len(messages) == 1 else b"".join(map(frame, messages))
        self._out.append(memoryview(data))
        self.unsent += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes of what waits; raises `OSError` when the peer is gone."""
        while self._out:
            # A TLS socket that would block wants the same bytes again: the head of the queue stays as it is.
            head = self._out[0]
            try:
                sent = self._stream.send(head[:_CHUNK])
            except self._waits:
                return
            self.unsent -= sent
            if sent == len(head):
                self._out.popleft()
            else:
                self._out[0] = head[sent:]

    def receive(self) -> list[Any]:
        """All messages that are there.

        Raises
        ------
        OSError
            When the peer is gone, is not who it should be, is of another version, or sends a message longer than
            `largest`.
        """
        try:
            if self._handshake:
                self._handshake()
                self._handshake = None
            while True:
                chunk = self._stream.recv(_CHUNK)
                if not chunk:
                    if messages := self._messages():
                        return messages  # the end is read again next time
                    raise ConnectionResetError("the connection was closed")
                self._in += chunk
                if len(chunk) < _CHUNK and not self._deciphered():
                    break  # bytes inside the TLS layer would not wake a selector
        except self._waits:
            pass
        return self._messages()

    def _messages(self) -> list[Any]:
        found, at, size = [], 0, HEAD.size
        while len(self._in) - at >= size:
            length = _length(self._in, at)
            if length > self.largest:
                raise ConnectionAbortedError(f"a message of {length} bytes; at most {self.largest} are allowed")
            if len(self._in) - at < size + length:
                break
            try:
                with memoryview(self._in) as view, view[at + size : at + size + length] as body:
                    found.append(pickle.loads(body))
            except Exception as error:  # a damaged pickle raises anything
                raise ConnectionAbortedError(
                    f"a message that cannot be read: {type(error).__name__}: {error}"
                ) from error
            at += size + length
        del self._in[:at]
        return found

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Have a selector, in which it is, wait for room to send exactly while something waits to be sent."""
        key = selector.get_key(self)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
        if key.events != events:
            selector.modify(self, events, key.data)

    def close(self) -> None:
        self._stream.close()


RENDEZVOUS, GENERATION = "rendezvous.json", "driver.generation"
CERTIFICATES = "tls"
"""Directory of the run's certificates, in the run's directory."""

REACHED = "reached"
"""Directory of the run's, with a file for each node that expects commands of an order: where its supervisor listens."""

RELEASED = "released"
"""Directory of the run's, with a file for each allocation that was released by a driver that is gone."""

_CONNECT_S = 5.0
_HANDSHAKE_S = 10.0
_BACKLOG = 512
_SPARE_FILES = 256
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class ChannelListener(Protocol):
    """Where supervisors connect."""

    def fileno(self) -> int: ...
    def address(self) -> dict[str, Any]:
        """What `connect` needs."""

    def accept(self) -> Channel | None:
        """The next peer; None when there is none, it is not one of ours, or gone again.

        Raises
        ------
        OSError
            When no more files may be open.
        """

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
        if (accepted := _accepted(self._socket)) is None:
            return None
        stream, _ = accepted
        pid, user = peer_credentials(stream)
        if user != os.geteuid():
            log.warning("refused process %d of user %d: the socket is ours alone", pid, user)
            stream.close()
            return None
        return Channel(stream, peer=f"process {pid}")

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


class TlsListener:
    """TCP on every interface, mutual TLS.

    Parameters
    ----------
    certificates
        Directory of the run's certificates.
    own
        The one to listen with.

    Raises
    ------
    StateError
        When the certificates cannot be used.
    OSError
        When no port can be had.
    """

    def __init__(self, certificates: Path, own: str = "driver.pem") -> None:
        import ssl

        from asa.security.ca import driver_context

        self._context = driver_context(certificates, own)
        self._waits = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._socket = socket.create_server(("", 0), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def address(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "addresses": own_addresses(), "port": self._socket.getsockname()[1]}

    def accept(self) -> Channel | None:
        if (accepted := _accepted(self._socket)) is None:
            return None
        stream, address = accepted
        try:
            stream.setblocking(False)
            _keep_alive(stream)
            secure = self._context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False)
        except OSError:
            return None
        return Channel(secure, self._waits, secure.do_handshake, f"{address[0]} port {address[1]}")

    def close(self) -> None:
        self._socket.close()


def _accepted(listener: socket.socket) -> tuple[socket.socket, Any] | None:
    try:
        stream, address = listener.accept()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft - stream.fileno() < _SPARE_FILES and soft < hard:  # many have 1,024, and there may be more nodes
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * soft, hard), hard))
    return stream, address


def listen(context: RunContext) -> ChannelListener:
    """Listen for supervisors: on a Unix socket where all nodes are this machine, else with mutual TLS.

    Raises
    ------
    StateError
        When the run's directory cannot be used.
    """
    if not context.local:
        return TlsListener(certificates(context))
    try:
        for stale in context.directory.glob("hub-*.sock"):  # of drivers that died
            stale.unlink(missing_ok=True)
        return UnixListener(context.directory, f"hub-{secrets.token_hex(8)}.sock")
    except OSError as error:
        from asa.core.errors import StateError

        raise StateError(
            f"cannot make a socket in {context.directory}: {error.strerror or error}. Set ASA_STATE_DIR to a directory "
            "on a file system that has sockets"
        ) from error


def certificates(context: RunContext) -> Path:
    """The directory of the run's certificates, which are made if they are not there."""
    directory = context.directory / CERTIFICATES
    if not (directory / "node.pem").exists():  # written last: a driver may have died while it made them
        from asa.security.ca import create

        create(directory, context.run)
    return directory


def newest_driver(directory: str) -> int:
    """The generation of the run's newest driver; 0 where that cannot be read."""
    try:
        with open(os.path.join(directory, GENERATION), "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def connect(directory: str, newest: int = 0) -> Channel:
    """A channel to the driver that the rendezvous file names.

    Parameters
    ----------
    newest
        The generation of the newest driver that is known of: an earlier one is not connected to.

    Raises
    ------
    OSError
        When there is no such file, no process listens there, it is not our driver, or the certificates cannot be used.
    ValueError
        When the file is damaged.
    """
    address = _read(directory, RENDEZVOUS)
    check_current(address, newest)
    if "unix" in address:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.settimeout(_CONNECT_S)
            _by_descriptor(directory, address["unix"], stream.connect)
            pid, user = peer_credentials(stream)
            if user != os.geteuid():
                raise PermissionError("the driver's socket belongs to another user")
        except BaseException:
            stream.close()
            raise
        return Channel(stream, peer=f"the driver, process {pid}")
    from asa.security.ca import DRIVER_NAME

    return _connect_tls(directory, address, DRIVER_NAME, "the driver")


def check_current(address: dict[str, Any], newest: int) -> None:
    """Raise `ConnectionError` where an address is that of a driver before the newest one that is known of."""
    if address.get("generation", newest) < newest:
        raise ConnectionError("the run has a newer driver, which does not listen yet")


def connect_node(directory: str, ticket: int, host: str) -> Channel:
    """A channel to the supervisor of a node that expects commands of an order; raises what `connect` does."""
    from asa.security.ca import WORKER_NAME

    address = _read(os.path.join(directory, REACHED), f"{ticket}-{host}.json")
    return _connect_tls(directory, address, WORKER_NAME, f"the supervisor of {host}")


def _connect_tls(directory: str, address: dict[str, Any], name: str, who: str) -> Channel:
    import ssl
    from pathlib import Path

    from asa.core.errors import StateError
    from asa.security.ca import node_context

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
            secure = context.wrap_socket(stream, server_hostname=name)
        except OSError as error:
            stream.close()
            failures.append(f"{host}: {error}")
            continue
        waits = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        return Channel(secure, waits, peer=f"{who} at {host} port {address['port']}")
    raise ConnectionError(f"port {address['port']}: " + "; ".join(failures))


def is_released(directory: str, allocation: str) -> bool:
    """Whether an allocation's driver has released it and gone."""
    try:
        return allocation in os.listdir(os.path.join(directory, RELEASED))
    except OSError:
        return False


def _read(directory: str, name: str) -> dict[str, Any]:
    path = os.path.join(directory, name)
    os.listdir(directory)  # else a network file system may report for long that the file is not there
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


def peer_credentials(stream: socket.socket) -> tuple[int, int]:
    """Process number and user id of a Unix socket's peer."""
    pid, user, _ = _CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


def _keep_alive(stream: socket.socket) -> None:
    """The kernels find out within about a minute that the other machine is gone."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)


def own_addresses() -> list[str]:
    """How other machines may reach this one: its name, what that resolves to, and the default route's address."""
    name = socket.gethostname()
    found = [name]
    with suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):  # no route
        probe.connect(("192.0.2.1", 9))  # an address for documentation; nothing is sent
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys(found))
