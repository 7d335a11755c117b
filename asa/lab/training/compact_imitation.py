"""A warm start for the compact policy: it learns to do what a rule does, and what that will cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats, Ints
from asa.lab.core.workload import Reals
from asa.lab.training.compact_environment import Accrued

LENGTH = 3
"""Column of a job's expected run time."""
BATCH, RATE = 256, 1e-3
WANDER = 0.1
"""How often something else is done than the teacher says: its advice is learned for more queues than its own."""


def teacher(observation: Reals, mask: Bools) -> int:
    """Shortest job first.

    Parameters
    ----------
    observation
        As `asa.lab.dispatchers.learned.compact_sight.Shares` makes it.
    mask
        Which jobs there are, shape (W,).
    """
    return int(np.argmin(np.where(mask, observation[1:, LENGTH], np.inf)))


@dataclass(frozen=True, eq=False)
class Lessons:
    """Situations, and what a teacher says of them.

    Parameters
    ----------
    states, masks
        What was seen, shape (n, 1 + W, COLUMNS), and which actions there were, shape (n, W).
    actions
        What the teacher says, shape (n,).
    returns
        Sums of the rewards from there on, discounted, shape (n,).
    """

    states: Reals
    masks: Bools
    actions: Ints
    returns: Floats


def lessons(environment: Accrued, count: int, *, gamma: float, seed: int) -> Lessons:
    """What a teacher says in so many situations at least; whole episodes."""
    draw = np.random.default_rng(seed)
    states: list[Reals] = []
    masks: list[Bools] = []
    actions: list[int] = []
    returns: list[Floats] = []
    while len(states) < count:
        rewards: list[float] = []
        (state, _), over = environment.reset(), False
        while not over:
            mask = environment.action_masks()
            action = teacher(state, mask)
            states.append(state)
            masks.append(mask)
            actions.append(action)
            taken = int(draw.choice(np.flatnonzero(mask))) if draw.random() < WANDER else action
            state, reward, over, _, _ = environment.step(taken)
            rewards.append(reward)
        returns.append(discounted(rewards, gamma))
    return Lessons(np.stack(states), np.stack(masks), np.array(actions), np.concatenate(returns))


def discounted(rewards: Sequence[float], gamma: float) -> Floats:
    """Sums of rewards from each on, discounted; shape (n,).

    >>> discounted([1.0, 0.0, 4.0], 0.5).tolist()
    [2.0, 2.0, 4.0]
    """
    found, later = np.empty(len(rewards)), 0.0
    for place in range(len(rewards) - 1, -1, -1):
        found[place] = later = rewards[place] + gamma * later
    return found


def imitate(policy: Any, given: Lessons, *, passes: int, seed: int) -> float:
    """Fit actor and critic; the share of situations in which the actor does as the teacher then."""
    import torch
    from torch.nn import functional

    draw = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=RATE)
    states, masks = torch.as_tensor(given.states.reshape(len(given.states), -1)), torch.as_tensor(given.masks)
    actions, returns = torch.as_tensor(given.actions), torch.as_tensor(given.returns, dtype=torch.float32)

    def logits(rows: npt.NDArray[Any]) -> torch.Tensor:
        found: torch.Tensor = policy.actor(states[rows]).masked_fill(~masks[rows], -1e8)
        return found

    for turn in range(passes):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - turn / passes)
        for rows in np.array_split(draw.permutation(len(states)), -(-len(states) // BATCH)):
            values = policy.value_net(policy.mlp_extractor.forward_critic(states[rows]))[:, 0]
            loss: Any = functional.cross_entropy(logits(rows), actions[rows])
            loss = loss + functional.smooth_l1_loss(values, returns[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        parts = [logits(rows).argmax(dim=1) == actions[rows] for rows in np.array_split(np.arange(len(states)), 16)]
    return float(torch.cat(parts).float().mean())
