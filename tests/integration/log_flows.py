"""Workflows that print."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import asa


def speak(index: int) -> str:
    name = os.environ["SLURMD_NODENAME"]
    print("number", index, "on", name)
    print("and standard error", file=sys.stderr)
    time.sleep(1.0)
    return name


def speaking() -> list[asa.Node]:
    """Tasks on two nodes, long enough for both to have some, and a program with outputs."""
    program = asa.command("sh -c 'echo made {i}; touch {out}'", outputs={"out": "out{i}"}, name="make", walltime="5m")
    return [asa.stage(nodes=2, tasks_per_node=1, walltime="5m")(speak).map(range(4)), program.map([0, 1])]


def wait(index: int, folder: str) -> int:
    attempt = Path(folder, "tries")
    print("waiting", index)
    with attempt.open("a") as file:
        file.write("x")
    while attempt.read_text() == "x":
        time.sleep(0.1)
    print("waited", index)
    return index


def waiting() -> asa.Node:
    """A task that ends only when it is tried again."""
    return asa.stage(walltime="5m")(wait)(0, os.path.abspath("."))


def rank() -> None:
    print("rank", os.environ["SLURM_PROCID"], "on", os.environ["SLURMD_NODENAME"])


def ranks() -> asa.Node:
    """A task of two ranks on two nodes, that srun starts."""
    return asa.stage(nodes=2, tasks_per_node=1, launcher="srun", walltime="5m")(rank)()
