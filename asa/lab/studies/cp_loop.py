"""Dispatchers in a simulated machine: how long decisions take, and what becomes of the jobs.

As in the paper, a dispatcher is asked once when something has changed. Slowdown is the plain one, turnaround over run
time, and not the bounded one of `asa.metrics`; jobs that ran for less than a second count as one second long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import DispatchDecision, Start
from asa.core.registry import DISPATCHERS
from asa.lab.metrics.job import bounded_slowdown
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import rehearse, simulate
from asa.lab.simulator.settings import Settings
from asa.lab.studies.cp_case import Case
from asa.lab.studies.timing import TimedDispatcher

PREDICTORS_SHOWN = ("heuristic", "last-two", "oracle")
"""The paper's, with its suffixes -D, -L2 and -R."""

LEAST_RUN_S = 1.0


@dataclass(frozen=True)
class LoopRow:
    """A dispatcher with one predictor, from the first submission to the last end.

    Parameters
    ----------
    dispatcher, predictor
        Specs.
    case, jobs, charged
        What was simulated, how many jobs ran, and whether the time of decisions delayed them.
    decisions
        How often it was asked while jobs waited.
    mean_waiting
        Mean number of jobs that waited then.
    mean_s, p99_s, max_s
        Time [s] that a decision took, compilation excluded.
    mean_cpu_s
        Mean processor time [s] of a decision, of all threads. This is what the paper tells.
    total_s
        Time [s] of the whole simulation.
    mean_wait_s, std_wait_s, mean_slowdown, std_slowdown, mean_bounded_slowdown
        Over all jobs that ran; means and standard deviations.
    """

    dispatcher: str
    predictor: str
    case: str
    jobs: int
    charged: bool
    decisions: int
    mean_waiting: float
    mean_s: float
    p99_s: float
    max_s: float
    mean_cpu_s: float
    total_s: float
    mean_wait_s: float
    std_wait_s: float
    mean_slowdown: float
    std_slowdown: float
    mean_bounded_slowdown: float


class OnChange:
    """A dispatcher that is not asked where nobody waits, nor again before something has changed.

    Parameters
    ----------
    rule
        The dispatcher. It must say at once all that starts.
    """

    def __init__(self, rule: Any) -> None:
        self._rule, self.needs_estimates = rule, getattr(rule, "needs_estimates", False)
        self._left = (-1, -1)

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        """What it decides; nothing where all is as it has left it."""
        waiting, running = len(view.waiting), len(view.active)
        if not waiting or (waiting, running) == self._left:
            return ()
        found: Sequence[DispatchDecision] = self._rule.decide(view)
        starts = sum(isinstance(each, Start) for each in found)
        self._left = waiting - starts, running + starts
        return found


def loop(
    case: Case,
    dispatchers: Sequence[str],
    predictors: Sequence[str] = PREDICTORS_SHOWN,
    *,
    dispatch_time: str = "ignore",
) -> list[LoopRow]:
    """Simulate each dispatcher with each predictor.

    Parameters
    ----------
    dispatch_time
        As of `asa.lab.simulator.run.simulate`.
    """
    return [_row(case, dispatcher, predictor, dispatch_time) for dispatcher in dispatchers for predictor in predictors]


def _row(case: Case, dispatcher: str, predictor: str, dispatch_time: str) -> LoopRow:
    rehearse(Engine(case.workload, case.cluster, Settings(predictor=predictor)), DISPATCHERS.create(dispatcher))
    timed = TimedDispatcher(DISPATCHERS.create(dispatcher))
    schedule = simulate(case.workload, case.cluster, OnChange(timed), predictor=predictor, dispatch_time=dispatch_time)
    ran = schedule.ran
    wait = schedule.wait[ran]
    run = (schedule.end - schedule.start)[ran]
    slowdown = slowdowns(wait, run)
    waiting, _, times, cpu = np.array(timed.timings).T
    return LoopRow(
        dispatcher=dispatcher,
        predictor=predictor,
        case=case.name,
        jobs=int(ran.sum()),
        charged=dispatch_time == "charge",
        decisions=len(times),
        mean_waiting=float(waiting.mean()),
        mean_s=float(times.mean()),
        p99_s=float(np.percentile(times, 99)),
        max_s=float(times.max()),
        mean_cpu_s=float(cpu.mean()),
        total_s=schedule.seconds,
        mean_wait_s=float(wait.mean()),
        std_wait_s=float(wait.std()),
        mean_slowdown=float(slowdown.mean()),
        std_slowdown=float(slowdown.std()),
        mean_bounded_slowdown=float(bounded_slowdown(wait + run, run).mean()),
    )


def slowdowns(wait: Floats, run: Floats) -> Floats:
    """Turnaround over run time.

    >>> slowdowns(np.array([30.0, 2.0]), np.array([10.0, 0.0])).tolist()
    [4.0, 3.0]
    """
    length = np.maximum(run, LEAST_RUN_S)
    found: Floats = (wait + length) / length
    return found
