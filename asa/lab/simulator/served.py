"""A dispatcher serves a machine's queue: in one compiled loop where both can, else decision by decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from asa.core.errors import InvalidInput
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Rule
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.learning import Learning
from asa.lab.simulator.settings import Settings
from asa.lab.simulator.state import FINISHED, Why

Watch = Callable[[TableView], None]
"""Called with each view on which a dispatcher is about to decide."""


class Served:
    """An engine whose queue a dispatcher serves.

    Parameters
    ----------
    engine
        The machine.
    rule
        What starts jobs: a `Dispatcher`.
    clock
        What the machine's time goes by while the dispatcher thinks, and some jobs wait [s]. None: it stands still.
    watch
        Called before each decision, outside of that time.

    Attributes
    ----------
    due
        When a dispatcher of windows is asked next about what has changed already [s]; infinite when nothing has. Such a
        one has a `window`, the length of one [s], and is asked at multiples of it only.
    """

    def __init__(
        self, engine: Engine, rule: Any, clock: Callable[[], float] | None = None, watch: Watch | None = None
    ) -> None:
        self.engine, self._rule, self._clock, self._watch = engine, rule, clock, watch
        self._window = float(getattr(rule, "window", 0.0))
        self._next = -math.inf  # number of the first window at whose end it may be asked: once at each
        self.due = math.inf
        learns = engine.settings.learner is not None
        compiled = engine.settings.native is not None and not learns and clock is None and watch is None
        self.native: Rule | None = getattr(rule, "native", None) if compiled else None
        self._learning = Learning(engine) if learns else None

    def run(self, until: float = math.inf, promise: bool = False, most: int = -1) -> Why:
        """As `Engine.drive`, whatever the dispatcher is; without the promises where it is not compiled."""
        engine = self.engine
        if self.native is not None:
            return engine.drive(self.native, until, promise, most)
        while most != 0:
            why = self._step(until) if self._window else engine.step(until)
            if why is not Why.DECIDE:
                return why
            if self._learning is not None:
                self._learning.catch_up()
                if engine.state.world[0]["notice"]:  # whoever holds jobs back is told before anybody decides
                    engine.state.world[0]["notice"] = 0
                    return Why.NOTICE
            self._decide(engine.view())
            most -= 1
        return Why.DECIDE

    def _step(self, until: float) -> Why:
        """As `Engine.step`, but a decision waits for the end of the window in which something has changed."""
        while True:
            why = self.engine.step(min(until, self.due))
            world = self.engine.state.world[0]
            if why is Why.DECIDE:
                world["dirty"] = 0
                self.due = min(self.due, max(math.ceil(world["now"] / self._window), self._next) * self._window)
            elif why is Why.UNTIL and self.due <= world["now"]:
                self._next, self.due = round(self.due / self._window) + 1, math.inf
                if world["waiting"]:
                    return Why.DECIDE
            else:
                return why

    def _decide(self, view: TableView) -> None:
        if self._watch is not None:
            self._watch(view)
        if self._clock is None or not len(view.waiting):
            self.engine.apply(self._rule.decide(view))
            return
        before = int(self.engine.state.world[0]["lines"])
        began = self._clock()
        decisions = tuple(self._rule.decide(view))
        self._let_pass(self._clock() - began)
        state = self.engine.state
        meanwhile = state.log[before : state.world[0]["lines"]]
        over = {int(line["what"]) for line in meanwhile if line["kind"] == FINISHED}
        self.engine.apply(each for each in decisions if getattr(each, "job", None) not in over)
        if len(meanwhile):
            state.world[0]["dirty"] = 1  # nobody has decided on that yet

    def _let_pass(self, seconds: float) -> None:
        """Let so much time pass on the machine without anybody deciding."""
        until = self.engine.now + seconds
        while self.engine.step(until) is not Why.UNTIL:
            self.engine.state.world[0]["dirty"] = 0
            if self._learning is not None:
                self._learning.catch_up()


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
