"""The validation curve of the compact policy as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asa.report.outputs import check_picture
from asa.report.palette import GRID, LINE, stage_colour
from asa.report.picture import WIDTH_IN, new_figure
from asa.training.compact import Point


def draw_curve(curve: Sequence[Point], path: str | Path) -> None:
    """Draw wait, slowdown and longest wait on the validation days, in shares of EASY's, over actions learned from.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 2.8)
    axes = figure.subplots()
    steps = [point.steps for point in curve]
    for place, name in enumerate(("wait", "slowdown", "longest")):
        label = {"wait": "mean wait", "slowdown": "mean bounded slowdown", "longest": "longest wait"}[name]
        axes.plot(steps, [getattr(point, name) for point in curve], label=label, color=stage_colour(place), linewidth=1)
    best = min(curve, key=lambda point: point.score)
    axes.axvline(best.steps, color=LINE, linewidth=0.7, linestyle="dashed")
    axes.set(xlabel="actions learned from", ylabel="in shares of EASY's")
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
