"""What a run's log says of its tasks: who did what, where and when, for formats of other people's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from asa.core.errors import InvalidInput
from asa.core.event import (
    Event,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    TaskDone,
    TaskFailed,
)
from asa.core.stage import StageSpec


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt at a task, from `started` to `ended` [s since the epoch]; `error` is "" when it returned."""

    stage: str
    index: int
    node: str
    started: float
    ended: float
    error: str = ""

    @property
    def run_time_s(self) -> float:
        """How long it ran [s]; clocks of node and driver may differ a little."""
        return max(0.0, self.ended - self.started)


@dataclass
class RecordedRun:
    """A run as far as its log goes.

    Attributes
    ----------
    start
        Its first event.
    last
        When the log ends, or the outcome was known [s since the epoch].
    state, message
        How it stands.
    widths
        Stage -> number of its tasks, as far as known.
    ended
        Stage -> task -> how it ended last; one that returned stands.
    """

    start: RunStarted
    last: float = 0.0
    state: RunState = RunState.RUNNING
    message: str = ""
    widths: dict[str, int] = field(default_factory=dict)
    ended: dict[str, dict[int, Attempt]] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """In the order in which they depend on one another."""
        return self.start.stages

    def tasks(self, stage: str) -> range:
        """Numbers of a stage's tasks."""
        return range(max(self.widths.get(stage, 0), max(self.ended.get(stage, {}), default=-1) + 1))

    def attempts(self, stage: str) -> list[Attempt]:
        """How a stage's tasks ended last, in order."""
        known = self.ended.get(stage, {})
        return [known[index] for index in sorted(known)]

    def on(self, event: Event) -> None:
        """Fold one event."""
        match event:
            case StageExpanded():
                self.widths[event.stage] = event.width
            case TaskDone():
                self._note(Attempt(event.stage, event.index, event.node, event.started, event.at))
            case TaskFailed():
                self._note(Attempt(event.stage, event.index, event.node, event.started, event.at, event.error))
            case RunEnded():
                self.state, self.message = event.state, event.message
        if self.state is RunState.RUNNING or isinstance(event, RunEnded):
            self.last = max(self.last, event.at)

    def _note(self, attempt: Attempt) -> None:
        known = self.ended.setdefault(attempt.stage, {})
        if attempt.index not in known or known[attempt.index].error:
            known[attempt.index] = attempt


def recorded(events: Iterable[Event]) -> RecordedRun:
    """A run from its events, in the order of the log.

    Raises
    ------
    InvalidInput
        When the first one does not say what was run.
    """
    found: RecordedRun | None = None
    for event in events:
        if isinstance(event, RunStarted):
            widths = {stage.name: stage.width for stage in event.stages if stage.width is not None}
            found = RecordedRun(event, event.at, widths=widths)
        elif found is None:
            break
        else:
            found.on(event)
    if found is None:
        raise InvalidInput("these events do not say what was run: the first must be RunStarted, as in a run's log")
    return found


def written(name: str) -> str:
    """A name in the letters that identifiers of all these formats may have.

    >>> written("fit: a*x²")
    'fit__a_x_'
    """
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)


def identifiers(stages: Iterable[StageSpec]) -> dict[str, str]:
    """Stage -> its name in such letters, of which no two are the same."""
    found: dict[str, str] = {}
    for stage in stages:
        name, number = written(stage.name), 1
        while name in found.values():
            number += 1
            name = f"{written(stage.name)}.{number}"
        found[stage.name] = name
    return found


def timestamp(at: float) -> str:
    """A time [s since the epoch] as RFC 3339 has it.

    >>> timestamp(1_700_000_000.25)
    '2023-11-14T22:13:20.250+00:00'
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
