"""Figure 4 of the topology-aware allocation paper: how the six networks of its Table II learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import UnknownName
from asa.lab.placement.tjap.nsa_network import NETWORKS
from asa.lab.studies.figure import Figure, read_rows
from asa.lab.training.nsa import Point, train
from asa.lab.training.picture import draw_curves

TAIL = 5
"""Points at the end of a curve whose mean is a network's result."""


@dataclass(frozen=True, slots=True)
class CurveRow(Point):
    """A point of a network's training curve.

    Parameters
    ----------
    network
        Its name.
    """

    network: str


def learning(rows: Sequence[CurveRow]) -> Figure:
    """The figure of these curves, one network after the other."""
    return Figure(rows, learning_table, draw_learning)


def by_network(rows: Sequence[CurveRow]) -> dict[str, list[CurveRow]]:
    """The curve of each network, in the paper's order."""
    curves = {name: [row for row in rows if row.network == name] for name in NETWORKS}
    return {name: curve for name, curve in curves.items() if curve}


def draw_learning(rows: Sequence[CurveRow], path: str | Path) -> None:
    """Draw the curves; the suffix of `path` decides the format."""
    draw_curves(by_network(rows), path)


def learning_table(rows: Sequence[CurveRow]) -> list[dict[str, Any]]:
    """A line for each network."""
    return [
        {
            "network": name,
            "parameters": sum(layer.parameters for layer in NETWORKS[name] if layer.inputs),
            "actions": curve[-1].steps,
            "time [s]": curve[-1].seconds,
            "above exact insertion, first [%]": above(curve[:1]),
            "last [%]": above(curve[-TAIL:]),
        }
        for name, curve in by_network(rows).items()
    ]


def above(points: Sequence[Point]) -> float:
    """How much more repairs cost than exact insertion would [%], mean over the points."""
    return float(np.mean([100 * (point.cost / point.exact - 1) for point in points]))


def tjap_4(
    *,
    source: str | None = None,
    networks: Sequence[str] = tuple(NETWORKS),
    steps: int = 300_000,
    seed: int = 0,
) -> Figure:
    """Figure 4: train each network on the same windows, with the same number of actions.

    Parameters
    ----------
    source
        What this figure wrote with ``--json``; its curves are shown, and nothing is trained.
    networks
        Names of `NETWORKS`.
    steps
        Actions that each learns from.
    seed
        Of windows, first weights, and all that is drawn.

    Raises
    ------
    InvalidInput
        When a library for learning is not installed.
    UnknownName
        When there is no such network.
    """
    if source is not None:
        return learning(read_rows(source, CurveRow))
    if unknown := [name for name in networks if name not in NETWORKS]:
        raise UnknownName("network", unknown[0], NETWORKS)
    rows = [
        CurveRow(**asdict(point), network=name)
        for name in networks
        for point in train(network=name, steps=steps, seed=seed).curve
    ]
    return learning(rows)
