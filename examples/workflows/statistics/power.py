"""The format of the household power data: one line a minute, fields between semicolons, ``?`` or nothing if missing.

References
----------
G. Hebrail, A. Berard, "Individual household electric power consumption", UCI Machine Learning Repository, 2012.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = (
    "Global_active_power",
    "Global_reactive_power",
    "Voltage",
    "Global_intensity",
    "Sub_metering_1",
    "Sub_metering_2",
    "Sub_metering_3",
)
HEAD = ";".join(("Date", "Time", *COLUMNS))

Array = NDArray[np.float64]


def read(path: Path, chunk: int = 0, chunks: int = 1) -> Array:
    """Read the values in one of several chunks of a file: the lines that begin in it.

    Parameters
    ----------
    path
        A plain file.
    chunk, chunks
        Which of how many parts of as many bytes each.

    Returns
    -------
    Array
        Shape (lines, columns), nan where a value is missing.

    Raises
    ------
    ValueError
        If the first line or any line of the chunk is not in the format.
    """
    size = path.stat().st_size
    start, stop = (size * end // chunks for end in (chunk, chunk + 1))
    with path.open("rb") as file:
        head = str(file.readline().strip(), "utf-8", "replace")
        if head != HEAD:
            raise ValueError(f"{path} begins with {head[:80]!r}: expected {HEAD!r}")
        if start > file.tell():
            file.seek(start - 1)
            file.readline()  # the line before belongs to the chunk before, even if only its end is missing there
        begin = file.tell()
        text = file.read(stop - 1 - begin) + file.readline() if begin < stop else b""  # to the end of the last line
    if not text.strip():
        return np.empty((0, len(COLUMNS)))
    try:
        return np.loadtxt(
            io.BytesIO(_numeric(text)), delimiter=";", usecols=range(2, 2 + len(COLUMNS)), ndmin=2, encoding="latin-1"
        )
    except ValueError as error:
        raise ValueError(f"{path}, in the bytes {begin} to {begin + len(text)}: {error}") from None


def _numeric(text: bytes) -> bytes:
    """Write nan for missing values; where a line has none at all, its last field is empty."""
    text = text.replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"
    text = text.replace(b"?", b"nan").replace(b";;", b";nan;").replace(b";;", b";nan;")  # twice, as they may overlap
    return text.replace(b";\n", b";nan\n")
