"""Open streams: what waits to be written on each, and the heartbeats of all."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable

from executors.mesos.codec import frame
from executors.mesos.messages import message

RECORDS_MOST = 10_000
"""How many records may wait on a stream whose reader does not keep up ..."""
BYTES_MOST = 64 << 20
"""... and how many bytes of them; one more, and the connection is dropped, never a record."""

_HEARTBEAT = frame(message("HEARTBEAT"))
_SLOTS = 64
_TICK_S = 0.02


class Stream:
    """One response without end.

    Parameters
    ----------
    transport
        Its connection.
    beating
        Whether it gets heartbeats.
    """

    __slots__ = ("_bytes", "_records", "_transport", "_wake", "beating", "ended", "id", "slot")

    def __init__(self, transport: asyncio.BaseTransport | None, *, beating: bool) -> None:
        self.id = str(uuid.uuid4())
        self.beating = beating
        self.ended = False
        """Whether the master has ended it; else its end means that the peer is gone."""
        self.slot = 0
        self._transport = transport
        self._records: deque[bytes] | None = None  # an empty one would take more memory than all the rest
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None

    def put(self, record: bytes) -> None:
        """Write a record once those before it are written; drops the connection when too much waits."""
        if self.ended or self._transport is None:
            return
        if self._records is None:
            self._records = deque()
        self._records.append(record)
        self._bytes += len(record)
        if len(self._records) > RECORDS_MOST or self._bytes > BYTES_MOST:
            self.drop()
        self._rouse()

    def beat(self) -> None:
        """Put a heartbeat, unless something waits to be written: that it does says as much."""
        if not self._records:
            self.put(_HEARTBEAT)

    def end(self) -> None:
        """End the response after what was put before."""
        self.ended = True
        self._rouse()

    def drop(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()  # type: ignore[attr-defined]  # a transport that can be written to
        self._transport, self._records, self._bytes = None, None, 0

    async def serve(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write records, each by itself, until the stream has been ended."""
        while True:
            while self._records:
                record = self._records.popleft()
                self._bytes -= len(record)
                await write(record)
            self._records = None
            if self.ended:
                return
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


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
