"""What the examples share: the options of their command lines, running as these say, finding and unpacking input."""

from __future__ import annotations

import argparse
import bz2
import gzip
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asa

PACKED: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
"""How files with these endings are opened."""


def make_parser(description: str, out: str, cores: int = 2) -> argparse.ArgumentParser:
    """Return a parser of the options that all examples have.

    Parameters
    ----------
    description
        Of the example.
    out
        Default of ``--out``.
    cores
        Default of ``--cores``.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path(out), help=f"folder for what is made ({out})")
    parser.add_argument("--cores", type=int, default=cores, help=f"of each parallel stage ({cores})")
    parser.add_argument("--backend", help="where to run, e.g. local or slurm:partition=core")
    parser.add_argument("--strategy", help="when to ask for allocations, e.g. asa, per-stage or big-job")
    parser.add_argument("--executor", help="how tasks run inside an allocation, e.g. local or dask")
    parser.add_argument("--report", type=Path, help="write an HTML report of the run here")
    return parser


def run(name: str, parser: argparse.ArgumentParser, options: argparse.Namespace, make: Callable[[], asa.Node]) -> Any:
    """Run a workflow as the options say, and return its result; what goes wrong ends the program, without a traceback.

    Parameters
    ----------
    name
        Of the run.
    parser, options
        From `make_parser`.
    make
        Builds the workflow.
    """
    choices = {"backend": options.backend, "strategy": options.strategy, "executor": options.executor}
    try:
        run = asa.run(make(), name=name, **{kind: choice for kind, choice in choices.items() if choice})
        if options.report:
            run.report(options.report)
        return run.result()
    except (asa.AsaError, OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


def find(path: Path) -> Path:
    """Return the absolute path of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path.absolute()


def unpack(packed: Path, out: Path) -> Path:
    """Unpack a file that is `PACKED` into a folder, made if missing."""
    plain = out / packed.stem
    plain.parent.mkdir(parents=True, exist_ok=True)
    with PACKED[packed.suffix](packed) as source, plain.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    return plain
