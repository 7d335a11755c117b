"""Guests that must give way: because there is not enough memory, or because their host gets late."""

from __future__ import annotations

import numpy as np

from coscheduler.nouns import ALONE, FLOOR, Evict, SetShare, SharingDecision, SharingView

LATE, VERY_LATE, EASE = 1.0, 0.9, 1.1
"""Happiness of a host below which its guests get the least share, below which the last of them goes, and above which
they get back what they had."""


def guard(view: SharingView, share: float) -> list[SharingDecision]:
    """Decisions that protect hosts; `share` is what guests have while all is well.

    Memory counts as it was measured: together, nobody may use more than belongs to the host's cores. Of the guests, the
    one that came last goes first.
    """
    running = view.running
    guests = np.flatnonzero(running.host != ALONE)
    if not len(guests):
        return []
    used = running.states.memory * running.cores
    together = used + np.bincount(running.host[guests], used[guests], minlength=len(running))
    happy = running.states.happiness
    decisions: list[SharingDecision] = []
    for host in np.unique(running.host[guests]).tolist():
        mine = guests[running.host[guests] == host].tolist()
        last = running.names[max(mine, key=lambda row: (running.started[row], row))]
        why = {"host": running.names[host], "happiness": None if np.isinf(happy[host]) else float(happy[host])}
        if together[host] > running.cores[host] * (1 + 1e-9):
            decisions.append(Evict(last, why | {"memory": float(together[host] / running.cores[host])}))
        elif happy[host] < VERY_LATE:
            decisions.append(Evict(last, why))
        elif happy[host] < LATE:
            decisions += _shares(view, mine, FLOOR, why)
        elif happy[host] > EASE:
            decisions += _shares(view, mine, share, why)
    return decisions


def _shares(view: SharingView, guests: list[int], share: float, why: dict[str, object]) -> list[SharingDecision]:
    running = view.running
    return [SetShare(running.names[row], share, why) for row in guests if abs(running.share[row] - share) > 1e-9]
