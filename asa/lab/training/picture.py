"""Training curves of placement networks as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from asa.lab.report.curves import Curve, curves_figure
from asa.lab.training.nsa import Point
from asa.report.picture import save_figure

SMOOTH = 5
"""Over how many points a curve is a moving mean."""


def draw_curves(curves: Mapping[str, Sequence[Point]], path: str | Path) -> None:
    """Draw what repairs cost more than exact insertion would, over actions learned from: Figure 4 of the paper.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    lines = [smoothed(name, curve) for name, curve in curves.items()]
    figure = curves_figure(lines, x="actions learned from", y="cost above exact insertion [%]", from_zero=True)
    save_figure(figure, path)


def smoothed(name: str, curve: Sequence[Point]) -> Curve:
    """Cost above exact insertion [%], in means over `SMOOTH` points or all, each at the last of them."""
    excess = 100 * np.array([point.cost / point.exact - 1 for point in curve])
    window = min(SMOOTH, len(curve))
    means = np.convolve(excess, np.full(window, 1 / window), "valid")
    return Curve(name, [point.steps for point in curve[window - 1 :]], means.tolist())
