"""Open streams: what waits to be written on each, and the heartbeats of all."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from typing import Protocol

from executors.mesos.codec import frame
from executors.mesos.messages import message

RECORDS_MOST = 10_000
"""How many records may wait on a stream whose reader does not keep up ..."""
BYTES_MOST = 64 << 20
"""... and how many bytes of them; one more, and the connection is dropped, never a record."""

_HEARTBEAT = frame(message("HEARTBEAT"))
_LAST = b"0\r\n\r\n"
_SLOTS = 64
_TICK_S = 0.02


class Carrier(Protocol):
    """The connection that a stream is written on."""

    def write(self, data: bytes) -> None:
        """Send this behind what was written before."""

    def stream_ended(self) -> None:
        """The last of the stream has been written."""

    def abort(self) -> None:
        """Break it."""


class Stream:
    """One response without end.

    Parameters
    ----------
    carrier
        Its connection.
    over
        Called once: when all is written and the response has ended, or the connection is gone.
    beating
        Whether it gets heartbeats.
    """

    __slots__ = ("_bytes", "_carrier", "_held", "_over", "_records", "beating", "begun", "ended", "id", "slot")

    def __init__(self, carrier: Carrier, over: Callable[[Stream], object], *, beating: bool) -> None:
        self.id = str(uuid.uuid4())
        self.beating = beating
        self.begun = False
        """Whether its turn on the connection has come."""
        self.ended = False
        """Whether we have ended it; else its end means that the peer is gone."""
        self.slot = 0
        self._carrier: Carrier | None = carrier
        self._over = over
        self._held = True  # nothing is to be written now
        self._records: deque[bytes] | None = None  # an empty one would take more memory than all the rest
        self._bytes = 0

    @property
    def waiting(self) -> int:
        """How many bytes wait to be written."""
        return self._bytes

    def begin(self) -> None:
        """The head of the response is written."""
        self.begun = True
        self.go_on()

    def put(self, record: bytes) -> None:
        """Write a record, in a chunk by itself, behind those before it; drops the connection when too much waits."""
        if self.ended or self._carrier is None:
            return
        if not self._held:
            self._carrier.write(_chunk(record))
            return
        if self._records is None:
            self._records = deque()
        self._records.append(record)
        self._bytes += len(record)
        if len(self._records) > RECORDS_MOST or self._bytes > BYTES_MOST:
            self.drop()

    def beat(self) -> None:
        """Put a heartbeat, unless something waits to be written: that it does says as much."""
        if not self._records:
            self.put(_HEARTBEAT)

    def end(self) -> None:
        """End the response after what was put before."""
        self.ended = True
        if not self._held:
            self.go_on()

    def drop(self) -> None:
        """Break the connection."""
        if self._carrier is not None:
            self._carrier.abort()
        self._carrier, self._records, self._bytes = None, None, 0

    def hold(self) -> None:
        """The peer does not keep up: keep here what is put."""
        self._held = True

    def go_on(self) -> None:
        """Write what was kept, until `hold` is called again."""
        self._held = False
        while self._records and self._carrier is not None and not self._held:
            record = self._records.popleft()
            self._bytes -= len(record)
            self._carrier.write(_chunk(record))
        if self._held:
            return
        self._records = None
        if self.ended and self._carrier is not None:
            self._carrier.write(_LAST)
            self._carrier.stream_ended()
            self.lost()

    def lost(self) -> None:
        """There is no connection any more."""
        self._carrier, self._records, self._held = None, None, True
        self._over(self)


def kind_of(record: bytes) -> str:
    """The type of the message in a record.

    >>> kind_of(frame(message("HEARTBEAT")))
    'HEARTBEAT'
    """
    return record.partition(b'"type":"')[2].partition(b'"')[0].decode()


def _chunk(record: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(record), record)


class Heartbeats:
    """Beats each stream at its own moment of the interval, all with one timer.

    Parameters
    ----------
    interval_s
        How often each stream gets a heartbeat [s].
    """

    def __init__(self, interval_s: float) -> None:
        count = max(1, min(_SLOTS, int(interval_s / _TICK_S)))
        self._tick_s = interval_s / count
        self._slots: list[set[Stream]] = [set() for _ in range(count)]
        self._next = 0

    def add(self, stream: Stream) -> None:
        """Give the stream heartbeats, evenly between those of others."""
        self._next = (self._next + 1) % len(self._slots)
        stream.slot = self._next
        self._slots[stream.slot].add(stream)

    def discard(self, stream: Stream) -> None:
        """No more heartbeats for it."""
        self._slots[stream.slot].discard(stream)

    async def run(self) -> None:
        """Beat, until cancelled."""
        clock = asyncio.get_running_loop().time
        at = clock()
        while True:
            for slot in self._slots:
                at = max(at + self._tick_s, clock() - self._tick_s)  # who was stopped does not catch up
                await asyncio.sleep(max(0.0, at - clock()))
                for stream in list(slot):
                    stream.beat()
