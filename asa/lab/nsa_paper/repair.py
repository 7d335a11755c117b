"""The neural repair operator: its environment, in which jobs are put back one by one, and its networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from asa.core.arrays import Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.compiled import compiled
from asa.lab.core.workload import Reals
from asa.lab.placement.tjap.instance import Tables, Window
from asa.lab.placement.tjap.native import give_back, rest_of, stretch, stretches, take
from asa.lab.placement.tjap.nsa import (
    ATTRIBUTES,
    CONVOLUTION,
    LINEAR,
    NETWORKS,
    PLACES,
    STATES,
    RepairLayer,
    observe,
    places_of,
)
from asa.lab.placement.tjap.seq import in_order

MOVES = 20
"""Repairs of one window before the next one is drawn."""
WARMEST, COLDEST = 2500.0, 2.5
"""Temperatures between which a window's one is drawn; the paper's Table I."""


class Repair(gymnasium.Env[Reals, np.int64]):
    """An episode is the repair of a placement that one or two jobs were taken out of.

    A state is what `asa.lab.placement.tjap.nsa.observe` tells, shape (ATTRIBUTES, PLACES), values in [0, 1]. An action
    is the place, among the nodes that no job holds, where the next job begins, in [0, PLACES); `action_masks` tells
    which there are. The reward is 0 but for the last job: then it is minus the cost of hops of all jobs that were put
    back, in units of a hop's price times `biggest` (the paper has no unit; PPO's critic learns numbers near 1 faster).
    Unless `plain`, what they would cost had each gone where it costs least is added: it is the same whatever is done in
    the episode, so that the same policy is best, and what is left to learn does not drown in what no policy changes.

    Placements are those that annealing meets: a window's first one is that of `seq`; after each repair the new one
    stays by Metropolis' rule, at a temperature that is drawn for every window.

    Parameters
    ----------
    plain
        Whether the reward is the cost alone, as in the paper.

    Raises
    ------
    InvalidInput
        When there is no window, one has a potential, or a job asks for more than `biggest`.
    UnknownName
        When there is no such state.

    Attributes
    ----------
    owner, before
        Job that holds each idle node of the window, -1 for none, now and before the episode.
    exact
        What the jobs of the episode would cost had each gone where it costs least.

    References
    ----------
    Section V-B of the paper: state (V-B1), action and mask (V-B2), reward (V-B3).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's own)

    def __init__(
        self,
        windows: Sequence[Window],
        *,
        state: str = "steps",
        biggest: int = 40,
        removed: int = 2,
        plain: bool = False,
    ) -> None:
        if state not in STATES:
            raise UnknownName("state", state, STATES)
        if not windows or removed < 1:
            raise InvalidInput(f"{len(windows)} windows, {removed} jobs removed: at least 1 of each expected")
        if (most := max(int(window.sizes.max()) for window in windows)) > biggest:
            raise InvalidInput(f"a job asks for {most} nodes: at most {biggest}, the biggest, expected")
        if any(window.potential for window in windows):
            raise InvalidInput("a window with a potential: windows without one expected, for costs of hops are learned")
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (ATTRIBUTES, PLACES), np.float32)
        self.action_space = gymnasium.spaces.Discrete(PLACES)
        self._windows, self._scale, self._removed = windows, (state == "steps", float(biggest)), removed
        self._plain, self._moves, self.sizes = plain, 0, np.zeros(0, np.int64)
        self.out: list[int] = []
        self.owner = self.before = np.zeros(0, np.int64)
        self._was = self._paid = self.exact = 0.0
        self._unit = self._heat = 1.0
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Reals, dict[str, Any]]:
        """Take jobs out; the largest comes back first."""
        super().reset(seed=seed)
        if self.out:  # the last episode was not ended
            self.owner = self.before
        if seed is not None or self._moves == 0:
            self._next_window()
        self._moves -= 1
        jobs = len(self.sizes)
        chosen = self.np_random.permutation(jobs)[: self.np_random.integers(1, min(self._removed, jobs) + 1)]
        self.out = sorted(chosen.tolist(), key=lambda job: -self.sizes[job])
        self.before, self._paid = self.owner.copy(), 0.0
        self._was, self.exact = ruin(self._tables, self.owner, self.sizes, np.array(self.out))
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[Reals, float, bool, bool, dict[str, Any]]:
        """Put the next job there.

        At the end of an episode `info` has what the jobs cost, and ``exact``: what they would if each had gone where it
        costs least.
        """
        if not 0 <= action < self._count:
            raise InvalidInput(f"action {action}: {self._count} nodes are left; see action_masks")
        job = self.out.pop(0)
        self._paid += put(self._tables, self.owner, int(self.sizes[job]), job, int(action))
        if self.out:
            return self._look(), 0.0, False, False, {}
        worse = self._paid - self._was
        if worse > 0 and self.np_random.random() >= math.exp(-worse / self._heat):
            self.owner = self.before
        reward = ((0.0 if self._plain else self.exact) - self._paid) / self._unit
        info = {"cost": self._paid, "exact": self.exact}
        return np.zeros((ATTRIBUTES, PLACES), np.float32), reward, True, False, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions there are, shape (PLACES,)."""
        return np.arange(PLACES) < self._count

    def _next_window(self) -> None:
        window = self._windows[int(self.np_random.integers(len(self._windows)))]
        self._tables, self.sizes, self._where = window.tables, window.sizes, places_of(window)
        self.owner, self._unit, self._moves = in_order(window), window.price * self._scale[1], MOVES
        self._heat = WARMEST * (COLDEST / WARMEST) ** self.np_random.random()

    def _look(self) -> Reals:
        state = np.zeros(ATTRIBUTES * PLACES, np.float32)
        asked = self.sizes[self.out]
        self._count = min(PLACES, seen(self._tables, self._where, self._scale, self.owner, asked, state))
        return state.reshape(ATTRIBUTES, PLACES)


@compiled
def seen(t: Tables, where: Reals, scale: tuple[bool, float], owner: Ints, asked: Ints, state: Reals) -> int:
    """Fill `state` for jobs that ask for so many nodes, the first of which is next; how many nodes no job holds."""
    ring, others = np.empty(len(owner), np.int64), 0.0
    count = rest_of(owner, ring)
    for job in range(1, len(asked)):
        others += asked[job] / (len(asked) - 1)
    observe(t, where, scale, ring, (count, asked[0], others), state)
    return count


@compiled
def put(t: Tables, owner: Ints, size: int, job: int, start: int) -> float:
    """Give a job nodes from there on; what its hops cost."""
    ring = np.empty(len(owner), np.int64)
    count = rest_of(owner, ring)
    paid = stretch(t, ring, count, start, size, np.zeros(t.groups.shape, np.int64))
    take(owner, ring, count, start, size, job)
    return float(paid)


@compiled
def ruin(t: Tables, owner: Ints, sizes: Ints, out: Ints) -> tuple[float, float]:
    """Take jobs out; what their hops cost, and what they would if each came back, in order, where it costs least."""
    ring, cost, paid = np.empty(len(owner), np.int64), np.empty(len(owner)), 0.0
    seen, left, was = np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64), 0.0
    for job in out:
        count = 0
        for place in range(len(owner)):
            if owner[place] == job:
                ring[count] = place
                count += 1
        was += stretch(t, ring, count, 0, count, seen)
    give_back(owner, out, len(out))
    again = owner.copy()
    for job in out:
        count = rest_of(again, ring)
        stretches(t, ring, count, sizes[job], left, seen, cost)
        start = 0
        for other in range(count):
            if cost[other] < cost[start]:
                start = other
        paid += cost[start]
        take(again, ring, count, start, sizes[job], job)
    return was, paid


def modules(layers: Sequence[RepairLayer]) -> nn.Sequential:
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
    """Weights and biases, named as `asa.lab.placement.tjap.nsa.network` wants them."""
    found, place = {}, 0
    for part in parts:
        if isinstance(part, nn.Flatten | nn.Unflatten):
            continue
        for name, values in part.named_parameters():
            found[f"{place}.{name}"] = values.detach().cpu().numpy().astype(np.float32)
        place += 1
    return found


class RepairBodies(nn.Module):
    """Actor and critic, each a network of its own, but for the last layer, which differs."""

    def __init__(self, layers: Sequence[RepairLayer]) -> None:
        super().__init__()
        self.actor, self.critic = modules(layers[:-1]), modules(layers[:-1])
        self.latent_dim_pi = self.latent_dim_vf = layers[-1].inputs

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(features), self.critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.actor(features)
        return found

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.critic(features)
        return found


class RepairPolicy(MaskableActorCriticPolicy):
    """An actor of the paper's Table II; the critic is the same but for its last layer, which has one value."""

    def __init__(self, *given: Any, network: str, **rest: Any) -> None:
        self._layers = NETWORKS[network]
        super().__init__(*given, **rest)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = RepairBodies(self._layers)  # type: ignore[assignment]

    def actor_tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The actor alone; see `tensors`."""
        body: Any = self.mlp_extractor
        return tensors([*body.actor, self.action_net])
