"""What a policy sees of a decision; DRAS's: numbers for each job of the window, and for each node.

References
----------
Y. Fan, T. Childers, P. Rich, W. Allcock, M. Papka and Z. Lan, "Deep Reinforcement Agent for Scheduling in HPC", IPDPS
2021, section III-A (State) and III-B (shapes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.queue import Queue
from asa.lab.dispatchers.learned.selection import Selection


class Sight(Protocol):
    """What a policy sees of a decision, and of how many jobs."""

    @property
    def window(self) -> int:
        """Jobs to select from at most, W; >= 1."""

    def shape(self, nodes: int) -> tuple[int, ...]:
        """Of what is seen of a machine of so many nodes."""

    def __call__(self, selection: Selection) -> Reals:
        """What is seen of a decision with something to select, or with nothing."""


@dataclass(frozen=True)
class Rows:
    """What DRAS sees (section III-A): see `observe`.

    Parameters
    ----------
    window
        Jobs to select from at most, W; >= 1.
    scaling
        A name of `SCALINGS`.

    Raises
    ------
    InvalidInput
        When the window is below 1.
    UnknownName
        When there is no such scaling.
    """

    window: int = 50
    scaling: str = "raw"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {self.window}")
        if self.scaling not in SCALINGS:
            raise UnknownName("scaling", self.scaling, SCALINGS)

    def shape(self, nodes: int) -> tuple[int, ...]:
        """``(2 W + N, 2)``."""
        return 2 * self.window + nodes, 2

    def __call__(self, selection: Selection) -> Reals:
        return observe(selection.queue, selection.places, self.window, self.scaling)


def job_rows(size: Ints, estimate: Floats, priority: Floats, wait: Floats, window: int) -> Floats:
    """Two rows for each job, then zeros: (size, estimated run time [s]) and (priority, time queued [s]).

    Parameters
    ----------
    size, estimate, priority, wait
        Of at most `window` jobs, shape (j,).
    window
        For how many jobs there is room, W.

    Returns
    -------
    ndarray
        Shape (2 W, 2).
    """
    rows = np.zeros((2 * window, 2))
    here = slice(0, 2 * len(size), 2), slice(1, 2 * len(size), 2)
    rows[here[0]] = np.column_stack([size, estimate])
    rows[here[1]] = np.column_stack([priority, wait])
    return rows


def node_rows(now: float, free: int, total: int, ends: Floats, held: Ints) -> Floats:
    """A row for each node: (1, 0) where it is free, or (0, time [s] until it is expected to be).

    Deviation: free nodes come first, then busy ones by their expected ends. The paper numbers nodes; but equal nodes
    have no order that matters, and so the same situation always looks the same. Nodes that are down, which are neither
    free nor expected back, come last, as (0, 0).

    Returns
    -------
    ndarray
        Shape (total, 2).
    """
    order = np.argsort(ends, kind="stable")
    until = np.repeat(np.asarray(ends)[order] - now, np.asarray(held)[order])
    rows = np.zeros((total, 2))
    rows[:free, 0] = 1.0
    rows[free : free + len(until), 1] = until
    return rows


def observe(queue: Queue, places: Ints, window: int, scaling: str = "raw") -> Reals:
    """The state of a decision about the jobs at these places of the queue; shape (2 W + N, 2).

    Jobs come first, then nodes. N is what the machine has.

    Raises
    ------
    UnknownName
        When there is no such scaling.

    Examples
    --------
    One job that asks for two of three nodes for a minute, and came 5 s ago; a node is free, two others will be in 30 s.

    >>> queue = Queue(100.0, ["A"], np.array([2]), np.array([60.0]), np.array([5.0]), np.array([1.0]), 1, 3,
    ...               ends=np.array([130.0]), held=np.array([2]))
    >>> observe(queue, np.array([0]), window=1).tolist()
    [[2.0, 60.0], [1.0, 5.0], [1.0, 0.0], [0.0, 30.0], [0.0, 30.0]]
    """
    q = queue
    jobs = job_rows(q.size[places], q.estimate[places], q.priority[places], q.wait[places], window)
    nodes = node_rows(queue.now, queue.free, queue.total, queue.ends, queue.held)
    return scaled(np.concatenate([jobs, nodes]), window, scaling)


def scaled(rows: Floats, window: int, scaling: str) -> Reals:
    """The same in other units: see `SCALINGS`."""
    if scaling not in SCALINGS:
        raise UnknownName("scaling", scaling, SCALINGS)
    found: Reals = SCALINGS[scaling](rows, window).astype(np.float32)
    return found


def _raw(rows: Floats, window: int) -> Floats:
    return rows


def _shares(rows: Floats, window: int) -> Floats:
    rows = rows.copy()
    rows[:, 1] /= DAY
    rows[: 2 * window : 2, 0] /= len(rows) - 2 * window
    return rows


SCALINGS: Mapping[str, Callable[[Floats, int], Floats]] = {"raw": _raw, "shares": _shares}
"""``"raw"``: nodes and seconds, as in the paper. ``"shares"``: sizes in shares of the machine, times in days, so that
one learning rate suits all columns."""


def one_by_one(observation: Reals, window: int) -> Reals:
    """What DRAS-DQL's network sees: each job on its own, with all nodes; shape (W, 2 + N, 2)."""
    jobs, nodes = observation[: 2 * window].reshape(window, 2, 2), observation[2 * window :]
    return np.concatenate([jobs, np.broadcast_to(nodes, (window, *nodes.shape))], axis=1)
