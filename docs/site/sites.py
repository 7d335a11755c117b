"""A hook of MkDocs: results of `asa selftest`, docs/sites/*.json, as a table in the place of ``<!-- sites -->``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

MARK = "<!-- sites -->"
CHECKS = ("a run", "a held place", "a resume after kill -9")
WORDS = {True: "yes", False: "**NO**", None: "not reached"}
FORMAT = 1


def on_page_markdown(markdown: str, config: Any, **_options: Any) -> str:
    """The page with the table in the place of the mark."""
    return markdown.replace(MARK, table(sorted((Path(config.docs_dir) / "sites").glob("*.json"))))


def table(files: list[Path]) -> str:
    """A row for each file, and below it what else was not as it should be.

    Raises
    ------
    ValueError
        When a file is not a result of `asa selftest`.
    """
    head = "| site | backend | Slurm | ASA | Python | on | " + " | ".join(CHECKS) + " |"
    lines, notes = [head, "|---" * (6 + len(CHECKS)) + "|"], list[str]()
    for file in files:
        try:
            result = json.loads(file.read_text())
            if result["format"] != FORMAT:
                raise ValueError(f"format {result['format']}: {FORMAT} expected")
            rows = {row["what"]: row for row in result["rows"]}
            slurm = rows.get("slurm: Slurm", {"found": ""})["found"]
            day = datetime.fromtimestamp(result["at"], UTC).date().isoformat()
            about = [file.stem, result["backend"], slurm, result["asa"], result["python"], day]
            lines.append(f"| {' | '.join([*map(_text, about), *(WORDS[rows[check]['ok']] for check in CHECKS)])} |")
            notes += [
                f"- {_text(file.stem)}: {_text(what)}: {_text(row['found'])}"
                for what, row in rows.items()
                if row["ok"] is not True
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: {error!r}. Expected what asa selftest --json has written") from error
    return "\n".join([*lines, "", *notes])


def _text(value: object) -> str:
    return escape(str(value)).replace("|", "&#124;").replace("\n", " ")
