"""Training of DRAS-PG, DRAS-DQL and Decima-PG, from the first episode to a model (section III-C)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dispatcher import Policy, policy_of
from asa.lab.dispatchers.learned.model import Model, read_model
from asa.lab.dispatchers.learned.observation import Rows
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.metrics.schedule import summarise
from asa.lab.training.dras_dql import QLearning
from asa.lab.training.dras_episode import episode
from asa.lab.training.dras_pg import PolicyGradient
from asa.lab.training.dras_plan import KINDS, Jobset, Plan
from asa.lab.training.dras_point import Point
from asa.lab.training.dras_saved import BEST, read, write
from asa.lab.training.environment import Dispatching

Progress = Callable[[float, float], None]
VALIDATION = ("mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "utilisation")
"""What of a schedule a curve has."""


@dataclass(frozen=True)
class Trained:
    """What came of a training.

    Parameters
    ----------
    plan, curve
        How it went.
    model
        The network that did best on the validation jobs.
    """

    plan: Plan
    curve: Sequence[Point]
    model: Model

    @property
    def best(self) -> Point:
        """The episode that it is from."""
        return max(self.curve, key=lambda point: point.validation_reward)


def learner_of(plan: Plan, nodes: int) -> PolicyGradient | QLearning:
    """What is trained, at its beginning."""
    shape = plan.shape(nodes)
    if KINDS[plan.kind].network == "pg":
        return PolicyGradient(shape, seed=plan.seed, rate=plan.rate)
    return QLearning(shape, seed=plan.seed, rate=plan.rate, discount=plan.discount)


def train(
    plan: Plan,
    log: Workload,
    validation: Workload,
    cluster: Cluster,
    *,
    output: str | Path | None = None,
    snapshots: bool = True,
    progress: Progress | None = None,
) -> Trained:
    """Train a dispatcher; in the folder `output`, where it goes on with what has been begun there.

    The same plan, log and machine give the same curve, on the same computer with the same versions: torch uses one
    thread. It does so too when it was stopped between two episodes.

    Parameters
    ----------
    log
        What it learns from.
    validation
        Jobs that it never learns from; a model is tried on them after each episode.
    cluster
        The machine: equal nodes.
    snapshots
        Whether to keep the model after each episode, too, as the paper does; of a large network that is a large file.
    progress
        Told how many episodes are done, and of how many.

    Raises
    ------
    InvalidInput
        When there is nothing to learn from, jobs have no wall times, the machine's nodes differ, or the folder has
        another training.
    """
    torch.set_num_threads(1)
    judge = _environment(plan, [validation], cluster)
    learner = learner_of(plan, judge.nodes)
    folder = Path(output) if output is not None else None
    curve: list[Point] = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        curve = read(folder, plan, learner)
    best = learner.network.model()
    jobsets = list(plan.jobsets(log))
    for number, jobset in enumerate(jobsets, start=1):
        if number <= len(curve):
            continue
        curve.append(_episode(plan, jobset, number, learner, judge))
        model = learner.network.model()
        first = curve[-1].validation_reward > max((each.validation_reward for each in curve[:-1]), default=-torch.inf)
        best = model if first else best
        if folder is not None:
            _keep(folder, model, number if snapshots else 0, best=first)
            write(folder, plan, curve, learner)
        if progress:
            progress(number, len(jobsets))
    if not curve:
        raise InvalidInput(f"{plan}: there is no set of jobs to learn from")
    return Trained(plan, curve, read_model(folder / BEST) if folder is not None else best)


def _episode(plan: Plan, jobset: Jobset, number: int, learner: Any, judge: Dispatching) -> Point:
    """Learn from a set of jobs, and try the model."""
    began = time.process_time()
    lived = episode(_environment(plan, [jobset.jobs], judge.cluster), learner)
    took = time.process_time() - began
    reward, numbers = validated(judge, policy_of(learner.network.model(), greedy=plan.kind == "dql", seed=plan.seed))
    chosen = {name: float(numbers[name]) for name in VALIDATION}
    return Point(
        number, jobset.phase, len(jobset.jobs), lived.reward, lived.actions, lived.updates, took, reward, **chosen
    )


def validated(environment: Dispatching, policy: Policy) -> tuple[float, dict[str, Any]]:
    """Sum of the rewards of a policy on the environment's first set of jobs, and what `summarise` says of it."""
    state, _ = environment.reset(seed=0)
    over, total = False, 0.0
    while not over:
        state, reward, over, _, _ = environment.step(policy(state, environment.action_masks()))
        total += float(reward)
    return total, summarise(environment.schedule())


def _environment(plan: Plan, workloads: Sequence[Workload], cluster: Cluster) -> Dispatching:
    sight, levels = Rows(plan.window, plan.scaling), KINDS[plan.kind].levels
    return Dispatching(workloads, cluster, sight, objective=plan.objective, levels=levels, turns=Turns(plan.patience))


def _keep(folder: Path, model: Model, number: int, *, best: bool) -> None:
    if number:
        model.save(folder / f"episode-{number:03d}.safetensors")
    if best:
        model.save(folder / BEST)
