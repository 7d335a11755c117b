"""Predicting run times as jobs come and go."""

from __future__ import annotations

from asa.lab.simulator.engine import Engine
from asa.lab.simulator.state import FINISHED, SUBMITTED


class Learning:
    """Tells an engine's predictor what happened, and the engine what it predicts.

    A job's estimate is made when it is submitted, from the jobs that had ended by then.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lines = 0

    def catch_up(self) -> None:
        """Learn from the jobs that ended since the last call, and predict those that were submitted."""
        s, learner = self._engine.state, self._engine.settings.learner
        assert learner is not None, "an engine without a predictor has nothing to learn"
        view = self._engine.view()
        last = int(s.world[0]["lines"])
        for line in s.log[self._lines : last]:
            row = int(line["what"])
            if line["kind"] == FINISHED and (started := float(s.jobs[row]["started"])) == started:
                learner.learn(view.job(row, wall=True), float(line["at"]) - started)
            elif line["kind"] == SUBMITTED:
                s.jobs["estimate"][row] = learner.predict(view.job(row, wall=True))
        self._lines = last
