"""The validation curve of the compact policy as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asa.lab.report.curves import Curve, curves_figure
from asa.lab.training.compact import Point
from asa.report.picture import save_figure

SHOWN = {"wait": "mean wait", "slowdown": "mean bounded slowdown", "longest": "longest wait"}
"""Numbers of a point, and what they are called."""


def draw_curve(curve: Sequence[Point], path: str | Path) -> None:
    """Draw wait, slowdown and longest wait on the validation days, in shares of EASY's, over actions learned from.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    steps = [point.steps for point in curve]
    figure = curves_figure(
        [Curve(words, steps, [getattr(point, name) for point in curve]) for name, words in SHOWN.items()],
        x="actions learned from",
        y="in shares of EASY's",
        from_zero=True,
        chosen=("what is kept", min(curve, key=lambda point: point.score).steps),
    )
    save_figure(figure, path)
