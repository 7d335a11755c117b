"""A run as the page shows it: a fold of its events, and tables made of that."""

from __future__ import annotations

from typing import Any

from asa.core.context import Context
from asa.core.errors import AsaError
from asa.core.event import Believed, ContainersSeen, DriverStarted, Event, Learned, RunStarted, RunState, Submitting
from asa.core.job import Capabilities
from asa.core.ports import Strategy
from asa.core.registry import STRATEGIES
from asa.dashboard import rows
from asa.dashboard.beliefs import Beliefs
from asa.dashboard.containers import Containers
from asa.dashboard.document import Document
from asa.metrics.timeline import Timeline
from asa.metrics.workflow import summary
from asa.strategies.perstage import PerStage
from asa.workflows.explain import reasons
from asa.workflows.plan import Plan

_EMPTY: Document = {}


class RunModel:
    """A run so far; `on` folds one more event in, `document` says what the page shows of it.

    Both what metrics know of a run and what its plan does are folded, so that the page shows the numbers of reports and
    the words of ``asa explain``.
    """

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.plan: Plan | None = None
        self.learned: list[Learned] = []
        self.beliefs = Beliefs(None)
        self.containers = Containers()
        self._contexts: dict[str, Context | None] = {}

    @property
    def over(self) -> bool:
        """Whether the run's outcome is known and no job of it is left."""
        jobs_left = any(job.ended is None and not job.lender for job in self.timeline.jobs.values())
        return self.timeline.state is not RunState.RUNNING and not jobs_left

    @property
    def last(self) -> float:
        """The latest time of an event [s since the epoch]."""
        return self.timeline.last

    @property
    def bars(self) -> int:
        """How many runs of tasks have been reported."""
        return len(self.timeline.attempts.columns["started"])

    def on(self, event: Event) -> None:
        """Fold an event."""
        if isinstance(event, RunStarted) and self.plan is None:
            strategy = _strategy(event)
            self.plan, self.beliefs = _plan(event, strategy), Beliefs(None if strategy is None else strategy.estimator)
        self._observe(event)
        self.timeline.on(event)
        if self.plan is not None:
            self.plan.on(event)

    def _observe(self, event: Event) -> None:
        """Keep what is only looked at: waits, what is believed of them, and containers."""
        match event:
            case Learned():
                self.learned.append(event)
                geometry = rows.geometry(event, self.timeline)
                if geometry is not None:
                    self.beliefs.learn(geometry, event, self._contexts.pop(event.allocation, None))
            case Submitting():
                self._contexts[event.allocation] = event.context
            case Believed():
                self.beliefs.believe(event)
            case ContainersSeen() | DriverStarted():
                self.containers.on(event)

    def document(self, now: float, *, past: bool = False) -> Document:
        """All tables but `bars`, as of `now` [s since the epoch]; empty before the first event.

        Parameters
        ----------
        past
            Whether that time is over: what estimators have learned by now, which is asked for beside the log, is not
            what they believed then. Where the log does not tell, the run's own waits are replayed.
        """
        if self.timeline.start is None or self.plan is None:
            return _EMPTY
        run = summary(self.timeline, now)
        held = self.plan.pool.held
        numbers = {name: number for number, name in enumerate(self.timeline.stages)}
        return {
            "run": rows.run_row(run, self.plan.trouble) | {"tells": self._tells()},
            "stages": {
                stage.name: rows.stage_row(position, stage, run, self.timeline.stages[stage.name].spec)
                for position, stage in enumerate(run.stages)
            },
            "jobs": {
                job.token: rows.job_row(job, self.timeline.jobs[job.token], held.get(job.token)) for job in run.jobs
            },
            "underway": {key: found for key, item in held.items() if (found := rows.underway(item, numbers))},
            "nodes": rows.node_rows(held, self.timeline.jobs),
            "waits": {event.allocation: rows.wait_row(event, self.timeline) for event in self.learned},
            "why": self._why(self.plan, now),
            "beliefs": self.beliefs.replay() if past and not self.beliefs.told else self.beliefs.table(),
            "containers": self.containers.table({node for item in held.values() for node in item.nodes}),
            "names": self._names(),
        }

    def bars_from(self, first: int) -> list[rows.Bar]:
        """Runs of tasks from this one on, in the order in which they were reported; times count from the run's start.

        They never change, so nobody needs one twice.
        """
        assert self.timeline.start is not None
        return rows.bars(self.timeline.attempts.columns, first, self.timeline.start.at)

    def _tells(self) -> list[str]:
        """What the log tells of that older logs do not."""
        return [name for name in ("beliefs", "containers") if getattr(self, name).told]

    def _names(self) -> dict[str, Any]:
        """What the numbers in `bars` stand for."""
        log = self.timeline.attempts
        return {"stages": list(log.stages), "jobs": list(log.allocations), "nodes": list(log.nodes)}

    def _why(self, plan: Plan, now: float) -> dict[str, Any]:
        """Stage -> what it does or waits for, in plain words; under "" what the strategy says of itself."""
        return rows.why_rows(reasons(plan, now))


def _strategy(event: RunStarted) -> Strategy | None:
    """A run's strategy; None where it is an object of somebody's own: the log has only what it is called."""
    try:
        found: Strategy = STRATEGIES.create(event.strategy)
    except AsaError:
        return None
    return found


def _plan(event: RunStarted, strategy: Strategy | None) -> Plan:
    """A plan to fold events with; it decides nothing. What it would decide with matters to its words only."""
    site = Capabilities(event.site, event.partition, event.regime, arrays=event.arrays, parks=event.parks)
    strategy = strategy or PerStage()
    return Plan(strategy, site, shared=event.pool != "per-stage" and not strategy.own_pools)
