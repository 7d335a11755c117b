"""DNA sequences in FASTA and FASTQ files, plain or gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

Record = tuple[str, str]  # title, whose first word is the id, and bases


def read(path: Path) -> Iterator[Record]:
    """Yield the sequences of a file; qualities are left out.

    Raises
    ------
    ValueError
        If it is neither FASTA nor FASTQ, or has no sequences.
    """
    with _open(path) as file:
        first = file.readline()
        if first.startswith(">"):
            yield from _fasta(first, file)
        elif first.startswith("@"):
            yield from _fastq(path, first, file)
        else:
            raise ValueError(f"{path} has no sequences: expected FASTA, which begins with '>', or FASTQ, with '@'")


def write(path: Path, records: Iterator[Record] | list[Record]) -> None:
    """Write a FASTA file, one line a sequence."""
    with path.open("w") as file:
        file.writelines(f">{title}\n{bases}\n" for title, bases in records)


def _open(path: Path) -> IO[str]:
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def _fasta(first: str, file: IO[str]) -> Iterator[Record]:
    title, lines = first[1:].strip(), list[str]()
    for line in file:
        if line.startswith(">"):
            yield title, "".join(lines)
            title, lines = line[1:].strip(), []
        else:
            lines.append(line.strip())
    yield title, "".join(lines)


def _fastq(path: Path, first: str, file: IO[str]) -> Iterator[Record]:
    title, number = first, 1
    while title:
        bases, plus, qualities = (line.strip() for line in [*islice(file, 3), "", "", ""][:3])
        if not (title.startswith("@") and plus.startswith("+") and len(bases) == len(qualities)):
            raise ValueError(f"{path}, line {number}: expected four lines: @title, bases, + and as many qualities")
        yield title[1:].strip(), bases
        title, number = file.readline(), number + 4
