"""Training of the neural repair operator, and ``asa figure tjap-4``: how the six networks of Table II learn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.files import write_tensors
from asa.lab.nsa_paper.windows import epoch
from asa.lab.placement.tjap.instance import Window
from asa.lab.placement.tjap.nsa import NETWORKS, Anneal
from asa.lab.report.charts import NamedCurve, curves_figure
from asa.lab.study import Figure, need, read_rows
from asa.report.picture import save_figure

Progress = Callable[[float, float], None]
ENVIRONMENTS, STEPS, BATCH, PASSES, RATE = 64, 64, 512, 4, 2e-3
"""Environments side by side, steps in each until the network is changed, states of a batch, times that each state is
used, and learning rate, which falls to 0 until the end."""
ENTROPY = 0.03
"""What a policy's entropy is worth, in units of the reward. The best policy then draws each action by exp(-cost / T)
with T = 0.03 * 40 hops: annealing needs an operator that does not always do the same."""
BIGGEST = 40
"""Most nodes that a job of the paper's workload asks for."""


@dataclass(frozen=True, slots=True)
class RepairPoint:
    """A point of a training curve.

    Parameters
    ----------
    cost
        What the jobs of a repair cost since the last point, in the mean.
    exact
        What they would have cost had each gone where it costs least.
    """

    steps: int
    seconds: float
    cost: float
    exact: float


@dataclass(frozen=True)
class TrainedRepair:
    """A trained actor, and how it came about."""

    tensors: Mapping[str, npt.NDArray[np.float32]]
    about: Mapping[str, Any]
    curve: Sequence[RepairPoint]

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, for the option `model` of the placement method `nsa`."""
        write_tensors(path, self.tensors, {**self.about, "biggest": BIGGEST})

    def to_json(self) -> dict[str, Any]:
        """All but the weights."""
        return {**self.about, "curve": [asdict(point) for point in self.curve]}


def windows_to_learn_from(epochs: int, *, seed: int, geometry: str = "code") -> list[Window]:
    """Windows of so many epochs that annealing drives, each with a seed of its own that follows from `seed`."""
    seeds = np.random.SeedSequence(seed).generate_state(epochs).tolist()
    return [each for one in seeds for each in epoch(Anneal(iterations=1000), seed=one, geometry=geometry)]


def train(
    *,
    network: str = "fcn-1",
    state: str = "steps",
    steps: int = 300_000,
    seed: int = 0,
    epochs: int = 20,
    geometry: str = "code",
    plain: bool = False,
    progress: Progress | None = None,
) -> TrainedRepair:
    """Train a repair operator.

    The same arguments give the same network on the same machine with the same versions: torch uses one thread.

    Parameters
    ----------
    state, plain
        See `asa.lab.nsa_paper.repair.Repair`.
    steps
        Actions to learn from; rounded up to whole rounds of `ENVIRONMENTS` times `STEPS`.

    Raises
    ------
    InvalidInput
        When there is nothing to do, or a library for learning is not installed.
    UnknownName
        When there is no such network, state or geometry.

    References
    ----------
    J. Schulman, F. Wolski, P. Dhariwal, A. Radford and O. Klimov, "Proximal policy optimization algorithms" (2017);
    S. Huang and S. Ontañón, "A closer look at invalid action masking in policy gradient algorithms" (2020).
    """
    if network not in NETWORKS:
        raise UnknownName("network", network, NETWORKS)
    if steps < 1 or epochs < 1:
        raise InvalidInput(f"{steps} steps, {epochs} epochs: at least 1 of each expected")
    need("torch", "sb3_contrib", "safetensors")
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    from asa.lab.nsa_paper.repair import Repair, RepairPolicy

    torch.set_num_threads(1)
    windows = windows_to_learn_from(epochs, seed=seed, geometry=geometry)
    many = DummyVecEnv([lambda: Repair(windows, state=state, biggest=BIGGEST, plain=plain)] * ENVIRONMENTS)
    learner = MaskablePPO(
        RepairPolicy,
        many,
        learning_rate=lambda left: RATE * left,
        n_steps=STEPS,
        batch_size=BATCH,
        n_epochs=PASSES,
        gamma=1.0,
        gae_lambda=1.0,
        ent_coef=ENTROPY,
        normalize_advantage=False,  # else the entropy's worth would depend on the batch
        policy_kwargs={"network": network},
        seed=seed,
    )
    curve: list[RepairPoint] = []
    learner.set_logger(Logger(None, []))  # its own makes a folder among the temporary files, and leaves it
    learner.learn(steps, callback=_watch(curve, steps, progress))
    about = {"network": network, "state": state, "seed": seed, "steps": steps, "epochs": epochs, "geometry": geometry}
    policy: Any = learner.policy
    return TrainedRepair(policy.actor_tensors(), about | {"plain": plain}, curve)


def _watch(curve: list[RepairPoint], steps: int, progress: Progress | None) -> Any:
    """A callback of stable-baselines3 that draws the curve."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        def _on_training_start(self) -> None:
            self.began, self.repairs = time.perf_counter(), list[tuple[float, float]]()

        def _on_step(self) -> bool:
            self.repairs += [(info["cost"], info["exact"]) for info in self.locals["infos"] if "cost" in info]
            return True

        def _on_rollout_end(self) -> None:
            cost, exact = np.mean(self.repairs, axis=0).tolist()
            curve.append(RepairPoint(self.num_timesteps, time.perf_counter() - self.began, cost, exact))
            self.repairs.clear()
            if progress:
                progress(self.num_timesteps, steps)

    return Watch()


SMOOTH = 5
"""Over how many points a curve is a moving mean."""


def draw_curves(curves: Mapping[str, Sequence[RepairPoint]], path: str | Path) -> None:
    """Draw what repairs cost more than exact insertion would, over actions learned from: Figure 4 of the paper."""
    lines = [smoothed(name, curve) for name, curve in curves.items()]
    figure = curves_figure(lines, x="actions learned from", y="cost above exact insertion [%]", from_zero=True)
    save_figure(figure, path)


def smoothed(name: str, curve: Sequence[RepairPoint]) -> NamedCurve:
    """Cost above exact insertion [%], in means over `SMOOTH` points or all, each at the last of them."""
    excess = 100 * np.array([point.cost / point.exact - 1 for point in curve])
    window = min(SMOOTH, len(curve))
    means = np.convolve(excess, np.full(window, 1 / window), "valid")
    return NamedCurve(name, [point.steps for point in curve[window - 1 :]], means.tolist())


TAIL = 5
"""Points at the end of a curve whose mean is a network's result."""


@dataclass(frozen=True, slots=True)
class CurveRow(RepairPoint):
    """A point of a network's training curve."""

    network: str


def learning(rows: Sequence[CurveRow]) -> Figure:
    """The figure of these curves, one network after the other."""
    return Figure(rows, learning_table, draw_learning)


def by_network(rows: Sequence[CurveRow]) -> dict[str, list[CurveRow]]:
    """The curve of each network, in the paper's order."""
    curves = {name: [row for row in rows if row.network == name] for name in NETWORKS}
    return {name: curve for name, curve in curves.items() if curve}


def draw_learning(rows: Sequence[CurveRow], path: str | Path) -> None:
    """Draw the curves; the suffix of `path` decides the format."""
    draw_curves(by_network(rows), path)


def learning_table(rows: Sequence[CurveRow]) -> list[dict[str, Any]]:
    """A line for each network."""
    return [
        {
            "network": name,
            "parameters": sum(layer.parameters for layer in NETWORKS[name] if layer.inputs),
            "actions": curve[-1].steps,
            "time [s]": curve[-1].seconds,
            "above exact insertion, first [%]": above(curve[:1]),
            "last [%]": above(curve[-TAIL:]),
        }
        for name, curve in by_network(rows).items()
    ]


def above(points: Sequence[RepairPoint]) -> float:
    """How much more repairs cost than exact insertion would [%], mean over the points."""
    return float(np.mean([100 * (point.cost / point.exact - 1) for point in points]))


def tjap_4(
    *,
    source: str | None = None,
    networks: Sequence[str] = tuple(NETWORKS),
    steps: int = 300_000,
    seed: int = 0,
) -> Figure:
    """Figure 4: train each network on the same windows, with the same number of actions."""
    if source is not None:
        return learning(read_rows(source, CurveRow))
    if unknown := [name for name in networks if name not in NETWORKS]:
        raise UnknownName("network", unknown[0], NETWORKS)
    rows = [
        CurveRow(**asdict(point), network=name)
        for name in networks
        for point in train(network=name, steps=steps, seed=seed).curve
    ]
    return learning(rows)
