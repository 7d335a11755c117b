"""Compare the hits of a search with where the queries were cut out.

python check.py hits.tsv truth.json [--golden golden.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from make_data import LENGTH, Origin, read_truth


@dataclass(frozen=True)
class Hit:
    """A line of BLAST's table.

    Attributes
    ----------
    source
        Id of the database sequence.
    identity
        Share of the bases that are the same [%].
    start, end
        First and last base there; the first is the greater one on the complementary strand.
    """

    source: str
    identity: float
    start: int
    end: int


@dataclass(frozen=True)
class Figures:
    """How good a search is.

    Attributes
    ----------
    hits
        Lines of the table.
    found
        Queries whose first hit, the best, is at their origin: same sequence and strand, most of the bases.
    missed
        Queries with an origin that was not found so.
    mistaken
        Queries without an origin that have a hit.
    identity
        Mean over the queries found of the share of bases that are the same [%].
    """

    hits: int
    found: int
    missed: int
    mistaken: int
    identity: float

    def problems(self, golden: Figures) -> list[str]:
        """Return what differs from the golden figures by more than versions of BLAST may."""
        problems = []
        for name, slack in {"hits": 2, "found": 1, "missed": 1, "mistaken": 0, "identity": 0.01}.items():
            mine, expected = getattr(self, name), getattr(golden, name)
            if not abs(mine - expected) <= slack:
                problems.append(f"{name} is {mine:g}, expected {expected:g} within {slack}")
        return problems


def measure(table: Path, truth: dict[str, Origin | None]) -> Figures:
    """Measure a table of hits against the truth.

    Raises
    ------
    ValueError
        If the table is not BLAST's output format 6, or has a query that the truth does not know.
    """
    hits, best = 0, dict[str, Hit]()
    for number, line in enumerate(table.read_text().splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 12 or fields[0] not in truth:
            raise ValueError(f"{table}, line {number}: expected 12 columns, the first a query that was made: {line!r}")
        hits += 1
        best.setdefault(fields[0], Hit(fields[1], float(fields[2]), int(fields[8]), int(fields[9])))
    origins = {name: origin for name, origin in truth.items() if origin is not None}
    found = [best[name].identity for name, origin in origins.items() if name in best and at_origin(best[name], origin)]
    return Figures(
        hits=hits,
        found=len(found),
        missed=len(origins) - len(found),
        mistaken=len(best.keys() - origins.keys()),
        identity=round(sum(found) / len(found), 3) if found else 0.0,
    )


def at_origin(hit: Hit, origin: Origin) -> bool:
    """Whether a hit is where a query comes from."""
    low, high = sorted((hit.start, hit.end))
    shared = min(high, origin.end) - max(low, origin.start) + 1
    return hit.source == origin.source and (hit.start > hit.end) == origin.reverse and shared >= 0.9 * LENGTH


def main() -> None:
    """Check a table from the command line."""
    parser = argparse.ArgumentParser(description="Compare the hits of a search with where the queries were cut out.")
    parser.add_argument("table", type=Path, help="of hits, from the workflow")
    parser.add_argument("truth", type=Path, help="from make_data.py")
    parser.add_argument("--golden", type=Path, help="figures to compare with")
    options = parser.parse_args()
    try:
        figures = measure(options.table, read_truth(options.truth))
        golden = Figures(**json.loads(options.golden.read_text())) if options.golden else figures
    except (OSError, ValueError, TypeError) as error:
        parser.error(str(error))
    print(json.dumps(asdict(figures), indent=1))
    if problems := figures.problems(golden):
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
