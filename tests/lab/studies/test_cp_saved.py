from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import Instance, Plan, Planned
from asa.lab.studies.cp_saved import Ratio, SavedRow, on_saved, pairs, planner, ratios, sampled
from tests.lab.studies.test_cp_loop import small


def row(dispatcher: str, decision: int, queue: int, seconds: float, **values: Any) -> SavedRow:
    given = {"objective": 2.0, "variables": None, "constraints": None} | values
    return SavedRow(dispatcher, decision, queue, 3, "feasible", 2 * seconds, seconds, **given)


def test_planners_on_the_same_decisions() -> None:
    here = small()
    sample = sampled(here, 8, 1)
    names = ["listplan", "listplan:scheme=non-delay"]
    rows = on_saved(sample, names, 0.0)
    assert len(rows) == 16 and {row.status for row in rows} == {"feasible"}
    queues = {decision.number: len(decision.instance) for decision in sample}
    assert all(row.queue == queues[row.decision] and row.seconds > 0 and row.cpu_s > 0 for row in rows)
    assert [row.objective for row in rows if row.dispatcher == "listplan"] == [
        plan.objective(decision.instance)
        for decision in sample
        if (plan := ListPlan().solve(decision.instance, 0.0).plan) is not None
    ]
    assert rows[0].variables is None


def test_what_planners_tell_of_their_models() -> None:
    class Models(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> Planned:
            found = super().solve(instance, seconds)
            return Planned(found.plan, found.status, notes={"variables": 10 * len(instance), "constraints": 7})

    class Broken(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> Planned:
            return Planned(Plan(np.zeros(len(instance)), np.zeros((0, 3), dtype=np.int64)), "optimal")

    class Helpless(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> Planned:
            return Planned(None, "unknown")

    class Slow(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> Planned:
            return Planned(None, "unknown", notes={"variables": 3, "out of time": "while building"})

    planners: Any = [Models(), Broken(), Helpless(), Slow()]
    found = on_saved(sampled(small(), 3, 1), planners, 0.0)
    assert all(row.variables == 10 * row.queue and row.constraints == 7 for row in found[::4])
    assert {row.status for row in found[1::4]} == {"broken"}
    assert {(row.status, row.objective) for row in found[2::4]} == {("unknown", None)}
    assert {row.variables for row in found[3::4]} == {None}, "half a model has no size"


def test_who_plans_no_queues_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'easy' makes no plans of whole queues"):
        planner("easy")


def test_ratios_by_queue_size() -> None:
    rows = [
        row("a", 0, 1, 1.0, variables=5), row("b", 0, 1, 2.0, variables=50),
        row("a", 1, 3, 1.0, variables=6), row("b", 1, 3, 1.0, variables=24),
        row("a", 2, 4, 8.0, variables=8, objective=3.0), row("b", 2, 4, 2.0, variables=16),
        row("a", 3, 9, 1.0, variables=1), row("b", 3, 9, 1.0, variables=2, objective=None),
        row("a", 4, 9, 1.0),
    ]  # fmt: skip
    assert len(pairs(rows, "a", "b")) == 4
    assert ratios(rows, "a", "b") == [
        Ratio(1, 1, 1, (1, 1), (0.1, 0.1, 0.1), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)),
        Ratio(3, 4, 2, (2, 2), (0.25, 0.375, 0.5), (1.0, 2.5, 4.0), (1.0, 1.25, 1.5)),
        Ratio(9, 16, 1, (1, 0), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), None),
    ]
    assert ratios([row("a", 0, 2, 1.0), row("b", 0, 2, 4.0)], "a", "b")[0].variables is None
