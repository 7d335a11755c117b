"""Every attempt at a task, in columns: a hundred thousand of them are a few arrays, not as many objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.run import FoldedRun, TaskOutcome

_RECORD = np.dtype(
    [(name, "<i4") for name in ("stage", "index", "allocation", "node", "outcome")]
    + [("started", "<f8"), ("ended", "<f8")]
)
"""`asa.core.run.ATTEMPT`."""
_COLUMNS = ("stage", "index", "allocation", "node", "cores", "outcome", "started", "ended")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one task, from `started` to `ended` [s since the epoch], on `cores` cores."""

    stage: str
    index: int
    allocation: str
    node: str
    cores: int
    started: float
    ended: float
    outcome: TaskOutcome


@dataclass(frozen=True, eq=False)
class Attempts:
    """All attempts of a run that were reported, in the order of the log. Iterating makes an `Attempt` of each row.

    Parameters
    ----------
    stage_names, allocation_names, node_names
        What the numbers in `stage`, `allocation` and `node` stand for.
    stage, index, allocation, node, cores, outcome
        Whole numbers, shape (n,) each.
    started, ended
        [s since the epoch], shape (n,) each; an attempt never ends before it starts.
    """

    stage_names: tuple[str, ...]
    allocation_names: tuple[str, ...]
    node_names: tuple[str, ...]
    stage: NDArray[np.int64]
    index: NDArray[np.int64]
    allocation: NDArray[np.int64]
    node: NDArray[np.int64]
    cores: NDArray[np.int64]
    outcome: NDArray[np.int64]
    started: NDArray[np.float64]
    ended: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.stage)

    def __iter__(self) -> Iterator[Attempt]:
        for row in range(len(self)):
            yield Attempt(
                stage=self.stage_names[self.stage[row]],
                index=int(self.index[row]),
                allocation=self.allocation_names[self.allocation[row]],
                node=self.node_names[self.node[row]],
                cores=int(self.cores[row]),
                started=float(self.started[row]),
                ended=float(self.ended[row]),
                outcome=TaskOutcome(self.outcome[row]),
            )

    def core_seconds(self, start: float = -np.inf, end: float = np.inf) -> NDArray[np.float64]:
        """Cores times the time [core s] that each attempt ran between `start` and `end`, shape (n,)."""
        inside = np.minimum(self.ended, end) - np.maximum(self.started, start)
        return np.asarray(self.cores * np.maximum(inside, 0.0))

    def rows_of(self, allocation: str) -> NDArray[np.int64]:
        """Positions of the attempts in this allocation, in the order of the log."""
        return self._by_allocation.get(allocation, np.empty(0, dtype=np.int64))

    def take(self, rows: NDArray[np.int64]) -> Attempts:
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    @cached_property
    def _by_allocation(self) -> dict[str, NDArray[np.int64]]:
        order = np.argsort(self.allocation, kind="stable")
        cuts = np.searchsorted(self.allocation[order], np.arange(1, len(self.allocation_names)))
        return dict(zip(self.allocation_names, np.split(order, cuts), strict=False))


def attempts_of(run: FoldedRun) -> Attempts:
    """All attempts of a run so far."""
    log = run.attempts
    table = np.frombuffer(bytes(log.records), dtype=_RECORD)
    columns: dict[str, Any] = {
        name: table[name].astype(np.int64) for name in ("stage", "index", "allocation", "node", "outcome")
    }
    columns |= {name: table[name].astype(np.float64) for name in ("started", "ended")}
    columns["cores"] = np.array([run.stages[name].spec.task.cores for name in log.stages], dtype=np.int64)[
        columns["stage"]
    ]
    return Attempts(tuple(log.stages), tuple(log.allocations), tuple(log.nodes), **columns)
