"""DRAS: its environment, learners and trainings, and learning in operation."""

from __future__ import annotations

import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'learn'")
pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("safetensors", reason="needs the extra 'learn'")

import json
import math
from dataclasses import replace

import gymnasium
import numpy as np
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from asa.cli.main import main
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import Capability, Capacity
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import (
    SLOPE,
    DecimaPg,
    DrasDql,
    DrasModel,
    DrasPg,
    NetworkShape,
    Rows,
    Selecting,
    one_by_one,
    read_model,
)
from asa.lab.dras_paper.environment import Dispatching, objective_of
from asa.lab.dras_paper.figures import EpisodePoint, dras_4
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
from asa.lab.dras_paper.online import Online, Shadow
from asa.lab.dras_paper.training import BEST, CURVE, KINDS, PHASES, STATE, TrainingPlan, system, train
from asa.lab.simulator.run import simulate
from asa.lab.traces.resample import weeks
from asa.lab.traces.swf import log_of, write_swf
from tests.lab.dispatchers.learned.policies import NODES, at_random, first, largest, workloads, youngest
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dras_paper.workloads import MACHINE, busy, small

# -- Environment ------------------------------------------------------------------------------------------------------

ONE = Workload.of(submit=[0], run=[5], cores=[2], walltime=[9])
FULL = Workload.of(submit=[0, 1, 1], run=[10, 10, 10], cores=[8, 6, 2], walltime=[10, 10, 10])
"""The first takes all nodes; the others can run side by side."""


class Unmasked(gymnasium.Wrapper):
    """Takes any action; gymnasium's checker draws them without a look at the mask."""

    def step(self, action):
        there = np.flatnonzero(self.unwrapped.action_masks())
        return self.env.step(there[int(action) % len(there)])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of wrappers, and of a box without bounds
def test_gymnasium_s_checker() -> None:
    check_env(Unmasked(small(busy(40))), skip_render_check=True)


@UNTIMED
@given(workloads(), st.booleans(), st.integers(0, 9))
def test_an_episode_is_what_the_dispatcher_does(jobs: Workload, levels: bool, seed: int) -> None:
    """Whoever steps through a simulation gets the schedule of the simulator that asks the same policy."""
    environment, policy = small(jobs, window=5, levels=levels), at_random(seed)
    state, _ = environment.reset()
    over = False
    while not over:
        assert state.shape == (2 * 5 + NODES, 2) and environment.action_masks().any()
        state, _, over, cut, _ = environment.step(policy(state, environment.action_masks()))
        assert not cut
    assert not environment.action_masks().any() and not state.any()
    asked = Selecting(at_random(seed), Rows(5, "shares"), levels=levels)
    assert environment.schedule().start.tolist() == simulate(jobs, MACHINE, asked).start.tolist()


def test_rewards_by_hand() -> None:
    """Equation (1) of the one job that an action selects; one that is reserved for does not run yet."""
    environment = small(FULL)
    environment.reset()
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 0 + 1 / 3 * 1 + 1 / 3 * 1) and info["mode"] == "ready" and not over
    # At 1 s both others were there, and none had waited; the job that is reserved for adds nothing to what is in use.
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 6 / 8 + 1 / 3 * 8 / 8) and info["mode"] == "reserved" and not over
    # At 10 s the reserved job starts by itself; the last one is selected, the only one in the queue.
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 8 + 1 / 3 * 8 / 8) and info["mode"] == "ready" and over
    assert environment.schedule().start.tolist() == [0, 10, 10]


def test_the_capacity_reward() -> None:
    environment = small(FULL, objective="capacity")
    environment.reset()
    assert environment.step(0)[1] == 0
    assert environment.step(0)[1] == pytest.approx(-1 / 10)  # both still wait


def test_instances_are_counted_where_there_is_something_to_select() -> None:
    environment = small(busy(30))
    _, info = environment.reset()
    instances, over = [info["instance"]], False
    while not over:
        _, _, over, _, info = environment.step(np.flatnonzero(environment.action_masks())[0])
        instances.append(info["instance"])
    assert instances[0] == 1 and set(np.diff(instances)) <= {0, 1} and instances[-1] > 5


def test_episodes_take_turns_and_a_seed_begins_anew() -> None:
    environment = small(ONE, FULL)
    assert [len(_reset(environment)) for _ in range(3)] == [1, 3, 1]
    assert len(_reset(environment, seed=1)) == 1


def _reset(environment: Dispatching, seed: int | None = None) -> object:
    environment.reset(seed=seed)
    return environment.schedule().workload


def test_masked_actions_are_refused() -> None:
    environment = small(ONE)
    environment.reset()
    with pytest.raises(InvalidInput, match="masked"):
        environment.step(3)


def test_several_side_by_side() -> None:
    many = gymnasium.vector.SyncVectorEnv([lambda: small(busy(20, 1)), lambda: small(busy(20, 2))])
    states, _ = many.reset()
    assert states.shape == (2, 2 * 4 + NODES, 2)
    for _ in range(30):
        masks = many.call("action_masks")
        states, *_ = many.step([int(np.flatnonzero(mask)[0]) if mask.any() else 0 for mask in masks])
    assert np.isfinite(states).all()


def test_a_policy_that_favours_large_jobs_earns_more_of_that_reward() -> None:
    totals = {}
    for name, policy in {"first": first, "largest": largest}.items():
        environment = small(busy(60, 3), window=8, objective="capability:wait=0,size=1,utilisation=0")
        state, _ = environment.reset()
        over, sizes = False, []
        while not over:
            state, reward, over, _, _ = environment.step(policy(state, environment.action_masks()))
            sizes.append(reward)
        totals[name] = np.cumsum(sizes)[: len(sizes) // 2].sum()
    assert totals["largest"] > totals["first"]


def test_weights() -> None:
    assert objective_of("capability:wait=1,size=0,utilisation=2") == Capability(1, 0, 2)
    with pytest.raises(UnknownName, match="weight of capability"):
        objective_of("capability:waits=1")
    with pytest.raises(InvalidInput, match="a number expected"):
        objective_of("capability:wait=much")
    with pytest.raises(UnknownName, match="objective"):
        objective_of("fairness")


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no workloads"):
        small()
    with pytest.raises(InvalidInput, match="no requested time"):
        small(Workload.of(submit=[0], run=[5], cores=[2]))
    with pytest.raises(InvalidInput, match="equal nodes"):
        Dispatching(
            [Workload.of(submit=[0], run=[5], units=[1], demands=[[2]], walltime=[9])], Cluster([[4], [8]]), Rows(4)
        )
    other = Workload.of(submit=[0], run=[5], units=[1], demands=[[2]], walltime=[9])
    machines = Dispatching([ONE, other], Cluster.of(4, 2), Rows(4))
    machines.reset()
    with pytest.raises(InvalidInput, match=r"with these jobs the machine has 4 units, with the first set 8"):
        machines.reset()
    nothing = small(Workload.of(submit=[0], run=[5], cores=[9], walltime=[9]))
    with pytest.raises(InvalidInput, match="nothing to select"):
        nothing.reset()


# -- Learners ---------------------------------------------------------------------------------------------------------

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
def test_values_of_all_jobs_at_once(size: int) -> None:
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


def test_bad_options_of_learners_are_refused() -> None:
    for name in ("epsilon", "decay", "discount"):
        with pytest.raises(InvalidInput, match=name):
            QLearning(shape("dql"), **{name: 1.5})


# -- Training ---------------------------------------------------------------------------------------------------------

SMALL = TrainingPlan(window=4, hidden=(8, 4), jobs=30, sampled=1, synthetic=1)
LOG, VALIDATION = busy(120), busy(40, 9)


def told(curve) -> list[EpisodePoint]:
    """But for the time that it took."""
    return [replace(point, cpu_s=0.0) for point in curve]


@pytest.mark.parametrize("kind", list(KINDS))
def test_phases_and_models(kind: str, tmp_path) -> None:
    found = train(replace(SMALL, kind=kind), LOG, VALIDATION, MACHINE, output=tmp_path)
    assert [point.phase for point in found.curve] == ["sampled", *["real"] * len(weeks(LOG)), "synthetic"]
    assert [point.jobs for point in found.curve if point.phase != "real"] == [30, 30]
    dispatcher = {"pg": DrasPg, "dql": DrasDql, "decima": DecimaPg}[kind](found.model)
    assert np.isfinite(simulate(VALIDATION, MACHINE, dispatcher).start).all()
    for point in found.curve:
        assert read_model(tmp_path / f"episode-{point.episode:03d}.safetensors").shape.nodes == NODES
    best = tmp_path / f"episode-{found.best.episode:03d}.safetensors"
    assert best.read_bytes() == (tmp_path / BEST).read_bytes()
    assert found.best.validation_reward == max(point.validation_reward for point in found.curve)
    (shown,) = dras_4(source=str(tmp_path / CURVE)).rows
    assert told(shown.curve) == told(found.curve)


def test_the_curve_tells_what_the_model_does(tmp_path) -> None:
    """The waits of an episode are those that the simulator finds for the model of that episode."""
    found = train(SMALL, LOG, VALIDATION, MACHINE, output=tmp_path)
    for point in found.curve:
        model = str(tmp_path / f"episode-{point.episode:03d}.safetensors")
        assert simulate(VALIDATION, MACHINE, DrasPg(model)).wait.mean() == pytest.approx(point.mean_wait_s)


@pytest.mark.parametrize("kind", ["pg", pytest.param("dql", marks=pytest.mark.slow)])
def test_a_seed_gives_a_curve_however_often_it_is_stopped(kind: str, tmp_path) -> None:
    plan = replace(SMALL, kind=kind)
    whole = train(plan, LOG, VALIDATION, MACHINE)
    for episodes in (1, 2, 0):
        parts = train(replace(plan, episodes=episodes), LOG, VALIDATION, MACHINE, output=tmp_path, snapshots=False)
    assert told(parts.curve) == told(whole.curve)
    assert all(np.array_equal(parts.model.tensors[name], whole.model.tensors[name]) for name in whole.model.tensors)
    other = train(replace(plan, seed=1), LOG, VALIDATION, MACHINE)
    assert told(other.curve) != told(whole.curve)
    assert not list(tmp_path.glob("episode-*")) and not list(tmp_path.glob("*.new"))


def test_an_order_changes_the_order_and_nothing_else() -> None:
    sets = {jobset.phase: jobset.jobs for jobset in SMALL.jobsets(LOG)}
    turned = [(each.phase, each.jobs) for each in replace(SMALL, order=PHASES[::-1]).jobsets(LOG)]
    assert [phase for phase, _ in turned] == list(PHASES[::-1])
    for phase, jobs in turned:
        assert jobs.submit.tolist() == sets[phase].submit.tolist()


@pytest.mark.parametrize(("name", "nodes", "parameters"), [("theta", 4360, 21_890_053), ("cori", 12_076, 161_960_053)])
def test_a_system_has_the_network_and_the_reward_of_the_paper(name: str, nodes: int, parameters: int) -> None:
    found = system(name)
    assert TrainingPlan(hidden=found.hidden).shape(nodes).parameters == parameters
    assert found.objective == {"theta": "capability", "cori": "capacity"}[name]
    with pytest.raises(UnknownName, match="system 'summit'"):
        system("summit")


def test_a_plan_is_read_again_from_json() -> None:
    plan = replace(SMALL, kind="dql", objective="capability:wait=1,size=0")
    assert TrainingPlan.of(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(InvalidInput, match="no plan of a training"):
        TrainingPlan.of({"kind": "pg"})


def test_bad_plans_and_folders_of_trainings_are_refused(tmp_path) -> None:
    train(replace(SMALL, episodes=1), LOG, VALIDATION, MACHINE, output=tmp_path)
    with pytest.raises(InvalidInput, match=r"a training with rate 0.001, not 0.1"):
        train(replace(SMALL, rate=0.1), LOG, VALIDATION, MACHINE, output=tmp_path)
    (tmp_path / STATE).write_bytes(b"nothing to unpickle")
    with pytest.raises(InvalidInput, match="Expected the state of a training"):
        train(SMALL, LOG, VALIDATION, MACHINE, output=tmp_path)
    with pytest.raises(InvalidInput, match="no set of jobs"):
        train(replace(SMALL, order=()), LOG, VALIDATION, MACHINE)
    for wrong, what in (({"kind": "pgg"}, "kind of dispatcher"), ({"order": ("reel",)}, "phase"),
                        ({"objective": "capability:waits=1"}, "weight"), ({"scaling": "no"}, "scaling")):  # fmt: skip
        with pytest.raises(UnknownName, match=what):
            replace(SMALL, **wrong)
    for numbers in ({"rate": 0.0}, {"jobs": 0}, {"episodes": -1}, {"window": 0}, {"discount": 1.5}):
        with pytest.raises(InvalidInput, match="at least 1"):
            replace(SMALL, **numbers)
    without = Workload.of(submit=[0, 9], run=[5, 5], cores=[2, 2])
    with pytest.raises(InvalidInput, match="no requested time"):
        train(SMALL, without, VALIDATION, MACHINE)


@pytest.fixture
def trace(tmp_path) -> str:
    """Ten days of a log."""
    jobs = busy(600, 4)
    jobs = Workload.of(submit=jobs.submit * 3, run=jobs.run, cores=jobs.cores, walltime=jobs.walltime)
    path = tmp_path / "small.swf"
    write_swf(log_of(simulate(jobs, MACHINE, "easy")), path)
    return str(path)


OPTIONS = ["--hidden", "8,4", "--window", "4", "--jobs", "30", "--sampled", "1", "--synthetic", "1", "--quiet"]


@pytest.mark.slow
def test_the_command(trace, tmp_path, capsys) -> None:
    out, curve, picture = tmp_path / "m", tmp_path / "m.json", tmp_path / "m.png"
    words = ["train", "dras", "--trace", trace, "--system", "cori", "--kind", "dql"]
    words += ["--to-day", "5", "--validate", "5-8", "--output"]
    assert main([*words, str(out), *OPTIONS, "--json", str(curve), "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert f"--dispatcher dras-dql:model={out}/{BEST}" in text
    made = json.loads(curve.read_text())
    assert (made["plan"]["kind"], made["plan"]["objective"]) == ("dql", "capacity")
    assert [point["phase"] for point in made["curve"]] == list(PHASES)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    spec = f"dras-dql:model={out}/{BEST}"
    assert main(["simulate", trace, "--dispatcher", spec, "--from-day", "8", "--quiet", "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["jobs_ran"] == row["jobs"] > 20


def test_what_the_command_refuses(trace, tmp_path, capsys) -> None:
    words = ["train", "dras", "--trace", trace, "--output", str(tmp_path / "m"), *OPTIONS]
    assert main([*words, "--to-day", "6", "--validate", "5-8"]) == 1
    assert "do not overlap" in capsys.readouterr().err
    assert main([*words, "--to-day", "5", "--validate", "50-80"]) == 1
    assert "no job was submitted" in capsys.readouterr().err
    for wrong, says in ((["--order", "reel"], "phase"), (["--system", "summit"], "unknown system 'summit'")):
        assert main([*words, "--validate", "5-8", *wrong]) == 2
        assert says in capsys.readouterr().err
    for wrong in (["--validate", "8-5"], ["--validate", "5-8", "--hidden", "8"]):
        with pytest.raises(SystemExit):
            main([*words, *wrong])


# -- Online -----------------------------------------------------------------------------------------------------------

DAY = 86400.0


def model_of(kind: str = "dql", seed: int = 0, nodes: int = NODES) -> DrasModel:
    shape = NetworkShape(kind, nodes, 4, (6, 3), "shares")
    draw = np.random.default_rng(seed)
    return DrasModel(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def largest_first() -> DrasModel:
    """A network that values a job by its size alone, whatever that does to the queue."""
    shape = NetworkShape("dql", NODES, 4, (1, 1), "shares")
    tensors = {name: np.zeros(size, np.float32) for name, size in shape.tensors.items()}
    tensors["filter.weight"][:] = [[1, 0]]
    tensors["first.weight"][0, 0] = tensors["second.weight"][:] = tensors["output.weight"][:] = 1
    return DrasModel(shape, tensors)


def harmed(jobs: int = 400) -> Workload:
    """Many small jobs, and large ones that are bad to take first."""
    draw = np.random.default_rng(1)
    large = draw.random(jobs) < 0.5
    run = np.where(large, 7200.0, 300.0)
    return Workload.of(
        submit=np.cumsum(draw.exponential(4200, jobs)), run=run, cores=np.where(large, NODES, 4), walltime=run
    )


class Watching:
    """Lets a shadow see what a dispatcher sees."""

    needs_estimates = True

    def __init__(self, inner) -> None:
        self.inner, self.shadow, self.judged = inner, Shadow(), []

    def decide(self, view):
        self.shadow.see(view)
        if self.shadow.age >= DAY:
            self.judged.append(self.shadow.judge(view.now))
        return self.inner.decide(view)


def test_the_shadow_of_easy_is_easy() -> None:
    """Where run times are as asked for, what EASY would have done is what it did."""
    jobs = busy(200)
    jobs = Workload.of(submit=jobs.submit, run=jobs.run, cores=jobs.cores, walltime=jobs.run)
    watched = Watching(Selecting(first))
    simulate(jobs, MACHINE, watched)
    assert len(watched.judged) >= 1
    for waited, shadow in watched.judged:
        assert waited > 0 and shadow == pytest.approx(waited, rel=0.1)


def test_waits_are_those_of_the_schedule() -> None:
    jobs = busy(120, 2)
    watched = Watching(Selecting(youngest))
    schedule = simulate(jobs, MACHINE, watched)
    assert watched.judged
    last = jobs.submit[0]
    views = []
    for waited, _ in watched.judged:
        views.append(waited)
    assert sum(views) <= schedule.wait.sum() + 1
    assert sum(views) >= 0.5 * schedule.wait[jobs.submit < last + len(views) * DAY].sum()


@pytest.mark.slow
def test_the_guard_stops_what_harms() -> None:
    jobs = harmed()
    guarded, loose = (
        Online(largest_first(), rate=0, period_s=DAY, tolerance=tolerance) for tolerance in (1.05, math.inf)
    )
    waits = {name: float(simulate(jobs, MACHINE, each).wait.mean()) for name, each in
             {"guarded": guarded, "loose": loose, "easy": "easy"}.items()}  # fmt: skip
    assert waits["loose"] > 1.2 * waits["easy"]
    assert waits["guarded"] < waits["easy"] + 0.6 * (waits["loose"] - waits["easy"])
    assert any(verdict.rest for verdict in guarded.verdicts) and not any(verdict.rest for verdict in loose.verdicts)
    assert max(verdict.rest for verdict in guarded.verdicts) > 1  # it harmed again


@pytest.mark.parametrize("threshold", [math.inf, "1h"])
def test_without_learning_and_guard_it_is_the_dispatcher(threshold: float | str) -> None:
    jobs = busy(100)
    one = simulate(jobs, MACHINE, Online(model_of(), rate=0, tolerance=math.inf, threshold=threshold)).start
    assert one.tolist() == simulate(jobs, MACHINE, DrasDql(model_of(), threshold=threshold)).start.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_it_learns_on_and_goes_back(kind: str) -> None:
    """Weights change with what it does; the same seed changes them in the same way."""
    jobs, found = busy(150), []
    for _ in range(2):
        online = Online(model_of(kind), rate=0.01, tolerance=math.inf, period_s=DAY, seed=4)
        start = simulate(jobs, MACHINE, online).start
        found.append((start.tolist(), online.learner.network.model().tensors["second.weight"]))
    assert found[0][0] == found[1][0] and np.array_equal(found[0][1], found[1][1])
    assert not np.array_equal(found[0][1], model_of(kind).tensors["second.weight"])
    back = Online(model_of(kind), rate=0.01, tolerance=1.0, period_s=DAY, seed=4)
    simulate(jobs, MACHINE, back)
    first_harm = next((verdict for verdict in back.verdicts if verdict.rest), None)
    assert first_harm is None or first_harm.waited > first_harm.shadow


def test_another_life_of_the_machine_begins_anew() -> None:
    jobs, online = busy(60), Online(model_of(), rate=0, tolerance=math.inf)
    assert simulate(jobs, MACHINE, online).start.tolist() == simulate(jobs, MACHINE, online).start.tolist()


def test_bad_options_of_online_learning_are_refused() -> None:
    with pytest.raises(InvalidInput, match="model=FILE"):
        Online()
    with pytest.raises(InvalidInput, match="threshold"):
        Online(model_of(), threshold="soon")
    for options in ({"rate": -1.0}, {"period_s": 0.0}, {"tolerance": 0.5}):
        with pytest.raises(InvalidInput, match="expected"):
            Online(model_of(), **options)
    with pytest.raises(InvalidInput, match="machine of 9 nodes, not 8"):
        simulate(busy(5), MACHINE, Online(model_of(nodes=9)))
