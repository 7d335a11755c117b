"""The networks of the neural repair operator as torch knows them, and the policy that trains one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from asa.lab.placement.tjap.nsa_network import ATTRIBUTES, CONVOLUTION, LINEAR, NETWORKS, PLACES, Layer


def modules(layers: Sequence[Layer]) -> nn.Sequential:
    """These layers; takes states as rows, shape (B, ATTRIBUTES * PLACES)."""
    made: list[nn.Module] = []
    for layer in layers:
        if layer.kind == CONVOLUTION:
            made += [] if made else [nn.Unflatten(1, (ATTRIBUTES, PLACES))]
            made.append(nn.Conv1d(layer.inputs, layer.outputs, layer.width, layer.stride))
        elif layer.kind == LINEAR:
            made += [nn.Flatten()] if made and isinstance(made[-1], nn.Conv1d) else []
            made.append(nn.Linear(layer.inputs, layer.outputs))
        else:
            made.append(nn.Tanh())
    return nn.Sequential(*made)


def tensors(parts: Sequence[nn.Module]) -> dict[str, npt.NDArray[np.float32]]:
    """Weights and biases, named as `asa.lab.placement.tjap.nsa_network.network` wants them."""
    found, place = {}, 0
    for part in parts:
        if isinstance(part, nn.Flatten | nn.Unflatten):
            continue
        for name, values in part.named_parameters():
            found[f"{place}.{name}"] = values.detach().cpu().numpy().astype(np.float32)
        place += 1
    return found


class Bodies(nn.Module):
    """Actor and critic, each a network of its own, but for the last layer, which differs."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.actor, self.critic = modules(layers[:-1]), modules(layers[:-1])
        self.latent_dim_pi = self.latent_dim_vf = layers[-1].inputs

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What their last layers get."""
        return self.actor(features), self.critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """Of the actor alone."""
        found: torch.Tensor = self.actor(features)
        return found

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """Of the critic alone."""
        found: torch.Tensor = self.critic(features)
        return found


class Policy(MaskableActorCriticPolicy):
    """An actor of the paper's Table II; the critic is the same but for its last layer, which has one value.

    Parameters
    ----------
    network
        One of `asa.lab.placement.tjap.nsa_network.NETWORKS`.
    """

    def __init__(self, *given: Any, network: str, **rest: Any) -> None:
        self._layers = NETWORKS[network]
        super().__init__(*given, **rest)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = Bodies(self._layers)  # type: ignore[assignment]

    def actor_tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The actor alone; see `tensors`."""
        body: Any = self.mlp_extractor
        return tensors([*body.actor, self.action_net])
