"""DRAS's networks as torch knows them, and what Adam keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.model import SLOPE, Model, Shape

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


class Layer(nn.Linear):
    """A fully connected layer without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self._room = torch.empty(outputs, inputs)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (B, outputs)."""
        found: torch.Tensor = _Times.apply(values, self.weight, self._room)  # type: ignore[no-untyped-call]
        return found


class Network(nn.Module):
    """A network of this shape with weights at random, as torch draws them.

    It takes states of shape (B, 2 W + N, 2) and has an output for each place of the window, (B, W), before any mask.
    DRAS-DQL's sees each job on its own, with all nodes; what it makes of the nodes is then the same for all, and is
    computed once.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        first, second = shape.hidden
        self.shape = shape
        self.filter = nn.Linear(2, 1)
        self.first, self.second = Layer(2 * shape.jobs + shape.nodes, first), Layer(first, second)
        self.output = nn.Linear(second, shape.jobs)
        self.rectify = nn.LeakyReLU(SLOPE)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Logits, or values."""
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

    def model(self) -> Model:
        """A copy of the weights, for the dispatchers."""
        found = {name: values.detach().cpu().numpy().astype(np.float32) for name, values in self.named_parameters()}
        return Model(self.shape, found)


def put(network: Network, model: Model) -> None:
    """Give a network the weights of a model of its shape."""
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.copy_(torch.from_numpy(np.array(model.tensors[name])))


def network_of(shape: Shape, seed: int) -> Network:
    """A network whose first weights follow from a seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(shape)


def optimiser_of(network: Network, rate: float) -> torch.optim.Adam:
    """Adam, in one pass over the weights: on a large network its time is that of reading and writing memory."""
    return torch.optim.Adam(network.parameters(), lr=rate, fused=True)


def tensors_of(network: Network, optimiser: torch.optim.Adam) -> Tensors:
    """Weights, and what Adam keeps of them."""
    found: dict[str, Any] = {}
    for name, values in network.named_parameters():
        found[f"weights.{name}"] = values
        for key, kept in optimiser.state.get(values, {}).items():
            found[f"{key}.{name}"] = kept
    return {name: values.detach().numpy().copy() for name, values in found.items()}


def restore(network: Network, optimiser: torch.optim.Adam, tensors: Tensors) -> None:
    """Put them back: what `tensors_of` said of a network of the same shape."""
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.copy_(torch.from_numpy(tensors[f"weights.{name}"]))
            if f"step.{name}" in tensors:
                kept = {key: torch.from_numpy(tensors[f"{key}.{name}"]) for key in ("step", *MOMENTS)}
                optimiser.state[values] = {key: each.clone() for key, each in kept.items()}
            else:
                optimiser.state.pop(values, None)
