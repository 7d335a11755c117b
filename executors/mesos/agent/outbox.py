"""What an agent has to say to its master and has not sent yet."""

from __future__ import annotations

from collections import deque

from executors.mesos.codec import Message, encode

BATCH_MOST, BATCH_BYTES = 1000, 4 << 20
"""A batch has at most so many items, and, but for its last one, so many bytes: far less than the master takes."""
UNSENT_MOST, UNSENT_BYTES = 20_000, 256 << 20
"""With more items, or more bytes, the master is taken for one that does not listen."""


class Outbox:
    """Items in the order in which they were said, each encoded once.

    >>> outbox = Outbox()
    >>> outbox.put({"type": "PONG"})
    >>> outbox.put({"type": "PONG"})
    >>> outbox.batch(), bool(outbox)
    (b'{"type":"BATCH","batch":{"items":[{"type":"PONG"},{"type":"PONG"}]}}', False)
    """

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def is_full(self) -> bool:
        """Whether more has piled up than a master that listens would let."""
        return len(self._items) > UNSENT_MOST or self._size > UNSENT_BYTES

    def put(self, item: Message) -> None:
        """Say this, after what was said before."""
        body = encode(item)
        self._items.append(body)
        self._size += len(body)

    def take(self) -> bytes:
        """The oldest item, alone; raises `IndexError` when there is none."""
        item = self._items.popleft()
        self._size -= len(item)
        return item

    def batch(self) -> bytes:
        """A BATCH of the oldest items; raises `IndexError` when there is none."""
        items = [self.take()]
        size = len(items[0])
        while self._items and len(items) < BATCH_MOST and size < BATCH_BYTES:
            items.append(self.take())
            size += len(items[-1])
        return b'{"type":"BATCH","batch":{"items":[%b]}}' % b",".join(items)

    def clear(self) -> None:
        """None of it is to be said any more."""
        self._items.clear()
        self._size = 0
