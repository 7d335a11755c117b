"""What tasks and stages took in earlier runs: rows that requests, widths and quotes are learned from."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from asa.core.errors import InvalidInput
from asa.core.task import SOURCES

OUTCOMES = ("ok", "memory", "time", "failed")
"""How an attempt ended: it returned, ran out of memory or time, or failed by another fault of its own."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt at a task took; None for what is not known.

    Parameters
    ----------
    stage
        Its stage, by the name that `asa.core.stage.kind_of` makes of it.
    code
        A number for what the stage does: another one when it was changed. "" for what was imported.
    machine
        Where it ran: site and partition.
    input
        Bytes that it was given: arguments, results of other tasks, and files that its arguments name.
    cores
        What it held.
    width
        Cores that tasks of its stage held at most at once in that run.
    run_time_s
        From its start to its end [s]; >= 0.
    cpu_s
        Processor time of it and all that it started [s].
    memory
        The most memory that it, and all that it started, had at once [bytes].
    asked_memory, asked_s
        The memory [bytes] and the time [s] that were asked for it.
    outcome
        One of `OUTCOMES`.
    ended
        When [s since the epoch].
    source
        One of `SOURCES`.
    tasks
        How many tasks this row stands for: of a large stage not each has a row; >= 1.

    Raises
    ------
    InvalidInput
        When a number is out of bounds, or outcome or source unknown.
    """

    stage: str
    code: str
    machine: str
    input: int | None
    cores: int | None
    width: int | None
    run_time_s: float
    cpu_s: float | None
    memory: int | None
    asked_memory: int | None
    asked_s: float | None
    outcome: str
    ended: float
    source: str
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES or self.source not in SOURCES:
            raise InvalidInput(f"{self.outcome!r}, {self.source!r}: one of {OUTCOMES} and one of {SOURCES} expected")
        _check(self)

    @property
    def threads(self) -> float | None:
        """How many processors it kept busy, on average; None where that is not known."""
        return self.cpu_s / self.run_time_s if self.cpu_s is not None and self.run_time_s > 0 else None


@dataclass(frozen=True, slots=True)
class StageUsage:
    """What a stage as a whole took in one run; None for what is not known.

    Parameters
    ----------
    stage, code, machine
        As in `Usage`.
    workflow, run
        Where it was a stage. A run counts once: what is said of it again replaces what was said before.
    tasks, done
        How many it had, and how many of them returned in this run.
    cores
        Cores of one task.
    width
        Cores that its tasks held at most at once.
    input
        Bytes that its tasks were given, in all.
    run_time_s
        From the first launch to the last end, without times in which nothing of it could run [s].
    wait_s
        Queue wait of the job that was asked for it [s]; None where it ran in the allocations of others.
    perceived_wait_s
        From when it could have started to when it did [s].
    core_hours
        Cores of its tasks times their run times, failed attempts included.
    failures
        Attempts that failed by a fault of their own.
    ended
        When [s since the epoch].

    Raises
    ------
    InvalidInput
        When a number is out of bounds.
    """

    stage: str
    code: str
    machine: str
    workflow: str
    run: str
    tasks: int
    done: int
    cores: int | None
    width: int | None
    input: int | None
    run_time_s: float
    wait_s: float | None
    perceived_wait_s: float | None
    core_hours: float
    failures: int
    ended: float

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is asked for a stage, whatever is learned.

    Parameters
    ----------
    memory, walltime_s
        Memory [bytes] and time [s] of a task; None where what is learned counts.
    since
        When that was said [s since the epoch].

    Raises
    ------
    InvalidInput
        When a number is negative or not finite.
    """

    memory: int | None
    walltime_s: float | None
    since: float

    def __post_init__(self) -> None:
        _check(self)


_NUMBERS = (
    "input", "cores", "width", "run_time_s", "cpu_s", "memory", "asked_memory", "asked_s", "wait_s", "core_hours",
    "perceived_wait_s", "walltime_s", "failures", "done", "ended", "since",
)  # fmt: skip


def _check(row: Usage | StageUsage | Frozen) -> None:
    for name in _NUMBERS:
        value = getattr(row, name, None)
        most = 2.5e11 if name in ("ended", "since") else math.inf  # in the year 9892: later times are no dates
        if value is not None and not 0 <= value < most:
            bounds = "of at least 0" if most == math.inf else "of seconds since 1970"
            raise InvalidInput(f"{name} of {type(row).__name__} is {value!r}: a number {bounds} expected")
    if not isinstance(row, Frozen) and row.tasks < 1:
        raise InvalidInput(f"a {type(row).__name__} of {row.tasks!r} tasks: at least 1 expected")


def quantile(values: Sequence[float], share: float, weights: Sequence[float] | None = None) -> float:
    """The smallest value that at least this share of all of them, by weight, does not exceed.

    Parameters
    ----------
    share
        In [0, 1].

    Raises
    ------
    InvalidInput
        When there are no values.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5), quantile([1.0, 9.0], 0.9, [99, 1])
    (2.0, 1.0)
    """
    if not values:
        raise InvalidInput("a quantile of no values: at least one expected")
    ordered = sorted(zip(values, weights or [1.0] * len(values), strict=True))
    sums = [*accumulate(weight for _, weight in ordered)]
    return ordered[min(bisect_left(sums, share * sums[-1] * (1 - 1e-12)), len(ordered) - 1)][0]


def about(rows: Sequence[Usage], size: int, factor: float = 2.0) -> list[Usage]:
    """Those that were given about as much: at most `factor` times as much or as little."""
    return [row for row in rows if row.input is not None and size / factor <= row.input <= size * factor]


def spread(rows: Sequence[Usage], most: int) -> list[Usage]:
    """At most so many rows that stand for all of them, by outcome.

    Of an outcome with too many, some are taken in the order of memory, then run time: the first, the last, in between
    the closer together the more memory they took, so that high quantiles stay what they are; and the longest. Each
    stands for those before it that were left out.

    Raises
    ------
    InvalidInput
        When `most` is less than 8.
    """
    if most < 2 * len(OUTCOMES):
        raise InvalidInput(f"at most {most!r} rows: at least {2 * len(OUTCOMES)} expected")
    if len(rows) <= most:
        return list(rows)
    kinds = [[row for row in rows if row.outcome == outcome] for outcome in OUTCOMES]
    kinds = sorted(filter(None, kinds), key=len)
    found: list[Usage] = []
    for position, some in enumerate(kinds):  # what a small one does not need, larger ones may have
        found += _evenly(some, (most - len(found)) // (len(kinds) - position))
    return sorted(found, key=lambda row: row.ended)


def _evenly(rows: list[Usage], most: int) -> list[Usage]:
    if len(rows) <= most:
        return rows
    rows = sorted(rows, key=lambda row: (row.memory or 0, row.run_time_s))
    longest, last = max(range(len(rows)), key=lambda place: rows[place].run_time_s), len(rows) - 1
    places = {last - round(last * (place / max(1, most - 2)) ** 2) for place in range(most - 1)} | {longest}
    ordered = sorted(places)
    starts = [0, *(place + 1 for place in ordered)]
    counts = [sum(row.tasks for row in rows[start : place + 1]) for start, place in zip(starts, ordered, strict=False)]
    return [replace(rows[place], tasks=count) for place, count in zip(ordered, counts, strict=True)]
