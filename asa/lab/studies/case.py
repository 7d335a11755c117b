"""What is compared: a workflow at one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput
from asa.lab.studies.paper import MODELS, model
from asa.workflows.file import load_workflow
from asa.workflows.graph import make_graph

ALL = "all"
"""Stands for every workflow of the paper."""


@dataclass(frozen=True)
class Case:
    """A workflow at one scale.

    Parameters
    ----------
    name
        What it is called.
    cores
        Its scale: cores of its largest stage.
    workflow
        What `asa.run` takes.
    """

    name: str
    cores: int
    workflow: Any


def cases(target: str, cores: Sequence[int] = (), arguments: Mapping[str, Any] | None = None) -> list[Case]:
    """The cases that a word of the command line and some scales stand for.

    Parameters
    ----------
    target
        A workflow of the paper (`asa.lab.studies.paper.MODELS`), ``all`` of them, or ``FILE[:NAME]`` as in ``asa run``.
    cores
        Scales. A function in a file gets each as its argument ``cores``; a workflow that takes none has one scale, its
        own, and needs none here.
    arguments
        More arguments of a function in a file.

    Raises
    ------
    InvalidInput
        When there is no such workflow, or it cannot be had at these scales, or with these arguments.
    """
    names = MODELS if target == ALL else (target,)
    if target != ALL and target not in MODELS:
        return _from_file(target, cores, arguments or {})
    if arguments:
        raise InvalidInput(f"{target} takes no --set: it is a model of the paper's workflow, and has a scale only")
    if not cores:
        raise InvalidInput(f"{target} can be run at many scales: say at which with --cores, as in --cores 28,56,112")
    return [Case(name, count, model(name, count).workflow()) for name in names for count in cores]


def _from_file(target: str, cores: Sequence[int], arguments: Mapping[str, Any]) -> list[Case]:
    path = Path(target.partition(":")[0])
    if not path.is_file() and ":" not in target and not path.suffix:
        raise InvalidInput(
            f"there is no workflow {target!r}: give {', '.join(MODELS)}, {ALL}, or a Python file, as in 'flow.py:main'"
        )
    name = path.resolve().parent.name if path.stem == "workflow" else path.stem
    if not cores:
        workflow = load_workflow(target, arguments)
        return [Case(name, _largest(workflow), workflow)]
    if "cores" in arguments:
        raise InvalidInput("--set cores= and --cores both say at which scale: give one of them")
    found = []
    for count in cores:
        try:
            found.append(Case(name, count, load_workflow(target, {"cores": count, **arguments})))
        except InvalidInput as error:
            raise InvalidInput(f"--cores {count}: {target} has no such scale: {error}") from error
    return found


def _largest(workflow: Any) -> int:
    return max(node.stage.needs.resources.cores for node in make_graph(workflow).nodes.values())
