from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.run import simulate
from asa.lab.studies.timing import TimedDispatcher, clocked

JOBS = Workload.of(submit=[0, 1, 2, 3], run=[10, 10, 5, 20], cores=[6, 8, 2, 2], walltime=[10, 10, 5, 20])


def test_a_call_is_timed_by_both_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {"perf_counter": 10.0, "process_time": 3.0}
    for name in clocks:
        monkeypatch.setattr(f"asa.lab.studies.timing.time.{name}", lambda name=name: clocks[name])

    def work(first: int, second: int) -> int:
        clocks["perf_counter"] += 2.0
        clocks["process_time"] += 3.5
        return first - second

    assert clocked(work, 7, 4) == (3, 2.0, 3.5)


def test_each_decision_is_timed_and_none_is_changed() -> None:
    asked = []

    class Noted(Easy):
        def decide(self, view: Any) -> Any:
            found = super().decide(view)
            asked.append((len(view.waiting), len(found)))
            return found

    timed = TimedDispatcher(Noted())
    schedule = simulate(JOBS, Cluster.of(8), timed)
    assert np.array_equal(schedule.start, simulate(JOBS, Cluster.of(8), "easy").start)
    assert [(each.waiting, each.decided) for each in timed.timings] == asked
    assert {decided for _, decided in asked} >= {1, 2}, "starts, and starts beside a promise"
    assert all(each.seconds > 0 and each.cpu_s >= 0 for each in timed.timings)


@pytest.mark.parametrize(("needs_estimates", "window"), [(True, 30.0), (False, 0.0)])
def test_simulators_take_it_for_what_is_inside(needs_estimates: bool, window: float) -> None:
    class Rule:
        pass

    rule: Any = Rule()
    if needs_estimates:
        rule.needs_estimates, rule.window = True, window
    timed = TimedDispatcher(rule)
    assert (timed.needs_estimates, timed.window) == (needs_estimates, window)
