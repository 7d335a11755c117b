"""A dispatcher serves a machine's queue: in one compiled loop where both can, else decision by decision."""

from __future__ import annotations

import math
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.workload import Workload
from asa.dispatchers.backfill import Rule
from asa.simulator.engine import Engine
from asa.simulator.learning import Learning
from asa.simulator.settings import Settings
from asa.simulator.state import Why


class Served:
    """An engine whose queue a dispatcher serves.

    Parameters
    ----------
    engine
        The machine.
    rule
        What starts jobs: a `Dispatcher`.
    """

    def __init__(self, engine: Engine, rule: Any) -> None:
        self.engine, self._rule = engine, rule
        learns = engine.settings.learner is not None
        compiled = engine.settings.native is not None and not learns
        self.native: Rule | None = getattr(rule, "native", None) if compiled else None
        self._learning = Learning(engine) if learns else None

    def run(self, until: float = math.inf, promise: bool = False, most: int = -1) -> Why:
        """As `Engine.drive`, whatever the dispatcher is; without the promises where it is not compiled."""
        engine = self.engine
        if self.native is not None:
            return engine.drive(self.native, until, promise, most)
        while most != 0:
            why = engine.step(until)
            if why is not Why.DECIDE:
                return why
            if self._learning is not None:
                self._learning.catch_up()
                if engine.state.world[0]["notice"]:  # whoever holds jobs back is told before anybody decides
                    engine.state.world[0]["notice"] = 0
                    return Why.NOTICE
            engine.apply(self._rule.decide(engine.view()))
            most -= 1
        return Why.DECIDE


def check_walltimes(workload: Workload, rule: Any, settings: Settings, name: object) -> None:
    """Refuse to plan with wall times that nobody gave.

    Raises
    ------
    InvalidInput
        When `rule`, called `name`, plans with them, and jobs have none.
    """
    if getattr(rule, "needs_estimates", False) and settings.predictor == "user":
        missing = int((workload.walltime != workload.walltime).sum())
        if missing:
            raise InvalidInput(
                f"{missing} of {len(workload)} jobs have no requested time, and {name} plans with it: "
                "take another predictor (oracle, last-two, heuristic), or fcfs"
            )
