"""ASA: a workflow-aware elastic execution library for HPC.

Wrap the stages of a workflow, call them, run the result::

    import asa

    @asa.stage(cores=4, walltime="10m")
    def project(image): ...

    @asa.stage
    def add(images): ...

    mosaic = asa.run(add(project.map(images)), backend="slurm").result()

Importing this package is light; everything is loaded when it is first used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if not sys.platform.startswith("linux"):
    raise ImportError(
        f"ASA runs on Linux only, and this is {sys.platform}: install it where jobs are submitted, or in a Linux "
        "container or virtual machine (on Windows: WSL)"
    )

if TYPE_CHECKING:
    from asa.core.errors import (
        AsaError,
        AsaWarning,
        BackendError,
        GraphError,
        InvalidInput,
        RunFailed,
        RunNotFound,
        StateError,
        UnknownName,
        Unpicklable,
    )
    from asa.core.task import Failed
    from asa.log.files import File
    from asa.log.running import checkpoint, pause, scratch, time_left
    from asa.log.values import Ref
    from asa.workflows.expand import branch, collect, loop
    from asa.workflows.graph import make_graph
    from asa.workflows.run import Run, open_run, resume, run, submit
    from asa.workflows.stage import Node, Stage, command, merge, parallel, sequence, split, stage

__version__ = "0.1.0"

_HOMES = {
    "asa.core.errors": (
        "AsaError",
        "AsaWarning",
        "BackendError",
        "GraphError",
        "InvalidInput",
        "RunFailed",
        "RunNotFound",
        "StateError",
        "UnknownName",
        "Unpicklable",
    ),
    "asa.core.task": ("Failed",),
    "asa.log.files": ("File",),
    "asa.log.values": ("Ref",),
    "asa.workflows.expand": ("branch", "collect", "loop"),
    "asa.log.running": ("checkpoint", "pause", "scratch", "time_left"),
    "asa.workflows.graph": ("make_graph",),
    "asa.workflows.run": ("Run", "open_run", "resume", "run", "submit"),
    "asa.workflows.stage": ("Node", "Stage", "command", "merge", "parallel", "sequence", "split", "stage"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsaError",
    "AsaWarning",
    "BackendError",
    "Failed",
    "File",
    "GraphError",
    "InvalidInput",
    "Node",
    "Ref",
    "Run",
    "RunFailed",
    "RunNotFound",
    "Stage",
    "StateError",
    "UnknownName",
    "Unpicklable",
    "branch",
    "checkpoint",
    "collect",
    "command",
    "loop",
    "make_graph",
    "merge",
    "open_run",
    "parallel",
    "pause",
    "resume",
    "run",
    "scratch",
    "sequence",
    "split",
    "stage",
    "submit",
    "time_left",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'asa' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
