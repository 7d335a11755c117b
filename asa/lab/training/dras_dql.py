"""DRAS-DQL's learning rule: Q-learning with a network, without replay and without a second network.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B, equation (4); C. J. C. H.
Watkins and P. Dayan, "Q-learning" (1992).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from asa.core.arrays import Bools
from asa.core.errors import InvalidInput
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.model import Shape
from asa.lab.training.dras_episode import Step
from asa.lab.training.dras_network import Network, Tensors, network_of, optimiser_of, restore, tensors_of


class QLearning:
    """DRAS-DQL.

    Equation (4) has the wrong sign as printed: it subtracts alpha grad Q (new value - old value), which drives the old
    value away from the new one, while the text below it says that their difference is made smaller. We add it. The new
    value is a constant in the gradient, as it is in the equation.

    The paper says that epsilon decays at a rate of 0.995, not when: here with every change of the network.

    Parameters
    ----------
    shape
        The network, of kind ``"dql"``.
    seed
        Of the first weights, and of the draws.
    rate
        Learning rate of Adam; the paper's.
    epsilon, decay
        Probability to select at random at the beginning, in [0, 1], and what each change of the network multiplies it
        by, in [0, 1]; the paper's.
    discount
        What a reward that comes a step later is worth, in [0, 1]. Equation (4) has none: 1. Values then grow with the
        length of an episode.

    Raises
    ------
    InvalidInput
        When epsilon, decay or discount is outside of [0, 1].

    Attributes
    ----------
    network
        What is trained; its `model` is for the dispatchers.
    epsilon
        As it is now.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        seed: int = 0,
        rate: float = 0.001,
        epsilon: float = 1.0,
        decay: float = 0.995,
        discount: float = 1.0,
    ) -> None:
        for name, value in (("epsilon", epsilon), ("decay", decay), ("discount", discount)):
            if not 0 <= value <= 1:
                raise InvalidInput(f"{name} must be in [0, 1], not {value}")
        self.network: Network = network_of(shape, seed)
        self.epsilon, self._decay, self._discount = epsilon, decay, discount
        self._draw = np.random.default_rng(seed)
        self._optimiser = optimiser_of(self.network, rate)

    def act(self, state: Reals, mask: Bools) -> int:
        """The action of highest value; with probability epsilon any that there is."""
        if self._draw.random() < self.epsilon:
            return int(self._draw.choice(np.flatnonzero(mask)))
        there = torch.from_numpy(np.flatnonzero(mask))
        with torch.no_grad():
            values = self.network.of(torch.from_numpy(state)[None], torch.zeros_like(there), there)
        return int(there[values.argmax()])

    def targets(self, steps: Sequence[Step]) -> torch.Tensor:
        """New values, (K,): the reward, and the best value of what can be done then; 0 at the end of an episode."""
        states = torch.from_numpy(np.stack([step.after for step in steps]))
        masks = torch.from_numpy(np.stack([step.after_mask for step in steps]))
        rewards = torch.tensor([step.reward for step in steps], dtype=torch.float32)
        which, places = masks.nonzero(as_tuple=True)
        with torch.no_grad():
            values = self.network.of(states, which, places)
        best = torch.full_like(rewards, -torch.inf).scatter_reduce(0, which, values, "amax")
        return rewards + self._discount * torch.where(masks.any(dim=1), best, 0.0)

    def loss(self, steps: Sequence[Step]) -> torch.Tensor:
        """Half the sum of squares of new value minus old value; its gradient is the sum of equation (4), negated."""
        states = torch.from_numpy(np.stack([step.state for step in steps]))
        actions = torch.tensor([step.action for step in steps])
        old = self.network.taken(states, actions)
        return ((self.targets(steps) - old) ** 2).sum() / 2

    def learn(self, steps: Sequence[Step]) -> None:
        """Change the network once, by these actions in a row."""
        loss = self.loss(steps)
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        self._optimiser.step()
        self.epsilon *= self._decay

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """All that it would need to go on: tensors, and what is JSON-able."""
        about = {"draw": self._draw.bit_generator.state, "epsilon": self.epsilon}
        return tensors_of(self.network, self._optimiser), about

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        """Go on from there."""
        restore(self.network, self._optimiser, tensors)
        self._draw.bit_generator.state, self.epsilon = about["draw"], float(about["epsilon"])
