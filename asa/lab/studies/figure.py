"""A figure or a table of a paper: what was measured, how it reads, and how it is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput


@dataclass(frozen=True)
class Figure:
    """Rows of a study, and how they are shown.

    Parameters
    ----------
    rows
        What was measured: dataclasses, all of one kind.
    lines
        Makes the lines of a table for people.
    picture
        Draws the rows into a file.
    """

    rows: Sequence[Any]
    lines: Callable[[Any], list[dict[str, Any]]]
    picture: Callable[[Any, str | Path], None]

    def draw(self, path: str | Path) -> None:
        """Draw it; the suffix of `path` decides the format."""
        self.picture(self.rows, path)

    def to_json(self) -> dict[str, Any]:
        """The rows, JSON-able; a figure can be made from them again."""
        return {"rows": [asdict(row) for row in self.rows]}

    def table(self) -> list[dict[str, Any]]:
        """Lines for people."""
        return self.lines(self.rows)


def read_rows(path: str | Path, kind: Callable[..., Any]) -> list[Any]:
    """Rows of this kind in a file that ``asa figure --json`` wrote.

    Raises
    ------
    InvalidInput
        When it cannot be read, or holds none, or others.
    """
    try:
        rows = [kind(**values) for values in json.loads(Path(path).read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa figure --json writes of this figure: {error}") from error
    if not rows:
        raise InvalidInput(f"{path} has no rows")
    return rows
