"""The loop that joins a rule to a world, simulated or real."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from coscheduler.nouns import SharedRun, SharingDecision, SharingRule, SharingView


class World(Protocol):
    """Where jobs share cores. What is measured goes up as views and ended jobs, decisions come down."""

    def advance(self) -> SharingView | None:
        """Wait for the next moment at which a rule is asked; None when there is nothing more to decide."""

    def apply(self, decisions: Iterable[SharingDecision]) -> None: ...
    def learned(self) -> Iterable[SharedRun]:
        """Jobs that have ended since this was asked last."""


def drive(world: World, rule: SharingRule, *, until: Callable[[], bool] = lambda: False) -> None:
    """Let a rule decide until there is nothing more to decide; jobs that have ended teach it first.

    Parameters
    ----------
    until
        Asked before each look; true ends this sooner.
    """
    while not until() and (view := world.advance()) is not None:
        _teach(world, rule)
        world.apply(rule.decide(view))
    _teach(world, rule)


def _teach(world: World, rule: SharingRule) -> None:
    for run in world.learned():
        rule.learn(run)
