"""Another run in the same pool, in virtual time: it lends when it is asked, and takes back when it likes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from asa.core.clock import ManualClock
from asa.core.event import Leased, LeaseEnded, Recalled
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Resources
from asa.core.ports import Post

LONG_S = 1e5


@dataclass(frozen=True)
class Terms:
    """How it lends.

    Parameters
    ----------
    cores
        At most so many at a time.
    delay_s, joins_s
        From being asked to a lease, and from that to its node [s].
    recall_s
        After how long it wants a lease back [s].
    lasts_s
        After how long the first lease of a driver ends whatever runs in it [s], and how long it is said to last; later
        ones last for long. A run gives up when it loses too much.
    """

    cores: int = 4
    delay_s: float = 1.0
    joins_s: float = 0.5
    recall_s: float = math.inf
    lasts_s: float = LONG_S


class Lender:
    """The part of it that a driver sees.

    Parameters
    ----------
    reach
        Is told of a lease as the nodes are told of jobs: what begins and what has ended.
    lose
        Is told which lease is gone, and why, before that is told to the driver.
    """

    def __init__(
        self,
        clock: ManualClock,
        terms: Terms,
        reach: Callable[[JobRequest, JobStatus], None],
        lose: Callable[[str, str], None],
    ) -> None:
        self._clock, self._terms, self._reach, self._lose = clock, terms, reach, lose
        self._post: Post | None = None
        self._serial = itertools.count(1)
        self._wanted: tuple[Resources | None, int] = (None, 0)
        self._lasts_s = terms.lasts_s
        self.leases: dict[str, JobRequest] = {}
        self.asked: list[tuple[Resources | None, int]] = []

    def meet(self, post: Post | None) -> None:
        """A driver comes, or goes and its leases with it."""
        for key in list(self.leases):
            self._drop(key)
        self._post, self._wanted, self._lasts_s = post, (None, 0), self._terms.lasts_s

    def want(self, task: Resources | None, count: int) -> None:
        """As `asa.core.ports.Sharing.want`."""
        self.asked.append((task, count))
        self._wanted = task, count
        self._soon(self._terms.delay_s, self._lend)

    def release(self, key: str) -> None:
        """A lease is given back; what runs in it is killed."""
        if key in self.leases:
            self._end(key, "")

    def _soon(self, delay_s: float, act: Callable[[], None]) -> None:
        """Unless the driver is another one by then."""
        post = self._post
        if delay_s < math.inf:
            self._clock.call_at(self._clock.now() + delay_s, lambda: act() if self._post is post else None)

    def _lend(self) -> None:
        task, count = self._wanted
        if task is None or (task.nodes or 1) > 1 or self._post is None:
            return
        room = self._terms.cores - sum(lease.resources.cores for lease in self.leases.values())
        given = min(count, room // task.cores)
        if given <= 0:
            return
        self._wanted = task, count - given
        now, resources = self._clock.now(), Resources(given * task.cores)
        lasts_s, self._lasts_s = self._lasts_s, LONG_S
        lease = JobRequest(f"run.lease-{next(self._serial)}", resources, lasts_s, ("lease",))
        self.leases[lease.token] = lease
        self._post([Leased(now, lease.token, resources, "other", now + lasts_s)])
        self._soon(self._terms.joins_s, partial(self._join, lease))
        self._soon(self._terms.recall_s, partial(self._recall, lease.token))
        self._soon(lasts_s, partial(self._cut, lease.token))

    def _join(self, lease: JobRequest) -> None:
        if lease.token in self.leases:
            self._reach(lease, _status(lease, JobState.RUNNING))

    def _recall(self, key: str) -> None:
        if key in self.leases and self._post is not None:
            self._post([Recalled(self._clock.now(), key, "run other needs it")])

    def _cut(self, key: str) -> None:
        if key in self.leases:
            self._lose(key, "the agent is gone")
            self._end(key, "the agent is gone")

    def _end(self, key: str, reason: str) -> None:
        self._drop(key)
        if self._post is not None:
            self._post([LeaseEnded(self._clock.now(), key, reason)])
        self._soon(self._terms.delay_s, self._lend)

    def _drop(self, key: str) -> None:
        lease = self.leases.pop(key)
        self._reach(lease, _status(lease, JobState.COMPLETED))


def _status(lease: JobRequest, state: JobState) -> JobStatus:
    return JobStatus(JobHandle("lease", lease.token, 0.0), state)
