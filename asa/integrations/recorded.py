"""What a run's log says of its tasks: who did what, where and when, for formats of other people's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

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
        self._all = table = attempts_of(run)
        places = np.arange(len(table))
        done = table.outcome == TaskOutcome.DONE
        rank = np.where(done, places - 2 * len(table), -places)  # of those that returned the first, else the last one
        order = np.lexsort((rank, table.index, table.stage))
        stage, index = table.stage[order], table.index[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (stage[1:] != stage[:-1]) | (index[1:] != index[:-1])
        rows = order[first]
        cuts = np.searchsorted(table.stage[rows], np.arange(1, len(table.stage_names)))
        self._rows = dict(zip(table.stage_names, np.split(rows, cuts), strict=False))
        self._returned = rows[done[rows]]

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """In the order in which they depend on one another; what a task has added waits for the stage of that."""
        begun = {spec.name: spec for spec in self.start.stages}
        found = []
        for stage in self._run.in_order:
            before = stage.spec.predecessors or ((stage.origin,) if stage.origin else ())
            found.append(replace(begun.get(stage.spec.name, stage.spec), predecessors=before))
        return tuple(found)

    def tasks(self, stage: str) -> range:
        last = self._all.index[self._rows[stage][-1]] if self.ran(stage) else -1
        return range(max(self._run.stages[stage].width or 0, int(last) + 1))

    def ran(self, stage: str) -> bool:
        """Whether any task of a stage has ended."""
        return bool(len(self._rows.get(stage, ())))

    def attempts(self, stage: str, *, returned: bool = False) -> Iterator[LastAttempt]:
        """How a stage's tasks ended last, in order, or only those that `returned`; one that returned stands."""
        table, progress = self._all, self._run.stages[stage]
        errors = {index: each.message for index, each in progress.failed.items()} | progress.errors
        for row in self._rows[stage] if self.ran(stage) else ():
            index, failed = int(table.index[row]), table.outcome[row] != TaskOutcome.DONE
            if not (failed and returned):
                error = errors.get(index, "") or "it failed" if failed else ""
                node = table.node_names[table.node[row]]
                yield LastAttempt(stage, index, node, float(table.started[row]), float(table.ended[row]), error)

    def reused(self, stage: str) -> Iterator[tuple[int, str]]:
        """Tasks of a stage that did not run, as the result of another run stands for each; and which run."""
        table, sources = self._all, self._run.stages[stage].sources
        if not sources:
            return
        rows = self._returned[table.stage[self._returned] == table.stage_names.index(stage)] if self.ran(stage) else []
        ran = {int(table.index[row]) for row in rows}
        for run, ranges in sources:
            for index in (index for start, stop in ranges for index in range(start, stop)):
                if index not in ran and self._run.stages[stage].is_done(index):
                    yield index, run

    @property
    def first(self) -> float | None:
        """When the first of all attempts at tasks that returned began [s since the epoch]; None when none did."""
        return float(self._all.started[self._returned].min()) if len(self._returned) else None

    @property
    def nodes(self) -> list[str]:
        """On which nodes tasks returned."""
        return sorted(self._all.node_names[number] for number in np.unique(self._all.node[self._returned]))


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


def pieces(document: Any, indent: str = "") -> Iterator[str]:
    """A JSON document as text, in pieces. In it an iterator may stand for a list: a line for each of its elements, of
    which no other is held.

    >>> print("".join(pieces({"a": 1, "b": iter([{"c": []}, 2])})))
    {
     "a": 1,
     "b": [
      {"c": []},
      2
     ]
    }
    """
    try:
        yield json.dumps(document)
        return
    except TypeError:  # there is an iterator in it
        if not isinstance(document, dict | Iterator):
            raise
    named = isinstance(document, dict)
    items = document.items() if isinstance(document, dict) else ((None, item) for item in document)
    yield "{" if named else "["
    between = ""
    for name, item in items:
        yield f"{between}\n {indent}" + (f"{json.dumps(name)}: " if named else "")
        yield from pieces(item, indent + " ")
        between = ","
    yield f"\n{indent}" + ("}" if named else "]")


def timestamp(at: float) -> str:
    """A time [s since the epoch] as RFC 3339 has it.

    >>> timestamp(1_700_000_000.25)
    '2023-11-14T22:13:20.250+00:00'
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
