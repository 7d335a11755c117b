"""Stages in an image, for the tests of Apptainer itself."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import asa
from asa.integrations.container import container

VARIABLES = ("INSIDE", "GIVEN", "HOME", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def look(paths: list[str]) -> dict[str, Any]:
    """What a function finds in the image."""
    try:
        import asa  # noqa: F401
    except ImportError:
        knows = False
    else:
        knows = True
    found = {"who": (os.getuid(), os.getgid()), "where": os.getcwd(), "python": sys.executable, "asa": knows}
    return found | {name: os.environ.get(name) for name in VARIABLES} | {path: os.path.exists(path) for path in paths}


def copy(source: Path, name: str) -> Path:
    """A file in the working directory with the contents of another, in capitals."""
    target = Path(name).absolute()
    target.write_text(source.read_text().upper())
    return target


def end(how: str) -> None:
    """The function ends in this way."""
    if how == "raise":
        raise LookupError("no such galaxy")
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), 9)


def linger(path: str) -> None:
    """It writes its process id to a file, and is there for ten minutes."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


class Image:
    """Makes stages in an image, with options of Apptainer that are separated by blanks."""

    def __init__(self, image: str, options: str, bind: str = "") -> None:
        self._inside = container(image, options=options.split(), bind=bind.split())

    def function(self, function: Any, **needs: Any) -> Any:
        return asa.stage(walltime="5m", **needs)(self._inside(function))

    def program(self, line: str, **more: Any) -> Any:
        return self._inside(asa.command(line, **({"walltime": "5m"} | more)))


def inside(image: str, options: str, paths: str = "", bind: str = "", gpus: int = 0) -> asa.Node:
    """What a function sees."""
    return Image(image, options, bind).function(look, gpus=gpus)(paths.split())


def spread(image: str, options: str, count: int = 2) -> asa.Node:
    """Tasks with a GPU each."""
    return Image(image, options).function(look, cores=count, gpus=count).map([[]] * count)


def files(image: str, options: str) -> asa.Node:
    """A program writes a file, a function reads it and writes another, a program prints that, and who it is."""
    made = Image(image, options)
    first = made.program("sh -c 'cat {source} >$0; pwd >>$0' {out}", outputs={"out": "first.txt"}, name="first")
    second = made.function(copy)(first("input.txt"), "second.txt")
    return made.program("sh -c 'cat {source}; id -u; printenv INSIDE GIVEN MINE'", env={"MINE": "of the stage"})(second)


def ends(image: str, options: str, how: str) -> asa.Node:
    """A function that fails."""
    return Image(image, options).function(end)(how)


def runs(image: str, options: str, line: str) -> asa.Node:
    """A program."""
    return Image(image, options).program(line, name="program")()


def lingers(image: str, options: str, what: str, path: str, walltime: str = "5m") -> asa.Node:
    """A function or a program that does not end."""
    made = Image(image, options)
    if what == "function":
        return made.function(linger)(path)
    return made.program("sh -c 'echo $$ >$0; exec sleep 600' {path}", walltime=walltime, name="program")(path)


def ranks(image: str, options: str) -> asa.Node:
    """A program whose ranks srun starts, each in a container of its own, two on each of two nodes."""
    line = "sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME $INSIDE'"
    return Image(image, options).program(line, nodes=2, tasks_per_node=2, launcher="srun", name="ranks")()
