"""The stages of the BLAST workflow that are plain functions: what is before the search and after it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import fasta


def split(query: Path, parts: int, out: Path) -> list[Path]:
    """Divide a file of sequences into at most `parts` FASTA files, in order, of about as many bases each.

    Raises
    ------
    ValueError
        If there are no sequences, or only empty ones.
    """
    ends = list(accumulate(len(bases) for _, bases in fasta.read(query)))
    if not ends[-1]:
        raise ValueError(f"{query} has titles, but no bases: there is nothing to look for")
    numbers = (max(0, (end - 1) * parts // ends[-1]) for end in ends)
    folder = out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, group in groupby(zip(numbers, fasta.read(query), strict=True), key=lambda pair: pair[0]):
        files.append(folder / f"part_{number:04d}.fa")
        fasta.write(files[-1], (record for _, record in group))
    return files


def merge(tables: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write all hits into one table; return its path, and the number of hits and of queries that have one."""
    table = out / "hits.tsv"
    with table.open("wb") as whole:
        for path in tables:
            with path.open("rb") as part:
                shutil.copyfileobj(part, whole)
    with table.open() as file:
        queries = [line.split("\t", 1)[0] for line in file]
    return {"table": table, "hits": len(queries), "queries": len(set(queries))}
