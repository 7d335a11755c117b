"""A dispatcher that goes on learning while it dispatches, and a guard that lets EASY take over while it harms.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-C: "The DRAS agents
automatically adjust their neural network parameters during operation to handle workload changes." The guard is ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from asa.core.arrays import Bools
from asa.core.decision import DispatchDecision
from asa.core.errors import InvalidInput
from asa.core.units import WEEK
from asa.core.view import QueueView
from asa.lab.core.objective import Objective
from asa.lab.core.table import TableView
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.backfill import Easy
from asa.lab.dispatchers.learned.dispatcher import PATIENCE, seconds
from asa.lab.dispatchers.learned.model import Model, read_model
from asa.lab.dispatchers.learned.observation import Rows
from asa.lab.dispatchers.learned.queue import Queue, queue_of
from asa.lab.dispatchers.learned.selection import Memory, Selection, Turns
from asa.lab.training.dras_dql import QLearning
from asa.lab.training.dras_episode import INSTANCES, Step
from asa.lab.training.dras_network import put
from asa.lab.training.dras_pg import PolicyGradient
from asa.lab.training.environment import objective_of, rewarded
from asa.lab.training.shadow import Shadow


class Verdict(NamedTuple):
    """What the guard has found at the end of a period.

    Parameters
    ----------
    at
        When [s].
    waited, shadow
        Time that jobs have waited in the period, of all jobs together, and would have waited under EASY [s].
    learned
        Whether the learned dispatcher had the period, and not EASY.
    rest
        For how many periods EASY has its place from now on.
    """

    at: float
    waited: float
    shadow: float
    learned: bool
    rest: int


class Online:
    """A trained dispatcher that learns on, by the rule that it was trained by, from what it does.

    After every ten scheduling instances its network is changed, as in training. At the end of each period the guard
    simulates what EASY would have done with the jobs of that period, from the same beginning (`Shadow`). Where jobs
    waited longer than `tolerance` times what they would have waited then, the learned dispatcher has harmed: its
    weights go back to what they were at the end of the last period in which it had not, and EASY dispatches for a
    period; for two, four ... when it harms again right away.

    Parameters
    ----------
    model
        A safetensors file, the name of a model that ships, or a `Model`.
    objective
        The reward.
    rate
        Learning rate of Adam; >= 0, and 0 does not learn. A tenth of the one in training: there is no baseline yet.
    period_s
        Length of a period [s]; > 0.
    tolerance
        See above; >= 1, and infinite for no guard.
    seed
        Of the draws.
    patience
        See `asa.lab.dispatchers.learned.selection.Turns`.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; infinite: as in the paper.

    Raises
    ------
    InvalidInput
        When there is no such model, or a number is out of its bounds; later, when the machine is of another size.

    Attributes
    ----------
    verdicts
        One for each period.
    """

    needs_estimates = True

    def __init__(
        self,
        model: str | Model = "",
        *,
        objective: str | Objective = "capability",
        rate: float = 0.0001,
        period_s: float = WEEK,
        tolerance: float = 1.1,
        seed: int = 0,
        patience: float = PATIENCE,
        threshold: float | str = math.inf,
    ) -> None:
        if not model:
            raise InvalidInput("a learned dispatcher needs a model: say model=FILE")
        if not (rate >= 0 and period_s > 0 and tolerance >= 1):
            raise InvalidInput(
                f"rate {rate}, period_s {period_s}, tolerance {tolerance}: at least 0, above 0 and at least 1 expected"
            )
        found = model if isinstance(model, Model) else read_model(model)
        self._shape, self._sight = found.shape, Rows(found.shape.window, found.shape.scaling)
        if found.shape.kind == "pg":
            self.learner: PolicyGradient | QLearning = PolicyGradient(found.shape, seed=seed, rate=rate)
        else:
            self.learner = QLearning(found.shape, seed=seed, rate=rate, epsilon=0.0)
        put(self.learner.network, found)
        self._rate, self._objective, self._turns = rate, objective_of(objective), Turns(patience, seconds(threshold))
        self._period, self._tolerance, self._easy = period_s, tolerance, Easy()
        self.verdicts: list[Verdict] = []
        self._good, self._rest, self._next_rest = found, 0, 1
        self._begin(-math.inf)

    def _begin(self, now: float) -> None:
        """Another life of the machine: what was learned stays."""
        self._memory, self._shadow, self._last = Memory(self._turns), Shadow(), now
        self._steps: list[Step] = []
        self._instances = 0
        self._open: tuple[Reals, Bools, int, float] | None = None

    def decide(self, view: QueueView | TableView) -> list[DispatchDecision]:
        """What to start now, and which job is promised a start."""
        queue = queue_of(view)
        if queue.total != self._shape.nodes:
            raise InvalidInput(f"the model was trained for a machine of {self._shape.nodes} nodes, not {queue.total}")
        if queue.now < self._last:
            self._begin(queue.now)
        self._last = queue.now
        self._shadow.see(view)
        if self._shadow.age >= self._period:
            self._judge(queue.now)
        if self._rest:
            self._memory.reserved = None
            return self._easy.decide(view)
        return self._select(queue)

    def _select(self, queue: Queue) -> list[DispatchDecision]:
        """Decide by the network, and remember."""
        selection = Selection(queue, self._sight.window, self._memory, levels=self._shape.levels)
        self._instances += not selection.over
        while not selection.over:
            state, mask = self._sight(selection), selection.mask.copy()
            self._close(state, mask)
            if self._instances > INSTANCES and self._steps:
                self._learn()
            action = self.learner.act(state, mask)
            self._open = (state, mask, action, rewarded(selection, action, self._objective)[1])
        return list(selection.decisions)

    def _close(self, state: Reals, mask: Bools) -> None:
        """The step before has led here."""
        if self._open is not None:
            self._steps.append(Step(*self._open, state, mask))
            self._open = None

    def _learn(self) -> None:
        if self._rate:
            self.learner.learn(self._steps)
        self._steps, self._instances = [], 1

    def _judge(self, now: float) -> None:
        """At the end of a period: who dispatches in the next one."""
        learned = not self._rest
        waited, shadow = self._shadow.judge(now)
        if not learned:
            self._rest -= 1
        elif waited > self._tolerance * shadow:
            self._rest, self._next_rest = self._next_rest, 2 * self._next_rest
            put(self.learner.network, self._good)
            self._steps, self._open, self._instances = [], None, 0
        else:
            self._next_rest, self._good = 1, self.learner.network.model()
        self.verdicts.append(Verdict(now, waited, shadow, learned, self._rest))
