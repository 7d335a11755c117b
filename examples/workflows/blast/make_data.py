"""Make a database of random DNA and queries cut out of it, for the BLAST workflow and its check.

Each query is a piece of a database sequence, from either strand, with up to 5 % of its bases changed; one in
twenty is of no sequence at all. Ids look like ``seq_00017``: BLAST gives such ids back as they are.

    python make_data.py --sequences 2000 --queries 1000 --seed 1 --out blast-data

writes ``database.fa``, ``query.fa`` and ``truth.json``. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import fasta
import numpy as np

BASES = np.frombuffer(b"ACGT", dtype=np.uint8)
SHORTEST, LONGEST = 1000, 2500  # a database sequence [bases]
LENGTH = 300  # a query [bases]
MOST_CHANGED = 0.05  # share of a query's bases
UNRELATED = 0.05  # share of the queries


@dataclass(frozen=True)
class Origin:
    """Where a query was cut out.

    Attributes
    ----------
    source
        Id of the database sequence.
    start, end
        First and last base there, counted from 1, as BLAST does.
    reverse
        Whether it is the complementary strand, read backwards.
    changed
        How many bases were changed.
    """

    source: str
    start: int
    end: int
    reverse: bool
    changed: int


def make_data(out: Path, sequences: int = 2000, queries: int = 1000, seed: int = 1) -> dict[str, Origin | None]:
    """Write a database and queries, and return the origin of each query, None for those that have none.

    Parameters
    ----------
    out
        Folder to write into; made if missing.
    sequences, queries
        How many, at least 1.
    seed
        Of everything.

    Raises
    ------
    ValueError
        If a number is too small.
    """
    if sequences < 1 or queries < 1:
        raise ValueError(f"there must be at least 1 sequence and 1 query, not {sequences} and {queries}")
    rng = np.random.default_rng(seed)
    database = [rng.integers(0, 4, int(length)) for length in rng.integers(SHORTEST, LONGEST + 1, sequences)]
    pieces, truth = list[fasta.Record](), dict[str, Origin | None]()
    for number in range(queries):
        bases, origin = _cut(rng, database)
        name = f"query_{number:05d}"
        pieces.append((name, _text(bases)))
        truth[name] = origin
    out.mkdir(parents=True, exist_ok=True)
    fasta.write(out / "database.fa", [(_name(number), _text(bases)) for number, bases in enumerate(database)])
    fasta.write(out / "query.fa", pieces)
    plain = {name: asdict(origin) if origin else None for name, origin in truth.items()}
    (out / "truth.json").write_text(json.dumps(plain, indent=1) + "\n")
    return truth


def read_truth(path: Path) -> dict[str, Origin | None]:
    """Read what `make_data` wrote into ``truth.json``."""
    return {name: Origin(**origin) if origin else None for name, origin in json.loads(path.read_text()).items()}


def _cut(rng: np.random.Generator, database: list[np.ndarray]) -> tuple[np.ndarray, Origin | None]:
    """Make one query."""
    if rng.random() < UNRELATED:
        return rng.integers(0, 4, LENGTH), None
    number = int(rng.integers(len(database)))
    start = int(rng.integers(len(database[number]) - LENGTH + 1))
    bases = database[number][start : start + LENGTH].copy()
    changes = rng.random(LENGTH) < rng.uniform(0, MOST_CHANGED)
    bases[changes] = (bases[changes] + rng.integers(1, 4, changes.sum())) % 4
    reverse = bool(rng.random() < 0.5)
    if reverse:
        bases = 3 - bases[::-1]  # A and T, C and G are at opposite ends of BASES
    return bases, Origin(_name(number), start + 1, start + LENGTH, reverse, int(changes.sum()))


def _name(number: int) -> str:
    return f"seq_{number:05d}"


def _text(bases: np.ndarray) -> str:
    return str(BASES[bases].tobytes(), "ascii")


def main() -> None:
    """Make data from the command line."""
    parser = argparse.ArgumentParser(description="Make a database of random DNA and queries cut out of it.")
    parser.add_argument("--sequences", type=int, default=2000, help="in the database (2000)")
    parser.add_argument("--queries", type=int, default=1000, help="to look for (1000)")
    parser.add_argument("--seed", type=int, default=1, help="of everything (1)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    options = parser.parse_args()
    try:
        truth = make_data(options.out, options.sequences, options.queries, options.seed)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    related = sum(origin is not None for origin in truth.values())
    print(f"{options.sequences} sequences and {len(truth)} queries, {related} of them related, in {options.out}")


if __name__ == "__main__":
    main()
