"""Decisions of a simulation, saved as instances that planners can be compared on.

Under different dispatchers a simulation goes different ways. On what one of them was asked, all can be asked.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.table import TableView
from asa.lab.dispatchers.planning.instance import Instance, from_view


@dataclass(frozen=True)
class Decision:
    """What there was to decide on.

    Parameters
    ----------
    instance
        Machine and queue; jobs are named by their numbers in the trace.
    """

    number: int
    at: float
    instance: Instance

    def to_json(self) -> dict[str, Any]:
        """As `asa.lab.dispatchers.planning.instance.read_instance` wants it. What runs is given run of nodes by run."""
        found, needs = self.instance, [_need(self.instance, kind) for kind in range(len(self.instance.demands))]
        running = [
            {"rn": units * (last - first + 1), **needs[kind], "end": end, "alloc": _alloc(first, last, units)}
            for (first, last, units, kind), end in zip(found.release.tolist(), found.release_at.tolist(), strict=True)
        ]
        columns = (found.names, found.units, found.kind, found.duration, found.waited)
        queue = [
            {"id": name, "rn": int(units), **needs[kind], "d": float(duration), "q": 0.0 - float(waited)}
            for name, units, kind, duration, waited in zip(*columns, strict=True)
        ]
        machine: dict[str, Any] = {"resources": list(found.resources), "cap": found.capacity.tolist()}
        if found.shared_names:
            machine["shared"] = dict(zip(found.shared_names, found.shared.tolist(), strict=True))
        return {"at": self.at, **machine, "running": running, "queue": queue}


class DecisionSample:
    """Some decisions of a simulation, each with the same chance, drawn while it runs; a `watch` of `simulate`.

    Those count at which jobs wait. That a dispatcher is asked again at an instant at which it has just started jobs is
    no decision of its own.

    References
    ----------
    J. S. Vitter, "Random sampling with a reservoir", ACM TOMS 11(1), 1985: Algorithm R.

    Examples
    --------
    >>> from asa.lab.core.cluster import Cluster
    >>> from asa.lab.core.workload import Workload
    >>> from asa.lab.simulator.run import simulate
    >>> sample = DecisionSample(10, seed=0)
    >>> jobs = Workload.of(submit=[0, 1, 2], run=[10, 10, 5], cores=[1, 2, 1], walltime=[10, 10, 8])
    >>> _ = simulate(jobs, Cluster.of(nodes=2), "easy", watch=sample)
    >>> [(decision.at, decision.instance.names) for decision in sample]
    [(0.0, (1,)), (1.0, (2,)), (2.0, (2, 3)), (7.0, (2,)), (10.0, (2,))]
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        if count < 1:
            raise InvalidInput(f"a sample of {count} decisions: at least 1 expected")
        self._most, self._random = count, np.random.default_rng(seed)
        self._kept: dict[int, Decision] = {}
        self._last = -math.inf
        self.seen = 0

    def __call__(self, view: TableView) -> None:
        """Look at a decision, and perhaps keep it.

        Raises
        ------
        InvalidInput
            When jobs are bound to partitions, nodes are kept from them, or only so many units may share a node:
            instance files do not tell that.
        """
        if not len(view.waiting) or view.now == self._last:
            return
        bound = len(view.windows) or view.jobs["per_node"].any() or not view.allowed.all()
        if not self.seen and view.slots < 0 and bound:
            raise InvalidInput(
                "decisions cannot be saved: files of instances know no partitions, no windows and no units per node"
            )
        place = self.seen if self.seen < self._most else int(self._random.integers(self.seen + 1))
        if place < self._most:
            numbers = view.jobs["number"][view.waiting].tolist()
            names = tuple(numbers if len(set(numbers)) == len(numbers) else view.waiting.tolist())
            self._kept[place] = Decision(self.seen, view.now, replace(from_view(view), names=names))
        self.seen, self._last = self.seen + 1, view.now

    def __iter__(self) -> Iterator[Decision]:
        """Those kept, in order of time."""
        return iter(sorted(self._kept.values(), key=lambda decision: decision.number))

    def __len__(self) -> int:
        return len(self._kept)

    def write(self, folder: str | Path) -> str:
        """Write each into a file of its own, named by its number, ``decision-0000123.json.gz``; says what it did."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for decision in self:
            data = gzip.compress(json.dumps(decision.to_json()).encode(), mtime=0)
            (folder / f"decision-{decision.number:07d}.json.gz").write_bytes(data)
        return f"{len(self):,} of {self.seen:,} decisions are in {folder}"


def _need(instance: Instance, kind: int) -> dict[str, Any]:
    """What a unit of that kind needs of its node, and draws of what is shared."""
    need: dict[str, Any] = {"req": instance.demands[kind].tolist()}
    if instance.shared_names:
        need["shared"] = dict(zip(instance.shared_names, instance.shared_demands[kind].tolist(), strict=True))
    return need


def _alloc(first: int, last: int, units: int) -> list[list[int]]:
    return [[node, units] for node in range(first, last + 1)]
