"""A run as the page shows it: a fold of its events, and tables made of that."""

from __future__ import annotations

from typing import Any

from asa.core.context import Context
from asa.core.event import Believed, ContainersSeen, DriverStarted, Event, Learned, RunStarted, Submitting
from asa.dashboard import rows
from asa.dashboard.beliefs import Beliefs
from asa.dashboard.containers import Containers
from asa.dashboard.document import Document
from asa.metrics.workflow import summary
from asa.workflows.assemble import logged_plan, logged_strategy
from asa.workflows.explain import reasons
from asa.workflows.plan import Plan

_EMPTY: Document = {}


class RunModel:
    """A run so far; `on` folds one more event in, `document` says what the page shows of it.

    What is folded is the run's plan: reports take their numbers from the same state, and ``asa explain`` its words.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.learned: list[Learned] = []
        self.beliefs = Beliefs(None)
        self.containers = Containers()
        self._contexts: dict[str, Context | None] = {}

    @property
    def over(self) -> bool:
        """Whether the run's outcome is known and no job of it is left."""
        return self.plan is not None and self.plan.closed

    @property
    def last(self) -> float:
        """The latest time of an event [s since the epoch]."""
        return 0.0 if self.plan is None else self.plan.last

    @property
    def bars(self) -> int:
        """How many runs of tasks have been reported."""
        return 0 if self.plan is None else len(self.plan.attempts)

    def on(self, event: Event) -> None:
        """Fold an event."""
        if isinstance(event, RunStarted) and self.plan is None:
            strategy = logged_strategy(event)
            self.plan, self.beliefs = logged_plan(event), Beliefs(None if strategy is None else strategy.estimator)
        if self.plan is not None:
            self._observe(event, self.plan)
            self.plan.on(event)

    def _observe(self, event: Event, plan: Plan) -> None:
        """Keep what is only looked at: waits, what is believed of them, and containers."""
        match event:
            case Learned():
                self.learned.append(event)
                geometry = rows.geometry(event, plan)
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
        if (plan := self.plan) is None:
            return _EMPTY
        run, held = summary(plan, now), plan.pool.held
        numbers = {name: number for number, name in enumerate(plan.stages)}
        return {
            "run": rows.run_row(run, plan.trouble) | {"tells": self._tells()},
            "stages": {
                stage.name: rows.stage_row(position, stage, run, plan.stages[stage.name].spec)
                for position, stage in enumerate(run.stages)
            },
            "jobs": {job.token: rows.job_row(job, plan.pool.ever[job.token]) for job in run.jobs},
            "underway": {key: found for key, item in held.items() if (found := rows.underway(item, numbers))},
            "nodes": rows.node_rows(held),
            "waits": {event.allocation: rows.wait_row(event, plan) for event in self.learned},
            "why": rows.why_rows(reasons(plan, now)),
            "beliefs": self.beliefs.replay() if past and not self.beliefs.told else self.beliefs.table(),
            "containers": self.containers.table({node for item in held.values() for node in item.nodes}),
            "names": self._names(plan),
        }

    def bars_from(self, first: int) -> list[rows.Bar]:
        """Runs of tasks from this one on, in the order in which they were reported; times count from the run's start.

        They never change, so nobody needs one twice.
        """
        plan = self.plan
        assert plan is not None and plan.start is not None
        return rows.bars(plan.attempts, lambda name: plan.stages[name].spec, first, plan.start.at)

    def _tells(self) -> list[str]:
        """What the log tells of that older logs do not."""
        return [name for name in ("beliefs", "containers") if getattr(self, name).told]

    def _names(self, plan: Plan) -> dict[str, Any]:
        """What the numbers in `bars` stand for."""
        log = plan.attempts
        return {"stages": list(log.stages), "jobs": list(log.allocations), "nodes": list(log.nodes)}
