"""DRAS-PG's learning rule: policy gradient with a running baseline.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B, equation (3); R. J.
Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning" (1992).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from asa.core.arrays import Bools, Floats
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.model import Shape
from asa.lab.training.dras_episode import Step
from asa.lab.training.dras_network import Network, Tensors, network_of, optimiser_of, restore, tensors_of


def to_come(rewards: Sequence[float]) -> Floats:
    """Sum of the rewards from each step on, not discounted, shape (K,).

    >>> to_come([1.0, 2.0, 4.0]).tolist()
    [7.0, 6.0, 4.0]
    """
    found: Floats = np.cumsum(np.asarray(rewards, np.float64)[::-1])[::-1]
    return found


class Baseline:
    """b_k: the mean, over the updates so far that had a step k, of the rewards from it on; 0 where there was none.

    Parameters
    ----------
    sums, counts
        Of earlier updates, shape (steps,) each.

    Examples
    --------
    >>> baseline = Baseline()
    >>> baseline.add(np.array([7.0, 6.0])), baseline.add(np.array([3.0]))
    (None, None)
    >>> baseline.of(3).tolist()
    [5.0, 6.0, 0.0]
    """

    def __init__(self, sums: Sequence[float] = (), counts: Sequence[float] = ()) -> None:
        self.sums, self.counts = np.array(sums, np.float64), np.array(counts, np.float64)

    def of(self, steps: int) -> Floats:
        """Of the first steps, shape (steps,)."""
        self._grow(steps)
        found: Floats = self.sums[:steps] / np.maximum(self.counts[:steps], 1)
        return found

    def add(self, returns: Floats) -> None:
        """Learn of another update."""
        self._grow(len(returns))
        self.sums[: len(returns)] += returns
        self.counts[: len(returns)] += 1

    def _grow(self, steps: int) -> None:
        more = (0, max(0, steps - len(self.sums)))
        self.sums, self.counts = np.pad(self.sums, more), np.pad(self.counts, more)


class PolicyGradient:
    """DRAS-PG, or Decima-PG where the shape has no levels.

    Parameters
    ----------
    shape
        The network, of kind ``"pg"``.
    seed
        Of the first weights, and of the draws.
    rate
        Learning rate of Adam; the paper's.

    Attributes
    ----------
    network
        What is trained; its `model` is for the dispatchers.
    """

    def __init__(self, shape: Shape, *, seed: int = 0, rate: float = 0.001) -> None:
        self.network: Network = network_of(shape, seed)
        self._draw, self._baseline = np.random.default_rng(seed), Baseline()
        self._optimiser = optimiser_of(self.network, rate)

    def act(self, state: Reals, mask: Bools) -> int:
        """Draw an action by the policy's probabilities."""
        with torch.no_grad():
            scores = self.network(torch.from_numpy(state)[None])[0].numpy()
        return int(np.argmax(np.where(mask, scores + self._draw.gumbel(size=len(mask)), -np.inf)))

    def logarithms(self, states: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        """Of the actions' probabilities, (B, W): a softmax over the actions that there are."""
        return torch.log_softmax(self.network(states).masked_fill(~masks, -torch.inf), dim=1)

    def loss(self, steps: Sequence[Step], advantages: Floats) -> torch.Tensor:
        """What equation (3) descends: minus the sum of log pi(s_k, a_k) (sum of rewards from k on - b_k)."""
        states = torch.from_numpy(np.stack([step.state for step in steps]))
        masks = torch.from_numpy(np.stack([step.mask for step in steps]))
        actions = torch.tensor([step.action for step in steps])
        taken = self.logarithms(states, masks)[torch.arange(len(steps)), actions]
        return -(taken * torch.from_numpy(advantages.astype(np.float32))).sum()

    def learn(self, steps: Sequence[Step]) -> None:
        """Change the network once, by these actions in a row."""
        returns = to_come([step.reward for step in steps])
        loss = self.loss(steps, returns - self._baseline.of(len(steps)))
        self._baseline.add(returns)
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        self._optimiser.step()

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """All that it would need to go on: tensors, and what is JSON-able."""
        baseline = {"sums": self._baseline.sums.tolist(), "counts": self._baseline.counts.tolist()}
        about = {"draw": self._draw.bit_generator.state, "baseline": baseline}
        return tensors_of(self.network, self._optimiser), about

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        """Go on from there."""
        restore(self.network, self._optimiser, tensors)
        self._draw.bit_generator.state = about["draw"]
        self._baseline = Baseline(**about["baseline"])
