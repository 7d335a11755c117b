"""Curves of trainings as pictures: Figures 4 and 5 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.lab.report.curves import Curve, curves_figure
from asa.lab.training.dras_point import Point
from asa.report.picture import save_figure


def draw_curves(curves: Mapping[str, Sequence[Point]], path: str | Path) -> None:
    """Draw the reward on the validation jobs over episodes, a line for each training.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    lines = [
        Curve(name, [point.episode for point in curve], [point.validation_reward for point in curve])
        for name, curve in curves.items()
    ]
    save_figure(curves_figure(lines, x="episode", y="reward on validation jobs"), path)
