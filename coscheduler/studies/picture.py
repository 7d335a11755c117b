"""A shared queue as a picture: cores in use, guests' shares, and happiness, over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import InvalidInput
from asa.report.axis import ticks
from asa.report.palette import BUSY, LINE, series_colour
from asa.report.picture import WIDTH_IN, charts, heading, legend_above, new_figure, note, save_figure
from coscheduler.result import SharedQueue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HAPPIEST = 3.0


def save(queue: SharedQueue, path: str | Path, title: str = "") -> None:
    """Draw to a PNG, PDF or SVG file, as the name ends; see `figure`."""
    save_figure(figure(queue, title), path)


def figure(queue: SharedQueue, title: str = "") -> Figure:
    """Three charts on one time axis.

    Raises
    ------
    InvalidInput
        When nothing was sampled, no job has ended, or matplotlib is not installed.
    """
    if not queue.samples:
        raise InvalidInput("there is nothing to draw: let the world keep what it measures (sampled=True)")
    if not queue.jobs:
        raise InvalidInput("there is nothing to draw: no job has ended. Let the queue run for longer")
    made = new_figure(WIDTH_IN, 6.4)
    axes = charts(made, 3, grid="x", sharex=True)
    _busy(axes[0], queue)
    _shares(axes[1], queue)
    _happiness(axes[2], queue)
    handles = [axes[1].plot([], [], color=colour, label=name)[0] for name, colour in _colours(queue).items()]
    legend_above(made, handles, title=title)
    axis = ticks(queue.makespan_s, 8)
    axes[2].set_xticks(axis.at, axis.labels)
    axes[2].set_xlim(0, queue.makespan_s)
    axes[2].set_xlabel(f"time [{axis.unit}]")
    return made


def _busy(axes: Axes, queue: SharedQueue) -> None:
    busy = [100 * sample.busy / queue.cores for sample in queue.samples]
    axes.fill_between([sample.at for sample in queue.samples], busy, step="post", color=BUSY)
    axes.set_ylim(0, 100)
    axes.set_ylabel("cores in use [%]")
    mean = 100 * queue.metrics()["cpu_utilisation"]
    axes.axhline(mean, color=LINE, linewidth=0.8, linestyle="--")
    heading(axes, "CPU")
    note(axes, f"dashed: mean, {mean:.0f} %")


def _shares(axes: Axes, queue: SharedQueue) -> None:
    colours = _colours(queue)
    stays = [(stay, colours[job.application]) for job in queue.jobs for stay in job.stays if stay.host is not None]
    for stay, colour in stays:
        shares = (100 * stay.share, 100 * stay.share)
        axes.plot((stay.since, stay.until), shares, color=colour, linewidth=1.6, marker="|", markersize=7)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of the host [%]")
    heading(axes, "Guests" if stays else "Guests: none")


def _happiness(axes: Axes, queue: SharedQueue) -> None:
    colours = _colours(queue)
    for job in queue.jobs:
        pairs = [(each.at, each.happiness[job.name]) for each in queue.samples if job.name in each.happiness]
        axes.plot(*zip(*pairs, strict=True), color=colours[job.application], linewidth=0.8) if pairs else None
    axes.axhline(1.0, color=LINE, linewidth=0.8, linestyle="--")
    axes.set_ylim(0, _HAPPIEST)
    axes.set_ylabel("happiness")
    heading(axes, "Happiness of running jobs")
    note(axes, "below the dashed line they will exceed their wall times")


def _colours(queue: SharedQueue) -> dict[str, str]:
    """By application."""
    applications = sorted({job.application for job in queue.jobs})
    return {name: series_colour(place) for place, name in enumerate(applications)}
