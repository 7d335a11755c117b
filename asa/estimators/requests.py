"""What to ask for, of memory or wall time, from what tasks of a stage have used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.ports import Advice, RequestEstimator
from asa.core.stage import again
from asa.estimators.checks import check_count, check_positive

_PRIOR, _PRIOR_TASKS = 0.1, 2
"""How far apart uses are as long as few are known, as a share of the largest, and as how many tasks that counts."""

_FIRST = 2.0
"""A single task says nothing of how far apart uses are: so many times what it used is asked for."""

_FAR = 2.0
"""For inputs of other sizes than those known, at most so many times the largest use is asked for."""

_RAREST = 1e-3
"""No request allows for a use that is rarer: uses of some hundred tasks do not tell what it would be."""


class Quantile:
    """The request of smallest expected cost, of those that at most a share of `risk` of the tasks exceed.

    Parameters
    ----------
    risk
        Share of tasks that may use more than is asked for, in [0, 1). Uses of n tasks can say of none that is smaller
        than 1 / (n + 1): below that, and at 0, it is the largest use with a margin.
    idle
        What it costs to have asked for a byte, or a second, that is not used, as a share of what one costs that is lost
        with a failed attempt; in (0, 1]. For memory, 1. Wall time that is not used costs nothing but a longer wait.
    kept
        From how many of the newest tasks this follows; at least 1.

    Notes
    -----
    Of n tasks and one more, all alike, that one is equally likely to be the largest, the second, ...: the chance that
    it uses more than the j-th largest use before it is j / (n + 1). Of all requests that keep the risk, the one is
    chosen that would have cost least: idle bytes times run time, and the whole run time of failed attempts, which
    are tried again with the largest use known (as Tovar et al., TPDS 2018, have it, but with a bound on failures).

    The margin assumes an exponential tail: beyond the (1 - 1 / (n + 1))-quantile it has s ln(1 / ((n + 1) risk)) to go
    to the (1 - risk)-quantile, s being how far the upper half of the uses lies above their median, on average.
    """

    def __init__(self, *, risk: float = 0.01, idle: float = 1.0, kept: int = 1000) -> None:
        if not 0 <= risk < 1:
            raise InvalidInput(f"risk is {risk!r}: expected a share of at least 0 and below 1, such as 0.01")
        if not 0 < idle <= 1:
            raise InvalidInput(f"idle is {idle!r}: expected a share above 0 and at most 1")
        self.risk, self.idle = float(risk), float(idle)
        self._rows = np.zeros((check_count(kept, "kept", at_least=1), 4))
        self._count = 0

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        self._rows[self._count % len(self._rows)] = (*_checked(used, weight, size), check_count(tasks, "tasks", 1))
        self._count += 1

    def ask(self, size: float | None = None) -> Advice | None:
        if not self._count:
            return None
        rows = self._rows[: self._count]
        return _advice(*self._choose(rows), rows, "")

    def _choose(self, rows: Floats) -> tuple[float, int]:
        """The request, and how many tasks used more."""
        rows = rows[np.argsort(-rows[:, 0], kind="stable")]
        largest, tasks = rows[:, 0], np.concatenate(([0.0], np.cumsum(rows[:, 3])))  # tasks that used more, then all
        spare = int(np.searchsorted(tasks[:-1], self.risk * (tasks[-1] + 1) - 1 + 1e-9, side="right"))
        if not spare:
            return float(largest[0]) + self._margin(largest, tasks[-1]), 0
        lost = np.concatenate(([0.0], np.cumsum(rows[:, 1] * rows[:, 3])))
        failing = lost[:spare]
        costs = largest[:spare] * (self.idle * (lost[-1] - failing) + failing) + self.idle * largest[0] * failing
        chosen = int(costs.argmin())
        return float(largest[chosen]), int(tasks[chosen])

    def _margin(self, largest: Floats, tasks: float) -> float:
        count = len(largest)
        if tasks == 1:
            return float(largest[0]) * (_FIRST - 1)
        excess = float(largest[: (count + 1) // 2].mean() - np.median(largest))
        scale = (excess * count + _PRIOR * float(largest[0]) * _PRIOR_TASKS) / (count + _PRIOR_TASKS)
        return scale * max(0.0, -math.log((tasks + 1) * max(self.risk, _RAREST)))


class Nearest(Quantile):
    """As `Quantile`, of the tasks whose input was about as large.

    Parameters
    ----------
    risk, idle, kept
        As for `Quantile`. At a risk of 0, of all tasks.
    near
        By which factor their inputs may differ; above 1.
    least
        How many tasks there must be; if there are fewer, it is those with the nearest inputs; at least 1.
    """

    def __init__(
        self, *, risk: float = 0.01, idle: float = 1.0, kept: int = 1000, near: float = 1.05, least: int = 50
    ) -> None:
        super().__init__(risk=risk, idle=idle, kept=kept)
        self._near, self._least = math.log(near), check_count(least, "least", at_least=1)

    def ask(self, size: float | None = None) -> Advice | None:
        rows = self._rows[: self._count]
        if size is None or not self.risk or not self._count or np.isnan(rows[:, 2]).any():
            return super().ask(size)
        apart = np.abs(np.log((rows[:, 2] + 1.0) / (size + 1.0)))
        near = rows[apart <= self._near]
        if len(near) < self._least:
            near = rows[np.argsort(apart, kind="stable")[: self._least]]
        return _advice(*self._choose(near), near, " with inputs about as large" if len(near) < len(rows) else "")


class Linear(Quantile):
    """As `Quantile`, of what is left of the uses above a line over the size of the input.

    The line never falls: more input is not taken to need less. It goes through the medians of the tasks with the
    smallest and with the largest third of the inputs (Tukey's resistant line), so that no single task turns it. Far
    from the inputs that are known it is no more than a guess: it is followed to twice the largest use.
    """

    def ask(self, size: float | None = None) -> Advice | None:
        rows = self._rows[: self._count]
        if size is None or not self.risk or (slope := _slope(rows)) <= 0:
            return super().ask(size)
        level = rows.copy()
        level[:, 0] -= slope * rows[:, 2]
        smallest, shift = float(rows[:, 0].min()), float(rows[:, 0].min() - level[:, 0].min())
        level[:, 0] += shift
        amount, above = self._choose(level)
        amount = min(max(amount - shift + slope * size, smallest), _FAR * float(rows[:, 0].max()))
        return _advice(amount, above, rows, ", on a line over the size of their inputs")


class BestRequest:
    """What that one of several asks for whose requests would have cost least so far.

    Parameters
    ----------
    experts
        Which; at least one. While none has cost less, the first.
    idle
        As for `Quantile`.
    """

    def __init__(self, experts: Sequence[RequestEstimator], *, idle: float = 1.0) -> None:
        if not experts:
            raise InvalidInput("a choice needs at least one estimator")
        self._experts, self._idle = tuple(experts), idle
        self._cost = [0.0] * len(self._experts)
        self._largest = 0.0

    def learn(self, used: float, weight: float = 1.0, size: float | None = None, tasks: int = 1) -> None:
        """What each would have asked for this task is what it costs."""
        _checked(used, weight, size)
        for index, expert in enumerate(self._experts):
            advice = expert.ask(size)
            if advice is not None:
                self._cost[index] += weight * tasks * cost(used, advice.amount, self._largest, self._idle)
            expert.learn(used, weight, size, tasks)
        self._largest = max(self._largest, used)

    def ask(self, size: float | None = None) -> Advice | None:
        return self._experts[self._cost.index(min(self._cost))].ask(size)


def cost(used: float, asked: float, largest: float, idle: float = 1.0) -> float:
    """What a request costs besides what is `used`, over the time of an attempt: idle bytes, and failed attempts."""
    lost = 0.0
    while asked < used:
        lost += asked
        asked = again(asked, largest)
    return lost + idle * (asked - used)


def make(*, risk: float = 0.01, idle: float = 1.0, kept: int = 1000) -> BestRequest:
    """The estimator that measured best: the better of the three by past cost."""
    return BestRequest([kind(risk=risk, idle=idle, kept=kept) for kind in (Quantile, Nearest, Linear)], idle=idle)


def _slope(rows: Floats) -> float:
    sizes, third = rows[:, 2], len(rows) // 3
    if not third or np.isnan(sizes).any():
        return 0.0
    order = np.argsort(sizes, kind="stable")
    low, high = rows[order[:third]], rows[order[-third:]]
    run = float(np.median(high[:, 2]) - np.median(low[:, 2]))
    return float(np.median(high[:, 0]) - np.median(low[:, 0])) / run if run > 0 else 0.0


def _advice(amount: float, above: int, rows: Floats, which: str) -> Advice:
    return Advice(amount, int(rows[:, 3].sum()), float(rows[:, 0].max()), above, which)


def _checked(used: float, weight: float, size: float | None) -> tuple[float, float, float]:
    if size is not None and not 0 <= size < math.inf:
        raise InvalidInput(f"size is {size!r}: expected a finite number of bytes, or None")
    return check_positive(used, "used"), check_positive(weight, "weight"), math.nan if size is None else float(size)
