"""Placement methods on the same windows: what they cost, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.cost import cost
from asa.lab.placement.tjap.instance import Window
from asa.lab.studies.timing import clocked
from asa.lab.training.windows import PERIODS

DRIVER = "scas"
"""Whose placements the clusters have. The paper says that of its neural method; its authors' code (``test`` of
``simanneal/test_sa.py``) takes what SCIP has found within 30 s where that is better, which it mostly is."""


@dataclass(frozen=True)
class WindowsRow:
    """A method on the windows of one epoch.

    Parameters
    ----------
    method, epoch
        Its spec, and the epoch's number.
    windows
        How many there are; the epoch's other periods have no jobs of several nodes.
    cost
        Of all windows, by the number of periods.
    mean_s, max_s
        How long a window takes [s], compilation excluded.
    """

    method: str
    epoch: int
    windows: int
    cost: float
    mean_s: float
    max_s: float


def on_windows(epochs: Iterable[Sequence[Window]], methods: Sequence[str], periods: int = PERIODS) -> list[WindowsRow]:
    """Every method on all windows of each epoch."""
    made = {spec: PLACEMENT_METHODS.create(spec) for spec in methods}
    rows = []
    for epoch, windows in enumerate(epochs):
        for spec, method in made.items():
            if epoch == 0 and windows:
                method.place(max(windows, key=lambda each: len(each.sizes)))  # compiles
            paid, seconds = 0.0, [0.0] * len(windows)
            for place, window in enumerate(windows):
                found, seconds[place], _ = clocked(method.place, window)
                paid += cost(window, found)
            mean, most = (sum(seconds) / len(windows), max(seconds)) if windows else (0.0, 0.0)
            rows.append(WindowsRow(spec, epoch, len(windows), paid / periods, mean, most))
    return rows
