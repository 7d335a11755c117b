"""What a run's log says of its tasks: who did what, where and when, for formats of other people's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from asa.core.errors import InvalidInput
from asa.core.event import Event, RunStarted, TasksDone
from asa.core.run import FoldedRun, TaskOutcome
from asa.core.stage import StageSpec
from asa.metrics.attempts import attempts_of


@dataclass(frozen=True, slots=True)
class LastAttempt:
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
    """

    def __init__(self, run: FoldedRun) -> None:
        assert run.start is not None
        self.start, self.state, self.message = run.start, run.outcome, run.message
        self.last = run.last if run.ended is None else run.ended
        self._run = run
        self._ended: dict[str, dict[int, LastAttempt]] = {}
        for attempt in attempts_of(run):
            known = self._ended.setdefault(attempt.stage, {})
            if attempt.index not in known or known[attempt.index].error:
                failed = attempt.outcome is not TaskOutcome.DONE
                error = run.stages[attempt.stage].errors.get(attempt.index, "") or "it failed" if failed else ""
                known[attempt.index] = LastAttempt(
                    attempt.stage, attempt.index, attempt.node, attempt.started, attempt.ended, error
                )

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """In the order in which they depend on one another."""
        return self.start.stages

    def tasks(self, stage: str) -> range:
        return range(max(self._run.stages[stage].width or 0, max(self._ended.get(stage, {}), default=-1) + 1))

    def attempts(self, stage: str) -> list[LastAttempt]:
        """How a stage's tasks ended last, in order; one that returned stands."""
        known = self._ended.get(stage, {})
        return [known[index] for index in sorted(known)]


def recorded(events: Iterable[Event | TasksDone]) -> RecordedRun:
    """A run from its events, in the order of the log.

    Raises
    ------
    InvalidInput
        When the first one does not say what was run.
    """
    run = FoldedRun()
    for event in events:
        if run.start is None and not isinstance(event, RunStarted):
            break
        run.on(event)
    if run.start is None:
        raise InvalidInput("these events do not say what was run: the first must be RunStarted, as in a run's log")
    return RecordedRun(run)


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
