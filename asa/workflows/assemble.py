"""Putting a workflow's run together: from names and options to a runner that is ready to go."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from asa.core.errors import AsaError, InvalidInput, RunNotFound
from asa.core.event import RunStarted, RunState
from asa.core.job import Capabilities, QueueRegime
from asa.core.ports import Strategy
from asa.core.registry import STRATEGIES
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.strategies.perstage import PerStage
from asa.workflows.graph import Graph
from asa.workflows.ground import open_backend, open_ground
from asa.workflows.payload import Payloads
from asa.workflows.plan import Plan
from asa.workflows.runner import Runner
from asa.workflows.settings import Settings


@dataclass(frozen=True)
class Assembly:
    """A plan and its runner, and all that is let go of with them."""

    plan: Plan
    runner: Runner
    virtual: bool
    _held: contextlib.ExitStack

    def close(self) -> None:
        """Let go of everything, what was made last first."""
        self._held.close()


def assemble(directory: RunDirectory, graph: Graph, settings: Settings) -> Assembly:
    """All parts of a run, new or resumed, which is this process's from now on.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or an argument cannot travel.
    StateError
        When another driver is at it.
    """
    with contextlib.ExitStack() as held:
        backend = open_backend(held, directory, settings)
        plan = make_plan(settings, backend.capabilities())
        ground = open_ground(held, directory, settings, graph, backend=backend, estimator=plan.strategy.estimator)
        payloads = Payloads(graph, directory.functions, directory.values, ground.log.value)
        if ground.log.last:
            _take_over(plan, ground.log, virtual=ground.virtual)
        else:
            payloads.save()
            stages = graph.specs(plan.site, ground.learned.run_time(settings.name))
            plan.on(ground.begin(stages, chosen_strategy(settings, plan.site), shared=plan.shared))
            # Not of a resumed run, whose stages seem to have run while nobody drove them.
            held.callback(ground.learned.learn_run_times, plan, settings.name)
        runner = ground.wire(held, plan, payloads)
        return Assembly(plan, runner, ground.virtual, held.pop_all())


def _take_over(plan: Plan, log: EventLog, *, virtual: bool) -> None:
    """Fold what earlier drivers logged."""
    for _, event in log.read():
        plan.on(event)
    if virtual and plan.outcome is not RunState.SUCCEEDED:
        raise InvalidInput(
            f"run {plan.run} was in virtual time, and its queue ended with its driver: it cannot be resumed. Run the "
            "workflow again; the same seed gives the same queue"
        )


def logged_strategy(start: RunStarted) -> Strategy | None:
    """A run's strategy; None where it is an object of somebody's own: the log has only what it is called."""
    try:
        found: Strategy = STRATEGIES.create(start.strategy)
    except AsaError:
        return None
    return found


def logged_plan(start: RunStarted) -> Plan:
    """A plan to fold a run's events with, the first of them, too, and to explain them; it is not to decide anything."""
    site = Capabilities(start.site, start.partition, start.regime, arrays=start.arrays, parks=start.parks)
    strategy = logged_strategy(start) or PerStage()
    return Plan(strategy, site, shared=start.pool != "per-stage" and not strategy.own_pools)


def restore_plan(log: EventLog) -> Plan:
    """The plan of a run as its log has it, for looking at; the site is not asked.

    Raises
    ------
    RunNotFound
        When the log is empty.
    """
    start = log.latest(RunStarted)
    if not isinstance(start, RunStarted):
        raise RunNotFound("the run never began, its driver died too early: run the workflow again")
    plan = logged_plan(start)
    _take_over(plan, log, virtual=False)
    return plan


def make_plan(settings: Settings, site: Capabilities) -> Plan:
    """A plan with the strategy asked for, or the site's default.

    Raises
    ------
    InvalidInput
        When the strategy cannot be used, or not in a pool that several runs share.
    """
    strategy: Strategy = STRATEGIES.create(chosen_strategy(settings, site))
    if settings.pool_name and strategy.own_pools:
        problem = "the strategy keeps the tasks of each stage in the stage's own allocation"
        raise settings.unshareable(problem, "choose another one")
    shared = settings.pool != "per-stage" and not strategy.own_pools
    return Plan(strategy, site, shared=shared, borrows=settings.pool_name is not None)


def chosen_strategy(settings: Settings, site: Capabilities) -> Any:
    """The strategy asked for, or the site's default: `auto` where there is a queue, else one allocation."""
    default = "big-job" if site.regime is QueueRegime.IMMEDIATE else "auto"
    return default if settings.strategy is None else settings.strategy
