"""The Montage mosaic as a workflow: nine stages, of which the first two and the fifth are parallel.

    asa run workflow.py
    asa run workflow.py --set tiles=DIR --set out=mosaic --backend slurm
    python workflow.py --tiles DIR --out mosaic

Without tiles, some of a known sky are made in ``montage-data``. See README.md for the stages.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import stages
import toolkit
from make_data import make_tiles

import asa

CORES = min(4, len(os.sched_getaffinity(0)))  # of a parallel stage, unless given
EXAMPLE = Path("montage-data")


def build(tiles: Path, out: Path, cores: int = CORES, exact: bool = False) -> asa.Node:
    """Return the workflow that makes a mosaic; its result names the files ``mosaic`` and ``picture``.

    Parameters
    ----------
    tiles
        A folder of FITS files, plain or gzipped. Their headers are read now.
    out
        The folder for everything that is made; made if missing. Its path must be the same wherever tasks run.
    cores
        Of the allocation of each parallel stage, at least 1; sequential stages ask for one.
    exact
        Reproject with mProject even where mProjectPP would do: the same picture after some 85 times as long,
        which makes small tiles a large load.

    Raises
    ------
    FileNotFoundError
        If there are no tiles.
    ValueError
        If a tile is there twice, plain and gzipped.
    MontageError
        If a tile cannot be read, or Montage is not installed.
    """
    out = out.absolute()
    plan = stages.plan(tiles.absolute(), out)
    parallel = asa.stage(cores=cores, walltime="10m")
    sequential = asa.stage(cores=1, walltime="10m")

    projected = parallel(stages.project).map(plan.tiles, header=plan.header, out=out, exact=exact)
    fitted = parallel(stages.fit).map(plan.pairs, projected=projected, header=plan.header, out=out)
    tables = sequential(stages.concat)(fitted, projected, out)
    planes = sequential(stages.model)(tables, projected, out)
    corrected = parallel(stages.correct).map(projected, planes, out=out)
    table = sequential(stages.tabulate)(corrected, out)
    mosaic = sequential(stages.add)(table, plan.header, out)
    small = sequential(stages.shrink)(mosaic, out)
    return sequential(stages.picture)(small, mosaic, out)


def workflow(tiles: str = "", out: str = "", cores: int = CORES, exact: bool = False) -> asa.Node:
    """Return `build`'s workflow; without a folder of tiles, that for a standard small set, made if need be."""
    if not tiles:
        tiles = str(EXAMPLE / "tiles")
        if not (EXAMPLE / "tiles" / "truth.json").exists():  # written last, after the tiles
            make_tiles(EXAMPLE / "tiles")
    return build(Path(tiles), Path(out or EXAMPLE / "mosaic"), cores, exact)


def main() -> None:
    """Run the workflow from the command line."""
    parser = argparse.ArgumentParser(description="Make a mosaic of FITS tiles.")
    parser.add_argument("--tiles", default="", help="folder of .fits or .fits.gz files (a small set is made)")
    parser.add_argument("--out", default="", help=f"folder for the mosaic ({EXAMPLE / 'mosaic'})")
    parser.add_argument("--cores", type=int, default=CORES, help=f"of each parallel stage ({CORES})")
    parser.add_argument("--exact", action="store_true", help="use mProject throughout, some 85 times slower")
    parser.add_argument("--backend", help="where to run, e.g. local or slurm:partition=core")
    parser.add_argument("--strategy", help="when to ask for allocations, e.g. asa, per-stage or big-job")
    parser.add_argument("--executor", help="how tasks run inside an allocation, e.g. local or dask")
    parser.add_argument("--report", type=Path, help="write an HTML report of the run here")
    options = parser.parse_args()
    choices = {"backend": options.backend, "strategy": options.strategy, "executor": options.executor}
    where = {kind: choice for kind, choice in choices.items() if choice}
    try:
        run = asa.run(workflow(options.tiles, options.out, options.cores, options.exact), **where)
        if options.report:
            run.report(options.report)
        made = run.result()
    except (asa.AsaError, OSError, ValueError, toolkit.MontageError) as error:
        sys.exit(f"{parser.prog}: {error}")
    for name, path in made.items():
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
