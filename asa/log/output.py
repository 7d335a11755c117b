"""What tasks print: files in the run's directory that workers write to and anybody may read while they do.

A worker's standard output and standard error are one file, ``*.out``, which is only ever appended to; beside it stands
``*.index``, lines that say whose text is where. A file for each task would be a million files. Index lines hold the
stage's name in JSON at their end, times are seconds since the epoch, places are bytes from the beginning of the text::

    asa-output 1 {"node": "n1", "allocation": "wf-3f.0"}    the first line: version, and where it is from
    b TIME PLACE TASK COUNT STAGE                  COUNT tasks of the stage, TASK first, are begun here in turn
    e STARTED PLACE LENGTH TASK HOW STAGE          a task has ended; HOW is returned, failed, killed or part
    c PLACE CUT SKIP                               CUT bytes are gone there, SKIP bytes of the file hold nothing
    r                                              a program has opened the text anew: what was said before is void

What is printed by a task that says nothing of its end, since its node died with it, is found behind its ``b`` line.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # workers load this module
    from pathlib import Path

    from asa.core.event import TaskFailed

OUTPUT = "output"
"""Directory of these files, in the run's directory."""
OUTPUT_VERSION = 1
"""Of these files."""
HEAD = 13
"""How long the first line of a text is, which is there until a program opens the text anew, and empties it [bytes]."""
RESET = "r\n"

_CHUNK = 1 << 16
_LINE_MOST = 1 << 20
_WIDE = 200
"""Bytes of a line, where how much to read of a long text is to be known beforehand."""


named = lru_cache(json.dumps)
"""A stage's name as it is in the index."""


def first_line(node: str, allocation: str) -> str:
    """What an index begins with."""
    return f"asa-output {OUTPUT_VERSION} {json.dumps({'node': node, 'allocation': allocation})}\n"


def begun(at: float, place: int, task: int, count: int, stage: str) -> str:
    """The index's line for tasks that are begun."""
    return f"b {at!r} {place} {task} {count} {named(stage)}\n"


def ended(started: float, place: int, length: int, task: int, how: str, stage: str) -> str:
    """The index's line for a task that has ended, or for a part of its text."""
    return f"e {started!r} {place} {length} {task} {how} {named(stage)}\n"


def cut(place: int, gone: int, skip: int) -> str:
    """The index's line for text that was taken out."""
    return f"c {place} {gone} {skip}\n"


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a task has printed, or that says something about what it printed.

    Parameters
    ----------
    stage
        "" for what a worker printed between its tasks.
    index
        Position in the stage; None where the node died before it was noted which task of several printed it.
    attempt
        1 for the first.
    node
        Where.
    started
        When the attempt began [s since the epoch].
    text
        Without its end of line.
    note
        Whether ASA says it: how the attempt ended where it did not return, and where text was cut.
    """

    stage: str
    index: int | None
    attempt: int
    node: str
    started: float
    text: str
    note: bool = False

    @property
    def task(self) -> str:
        """Stage and index, and which attempt it was where it was not the first; ``-`` between tasks.

        >>> OutputLine("align", 3, 2, "n1", 1e9, "hello").task
        'align[3] try 2'
        """
        name = f"{self.stage}[{'?' if self.index is None else self.index}]" if self.stage else "-"
        return f"{name} try {self.attempt}" if self.attempt > 1 else name


@dataclass(frozen=True)
class _Piece:
    """Text of one attempt, from one place of a file to another; `how` it ended if this is the end of it."""

    file: _File
    started: float
    stage: str
    index: int | None
    first: int
    last: int
    how: str = ""


@dataclass
class _File:
    """A file of output and how far it was read."""

    text: Path
    node: str = ""
    read: int = 0
    rest: bytes = b""
    place: int = HEAD
    now: tuple[float, str, int, int] | None = None
    """When the tasks that print now were begun, their stage, the first of them, how many they are."""
    since: int = 0
    """Where their text begins."""
    cuts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def pieces(self, last: bool, live: bool) -> Iterator[_Piece]:
        """What is new; of text behind which nothing is noted yet whole lines if it is wanted `live`, or all at last."""
        size = _size(self.text)  # before the index: what was noted by then may be behind it, and is read next time
        if reset := self._reset():
            self.read, self.rest, self.place, self.now = reset, b"", 0, None
            self.cuts.clear()
        for line in self._index():
            yield from self._noted(line)
        if size > self.place and (last or (live and self.now is not None and self.now[3] == 1)):
            yield from self._open(size if last else self._line_end(size))
        if last and self.now is not None and self.now[3] == 1 and self.place > self.since:
            yield _Piece(self, self.now[0], self.now[1], self.now[2], self.place, self.place, "open")

    def _reset(self) -> int:
        """Behind the last line, of those not read yet, that says that the text was emptied; 0 if there is none."""
        found = 0
        with suppress(OSError), open(self.text.with_suffix(".index"), "rb") as file:
            file.seek(at := max(0, self.read - 1))
            while data := file.read(_CHUNK):
                if (place := data.rfind(b"\n" + RESET.encode())) >= 0:
                    found = at + place + 1 + len(RESET)
                if len(data) == _CHUNK:
                    file.seek(-len(RESET), os.SEEK_CUR)
                at = file.tell()
        return found

    def _index(self) -> Iterator[list[str]]:
        try:
            with open(self.text.with_suffix(".index"), "rb") as file:
                file.seek(self.read)
                while data := file.read(_CHUNK):
                    self.read += len(data)
                    *lines, self.rest = (self.rest + data).split(b"\n")
                    yield from (line.decode(errors="replace").split(" ", 6) for line in lines)
        except FileNotFoundError:  # the run was removed meanwhile
            return

    def _noted(self, words: list[str]) -> Iterator[_Piece]:
        with suppress(ValueError, IndexError, KeyError, TypeError):  # a line that is damaged says nothing
            match words[0]:
                case "asa-output" if int(words[1]) == OUTPUT_VERSION:
                    self.node = str(json.loads(" ".join(words[2:]))["node"])
                case "b":
                    at, place, task, count = float(words[1]), int(words[2]), int(words[3]), int(words[4])
                    yield from self._open(place)
                    self.now, self.since = (at, str(json.loads(" ".join(words[5:]))), task, count), place
                case "e":
                    started, place, length, task = float(words[1]), int(words[2]), int(words[3]), int(words[4])
                    stage = str(json.loads(words[6]))
                    yield from self._open(place)
                    first, self.place = max(self.place, place), max(self.place, place + length)
                    how = "" if words[5] == "part" else words[5]
                    yield _Piece(self, started, stage, task, first, self.place, how)
                    if self.now is not None and self.now[3] == 1:
                        self.now = None
                case "c":
                    self.cuts[int(words[1])] = int(words[2]), int(words[3])

    def _open(self, end: int) -> Iterator[_Piece]:
        """Text up to here that belongs to what is running, or to nothing."""
        if end > self.place:
            at, stage, task, count = self.now or (0.0, "", 0, 0)
            yield _Piece(self, at, stage, task if count == 1 else None, self.place, end)
            self.place = end

    def _line_end(self, size: int) -> int:
        """Behind the last whole line before `size`; `size` where a line is very long."""
        with suppress(OSError), open(self.text, "rb") as file:
            at = size
            while at > max(self.place, size - _LINE_MOST):
                start = max(self.place, at - _CHUNK)
                file.seek(start)
                found = file.read(at - start).rfind(b"\n")
                if found >= 0:
                    return start + found + 1
                at = start
        return size if size - self.place > _LINE_MOST else self.place

    def lines(self, first: int, last: int) -> Iterator[tuple[str, bool]]:
        """The text between two places in lines, and whether one is a note."""
        rest = b""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open(self.text, "rb"))
            except OSError as error:
                yield f"[what was printed here cannot be read: {error.strerror}]", True
                return
            places = sorted(self.cuts)
            at = first
            while at < last:
                number = bisect_right(places, at) - 1
                if number >= 0 and (inside := places[number] + self.cuts[places[number]][1]) > at:
                    at = inside
                    continue
                until = min([last, at + _CHUNK, *places[number + 1 : number + 2]])
                file.seek(at)
                data = file.read(until - at)
                if not data:  # a program has opened the file anew, and emptied it
                    break
                at += len(data)
                *lines, rest = (rest + data).split(b"\n")
                yield from ((line.decode(errors="replace"), False) for line in lines)
                if at in self.cuts or len(rest) > _LINE_MOST:
                    if rest:
                        yield rest.decode(errors="replace"), False
                    rest = b""
                if at in self.cuts:
                    yield f"[{self.cuts[at][0]:,} bytes are cut here: see --output-limit]", True
        if rest:
            yield rest.decode(errors="replace"), False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class OutputReader:
    """Reads what the tasks of a run have printed, and goes on from there when it is asked again.

    Parameters
    ----------
    directory
        The run's.
    stage, index
        Of what; None for all.
    failed
        Only attempts that did not return.
    grep
        Only lines in which this regular expression is found.

    Raises
    ------
    re.error
        When that is none.
    """

    def __init__(
        self,
        directory: Path,
        stage: str | None = None,
        index: int | None = None,
        *,
        failed: bool = False,
        grep: str | None = None,
    ) -> None:
        self._folder, self._stage, self._index, self._failed = directory / OUTPUT, stage, index, failed
        self._files: dict[str, _File] = {}
        self._grep: Callable[[str], object] = re.compile(grep).search if grep else lambda text: True
        self._notes = not grep
        self._reported: set[tuple[str, int, float]] = set()

    def read(self, failures: Iterable[TaskFailed], last: bool = True, over: bool = False) -> Iterator[OutputLine]:
        """What is new, ordered by when attempts began.

        Parameters
        ----------
        failures
            Attempts of the run that have failed, as its log has them.
        last
            Whether it is not asked again; else text of running tasks is given in whole lines.
        over
            Whether nothing runs any more: what has not ended by then has been killed.
        """
        known = _Failures(failures)
        for piece in self._pieces(last):
            yield from self._said(piece, known, over)
        if self._notes and last:
            for event in known:
                if self._is_wanted(event.stage, event.index):
                    yield from self._end(event, known)

    def newest(self, failures: Iterable[TaskFailed], most: int) -> list[OutputLine]:
        """The last lines of what is new, `most` of them; only so much text is read of what is long."""
        known, lines = _Failures(failures), deque[OutputLine](maxlen=most)
        for piece in deque(self._pieces(last=False), maxlen=most):
            short = replace(piece, first=max(piece.first, piece.last - most * _WIDE))
            lines.extend(self._said(short, known, over=False))
        return list(lines)

    def _pieces(self, last: bool) -> Iterator[_Piece]:
        for name in self._new():
            self._files[name] = _File(self._folder / name)
        found = (file.pieces(last, not self._failed) for file in self._files.values())
        for piece in heapq.merge(*found, key=lambda piece: piece.started):
            if self._is_wanted(piece.stage, piece.index):
                yield piece

    def _new(self) -> list[str]:
        try:
            found = os.listdir(self._folder)
        except OSError:
            return []
        return sorted(name for name in found if name.endswith(".out") and name not in self._files)

    def _is_wanted(self, stage: str, index: int | None) -> bool:
        if self._stage is not None and stage != self._stage:
            return False
        return self._index is None or index == self._index

    def _said(self, piece: _Piece, known: _Failures, over: bool) -> Iterator[OutputLine]:
        event = None if piece.index is None else known.of(piece)
        if self._failed and event is None and piece.how not in ("failed", "killed"):
            return
        attempt = 1 if piece.index is None else known.attempt(piece.stage, piece.index, piece.started)
        which = piece.stage, piece.index, attempt, piece.file.node, piece.started
        for text, note in piece.file.lines(piece.first, piece.last):
            if self._grep(text):
                yield OutputLine(*which, text, note)
        if self._notes and event is not None and piece.how in ("failed", "killed", "open"):
            yield from self._end(event, known)
        elif self._notes and over and piece.how == "open":
            yield OutputLine(*which, "[its output ends here: no end of this attempt was reported]", True)

    def _end(self, event: TaskFailed, known: _Failures) -> Iterator[OutputLine]:
        """How an attempt ended that did not return, once."""
        if (which := (event.stage, event.index, event.at)) not in self._reported:
            self._reported.add(which)
            what = "its output ends here" if event.infrastructure else "failed"
            attempt = known.attempt(event.stage, event.index, event.started)
            text = f"[{what}: {event.error}]"
            yield OutputLine(event.stage, event.index, attempt, event.node, event.started, text, True)


class _Failures:
    """Attempts that failed, by task."""

    def __init__(self, events: Iterable[TaskFailed]) -> None:
        self._of: dict[tuple[str, int], list[TaskFailed]] = {}
        for event in events:
            self._of.setdefault((event.stage, event.index), []).append(event)

    def __iter__(self) -> Iterator[TaskFailed]:
        return (event for events in self._of.values() for event in events)

    def attempt(self, stage: str, index: int, started: float) -> int:
        """Which attempt it was that began then."""
        return 1 + sum(event.at <= started and event.started < started for event in self._of.get((stage, index), ()))

    def of(self, piece: _Piece) -> TaskFailed | None:
        """How the attempt failed that has printed this; None if it did not, or that is not known."""
        assert piece.index is not None
        events = self._of.get((piece.stage, piece.index), [])
        for event in events:
            if event.started == piece.started:
                return event
        # one that was lost with its node is known to have been there at that time only
        later = (event for event in events if event.node == piece.file.node and event.at >= piece.started)
        return next(later, None) if piece.how in ("", "open") else None


def parsed_task(text: str) -> tuple[str, int | None]:
    """Stage and index from ``STAGE[INDEX]`` or ``STAGE``.

    >>> parsed_task("align[3]"), parsed_task("align")
    (('align', 3), ('align', None))
    """
    found = re.fullmatch(r"(.+)\[(\d+)\]", text, re.DOTALL)
    return (found[1], int(found[2])) if found else (text, None)
