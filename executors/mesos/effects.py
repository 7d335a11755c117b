"""What the state machines of master and agent want done.

A server carries out the effects of one call in two steps: it makes every `KeepRow` durable, in one transaction, and
only then does the rest, in order. So nothing is sent that a crash could undo. A `CopyRow` alone holds nothing up.
"""

from __future__ import annotations

from typing import NamedTuple

from executors.mesos.codec import Message


class Send(NamedTuple):
    """A record on an open stream; `stream` is the id under which the server opened it. One that is gone is no error."""

    stream: str
    message: Message


class Close(NamedTuple):
    """End a stream, after what was sent before."""

    stream: str


class KeepRow(NamedTuple):
    """Write a row of the journal, or with None remove it. A row is found by table and key."""

    table: str
    key: str
    row: Message | None


class CopyRow(KeepRow):
    """A `KeepRow` of what another process keeps too, and would send again: what comes with it need not wait for it."""

    __slots__ = ()


Effect = Send | Close | KeepRow
