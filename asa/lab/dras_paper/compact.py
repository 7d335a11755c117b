"""Training of the compact policy: imitation, then proximal policy optimisation, with the best network kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, SupportsInt

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Reals, Workload
from asa.lab.dispatchers.learned.compact import (
    COLUMNS,
    LAYERS,
    SHAPES,
    THRESHOLD,
    WIDTH,
    Compact,
    CompactNetwork,
    Shares,
    turns,
)
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.dras_paper.environment import Dispatching
from asa.lab.metrics.schedule import bounded_slowdown, summarise
from asa.lab.report.charts import NamedCurve, curves_figure
from asa.lab.simulator.run import simulate
from asa.report.picture import save_figure

REFERENCE = "easy:order=sjf"
"""The dispatcher whose costs are taken off: a compiled one, near to what is learned."""
SETTINGS: Mapping[str, Any] = {"keep_nodes": False}
"""How the machine behaves: where jobs run is not written down."""
SHORT_S = 600.0
"""Shorter run times count as this in what slowdowns cost [s]."""
SCALE = 0.1
"""What rewards are multiplied with, so that sums of them are about 1."""


@dataclass(frozen=True)
class Cost:
    """What the wait of a job costs: its share of a mean wait, of a mean slowdown, and more the longer it is.

    A wait `w` [s] costs ``w / wait_s + (w / run) / slowdown + late * max(0, w - long_s)^2 / (wait_s * long_s)``. Run
    times of less than `SHORT_S` count as that: no one can see that a job of hours is going to fail within seconds, and
    with 10 s, as in bounded slowdowns, such a one would count more than all others.

    Parameters
    ----------
    wait_s, slowdown
        A mean wait [s] and a mean bounded slowdown: what each is worth; > 0.
    long_s
        From here on waits are long [s]; > 0.
    late
        What a long wait is worth; >= 0.
    """

    wait_s: float
    slowdown: float
    long_s: float
    late: float = 0.2

    def __post_init__(self) -> None:
        if not (min(self.wait_s, self.slowdown, self.long_s) > 0 and self.late >= 0):
            raise InvalidInput(f"{self}: means and long_s above 0 expected, and late at least 0")

    def of(self, wait: Floats, run: Floats) -> float:
        """Of all jobs together, by waits and run times [s], shape (n,)."""
        beyond = np.maximum(wait - self.long_s, 0.0)
        rate = 1.0 / self.wait_s + 1.0 / (self.slowdown * np.maximum(run, SHORT_S))
        return float((wait * rate).sum() + self.late * (beyond @ beyond) / (self.wait_s * self.long_s))


def cost_under(log: Workload, cluster: Cluster, late: float, dispatcher: str = "easy") -> Cost:
    """Costs in units of a dispatcher's means on a log; its 99th percentile of waits is long."""
    done = simulate(log, cluster, dispatcher, **SETTINGS)
    wait, run = done.wait, done.end - done.start
    ran = np.isfinite(wait)
    if not (wait[ran] > 0).any():
        raise InvalidInput(f"under {dispatcher} no job of the log waits: there is nothing to learn from it")
    slowdown = bounded_slowdown(wait[ran] + run[ran], run[ran], SHORT_S)
    return Cost(float(wait[ran].mean()), float(slowdown.mean()), float(np.percentile(wait[ran], 99)), late)


def waits_until(now: float, submit: Floats, start: Floats) -> Floats:
    """How long each job has waited by now [s], shape (n,); `start` is NaN where it still waits, or is not submitted.

    >>> waits_until(10.0, np.array([0.0, 4.0, 20.0]), np.array([3.0, np.nan, np.nan])).tolist()
    [3.0, 6.0, 0.0]
    """
    found: Floats = np.maximum(np.fmin(start, now) - submit, 0.0)
    return found


def pieces(log: Workload, count: int, *, seed: int, days: float = 15.0) -> list[Workload]:
    """Stretches of a log, each a little different from it: drawn begins, a drawn load, and drawn delays.

    Time goes by 0.9 to 1.3 times as fast, and each job comes up to half an hour later than it did.

    Raises
    ------
    InvalidInput
        When no stretch of the log has two jobs: one alone never waits.
    """
    first, last = (float(log.submit[0]), float(log.submit[-1])) if len(log) else (0.0, 0.0)
    reached = log.submit[log.submit < max(last, first + days * DAY)]  # a stretch of a longer log ends before its last
    if len(reached) < 2 or np.diff(reached).min() >= days * DAY:
        raise InvalidInput(f"no {days:g} days of the log to learn from have two jobs: a log with more jobs expected")
    draw = np.random.default_rng(seed)
    found: list[Workload] = []
    while len(found) < count:
        begin = first + draw.random() * max(last - first - days * DAY, 0.0)
        piece = log.between(begin, begin + days * DAY)
        if len(piece) > 1:
            pace = draw.uniform(0.9, 1.3)
            found.append(delayed(replace(piece, submit=(piece.submit - begin) / pace), draw))
    return found


def delayed(jobs: Workload, draw: np.random.Generator, most_s: float = 1800.0) -> Workload:
    """The same jobs, each submitted up to `most_s` [s] later, drawn alike."""
    submit = jobs.submit + draw.uniform(0.0, most_s, len(jobs))
    order = np.argsort(submit, kind="stable")
    together = replace(jobs, submit=np.zeros(len(jobs)))  # rows must be in order of submission all the while
    return replace(together.take(order), submit=submit[order])


class Accrued(gymnasium.Wrapper[Reals, np.int64, Reals, np.int64]):
    """`asa.lab.dras_paper.environment.Dispatching` whose reward is what waiting costs, less than under `REFERENCE`.

    An action is rewarded with what the reference's queue has cost since the last one, minus what this one has. The
    reference goes by time alone, whatever is done, so the same policy is best; but how many jobs come, which makes most
    of the costs, matters less. Where there is one action only it is taken, and the next one is asked for.

    References
    ----------
    H. Mao, S. B. Venkatakrishnan, M. Schwarzkopf and M. Alizadeh, "Variance reduction for reinforcement learning in
    input-driven environments", ICLR 2019.
    """

    def __init__(
        self, workloads: Sequence[Workload], cluster: Cluster, cost: Cost, sight: Shares, *, turns: Turns
    ) -> None:
        self._inner = Dispatching(workloads, cluster, sight, turns=turns, settings=SETTINGS)
        super().__init__(self._inner)
        self._cluster, self._cost = cluster, cost

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Reals, dict[str, Any]]:
        """Begin the next episode that leaves a choice."""
        over = True
        while over:
            state, info = self.env.reset(seed=seed, options=options)
            workload = self.schedule().workload
            self._reference = simulate(workload, self._cluster, REFERENCE, **SETTINGS)
            state, over, info = self._forced(state, False, info)
        self._paid = self.lead(info["now"])
        return state, info

    def step(self, action: SupportsInt) -> tuple[Reals, float, bool, bool, dict[str, Any]]:
        state, _, over, _, info = self.env.step(np.int64(int(action)))
        state, over, info = self._forced(state, over, info)
        before, self._paid = self._paid, self.lead(info["now"])
        return state, SCALE * (self._paid - before), over, False, info

    def action_masks(self) -> Bools:
        return self._inner.action_masks()

    def schedule(self) -> Schedule:
        return self._inner.schedule()

    def _forced(self, state: Reals, over: bool, info: dict[str, Any]) -> tuple[Reals, bool, dict[str, Any]]:
        """Go on while there is nothing to choose."""
        while not over and (mask := self.action_masks()).sum() == 1:
            state, _, over, _, info = self.env.step(np.int64(mask.argmax()))
        return state, over, info

    def lead(self, now: float) -> float:
        """What the reference has cost by now, minus what this has."""
        mine, other = self.schedule(), self._reference
        jobs = mine.workload
        theirs = self._cost.of(waits_until(now, jobs.submit, other.start), jobs.run)
        return theirs - self._cost.of(waits_until(now, jobs.submit, mine.start), jobs.run)


MANY = 16
"""Jobs in a queue of usual length: sums over jobs are in units of it."""


class JobSetNetwork(nn.Module):
    """The layers of `asa.lab.dispatchers.learned.compact.LAYERS`; the last one only where it gives scores."""

    def __init__(self, scores: bool) -> None:
        super().__init__()
        for name in LAYERS if scores else [name for name in LAYERS if name != "score"]:
            outputs, inputs = LAYERS[name]
            setattr(self, name, nn.Linear(inputs, outputs))

    def judged(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of the jobs, shape (B, W, WIDTH), 0 where there is none, and the context, shape (B, WIDTH).

        States are those of `Shares`, each in a row, shape (B, (1 + W) * COLUMNS).
        """
        layer: Any = self
        rows = states.reshape(len(states), -1, COLUMNS)
        machine, jobs = rows[:, :1], rows[:, 1:]
        there = jobs[:, :, :1]
        first = torch.relu(_split(layer.first, jobs, machine, COLUMNS))
        second = torch.relu(layer.second(first)) * there
        mean = second.sum(dim=1) / there.sum(dim=1).clamp(min=1.0)
        context = torch.relu(layer.context(torch.cat([mean, second.amax(dim=1)], dim=1)))
        return torch.relu(_split(layer.third, second, context[:, None], WIDTH)) * there, context

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        layer: Any = self
        found: torch.Tensor = layer.score(self.judged(states)[0])[:, :, 0]
        return found

    def tensors(self) -> dict[str, Reals]:
        found = {name: values.detach().cpu().numpy().astype(np.float32) for name, values in self.state_dict().items()}
        return {name: found[name] for name in SHAPES}


def _split(layer: Any, jobs: torch.Tensor, shared: torch.Tensor, width: int) -> torch.Tensor:
    """A layer of what jobs have, so many values, and of what is the same for all."""
    found: torch.Tensor = jobs @ layer.weight[:, :width].T + (shared @ layer.weight[:, width:].T + layer.bias)
    return found


class CompactBodies(nn.Module):
    """Actor and critic, each a network of its own."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.actor, self.critic = JobSetNetwork(scores=True), JobSetNetwork(scores=False)
        self.latent_dim_pi, self.latent_dim_vf = window, 2 * WIDTH

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores, and what the critic's last layer gets."""
        return self.forward_actor(states), self.forward_critic(states)

    def forward_actor(self, states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.actor(states)
        return found

    def forward_critic(self, states: torch.Tensor) -> torch.Tensor:
        """Of the critic alone: the context, and sums over jobs, for what a queue will cost is nearly such a sum."""
        jobs, context = self.critic.judged(states)
        return torch.cat([context, jobs.sum(dim=1) / MANY], dim=1)


class CompactPolicy(MaskableActorCriticPolicy):
    """Scores of jobs are the logits: no layer, which would tie them to places of the window, comes after them."""

    def _build_mlp_extractor(self) -> None:
        shape: Any = self.observation_space.shape
        self.mlp_extractor = CompactBodies(shape[0] - 1)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    @property
    def actor(self) -> JobSetNetwork:
        body: Any = self.mlp_extractor
        found: JobSetNetwork = body.actor
        return found


LENGTH = 3
"""Column of a job's expected run time."""
IMITATION_BATCH, IMITATION_RATE = 256, 1e-3
WANDER = 0.1
"""How often something else is done than the teacher says: its advice is learned for more queues than its own."""


def teacher(observation: Reals, mask: Bools) -> int:
    """Shortest job first."""
    return int(np.argmin(np.where(mask, observation[1:, LENGTH], np.inf)))


@dataclass(frozen=True, eq=False)
class Lessons:
    """Situations, and what a teacher says of them.

    Parameters
    ----------
    states, masks
        What was seen, shape (n, 1 + W, COLUMNS), and which actions there were, shape (n, W).
    returns
        Sums of the rewards from there on, discounted, shape (n,).
    """

    states: Reals
    masks: Bools
    actions: Ints
    returns: Floats


def lessons(environment: Accrued, count: int, *, gamma: float, seed: int) -> Lessons:
    """What a teacher says in so many situations at least; whole episodes."""
    draw = np.random.default_rng(seed)
    states: list[Reals] = []
    masks: list[Bools] = []
    actions: list[int] = []
    returns: list[Floats] = []
    while len(states) < count:
        rewards: list[float] = []
        (state, _), over = environment.reset(), False
        while not over:
            mask = environment.action_masks()
            action = teacher(state, mask)
            states.append(state)
            masks.append(mask)
            actions.append(action)
            taken = int(draw.choice(np.flatnonzero(mask))) if draw.random() < WANDER else action
            state, reward, over, _, _ = environment.step(taken)
            rewards.append(reward)
        returns.append(discounted(rewards, gamma))
    return Lessons(np.stack(states), np.stack(masks), np.array(actions), np.concatenate(returns))


def discounted(rewards: Sequence[float], gamma: float) -> Floats:
    """Sums of rewards from each on, discounted; shape (n,).

    >>> discounted([1.0, 0.0, 4.0], 0.5).tolist()
    [2.0, 2.0, 4.0]
    """
    found, later = np.empty(len(rewards)), 0.0
    for place in range(len(rewards) - 1, -1, -1):
        found[place] = later = rewards[place] + gamma * later
    return found


def imitate(policy: Any, given: Lessons, *, passes: int, seed: int) -> float:
    """Fit actor and critic; the share of situations in which the actor does as the teacher then."""
    import torch
    from torch.nn import functional

    draw = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=IMITATION_RATE)
    states, masks = torch.as_tensor(given.states.reshape(len(given.states), -1)), torch.as_tensor(given.masks)
    actions, returns = torch.as_tensor(given.actions), torch.as_tensor(given.returns, dtype=torch.float32)

    def logits(rows: npt.NDArray[Any]) -> torch.Tensor:
        found: torch.Tensor = policy.actor(states[rows]).masked_fill(~masks[rows], -1e8)
        return found

    for turn in range(passes):
        for group in optimizer.param_groups:
            group["lr"] = IMITATION_RATE * (1 - turn / passes)
        for rows in np.array_split(draw.permutation(len(states)), -(-len(states) // IMITATION_BATCH)):
            values = policy.value_net(policy.mlp_extractor.forward_critic(states[rows]))[:, 0]
            loss: Any = functional.cross_entropy(logits(rows), actions[rows])
            loss = loss + functional.smooth_l1_loss(values, returns[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        parts = [logits(rows).argmax(dim=1) == actions[rows] for rows in np.array_split(np.arange(len(states)), 16)]
    return float(torch.cat(parts).float().mean())


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
class CompactOptions:
    """How the policy is trained.

    Parameters
    ----------
    steps
        Actions to learn from after the imitation; 0 for imitation alone.
    threshold, window
        See `asa.lab.dispatchers.learned.compact.Compact`.
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
class CompactPoint:
    """A point of the validation curve: means over versions of the validation days, in shares of EASY's.

    Parameters
    ----------
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
class TrainedCompact:
    """A trained network, and how it came about.

    Parameters
    ----------
    curve
        First the teacher's imitation, then one point for every so many changes of the network.
    agreement
        In which share of the situations the imitation does as the teacher.
    """

    network: CompactNetwork
    about: Mapping[str, Any]
    curve: Sequence[CompactPoint]
    agreement: float

    def to_json(self) -> dict[str, Any]:
        """All but the weights."""
        return {**self.about, "agreement": self.agreement, "curve": [asdict(point) for point in self.curve]}


class Validation:
    """Days that are not learned from, several times: as they were, and with jobs a little later."""

    def __init__(self, log: Workload, cluster: Cluster, options: CompactOptions) -> None:
        cost_under(log, cluster, options.late)  # refuses a log without waits
        draw = np.random.default_rng(0)  # the same versions for all seeds: their curves are comparable
        self._logs = [log, *(delayed(log, draw) for _ in range(VALIDATIONS - 1))]
        self._cluster, self._options = cluster, options
        self._easy = [self._numbers(each, "easy") for each in self._logs]

    def point(self, tensors: Mapping[str, Reals], steps: int, seconds: float) -> CompactPoint:
        dispatcher = Compact(CompactNetwork(tensors), self._options.threshold, self._options.window)
        found = [self._numbers(each, dispatcher) for each in self._logs]
        shares = np.mean(np.array(found) / np.array(self._easy), axis=0).tolist()
        return CompactPoint(steps, seconds, *shares)

    def _numbers(self, log: Workload, dispatcher: Any) -> tuple[float, float, float]:
        found = summarise(simulate(log, self._cluster, dispatcher, **SETTINGS))
        return found["mean_wait_s"], found["mean_bounded_slowdown"], found["max_wait_s"]


def train(
    log: Workload,
    validation: Workload,
    cluster: Cluster,
    options: CompactOptions = CompactOptions(),
    *,
    progress: Progress | None = None,
) -> TrainedCompact:
    """Train a network.

    The same arguments give the same network on the same machine with the same versions: torch uses one thread.

    Raises
    ------
    InvalidInput
        When no job waits in a log, jobs have no wall times, or the machine's nodes differ.

    References
    ----------
    J. Schulman, F. Wolski, P. Dhariwal, A. Radford and O. Klimov, "Proximal policy optimization algorithms" (2017);
    S. Huang and S. Ontañón, "A closer look at invalid action masking in policy gradient algorithms" (2020).
    """
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    began = time.perf_counter()
    cost, judge = cost_under(log, cluster, options.late), Validation(validation, cluster, options)
    seeds = np.random.SeedSequence(options.seed).generate_state(ENVIRONMENTS + 2).tolist()
    many = DummyVecEnv([_maker(log, cluster, cost, options, seed) for seed in seeds[:ENVIRONMENTS]])
    learner = MaskablePPO(
        CompactPolicy,
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
    return TrainedCompact(CompactNetwork(best.tensors, about), about, best.curve, agreement)


def _maker(log: Workload, cluster: Cluster, cost: Cost, options: CompactOptions, seed: int) -> Callable[[], Accrued]:
    sight, whose = Shares(options.window), turns(options.threshold)
    return lambda: Accrued(pieces(log, PIECES, seed=seed), cluster, cost, sight, turns=whose)


class Best:
    """Keeps the best network and the curve."""

    def __init__(self, policy: Any, judge: Validation, steps: int, progress: Progress | None, *, began: float) -> None:
        self._policy, self._judge, self._steps, self._progress, self._began = policy, judge, steps, progress, began
        self.curve: list[CompactPoint] = []
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


SHOWN = {"wait": "mean wait", "slowdown": "mean bounded slowdown", "longest": "longest wait"}
"""Numbers of a point, and what they are called."""


def draw_curve(curve: Sequence[CompactPoint], path: str | Path) -> None:
    """Draw wait, slowdown and longest wait on the validation days, in shares of EASY's, over actions learned from."""
    steps = [point.steps for point in curve]
    figure = curves_figure(
        [NamedCurve(words, steps, [getattr(point, name) for point in curve]) for name, words in SHOWN.items()],
        x="actions learned from",
        y="in shares of EASY's",
        from_zero=True,
        chosen=("what is kept", min(curve, key=lambda point: point.score).steps),
    )
    save_figure(figure, path)
