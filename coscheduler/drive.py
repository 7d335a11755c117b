"""The loop that joins a rule to a world, simulated or real, and a rule that keeps what it learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from asa.log.database import LearnedStore, Record
from coscheduler.nouns import SharedRun, SharingDecision, SharingRule, SharingView


class World(Protocol):
    """Where jobs share cores. What is measured goes up as views and ended jobs, decisions come down."""

    def advance(self) -> SharingView | None:
        """Wait for the next moment at which a rule is asked; None when there is nothing more to decide.

        `Starved` is raised when jobs wait, none runs and none will be submitted: the rule has started none.
        """

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        """Carry decisions out, in order; one that breaks a law raises `IllegalDecision`, those before it are done."""

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


OWN = ("pending", "random")
"""Parts of a rule's state that belong to one run."""


class Remembered:
    """A rule with a memory; itself a sharing rule, and a context manager.

    Each job that ends is learned on top of what other runs have learned meanwhile; what belongs to
    this run, such as decisions whose losses are to come, is stored beside it after every change, so that a run that is
    taken up again goes on where it stopped.

    Parameters
    ----------
    store
        Shared by all runs.
    name
        What the rule is called, its options included: other options learn for themselves.
    """

    def __init__(self, rule: SharingRule, store: LearnedStore, name: str, run: str) -> None:
        self._rule, self._store, self._run = rule, store, run
        self._key = f"sharing {name}"
        self._adopt(store.get(self._key))
        self._stored = self._own()

    def decide(self, view: SharingView) -> Sequence[SharingDecision]:
        """What the rule decides; what it has to remember of it is stored before it is applied."""
        decisions = self._rule.decide(view)
        if (own := self._own()) != self._stored:
            self._store.update(self._key, lambda record: self._record(record or self._shared(), own))
            self._stored = own
        return decisions

    def learn(self, run: SharedRun) -> None:
        """A job of this run has ended; it is learned once, however often this is called."""

        before, mine = self._rule.state(), self._own()

        def change(record: Record | None) -> Record:
            self._rule.restore(before)  # it may be called again
            self._adopt(record, mine)
            self._rule.learn(run)
            return self._record((record or {}) | self._shared(), self._own())

        if self._store.learn_once(self._key, f"{self._run} {run.job}", change):
            self._stored = self._own()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self.close()

    def close(self) -> None:
        """This run is over: drop what belongs to it alone."""

        def change(record: Record | None) -> Record | None:
            return record and record | {"runs": {run: own for run, own in record["runs"].items() if run != self._run}}

        self._store.update(self._key, change)

    def state(self) -> dict[str, Any]:
        return self._rule.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Let the rule take it over; nothing is stored before it learns again."""
        self._rule.restore(state)

    def _adopt(self, record: Record | None, mine: Record | None = None) -> None:
        """Take over what all runs have learned, and of this run's own `mine`, or else where it stopped."""
        if record is not None:
            shared = {name: value for name, value in record.items() if name != "runs"}
            self._rule.restore(shared | (record["runs"].get(self._run, {}) if mine is None else mine))

    def _own(self) -> dict[str, Any]:
        return {name: value for name, value in self._rule.state().items() if name in OWN}

    def _shared(self) -> dict[str, Any]:
        return {name: value for name, value in self._rule.state().items() if name not in OWN}

    def _record(self, record: Record, own: dict[str, Any]) -> Record:
        return record | {"runs": record.get("runs", {}) | {self._run: own}}
