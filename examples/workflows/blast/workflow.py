"""A BLAST search as a workflow: split the queries, search for them in parallel, merge the hits.

    python workflow.py --query reads.fq.gz --database genome.fa.gz --out hits
    asa run workflow.py --set cores=4

Without files of your own, a small standard set is made in ``blast-data`` first. See README.md for the stages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import fasta
import stages
from make_data import make_data

import asa

sys.path.append(str(Path(__file__).resolve().parents[1]))
import common

EXAMPLE = Path("blast-data")
OUT = EXAMPLE / "out"

# Tasks run in other processes, where these modules cannot be imported: their functions travel with the tasks.
for module in (common, fasta, stages):
    cloudpickle.register_pickle_by_value(module)

makeblastdb = asa.command(
    "makeblastdb -in {database} -dbtype nucl -title {database.name} -out {out}/database",
    outputs={"index": "{out}/database.ndb"},
    walltime="30m",
)
blastn = asa.command(
    "blastn -query {part} -db {index.parent}/{index.stem} -task {task} -evalue {evalue} -outfmt 6 -out {hits}",
    outputs={"hits": "{part.parent}/{part.stem}.tsv"},
    walltime="30m",
)


def build(
    query: Path,
    database: Path,
    out: Path,
    *,
    cores: int = 2,
    parts: int = 8,
    task: str = "blastn",
    evalue: float = 1e-10,
) -> asa.Node:
    """Return the workflow that searches; its result has the ``table`` of hits, and how many ``hits`` and ``queries``.

    Parameters
    ----------
    query
        Sequences to look for: FASTA or FASTQ, plain or gzipped.
    database
        Sequences to look in: FASTA, plain or gzipped.
    out
        The folder for everything that is made; made if missing. Its path must be the same wherever tasks run.
    cores
        Of the parallel stage's allocation, at least 1; the other stages ask for one.
    parts
        How many pieces to search for, at least 1; fewer if there are fewer queries.
    task
        How to search: ``"megablast"`` is faster, ``"blastn"`` finds more distant relatives.
    evalue
        Hits that chance would give more often than this are left out.

    Raises
    ------
    FileNotFoundError
        If there is no such query or database.
    ValueError
        If `parts` is too small, or a path has a blank in it, which BLAST takes for the end of a name.
    """
    if parts < 1:
        raise ValueError(f"parts must be at least 1, not {parts}")
    query, database, out = common.find(query), common.find(database), out.absolute()
    for path in (database, out):
        if " " in str(path):
            raise ValueError(f"BLAST cannot use paths with blanks, such as {str(path)!r}: give another one")
    sequential = asa.stage(cores=1, walltime="10m")

    plain = sequential(common.unpack)(database, out) if database.suffix in common.PACKED else database
    index = makeblastdb(plain, out)
    pieces = sequential(stages.split)(query, parts, out)
    hits = blastn.options(cores=cores).map(pieces, index=index, task=task, evalue=evalue)
    return sequential(stages.merge)(hits, out)


def workflow(
    query: str = "", database: str = "", out: str = str(OUT), *, cores: int = 2, parts: int = 8, task: str = "blastn"
) -> asa.Node:
    """Return the workflow for the given files, or for the standard small set, which is made if it is not there."""
    if bool(query) != bool(database):
        raise ValueError("give both query and database, or neither for the standard set")
    if not query and not (EXAMPLE / "truth.json").exists():  # written last, after the sequences
        make_data(EXAMPLE)
    inputs = Path(query or EXAMPLE / "query.fa"), Path(database or EXAMPLE / "database.fa")
    return build(*inputs, Path(out), cores=cores, parts=parts, task=task)


def main() -> None:
    """Run the workflow from the command line."""
    parser = common.make_parser("Search for DNA sequences in a database.", str(OUT))
    parser.add_argument("--query", default="", help="sequences to look for, FASTA or FASTQ (a small set is made)")
    parser.add_argument("--database", default="", help="sequences to look in, FASTA (a small set is made)")
    parser.add_argument("--parts", type=int, default=8, help="pieces to split the queries into (8)")
    parser.add_argument("--task", default="blastn", help="how to search: megablast is faster (blastn)")
    options = parser.parse_args()
    made = common.run(
        "blast",
        parser,
        options,
        lambda: workflow(
            options.query,
            options.database,
            options.out,
            cores=options.cores,
            parts=options.parts,
            task=options.task,
        ),
    )
    print(f"{made['hits']} hits of {made['queries']} queries: {made['table']}")


if __name__ == "__main__":
    main()
