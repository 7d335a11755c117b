"""The compact network as torch knows it, and the policy that trains one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.compact_network import LAYERS, SHAPES, WIDTH
from asa.lab.dispatchers.learned.compact_sight import COLUMNS

MANY = 16
"""Jobs in a queue of usual length: sums over jobs are told in units of it."""


class Crowd(nn.Module):
    """The layers of `asa.lab.dispatchers.learned.compact_network.LAYERS`; the last one only where it gives scores."""

    def __init__(self, scores: bool) -> None:
        super().__init__()
        for name in LAYERS if scores else [name for name in LAYERS if name != "score"]:
            outputs, inputs = LAYERS[name]
            setattr(self, name, nn.Linear(inputs, outputs))

    def judged(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of the jobs, shape (B, W, WIDTH), 0 where there is none, and the context, shape (B, WIDTH).

        Parameters
        ----------
        states
            As `asa.lab.dispatchers.learned.compact_sight.Shares` makes them, each in a row; shape (B, (1 + W) *
            COLUMNS).
        """
        layer: Any = self
        rows = states.reshape(len(states), -1, COLUMNS)
        machine, jobs = rows[:, :1], rows[:, 1:]
        there = jobs[:, :, :1]
        first = torch.relu(_split(layer.first, jobs, machine, COLUMNS))
        second = torch.relu(layer.second(first)) * there
        mean = second.sum(dim=1) / there.sum(dim=1).clamp(min=1.0)
        context = torch.relu(layer.context(torch.cat([mean, second.amax(dim=1)], dim=1)))
        return torch.relu(_split(layer.third, second, context[:, None], WIDTH)) * there, context

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Scores of the jobs, shape (B, W)."""
        layer: Any = self
        found: torch.Tensor = layer.score(self.judged(states)[0])[:, :, 0]
        return found

    def tensors(self) -> dict[str, Reals]:
        """Weights and biases, by name."""
        found = {name: values.detach().cpu().numpy().astype(np.float32) for name, values in self.state_dict().items()}
        return {name: found[name] for name in SHAPES}


def _split(layer: Any, jobs: torch.Tensor, shared: torch.Tensor, width: int) -> torch.Tensor:
    """A layer of what jobs have, so many values, and of what is the same for all."""
    found: torch.Tensor = jobs @ layer.weight[:, :width].T + (shared @ layer.weight[:, width:].T + layer.bias)
    return found


class Bodies(nn.Module):
    """Actor and critic, each a network of its own."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.actor, self.critic = Crowd(scores=True), Crowd(scores=False)
        self.latent_dim_pi, self.latent_dim_vf = window, 2 * WIDTH

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores, and what the critic's last layer gets."""
        return self.forward_actor(states), self.forward_critic(states)

    def forward_actor(self, states: torch.Tensor) -> torch.Tensor:
        """Of the actor alone."""
        found: torch.Tensor = self.actor(states)
        return found

    def forward_critic(self, states: torch.Tensor) -> torch.Tensor:
        """Of the critic alone: the context, and sums over jobs, for what a queue will cost is nearly such a sum."""
        jobs, context = self.critic.judged(states)
        return torch.cat([context, jobs.sum(dim=1) / MANY], dim=1)


class Policy(MaskableActorCriticPolicy):
    """Scores of jobs are the logits: no layer, which would tie them to places of the window, comes after them."""

    def _build_mlp_extractor(self) -> None:
        shape: Any = self.observation_space.shape
        self.mlp_extractor = Bodies(shape[0] - 1)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    @property
    def actor(self) -> Crowd:
        """The part that ships."""
        body: Any = self.mlp_extractor
        found: Crowd = body.actor
        return found
