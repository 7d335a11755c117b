"""What commands return, and the kinds of values that their options take."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from asa.core import units
from asa.core.errors import InvalidInput


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command.

    Parameters
    ----------
    data
        JSON-able, for ``--json``.
    text
        For people.
    exit_code
        0 when all is well.
    """

    data: Any
    text: str
    exit_code: int = 0


def table(rows: list[dict[str, Any]], empty: str) -> str:
    """Rows as aligned columns, or `empty` when there are none.

    >>> print(table([{"name": "a", "jobs": 12}, {"name": "bcd", "jobs": 3}], "nothing"))
    name  jobs
    a       12
    bcd      3
    """
    if not rows:
        return empty
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[k]) for row in cells)) for k, name in enumerate(names)]
    numeric = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    lines = []
    for row in [names, *cells]:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
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


def duration(text: str) -> float:
    """A duration [s], as `asa.core.units.duration` takes it."""
    try:
        return units.duration(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
