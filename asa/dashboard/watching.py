"""Feeds that somebody looks at, and what is sent to whoever does: first all of a page, then what has changed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from asa.core.errors import AsaError
from asa.dashboard.document import Document, difference
from asa.dashboard.feed import Feed, View
from asa.web.server import ResponseStream

LOOK_S = 0.2
"""How often a log is looked at for news [s]."""
REFRESH_S = 1.0
"""How often what depends on the time is told anew, while time goes on [s]."""
BEHIND_MOST = 4 << 20
"""A viewer for whom more than this waits to be sent is told of no further changes until it has read that [bytes]."""
BARS_MOST = 5000
"""Runs of tasks in one record."""

_log = logging.getLogger(__name__)
_BEAT = b"\n"
_BEAT_EVERY = 50
_ALONE_MOST = 25  # looks at a log that nobody else looks at


class Viewer:
    """A page that is open: what it was told, and the stream that it is told on."""

    def __init__(self, stream: ResponseStream) -> None:
        self.stream = stream
        self._document: Document = {}
        self._bars = 0
        self._told: tuple[float, bool, bool] | None = None

    def tell(self, feed: Feed[Any], view: View) -> None:
        """Send what it does not know yet; nothing while it does not keep up."""
        if self.stream.waiting > BEHIND_MOST:
            return
        change, first = difference(self._document, view.document), self._bars
        told = (view.now, view.live, view.written)
        if not change and view.bars == first and self._told == told:
            return
        self._document, self._bars, self._told = view.document, view.bars, told
        start, end = feed.span
        record = {"change": change, "now": view.now, "from": start, "to": max(end, view.now)}
        record |= {"live": view.live, "written": view.written}
        for place in range(first, max(view.bars, first + 1), BARS_MOST):
            self.stream.put(line(record | {"bars": feed.bars(place, min(place + BARS_MOST, view.bars))}))
            record = {}

    def fail(self, words: str) -> None:
        """Say why nothing more will come."""
        self.stream.put(line({"error": words}))
        self.stream.end()


class Watch:
    """One feed, and those who look at it; it is read while anybody does, and a little longer.

    Parameters
    ----------
    feed
        Closed at the end.
    over
        Called then.
    """

    def __init__(self, feed: Feed[Any], over: Callable[[], object]) -> None:
        self.feed, self._over = feed, over
        self._viewers: set[Viewer] = set()
        self._view: View | None = None
        self._reading = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, viewer: Viewer) -> None:
        """One more looks."""
        self._viewers.add(viewer)
        if self._view is not None:
            viewer.tell(self.feed, self._view)

    def discard(self, viewer: Viewer) -> None:
        """It looks no more."""
        self._viewers.discard(viewer)

    def end(self) -> None:
        """End what is being told to viewers."""
        for viewer in list(self._viewers):
            viewer.stream.end()

    async def at(self, when: float) -> View:
        """The page as it was at a time [s]."""
        async with self._reading:  # nobody is served faster by two that replay at once
            return await asyncio.to_thread(self.feed.look_at, when)

    async def _run(self) -> None:
        try:
            await self._follow()
        except (AsaError, OSError) as error:
            self._fail(f"the log cannot be read: {error}")
        except Exception:
            _log.exception("a log cannot be shown")
            self._fail("the dashboard cannot show this log; what it has said where it was started tells why")
        finally:
            self._over()
            self.feed.close()

    def _fail(self, words: str) -> None:
        for viewer in list(self._viewers):
            viewer.fail(words)

    async def _follow(self) -> None:
        loop, told, alone, turn = asyncio.get_running_loop(), 0.0, 0, 0
        while alone < _ALONE_MOST:
            news = await asyncio.to_thread(self.feed.advance)
            due = self._view is None or (self._view.live and loop.time() >= told + REFRESH_S)
            if news or due:
                self._view, told = await asyncio.to_thread(self.feed.look), loop.time()
                for viewer in list(self._viewers):
                    viewer.tell(self.feed, self._view)
            turn, alone = turn + 1, 0 if self._viewers else alone + 1
            if turn % _BEAT_EVERY == 0:  # whoever is gone without a word is found out
                for viewer in list(self._viewers):
                    viewer.stream.put(_BEAT)
            await asyncio.sleep(LOOK_S)


def line(record: dict[str, Any]) -> bytes:
    """A record as it is sent: JSON, and the end of a line.

    >>> line({"a": [1.5, None]})
    b'{"a":[1.5,null]}\\n'
    """
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
