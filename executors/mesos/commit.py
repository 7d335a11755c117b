"""Effects carried out: what must be durable first, for several calls at once, then the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from asa.core.errors import StateError
from asa.web.server import Durable
from executors.mesos.codec import Message, frame
from executors.mesos.effects import Close, CopyRow, KeepRow, Send
from executors.mesos.journal import Entry, Journal, entries

RETRY_S = 1.0
"""After how long a transaction that could not be written is tried again [s]."""
LAZY_S = 0.002
"""How long rows that are not urgent may wait for more to be written with them [s]."""

_log = logging.getLogger(__name__)


class StreamRecord(NamedTuple):
    """A record for a stream or, to end it, None."""

    stream: str
    record: bytes | None


Other = TypeVar("Other")


class GroupCommit(Generic[Other]):
    """Carries out effects in order. All that come while the last transaction is written go into the next one.

    What comes with rows waits for them, and so does what comes after it. Rows that are a `CopyRow` are written too, but
    hold up only those who ask to wait for them.

    Parameters
    ----------
    journal
        Where rows go.
    deliver
        Takes what is to be done then: records to be sent, and effects of other kinds as they are.
    strict
        What happens when the journal cannot be written (a full disk, say). If so, everything waits until it can:
        nothing is sent that is not durable. If not, the rest is done, and `trouble` says why nothing that came is
        durable yet; only callers who wait for that go on waiting. Nothing is forgotten in either case.
    """

    def __init__(
        self, journal: Journal, deliver: Callable[[Sequence[StreamRecord | Other]], None], *, strict: bool = True
    ) -> None:
        self._journal, self.deliver, self._strict = journal, deliver, strict
        self._entries: list[Entry] = []
        self._unwritten: dict[tuple[str, str], Entry] = {}  # what could not be written
        self._parcels: list[StreamRecord | Other] = []  # they wait for what is not written yet
        self._durable = Durable()
        self._wanted = asyncio.Event()
        self._writing: Durable | None = None
        self._holding = self._held = False  # whether parcels wait for `_entries`, or for what is being written
        self._timer: asyncio.TimerHandle | None = None
        self.trouble: str | None = None
        """Why the journal cannot be written, while it cannot."""

    def carry_out(self, effects: Sequence[Send | Close | KeepRow | Other], *, lazily: bool = False) -> Durable | None:
        """Have these done; what to wait for until they are, or None when they are already.

        Parameters
        ----------
        lazily
            Whether the caller does not wait: then there is time for more rows.
        """
        keeps, parcels = _taken_apart(effects)
        rows = entries(keeps)
        self._holding = self._holding or any(type(keep) is not CopyRow for keep in keeps)
        if self._holding or self._held:
            self._parcels += parcels
        else:
            self.deliver(parcels)
            if not rows:
                return self._durable if self._unwritten else None
        self._entries += rows
        if not lazily:
            self._wanted.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LAZY_S, self._wanted.set)
        return self._durable

    @property
    def pending(self) -> Durable | None:
        """What to wait for until all that has been carried out so far is written; None when it is."""
        return self._durable if self._entries or self._unwritten else self._writing

    async def durable(self) -> None:
        """Until all that has been carried out so far is written."""
        if (pending := self.pending) is not None:
            await pending.wait()

    async def run(self) -> None:
        """Carry out, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._commit()

    def flush(self) -> None:
        """Write what is left, once and at once, and do the rest; when it is not `strict`, in any case.

        Raises `StateError` when it cannot be written.
        """
        rows, self._entries = [*self._unwritten.values(), *self._entries], []
        try:
            if rows:
                self._journal.write(rows)
        except StateError as error:
            self._put_back(rows)
            if not self._strict:
                self._failed(error)
                asyncio.get_running_loop().call_later(RETRY_S, self._wanted.set)
                parcels, self._parcels = self._parcels, []
                self.deliver(parcels)
            raise
        if rows:
            self._succeeded()
        self._unwritten.clear()
        parcels, self._parcels = self._parcels, []
        durable, self._durable = self._durable, Durable()
        self._holding = self._held = False
        self.deliver(parcels)
        durable.set()

    async def _commit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, self._entries = [*self._unwritten.values(), *self._entries], []
        parcels, self._parcels = self._parcels, []
        durable, self._durable = self._durable, Durable()
        self._held, self._holding = self._holding, False
        self._unwritten.clear()
        self._writing = durable
        try:
            while rows and not await self._written(rows):
                if not self._strict:
                    self._put_back(rows)
                    self._durable = durable
                    asyncio.get_running_loop().call_later(RETRY_S, self._wanted.set)
                    self.deliver(parcels)
                    return
                await asyncio.sleep(RETRY_S)
        except asyncio.CancelledError:  # `flush` has to know; to write a row twice does no harm
            self._put_back(rows)
            self._parcels, self._durable = parcels + self._parcels, durable
            self._holding = True
            raise
        finally:
            self._writing, self._held = None, False
        self.deliver(parcels)
        durable.set()

    def _failed(self, error: StateError) -> None:
        if self.trouble is None:
            _log.error("the journal cannot be written: %s", error)
        self.trouble = str(error)

    def _succeeded(self) -> None:
        if self.trouble is not None:
            _log.warning("the journal can be written again")
        self.trouble = None

    def _put_back(self, rows: list[Entry]) -> None:
        self._unwritten = {(row.table, row.key): row for row in rows}

    async def _written(self, rows: list[Entry]) -> bool:
        try:
            if self._journal.quick:
                self._journal.write(rows)
            else:  # a file server may take its time: streams go on
                await asyncio.to_thread(self._journal.write, rows)
        except StateError as error:
            self._failed(error)
            return False
        self._succeeded()
        return True


def _taken_apart(effects: Sequence[Send | Close | KeepRow | Other]) -> tuple[list[KeepRow], list[StreamRecord | Other]]:
    """Records are encoded at once: what effects refer to may change until they are carried out."""
    parcels: list[StreamRecord | Other] = []
    keeps: list[KeepRow] = []
    last: Message | None = None
    record = b""
    for effect in effects:
        if isinstance(effect, KeepRow):
            keeps.append(effect)
        elif isinstance(effect, Send):
            if effect.message is not last:  # the same goes to all operators
                last, record = effect.message, frame(effect.message)
            parcels.append(StreamRecord(effect.stream, record))
        elif isinstance(effect, Close):
            parcels.append(StreamRecord(effect.stream, None))
        else:
            parcels.append(effect)
    return keeps, parcels
