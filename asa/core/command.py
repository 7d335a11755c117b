"""What commands return, and the kinds of values that their options take."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from asa.core import units
from asa.core.errors import InvalidInput

INTERRUPTED = 130
"""The exit code of a command that was ended by Ctrl-C or a signal."""


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command.

    Parameters
    ----------
    data
        JSON-able, for ``--json``.
    text
        For people. It goes to standard output; to standard error with another exit code than 0 and no `trouble`.
    exit_code
        0 when all is well.
    trouble
        For people, on standard error: what of it went wrong.
    """

    data: Any
    text: str
    exit_code: int = 0
    trouble: str = ""


_COLUMN_LEAST = 16
"""How narrow a column may become by wrapping."""


def screen_width() -> float:
    """Columns of the terminal that standard output is, or as many as ``COLUMNS`` says; infinite where neither is so."""
    said = os.environ.get("COLUMNS", "")
    asked = said.isdecimal() and int(said) > 0
    return shutil.get_terminal_size().columns if asked or sys.stdout.isatty() else math.inf


def table(rows: list[dict[str, Any]], empty: str, *, width: float | None = None) -> str:
    """Rows as aligned columns, or `empty` when there are none, in lines of `width` letters (see `screen_width`).

    Where they do not fit, the widest column of words wraps; if that is not enough, each row becomes a paragraph.

    >>> rows = [{"name": "a", "jobs": 12, "why": "its nodes are gone"}, {"name": "bcd", "jobs": 3, "why": None}]
    >>> print(table(rows, "nothing"))
    name  jobs  why
    a       12  its nodes are gone
    bcd      3  -
    >>> print(table(rows, "nothing", width=22))
    name: a
      jobs: 12
      why: its nodes are
      gone
    name: bcd
      jobs: 3
    """
    if not rows:
        return fitted(empty, width)
    names, most = list(rows[0]), screen_width() if width is None else width
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[k]) for row in cells)) for k, name in enumerate(names)]
    numeric = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    if (over := sum(widths) + 2 * (len(widths) - 1) - most) > 0:
        words = [k for k, is_number in enumerate(numeric) if k and not is_number]
        wordy = max(words, key=widths.__getitem__, default=0)
        if widths[wordy] - over < _COLUMN_LEAST or not wordy:
            return "\n".join(_paragraph(names, row, most) for row in cells)
        widths[wordy] -= int(over)
    lines = []
    for row in [names, *cells]:
        wrapped = (
            [text] if len(text) <= room else _Wrapper(room).wrap(text) for text, room in zip(row, widths, strict=True)
        )
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = (
                text.rjust(room) if right else text.ljust(room)
                for text, room, right in zip(parts, widths, numeric, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines at spaces and behind commas; not in names of runs or options, if they fit into a line."""

    wordsep_simple_re = re.compile(r"(\s+)|(?<=,)")

    def __init__(self, width: float, indent: str = "") -> None:
        least = max(int(width), len(indent) + 1)
        super().__init__(least, subsequent_indent=indent, break_on_hyphens=False)


def _paragraph(names: list[str], row: list[str], width: float) -> str:
    """A row as its first value, and beneath it the others that there are, each behind its name."""
    lines, line = fitted(f"{names[0]}: {row[0]}", width).split("\n"), ""
    for name, text in zip(names[1:], row[1:], strict=True):
        if text in ("", "-"):
            continue
        part = f"{name}: {text}"
        if line and len(line) + len(part) + 2 <= width:
            line += f"  {part}"
            continue
        lines += [line] if line else []
        *whole, line = fitted(f"  {part}", width, "").split("\n")
        lines += whole
    return "\n".join([*lines, line] if line else lines)


def fitted(text: str, width: float | None = None, indent: str = "  ") -> str:
    """Text with its longer lines wrapped to `width` letters (see `screen_width`), indented once more by `indent`.

    >>> print(fitted("sort: done, 3 tasks\\nfirst: waits", 14))
    sort: done, 3
      tasks
    first: waits
    """
    most, lines = screen_width() if width is None else width, list[str]()
    for line in text.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]
        lines += [line] if len(line) <= most else _Wrapper(most, margin + indent).wrap(line)
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split("\n"))


def positive(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def port(text: str) -> int:
    """A number of a port; 0 for any."""
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, found {text}")
    return int(text)


def duration(text: str) -> float:
    """A duration [s], as `asa.core.units.duration` takes it."""
    try:
        return units.duration(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def seconds(text: str) -> float:
    """A duration [s], as `duration` takes it; a number without a unit is one of seconds."""
    return duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)


def memory(text: str) -> int:
    """A size [bytes], as `asa.core.units.memory` takes it."""
    try:
        return units.memory(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """The option that gives a workflow its arguments."""
    what = "an argument of the workflow, when that is a function; repeatable"
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=what)
