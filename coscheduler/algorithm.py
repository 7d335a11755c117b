"""Algorithm 1 of the ASA_X paper: how much of a job's cores another may have, by the mixture of weighted experts.

Losses are known when a job has ended, long after the decision that they belong to. Until then it waits in a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.estimators.checks import Stream, check_count, check_positive, read, read_numbers
from coscheduler.nouns import ACTIONS, Expert, JobStates, LazyReason, LearningExpert
from coscheduler.sharing.experts import check_votes


class Weights:
    """The outer loop of Algorithm 1: distribution over experts, and the risk that the open round has collected.

    Parameters
    ----------
    experts
        How many, one or more.
    gamma, decay
        The learning rate of round t is ``gamma * t ** -decay``; gamma above 0, decay >= 0. Theorem 1 asks for a
        sequence that does not rise. It holds for a constant one; for others only the sum weighted by the rates is
        bounded, the paper's (11): see docs/coscheduler-rules.md.

    Notes
    -----
    Weights are kept as logarithms, relative to the largest: no risk makes them all vanish.

    References
    ----------
    ASA_X, Algorithm 1, lines 1 to 3 and 10 to 12.

    Examples
    --------
    >>> weights = Weights(2)
    >>> weights.charge(np.array([0.9, 0.1])), weights.charge(np.array([0.9, 0.1]))  # ends once a risk has passed 1
    (False, True)
    >>> weights.shares.round(3).tolist()
    [0.168, 0.832]
    """

    def __init__(self, experts: int, gamma: float = 1.0, decay: float = 0.0) -> None:
        self._gamma = check_positive(gamma, "gamma")
        self._decay = decay and check_positive(decay, "decay")
        self.log_weights = np.zeros(check_count(experts, "experts", at_least=1))
        """Logarithms of the weights, the largest 0; shape (n,)."""
        self.risk = np.zeros(experts)
        """Risk of the open round, shape (n,)."""
        self.rounds = 0
        """Rounds closed so far."""

    @property
    def shares(self) -> Floats:
        """The weights, shape (n,); their sum is 1."""
        found = np.exp(self.log_weights)
        return np.asarray(found / found.sum())

    @property
    def rate(self) -> float:
        return float(self._gamma * (self.rounds + 1) ** -self._decay)

    def charge(self, risk: Floats) -> bool:
        """Add a risk to each expert's, shape (n,); whether that has ended the round."""
        self.risk = self.risk + risk
        if self.risk.max() <= 1.0:
            return False
        moved = self.log_weights - self.rate * self.risk
        self.log_weights = moved - moved.max()
        self.risk, self.rounds = np.zeros_like(self.risk), self.rounds + 1
        return True

    def inherit(self) -> Weights:
        """Weights that start as these are, with a round of their own."""
        found = Weights(len(self.log_weights), self._gamma, self._decay)
        found.log_weights = self.log_weights.copy()
        return found

    def state(self) -> dict[str, Any]:
        return {"log_weights": self.log_weights.tolist(), "risk": self.risk.tolist(), "rounds": self.rounds}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what others with as many experts have learned.

        Raises `InvalidInput` when something is missing, or of another length.
        """
        experts = len(self.log_weights)
        log_weights, risk = (read_numbers(state, name, experts) for name in ("log_weights", "risk"))
        rounds = check_count(read(state, "rounds"), "rounds")
        self.log_weights, self.risk, self.rounds = np.array(log_weights), np.array(risk), rounds


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """Actions for n jobs, and how they came about.

    Parameters
    ----------
    votes
        Of each expert for each job, shape (experts, n, m).
    weights
        Of each expert, by each job's application, shape (n, experts).
    mixture
        What actions were drawn from, shape (n, m).
    actions
        Numbers of the actions, shape (n,).
    """

    votes: Floats
    weights: Floats
    mixture: Floats
    actions: Ints

    def reason(self, row: int, names: Sequence[str], states: JobStates) -> LazyReason:
        """One job's decision, JSON-able: its state, the experts' votes and weights, the mixture, and the action."""
        return LazyReason(
            lambda: {
                "state": states.record(row),
                "votes": dict(zip(names, self.votes[:, row].round(4).tolist(), strict=True)),
                "weights": dict(zip(names, self.weights[row].round(6).tolist(), strict=True)),
                "mixture": self.mixture[row].round(4).tolist(),
                "action": ACTIONS[int(self.actions[row])],
            }
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision whose loss is not known yet.

    Its action's number, the probability that each expert and that the mixture gave it, and the job's state (see
    `JobStates.features`).
    """

    application: str
    action: int
    votes: list[float]
    probability: float
    state: list[float]


class Mixture:
    """Algorithm 1, for many jobs at once.

    Parameters
    ----------
    experts
        By name.
    gamma, decay
        Learning rate: see `Weights`.
    importance
        Divide a risk by the probability of the action, at most `clip` of it. Without it, as in the paper, an expert is
        punished for what all agree on more than for what it alone wants.
    clip
        Largest factor of an importance weight, above 0.
    seed
        Of the draws, 0 or more.

    Notes
    -----
    Weights belong to the application of the job whose cores are given away; one that was never seen begins with the
    weights of all applications together, which every loss moves too. The paper leaves this open.

    References
    ----------
    ASA_X, Algorithm 1, equations (2) and (3).
    """

    def __init__(
        self,
        experts: Mapping[str, Expert],
        *,
        gamma: float = 1.0,
        decay: float = 0.0,
        importance: bool = False,
        clip: float = 5.0,
        seed: int = 0,
    ) -> None:
        if not experts:
            raise InvalidInput("there are no experts: one or more expected")
        self.names = tuple(experts)
        self._experts = tuple(experts.values())
        self._importance, self._clip = importance, check_positive(clip, "clip")
        self._everybody = Weights(len(experts), gamma, decay)
        self._weights: dict[str, Weights] = {}
        self._pending: dict[str, list[Pending]] = {}
        self.stream = Stream(seed=seed, key=0)

    def weights(self, application: str) -> Weights:
        """Of the experts, for jobs of this application."""
        return self._weights.get(application, self._everybody)

    def choose(self, applications: Sequence[str], application: Ints, states: JobStates) -> Choice:
        """Draw an action for each of n jobs (lines 4 to 8).

        Parameters
        ----------
        applications, application
            Names of applications, and each job's place among them, shape (n,).
        states
            Of the jobs.
        """
        jobs = len(states)
        votes = np.stack(
            [
                check_votes(expert.vote(states), jobs, f"expert {name!r}")
                for name, expert in zip(self.names, self._experts, strict=True)
            ]
        )
        weights = np.array([self.weights(name).shares for name in applications])[application]
        mixture = np.einsum("ji,ijm->jm", weights, votes)
        uniform = np.array(self.stream.draw(jobs))
        # The last cumulative sum may be a little below 1: the action is one of the m whatever was drawn.
        actions = (np.cumsum(mixture, axis=1)[:, :-1] <= uniform[:, None]).sum(axis=1)
        return Choice(votes, weights, mixture, actions)

    def hold(
        self, jobs: Sequence[str], applications: Sequence[str], choice: Choice, rows: Ints, states: JobStates
    ) -> None:
        """These rows of a choice were applied to `jobs` of these applications: keep them until losses are known."""
        actions = choice.actions[rows]
        votes, chances = choice.votes[:, rows, actions].T.tolist(), choice.mixture[rows, actions].tolist()
        features = states.take(rows).features().tolist()
        for job, *decision in zip(jobs, applications, actions.tolist(), votes, chances, features, strict=True):
            self._pending.setdefault(job, []).append(Pending(*decision))

    def settle(self, job: str, loss: float | None) -> int:
        """`job` has ended with this loss (lines 9 to 12), None if unknown; how many decisions it was charged to."""
        if loss is not None and not 0 <= loss <= 1:
            raise InvalidInput(f"loss is {loss!r}: expected a number from 0 to 1")
        decisions = self._pending.pop(job, [])
        if loss is None:
            return 0
        for pending in decisions:
            self._charge(pending, loss)
        return len(decisions)

    def state(self) -> dict[str, Any]:
        taught = {name: expert.state() for name, expert in self._learners().items()}
        return {
            "experts": list(self.names),
            "everybody": self._everybody.state(),
            "applications": {name: weights.state() for name, weights in self._weights.items()},
            "taught": taught,
            "pending": {job: [asdict(each) for each in held] for job, held in self._pending.items()},
            "random": self.stream.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what a mixture of the same experts has learned; ``pending`` and ``random`` may be missing.

        Raises `InvalidInput` when it is of other experts, or incomplete.
        """
        if tuple(read(state, "experts")) != self.names:
            raise InvalidInput(f"the state is of experts {state['experts']}: expected those of {list(self.names)}")
        everybody, applications = read(state, "everybody"), read(state, "applications")
        self._everybody.restore(everybody)
        self._weights = {}
        for name, each in applications.items():
            self._weights[name] = self._everybody.inherit()
            self._weights[name].restore(each)
        for name, expert in self._learners().items():
            expert.restore(read(read(state, "taught"), name))
        if "pending" in state:
            self._pending = {job: [Pending(**each) for each in held] for job, held in state["pending"].items()}
        if "random" in state:
            self.stream = Stream.resume(state["random"], key=0)

    def _charge(self, pending: Pending, loss: float) -> None:
        factor = min(1 / pending.probability, self._clip) if self._importance else 1.0
        risk = factor * loss * np.array(pending.votes)
        if pending.application not in self._weights:
            self._weights[pending.application] = self._everybody.inherit()
        self._weights[pending.application].charge(risk)
        self._everybody.charge(risk)
        for expert in self._learners().values():
            expert.learn(JobStates.of(pending.state), pending.action, loss)

    def _learners(self) -> dict[str, Any]:
        """Experts that learn from the losses of their votes."""
        pairs = zip(self.names, self._experts, strict=True)
        return {name: expert for name, expert in pairs if isinstance(expert, LearningExpert)}
