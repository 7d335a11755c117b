"""Traces of a grid's intensity: CSV files of times and grams of CO2 a kilowatt-hour."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np

from asa.core.errors import InvalidInput, cause
from asa.core.intensity import MOST_G_PER_KWH, Intensity
from asa.core.units import moment

MOST_BYTES = 64 * 2**20
"""Of a file: two million lines, nineteen years in steps of five minutes."""

_EXPECTED = "'TIME,G_PER_KWH' expected, such as '2026-11-27T08:00,312' or '28800,312'"


def intensity_of(said: float | str, epoch: float = math.nan) -> Intensity:
    """The intensity that a number [g/kWh] says, the same at all times, or a file; see `read_intensity`.

    Raises
    ------
    InvalidInput
        When it is a number out of bounds, or a file that cannot be read.
    """
    try:
        constant = float(said)
    except ValueError:
        return read_intensity(str(said), epoch)
    return Intensity.constant(constant)


def read_intensity(path: str | Path, epoch: float = math.nan) -> Intensity:
    """The trace in a CSV file: lines of a time and of the intensity from then on [g/kWh].

    Times are seconds on the clock of the workload, or ISO dates and times, in UTC unless they name a zone. The last
    value holds as long as the one before. A trace in seconds begins again then, so that 24 hours are every day.
    Empty lines, lines that begin with ``#``, and a first line of headings say nothing.

    Parameters
    ----------
    epoch
        What the clock of the workload calls 0 [s since 1970]; NaN where that is not known.

    Raises
    ------
    InvalidInput
        When it cannot be read, has more than `MOST_BYTES`, fewer than two lines, dates without an `epoch`, or a line
        that is none of these, or not later than the one before; names the line.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data[:MOST_BYTES].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {cause(error)}. A trace of intensity expected") from error
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"{path} has more than {MOST_BYTES / 2**20:.0f} MiB: a shorter trace of intensity expected")
    times: list[float] = []
    values: list[float] = []
    dated: set[bool] = set()
    rows = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        at, value, is_date = _row(line)
        rows += 1
        if rows == 1 and math.isnan(at) and math.isnan(value):
            continue
        where = f"{path}, line {number}: {line[:60]!r}"
        if not (0 <= value <= MOST_G_PER_KWH and math.isfinite(at)):
            raise InvalidInput(f"{where}: {_EXPECTED}, of 0 to {MOST_G_PER_KWH:g} g/kWh")
        dated.add(is_date)
        if len(dated) > 1:
            raise InvalidInput(f"{where}: all times in seconds, or all of them dates, expected")
        if times and at <= times[-1]:
            raise InvalidInput(f"{where}: a later time than in the line before expected")
        times.append(at)
        values.append(value)
    if len(times) < 2:
        raise InvalidInput(f"{path} has {len(times)} lines with an intensity: two or more of {_EXPECTED}")
    if True in dated and math.isnan(epoch):
        raise InvalidInput(
            f"{path} has dates, and the jobs have none (an SWF log has them by UnixStartTime): give seconds on the "
            "clock of the jobs"
        )
    edges = np.array([*times, 2 * times[-1] - times[-2]])
    return Intensity(edges - epoch if True in dated else edges, np.array(values), repeats=dated == {False})


def _row(line: str) -> tuple[float, float, bool]:
    """Time, intensity, and whether the time was a date; NaN for what is none."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 2:
        return math.nan, math.nan, False
    at, value = map(_number, fields)
    return (at, value, False) if not math.isnan(at) else (moment(fields[0], datetime.UTC), value, True)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
