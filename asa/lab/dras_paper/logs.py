"""``asa figure dras-table2``, ``dras-2`` and ``dras-3``: what a log holds.

References
----------
The paper of `asa.lab.dras_paper.figures`, sections IV-B to IV-D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.metrics.schedule import class_names, size_classes
from asa.lab.study import Figure, LogCase, log_case
from asa.lab.traces.patterns import measure, offered_load, span, work
from asa.report.picture import (
    BUSY,
    LIGHT,
    SMALL_PT,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    new_figure,
    save_figure,
    stage_colour,
)

PRINTED = {
    "processors": ("4,392 nodes", "12,076 nodes"),
    "first submission": ("Jan. 2018", "Apr. 2018"),
    "last submission": ("Dec. 2019", "Jul. 2018"),
    "jobs": ("121,837", "2,607,054"),
    "longest run [d]": ("1", "7"),
}
"""What Table II says of Theta and of Cori."""


@dataclass(frozen=True)
class LogSummary:
    """A log in numbers.

    Parameters
    ----------
    first, last
        Days of the first and the last submission (UTC); empty where the log does not tell.
    longest_request_d
        Longest requested time [d]; None where the log has none.
    load
        Work submitted, in shares of what the machine could do between the first and the last submission.
    """

    log: str
    processors: int
    first: str
    last: str
    span_d: float
    jobs: int
    largest: int
    median_size: float
    longest_run_d: float
    longest_request_d: float | None
    core_hours: float
    load: float


@dataclass(frozen=True)
class SizeClass:
    """Jobs of one class of sizes, their number and their core-hours."""

    cores: str
    jobs: int
    core_hours: float


@dataclass(frozen=True)
class PatternBar:
    """A bar of Figure 3: the chart it belongs to, what stands below it, and its share of the jobs."""

    pattern: str
    at: str
    share: float


def dras_table2(**options: Any) -> Figure:
    """Table II: how large the log and its machine are; takes what `chosen` takes."""
    return Figure([summary(chosen(**options))], summary_table, refuse_picture)


def dras_2(**options: Any) -> Figure:
    """Figure 2: jobs and core-hours by job size; takes what `chosen` takes."""
    return Figure(by_size(chosen(**options)), sizes_table, draw_sizes)


def dras_3(**options: Any) -> Figure:
    """Figure 3: when jobs are submitted, their sizes, and how well run times are estimated; takes what `chosen` takes.

    The paper shows the jobs to learn from.
    """
    return Figure(patterns(chosen(**options)), patterns_table, draw_patterns)


def chosen(*, trace: str | None = None, from_day: float = 0.0, to_day: float = float("inf"), seed: int = 0) -> LogCase:
    """The jobs of a log that are submitted in these days."""
    if trace is None:
        raise InvalidInput("this figure shows a log: give --trace")
    return log_case(trace, from_day=from_day, to_day=to_day, seed=seed)


def summary(log: LogCase) -> LogSummary:
    """Table II, and what it leaves out."""
    jobs = log.workload
    first, last = (_day(log.epoch + float(jobs.submit[place])) for place in (0, -1))
    requested = jobs.walltime[~np.isnan(jobs.walltime)]
    return LogSummary(
        log=log.name,
        processors=log.cluster.cores,
        first=first,
        last=last,
        span_d=span(jobs) / DAY,
        jobs=len(jobs),
        largest=int(jobs.cores.max()),
        median_size=float(np.median(jobs.cores)),
        longest_run_d=float(jobs.run.max()) / DAY,
        longest_request_d=float(requested.max()) / DAY if len(requested) else None,
        core_hours=work(jobs) / HOUR,
        load=offered_load(jobs, log.cluster.cores),
    )


def _day(unix_s: float) -> str:
    return "" if np.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).date().isoformat()


def summary_table(rows: Sequence[LogSummary]) -> list[dict[str, Any]]:
    """A line for each number, beside what is printed of Theta and Cori."""
    (row,) = rows
    found = {
        "processors": f"{row.processors:,}",
        "first submission": row.first,
        "last submission": row.last,
        "span [d]": f"{row.span_d:,.0f}",
        "jobs": f"{row.jobs:,}",
        "largest job": f"{row.largest:,}",
        "median job": f"{row.median_size:,g}",
        "longest run [d]": f"{row.longest_run_d:.3g}",
        "longest request [d]": "" if row.longest_request_d is None else f"{row.longest_request_d:.3g}",
        "core-hours": f"{row.core_hours:,.0f}",
        "load": f"{row.load:.2f}",
    }
    return [
        {"of the log": name, row.log: text, "printed: Theta": theta, "printed: Cori": cori}
        for name, text in found.items()
        for theta, cori in [PRINTED.get(name, ("", ""))]
    ]


def refuse_picture(_rows: Any, _path: str | Path) -> None:
    """Table II is all words and numbers."""
    raise InvalidInput("dras-table2 is a table: leave out --output (dras-2 and dras-3 draw the same log)")


def _classes(cores: Ints, machine: int) -> tuple[Ints, list[str]]:
    """The class of each job, and the names of the classes: the finest of which no more than nine have jobs."""
    for most in range(machine.bit_length() + 1, 1, -1):
        bounds = size_classes(machine, most)
        found = np.minimum(np.searchsorted(bounds, cores), len(bounds) - 1)
        if len(np.unique(found)) <= len(LIGHT):
            break
    return found, class_names(bounds)


def by_size(log: LogCase) -> list[SizeClass]:
    """Figure 2: classes of sizes that have jobs, from the smallest."""
    jobs = log.workload
    places, names = _classes(jobs.cores, log.cluster.cores)
    counts = np.bincount(places)
    hours = np.bincount(places, weights=jobs.run * jobs.cores / HOUR)
    return [SizeClass(names[k], int(counts[k]), float(hours[k])) for k in np.flatnonzero(counts).tolist()]


def sizes_table(rows: Sequence[SizeClass]) -> list[dict[str, Any]]:
    """Figure 2 in numbers."""
    jobs, hours = sum(row.jobs for row in rows), sum(row.core_hours for row in rows) or 1.0
    return [
        {
            "cores": row.cores,
            "jobs": row.jobs,
            "jobs [%]": 100 * row.jobs / jobs,
            "core-hours": round(row.core_hours),
            "core-hours [%]": 100 * row.core_hours / hours,
        }
        for row in rows
    ]


def draw_sizes(rows: Sequence[SizeClass], path: str | Path) -> None:
    """Draw Figure 2: jobs as the outer ring, their core-hours as the inner one."""
    from matplotlib.patches import Patch

    figure = new_figure(WIDTH_IN / 2, 3.6)
    axes = figure.add_subplot()
    colours = [stage_colour(place) for place in range(len(rows))]
    ring: dict[str, Any] = {"colors": colours, "startangle": 90, "counterclock": False}
    width, edge = 0.3, "white"
    for radius, values in ((1.0, [row.jobs for row in rows]), (0.66, [row.core_hours for row in rows])):
        axes.pie(values, radius=radius, wedgeprops={"width": width, "edgecolor": edge, "linewidth": 0.5}, **ring)
    axes.text(0, 0, "outer: jobs\ninner: core-hours", ha="center", va="center", fontsize=SMALL_PT)
    legend_above(figure, [Patch(facecolor=c, label=row.cores) for c, row in zip(colours, rows, strict=True)])
    save_figure(figure, path)


WEEKDAY, HOUR_OF_DAY, SIZE, ACCURACY = "weekday (UTC)", "hour (UTC)", "job size [cores]", "run time / requested [%]"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONDAY = 4 * DAY  # of the first Monday since the epoch
_TENTHS = (*(f"{10 * k}-{10 * k + 10}" for k in range(10)), "more")


def patterns(log: LogCase) -> list[PatternBar]:
    """Figure 3: shares of the jobs by weekday, hour, size, and share of the requested time that they ran.

    Of the cycles only whole weeks and days count. Jobs that request no time are left out of the last.

    Raises
    ------
    InvalidInput
        When the log does not tell the date of its first job.
    """
    if np.isnan(log.epoch):
        raise InvalidInput(f"{log.name} has no dates (an SWF log has them by UnixStartTime): no weekdays to show")
    jobs = log.workload
    since_monday = jobs.submit + log.epoch - _MONDAY
    places, names = _classes(jobs.cores, log.cluster.cores)
    sizes = np.bincount(places, minlength=len(names)).astype(np.float64)
    requested = ~np.isnan(jobs.walltime)
    used = np.ceil(10 * jobs.run[requested] / jobs.walltime[requested]) - 1
    tenths = np.bincount(np.clip(used, 0, 10).astype(np.int64), minlength=len(_TENTHS)).astype(np.float64)
    return [
        *_bars(WEEKDAY, _DAYS, np.array(measure(since_monday, WEEK, 7).weights)),
        *_bars(HOUR_OF_DAY, [str(hour) for hour in range(24)], np.array(measure(since_monday, DAY, 24).weights)),
        *(bar for bar in _bars(SIZE, names, sizes) if bar.share),
        *_bars(ACCURACY, _TENTHS, tenths),
    ]


def _bars(pattern: str, at: Sequence[str], counts: Floats) -> list[PatternBar]:
    shares = counts / max(counts.sum(), 1.0)
    return [PatternBar(pattern, name, share) for name, share in zip(at, shares.tolist(), strict=True)]


def patterns_table(rows: Sequence[PatternBar]) -> list[dict[str, Any]]:
    """Figure 3 in numbers."""
    return [{"pattern": row.pattern, "at": row.at, "jobs [%]": 100 * row.share} for row in rows]


def draw_patterns(rows: Sequence[PatternBar], path: str | Path) -> None:
    """Draw Figure 3: a chart for each pattern."""
    names = list(dict.fromkeys(row.pattern for row in rows))
    figure = new_figure(WIDTH_IN, 4.4)
    for axes, name in zip(charts(figure, 2, 2, grid="y"), names, strict=True):
        mine = [row for row in rows if row.pattern == name]
        axes.bar(range(len(mine)), [100 * row.share for row in mine], color=BUSY)
        every, leaning = len(mine) // 12 or 1, max(len(row.at) for row in mine) > 3
        axes.set_xticks(range(0, len(mine), every), [row.at for row in mine][::every])
        axes.tick_params(axis="x", rotation=30 * leaning)
        axes.set_ylabel("jobs [%]")
        heading(axes, name)
    save_figure(figure, path)
