"""Make household power data of any size, in the format of the original.

A household with a daily rhythm: a kitchen, a laundry with a cold store that switches on and off, a water heater
with air conditioning, and the rest, which no sub-meter counts. About 1.2 % of the minutes are missing.

    python make_data.py --minutes 100000 --seed 1 --out power.txt

The same arguments give the same bytes, and fewer minutes the beginning of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from power import HEAD, Array

BEGIN = datetime(2006, 12, 16, 17, 24)
DAY = 24 * 60  # [minutes]
GAP = 18  # a day that has a gap misses this many minutes,
GAPS = 1.0  # and there are so many gaps a day, on average


def make_data(path: Path, minutes: int = 100_000, seed: int = 1) -> None:
    """Write a file of so many lines, at least 1, below the head.

    Raises
    ------
    ValueError
        If `minutes` is too small.
    """
    if minutes < 1:
        raise ValueError(f"minutes must be at least 1, not {minutes}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("w", newline="\n") as file:
        file.write(f"{HEAD}\n")
        for first in range(0, minutes, DAY):
            file.writelines(_lines(first, min(DAY, minutes - first), seed))
    unfinished.rename(path)


def _lines(first: int, count: int, seed: int) -> Iterator[str]:
    """Yield the first `count` lines of the day that begins with the minute `first`."""
    values, missing = _day(np.random.default_rng([seed, first]), BEGIN.hour * 60 + BEGIN.minute)
    for minute in range(count):
        moment = BEGIN + timedelta(minutes=first + minute)
        time = f"{moment.day}/{moment.month}/{moment.year};{moment:%H:%M:%S}"
        if missing[minute]:
            yield f"{time};?;?;?;?;?;?;\n"
        else:
            active, reactive, voltage, intensity, kitchen, laundry, heater = values[minute]
            yield (
                f"{time};{active:.3f};{reactive:.3f};{voltage:.3f};{intensity:.3f};"
                f"{kitchen:.3f};{laundry:.3f};{heater:.3f}\n"
            )


def _day(rng: np.random.Generator, begin: int) -> tuple[Array, Array]:
    """Return a day's values, shape (minutes, columns), and which minutes are missing.

    Parameters
    ----------
    rng
        For this day alone.
    begin
        Minute of the day that comes first.
    """
    clock = (begin + np.arange(DAY)) % DAY
    evening, morning = (np.exp(-0.5 * ((clock - peak) / 90) ** 2) for peak in (20 * 60, 8 * 60))
    kitchen = _spells(rng, 0.002 * (morning + 2 * evening), 25) * rng.integers(30, 42, DAY)  # [Wh a minute]
    laundry = np.maximum(_spells(rng, 0.001 * morning, 60) * rng.integers(20, 40, DAY), (clock // 45 % 2) * 1.0)
    heater = _spells(rng, 0.004 + 0.02 * morning + 0.01 * evening, 30) * rng.integers(16, 20, DAY)
    rest = 0.2 + 0.5 * (morning + evening) + rng.exponential(0.15, DAY)  # [kW]
    active = rest + 0.06 * (kitchen + laundry + heater)
    voltage = 241 - 0.9 * active + 2 * np.cos(2 * np.pi * clock / DAY) + rng.normal(0, 1.5, DAY)
    reactive = np.maximum(0, rng.normal(0.12, 0.1, DAY))
    intensity = np.round(1000 * active / voltage / 0.2) * 0.2  # the meter counts in steps of 0.2 A
    missing = np.zeros(DAY, dtype=bool)
    for start in rng.integers(0, DAY, rng.poisson(GAPS)):
        missing[start : start + GAP] = True
    return np.column_stack([active, reactive, voltage, intensity, kitchen, laundry, heater]), missing


def _spells(rng: np.random.Generator, chance: Array | float, length: int) -> Array:
    """Return 1.0 in the `length` minutes after each random start, 0.0 elsewhere, shape (minutes,)."""
    starts = (rng.random(DAY) < chance).astype(float)
    return np.minimum(1.0, np.convolve(starts, np.ones(length))[:DAY])


def main() -> None:
    """Make data from the command line."""
    parser = argparse.ArgumentParser(description="Make household power data in the format of the original.")
    parser.add_argument("--minutes", type=int, default=100_000, help="lines below the head (100000)")
    parser.add_argument("--seed", type=int, default=1, help="of everything (1)")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    try:
        make_data(options.out, options.minutes, options.seed)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{options.minutes} minutes in {options.out}")


if __name__ == "__main__":
    main()
