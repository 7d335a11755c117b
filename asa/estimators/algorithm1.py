"""Algorithm 1 of the ASA paper as an estimator, in its three sampling modes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.estimators.checks import (
    Stream,
    check_count,
    check_positive,
    check_same_grid,
    check_wait,
    printed,
    read,
    read_numbers,
)
from asa.estimators.loss import LOSSES, PAPER_GRID, Vector, check_grid, nearest

SAMPLINGS = ("default", "tuned", "greedy")
_REPLAY = 50


@printed
class Algorithm1:
    """ASA's own estimator, with the three sampling modes of its Figure 5.

    Parameters
    ----------
    sampling
        ``"default"`` plans with an alternative drawn from the weights. ``"tuned"`` does too, and replays each
        wait `replay` times. ``"greedy"`` plans with the alternative whose mean perceived loss is smallest; of
        equals, the smallest wait.
    gamma
        Learning rate, above 0.
    replay
        How often ``"tuned"`` replays a wait, 0 or more (50); only with that sampling.
    loss
        ``"closest"`` is the paper's equation (3). ``"log"`` and ``"pinball"`` are graded (see
        `asa.estimators.loss`) and not the paper's.
    grid
        Alternatives [s], strictly increasing, 0 allowed.
    seed
        0 or more.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.

    Notes
    -----
    Deviations from the paper, or readings where it is silent:

    - *gamma* is constant, as in the paper's proof; see `Rounds`.
    - *tuned*: the paper adjusts the distribution "randomly and repeatedly" with the calculated losses. Once
      the wait is known, so is the loss of every alternative. After the planned one is charged, `replay`
      alternatives drawn from the current distribution are charged too, and rounds close whenever they are
      full.
    - *greedy*: an alternative never tried has mean 0. This reading shows the paper's behaviour, good on rises
      and stuck after a drop; the smallest cumulative loss would recover.
    - A job that was planned without a prediction is charged to the alternative that the estimator would have
      planned with. That leaves the algorithm unchanged, since the wait does not depend on the draw.
    - A prediction that is not an alternative counts as the closest one.
    - The convergence theorem of the paper's appendix does not hold: `docs/decisions/theorem-1.md`.

    Predictions and replays draw from streams of their own, so asking for predictions never changes what is
    learned.

    References
    ----------
    ASA, Algorithm 1, section 4.3 (loss) and section 4.4 (sampling).

    Examples
    --------
    >>> estimator = Algorithm1(sampling="tuned", seed=1)
    >>> for _ in range(50):
    ...     estimator.learn(600.0, estimator.predict())
    >>> estimator.predict()
    600.0
    """

    def __init__(
        self,
        *,
        sampling: str = "default",
        gamma: float = 1.0,
        replay: int | None = None,
        loss: str = "closest",
        grid: Iterable[float] = PAPER_GRID,
        seed: int = 0,
    ) -> None:
        if sampling not in SAMPLINGS:
            raise UnknownName("sampling", sampling, SAMPLINGS)
        if loss not in LOSSES:
            raise UnknownName("loss", loss, LOSSES)
        if replay is not None and sampling != "tuned":
            raise InvalidInput(f"replay is {replay!r}, but sampling {sampling!r} replays nothing: take tuned, or none")
        self.grid = check_grid(grid)
        self._sampling = sampling
        self._replay = check_count(_REPLAY if replay is None else replay, "replay") if sampling == "tuned" else 0
        self._loss = LOSSES[loss]
        self._grid_array = np.array(self.grid)
        self._rounds = Rounds(len(self.grid), gamma)
        self._perceived = [0.0] * len(self.grid)
        self._tries = [0] * len(self.grid)
        self._prediction_stream = Stream(seed=seed, key=0)
        self._replay_stream = Stream(seed=seed, key=1)

    @property
    def probabilities(self) -> Vector:
        """Probability of each alternative, shape (m,)."""
        return np.array(self._rounds.probabilities)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return self.grid[self._choose(self._prediction_stream)]

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """Charge the alternative that was planned with, then replay."""
        losses: list[float] = self._loss(self._grid_array, check_wait(wait_s)).tolist()
        if predicted_s is None:
            planned = self._choose(self._replay_stream)
        else:
            planned = nearest(self.grid, check_wait(predicted_s, "predicted_s"))
        self._perceived[planned] += losses[planned]
        self._tries[planned] += 1
        rounds = self._rounds
        rounds.charge(planned, losses[planned])
        for uniform in self._replay_stream.draw(self._replay):
            drawn = rounds.pick(uniform)
            rounds.charge(drawn, losses[drawn])

    def state(self) -> dict[str, Any]:
        """Return everything learned, JSON-able, whatever the mode: another mode may continue from it."""
        return {
            "grid": list(self.grid),
            "log_weights": list(self._rounds.log_weights),
            "round_losses": list(self._rounds.losses),
            "rounds": self._rounds.closed,
            "perceived_losses": list(self._perceived),
            "tries": list(self._tries),
            "random": self._prediction_stream.state(),
            "replay_random": self._replay_stream.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The other one must have the same grid."""
        check_same_grid(state, self.grid)
        alternatives = len(self.grid)
        log_weights = read_numbers(state, "log_weights", alternatives)
        losses = read_numbers(state, "round_losses", alternatives, least=0.0, most=1.0)  # above 1 a round is over
        perceived = read_numbers(state, "perceived_losses", alternatives, least=0.0)
        counts = read_numbers(state, "tries", alternatives)
        tries = [check_count(int(count) if count.is_integer() else count, "state['tries']") for count in counts]
        closed = check_count(read(state, "rounds"), "rounds")
        prediction_stream = Stream.resume(read(state, "random"), key=0)
        self._replay_stream = Stream.resume(read(state, "replay_random"), key=1)
        self._prediction_stream = prediction_stream
        self._rounds.restore(log_weights, losses, closed)
        self._perceived, self._tries = perceived, tries

    def _choose(self, stream: Stream) -> int:
        if self._sampling == "greedy":
            means = [loss / max(tries, 1) for loss, tries in zip(self._perceived, self._tries, strict=True)]
            return means.index(min(means))
        return self._rounds.pick(stream.draw(1)[0])


class Rounds:
    """The double loop of Algorithm 1: a distribution over alternatives and the losses of the open round.

    Parameters
    ----------
    alternatives
        How many, two or more.
    gamma
        Learning rate, above 0 and constant. The paper asks for a non-increasing sequence and its proof uses
        1; a vanishing one never learns within a thousand jobs.

    Notes
    -----
    Weights are kept as logarithms, relative to the largest: no number of losses makes them all vanish.

    References
    ----------
    ASA, Algorithm 1.

    Examples
    --------
    >>> rounds = Rounds(2)
    >>> rounds.charge(0, 1.0), rounds.charge(0, 1.0)  # a round ends once a loss has passed 1
    (False, True)
    >>> [round(share, 3) for share in rounds.probabilities]
    [0.119, 0.881]
    """

    def __init__(self, alternatives: int, gamma: float = 1.0) -> None:
        self._gamma = check_positive(gamma, "gamma")
        self.closed = 0
        """Rounds closed so far."""
        self.losses = [0.0] * check_count(alternatives, "alternatives", at_least=2)
        """Losses of the open round, one per alternative."""
        self._set_log_weights([0.0] * alternatives)

    @property
    def probabilities(self) -> list[float]:
        """Probability of each alternative."""
        total = self._cumulative[-1]
        return [math.exp(log_weight) / total for log_weight in self.log_weights]

    def pick(self, uniform: float) -> int:
        """Return the alternative that a number `uniform` in [0, 1) selects (line 4 of the algorithm)."""
        return bisect_right(self._cumulative, uniform * self._cumulative[-1])

    def charge(self, alternative: int, loss: float) -> bool:
        """Add a loss to one alternative; return whether that closed the round (lines 3, 5 and 7)."""
        losses = self.losses
        losses[alternative] += loss
        # Only this entry grew, so the maximum of all passes 1 exactly when this one does.
        if losses[alternative] <= 1.0:
            return False
        self._set_log_weights(
            [weight - self._gamma * lost for weight, lost in zip(self.log_weights, losses, strict=True)]
        )
        self.losses = [0.0] * len(losses)
        self.closed += 1
        return True

    def restore(self, log_weights: Sequence[float], losses: Sequence[float], closed: int) -> None:
        """Take over the weights, the losses of the open round, and the number of rounds closed."""
        self._set_log_weights(log_weights)
        self.losses = list(losses)
        self.closed = closed

    def _set_log_weights(self, log_weights: Sequence[float]) -> None:
        largest = max(log_weights)
        self.log_weights = [log_weight - largest for log_weight in log_weights]
        self._cumulative = list(accumulate(map(math.exp, self.log_weights)))
