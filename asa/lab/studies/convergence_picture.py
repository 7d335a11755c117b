"""Figure 5 of the ASA paper as a picture: a chart for each estimator, so that none covers another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asa.report.palette import series_colour
from asa.report.picture import LABEL_PT, WIDTH_IN, charts, heading, legend_above, new_figure, save_figure

if TYPE_CHECKING:
    from asa.lab.studies.convergence import Convergence


def draw(found: Convergence, path: str | Path) -> None:
    """Draw the first seed's course: what each estimator predicts, and the true wait.

    The paper draws all in one chart, where estimators that go on trying hide the others.

    Raises
    ------
    InvalidInput
        When the picture cannot be written, or matplotlib is not installed.
    """
    figure = new_figure(WIDTH_IN, 0.8 + 1.15 * len(found.trajectories))
    made = charts(figure, len(found.trajectories), sharex=True, sharey=True)
    for axes, (name, predictions) in zip(made, found.trajectories.items(), strict=True):
        axes.plot(predictions, label="predicted", drawstyle="steps-post", color=series_colour(1), linewidth=0.8)
        axes.plot(
            found.true_waits, label="true wait", drawstyle="steps-post", color=series_colour(0), linestyle="--",
            linewidth=1.2,
        )  # fmt: skip
        heading(axes, name)
    made[0].set(yscale="log", xlim=(0, len(found.true_waits)))
    made[-1].set_xlabel("iteration")
    figure.supylabel("wait [s]", fontsize=LABEL_PT)
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)
