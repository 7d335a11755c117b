"""One episode of DRAS's training (section III-C): act, and learn after every ten scheduling instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from asa.core.arrays import Bools
from asa.lab.core.workload import Reals

INSTANCES = 10
"""Scheduling instances until the network is changed."""


class Step(NamedTuple):
    """An action that was taken.

    Parameters
    ----------
    state, mask
        What was seen, shape (2 W + N, 2), and which actions there were, shape (W,).
    action
        The place in the window.
    reward
        What it earned.
    after, after_mask
        What was seen then; no action is left when the episode is over.
    """

    state: Reals
    mask: Bools
    action: int
    reward: float
    after: Reals
    after_mask: Bools


class Learner(Protocol):
    """What is trained."""

    def act(self, state: Reals, mask: Bools) -> int:
        """An action that `mask` has."""

    def learn(self, steps: Sequence[Step]) -> None:
        """Change the network once, by these actions in a row, at least one."""


class Episode(NamedTuple):
    """Sum of the rewards, and how many actions and changes of the network there were."""

    reward: float
    actions: int
    updates: int


def episode(environment: Any, learner: Learner, *, seed: int | None = None, every: int = INSTANCES) -> Episode:
    """Run an episode of an environment with masks, such as `asa.lab.training.environment.Dispatching`.

    What is left at the end is learned from as well, even if it is fewer than `every` scheduling instances.
    """
    state, info = environment.reset(seed=seed)
    mask, over, begun = environment.action_masks(), False, int(info["instance"])
    steps: list[Step] = []
    total, actions, updates = 0.0, 0, 0
    while not over:
        action = learner.act(state, mask)
        after, reward, over, _, info = environment.step(action)
        after_mask = environment.action_masks()
        steps.append(Step(state, mask, action, float(reward), after, after_mask))
        state, mask = after, after_mask
        total, actions = total + float(reward), actions + 1
        if over or int(info["instance"]) - begun >= every:
            learner.learn(steps)
            steps, begun, updates = [], int(info["instance"]), updates + 1
    return Episode(total, actions, updates)
