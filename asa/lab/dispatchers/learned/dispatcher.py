"""DRAS-PG, DRAS-DQL and Decima-PG: dispatchers that select jobs as a trained network says.

References
----------
Y. Fan, T. Childers, P. Rich, W. Allcock, M. Papka and Z. Lan, "Deep Reinforcement Agent for Scheduling in HPC", IPDPS
2021, sections III-B and IV-A.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from asa.core.arrays import Bools
from asa.core.decision import Reserve, Start
from asa.core.errors import InvalidInput
from asa.core.units import duration
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.model import Model, read_model
from asa.lab.dispatchers.learned.observation import Rows, Sight
from asa.lab.dispatchers.learned.queue import Queue, queue_of
from asa.lab.dispatchers.learned.selection import Memory, Selection, Turns

PATIENCE = 50.0
"""Reservations for others before the head of the queue must be selected: as many as the paper's window has jobs. A
policy that selects at random gives the head one in so many."""
TURNS = Turns(PATIENCE)
"""Without a threshold, as in the paper."""


class Policy(Protocol):
    """What selects a job."""

    def __call__(self, observation: Reals, mask: Bools) -> int:
        """An action that `mask`, shape (W,), has."""


def policy_of(model: Model, *, greedy: bool, seed: int = 0) -> Policy:
    """What a model says: the action of the highest score, or one drawn by the softmax of the scores."""
    draw = np.random.default_rng(seed)

    def policy(observation: Reals, mask: Bools) -> int:
        scores = np.where(mask, model.scores(observation), -np.inf)
        return int(np.argmax(scores)) if greedy else int(np.argmax(scores + draw.gumbel(size=len(scores))))

    return policy


class Selecting:
    """Decide with a policy: see `asa.lab.dispatchers.learned.selection.Selection`.

    It has a memory, of the job that it has reserved for. A view that lies before the last one begins another life.

    Parameters
    ----------
    policy
        What selects a job.
    sight
        What it sees, and of how many jobs.
    levels
        Whether there are two levels, or none.
    turns
        Whose turn it is, whatever the policy prefers.

    Raises
    ------
    InvalidInput
        When asked about a machine of unequal nodes, or about jobs without wall times.
    """

    needs_estimates = True

    def __init__(
        self,
        policy: Policy,
        sight: Sight = Rows(),  # noqa: B008 (it never changes)
        *,
        levels: bool = True,
        turns: Turns = TURNS,
    ) -> None:
        self._policy, self._sight, self._levels = policy, sight, levels
        self._turns, self._memory, self._last = turns, Memory(turns), -math.inf

    def decide(self, view: QueueView | TableView) -> list[Start | Reserve]:
        """What to start now, and which job is promised a start."""
        queue = queue_of(view)
        if queue.now < self._last:
            self._memory = Memory(self._turns)
        self._last = queue.now
        self._check(queue)
        selection = Selection(queue, self._sight.window, self._memory, levels=self._levels)
        while not selection.over:
            selection.select(self._policy(self._sight(selection), selection.mask))
        return selection.decisions

    def _check(self, queue: Queue) -> None:
        """Refuse a machine that the policy cannot decide about; any will do."""


def seconds(threshold: float | str) -> float:
    """A threshold [s], which may be infinite."""
    return duration(threshold, what="threshold", endless=True)


class Trained(Selecting):
    """Decide with a trained network.

    Parameters
    ----------
    kind, levels
        What it must have been trained as.
    model
        A safetensors file, the name of a model that ships, or a `Model`.
    greedy
        Whether the job with the highest score is selected; else one is drawn by the policy's probabilities.
    seed
        Of the draws.
    turns
        Whose turn it is, whatever the network prefers.

    Raises
    ------
    InvalidInput
        When there is no such model, or it was trained for another dispatcher; later, for another size of machine.
    """

    def __init__(
        self, kind: str, levels: bool, model: str | Model, *, greedy: bool, seed: int = 0, turns: Turns = TURNS
    ) -> None:
        if not model:
            raise InvalidInput("a learned dispatcher needs a model: say model=FILE")
        found = model if isinstance(model, Model) else read_model(model)
        self._shape = shape = found.shape
        if (shape.kind, shape.levels) != (kind, levels):
            raise InvalidInput(
                f"a model of kind {shape.kind!r} with {2 * shape.levels} levels: {kind!r} with {2 * levels} expected"
            )
        policy = policy_of(found, greedy=greedy, seed=seed)
        super().__init__(policy, Rows(shape.window, shape.scaling), levels=levels, turns=turns)

    def _check(self, queue: Queue) -> None:
        if queue.total != self._shape.nodes:
            raise InvalidInput(
                f"the model was trained for a machine of {self._shape.nodes} nodes, not {queue.total}: train one for it"
            )


class DrasPg(Trained):
    """DRAS-PG: two levels; a network gives each job of the window a probability, and one is drawn.

    Parameters
    ----------
    model
        A safetensors file, the name of a model that ships, or a `Model`.
    greedy
        Whether the likeliest job is selected instead.
    seed
        Of the draws.
    patience
        Reservations for others, in a row, before the head of the queue must be selected; infinite: as in the paper.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; infinite: as in the paper.
    """

    def __init__(
        self,
        model: str | Model = "",
        greedy: bool = False,
        seed: int = 0,
        patience: float = PATIENCE,
        threshold: float | str = math.inf,
    ) -> None:
        super().__init__("pg", True, model, greedy=greedy, seed=seed, turns=Turns(patience, seconds(threshold)))


class DrasDql(Trained):
    """DRAS-DQL: two levels; a network tells the value of selecting a job, and the one of highest value is.

    Parameters
    ----------
    model
        A safetensors file, the name of a model that ships, or a `Model`.
    patience
        Reservations for others, in a row, before the head of the queue must be selected; infinite: as in the paper.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; infinite: as in the paper.
    """

    def __init__(self, model: str | Model = "", patience: float = PATIENCE, threshold: float | str = math.inf) -> None:
        super().__init__("dql", True, model, greedy=True, turns=Turns(patience, seconds(threshold)))


class DecimaPg(Trained):
    """Decima-PG: as DRAS-PG, but jobs of the window that fit are selected until none does. Nothing is reserved.

    Deviation: the paper does not say what becomes of a selected job that does not fit; here such jobs are masked, as
    its Random passes over them.

    Parameters
    ----------
    model
        A safetensors file, the name of a model that ships, or a `Model`.
    greedy
        Whether the likeliest job is selected, instead of one drawn.
    seed
        Of the draws.
    """

    def __init__(self, model: str | Model = "", greedy: bool = False, seed: int = 0) -> None:
        super().__init__("pg", False, model, greedy=greedy, seed=seed)
