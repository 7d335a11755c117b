"""Training curves as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from asa.report.outputs import check_picture
from asa.report.palette import GRID, stage_colour
from asa.report.picture import WIDTH_IN, new_figure
from asa.training.nsa import Point

SMOOTH = 5
"""Over how many points a curve is a moving mean."""


def draw_curves(curves: Mapping[str, Sequence[Point]], path: str | Path) -> None:
    """Draw what repairs cost more than exact insertion would, over actions learned from: Figure 4 of the paper.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 2.8)
    axes = figure.subplots()
    for place, (name, curve) in enumerate(curves.items()):
        excess = 100 * np.array([point.cost / point.exact - 1 for point in curve])
        window = min(SMOOTH, len(curve))
        smooth = np.convolve(excess, np.full(window, 1 / window), "valid")
        steps = [point.steps for point in curve][window - 1 :]
        axes.plot(steps, smooth, label=name, color=stage_colour(place), linewidth=1)
    axes.set(xlabel="actions learned from", ylabel="cost above exact insertion [%]")
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
