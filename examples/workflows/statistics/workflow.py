"""Statistics of household power consumption as a workflow of two parallel and two sequential stages, intertwined.

    python workflow.py --data household_power_consumption.txt --out statistics
    asa run workflow.py --set cores=4

Without a file of your own, a small standard one is made in ``statistics-data`` first. See README.md for the stages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import power
import stages
from make_data import make_data

import asa

sys.path.append(str(Path(__file__).resolve().parents[1]))
import common

EXAMPLE = Path("statistics-data")
OUT = EXAMPLE / "out"

# Tasks run in other processes, where these modules cannot be imported: their functions travel with the tasks.
for module in (common, power, stages):
    cloudpickle.register_pickle_by_value(module)


def build(data: Path, out: Path, cores: int = 2, chunks: int = 8) -> asa.Node:
    """Return the workflow; its result has the path of the ``table`` and the ``statistics`` by column.

    Parameters
    ----------
    data
        A file in the format of the household power data, plain, gzipped or packed with bzip2.
    out
        The folder for everything that is made; made if missing. Its path must be the same wherever tasks run.
    cores
        Of the allocation of each parallel stage, at least 1; sequential stages ask for one.
    chunks
        How many tasks the parallel stages have, at least 1.

    Raises
    ------
    FileNotFoundError
        If there is no such data.
    ValueError
        If `chunks` is too small.
    """
    if chunks < 1:
        raise ValueError(f"chunks must be at least 1, not {chunks}")
    data, out = common.find(data), out.absolute()
    parallel = asa.stage(cores=cores, walltime="30m")
    sequential = asa.stage(cores=1, walltime="10m")

    plain = sequential(common.unpack)(data, out) if data.suffix in common.PACKED else data
    summaries = parallel(stages.summarise).map(range(chunks), chunks=chunks, data=plain, out=out)
    columns = sequential(stages.combine)(summaries)
    details = parallel(stages.refine).map(summaries, columns=columns)
    return sequential(stages.finish)(columns, details, out)


def workflow(data: str = "", out: str = str(OUT), cores: int = 2, chunks: int = 8) -> asa.Node:
    """Return the workflow for the given file, or for the standard small one, which is made if it is not there."""
    path = Path(data or EXAMPLE / "power.txt")
    if not data and not path.exists():
        make_data(path)
    return build(path, Path(out), cores, chunks)


def main() -> None:
    """Run the workflow from the command line."""
    parser = common.make_parser("Compute statistics of household power consumption.", str(OUT))
    parser.add_argument("--data", default="", help="file of measurements (a small one is made)")
    parser.add_argument("--chunks", type=int, default=8, help="tasks of each parallel stage (8)")
    options = parser.parse_args()
    made = common.run(
        "statistics", parser, options, lambda: workflow(options.data, options.out, options.cores, options.chunks)
    )
    for name, figures in made["statistics"].items():
        print(f"{name}: " + ", ".join(f"{key} {value:.6g}" for key, value in figures.items()))
    print(f"table: {made['table']}")


if __name__ == "__main__":
    main()
