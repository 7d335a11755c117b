"""What tasks take as time goes on: memory and cores of those that run for more than a few seconds.

Beside a file that a worker prints to (`asa.log.output`) stands ``*.usage``, once a task of that worker has run for
`FIRST_S`; the supervisor, which looks at tasks anyway, appends lines that end in the stage's name in JSON::

    asa-usage 1 {"node": "n1", "allocation": "wf-3f.0"}    the first line: version, and where it is from
    u AT SPAN STARTED TASK MEMORY CORES STAGE      the `SPAN` seconds before AT: most bytes, and cores on average

The longer a task has run, the more rarely a line is written: twice as long makes at most `MOST` / 2 lines more. Whoever
reads joins them as they become many, so that the most memory is kept.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from asa.log.output import OUTPUT, named

if TYPE_CHECKING:  # supervisors load this module
    from pathlib import Path

CURVE_VERSION = 1
"""Of these files."""
FIRST_S = 5.0
"""Time between two samples of a task that has just begun [s]."""
MOST = 60
"""Samples of a task, even; of more, two are made one."""
SUFFIX = ".usage"

_FILES_MOST, _BLOCK, _MOST_BYTES = 512, 1 << 13, 1 << 18


class UsageSample(NamedTuple):
    """What a task took in the `span_s` seconds before `at` [s since the epoch]: the most memory [bytes], and cores on
    average."""

    at: float
    span_s: float
    memory: int
    cores: float


def curve_head(node: str, allocation: str) -> str:
    """What a file begins with."""
    return f"asa-usage {CURVE_VERSION} {json.dumps({'node': node, 'allocation': allocation})}\n"


def curve_line(sample: UsageSample, started: float, task: int, stage: str) -> str:
    """The line for a sample of an attempt that started then."""
    at, span, memory, cores = sample
    return f"u {at:.3f} {span:.3f} {started!r} {task} {memory} {cores:.3f} {named(stage)}\n"


def every(count: int) -> float:
    """How long a sample is to be [s] where a task has so many already.

    >>> [every(count) for count in (0, 59, 60, 90)]
    [5.0, 5.0, 10.0, 20.0]
    """
    return FIRST_S * float(1 << max(0, count // (MOST // 2) - 1))


def thinned(samples: Iterable[UsageSample]) -> list[UsageSample]:
    """Less than `MOST` samples that say the same of longer times: the most of what was most, and the mean of means."""
    found: list[UsageSample] = []
    for sample in samples:
        found.append(sample)
        if len(found) == MOST:
            found = [_joined(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
    return found


def _joined(first: UsageSample, second: UsageSample) -> UsageSample:
    span = first.span_s + second.span_s
    cores = (first.span_s * first.cores + second.span_s * second.cores) / span if span else second.cores
    return UsageSample(second.at, span, max(first.memory, second.memory), cores)


def read_curve(
    run: Path, allocation: str, node: str, task: tuple[str, int], since: float, exact: bool = True
) -> list[UsageSample]:
    """What an attempt of a task took as time went on, thinned; empty where nothing is known.

    Parameters
    ----------
    run
        The run's directory.
    allocation, node
        Where it ran; the node is "" where that is not known.
    task
        Its stage and its index there.
    since
        When it started, by the clock of its node [s since the epoch].
    exact
        False where only this much is known: it began no sooner. Then the last of those is read.
    """
    best: tuple[float, list[UsageSample]] = (since, [])
    for path in _files(run / OUTPUT, node):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if _is_of(os.pread(descriptor, _BLOCK, 0), allocation):
                    best = max(best, _found(descriptor, task, since, exact), key=lambda each: (bool(each[1]), each[0]))
            finally:
                os.close(descriptor)
    return thinned(best[1])


def _files(folder: Path, node: str) -> list[str]:
    begin = f"{node}-" if node else ""
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.name.endswith(SUFFIX) and entry.name.startswith(begin)]
    except OSError:
        return []
    return sorted(names)[:_FILES_MOST]


def _is_of(block: bytes, allocation: str) -> bool:
    head, version, rest = (*block.partition(b"\n")[0].split(b" ", 2), b"", b"")[:3]
    with suppress(ValueError, KeyError, TypeError):
        return head == b"asa-usage" and int(version) == CURVE_VERSION and json.loads(rest)["allocation"] == allocation
    return False


_Line = tuple[float, tuple[str, int], UsageSample]


def _found(file: int, task: tuple[str, int], begin: float, exact: bool) -> tuple[float, list[UsageSample]]:
    """The last attempt of a task in a file that began then, or, unless that is `exact`, later; and its samples."""
    place, wanted, started = _first(file, begin), list[UsageSample](), begin
    for size in (_BLOCK, _MOST_BYTES):  # a worker runs one task at a time: what is wanted comes soon, or not at all
        wanted, started = list[UsageSample](), begin
        for began, which, sample in _lines(os.pread(file, size, place)):
            if which != task or (abs(began - begin) > 1e-3 if exact else began < begin):
                continue
            if began != started:
                wanted, started = [], began
            wanted.append(sample)
        if not wanted:
            break
    return started, wanted


def _first(file: int, at: float) -> int:
    """Where in a file the first line of samples taken at this time or later may be, by halves: times only grow."""
    low, high = 0, os.fstat(file).st_size
    while high - low > _BLOCK:
        middle = (low + high) // 2
        sample = next((each for _, _, each in _lines(os.pread(file, _BLOCK, middle))), None)
        if sample is not None and sample.at < at:
            low = middle
        else:
            high = middle
    return low


def _lines(data: bytes) -> Iterator[_Line]:
    """The lines of part of a file but for the first and the last, which may be parts; one that is damaged says
    nothing."""
    for line in data.split(b"\n")[1:-1]:
        words = line.split(b" ", 7)
        with suppress(ValueError, IndexError):
            if words[0] == b"u":
                at, span, started, cores = (float(words[place]) for place in (1, 2, 3, 6))
                which = str(json.loads(words[7])), int(words[4])
                if math.isfinite(at + span + started + cores):
                    yield started, which, UsageSample(at, span, int(words[5]), cores)
