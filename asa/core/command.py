"""What programs say to people: what a command returns, which the command line shows, and what is told meanwhile."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


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


def tell(line: str) -> None:
    """Say something to people while a program runs: on standard error, at once, as ASA's."""
    print(f"asa: {line}", file=sys.stderr, flush=True)


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
