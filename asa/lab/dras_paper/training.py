"""Training of DRAS-PG, DRAS-DQL and Decima-PG, from the plan over each episode to a model.

A training on disk is a folder that is written to after each episode, and that training goes on from.
``training.json`` has the plan and the curve; ``state.safetensors`` the same, and the learner's state;
``episode-007.safetensors`` the model after that episode, and ``best.safetensors`` the one that did best on the
validation jobs.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, sections III-C and IV-D.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.core.files import write_tensors
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import (
    PATIENCE,
    DrasModel,
    NetworkShape,
    Rows,
    SelectionPolicy,
    policy_of,
    read_model,
)
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.dras_paper.environment import Dispatching, objective_of
from asa.lab.dras_paper.figures import EpisodePoint
from asa.lab.dras_paper.learners import PolicyGradient, QLearning, Tensors, episode
from asa.lab.metrics.schedule import summarise
from asa.lab.traces.resample import sampled, synthetic, weeks


class LearnerKind(NamedTuple):
    """A dispatcher that can be trained: the kind of its network, and whether it selects at two levels."""

    network: str
    levels: bool


KINDS: Mapping[str, LearnerKind] = {
    "pg": LearnerKind("pg", True),
    "dql": LearnerKind("dql", True),
    "decima": LearnerKind("pg", False),
}
"""DRAS-PG, DRAS-DQL and Decima-PG."""


class System(NamedTuple):
    """What the paper has for one of its systems: the reward, and sizes of the hidden layers (table III)."""

    objective: str
    hidden: tuple[int, int]


SYSTEMS: Mapping[str, System] = {
    "theta": System("capability", (4000, 1000)),
    "cori": System("capacity", (10_000, 4000)),
}
"""A capability and a capacity system. How many nodes there are, the log says."""
PHASES = ("sampled", "real", "synthetic")
"""Sets of jobs in the paper's order, from the easiest: sampled from the log, weeks of the log, new ones like it."""


def system(name: str) -> System:
    """The system of this name."""
    if name not in SYSTEMS:
        raise UnknownName("system", name, SYSTEMS)
    return SYSTEMS[name]


class Jobset(NamedTuple):
    """What an episode has: its phase, and its jobs."""

    phase: str
    jobs: Workload


@dataclass(frozen=True)
class TrainingPlan:
    """All that decides what becomes of a training, but the log.

    Parameters
    ----------
    scaling
        A name of `asa.lab.dispatchers.learned.dras.SCALINGS`. Deviation: the paper gives the network nodes and
        seconds (``"raw"``). A wait of a day then is 10^5 times a free node, and of a network with first weights at
        random the policy is all but deterministic before it has learned anything.
    discount
        Of DRAS-DQL: what a reward that comes an action later is worth, in [0, 1]; 1 as in the paper.
    patience
        See `asa.lab.dispatchers.learned.selection.Turns`; >= 0. The dispatcher that uses the model has one of its own.
    jobs
        Jobs in each sampled and synthetic set; >= 1.
    sampled, synthetic
        How many such sets there are; >= 0.
    episodes
        How many to run at most; 0: one for each set.
    """

    kind: str = "pg"
    window: int = 50
    hidden: tuple[int, int] = (4000, 1000)
    scaling: str = "shares"
    objective: str = "capability"
    rate: float = 0.001
    discount: float = 1.0
    patience: float = PATIENCE
    seed: int = 0
    order: tuple[str, ...] = PHASES
    jobs: int = 3200
    sampled: int = 9
    synthetic: int = 82
    episodes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of dispatcher to train", self.kind, KINDS)
        for phase in self.order:
            if phase not in PHASES:
                raise UnknownName("phase of a training", phase, PHASES)
        counts = min(self.sampled, self.synthetic, self.episodes, self.patience)
        if not (self.rate > 0 and 0 <= self.discount <= 1 and self.jobs >= 1 and counts >= 0):
            raise InvalidInput(
                f"{self}: a rate above 0, a discount in [0, 1], sets of at least 1 job, counts of at least 0 expected"
            )
        objective_of(self.objective)
        self.shape(1)

    def shape(self, nodes: int) -> NetworkShape:
        """The network, on a machine of so many nodes."""
        kind = KINDS[self.kind]
        return NetworkShape(kind.network, nodes, self.window, self.hidden, self.scaling, kind.levels)

    def jobsets(self, log: Workload) -> Iterator[Jobset]:
        """What the episodes have, in order; the same for the same seed, whatever the order of the phases is."""
        seeds = np.random.SeedSequence(self.seed).generate_state(self.sampled + self.synthetic).tolist()
        easy, new = seeds[: self.sampled], seeds[self.sampled :]
        made = {
            "sampled": (sampled(log, self.jobs, seed=seed) for seed in easy),
            "real": iter(weeks(log)),
            "synthetic": (synthetic(log, self.jobs, seed=seed) for seed in new),
        }
        found = (Jobset(phase, jobs) for phase in self.order for jobs in made[phase])
        for number, jobset in enumerate(found):
            if self.episodes and number == self.episodes:
                return
            yield jobset

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"hidden": list(self.hidden), "order": list(self.order)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrainingPlan:
        """A plan from what `to_json` made."""
        try:
            return cls(**{**values, "hidden": tuple(values["hidden"]), "order": tuple(values["order"])})
        except (KeyError, TypeError) as error:
            names = ", ".join(each.name for each in fields(cls))
            raise InvalidInput(f"no plan of a training: {error!r}; it has {names}") from error


BEST, CURVE, STATE = "best.safetensors", "training.json", "state.safetensors"


class Keeps(Protocol):
    """What can be written down, and go on from there."""

    def memory(self) -> tuple[Tensors, dict[str, Any]]:
        """Tensors, and what is JSON-able."""

    def recall(self, tensors: Tensors, about: Mapping[str, Any]) -> None:
        """Go on from there."""


def write(folder: Path, plan: TrainingPlan, curve: Sequence[EpisodePoint], learner: Keeps) -> None:
    """Write the curve and what the learner keeps; an episode's are there as a whole, or those of the one before."""
    tensors, about = learner.memory()
    found = {"plan": plan.to_json(), "curve": [asdict(point) for point in curve]}
    _replaced(folder / STATE, lambda path: write_tensors(path, tensors, found | {"learner": about}))
    _replaced(folder / CURVE, lambda path: path.write_text(json.dumps(found, indent=1) + "\n"))


def read(folder: Path, plan: TrainingPlan, learner: Keeps) -> list[EpisodePoint]:
    """The curve so far; the learner goes on from its end. Empty where nothing has been written yet."""
    if not (folder / STATE).exists():
        return []
    try:
        with safe_open(folder / STATE, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["asa"])
            theirs = TrainingPlan.of(about["plan"])
            _check(folder, plan, theirs)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        learner.recall(tensors, about["learner"])
        return [EpisodePoint(**point) for point in about["curve"]]
    except (OSError, SafetensorError, json.JSONDecodeError, KeyError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"{folder / STATE}: {error!r}. Expected the state of a training") from error


def _check(folder: Path, plan: TrainingPlan, theirs: TrainingPlan) -> None:
    """Refuse to go on with another plan; more or fewer episodes of the same sets are the same plan."""
    for name, mine in asdict(plan).items():
        if name != "episodes" and mine != (there := getattr(theirs, name)):
            raise InvalidInput(f"{folder} has a training with {name} {there}, not {mine}: choose another folder")


def _replaced(path: Path, put: Callable[[Path], Any]) -> None:
    """Write a file so that it is there as a whole, or as it was."""
    new = path.with_name(f"{path.name}.new")
    put(new)
    os.replace(new, path)


Progress = Callable[[float, float], None]
VALIDATION = ("mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "utilisation")
"""What of a schedule a curve has."""


@dataclass(frozen=True)
class TrainedDispatcher:
    """What came of a training."""

    plan: TrainingPlan
    curve: Sequence[EpisodePoint]
    model: DrasModel

    @property
    def best(self) -> EpisodePoint:
        """The episode that it is from."""
        return max(self.curve, key=lambda point: point.validation_reward)


def learner_of(plan: TrainingPlan, nodes: int) -> PolicyGradient | QLearning:
    """What is trained, at its beginning."""
    shape = plan.shape(nodes)
    if KINDS[plan.kind].network == "pg":
        return PolicyGradient(shape, seed=plan.seed, rate=plan.rate)
    return QLearning(shape, seed=plan.seed, rate=plan.rate, discount=plan.discount)


def train(
    plan: TrainingPlan,
    log: Workload,
    validation: Workload,
    cluster: Cluster,
    *,
    output: str | Path | None = None,
    snapshots: bool = True,
    progress: Progress | None = None,
) -> TrainedDispatcher:
    """Train a dispatcher; in the folder `output`, where it goes on with what has been begun there.

    The same plan, log and machine give the same curve, on the same computer with the same versions: torch uses one
    thread. It does so too when it was stopped between two episodes.

    Parameters
    ----------
    validation
        Jobs that it never learns from; a model is tried on them after each episode.
    snapshots
        Whether to keep the model after each episode, too, as the paper does; of a large network that is a large file.

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
    curve: list[EpisodePoint] = []
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
    return TrainedDispatcher(plan, curve, read_model(folder / BEST) if folder is not None else best)


def _episode(plan: TrainingPlan, jobset: Jobset, number: int, learner: Any, judge: Dispatching) -> EpisodePoint:
    """Learn from a set of jobs, and try the model."""
    began = time.process_time()
    lived = episode(_environment(plan, [jobset.jobs], judge.cluster), learner)
    took = time.process_time() - began
    reward, numbers = validated(judge, policy_of(learner.network.model(), greedy=plan.kind == "dql", seed=plan.seed))
    chosen = {name: float(numbers[name]) for name in VALIDATION}
    return EpisodePoint(
        number, jobset.phase, len(jobset.jobs), lived.reward, lived.actions, lived.updates, took, reward, **chosen
    )


def validated(environment: Dispatching, policy: SelectionPolicy) -> tuple[float, dict[str, Any]]:
    """Sum of the rewards of a policy on the environment's first set of jobs, and what `summarise` says of it."""
    state, _ = environment.reset(seed=0)
    over, total = False, 0.0
    while not over:
        state, reward, over, _, _ = environment.step(policy(state, environment.action_masks()))
        total += float(reward)
    return total, summarise(environment.schedule())


def _environment(plan: TrainingPlan, workloads: Sequence[Workload], cluster: Cluster) -> Dispatching:
    sight, levels = Rows(plan.window, plan.scaling), KINDS[plan.kind].levels
    return Dispatching(workloads, cluster, sight, objective=plan.objective, levels=levels, turns=Turns(plan.patience))


def _keep(folder: Path, model: DrasModel, number: int, *, best: bool) -> None:
    if number:
        model.save(folder / f"episode-{number:03d}.safetensors")
    if best:
        model.save(folder / BEST)
