"""Workflows whose tasks hold GPUs: each task leaves a file for each of its devices, and fails where there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asa

VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL")


def seen() -> dict[str, str]:
    """All variables that say which GPUs this process may use."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def devices() -> list[str]:
    """Names of the GPUs that this process may use; [] where it is told to use none."""
    names = next(iter(seen().values())).split(",")
    return [name for name in names if name not in ("", "-1")]


@contextmanager
def _held(path: Path) -> Iterator[None]:
    path.touch(exist_ok=False)  # another task has this device
    try:
        yield
    finally:
        path.unlink()


def use(index: int, folder: str, together: int = 1) -> list[str]:
    """The task's devices as ``NODE DEVICE``, once so many are held at a time."""
    mine = [f"{os.environ['SLURMD_NODENAME']} {device}" for device in devices()]
    with ExitStack() as stack:
        for name in mine:
            stack.enter_context(_held(Path(folder, f"held {name}")))
        until = time.monotonic() + 60
        while len(list(Path(folder).glob("held *"))) < together and not Path(folder, "met").exists():
            assert time.monotonic() < until, f"fewer than {together} devices are held at a time"
            time.sleep(0.05)
        Path(folder, "met").touch()
        time.sleep(0.1)
    return mine


def tasks(
    folder: str = ".", count: int = 4, cores: int = 4, gpus: int = 4, nodes: int = 0, together: int = 1
) -> asa.Node:
    """So many tasks that share an allocation's GPUs."""
    shape = {"nodes": nodes, "tasks_per_node": cores // nodes} if nodes else {"cores": cores}
    stage = asa.stage(gpus=gpus, walltime="5m", **shape)(use)
    return stage.map(list(range(count)), [os.path.abspath(folder)] * count, [together] * count)


def beside(folder: str = ".") -> list[asa.Node]:
    """A stage with GPUs, and one that needs none."""
    path = os.path.abspath(folder)
    first = asa.stage(cores=2, gpus=2, walltime="5m", name="first")(use)(0, path)
    return [first, asa.stage(cores=2, walltime="5m", name="second")(count)(first)]


def count(before: list[str]) -> list[int]:
    """How many devices the task before had, and this one."""
    return [len(before), len(devices())]


def rank_devices() -> str:
    """Rank 0's node and devices."""
    return f"{os.environ['SLURMD_NODENAME']} {','.join(devices())}"


def ranks(launcher: str = "srun") -> asa.Node:
    """Two ranks on each of two nodes, with two GPUs there."""
    return asa.stage(nodes=2, tasks_per_node=2, gpus=4, launcher=launcher, walltime="5m")(rank_devices)()


def side_by_side(launcher: str = "srun", folder: str = ".") -> asa.Node:
    """Tasks of two ranks, on two nodes each, that an allocation has the cores for two of."""
    path = os.path.abspath(folder)
    first = asa.stage(nodes=2, tasks_per_node=2, gpus=4, walltime="5m", name="first")(use)(0, path)
    pair = asa.stage(nodes=2, gpus=2, launcher=launcher, walltime="5m", name="pair")(rank_holds)
    return pair.map([1, 2], [path] * 2, [first] * 2)


def rank_holds(index: int, folder: str, first: list[str]) -> list[str]:
    """As `use`, each rank for itself; a rank's devices are those of its node."""
    return use(index, folder)


def program() -> asa.Node:
    """Each rank of a program says its node and devices."""
    line = "sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"
    return asa.command(line, nodes=2, gpus=4, launcher="srun", walltime="5m", name="program")()


def kinds(folder: str = ".") -> list[asa.Node]:
    """Two tasks of one device each, at the same time, and then one of none."""
    path = os.path.abspath(folder)
    first = asa.stage(cores=2, gpus=2, walltime="5m", name="first")(see)
    return [done := first.map([0, 1], [path] * 2), asa.stage(cores=1, walltime="5m", name="second")(after)(done)]


def see(index: int, folder: str) -> dict[str, str]:
    """The task's variables, while another task holds another device."""
    use(index, folder, 2)
    return seen()


def after(before: list[dict[str, str]]) -> dict[str, str]:
    """As `see`, of a task without a device."""
    return seen()


def two(folder: str = ".", together: int = 2) -> list[asa.Node]:
    """Two stages of one device each, at the same time."""
    one = asa.stage(gpus=1, walltime="5m")(use)
    return [one.options(name=name)(0, os.path.abspath(folder), together) for name in ("left", "right")]
