"""What driver, supervisors and workers say to one another: tuples, pickled, each behind its length.

Pickle runs code, so a channel must have authenticated its peer first: mutual TLS under the run's own authority, or a
Unix socket whose peer has our own user id (`executors.transport`). Until then not a byte is read as a message.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:  # most workers never see one
    from asa.core.launch import Launch
    from asa.core.task import Value

LARGEST = 1 << 31
"""Longest message from a peer that has introduced itself [bytes]."""
INTRODUCTION = 1 << 20
"""Longest first message [bytes]."""

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 18


class Order(NamedTuple):
    """A task on its way to a worker: the stage's `number`-th.

    `cores`, `memory` [bytes] and `gpus` are what it takes on each of `nodes` nodes. With `launch`, its ranks run on
    `hosts`, of which the first gets the order.
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

    @property
    def threads(self) -> int:
        """Threads for the libraries of one of its processes."""
        return self.cores if self.launch is None else self.launch.cores


class Outcome(NamedTuple):
    """How a task ended: with a `value`, or with an `error`. Times are the node's own [s since the epoch]."""

    ticket: int
    started: float
    ended: float
    value: Value | None
    error: str = ""
    traceback: str = ""
    stderr: str = ""
    infrastructure: bool = False


class Hello(NamedTuple):
    """Supervisor to hub, first of all: who it is and what its node holds (memory 0: not limited)."""

    allocation: str
    node: str
    pid: int
    cores: int
    memory: int
    gpus: int


class Welcome(NamedTuple):
    """Hub to supervisor: the crew to start, as ``module:Class``, with its options, and where its tasks run.

    A supervisor that has said nothing for `alive_s` [s] says that it is alive.
    """

    crew: str
    options: dict[str, Any]
    values: str
    workdir: str
    sys_path: tuple[str, ...]
    alive_s: float


class Run(NamedTuple):
    """Hub to supervisor, and supervisor to a worker's `slot`: run these, in order."""

    orders: list[Order]
    slot: int = 0


class Report(NamedTuple):
    """Supervisor to hub: what ended, and tickets of what could not be started soon and goes back."""

    outcomes: list[Outcome]
    returned: list[int]


class Ended(NamedTuple):
    """Worker to supervisor: what ended in a slot, and whether the slot is free again."""

    slot: int
    outcomes: list[Outcome]
    free: bool


class Alive(NamedTuple):
    """Supervisor to hub, when it has been silent for a while."""


class Leaving(NamedTuple):
    """Supervisor to hub: its last words."""

    reason: str


class Release(NamedTuple):
    """Hub to supervisor: end the job with exit code 0."""


class Ask(NamedTuple):
    """A launcher's remote shell to hub, first of all: run this on `host`, a node that its order was given."""

    ticket: int
    host: str
    command: str
    environment: dict[str, str]


class Refused(NamedTuple):
    """Hub to remote shell: it is not to run, or not any more."""

    reason: str


class Start(NamedTuple):
    """Hub to supervisor: run this shell command, under this number; `environment` comes on top of the node's own."""

    number: int
    command: str
    environment: dict[str, str]


class Stop(NamedTuple):
    """Hub to supervisor: end this command, and whatever it has started."""

    number: int


class Stopped(NamedTuple):
    """Supervisor to hub to remote shell: the command has ended, with this exit code or by signal -`code`."""

    number: int
    code: int


def frame(message: object) -> bytes:
    """A message as it travels."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


def read(stream: BinaryIO) -> Any:
    """The next message of a blocking stream between parent and child; None at its end."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
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
    """

    def __init__(
        self,
        stream: socket.socket,
        waits: tuple[type[OSError], ...] = (BlockingIOError,),
        handshake: Callable[[], None] | None = None,
    ) -> None:
        stream.setblocking(False)
        self._stream, self._waits, self._handshake = stream, waits, handshake
        self._deciphered: Callable[[], int] = getattr(stream, "pending", int)
        self._in, self._out = bytearray(), deque[memoryview]()
        self.largest = INTRODUCTION
        self.unsent = 0
        """Bytes that wait to be sent."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def send(self, message: object) -> None:
        """Queue a message and send what the socket takes.

        Raises
        ------
        OSError
            When the peer is gone.
        """
        data = frame(message)
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
            When the peer is gone, is not who it should be, or sends a message longer than `largest`.
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
        found, at, size = [], 0, _LENGTH.size
        while len(self._in) - at >= size:
            (length,) = _LENGTH.unpack_from(self._in, at)
            if length > self.largest:
                raise ConnectionAbortedError(f"a message of {length} bytes; at most {self.largest} are allowed")
            if len(self._in) - at < size + length:
                break
            with memoryview(self._in) as view:
                found.append(pickle.loads(view[at + size : at + size + length]))
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
        """Close the socket; what waits to be sent is dropped."""
        self._stream.close()
