"""How jobs come to start: at once, through a reservation, or by backfilling.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B (execution modes), Table IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asa.core.decision import DispatchDecision, JobKey, Reserve, Start

READY, RESERVED, BACKFILLED = "ready", "reserved", "backfilled"
MODES = (READY, RESERVED, BACKFILLED)


class Watched:
    """A dispatcher whose decisions are watched.

    A job is *reserved* when it was promised a start before it started, *backfilled* when it starts at a decision at
    which another one has been promised a start already, in the order in which the dispatcher decides; else it is
    *ready*. Of EASY these are the jobs before the first one that is blocked, that job, and those after it.

    Parameters
    ----------
    rule
        The dispatcher.

    Attributes
    ----------
    modes
        How each job came to start, by its key.
    """

    def __init__(self, rule: Any) -> None:
        self._rule, self.needs_estimates = rule, getattr(rule, "needs_estimates", False)
        self._promised: set[JobKey] = set()
        self.modes: dict[JobKey, str] = {}

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        """What it decides."""
        decisions, blocked = list(self._rule.decide(view)), False
        for each in decisions:
            if isinstance(each, Reserve):
                self._promised.add(each.job)
                blocked = True
            elif isinstance(each, Start):
                late = BACKFILLED if blocked else READY
                self.modes[each.job] = RESERVED if each.job in self._promised else late
        return decisions
