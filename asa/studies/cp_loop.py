"""Dispatchers in a simulated machine: how long decisions take, and what becomes of the jobs.

As in the paper, a dispatcher is asked once when something has changed. Slowdown is the plain one, turnaround over run
time, and not the bounded one of `asa.metrics`; jobs that ran for less than a second count as one second long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asa.core.decision import DispatchDecision, Start
from asa.core.registry import DISPATCHERS
from asa.core.workload import Floats
from asa.metrics.job import bounded_slowdown
from asa.simulator.engine import Engine
from asa.simulator.run import rehearse, simulate
from asa.simulator.settings import Settings
from asa.studies.cp_case import Case

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

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.dispatcher}, {self.predictor}"

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return asdict(self)


class Timed:
    """A dispatcher that is timed, and not asked again before something has changed.

    Parameters
    ----------
    rule
        The dispatcher. It must say at once all that starts.

    Attributes
    ----------
    measured
        Of each decision: how many jobs waited, its time and its processor time [s].
    """

    def __init__(self, rule: Any) -> None:
        self._rule, self.needs_estimates = rule, getattr(rule, "needs_estimates", False)
        self._left = (-1, -1)
        self.measured: list[tuple[int, float, float]] = []

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        """What it decides; nothing where nobody waits, or all is as it has left it."""
        waiting, running = len(view.waiting), len(view.active)
        if not waiting or (waiting, running) == self._left:
            return ()
        began, cpu = time.perf_counter(), time.process_time()
        found = tuple(self._rule.decide(view))
        self.measured.append((waiting, time.perf_counter() - began, time.process_time() - cpu))
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
        As of `asa.simulator.run.simulate`.
    """
    return [_row(case, dispatcher, predictor, dispatch_time) for dispatcher in dispatchers for predictor in predictors]


def _row(case: Case, dispatcher: str, predictor: str, dispatch_time: str) -> LoopRow:
    rehearse(Engine(case.workload, case.cluster, Settings(predictor=predictor)), DISPATCHERS.create(dispatcher))
    timed = Timed(DISPATCHERS.create(dispatcher))
    schedule = simulate(case.workload, case.cluster, timed, predictor=predictor, dispatch_time=dispatch_time)
    ran = schedule.ran
    wait = schedule.wait[ran]
    run = (schedule.end - schedule.start)[ran]
    slowdown = slowdowns(wait, run)
    waiting, times, cpu = np.array(timed.measured).T
    return LoopRow(
        dispatcher,
        predictor,
        case.name,
        int(ran.sum()),
        dispatch_time == "charge",
        len(times),
        float(waiting.mean()),
        float(times.mean()),
        float(np.percentile(times, 99)),
        float(times.max()),
        float(cpu.mean()),
        schedule.seconds,
        float(wait.mean()),
        float(wait.std()),
        float(slowdown.mean()),
        float(slowdown.std()),
        float(bounded_slowdown(wait + run, run).mean()),
    )


def slowdowns(wait: Floats, run: Floats) -> Floats:
    """Turnaround over run time.

    >>> slowdowns(np.array([30.0, 2.0]), np.array([10.0, 0.0])).tolist()
    [4.0, 3.0]
    """
    length = np.maximum(run, LEAST_RUN_S)
    found: Floats = (wait + length) / length
    return found
