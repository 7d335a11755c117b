"""The four stages of the Statistics workflow as plain functions, with what they exchange.

Quantiles are exact although no task sees all values. The first pass counts values in fixed, narrow bins; the counts of
all chunks tell which bin has the values that a quantile lies between; the second pass collects the values in those
bins only. This is selection by radix: the bins are the leading bits of the numbers, so they need no limits agreed
on beforehand.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import power
from numpy.typing import NDArray

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DROPPED_BITS = 40  # of 64: what is left, 24 bits, makes 4096 bins between a power of two and the next

Counts = NDArray[np.int64]
Tally = tuple[NDArray[Any], Counts]  # different bins or values, in order, and how many there are of each


@dataclass(frozen=True)
class Summary:
    """What the first pass finds in one column of a chunk."""

    missing: int
    total: float
    low: float
    high: float
    bins: Tally


@dataclass(frozen=True)
class Column:
    """What the first pass found in a column of the whole file.

    Attributes
    ----------
    count, missing
        How many values there are and are not.
    mean, low, high
        Mean, minimum and maximum; nan if there are no values.
    wanted
        Bins that have the values next to a quantile.
    ranks
        Where these values are among all that the wanted bins have, counted from 0: for each quantile the one below
        and the one above.
    """

    count: int
    missing: int
    mean: float
    low: float
    high: float
    wanted: Counts
    ranks: list[tuple[int, int]]


@dataclass(frozen=True)
class Detail:
    """What the second pass finds in one column of a chunk: squares of distances from the mean, and wanted values."""

    squares: float
    values: Tally


def summarise(chunk: int, chunks: int, data: Path, out: Path) -> tuple[Path, list[Summary]]:
    """Stage 1, parallel: read a chunk, keep its values in a file of numbers, and summarise each column."""
    values = power.read(data, chunk, chunks)
    kept = out / "chunks" / f"{chunk:04d}.npy"
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, values)
    return kept, [_summary(column) for column in values.T]


def combine(summaries: Sequence[tuple[Path, list[Summary]]]) -> list[Column]:
    """Stage 2, sequential: put the summaries of all chunks together, and find where the quantiles are."""
    return [_column(parts) for parts in zip(*(columns for _, columns in summaries), strict=True)]


def refine(summary: tuple[Path, list[Summary]], columns: Sequence[Column]) -> list[Detail]:
    """Stage 3, parallel: look at a chunk again, now that the means and the wanted bins are known."""
    kept, _ = summary
    return [_detail(values, column) for values, column in zip(np.load(kept).T, columns, strict=True)]


def finish(columns: Sequence[Column], details: Sequence[list[Detail]], out: Path) -> dict[str, Any]:
    """Stage 4, sequential: write the table of all statistics; return its path and the statistics of each column."""
    results = {
        name: _statistics(column, parts)
        for name, column, parts in zip(power.COLUMNS, columns, zip(*details, strict=True), strict=True)
    }
    table = out / "statistics.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["column", *next(iter(results.values()))])
        writer.writerows([name, *figures.values()] for name, figures in results.items())
    return {"table": table, "statistics": results}


def bin_of(values: power.Array) -> Counts:
    """Return the number of each value's bin, which is in the order of the values.

    The bits of a positive floating point number, taken for an integer, are in the order of the numbers; those of a
    negative one run the other way.
    """
    bits = (values + 0.0).view(np.int64)  # there is a zero with a sign: adding takes it away
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits) >> DROPPED_BITS


def add_up(tallies: Sequence[Tally]) -> Tally:
    """Put tallies of several chunks together."""
    keys, places = np.unique(np.concatenate([keys for keys, _ in tallies]), return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, places, np.concatenate([counts for _, counts in tallies]))
    return keys, counts


def _summary(column: power.Array) -> Summary:
    values = column[~np.isnan(column)]
    return Summary(
        missing=len(column) - len(values),
        total=float(values.sum()),
        low=float(values.min(initial=math.inf)),
        high=float(values.max(initial=-math.inf)),
        bins=np.unique(bin_of(values), return_counts=True),
    )


def _column(parts: Sequence[Summary]) -> Column:
    bins, counts = add_up([part.bins for part in parts])
    count, missing = int(counts.sum()), sum(part.missing for part in parts)
    if not count:
        return Column(0, missing, math.nan, math.nan, math.nan, bins, [])
    mean = math.fsum(part.total for part in parts) / count
    neighbours = np.array([_neighbours(count, share)[:2] for share in QUANTILES])
    ends = np.cumsum(counts)
    places = np.searchsorted(ends, neighbours, side="right")
    wanted = np.unique(places)
    skipped = (ends - counts)[wanted] - (np.cumsum(counts[wanted]) - counts[wanted])  # in bins below, not wanted
    ranks = neighbours - skipped[np.searchsorted(wanted, places)]
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    return Column(count, missing, mean, low, high, bins[wanted], [(int(below), int(above)) for below, above in ranks])


def _detail(column: power.Array, found: Column) -> Detail:
    values = column[~np.isnan(column)]
    wanted = values[np.isin(bin_of(values), found.wanted)]
    return Detail(float(np.square(values - found.mean).sum()), np.unique(wanted, return_counts=True))


def _statistics(column: Column, parts: Sequence[Detail]) -> dict[str, float]:
    values, counts = add_up([part.values for part in parts])
    ends = np.cumsum(counts)
    squares = math.fsum(part.squares for part in parts)
    variance = squares / (column.count - 1) if column.count > 1 else math.nan
    quantiles = [math.nan] * len(QUANTILES)
    if column.count:
        pairs = [values[np.searchsorted(ends, ranks, side="right")] for ranks in column.ranks]
        quantiles = [
            float(np.quantile(pair, _neighbours(column.count, share)[2]))
            for pair, share in zip(pairs, QUANTILES, strict=True)
        ]
    return {
        "count": column.count,
        "missing": column.missing,
        "mean": column.mean,
        "median": quantiles[QUANTILES.index(0.5)],
        "standard deviation": math.sqrt(variance),
        "variance": variance,
        "minimum": column.low,
        **{f"{share:.0%}": quantile for share, quantile in zip(QUANTILES, quantiles, strict=True)},
        "maximum": column.high,
    }


def _neighbours(count: int, share: float) -> tuple[int, int, float]:
    """Return the ranks, from 0, of the values below and above a quantile, and how far it is from one to the other."""
    position = (count - 1) * share
    below = math.floor(position)
    return below, min(below + 1, count - 1), position - below
