"""A log as it grows, and what its page shows: now, or at any time before."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from asa.dashboard.document import Document

Item = TypeVar("Item")
In = TypeVar("In", contravariant=True)


class Model(Protocol[In]):
    """A fold of a log's items, and the tables that the page shows of it."""

    @property
    def last(self) -> float:
        """Time of the latest item [s]."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to come that matters."""

    @property
    def bars(self) -> int:
        """How many rows `bars_from` has."""

    def on(self, event: In, /) -> None: ...

    def document(self, now: float, *, past: bool = ...) -> Document:
        """The tables at a time [s], which is over if it is `past`."""

    def bars_from(self, first: int) -> list[list[float]]: ...


class Log(Protocol[Item]):
    """What is read: a run's events, or the entries of a queue's log."""

    def read(self, after: int) -> Iterable[tuple[int, Item]]:
        """Numbers and items above `after`, in order."""

    def is_written(self) -> bool:
        """Whether somebody writes it now, as far as that can be told."""

    def follows_the_clock(self) -> bool:
        """Whether its times are those of the wall clock."""

    def at(self, item: Item) -> float:
        """When it happened [s]."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class View:
    """What a page shows at `now` [s]: its tables, and the first `bars` runs of tasks. `live` says that time goes on,
    `written` that somebody writes the log."""

    document: Document
    bars: int
    now: float
    live: bool = False
    written: bool = False


class Feed(Generic[Item]):
    """A log with its model.

    Parameters
    ----------
    log
        What is followed.
    model
        Makes an empty model.
    clock
        The time [s since the epoch].

    Notes
    -----
    Items are kept, so that any time may be shown: what is shown at a time is the replay of the items up to the first
    that happened later.
    """

    def __init__(
        self, log: Log[Item], model: Callable[[], Model[Item]], clock: Callable[[], float] = time.time
    ) -> None:
        self._log, self._make, self._clock = log, model, clock
        self._model = model()
        self._items: list[Item] = []
        self._times: list[float] = []  # never decreasing: of each item the latest time so far
        self._read = 0
        self._live = self._written = False

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first item and of the latest [s]; both 0 without any."""
        return (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)

    def advance(self) -> bool:
        """Read what is new; whether there was anything."""
        before = self._read
        for number, item in self._log.read(before):
            at = self._log.at(item)
            self._model.on(item)
            self._items.append(item)
            self._times.append(max(at, self._times[-1] if self._times else at))
            self._read = number
        self._written = not self._model.over and self._log.is_written()
        self._live = self._written and self._log.follows_the_clock()
        return self._read != before

    def look(self) -> View:
        """The page as of now; of a log that nobody writes, as of its last item."""
        now = max(self._clock(), self._model.last) if self._live else self._model.last
        return View(self._model.document(now), self._model.bars, now, self._live, self._written)

    def look_at(self, when: float) -> View:
        """The page as it was at a time [s]; it is replayed, whoever else reads meanwhile."""
        count = bisect_right(self._times, when)
        model = replayed(self._make, self._items[:count])
        return View(model.document(max(when, model.last), past=True), model.bars, when)

    def bars(self, first: int, last: int) -> list[list[float]]:
        """Runs of tasks from row `first` to before `last`."""
        return self._model.bars_from(first)[: last - first] if last > first else []

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()


def replayed(make: Callable[[], Model[Any]], items: Sequence[Any]) -> Model[Any]:
    """The model of these items."""
    model = make()
    for item in items:
        model.on(item)
    return model
