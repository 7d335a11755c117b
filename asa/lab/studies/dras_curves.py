"""``asa figure dras-4`` and ``dras-5``: what trainings have learned, episode by episode.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section IV-D.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.studies.figure import Figure
from asa.lab.training.dras_picture import draw_curves
from asa.lab.training.dras_point import Point

LAST = 10
"""Episodes over which a row tells the mean of the end."""


@dataclass(frozen=True)
class Training:
    """A training.

    Parameters
    ----------
    training
        What it is called.
    plan
        What was trained, and how.
    curve
        A point for each episode.
    """

    training: str
    plan: Mapping[str, Any]
    curve: Sequence[Point]


def dras_4(*, source: str | None = None, seed: int = 0) -> Figure:
    """Figure 4: the same learner with the phases in several orders.

    Parameters
    ----------
    source
        What ``asa train dras --json`` wrote, several files with commas between them.
    seed
        Of nothing: what is shown has been trained before.

    Raises
    ------
    InvalidInput
        When there is no such file, or it is something else.
    """
    return _figure(source, lambda plan: ", ".join(plan["order"]))


def dras_5(*, source: str | None = None, seed: int = 0) -> Figure:
    """Figure 5: several learners; takes what `dras_4` takes. Rewards can be compared where they are of one kind."""
    return _figure(source, "{0[kind]}, {0[objective]}, seed {0[seed]}".format)


def trainings_table(rows: Sequence[Training]) -> list[dict[str, Any]]:
    """A line for each training."""
    lines = []
    for each in rows:
        rewards = [point.validation_reward for point in each.curve]
        best = each.curve[int(np.argmax(rewards))]
        lines.append(
            {
                "training": each.training,
                "episodes": len(each.curve),
                "first reward": rewards[0],
                f"mean of the last {LAST}": float(np.mean(rewards[-LAST:])),
                "best": best.validation_reward,
                "of episode": best.episode,
                "its mean wait [s]": best.mean_wait_s,
                "CPU [s]": sum(point.cpu_s for point in each.curve),
            }
        )
    return lines


def draw_trainings(rows: Sequence[Training], path: str | Path) -> None:
    """Draw the rewards on the validation jobs over episodes."""
    draw_curves({each.training: each.curve for each in rows}, path)


def _figure(source: str | None, name: Callable[[Any], str]) -> Figure:
    if not source:
        raise InvalidInput("trainings take long: train with asa train dras --json, and give these files with --from")
    found: dict[str, Training] = {}
    for path in source.split(","):
        each = _read(path.strip(), name)
        if each.training in found:
            each = replace(each, training=f"{each.training} ({Path(path).stem})")
        found[each.training] = each
    return Figure(list(found.values()), trainings_table, draw_trainings)


def _read(path: str, name: Callable[[Any], str]) -> Training:
    try:
        told = json.loads(Path(path).read_text())
        curve = [Point(**point) for point in told["curve"]]
        if not curve:
            raise ValueError("no episode")
        return Training(name(told["plan"]), told["plan"], curve)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa train dras --json writes: {error!r}") from error
