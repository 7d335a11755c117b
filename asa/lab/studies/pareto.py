"""``asa figure asa-pareto``: how much faster a strategy is than Big Job, and what it is charged beyond Per-Stage.

For queues in which no place is held, strategies can only buy time with core-hours: allocations that come before their
stage idle. The front is what can be had for what.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.lab.studies.compare import compare
from asa.lab.studies.compare_row import ORACLE, Row
from asa.lab.studies.interval import Estimate
from asa.lab.studies.paper_figures import read_rows
from asa.lab.studies.pareto_picture import draw
from asa.lab.studies.published import SCALES, STRATEGIES_SHOWN
from asa.lab.studies.table1 import Grid, ratio_of_sums

REGIME = QueueRegime.LIMITS.value
"""Slurm's usual one, in which dependent jobs lose their age."""

NEEDED = ("big-job", "per-stage")
"""Strategies that the others are measured by."""

BESIDE = (*STRATEGIES_SHOWN, "cascade", "hold")
"""What stands beside the staggered requests; the oracle besides."""

ASIDE = (ORACLE, "hold", "auto")
"""What is drawn beside the front but not on it: nobody can have the one, and the others hold places."""

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
class Point:
    """What a strategy reaches, in sums over all cases of a system, or of several.

    Parameters
    ----------
    system
        Its name; None for all together.
    strategy
        Spec.
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
        """All of it, JSON-able."""
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

    Parameters
    ----------
    rows
        Of one regime, Big Job and Per-Stage among them.

    Raises
    ------
    InvalidInput
        When these are missing, or there is more than one regime.
    """

    rows: Sequence[Row]
    points: tuple[Point, ...] = field(init=False)

    def __post_init__(self) -> None:
        if len(regimes := {row.regime for row in self.rows}) > 1:
            raise InvalidInput(f"rows of the regimes {', '.join(sorted(regimes))}: those of one expected")
        systems = list(dict.fromkeys(row.system for row in self.rows))
        asked = [None, *systems] if len(systems) > 1 else systems
        object.__setattr__(self, "points", tuple(point for system in asked for point in points(self.rows, system)))

    def draw(self, path: str | Path) -> None:
        """Draw it: a chart for each system, and one for all."""
        draw(self.points, path)

    def to_json(self) -> dict[str, Any]:
        """Rows and points, JSON-able."""
        return {"rows": [row.to_json() for row in self.rows], "points": [point.to_json() for point in self.points]}

    def table(self) -> list[dict[str, Any]]:
        """The points as lines for people, the fastest first."""
        return [
            {
                "system": point.system or "all",
                "strategy": point.strategy,
                "makespan / Big Job": str(point.makespan),
                "core-hours beyond Per-Stage": _percent(point.extra),
                "in queue": point.outstanding,
                "front": "*" if point.efficient else "",
            }
            for system in dict.fromkeys(point.system for point in self.points)
            for point in sorted(self.points, key=lambda point: point.makespan.value)
            if point.system == system
        ]


def asa_pareto(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> Pareto:
    """The front for the paper's workflows on both systems, where no place is held.

    Parameters
    ----------
    seeds, seed
        How many queues of each system, and the first one's seed.
    source
        What ``asa compare --json`` wrote; the points of its rows are taken, and nothing is run.
    """
    if source is not None:
        return Pareto(read_rows(source))
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


def points(rows: Sequence[Row], system: str | None = None) -> list[Point]:
    """What each strategy reaches on a system, or on all together: ratios of sums, with intervals over seeds.

    Raises
    ------
    InvalidInput
        When Big Job or Per-Stage was not run.
    """
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
        Point(
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


def _percent(found: Estimate) -> str:
    shown = [f"{100 * part:+.1f}" for part in (found.value, found.low, found.high) if part is not None]
    return f"{shown[0]} %" if len(set(shown)) == 1 else f"{shown[0]} % [{shown[1]}, {shown[2]}]"
