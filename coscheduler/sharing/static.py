"""Static sharing: every job may have a guest, and both get half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coscheduler.nouns import SharedRun, SharingDecision, SharingView, StartGuest
from coscheduler.sharing.starter import CANDIDATES, FIRST_FIT, Starter, check_share, first_host, open_hosts


class Static:
    """The first host that is large enough gives the same share to whoever comes first. The paper's baseline.

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

    def __init__(self, *, share: float = 0.5, hard: bool = False, queue: str = FIRST_FIT) -> None:
        self._share, self._hard, self._starter = check_share(share), hard, Starter(queue)

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Start what fits, then guests wherever there is a host for them."""
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

    def learn(self, run: SharedRun) -> None:
        """Nothing is to be learned."""

    def state(self) -> dict[str, Any]:
        """Return nothing: nothing is learned."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take nothing over."""
