"""A training on disk: a folder that is written to after each episode, and that training goes on from.

``training.json`` has the plan and the curve; ``state.safetensors`` the same, and what the learner keeps;
``episode-007.safetensors`` the model after that episode, and ``best.safetensors`` the one that did best on the
validation jobs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from asa.core.errors import InvalidInput
from asa.lab.core.tensors import write_tensors
from asa.lab.training.dras_network import Tensors
from asa.lab.training.dras_plan import Plan
from asa.lab.training.dras_point import Point

BEST, CURVE, STATE = "best.safetensors", "training.json", "state.safetensors"


class Keeps(Protocol):
    """What can be written down, and go on from there."""

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """Tensors, and what is JSON-able."""

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        """Go on from there."""


def write(folder: Path, plan: Plan, curve: Sequence[Point], learner: Keeps) -> None:
    """Write the curve and what the learner keeps; an episode's are there as a whole, or those of the one before."""
    tensors, about = learner.memory()
    found = {"plan": plan.to_json(), "curve": [asdict(point) for point in curve]}
    _replaced(folder / STATE, lambda path: write_tensors(path, tensors, found | {"learner": about}))
    _replaced(folder / CURVE, lambda path: path.write_text(json.dumps(found, indent=1) + "\n"))


def read(folder: Path, plan: Plan, learner: Keeps) -> list[Point]:
    """The curve so far; the learner goes on from its end. Empty where nothing has been written yet.

    Raises
    ------
    InvalidInput
        When the folder has another plan's training, or cannot be read.
    """
    if not (folder / STATE).exists():
        return []
    try:
        with safe_open(folder / STATE, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["asa"])
            theirs = Plan.of(about["plan"])
            _check(folder, plan, theirs)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        learner.recall(tensors, about["learner"])
        return [Point(**point) for point in about["curve"]]
    except (OSError, SafetensorError, json.JSONDecodeError, KeyError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"{folder / STATE}: {error!r}. Expected the state of a training") from error


def _check(folder: Path, plan: Plan, theirs: Plan) -> None:
    """Refuse to go on with another plan; more or fewer episodes of the same sets are the same plan."""
    for name, mine in asdict(plan).items():
        if name != "episodes" and mine != (there := getattr(theirs, name)):
            raise InvalidInput(f"{folder} has a training with {name} {there}, not {mine}: choose another folder")


def read_curve(folder: str | Path) -> tuple[Plan, list[Point]]:
    """Plan and curve of a training.

    Raises
    ------
    InvalidInput
        When the folder has none.
    """
    path = Path(folder) / CURVE
    try:
        found = json.loads(path.read_text())
        return Plan.of(found["plan"]), [Point(**point) for point in found["curve"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path}: {error!r}. Expected a training that asa train dras wrote") from error


def _replaced(path: Path, put: Callable[[Path], Any]) -> None:
    """Write a file so that it is there as a whole, or as it was."""
    new = path.with_name(f"{path.name}.new")
    put(new)
    os.replace(new, path)
