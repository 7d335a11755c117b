"""Curves of trainings as pictures: Figures 4 and 5 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.report.outputs import check_picture
from asa.report.palette import GRID, LINE, stage_colour
from asa.report.picture import WIDTH_IN, new_figure
from asa.training.dras_point import Point


def draw_curves(
    curves: Mapping[str, Sequence[Point]], path: str | Path, *, level: Mapping[str, float] | None = None
) -> None:
    """Draw the reward on the validation jobs over episodes, a line for each training.

    Parameters
    ----------
    curves
        By name.
    level
        Rewards of what does not learn, by name: horizontal lines.

    Raises
    ------
    InvalidInput
        When the picture cannot be drawn.
    """
    check_picture("picture", path)
    figure = new_figure(WIDTH_IN, 3.0)
    axes = figure.subplots()
    for place, (name, curve) in enumerate(curves.items()):
        episodes = [point.episode for point in curve]
        rewards = [point.validation_reward for point in curve]
        axes.plot(episodes, rewards, label=name, color=stage_colour(place), linewidth=1)
    for name, reward in (level or {}).items():
        axes.axhline(reward, color=LINE, linewidth=0.7, linestyle="dashed")
        axes.annotate(name, (1.0, reward), xycoords=("axes fraction", "data"), fontsize=6, va="center")
    axes.set(xlabel="episode", ylabel="reward on validation jobs")
    axes.grid(color=GRID, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
