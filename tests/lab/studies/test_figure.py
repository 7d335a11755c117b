from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.lab.studies.figure import Figure, read_rows


@dataclass(frozen=True)
class Measured:
    name: str
    seconds: float | None
    parts: tuple[Measured, ...] = ()


ROWS = [Measured("a", 0.5), Measured("b", None)]


def lines(rows: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{"what": row.name} for row in rows]


def write(rows: Sequence[Measured], path: str | Path) -> None:
    Path(path).write_text(" ".join(row.name for row in rows))


def test_rows_are_shown_and_drawn(tmp_path: Path) -> None:
    figure = Figure(ROWS, lines, write)
    assert figure.table() == [{"what": "a"}, {"what": "b"}]
    figure.draw(tmp_path / "figure.txt")
    assert (tmp_path / "figure.txt").read_text() == "a b"


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    kept = tmp_path / "rows.json"
    kept.write_text(json.dumps(Figure(ROWS, lines, write).to_json()))
    assert read_rows(kept, lambda parts, **values: Measured(**values)) == ROWS


def test_rows_within_rows_are_written() -> None:
    inside = {"name": "a", "seconds": 0.5, "parts": ()}
    (row,) = Figure([Measured("c", 1.0, (ROWS[0],))], lines, write).to_json()["rows"]
    assert row == {"name": "c", "seconds": 1.0, "parts": (inside,)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"rows": []}', "has no rows"),
        ('{"rows": [{"name": "a", "speed": 3}]}', "is not what asa figure --json writes of this figure"),
        ('{"rows": [{"name": "a"}]}', "is not what asa figure --json writes of this figure"),
        ('{"rows": [3]}', "is not what asa figure --json writes of this figure"),
        ('{"lines": []}', "is not what asa figure --json writes of this figure"),
        ("[]", "is not what asa figure --json writes of this figure"),
        ("rows", "is not what asa figure --json writes of this figure"),
        (None, "is not what asa figure --json writes of this figure"),
    ],
)
def test_files_that_hold_something_else(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "rows.json").write_text(text)
    with pytest.raises(InvalidInput, match=f"rows.json {said}"):
        read_rows(tmp_path / "rows.json", Measured)
