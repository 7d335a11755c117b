"""Networks, episodes and learning rules."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("gymnasium", reason="needs the extra 'learn'")

import torch

from asa.core.errors import InvalidInput
from asa.lab.core.objective import Capacity
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import SLOPE, NetworkShape, one_by_one
from asa.lab.dras_paper.learners import (
    Baseline,
    DrasNetwork,
    PolicyGradient,
    QLearning,
    Step,
    episode,
    restore,
    tensors_of,
    to_come,
)
from tests.lab.dras_paper.workloads import NODES, busy, small

torch.set_num_threads(1)
W = 3


def shape(kind: str, window: int = W, nodes: int = 4, hidden: tuple[int, int] = (6, 5)) -> NetworkShape:
    return NetworkShape(kind, nodes, window, hidden, "shares")


def steps(count: int = 5, seed: int = 1) -> list[Step]:
    """Made-up steps in a row; the last one ends an episode."""
    draw = np.random.default_rng(seed)
    states = draw.normal(size=(count + 1, 2 * W + 4, 2)).astype(np.float32)
    masks = draw.random((count + 1, W)) < 0.6
    masks[:, 1] = True
    masks[-1] = False
    actions = [int(draw.choice(np.flatnonzero(mask))) for mask in masks[:-1]]
    rewards = draw.random(count)
    return [Step(states[k], masks[k], actions[k], float(rewards[k]), states[k + 1], masks[k + 1]) for k in range(count)]


Weights = dict[str, np.ndarray]


def weights_of(network: DrasNetwork) -> Weights:
    return {name: values.detach().numpy().astype(np.float64) for name, values in network.named_parameters()}


def one_after_another(t: Weights, seen: np.ndarray) -> list[float]:
    """The network by loops over its units, as the paper's text has it."""
    values = [t["filter.weight"][0] @ row + t["filter.bias"][0] for row in seen]
    for layer in ("first", "second"):
        values = [max(x, SLOPE * x) for x in (float(unit @ np.array(values)) for unit in t[f"{layer}.weight"])]
    return [float(unit @ np.array(values)) + b for unit, b in zip(t["output.weight"], t["output.bias"], strict=True)]


def slope(of, t: Weights, name: str, place: tuple[int, ...], by: float = 1e-6) -> float:
    """A derivative by central differences."""
    found = []
    for sign in (1, -1):
        moved = {key: values.copy() for key, values in t.items()}
        moved[name][place] += sign * by
        found.append(of(moved))
    return (found[0] - found[1]) / (2 * by)


def check_gradients(network: DrasNetwork, of) -> None:
    t = weights_of(network)
    for name, values in network.named_parameters():
        for place in list(np.ndindex(*values.shape))[::7]:
            assert values.grad is not None
            assert float(values.grad[place]) == pytest.approx(slope(of, t, name, place), rel=2e-3, abs=2e-5), name


def test_equation_3_by_hand() -> None:
    """Its gradient: a loop over actions, a softmax over those that there are, numbers moved one at a time."""
    learner, taken = PolicyGradient(shape("pg"), seed=3), steps()
    advantages = to_come([step.reward for step in taken]) - 0.7

    def ascended(t: Weights) -> float:
        total = 0.0
        for step, advantage in zip(taken, advantages, strict=True):
            scores = one_after_another(t, step.state)
            there = [np.exp(score) for score, valid in zip(scores, step.mask, strict=True) if valid]
            total += np.log(np.exp(scores[step.action]) / sum(there)) * advantage
        return total

    loss = learner.loss(taken, advantages)
    assert float(loss.detach()) == pytest.approx(-ascended(weights_of(learner.network)), rel=1e-4)
    loss.backward()
    check_gradients(learner.network, lambda t: -ascended(t))


def test_equation_4_by_hand_and_its_sign() -> None:
    """The gradient that is descended is minus the sum of the equation; the new value is a constant in it."""
    learner, taken = QLearning(shape("dql"), seed=3, discount=0.9), steps()

    def value(t: Weights, state: np.ndarray, place: int) -> float:
        return one_after_another(t, one_by_one(state, W)[place])[0]

    t = weights_of(learner.network)
    new = []
    for step in taken:
        then = [value(t, step.after, place) for place in np.flatnonzero(step.after_mask)]
        new.append(step.reward + 0.9 * max(then, default=0.0))
    assert learner.targets(taken).tolist() == pytest.approx(new, rel=1e-4)

    def half_squares(moved: Weights) -> float:
        olds = [value(moved, step.state, step.action) for step in taken]
        return sum((target - old) ** 2 for target, old in zip(new, olds, strict=True)) / 2

    loss = learner.loss(taken)
    loss.backward()
    check_gradients(learner.network, half_squares)


def test_learning_brings_the_old_value_nearer_to_the_new_one() -> None:
    """With the sign that equation (4) is printed with, it would go away from it."""
    learner, taken = QLearning(shape("dql"), seed=3), steps(1)

    def far() -> float:
        with torch.no_grad():
            return abs(float(learner.targets(taken)[0] - learner.network.taken(
                torch.from_numpy(taken[0].state)[None], torch.tensor([taken[0].action])
            )[0]))  # fmt: skip

    before = far()
    for _ in range(100):
        learner.learn(taken)
    assert far() < 0.5 * before


def test_the_baseline_is_the_mean_of_earlier_updates() -> None:
    baseline = Baseline()
    assert baseline.of(2).tolist() == [0, 0]
    for returns in ([4.0, 2.0], [6.0], [5.0, 4.0, 1.0]):
        baseline.add(np.array(returns))
    assert baseline.of(4).tolist() == [5.0, 3.0, 1.0, 0.0]


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_masked_actions_are_never_chosen(kind: str) -> None:
    """Nor do they have a gradient: what the network says of them does not matter."""
    learner = learner_of(kind, seed=0)
    draw = np.random.default_rng(0)
    for _ in range(300):
        mask = draw.random(W) < 0.5
        mask[draw.integers(W)] = True
        state = draw.normal(size=(2 * W + 4, 2)).astype(np.float32)
        assert mask[learner.act(state, mask)]


def learner_of(kind: str, *, seed: int, **sizes: object) -> PolicyGradient | QLearning:
    return (PolicyGradient if kind == "pg" else QLearning)(shape(kind, **sizes), seed=seed, rate=0.01)  # type: ignore[arg-type]


def test_epsilon_falls_with_every_change() -> None:
    learner = QLearning(shape("dql"))
    assert learner.epsilon == 1.0
    for _ in range(3):
        learner.learn(steps())
    assert learner.epsilon == pytest.approx(0.995**3)


def test_the_network_is_changed_every_ten_scheduling_instances() -> None:
    class Counting:
        def __init__(self) -> None:
            self.learned: list[int] = []

        def act(self, state, mask) -> int:
            return int(np.flatnonzero(mask)[0])

        def learn(self, steps) -> None:
            self.learned.append(len(steps))

    environment, learner = small(busy(80)), Counting()
    lived = episode(environment, learner)
    instances = environment.info()["instance"]
    assert lived.updates == len(learner.learned) == -(-instances // 10)
    assert sum(learner.learned) == lived.actions >= instances


def pairs(count: int) -> Workload:
    """A machine that is full; then a long, large job and a short, small one come together; and so on."""
    submit, run, cores = [], [], []
    for k in range(count):
        submit += [100_000.0 * k, 100_000.0 * k + 1, 100_000.0 * k + 1]
        run += [100.0, 80_000.0, 8000.0]
        cores += [NODES, NODES, NODES - 3]
    return Workload.of(submit=submit, run=run, cores=cores, walltime=run)


class Larger(Capacity):
    """The capacity reward in other units."""

    def reward(self, *about) -> float:
        return 8000 * super().reward(*about)


def starts(learner: PolicyGradient | QLearning) -> np.ndarray:
    """When jobs start that the network selects; a row for each pair, with what filled the machine before it."""
    environment = small(pairs(10), window=2)
    state, _ = environment.reset()
    over = False
    while not over:
        with torch.no_grad():
            scores = learner.network(torch.from_numpy(state)[None])[0].numpy()
        action = int(np.argmax(np.where(environment.action_masks(), scores, -np.inf)))
        state, _, over, _, _ = environment.step(action)
    return environment.schedule().start.reshape(-1, 3)


def test_a_trivial_queue_is_solved_optimally() -> None:
    """The capacity reward is least bad when the short job goes first: what the long one's turn costs comes later."""
    learner = PolicyGradient(shape("pg", 2, NODES, (16, 8)), seed=1, rate=0.01)
    environment = small(pairs(40), window=2, objective=Larger())
    for _ in range(6):
        episode(environment, learner)
    found = starts(learner)
    assert (found[:, 2] < found[:, 1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 0])
def test_values_of_what_is_told_at_once(size: int) -> None:
    """An identity task: where only the reward of the moment counts, the job of the highest reward is selected."""
    learner = QLearning(shape("dql", 2, NODES, (16, 8)), seed=1, rate=0.01, discount=0)

    class Sized(Capacity):
        def reward(self, queue, selected, started=None) -> float:
            share = float(queue.size[selected].mean()) / queue.total
            return share if size else -share

    environment = small(pairs(40), window=2, objective=Sized())
    for _ in range(6):
        episode(environment, learner)
    found = starts(learner)
    assert ((found[:, 1] < found[:, 2]) == bool(size)).all()


def test_networks_as_torch_and_as_numpy_know_them() -> None:
    for kind in ("pg", "dql"):
        learner, seen = learner_of(kind, seed=5), steps()[0].state
        with torch.no_grad():
            there = learner.network(torch.from_numpy(seen)[None])[0].numpy()
        assert learner.network.model().scores(seen) == pytest.approx(there, rel=1e-5, abs=1e-6)
        assert sum(values.numel() for values in learner.network.parameters()) == learner.network.shape.parameters


def test_what_was_kept_before_anything_was_learned_is_put_back_whole() -> None:
    learner, wanted = learner_of("pg", seed=5, nodes=NODES), learner_of("pg", seed=6, nodes=NODES)
    before = tensors_of(wanted.network, wanted.optimiser)
    episode(small(busy(20), window=W), learner)
    assert set(before) < set(tensors_of(learner.network, learner.optimiser))
    restore(learner.network, learner.optimiser, before)
    after = tensors_of(learner.network, learner.optimiser)
    assert set(after) == set(before) and all((after[name] == before[name]).all() for name in before)


def test_what_is_refused() -> None:
    for name in ("epsilon", "decay", "discount"):
        with pytest.raises(InvalidInput, match=name):
            QLearning(shape("dql"), **{name: 1.5})
