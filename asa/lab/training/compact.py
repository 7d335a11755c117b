"""Training of the compact policy: imitation, then proximal policy optimisation, with the best of it kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Reals, Workload
from asa.lab.dispatchers.learned.compact import THRESHOLD, Compact, turns
from asa.lab.dispatchers.learned.compact_network import Network
from asa.lab.dispatchers.learned.compact_sight import Shares
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.run import simulate
from asa.lab.training.compact_environment import SETTINGS, Accrued, Cost, cost_under, delayed, pieces

Progress = Callable[[int, int], None]
ENVIRONMENTS, STEPS, BATCH, PASSES, RATE = 8, 512, 512, 4, 2e-4
"""Simulations side by side, actions in each until the network is changed, states of a batch, times that each state is
used, and learning rate, which falls to 0 until the end."""
GAMMA, LAMBDA, ENTROPY, CLIP, DIVERGENCE = 0.95, 0.9, 0.001, 0.1, 0.02
"""Discount for each action, and that of the advantages; what entropy is worth; most that a probability changes, and the
divergence at which a change ends early."""
PIECES, LESSONS, LESSON_PASSES = 12, 20_000, 12
"""Stretches of the log that each simulation goes through; situations that a teacher is asked about, and how often each
is learned from."""
VALIDATIONS, EVERY = 4, 3
"""Versions of the validation days, and after how many changes of the network they are dispatched."""
LONGEST = 1.1
"""Longest waits of so many times EASY's count against a network."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the policy is trained.

    Parameters
    ----------
    steps
        Actions to learn from after the imitation; 0 for imitation alone.
    seed
        Of all that is drawn.
    late
        What a long wait is worth; see `asa.lab.training.compact_environment.Cost`.
    threshold, window
        See `asa.lab.dispatchers.learned.compact.Compact`.

    Raises
    ------
    InvalidInput
        When a number is out of its bounds.
    """

    steps: int = 120_000
    seed: int = 0
    late: float = 0.2
    threshold: float | str = THRESHOLD
    window: int = 64

    def __post_init__(self) -> None:
        if self.steps < 0 or self.seed < 0 or not self.late >= 0:
            raise InvalidInput(f"{self.steps} steps, seed {self.seed}, late={self.late:g}: at least 0 of each expected")
        turns(self.threshold)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the validation curve: means over versions of the validation days, in shares of EASY's.

    Parameters
    ----------
    steps, seconds
        Actions and time [s] until then.
    wait, slowdown, longest
        Mean wait, mean bounded slowdown, and longest wait.
    """

    steps: int
    seconds: float
    wait: float
    slowdown: float
    longest: float

    @property
    def score(self) -> float:
        """What the best network has least of."""
        return (self.wait + self.slowdown) / 2 + max(0.0, self.longest - LONGEST)


@dataclass(frozen=True)
class Trained:
    """A trained network, and how it came about.

    Parameters
    ----------
    network
        The best one on the validation days.
    about
        What it was trained with.
    curve
        First the teacher's imitation, then one point for every so many changes of the network.
    agreement
        In which share of the situations the imitation does as the teacher.
    """

    network: Network
    about: Mapping[str, Any]
    curve: Sequence[Point]
    agreement: float

    def to_json(self) -> dict[str, Any]:
        """All but the weights."""
        return {**self.about, "agreement": self.agreement, "curve": [asdict(point) for point in self.curve]}


class Validation:
    """Days that are not learned from, several times: as they were, and with jobs a little later.

    Raises
    ------
    InvalidInput
        When no job of theirs waits under EASY.
    """

    def __init__(self, log: Workload, cluster: Cluster, options: Options) -> None:
        cost_under(log, cluster, options.late)  # refuses a log without waits
        draw = np.random.default_rng(0)  # the same versions for all seeds: their curves are comparable
        self._logs = [log, *(delayed(log, draw) for _ in range(VALIDATIONS - 1))]
        self._cluster, self._options = cluster, options
        self._easy = [self._numbers(each, "easy") for each in self._logs]

    def point(self, tensors: Mapping[str, Reals], steps: int, seconds: float) -> Point:
        """How a network does."""
        dispatcher = Compact(Network(tensors), self._options.threshold, self._options.window)
        found = [self._numbers(each, dispatcher) for each in self._logs]
        shares = np.mean(np.array(found) / np.array(self._easy), axis=0).tolist()
        return Point(steps, seconds, *shares)

    def _numbers(self, log: Workload, dispatcher: Any) -> tuple[float, float, float]:
        found = summarise(simulate(log, self._cluster, dispatcher, **SETTINGS))
        return found["mean_wait_s"], found["mean_bounded_slowdown"], found["max_wait_s"]


def train(
    log: Workload,
    validation: Workload,
    cluster: Cluster,
    options: Options = Options(),
    *,
    progress: Progress | None = None,
) -> Trained:
    """Train a network.

    The same arguments give the same network on the same machine with the same versions: torch uses one thread.

    Parameters
    ----------
    log, validation
        Jobs to learn from, and to choose by; with wall times.
    cluster
        The machine: equal nodes.
    progress
        Told how many actions are done, and of how many.

    Raises
    ------
    InvalidInput
        When nobody waits in a log, jobs have no wall times, or the machine's nodes differ.

    References
    ----------
    J. Schulman, F. Wolski, P. Dhariwal, A. Radford and O. Klimov, "Proximal policy optimization algorithms" (2017);
    S. Huang and S. Ontañón, "A closer look at invalid action masking in policy gradient algorithms" (2020).
    """
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    from asa.lab.training.compact_imitation import imitate, lessons
    from asa.lab.training.compact_network import Policy

    torch.set_num_threads(1)
    began = time.perf_counter()
    cost, judge = cost_under(log, cluster, options.late), Validation(validation, cluster, options)
    seeds = np.random.SeedSequence(options.seed).generate_state(ENVIRONMENTS + 2).tolist()
    many = DummyVecEnv([_maker(log, cluster, cost, options, seed) for seed in seeds[:ENVIRONMENTS]])
    learner = MaskablePPO(
        Policy,
        many,
        learning_rate=lambda left: RATE * left,
        n_steps=STEPS,
        batch_size=BATCH,
        n_epochs=PASSES,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        ent_coef=ENTROPY,
        clip_range=CLIP,
        target_kl=DIVERGENCE,
        seed=options.seed,
    )
    policy: Any = learner.policy
    school = _maker(log, cluster, cost, options, seeds[-1])()
    given = lessons(school, LESSONS, gamma=GAMMA, seed=options.seed)
    agreement = imitate(policy, given, passes=LESSON_PASSES, seed=options.seed)
    best = Best(policy, judge, options.steps, progress, began=began)
    best.look(0)
    if options.steps:
        learner.set_logger(Logger(None, []))  # its own makes a folder among the temporary files, and leaves it
        learner.learn(options.steps, callback=best.watch())
    about = {**asdict(options), "cost": asdict(cost), "jobs": len(log), "validation_jobs": len(validation)}
    return Trained(Network(best.tensors, about), about, best.curve, agreement)


def _maker(log: Workload, cluster: Cluster, cost: Cost, options: Options, seed: int) -> Callable[[], Accrued]:
    sight, whose = Shares(options.window), turns(options.threshold)
    return lambda: Accrued(pieces(log, PIECES, seed=seed), cluster, cost, sight, turns=whose)


class Best:
    """Keeps the best network and the curve."""

    def __init__(self, policy: Any, judge: Validation, steps: int, progress: Progress | None, *, began: float) -> None:
        self._policy, self._judge, self._steps, self._progress, self._began = policy, judge, steps, progress, began
        self.curve: list[Point] = []
        self.tensors: dict[str, Reals] = {}

    def look(self, steps: int) -> None:
        """Dispatch the validation days."""
        tensors = {name: values.copy() for name, values in self._policy.actor.tensors().items()}
        point = self._judge.point(tensors, steps, time.perf_counter() - self._began)
        if not self.curve or point.score < min(each.score for each in self.curve):
            self.tensors = tensors
        self.curve.append(point)
        if self._progress:
            self._progress(min(steps, self._steps), self._steps)

    def watch(self) -> Any:
        """A callback of stable-baselines3."""
        from stable_baselines3.common.callbacks import BaseCallback

        best = self

        class Watch(BaseCallback):
            def _on_training_start(self) -> None:
                self.rounds = 0

            def _on_step(self) -> bool:
                return True

            def _on_rollout_start(self) -> None:  # the network has been changed since the last one
                if self.rounds and self.rounds % EVERY == 0:
                    best.look(self.num_timesteps)
                self.rounds += 1

            def _on_training_end(self) -> None:
                best.look(self.num_timesteps)

        return Watch()
