"""Space sharing: whoever has cores has them alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coscheduler.nouns import SharedRun, SharingDecision, SharingView
from coscheduler.sharing.starter import Starter


class Space:
    """Jobs start on cores of their own, or not at all: what the other rules are measured by.

    Parameters
    ----------
    queue
        Spec of a dispatcher, or ``"first-fit"``: see `Starter`. Backfilling, as the paper's Slurm does.
    """

    def __init__(self, *, queue: str = "easy") -> None:
        self._starter = Starter(queue)

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Start what fits."""
        return list(self._starter.starts(view)[0])

    def learn(self, run: SharedRun) -> None:
        """Nothing is to be learned."""

    def state(self) -> dict[str, Any]:
        """Return nothing: nothing is learned."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take nothing over."""
