"""Workflows that leave traces: every task writes into a file of its own when it starts and when it ends."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import asa


def work(index: int, folder: str, seconds: float) -> int:
    trace = Path(folder, f"task-{index}")
    with trace.open("a") as file:
        file.write("started\n")
    time.sleep(seconds)
    with trace.open("a") as file:
        file.write("ended\n")
    return index


def place(index: int, folder: str, seconds: float) -> tuple[int, str]:
    return work(index, folder, seconds), os.environ["SLURMD_NODENAME"]


def tasks(folder: str = ".", count: int = 6, seconds: float = 1.0, cores: int = 2, walltime: str = "10m") -> asa.Node:
    """A parallel stage whose tasks take so many seconds, and a sequential one that adds up their results."""
    stage = asa.stage(cores=cores, walltime=walltime)
    done = stage(work).map(range(count), folder=os.path.abspath(folder), seconds=seconds)
    return asa.stage(walltime="5m")(sum)(done)


def one(cores: int = 1, task_cores: int = 1, memory: str | None = None) -> asa.Node:
    """One stage that takes two seconds."""
    stage = asa.stage(cores=cores, task_cores=task_cores, memory=memory, walltime="5m")
    return stage(work)(0, os.path.abspath("."), 2.0)


def nodes(count: int = 2, seconds: float = 1.0, tasks: int | None = None) -> asa.Node:
    """A stage of several nodes with one task on each, or fewer; its result says which ran where."""
    return asa.stage(nodes=count, tasks_per_node=1, task_cores=4, walltime="5m")(place).map(
        range(count if tasks is None else tasks), folder=os.path.abspath("."), seconds=seconds
    )


def spin(index: int, seconds: float) -> int:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return index


def burn(count: int = 4, seconds: float = 6.0) -> asa.Node:
    """Two parallel stages that need nothing of each other and all the CPU they can get."""
    stages = [asa.stage(name=name, cores=2, walltime="10m")(spin).map(range(count), seconds=seconds) for name in "ab"]
    return asa.stage(walltime="5m", name="sum")(_count)(*stages)


def _count(*results: list[int]) -> int:
    return sum(map(len, results))


def fingerprint(folder: str, patience_s: float = 100.0) -> str:
    """Of the secret; it takes until the folder has a file ``go``."""
    Path(folder, f"task-{os.environ.get('SLURMD_NODENAME', 'here')}").touch()
    until = time.monotonic() + patience_s
    while not Path(folder, "go").exists() and time.monotonic() < until:
        time.sleep(0.1)
    return hashlib.sha256(os.environ["LICENSE"].encode()).hexdigest()


def where(index: int) -> tuple[str, ...]:
    """The partition of the job that it runs in, and what its setup and its stage have put into its environment."""
    partition, *others = (os.environ.get(name, "") for name in ("SLURM_JOB_PARTITION", "FROM_SETUP", "OF_STAGE"))
    return partition, *others


def two_partitions(first: str = "main", second: str = "share") -> asa.Node:
    """A stage in one partition, and one after it in another, which prepares its jobs."""
    before = asa.stage(cores=2, walltime="5m", name="cpu", partition=first, env={"OF_STAGE": "cpu"})(where)
    after = asa.stage(walltime="6m", name="gpu", partition=second, setup="export FROM_SETUP=yes")(where)
    both = asa.stage(walltime="5m", name="all", partition=second, setup="export FROM_SETUP=yes")(_both)
    done = before.map(range(2))
    return both(done, after(0).after(done))


def _both(*found: Any) -> list[Any]:
    return list(found)


def licensed(launcher: str = "") -> asa.Node:
    """A task that needs a secret; with a launcher, a rank on each of two nodes."""
    ranks: dict[str, Any] = {"launcher": launcher, "nodes": 2, "tasks_per_node": 1} if launcher else {}
    return asa.stage(walltime="5m", secrets=["LICENSE"], **ranks)(fingerprint)(folder=os.path.abspath("."))


def licensed_program(launcher: str) -> asa.Node:
    """A program on two nodes that needs a secret, and leaves its digest in a file of each."""
    line = """sh -c 'printf %s "$LICENSE" | sha256sum >"digest-$SLURMD_NODENAME"'"""
    return asa.command(line, nodes=2, tasks_per_node=1, launcher=launcher, walltime="5m", secrets=["LICENSE"])()


def traces(folder: Path, word: str = "started") -> dict[int, int]:
    """How often each task started, or ended."""
    found = sorted(folder.glob("task-*"))
    return {int(path.name.removeprefix("task-")): path.read_text().split().count(word) for path in found}


def numbered(names: str = "a b") -> asa.Node:
    """A line for a shell per name, into a file that is called after it; the names are known at run time only."""
    several = asa.stage(walltime="5m")(str.split)(names)
    write = asa.command("echo {name} | tr a-z A-Z >{out}", outputs={"out": "{name}.txt"}, shell=True, walltime="5m")
    return write.map(several)


def nested() -> asa.Node:
    """A stage that calls another one, which does not happen."""
    return asa.stage(name="nested", walltime="5m")(one)()
