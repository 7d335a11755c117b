"""What several estimators say, led by those that have been best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.bysize import knows_quantiles, make_pooled
from asa.estimators.checks import check_count, check_open_share, check_positive, check_wait, printed, read, read_numbers
from asa.estimators.loss import seconds_pinball

BASES = ("context", "fixed-share", "median:window=100", "median", "last", "planned", "zero")
"""What is followed by default."""

_NO_LOSS = 1e-9  # [s]: less is none


@printed
class Leader:
    """The weighted median of what several estimators say; the less one's predictions have cost, the more it weighs.

    A weight is ``prior * exp(-sharpness * (loss / least loss - 1))``, over discounted sums of losses: estimators that
    are nearly as good as the best one have a say, others have none. The first one has the prior 1, so that several
    others that say much the same do not outvote it before they have proved better.

    A prediction is judged when its job has started, as it was, or would have been, when the job was submitted: a
    pooled base is asked again with the context of then, and of others it is remembered what they said when
    (`asa.estimators.bysize`). So nothing has to be kept for jobs that wait, and `predict` stays pure.

    Parameters
    ----------
    bases
        Specs of the estimators; text is split at ``+``. Those that are not pooled learn by number of cores.
    discount
        Weight of a loss after another job, in (0, 1).
    sharpness
        How much a share of the least loss counts, above 0; large values follow the best one alone.
    prior
        Of all bases but the first, in (0, 1).
    tau
        Quantile to aim at, in (0, 1): the price of a second waited over that of one waited plus one held idle.
    seed
        0 or more; for bases that sample.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.
    UnknownName
        If there is no such base, or it has no such option.

    Notes
    -----
    Losses are in seconds, since that is what is paid. A quantile is the weighted median of the quantiles of those bases
    that know a distribution, so quantiles are in order.

    References
    ----------
    Exponentially weighted forecasters, rates that fit the size of the losses, discounting: N. Cesa-Bianchi, G. Lugosi,
    Prediction, Learning, and Games (2006), sections 2.3, 2.4 and 2.11. The median takes the place of their mean: the
    best constant for absolute losses, and a prediction that one of the bases makes.

    Examples
    --------
    >>> leader = Leader(bases=("last", "zero"))
    >>> for wait in (100.0, 0.0, 90.0, 0.0, 80.0, 0.0):
    ...     leader.learn(wait)
    >>> leader.followed, leader.predict()
    ('zero', 0.0)
    """

    pooled = True
    has_quantiles = True

    def __init__(
        self,
        *,
        bases: str | Sequence[str] = BASES,
        discount: float = 0.9995,
        sharpness: float = 30.0,
        prior: float = 0.25,
        tau: float = 0.5,
        seed: int = 0,
    ) -> None:
        self._specs = tuple(bases.split("+")) if isinstance(bases, str) else tuple(bases)
        if not self._specs or len(set(self._specs)) < len(self._specs):
            raise InvalidInput(f"bases are {list(self._specs)}: expected one estimator or more, each of them once")
        self._discount = check_open_share(discount, "discount")
        self._sharpness = check_positive(sharpness, "sharpness")
        self._prior = check_open_share(prior, "prior")
        self._tau = check_open_share(tau, "tau")
        self._bases = [make_pooled(spec, check_count(seed, "seed")) for spec in self._specs]
        self._losses = [0.0] * len(self._bases)
        self._with_quantiles = [place for place, spec in enumerate(self._specs) if knows_quantiles(spec)]

    @property
    def followed(self) -> str:
        """Spec of the base that weighs most."""
        return self._specs[self._losses.index(min(self._losses))]

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """Return the weighted median of what the bases say [s]; of a quantile, what those say that know it."""
        if quantile is None:
            return self._vote(range(len(self._bases)), [self._ask(place, context) for place in range(len(self._bases))])
        places = self._with_quantiles or range(len(self._bases))
        return self._vote(places, [self._bases[place].predict(context, quantile) for place in places])

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """Judge and teach all bases.

        Raises
        ------
        InvalidInput
            If the wait is negative or not finite.
        """
        wait = check_wait(wait_s)
        for place, base in enumerate(self._bases):
            said = self._ask(place, context)
            self._losses[place] = self._discount * self._losses[place] + seconds_pinball(said, wait, self._tau)
            base.learn(wait, said, context)

    def state(self) -> dict[str, Any]:
        """Return the losses and what the bases have learned, JSON-able."""
        return {
            "bases": list(self._specs),
            "losses": list(self._losses),
            "states": [base.state() for base in self._bases],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another instance with the same bases has learned.

        Raises
        ------
        InvalidInput
            If the state is incomplete, or of other bases.
        """
        if read(state, "bases") != list(self._specs):
            raise InvalidInput(f"the state is of the bases {state['bases']}: expected {list(self._specs)}")
        losses, states = read_numbers(state, "losses", len(self._bases)), read(state, "states")
        for base, learned in zip(self._bases, states, strict=True):
            base.restore(learned)
        self._losses = losses

    def _ask(self, place: int, context: Context | None) -> float:
        return self._bases[place].predict(context, self._tau if place in self._with_quantiles else None)

    def _vote(self, places: Sequence[int], said: Sequence[float]) -> float:
        least = min(self._losses[place] for place in places)
        scale = self._sharpness / max(least, _NO_LOSS)
        votes = sorted(
            (says, (self._prior if place else 1.0) * math.exp(-scale * (self._losses[place] - least)))
            for place, says in zip(places, said, strict=True)
        )
        half = math.fsum(weight for _, weight in votes) / 2
        return next(says for says, weight in votes if (half := half - weight) <= 0)
