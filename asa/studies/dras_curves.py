"""``asa figure dras-4`` and ``dras-5``: what trainings have learned, episode by episode.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section IV-D.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.training.dras_picture import draw_curves
from asa.training.dras_point import Point

LAST = 10
"""Episodes over which a row tells the mean of the end."""


@dataclass(frozen=True)
class CurvesFigure:
    """Trainings beside one another.

    Parameters
    ----------
    trainings
        By name: the plan, and a point for each episode.
    """

    trainings: Mapping[str, tuple[Mapping[str, Any], Sequence[Point]]]

    def draw(self, path: str | Path) -> None:
        """Draw the rewards on the validation jobs over episodes."""
        draw_curves({name: curve for name, (_, curve) in self.trainings.items()}, path)

    def to_json(self) -> dict[str, Any]:
        """The curves, JSON-able."""
        return {
            "rows": [
                {"training": name, "plan": plan, "curve": [asdict(point) for point in curve]}
                for name, (plan, curve) in self.trainings.items()
            ]
        }

    def table(self) -> list[dict[str, Any]]:
        """A line for each training."""
        rows = []
        for name, (_, curve) in self.trainings.items():
            rewards = [point.validation_reward for point in curve]
            best = curve[int(np.argmax(rewards))]
            rows.append(
                {
                    "training": name,
                    "episodes": len(curve),
                    "first reward": rewards[0],
                    f"mean of the last {LAST}": float(np.mean(rewards[-LAST:])),
                    "best": best.validation_reward,
                    "of episode": best.episode,
                    "its mean wait [s]": best.mean_wait_s,
                    "CPU [s]": sum(point.cpu_s for point in curve),
                }
            )
        return rows


def dras_4(*, source: str | None = None, seed: int = 0) -> CurvesFigure:
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
    return CurvesFigure(_named(source, lambda plan: ", ".join(plan["order"])))


def dras_5(*, source: str | None = None, seed: int = 0) -> CurvesFigure:
    """Figure 5: several learners; takes what `dras_4` takes. Rewards can be compared where they are of one kind."""
    return CurvesFigure(_named(source, "{0[kind]}, {0[objective]}, seed {0[seed]}".format))


Training = tuple[dict[str, Any], list[Point]]


def _named(source: str | None, name: Callable[[Any], str]) -> dict[str, Training]:
    if not source:
        raise InvalidInput("trainings take long: train with asa train dras --json, and give these files with --from")
    found: dict[str, Training] = {}
    for path in source.split(","):
        label, (plan, curve) = _read(path.strip(), name)
        found[f"{label} ({Path(path).stem})" if label in found else label] = plan, curve
    return found


def _read(path: str, name: Callable[[Any], str]) -> tuple[str, Training]:
    try:
        told = json.loads(Path(path).read_text())
        curve = [Point(**point) for point in told["curve"]]
        if not curve:
            raise ValueError("no episode")
        return name(told["plan"]), (told["plan"], curve)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa train dras --json writes: {error!r}") from error
