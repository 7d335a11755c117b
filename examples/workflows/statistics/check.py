"""Compare the statistics that the workflow found with those of the whole file, taken at once.

python check.py statistics.csv power.txt [--golden golden.json]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import power

Figures = dict[str, dict[str, float]]  # by column and name
CLOSE = 1e-9  # relative difference that the order of additions may make
ROUNDED = "mean", "variance", "standard deviation"  # the others must be equal


def whole(data: Path) -> Figures:
    """Compute the statistics of a file with numpy, all values in memory."""
    figures = {}
    for name, column in zip(power.COLUMNS, power.read(data).T, strict=True):
        values = column[~np.isnan(column)]
        figures[name] = {
            "count": float(len(values)),
            "missing": float(len(column) - len(values)),
            "mean": float(values.mean()),
            "median": float(np.median(values)),
            "standard deviation": float(values.std(ddof=1)),
            "variance": float(values.var(ddof=1)),
            "minimum": float(values.min()),
            **{f"{share:.0%}": float(np.quantile(values, share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95)},
            "maximum": float(values.max()),
        }
    return figures


def read_table(table: Path) -> Figures:
    """Read the table that the workflow wrote."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row.pop("column"): {name: float(value) for name, value in row.items()} for row in rows}


def problems(mine: Figures, expected: Figures) -> list[str]:
    """Return what differs."""
    found = [f"column {name} is in one of them only" for name in mine.keys() ^ expected.keys()]
    for column in mine.keys() & expected.keys():
        for name, value in expected[column].items():
            other = mine[column].get(name, float("nan"))
            if not np.isclose(other, value, rtol=CLOSE if name in ROUNDED else 0, atol=0, equal_nan=True):
                found.append(f"{name} of {column} is {other!r}, expected {value!r}")
    return sorted(found)


def main() -> None:
    """Check a table from the command line."""
    parser = argparse.ArgumentParser(description="Compare statistics with those of the whole file, taken at once.")
    parser.add_argument("table", type=Path, help="of statistics, from the workflow")
    parser.add_argument("data", type=Path, help="plain file that they are of")
    parser.add_argument("--golden", type=Path, help="figures to compare with, too")
    options = parser.parse_args()
    try:
        mine = read_table(options.table)
        found = problems(mine, whole(options.data))
        if options.golden:
            found += problems(mine, json.loads(options.golden.read_text()))
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))
    if found:
        sys.exit("\n".join(found))
    print(f"{len(mine)} columns as expected")


if __name__ == "__main__":
    main()
