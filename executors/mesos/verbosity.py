"""How much masters and agents log: SET_LOGGING_LEVEL, for as long as an operator wants to see more.

Level 0 is what they always log: what is wrong. Level 1 adds each call, what is refused, and containers that start and
end; levels 2 and 3 add what is sent on streams, by its type. What messages hold is never logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.messages import field

LEVEL_MOST = 3
"""Highest level."""

_LOGGER = logging.getLogger("executors.mesos")
_LEVELS = (logging.NOTSET, logging.INFO, logging.DEBUG, logging.DEBUG)
_LONGEST_S = 365 * 86400.0


class Verbosity(NamedTuple):
    """A level, and until when it holds [s since the epoch]; 0 holds from then on."""

    level: int = 0
    until: float = 0.0

    def at(self, now: float) -> int:
        """The level at a time [s since the epoch]."""
        return self.level if now < self.until else 0


def asked(set_logging_level: Message, now: float) -> Verbosity:
    """What a SET_LOGGING_LEVEL asks for.

    Raises
    ------
    HTTPError, BadMessage
        When the level or the duration is none.
    """
    level = field(set_logging_level, "level", int)
    nanoseconds = field(set_logging_level, "duration.nanoseconds", int)
    if not 0 <= level <= LEVEL_MOST:
        raise HTTPError(400, f"expected a level from 0 to {LEVEL_MOST}, found {level}")
    if not 0 <= nanoseconds < 1 << 63:
        raise HTTPError(400, "expected a duration that is not negative, and of at most 292 years")
    return Verbosity(level, now + nanoseconds / 1e9)


class Voice:
    """Has the loggers of this process say more for a while; without a handler of the program's, to standard error."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._handler: logging.Handler | None = None

    def follow(self, verbosity: Verbosity, now: float) -> None:
        """From now on [s since the epoch] log so much; to be called in the event loop."""
        self.calm()
        if level := verbosity.at(now):
            _LOGGER.setLevel(_LEVELS[level])
            if not _LOGGER.hasHandlers():
                self._handler = logging.StreamHandler()
                self._handler.setFormatter(logging.Formatter("asa: %(asctime)s %(message)s"))
                _LOGGER.addHandler(self._handler)
            left_s = min(verbosity.until - now, _LONGEST_S)
            self._timer = asyncio.get_running_loop().call_later(left_s, self.calm)

    def calm(self) -> None:
        """Log what is always logged."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        _LOGGER.setLevel(logging.NOTSET)
        if self._handler is not None:
            _LOGGER.removeHandler(self._handler)
            self._handler = None
