from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.lab.dispatchers.learned.compact_network import COLUMNS, PARAMETERS, Network
from asa.lab.dispatchers.learned.compact_sight import Shares
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.training.compact_environment import Accrued, Cost
from asa.lab.training.compact_imitation import discounted, imitate, lessons, teacher
from asa.lab.training.compact_network import Crowd, Policy
from tests.lab.training.workloads import MACHINE, busy

WINDOW = 6


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As in training; several would wait for one another where cores are shared."""
    torch.set_num_threads(1)


def policy() -> Policy:
    torch.manual_seed(1)
    box = spaces.Box(-np.inf, np.inf, Shares(WINDOW).shape(1), np.float32)
    return Policy(box, spaces.Discrete(WINDOW), lambda left: 1e-3)


def observation(count: int, seed: int) -> np.ndarray:
    seen = np.zeros((1 + WINDOW, COLUMNS), np.float32)
    seen[: 1 + count] = np.random.default_rng(seed).normal(size=(1 + count, COLUMNS))
    seen[1 : 1 + count, 0] = 1
    return seen


@settings(deadline=None)
@given(st.integers(1, WINDOW), st.integers(0, 99))
def test_numpy_says_what_torch_says(count: int, seed: int) -> None:
    torch.manual_seed(seed)
    crowd, seen = Crowd(scores=True), observation(count, seed)
    network = Network(crowd.tensors())
    assert sum(values.size for values in network.tensors.values()) == PARAMETERS
    with torch.no_grad():
        says = crowd(torch.as_tensor(seen.reshape(1, -1)))[0, :count].numpy()
    assert network.scores(seen[: 1 + count]) == pytest.approx(says, rel=1e-4, abs=1e-5)


def test_a_masked_action_has_no_probability() -> None:
    seen, mask = torch.as_tensor(observation(3, 0).reshape(1, -1)), np.array([[True, False, True, *[False] * 3]])
    trained = policy()
    chances = trained.get_distribution(seen, action_masks=mask).distribution.probs[0].detach()
    assert float(chances[~torch.as_tensor(mask[0])].max()) < 1e-6
    assert float(chances.sum()) == pytest.approx(1, abs=1e-5)


def test_the_teacher_prefers_the_shortest_job_that_there_is() -> None:
    seen, mask = observation(3, 0), np.array([True, True, True, False, False, False])
    seen[1:4, 3] = [0.2, 0.1, 0.3]
    assert teacher(seen, mask) == 1
    assert teacher(seen, mask & (np.arange(6) != 1)) == 0


def test_discounted_sums() -> None:
    draw = np.random.default_rng(0).normal(size=20)
    assert discounted(draw, 0.9)[3] == pytest.approx(sum(draw[3 + k] * 0.9**k for k in range(17)))


def test_it_learns_to_do_as_the_teacher() -> None:
    cost = Cost(1000.0, 5.0, 5000.0)
    school = Accrued([busy(60), busy(60, 1)], MACHINE, cost, Shares(WINDOW), turns=Turns(5))
    given = lessons(school, 60, gamma=0.9, seed=0)
    assert len(given.states) == len(given.masks) == len(given.actions) == len(given.returns) >= 60
    assert given.masks[np.arange(len(given.actions)), given.actions].all()
    one, same = policy(), policy()
    before = imitate(one, given, passes=0, seed=0)
    agrees, again = (imitate(each, given, passes=60, seed=0) for each in (one, same))
    assert agrees == again > before + 0.5
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
