"""A chain of stages that leave traces, for runs whose places in the queue are held."""

from __future__ import annotations

import os
import time
from pathlib import Path

import asa


def leave(index: int, folder: str, name: str, seconds: float, fails: bool) -> int:
    Path(folder, f"{name}-{index}").touch()
    time.sleep(seconds)
    if fails:
        raise RuntimeError("as planned")
    return index


def chain(seconds: float = 2.0, fails: str = "") -> asa.Node:
    """One core, then two, one and two again; the stage named in `fails` does."""
    node: asa.Node | None = None
    for number, cores in enumerate((1, 2, 1, 2)):
        name = f"stage{number}"
        stage = asa.stage(cores=cores, walltime="1m")(leave).options(name=name)
        made = stage.map(range(cores), folder=os.getcwd(), name=name, seconds=seconds, fails=name == fails)
        node = made if node is None else made.after(node)
    assert node is not None, "there are four"
    return node
