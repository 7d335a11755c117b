"""Workflows whose tasks are many processes, on several nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import asa


def trace(folder: str, seconds: float, failing: int) -> int:
    """Leave a file with the node's name and the process number, and rest."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["SLURM_PROCID"])
    with Path(folder, f"rank-{rank}").open("a") as file:
        file.write(f"{os.environ['SLURMD_NODENAME']} {os.getpid()}\n")
    if rank == failing:
        raise ValueError("no such band")
    time.sleep(seconds)
    return rank


def function(
    launcher: str = "srun", folder: str = ".", seconds: float = 0.0, failing: int = -1, walltime: str = "5m"
) -> asa.Node:
    """Two ranks of two cores on each of two nodes."""
    stage = asa.stage(nodes=2, tasks_per_node=2, task_cores=2, launcher=launcher, walltime=walltime)
    return stage(trace)(os.path.abspath(folder), seconds, failing)


def program(line: str = "hostname", launcher: str = "srun", nodes: int = 2) -> asa.Node:
    """A program with two ranks on each node."""
    return asa.command(line, nodes=nodes, tasks_per_node=2, launcher=launcher, walltime="5m")()


def beside(folder: str = ".") -> list[asa.Node]:
    """A launched stage of some of the nodes among tasks that use the rest."""
    work = asa.stage(nodes=3, tasks_per_node=2, walltime="5m")(time.sleep)
    wide = asa.stage(nodes=2, tasks_per_node=2, launcher="srun", walltime="5m")(trace)
    return [work.map([0.5] * 8), wide(os.path.abspath(folder), 0.5, -1)]


def traces(folder: Path) -> dict[int, list[tuple[str, int]]]:
    """Rank -> nodes and process numbers, one for each time that it was started."""
    found = {}
    for path in sorted(folder.glob("rank-*")):
        lines = [line.split() for line in path.read_text().splitlines()]
        found[int(path.name.removeprefix("rank-"))] = [(node, int(pid)) for node, pid in lines]
    return found


def met(index: int, folder: str, count: int) -> str:
    """The node's name, once as many tasks as these run at a time."""
    Path(folder, f"met-{index}").touch()
    until = time.monotonic() + 60
    while len(list(Path(folder).glob("met-*"))) < count:
        assert time.monotonic() < until, "the others do not run beside it"
        time.sleep(0.05)
    return os.environ["SLURMD_NODENAME"]


def anywhere(folder: str = ".", cores: int = 8, spread: str = "any") -> asa.Node:
    """As many tasks as cores, which wait for one another."""
    stage = asa.stage(cores=cores, spread=spread, walltime="5m")(met)
    return stage.map(range(cores), folder=os.path.abspath(folder), count=cores)


def anywhere_in_ranks(launcher: str = "srun", folder: str = ".", cores: int = 8) -> asa.Node:
    """As many ranks as cores."""
    return asa.stage(cores=cores, launcher=launcher, walltime="5m")(trace)(os.path.abspath(folder), 0.0, -1)
