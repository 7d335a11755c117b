"""`Backfill` on tables: the compiled scans behind the same decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from asa.core.decision import DispatchDecision, NodeRun, Reserve, Start
from asa.lab.core.table import TableView
from asa.lab.dispatchers.nodescan import scan_nodes
from asa.lab.dispatchers.scan import scan

if TYPE_CHECKING:
    from asa.lab.dispatchers.backfill import Backfill


def decide(rule: Backfill, view: TableView) -> list[DispatchDecision]:
    """What to start now, and which later starts are promised; in the queue's order."""
    waiting = view.waiting if rule.order is None else view.waiting[rule.order.arrange(view)]
    depth, limit = float(rule.depth), int(min(rule.limit, len(waiting)))
    starts, promised = np.empty(max(1, len(waiting)), np.int64), np.empty(max(1, len(waiting)))
    chosen: dict[int, list[NodeRun]] = {}
    if view.slots >= 0:
        started = scan(
            view.now, depth, limit, view.slots, view.all_slots, view.jobs, waiting, view.active, view.ends,
            starts, promised, True,
        )  # fmt: skip
    else:
        started, rows = scan_nodes(
            view.now, depth, limit, view.placement, view.jobs, view.demands, waiting, view.release_at, view.release,
            view.free, view.allowed, starts, promised,
        )  # fmt: skip
        for place, first, last, units in rows.tolist():
            chosen.setdefault(place, []).append(NodeRun(first, last, units))
    going = set(starts[:started].tolist())
    decisions: list[DispatchDecision] = []
    for place in sorted(going | set(np.flatnonzero(~np.isnan(promised[:limit])).tolist())):
        row = int(waiting[place])
        if place in going:
            decisions.append(Start(row, tuple(chosen.get(place, ()))))
        else:
            decisions.append(Reserve(row, float(promised[place])))
    return decisions
