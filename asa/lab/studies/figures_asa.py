"""Figures 6 to 9 of the ASA paper: makespans with the waits in them, and core-hours.

They are made anew: every workflow of the paper at its six scales on both systems, in simulated queues.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asa.lab.report.stacked import Bar, Panel, Part, save_stacked
from asa.lab.studies.compare_row import Row
from asa.lab.studies.interval import estimate

LONG_S = 4 * 3600.0
"""Systems on which any run takes longer are drawn in hours [s]."""

_EARLY = 6  # of the palette: what is held too early
_COLOURS = (0, 2, 5, 8, 1, 3, 7, 4, 6)  # of the palette, so that neighbouring waits are told apart


@dataclass(frozen=True)
class AsaFigure:
    """A figure and the rows behind it.

    Parameters
    ----------
    rows
        Runs of a comparison.
    panel
        Makes the chart of a workflow on a system.
    title
        What is written above.
    """

    rows: Sequence[Row]
    panel: Callable[[str, str, Sequence[Row]], Panel]
    title: str

    def draw(self, path: str | Path) -> None:
        """Draw it: a row of charts for each workflow, a column for each system."""
        systems = dict.fromkeys(row.system for row in self.rows)
        workflows = dict.fromkeys(row.workflow for row in self.rows)
        panels = [
            [
                self.panel(
                    workflow, system, [row for row in self.rows if (row.workflow, row.system) == (workflow, system)]
                )
                for system in systems
            ]
            for workflow in workflows
        ]
        save_stacked(panels, path, title=self.title)

    def to_json(self) -> dict[str, Any]:
        """The rows, JSON-able."""
        return {"rows": [row.to_json() for row in self.rows]}


def makespan_figure(rows: Sequence[Row]) -> AsaFigure:
    """Figures 6 to 8: makespans, in means over seeds, with the waits between stages stacked in order of time."""
    long = {row.system for row in rows if row.makespan_s > LONG_S}
    return AsaFigure(rows, partial(_makespans, long), f"makespan and the waits in it{_over(rows)}")


def corehours_figure(rows: Sequence[Row]) -> AsaFigure:
    """Figure 9: core-hours, in means over seeds; what was held idle because it came too early on top."""
    return AsaFigure(rows, _core_hours, f"core-hours charged{_over(rows)}")


def _makespans(long: Container[str], workflow: str, system: str, rows: Sequence[Row]) -> Panel:
    unit, seconds = ("h", 3600.0) if system in long else ("min", 60.0)
    bars = []
    for group in _groups(rows):
        parts = []
        for place in range(len(group[0].stages)):
            wait = float(np.mean([row.stages[place].wait_s for row in group]))
            run = float(np.mean([row.stages[place].run_time_s for row in group]))
            parts.append(Part(wait / seconds, f"wait {place + 1}", _COLOURS[place % len(_COLOURS)]))
            parts.append(Part(run / seconds, "running"))
        bars.append(_bar(group, parts, [row.makespan_s / seconds for row in group]))
    return Panel(f"{workflow}, {system}", f"makespan [{unit}]", bars)


def _core_hours(workflow: str, system: str, rows: Sequence[Row]) -> Panel:
    bars = []
    for group in _groups(rows):
        charged = float(np.mean([row.core_hours for row in group]))
        early = float(np.mean([row.overhead_core_hours for row in group]))
        parts = [Part(charged - early, "for the workflow"), Part(early, "held too early", _EARLY)]
        bars.append(_bar(group, parts, [row.core_hours for row in group]))
    return Panel(f"{workflow}, {system}", "core-hours", bars)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that differ in their seed only."""
    found: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.cores, row.strategy), []).append(row)
    return list(found.values())


def _bar(group: Sequence[Row], parts: Sequence[Part], totals: Sequence[float]) -> Bar:
    found = estimate(lambda values: values.mean((-2, -1)), np.array(totals)[:, None])
    interval = None if found.low is None or found.high is None else (found.low, found.high)
    return Bar(f"{group[0].cores} cores", group[0].strategy, tuple(parts), interval)


def _over(rows: Sequence[Row]) -> str:
    seeds, regimes = len({row.seed for row in rows}), ", ".join(dict.fromkeys(row.regime for row in rows))
    return f" ({regimes}; mean of {seeds} seeds, lines: 95 % interval)" if seeds > 1 else f" ({regimes})"
