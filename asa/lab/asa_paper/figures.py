"""``asa figure asa-makespan``, ``asa-corehours`` and ``asa-pareto``: the paper's runs over several seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.lab.asa_paper.compare import compare
from asa.lab.asa_paper.published import SCALES, STRATEGIES_SHOWN
from asa.lab.asa_paper.tables import ORACLE, Grid, RunRow, corehours_figure, makespan_figure, ratio_of_sums
from asa.lab.study import Estimate, Figure, percent, reaches, read_rows
from asa.report.picture import (
    LINE,
    charts,
    heading,
    legend_above,
    marker,
    new_figure,
    save_figure,
    series_colour,
    ticks_at,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PAPER_REGIME = QueueRegime.ACCRUE_ALWAYS.value
"""The paper's strategy gains by job dependencies: it can only have been run where dependent jobs age."""


def asa_makespan(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> Figure:
    """Figures 6 to 8.

    Parameters
    ----------
    source
        What ``asa compare --json`` wrote; its rows are drawn, and nothing is run.
    """
    return makespan_figure(_rows(seeds, seed, source))


def asa_corehours(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> Figure:
    """Figure 9; takes what `asa_makespan` takes."""
    return corehours_figure(_rows(seeds, seed, source))


def _rows(seeds: int, seed: int, source: str | None) -> Sequence[RunRow]:
    if source is not None:
        return read_runs(source)
    processes = len(os.sched_getaffinity(0))
    return compare(
        systems=tuple(SCALES),
        strategies=STRATEGIES_SHOWN,
        regimes=(PAPER_REGIME,),
        seeds=seeds,
        seed=seed,
        oracle=False,
        processes=processes,
    ).rows


def read_runs(path: str | Path) -> list[RunRow]:
    """The rows of the first regime in a file that ``asa compare --json`` wrote."""
    rows: list[RunRow] = read_rows(path, lambda **values: RunRow.from_json(values), "asa compare --json writes")
    return [row for row in rows if row.regime == rows[0].regime]


REGIME = QueueRegime.LIMITS.value
"""Slurm's usual one, in which dependent jobs lose their age."""

NEEDED = ("big-job", "per-stage")
"""Strategies that the others are measured by."""

BESIDE = (*STRATEGIES_SHOWN, "cascade", "hold")
"""What stands beside the staggered requests; the oracle besides."""

ASIDE = (ORACLE, "hold", "auto")
"""What is drawn beside the front but not on it: the one cannot be had, and the others hold places."""

STAGGERED = (
    *(f"stagger:outstanding={most}" for most in (1, 2, 3, 5, 10)),
    *(f"stagger:outstanding={most},spacing_s={apart}" for most in (1, 2, 3, 5, 10) for apart in (600, 1800, 3600)),
    *(f"stagger:grace_s={grace}" for grace in (30, 1800)),
    *(f"stagger:late={late}" for late in (0.3, 0.5, 0.7, 0.9)),
    *(f"stagger:patience={patience}" for patience in (10, 50, 200)),
    *(f"stagger:max_overhead={percent}%" for percent in (1, 3, 10)),
    *(f"stagger:grace_s=30,max_overhead={percent}%" for percent in (1, 3)),
)
"""Staggered requests; by default three, a third of the wait apart, with 300 s of grace."""


@dataclass(frozen=True)
class ParetoPoint:
    """What a strategy reaches, in sums over all cases of a system, or of several.

    Parameters
    ----------
    system
        Its name; None for all together.
    makespan
        Over Big Job's.
    extra
        Core-hours charged beyond Per-Stage's, as a share of them.
    outstanding
        Jobs of a stage that were in the queue at a time, at most in any run.
    efficient
        Whether no other strategy is as fast for less, or faster for as much; without those in `ASIDE`.
    """

    system: str | None
    strategy: str
    makespan: Estimate
    extra: Estimate
    outstanding: int
    efficient: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "strategy": self.strategy,
            "makespan": self.makespan.to_json(),
            "extra": self.extra.to_json(),
            "outstanding": self.outstanding,
            "efficient": self.efficient,
        }


@dataclass(frozen=True)
class Pareto:
    """Runs, and the points that they make: for all systems together and, if there are several, for each alone.

    Raises
    ------
    InvalidInput
        When these are missing, or there is more than one regime.
    """

    rows: Sequence[RunRow]
    points: tuple[ParetoPoint, ...] = field(init=False)

    def __post_init__(self) -> None:
        if len(regimes := {row.regime for row in self.rows}) > 1:
            raise InvalidInput(f"rows of the regimes {', '.join(sorted(regimes))}: those of one expected")
        systems = list(dict.fromkeys(row.system for row in self.rows))
        asked = [None, *systems] if len(systems) > 1 else systems
        object.__setattr__(self, "points", tuple(point for system in asked for point in points(self.rows, system)))

    def draw(self, path: str | Path) -> None:
        """Draw it: a chart for each system, and one for all."""
        draw_points(self.points, path)

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], "points": [point.to_json() for point in self.points]}

    def table(self) -> list[dict[str, Any]]:
        """The points as lines for people, the fastest first."""
        return [
            {
                "system": point.system or "all",
                "strategy": point.strategy,
                "makespan / Big Job": str(point.makespan),
                "core-hours beyond Per-Stage": percent(point.extra),
                "in queue": point.outstanding,
                "front": "*" if point.efficient else "",
            }
            for system in dict.fromkeys(point.system for point in self.points)
            for point in sorted(self.points, key=lambda point: point.makespan.value)
            if point.system == system
        ]


def asa_pareto(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> Pareto:
    """The front for the paper's workflows on both systems, where no place is held."""
    if source is not None:
        return Pareto(read_runs(source))
    return Pareto(
        compare(
            systems=tuple(SCALES),
            strategies=(*BESIDE, *STAGGERED),
            regimes=(REGIME,),
            seeds=seeds,
            seed=seed,
            processes=len(os.sched_getaffinity(0)),
        ).rows
    )


def points(rows: Sequence[RunRow], system: str | None = None) -> list[ParetoPoint]:
    """What each strategy reaches on a system, or on all together: ratios of sums, with intervals over seeds."""
    inside = [row for row in rows if system in (None, row.system)]
    grid = Grid.of(inside)
    if missing := [name for name in NEEDED if name not in grid.strategies]:
        raise InvalidInput(f"there are no runs of {missing[0]!r} to measure the others by: add it to the strategies")
    big, exact = (grid.strategies.index(name) for name in NEEDED)
    every = range(len(grid.strategies))
    makespans = [grid.estimate("makespan_s", ratio_of_sums, strategies=[k, big]) for k in every]
    extras = [grid.estimate("core_hours", _beyond, strategies=[k, exact]) for k in every]
    real = [k for k, name in enumerate(grid.strategies) if name.partition(":")[0] not in ASIDE]
    best = {real[place] for place in front(np.array([(makespans[k].value, extras[k].value) for k in real]))}
    return [
        ParetoPoint(
            system,
            name,
            makespans[k],
            extras[k],
            max(row.outstanding for row in inside if row.strategy == name),
            k in best,
        )
        for k, name in enumerate(grid.strategies)
    ]


def front(values: Floats) -> list[int]:
    """Rows of values, shape (n, 2), that no other is below in one column and at most equal in the other.

    Of rows that are alike all are on the front.

    Examples
    --------
    >>> front(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 4.0], [3.0, 1.0]]))
    [0, 1, 3]
    """
    found = []
    for place, own in enumerate(values):
        beaten = (values <= own).all(axis=1) & (values < own).any(axis=1)
        if not beaten.any():
            found.append(place)
    return found


def _beyond(means: Floats) -> Floats:
    return ratio_of_sums(means) - 1.0


_NEAR = 3.0
"""The horizontal axis is linear up to here [% of Per-Stage's core-hours], and logarithmic beyond."""
_TICKS = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def draw_points(points: Sequence[ParetoPoint], path: str | Path) -> None:
    """Draw a chart for each system; the suffix of `path` decides the format.

    A mark is a strategy, a colour and shape one kind of it, with lines for the intervals; a stepped line joins those on
    the front.
    """
    systems = list(dict.fromkeys(point.system for point in points))
    kinds = list(dict.fromkeys(kind(point.strategy) for point in points))
    figure = new_figure(3.4 * len(systems) + 1.4, 3.8)
    made = charts(figure, 1, len(systems), grid="")
    for axes, system in zip(made, systems, strict=True):
        _chart(axes, [point for point in points if point.system == system], kinds)
        heading(axes, system or "all systems")
    made[0].set_ylabel("makespan / Big Job's")
    legend_above(figure, made[0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def kind(strategy: str) -> str:
    """What points of a strategy are called in the legend: its name, and which option is not the default.

    >>> kind("hold"), kind("stagger:late=0.3"), kind("stagger:outstanding=1,spacing_s=600")
    ('hold', 'stagger: late', 'stagger: outstanding, spacing_s')
    """
    name, _, options = strategy.partition(":")
    changed = ", ".join(option.partition("=")[0] for option in options.split(",") if option)
    return f"{name}: {changed}" if changed else name


def _chart(axes: Axes, points: Sequence[ParetoPoint], kinds: Sequence[str]) -> None:
    axes.axhline(1.0, color=LINE, linewidth=0.6)
    axes.axvline(0.0, color=LINE, linewidth=0.6)
    for place, name in enumerate(kinds):
        chosen = [point for point in points if kind(point.strategy) == name]
        axes.errorbar(
            [100 * point.extra.value for point in chosen],
            [point.makespan.value for point in chosen],
            xerr=100 * reaches([point.extra for point in chosen]),
            yerr=reaches([point.makespan for point in chosen]),
            fmt=marker(place),
            color="black" if name == ORACLE else series_colour(place),
            markersize=4.5 if ":" in name else 6,
            elinewidth=0.5,
            alpha=0.9,
            label=name,
        )
    steps = sorted((100 * point.extra.value, point.makespan.value) for point in points if point.efficient)
    axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color="black", linewidth=0.9, zorder=1)
    axes.set_xscale("symlog", linthresh=_NEAR)
    axes.set_xlabel("core-hours beyond Per-Stage's [%]")
    ticks_at(axes.xaxis, _TICKS)
