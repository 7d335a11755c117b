"""How much a peer may ask for: tries, connections, bytes."""

from __future__ import annotations

import resource
from collections.abc import Callable

from executors.mesos.codec import LARGEST
from executors.mesos.effects import Refused
from executors.mesos.pool_directory import READER, WRITER

BODY_S = 60.0
"""How long a body may take to arrive [s]."""
FAILURES = 10
"""How often one address may fail to authenticate before it is told to wait; one failure is forgotten each second."""
FILES_MOST = 1 << 20
"""More open files than this are not asked for, even where they may be had."""

EXECUTOR = "executor"
"""Whose calls an agent passes on to the master: they have to fit into what that takes. No role has this name."""

_BODIES = {READER: 1 << 20, WRITER: 16 << 20, EXECUTOR: 16 << 20}
_PEERS_MOST = 4096


class Failures:
    """Counts failures by address, for a bounded number of addresses: a leaky bucket for each.

    >>> failures = Failures(lambda: 0.0)
    >>> [failures.too_many("10.0.0.1") for _ in range(12)].count(True)
    2
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def too_many(self, peer: str) -> bool:
        """Count one more, and tell whether these are too many."""
        now = self._clock()
        level, since = self._levels.pop(peer, (0.0, now))
        level = max(0.0, level - (now - since)) + 1
        while len(self._levels) >= _PEERS_MOST:
            del self._levels[next(iter(self._levels))]
        self._levels[peer] = (min(level, FAILURES + 1.0), now)
        return level > FAILURES


def body_limit(role: str) -> int:
    """Longest body that is taken from a role [bytes]."""
    return _BODIES.get(role, LARGEST)


def too_long(most: int) -> Refused:
    """What is said of a longer body."""
    return Refused(413, f"expected a body of at most {most} bytes")


def raise_file_limit() -> int:
    """Let this process have as many open files as it may; how many that is.

    Each stream is one, and the usual limit of 1,024 is a small pool's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, FILES_MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
