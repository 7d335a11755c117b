"""What is known of times when a window is placed: when its jobs will end, and when nodes that are held become free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import Placed, Window


@dataclass(frozen=True, eq=False)
class Prospect:
    """Times beside a window of J jobs; M nodes are held.

    Parameters
    ----------
    lasts
        How long each job of the window is expected to hold its nodes [s], shape (J,).
    groups
        The switch that each held node is below, at each level, numbered as in `Window.groups`; shape (levels, M).
    free_in
        When each held node is expected to be free, from now [s], shape (M,).

    Raises
    ------
    InvalidInput
        When shapes do not go together, or a time is negative or not finite.
    """

    lasts: Floats
    groups: Ints
    free_in: Floats

    def __post_init__(self) -> None:
        if self.lasts.ndim != 1 or self.groups.ndim != 2 or self.free_in.shape != self.groups.shape[1:]:
            raise InvalidInput(
                f"a prospect of {self.lasts.shape} jobs, groups {self.groups.shape} and times {self.free_in.shape}: "
                "(J,), (levels, M) and (M,) expected"
            )
        for times in (self.lasts, self.free_in):
            if not (np.isfinite(times) & (times >= 0)).all():
                raise InvalidInput("times of a prospect must be finite, and at least 0 s")


class ForesightedMethod(Protocol):
    """A placement method that can use a prospect, too."""

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""

    def place_with(self, window: Window, prospect: Prospect) -> Placed:
        """Nodes for every job of the window."""


class Times(NamedTuple):
    """How near in time nodes of a window become free, for what is compiled.

    Two nodes that become free d [s] apart are near by exp(-d / fade); 1 where that is at once.

    Parameters
    ----------
    alike
        A node of a job to one of another, or of its own; shape (J, J).
    soon
        A node of a job to one that stays idle; shape (J,).
    lost
        By how much nearer the held nodes below a switch are to an idle node than to a node of a job, in sum; shape
        (J, levels, F), for at most F switches of a level.
    """

    alike: Floats
    soon: Floats
    lost: Floats


def times_of(window: Window, prospect: Prospect, fade: float) -> Times:
    """Times beside a window; `fade` > 0 [s].

    Raises
    ------
    InvalidInput
        When the prospect is of another window.
    """
    jobs, groups = len(window.sizes), window.tables.groups
    levels, switches = len(window.hops), int(groups[0, -1]) + 1 if groups.size else 0
    if len(prospect.lasts) != jobs or len(prospect.groups) != levels:
        raise InvalidInput(
            f"a prospect of {len(prospect.lasts)} jobs and {len(prospect.groups)} levels beside a window of {jobs} and "
            f"{levels}: the same expected"
        )
    lasts, free_in = prospect.lasts, prospect.free_in
    nearer = np.exp(-free_in / fade) - np.exp(-np.abs(lasts[:, None] - free_in) / fade)
    lost = np.zeros((jobs, len(groups), switches))
    for level in range(levels - 1):
        known, first = np.unique(window.groups[level], return_index=True)
        at = np.searchsorted(known, prospect.groups[level])
        seen = at < len(known)
        seen[seen] = known[at[seen]] == prospect.groups[level][seen]
        switch = groups[level, first][at[seen]]
        for job in range(jobs):
            lost[job, level] = np.bincount(switch, nearer[job, seen], minlength=switches)
    return Times(np.exp(-np.abs(lasts[:, None] - lasts) / fade), np.exp(-lasts / fade), lost)


def no_times(window: Window) -> Times:
    """Nothing is known: nodes of jobs never become free."""
    jobs, groups = len(window.sizes), window.tables.groups
    switches = int(groups[0, -1]) + 1 if groups.size else 0
    return Times(np.zeros((jobs, jobs)), np.zeros(jobs), np.zeros((jobs, len(groups), switches)))
