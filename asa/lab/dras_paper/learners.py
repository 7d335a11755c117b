"""DRAS's networks, an episode of training, and the learning rules of DRAS-PG and DRAS-DQL.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B, equations (3) and (4), and
section III-C; R. J. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
learning" (1992); C. J. C. H. Watkins and P. Dayan, "Q-learning" (1992).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from asa.core.arrays import Bools, Floats
from asa.core.errors import InvalidInput
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.dras import SLOPE, DrasModel, NetworkShape

Tensors = Mapping[str, Reals]
"""Arrays by name, as a safetensors file has them."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight, by the names that torch has for it."""


class _Times(torch.autograd.Function):
    """A layer without bias whose gradient is written where the last one was.

    Of a layer of 70 MB a new place costs more than all else: the pages of memory that it is made of. Gradients are not
    added to earlier ones, so a layer may be passed once for each time that they are computed.
    """

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        """Values of shape (B, inputs) times the weights, shape (outputs, inputs)."""
        ctx.layer = values, weight, room
        return values @ weight.T

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> Any:
        """NumPy multiplies matrices that are narrow inside faster than torch does."""
        values, weight, room = ctx.layer
        np.matmul(slopes[0].numpy().T, values.detach().numpy(), out=room.numpy())
        weight.grad = room
        return slopes[0] @ weight.detach(), None, None


class DenseLayer(nn.Linear):
    """A fully connected layer without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self._room = torch.empty(outputs, inputs)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (B, outputs)."""
        found: torch.Tensor = _Times.apply(values, self.weight, self._room)  # type: ignore[no-untyped-call]
        return found


class DrasNetwork(nn.Module):
    """A network of this shape with weights at random, as torch draws them.

    It takes states of shape (B, 2 W + N, 2) and has an output for each place of the window, (B, W), before any mask.
    DRAS-DQL's sees each job on its own, with all nodes; what it makes of the nodes is then the same for all, and is
    computed once.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        first, second = shape.hidden
        self.shape = shape
        self.filter = nn.Linear(2, 1)
        self.first, self.second = DenseLayer(2 * shape.jobs + shape.nodes, first), DenseLayer(first, second)
        self.output = nn.Linear(second, shape.jobs)
        self.rectify = nn.LeakyReLU(SLOPE)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.shape.kind == "pg":
            return self._above(self.first(self.filter(states).squeeze(-1)))
        count, window = len(states), self.shape.window
        every = torch.arange(count).repeat_interleave(window), torch.arange(window).repeat(count)
        return self.of(states, *every).reshape(count, window)

    def of(self, states: torch.Tensor, which: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """DRAS-DQL's: values of jobs, (k,), each in one place of the window of one of the states, (k,) both.

        Not for gradients, of which those parts of the first layer would make two as large as its weights.
        """
        rows, window, weight = self.filter(states).squeeze(-1), self.shape.window, self.first.weight
        jobs = rows[:, : 2 * window].reshape(-1, window, 2)[which, places]
        seen = rows[:, 2 * window :] @ weight[:, 2:].T
        return self._above(jobs @ weight[:, :2].T + seen[which]).squeeze(-1)

    def taken(self, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """The same of one job for each state, (B,), for gradients."""
        rows, window = self.filter(states).squeeze(-1), self.shape.window
        jobs = rows[:, : 2 * window].reshape(-1, window, 2)[torch.arange(len(places)), places]
        return self._above(self.first(torch.cat([jobs, rows[:, 2 * window :]], dim=1))).squeeze(-1)

    def _above(self, first: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.output(self.rectify(self.second(self.rectify(first))))
        return found

    def model(self) -> DrasModel:
        """A copy of the weights, for the dispatchers."""
        found = {name: values.detach().cpu().numpy().astype(np.float32) for name, values in self.named_parameters()}
        return DrasModel(self.shape, found)


def put(network: DrasNetwork, model: DrasModel) -> None:
    """Give a network the weights of a model of its shape."""
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.copy_(torch.from_numpy(np.array(model.tensors[name])))


def network_of(shape: NetworkShape, seed: int) -> DrasNetwork:
    """A network whose first weights follow from a seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DrasNetwork(shape)


def optimiser_of(network: DrasNetwork, rate: float) -> torch.optim.Adam:
    """Adam, in one pass over the weights: on a large network its time is that of reading and writing memory."""
    return torch.optim.Adam(network.parameters(), lr=rate, fused=True)


def tensors_of(network: DrasNetwork, optimiser: torch.optim.Adam) -> Tensors:
    """Weights, and what Adam keeps of them."""
    found: dict[str, Any] = {}
    for name, values in network.named_parameters():
        found[f"weights.{name}"] = values
        for key, kept in optimiser.state.get(values, {}).items():
            found[f"{key}.{name}"] = kept
    return {name: values.detach().numpy().copy() for name, values in found.items()}


def restore(network: DrasNetwork, optimiser: torch.optim.Adam, tensors: Tensors) -> None:
    """Put them back: what `tensors_of` said of a network of the same shape."""
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.copy_(torch.from_numpy(tensors[f"weights.{name}"]))
            if f"step.{name}" in tensors:
                kept = {key: torch.from_numpy(tensors[f"{key}.{name}"]) for key in ("step", *MOMENTS)}
                optimiser.state[values] = {key: each.clone() for key, each in kept.items()}
            else:
                optimiser.state.pop(values, None)


INSTANCES = 10
"""Scheduling instances until the network is changed."""


class Step(NamedTuple):
    """An action that was taken.

    Parameters
    ----------
    state, mask
        What was seen, shape (2 W + N, 2), and which actions there were, shape (W,).
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
    """Run an episode of an environment with masks, such as `asa.lab.dras_paper.environment.Dispatching`.

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


def to_come(rewards: Sequence[float]) -> Floats:
    """Sum of the rewards from each step on, not discounted, shape (K,).

    >>> to_come([1.0, 2.0, 4.0]).tolist()
    [7.0, 6.0, 4.0]
    """
    found: Floats = np.cumsum(np.asarray(rewards, np.float64)[::-1])[::-1]
    return found


class Baseline:
    """b_k: the mean, over the updates so far that had a step k, of the rewards from it on; 0 where there was none.

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
    """DRAS-PG, or Decima-PG where the shape has no levels."""

    def __init__(self, shape: NetworkShape, *, seed: int = 0, rate: float = 0.001) -> None:
        self.network: DrasNetwork = network_of(shape, seed)
        self._draw, self._baseline = np.random.default_rng(seed), Baseline()
        self.optimiser = optimiser_of(self.network, rate)

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
        returns = to_come([step.reward for step in steps])
        loss = self.loss(steps, returns - self._baseline.of(len(steps)))
        self._baseline.add(returns)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """All that it would need to go on: tensors, and what is JSON-able."""
        baseline = {"sums": self._baseline.sums.tolist(), "counts": self._baseline.counts.tolist()}
        about = {"draw": self._draw.bit_generator.state, "baseline": baseline}
        return tensors_of(self.network, self.optimiser), about

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        restore(self.network, self.optimiser, tensors)
        self._draw.bit_generator.state = about["draw"]
        self._baseline = Baseline(**about["baseline"])


class QLearning:
    """DRAS-DQL.

    Equation (4) has the wrong sign as printed: it subtracts alpha grad Q (new value - old value), which drives the old
    value away from the new one, while the text below it says that their difference is made smaller. We add it. The new
    value is a constant in the gradient, as it is in the equation.

    The paper says that epsilon decays at a rate of 0.995, not when: here with every change of the network.

    Parameters
    ----------
    epsilon, decay
        Probability to select at random at the beginning, in [0, 1], and what each change of the network multiplies it
        by, in [0, 1]; the paper's.
    discount
        What a reward that comes a step later is worth, in [0, 1]. Equation (4) has none: 1. Values then grow with the
        length of an episode.
    """

    def __init__(
        self,
        shape: NetworkShape,
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
        self.network: DrasNetwork = network_of(shape, seed)
        self.epsilon, self._decay, self._discount = epsilon, decay, discount
        self._draw = np.random.default_rng(seed)
        self.optimiser = optimiser_of(self.network, rate)

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
        loss = self.loss(steps)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        self.epsilon *= self._decay

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """All that it would need to go on: tensors, and what is JSON-able."""
        about = {"draw": self._draw.bit_generator.state, "epsilon": self.epsilon}
        return tensors_of(self.network, self.optimiser), about

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        restore(self.network, self.optimiser, tensors)
        self._draw.bit_generator.state, self.epsilon = about["draw"], float(about["epsilon"])
