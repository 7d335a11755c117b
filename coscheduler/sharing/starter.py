"""Who starts on free cores, and the two rules that do little more: space sharing and static sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.core.decision import Start
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.ports import Dispatcher
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob, QueueView, RunningJob
from coscheduler.nouns import (
    ALONE,
    FLOOR,
    RunningJobs,
    SharedRun,
    SharingDecision,
    SharingView,
    StartGuest,
    WaitingJob,
    first_fit,
)

FIRST_FIT = "first-fit"
CANDIDATES = 32
"""Waiting jobs that are looked at for guests, from the front of the queue: each is tried against all hosts, and a
decision is to take a millisecond."""


def check_share(share: float) -> float:
    """A guest's share, that is one. Raises `InvalidInput` when it leaves the guest, or its host, less than `FLOOR`."""
    if not FLOOR <= share <= 1 - FLOOR:
        raise InvalidInput(f"a guest's share is {share!r}: expected a number from {FLOOR:g} to {1 - FLOOR:g}")
    return share


class Starter:
    """Starts waiting jobs that fit.

    Parameters
    ----------
    dispatcher
        ``"first-fit"``: in the queue's order, those that do not fit are passed over, as the paper's Mesos framework
        does that withholds offers; a large job waits for a gap. Or the spec of a dispatcher, such as ``"easy"``, which
        keeps it a place.
    """

    def __init__(self, dispatcher: str) -> None:
        self._dispatcher: Dispatcher | None = None if dispatcher == FIRST_FIT else DISPATCHERS.create(dispatcher)

    def starts(
        self, view: SharingView, queue: Sequence[WaitingJob] | None = None
    ) -> tuple[list[Start], list[WaitingJob]]:
        """Jobs to start now, and the rest of the queue; `queue` is another order of the view's."""
        order = view.queue if queue is None else tuple(queue)
        if not view.free or not order:
            return [], list(order)
        if self._dispatcher is None:
            starts = [Start(job.name) for job in first_fit(order, view.free)]
        else:
            starts = [each for each in self._dispatcher.decide(_as_queue(view, order)) if isinstance(each, Start)]
        started = {start.job for start in starts}
        return starts, [job for job in order if job.name not in started]


def open_hosts(running: RunningJobs, guests: int = 1) -> Ints:
    """Rows of the jobs that may take a guest: cores of their own, not exclusive, fewer guests than `guests`."""
    return np.flatnonzero((running.host == ALONE) & ~running.exclusive & (running.guests() < guests))


def first_host(cores: Ints, taken: Bools, job: WaitingJob) -> int | None:
    """Place of the first host, of one or more, that has enough cores and is not taken; None where there is none."""
    fits = (cores >= job.cores) & ~taken
    first = int(fits.argmax())
    return first if fits[first] else None


def _as_queue(view: SharingView, order: Sequence[WaitingJob]) -> QueueView:
    """As dispatchers see it; a host that is late is expected to end any moment."""
    queue = tuple(QueuedJob(job.name, Resources(job.cores), job.walltime_s, job.submitted) for job in order)
    hosts = np.flatnonzero(view.running.host == ALONE)
    ends = np.maximum(view.running.started + view.running.walltime, view.now + 1.0)
    running = tuple(
        RunningJob(view.running.names[row], Resources(int(view.running.cores[row])), float(ends[row]))
        for row in hosts.tolist()
    )
    return QueueView(view.now, Resources(view.cores), queue, running)


class Space:
    """Jobs start on cores of their own, or not at all: what the other rules are measured by.

    Parameters
    ----------
    queue
        Spec of a dispatcher, or ``"first-fit"``: see `Starter`. Backfilling, as the paper's Slurm does.
    """

    keeps_bounds = True

    def __init__(self, *, queue: str = "easy") -> None:
        self._starter = Starter(queue)

    def decide(self, view: SharingView) -> list[SharingDecision]:
        return list(self._starter.starts(view)[0])

    def learn(self, run: SharedRun) -> None:
        """Nothing is learned."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class Static(Space):
    """The first host that is large enough gives the same share to the first in the queue. The paper's baseline.

    Parameters
    ----------
    share
        Of the host's cores, in [`coscheduler.nouns.FLOOR`, 1 less that].
    hard
        As a quota, which leaves idle what its owner does not use; else as a weight. The paper sets quotas, and reports
        run times that only weights allow.
    queue
        See `Starter`.

    References
    ----------
    ASA_X, section 4.4.
    """

    keeps_bounds = False

    def __init__(self, *, share: float = 0.5, hard: bool = False, queue: str = FIRST_FIT) -> None:
        super().__init__(queue=queue)
        self._share, self._hard = check_share(share), hard

    def decide(self, view: SharingView) -> list[SharingDecision]:
        starts, rest = self._starter.starts(view)
        decisions: list[SharingDecision] = list(starts)
        hosts = open_hosts(view.running)
        cores, taken = view.running.cores[hosts], np.zeros(len(hosts), dtype=np.bool_)
        for job in rest[:CANDIDATES] if len(hosts) else ():
            place = None if job.exclusive else first_host(cores, taken, job)
            if place is not None:
                taken[place] = True
                host = view.running.names[int(hosts[place])]
                decisions.append(StartGuest(job.name, host, self._share, self._hard))
        return decisions
