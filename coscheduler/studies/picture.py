"""A shared queue as a picture: cores in use, guests' shares, and happiness, over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import InvalidInput
from asa.report.palette import BUSY, LINE, stage_colour
from asa.report.picture import WIDTH_IN, new_figure
from coscheduler.result import SharedQueue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HAPPIEST = 3.0
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def save(queue: SharedQueue, path: str | Path, title: str = "") -> None:
    """Draw to a PNG, PDF or SVG file, as the name ends; see `figure`."""
    figure(queue, title).savefig(path, dpi=200)


def figure(queue: SharedQueue, title: str = "") -> Figure:
    """Three charts on one time axis.

    Raises
    ------
    InvalidInput
        When nothing was sampled, or matplotlib is not installed.
    """
    if not queue.samples:
        raise InvalidInput("there is nothing to draw: let the world keep what it measures (sampled=True)")
    made = new_figure(WIDTH_IN, 6.4)
    axes = made.subplots(3, 1, sharex=True)
    unit, unit_s = next((each for each in _UNITS if queue.makespan_s >= 2 * each[1]), _UNITS[-1])
    _busy(axes[0], queue, unit_s)
    _shares(axes[1], queue, unit_s)
    _happiness(axes[2], queue, unit_s)
    applications = list(dict.fromkeys(sorted(job.application for job in queue.jobs)))
    handles = [
        axes[1].plot([], [], color=stage_colour(place), label=name)[0] for place, name in enumerate(applications)
    ]
    made.legend(
        handles=handles, loc="outside upper center", ncols=6, fontsize=7, frameon=False, title=title or None,
        title_fontsize=8,
    )  # fmt: skip
    axes[2].set_xlabel(f"time [{unit}]", fontsize=8)
    axes[2].set_xlim(0, queue.makespan_s / unit_s)
    for one in axes:
        one.tick_params(labelsize=7)
        one.spines[["top", "right"]].set_visible(False)
    return made


def _busy(axes: Axes, queue: SharedQueue, unit_s: float) -> None:
    times = [sample.at / unit_s for sample in queue.samples]
    busy = [100 * sample.busy / queue.cores for sample in queue.samples]
    axes.fill_between(times, busy, step="post", color=BUSY)
    axes.set_ylim(0, 100)
    axes.set_ylabel("cores in use [%]", fontsize=8)
    mean = 100 * queue.metrics()["cpu_utilisation"]
    axes.axhline(mean, color=LINE, linewidth=0.8, linestyle="--")
    axes.set_title(f"CPU; dashed: mean, {mean:.0f} %", fontsize=8, loc="left")


def _shares(axes: Axes, queue: SharedQueue, unit_s: float) -> None:
    colours = _colours(queue)
    any_guest = any(stay.host is not None for job in queue.jobs for stay in job.stays)
    for job in queue.jobs:
        for stay in job.stays:
            if stay.host is not None:
                times = (stay.since / unit_s, stay.until / unit_s)
                axes.plot(times, (100 * stay.share, 100 * stay.share), color=colours[job.name], linewidth=1.6)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of the host [%]", fontsize=8)
    axes.set_title("Guests" if any_guest else "Guests: none", fontsize=8, loc="left")


def _happiness(axes: Axes, queue: SharedQueue, unit_s: float) -> None:
    colours = _colours(queue)
    for job in queue.jobs:
        pairs = [(each.at / unit_s, each.happiness[job.name]) for each in queue.samples if job.name in each.happiness]
        axes.plot(*zip(*pairs, strict=True), color=colours[job.name], linewidth=0.8) if pairs else None
    axes.axhline(1.0, color=LINE, linewidth=0.8, linestyle="--")
    axes.set_ylim(0, _HAPPIEST)
    axes.set_ylabel("happiness", fontsize=8)
    axes.set_title("Happiness of running jobs; below the dashed line they will exceed their wall times", fontsize=8,
                   loc="left")  # fmt: skip


def _colours(queue: SharedQueue) -> dict[str, str]:
    applications = sorted({job.application for job in queue.jobs})
    return {job.name: stage_colour(applications.index(job.application)) for job in queue.jobs}
