"""The tables of the topology-aware allocation paper, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.lab.studies.interval import Estimate, estimate
from asa.lab.studies.tjap_loop import ALONE
from asa.lab.studies.tjap_published import FIGURE_6, TABLES

STEPS = (500, 600, 700, 800, 900, 1000)
"""Iterations of the neural method in figure 5; plain annealing has twice as many."""

CHANGE, PUBLISHED = "change [%]", "published [%]"
"""Columns that pictures show: an `Estimate`, and a number or None."""

Rows = Sequence[Any]


def pair(steps: int) -> tuple[str, str]:
    """The two methods that figure 5 compares: plain annealing, and the neural method with so many iterations."""
    return f"sa:as_published=yes,iterations={2 * steps}", f"nsa:iterations={steps}"


def by_name(rows: Rows, name: str, value: str) -> dict[str, Floats]:
    """A column of the rows of each dispatcher or method, by epoch."""
    found: dict[str, list[float]] = {}
    for each in rows:
        found.setdefault(getattr(each, name), []).append(getattr(each, value))
    return {key: np.array(values) for key, values in found.items()}


def change(mine: Floats, other: Floats) -> Estimate:
    """How much more than `other` this is, in sum over epochs [%], with an interval over pairs of epochs."""

    def in_percent(values: Floats) -> Floats:
        sums = values.sum(axis=-2)
        found: Floats = 100 * (sums[..., 0] / sums[..., 1] - 1)
        return found

    return estimate(in_percent, np.column_stack([mine, other]))


def loop_table(rows: Rows) -> list[dict[str, Any]]:
    """The closed loop: against the first dispatcher, and how far above what jobs cost alone."""
    lines = []
    for geometry in dict.fromkeys(each.geometry for each in rows):
        here = [each for each in rows if each.geometry == geometry]
        cost, mean, most = (by_name(here, "dispatcher", what) for what in ("cost", "mean_s", "max_s"))
        first = next(name for name in cost if name != ALONE)
        lines += [
            {
                "geometry": geometry,
                "dispatcher": name,
                "cost": round(float(paid.mean())),
                CHANGE: change(paid, cost[first]),
                "above alone [%]": 100 * (paid.sum() / cost[ALONE].sum() - 1),
                "mean [ms]": 1e3 * mean[name].mean(),
                "most [ms]": 1e3 * most[name].max(),
            }
            for name, paid in cost.items()
        ]
    return lines


def table_6(rows: Rows) -> list[dict[str, Any]]:
    """Figure 6."""
    cost, wait = (by_name(rows, "dispatcher", what) for what in ("job_cost", "wait_s"))
    return [
        {
            "dispatcher": name,
            "cost of a job": round(float(paid.mean())),
            CHANGE: change(paid, cost["fcfs"]),
            "published": round(FIGURE_6[name][0]),
            PUBLISHED: 100 * (FIGURE_6[name][0] / FIGURE_6["fcfs"][0] - 1),
            "wait [s]": wait[name].mean(),
            "published [s]": FIGURE_6[name][1],
        }
        for name, paid in cost.items()
    ]


def windows_table(rows: Rows) -> list[dict[str, Any]]:
    """Tables III and IV: beside what was published."""
    cost, mean, most = (by_name(rows, "method", what) for what in ("cost", "mean_s", "max_s"))
    first = next(iter(cost))
    lines = []
    for name, paid in cost.items():
        published, seconds = TABLES.get(name, (None, None))
        lines.append(
            {
                "method": name,
                "cost": round(float(paid.mean())),
                CHANGE: change(paid, cost[first]),
                "published": published and round(published),
                PUBLISHED: published and 100 * (published / TABLES[first][0] - 1),
                "mean [ms]": 1e3 * mean[name].mean(),
                "most [ms]": 1e3 * most[name].max(),
                "published [ms]": seconds and 1e3 * seconds,
            }
        )
    return lines


def gain_table(rows: Rows) -> list[dict[str, Any]]:
    """Figure 5."""
    cost, mean = (by_name(rows, "method", what) for what in ("cost", "mean_s"))
    lines = []
    for steps in STEPS:
        plain, neural = pair(steps)
        lines.append(
            {
                "iterations": steps,
                "of sa": 2 * steps,
                CHANGE: change(cost[neural], cost[plain]),
                "mean [ms]": 1e3 * mean[neural].mean(),
                "sa [ms]": 1e3 * mean[plain].mean(),
            }
        )
    return lines
