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


def chain(seconds: float = 2.0, fails: str = "", stages: int = 4, cores: int = 2, walltime: str = "1m") -> asa.Node:
    """One core, then two (`cores`), one and two again; the stage named in `fails` does."""
    node: asa.Node | None = None
    for number in range(stages):
        name, wide = f"stage{number}", cores if number % 2 else 1
        stage = asa.stage(cores=wide, walltime=walltime)(leave).options(name=name)
        made = stage.map(range(wide), folder=os.getcwd(), name=name, seconds=seconds, fails=name == fails)
        node = made if node is None else made.after(node)
    assert node is not None, "there is one at least"
    return node
