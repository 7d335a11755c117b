"""A workload under a dispatcher, from the first submission to the last end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asa.core.decision import Start
from asa.core.errors import Starved, UnknownName
from asa.core.ports import Dispatcher
from asa.core.registry import DISPATCHERS
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.served import Served, Watch, check_walltimes
from asa.lab.simulator.settings import Settings
from asa.lab.simulator.state import Why

DISPATCH_TIMES = ("ignore", "charge")
"""What becomes of the time that a dispatcher takes to decide."""

_CHUNK = 20_000
"""Decisions between two reports of progress."""


def simulate(
    workload: Workload,
    cluster: Cluster,
    dispatcher: str | Dispatcher = "easy",
    *,
    dispatch_time: str = DISPATCH_TIMES[0],
    clock: Callable[[], float] = time.perf_counter,
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
    **settings: Any,
) -> Schedule:
    """Run a workload on a machine.

    Parameters
    ----------
    workload
        What is submitted, and when.
    cluster
        What it runs on.
    dispatcher
        Which jobs start: ``"easy"``, ``"fcfs"``, ``"conservative"``, ``"backfill:depth=4,limit=100"`` ..., or a
        `Dispatcher`.
    dispatch_time
        What becomes of the time that the dispatcher takes to decide: ``"ignore"`` it, machines stand still meanwhile;
        or ``"charge"``: machine and queue go on, and what it starts begins when the answer is there, so that results
        depend on the computer. Jobs that come or end meanwhile are decided on next. Of a dispatcher given by name,
        compilation does not count.
    clock
        What that time is measured with [s].
    watch
        Called with each view on which the dispatcher is going to decide; that takes none of its time.
    progress
        Told now and then what share of the jobs has been submitted, in [0, 1].
    settings
        Fields of `asa.lab.simulator.settings.Settings`.

    Returns
    -------
    Schedule
        Whose `seconds` are those of the loop; compilation and loading are not in them.

    Raises
    ------
    InvalidInput
        When a name is not known, or the dispatcher plans with wall times that the workload does not have.
    IllegalDecision
        When the dispatcher breaks a law of the machine.
    Starved
        When it never starts a job that it could start.

    Examples
    --------
    Two cores. The second job needs both and waits; the third is short enough to go first.

    >>> jobs = Workload.of(submit=[0, 1, 2], run=[10, 10, 5], cores=[1, 2, 1], walltime=[10, 10, 8])
    >>> simulate(jobs, Cluster.of(nodes=2), "easy").start.tolist()
    [0.0, 10.0, 2.0]
    >>> simulate(jobs, Cluster.of(nodes=2), "fcfs").start.tolist()
    [0.0, 10.0, 20.0]
    """
    if dispatch_time not in DISPATCH_TIMES:
        raise UnknownName("dispatch time", dispatch_time, DISPATCH_TIMES)
    rule: Any = DISPATCHERS.create(dispatcher)
    engine = Engine(workload, cluster, Settings(**settings))
    check_walltimes(workload, rule, engine.settings, dispatcher)
    served = Served(engine, rule, clock if dispatch_time == "charge" else None, watch)
    _compile(served)
    if served.native is None and isinstance(dispatcher, str):
        rehearse(engine, DISPATCHERS.create(dispatcher))
    begun = time.perf_counter()
    try:
        while served.run(most=_CHUNK) is Why.DECIDE:
            _tell(progress, engine)
        engine.check_starved()
    except Starved as error:
        raise Starved(f"{dispatcher}: {error}") from None
    seconds = time.perf_counter() - begun
    _tell(progress, engine)
    return dataclasses.replace(engine.schedule(), seconds=seconds)


def _compile(served: Served) -> None:
    """Compile, or load from the cache, what the loop will call; takes seconds the first time."""
    if served.native is not None:
        served.run(most=0)
        return
    small = Engine(Workload.of(submit=[0], run=[1], cores=[1], walltime=[1]), Cluster.of(nodes=1))
    while (view := small.advance()) is not None:
        small.apply([Start(row) for row in view.waiting.tolist()])


def rehearse(engine: Engine, rule: Any) -> None:
    """Let a dispatcher decide twice on a copy of a machine, so that what it compiles is compiled."""
    trial = engine.copy()
    estimates = trial.state.jobs["estimate"]
    np.minimum(estimates, DAY, out=estimates)  # where a predictor has still to come, there may be none
    for _ in range(2):
        if trial.step() is Why.DECIDE and len((view := trial.view()).waiting):
            trial.apply(rule.decide(view))


def _tell(progress: Callable[[float], None] | None, engine: Engine) -> None:
    if progress is not None:
        progress(engine.submitted)
