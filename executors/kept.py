"""What a supervisor owes its drivers: orders that run, and outcomes that no driver has logged.

`Owed` is a state machine without I/O; `OWED` is its table. `OutcomeFile` is where outcomes are safe while there is no
driver: a file of the supervisor's own (0600) in the run's directory, so that the next driver reads them (`recovered`)
even when the allocation is gone.
"""

from __future__ import annotations

import enum
import logging
import os
import pickle
import stat
import struct
from binascii import crc32
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from executors.wire import KeptOrder, OrderOutcome, TaskOrder

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class OrderState(enum.Enum):
    """Where an order stands for its supervisor."""

    UNKNOWN = "unknown"
    """Never given, or over and done with: nothing is owed."""
    RUNNING = "running"
    ENDED = "ended"
    """Its outcome is known here, and maybe under way, but no driver has said that it is logged."""


OWED: Mapping[tuple[OrderState, str], OrderState] = {
    (OrderState.UNKNOWN, "given"): OrderState.RUNNING,
    (OrderState.RUNNING, "ended"): OrderState.ENDED,
    (OrderState.RUNNING, "returned"): OrderState.UNKNOWN,  # it could not start soon: the driver has it again
    (OrderState.ENDED, "logged"): OrderState.UNKNOWN,
    (OrderState.RUNNING, "disowned"): OrderState.UNKNOWN,  # the next driver does not ask for it, or not with this input
    (OrderState.ENDED, "disowned"): OrderState.UNKNOWN,
}
"""What becomes of an order; what is not here changes nothing. A driver's death is not here: it changes nothing."""


class Owed:
    """The orders of one supervisor, by ticket; tickets of all drivers of a run differ.

    Examples
    --------
    >>> owed = Owed()
    >>> owed.given([TaskOrder(7, "s", 0, "f", b"", (), cores=1, memory=0, gpus=0, nodes=1)])
    >>> [each.ticket for each in owed.ended([OrderOutcome(7, 0.0, 1.0, b""), OrderOutcome(8, 0.0, 1.0, b"")])]
    [7]
    >>> owed.move([7], "logged"), len(owed)
    ([7], 0)
    """

    def __init__(self) -> None:
        self.orders: dict[int, KeptOrder] = {}
        self.outcomes: dict[int, OrderOutcome] = {}
        self.unsaved: dict[int, None] = {}
        """Tickets of outcomes that are in no file."""

    def __len__(self) -> int:
        return len(self.orders)

    def state(self, ticket: int) -> OrderState:
        if ticket in self.outcomes:
            return OrderState.ENDED
        return OrderState.RUNNING if ticket in self.orders else OrderState.UNKNOWN

    def given(self, orders: Iterable[TaskOrder]) -> None:
        """A driver gave these."""
        for order in orders:
            if self._after(order.ticket, "given") is OrderState.RUNNING:
                kept = KeptOrder(order.ticket, order.stage, order.number, order.identity, order.hosts, order.ranks)
                self.orders[order.ticket] = kept

    def ended(self, outcomes: Iterable[OrderOutcome]) -> list[OrderOutcome]:
        """Those of these outcomes that are owed; they are from now on."""
        found = []
        for outcome in outcomes:
            if self._after(outcome.ticket, "ended") is OrderState.ENDED:
                self.outcomes[outcome.ticket] = outcome
                self.unsaved[outcome.ticket] = None
                found.append(outcome)
        return found

    def move(self, tickets: Iterable[int], what: str) -> list[int]:
        """Forget orders that are ``"returned"``, ``"logged"`` or ``"disowned"``; those of them that were owed."""
        found = [ticket for ticket in tickets if self._after(ticket, what) is OrderState.UNKNOWN]
        for ticket in found:
            del self.orders[ticket]
            self.outcomes.pop(ticket, None)
            self.unsaved.pop(ticket, None)
        return found

    def replace(self, outcomes: Iterable[OrderOutcome]) -> None:
        """These ended otherwise than was thought, and are in no file for a reason."""
        for outcome in outcomes:
            self.outcomes[outcome.ticket] = outcome
            self.unsaved.pop(outcome.ticket, None)

    def _after(self, ticket: int, what: str) -> OrderState | None:
        return OWED.get((self.state(ticket), what))


KEPT = "kept"
"""Directory of the files of outcomes, in the run's directory; in it one for each allocation."""
FILE_MOST = 1 << 30
"""Longest such file [bytes]."""
RECORD_MOST = 1 << 20
"""Longest record of one; values are at most `asa.log.values.INLINE_MOST` [bytes]."""

KEPT_VERSION = 4
"""Of these records: it changes with `KeptOrder` and `OrderOutcome`. 1 was not written."""
_HEAD = struct.Struct("!III")
_MARK = 0xA5A00000


class OutcomeFile:
    """Outcomes of one supervisor that no driver has logged.

    Parameters
    ----------
    directory
        The run's.
    allocation, node
        Whose supervisor it is.
    """

    def __init__(self, directory: str, allocation: str, node: str) -> None:
        self._where, self._node = (directory, allocation), node
        self.path = os.path.join(directory, KEPT, allocation, f"{node}-{os.urandom(4).hex()}")
        self._descriptor: int | None = None

    def save(self, records: Iterable[tuple[KeptOrder, OrderOutcome]]) -> None:
        """Append, and return when the records would survive a power failure; all of them or none.

        Raises
        ------
        StateError
            When it cannot be written, or would grow too long.
        """
        data = b"".join(self._record(order, outcome) for order, outcome in records)
        size = 0
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            size = os.fstat(self._descriptor).st_size
            if size + len(data) > FILE_MOST:
                raise OSError(f"it would be longer than {FILE_MOST} bytes")
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError as error:
            from pathlib import Path

            from asa.security.files import cannot

            if self._descriptor is not None:
                os.ftruncate(self._descriptor, size)
            raise cannot("write", Path(self.path), error) from error

    def remove(self) -> None:
        """Nothing is owed any more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            os.unlink(self.path)
            self._descriptor = None

    def _record(self, order: KeptOrder, outcome: OrderOutcome) -> bytes:
        body = pickle.dumps((order, self._node, outcome), protocol=5)
        return _HEAD.pack(_MARK | KEPT_VERSION, len(body), crc32(body)) + body

    def _open(self) -> int:
        from pathlib import Path

        from asa.security.files import private_directory

        private_directory(private_directory(Path(self._where[0], KEPT)) / self._where[1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)


def recovered(directory: Path, allocation: str) -> Iterator[tuple[KeptOrder, str, OrderOutcome]]:
    """What supervisors of an allocation have in their files: the order, the node and the outcome.

    A file that is not ours alone, or too long, is passed over; one that is damaged is read as far as it is whole.
    """
    from asa.core.errors import StateError
    from asa.security.files import check_private

    place = directory / KEPT / allocation
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        try:
            for folder in (place.parent, place):
                check_private(folder, stat.S_IFDIR)
            with open(os.open(check_private(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if os.fstat(file.fileno()).st_size > FILE_MOST:
                    raise ValueError(f"it is longer than {FILE_MOST} bytes")
                while head := file.read(_HEAD.size):
                    mark, length, check = _HEAD.unpack(head)
                    if mark != _MARK | KEPT_VERSION:
                        raise ValueError(
                            f"another version of ASA wrote it, this one reads {KEPT_VERSION}, or it is damaged"
                        )
                    body = file.read(length) if length <= RECORD_MOST else b""
                    if len(body) != length or crc32(body) != check:
                        raise ValueError("it is damaged")
                    yield pickle.loads(body)
        except (OSError, ValueError, struct.error, StateError) as error:
            log.warning("outcomes in %s are not used, or not all: %s", path, error)
