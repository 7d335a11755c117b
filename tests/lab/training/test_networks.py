from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

import torch

from asa.lab.placement.tjap.nsa_network import NETWORKS, network, scores
from asa.lab.training.networks import Bodies, modules, tensors
from tests.lab.placement.tjap.test_nsa_network import PRINTED


@pytest.mark.parametrize("name", NETWORKS)
def test_torch_has_as_many_parameters(name):
    assert sum(each.numel() for each in modules(NETWORKS[name]).parameters()) == PRINTED[name]


def test_actor_and_critic_share_nothing():
    bodies, features = Bodies(NETWORKS[next(iter(NETWORKS))]), torch.rand(2, 400)
    actor, critic = bodies(features)
    assert torch.equal(actor, bodies.forward_actor(features)) and torch.equal(critic, bodies.forward_critic(features))
    assert not torch.equal(actor, critic)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seen", [1, 60, 100])
def test_it_says_what_torch_says(name, seen):
    torch.manual_seed(seen)
    whole, state = modules(NETWORKS[name]), np.zeros((4, 100), np.float32)
    draw = np.random.default_rng(seen)
    state[:2, :seen], state[2:, :seen] = draw.random((2, seen)), draw.random((2, 1))
    with torch.inference_mode():
        expected = whole(torch.from_numpy(state.reshape(1, -1)))[0].numpy()
    found = scores(network(name, tensors(list(whole)), "steps", 40), state, seen)
    assert found == pytest.approx(expected, abs=5e-5)
