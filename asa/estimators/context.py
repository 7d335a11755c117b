"""Waits of the jobs that were most like this one when they were submitted."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.estimators import forest
from asa.estimators.checks import (
    check_count,
    check_open_share,
    check_positive,
    check_wait,
    pack,
    printed,
    read,
    read_packed,
)
from asa.estimators.loss import OFFSET_S, Vector

_FIRST_GROWN = 10  # jobs; until then all are alike


@printed
class Contextual:
    """A quantile of the waits of those jobs that a forest finds alike, by what was known when they were submitted.

    It learns from jobs of all geometries of a queue; a new geometry starts from those that are like it. Trees are grown
    anew from time to time, and jobs that become known in between are dropped into the leaves that are there.

    A prediction counts only on waits that were known at ``context.at``, so that it can be asked later what it would
    have said; a forest grown since is used all the same.

    Parameters
    ----------
    tau
        Quantile of the wait that `predict` returns, in (0, 1).
    trees
        How many, 1 or more.
    leaf
        Jobs that a leaf has at least, 1 or more.
    memory
        Jobs that are remembered, 20 or more.
    regrow
        Jobs after which the trees are grown anew, 1 or more; half of the memory at most, and a fifth of the known ones,
        while these are few.
    halflife
        Jobs after which another one counts half, above 0.
    seed
        0 or more.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.

    References
    ----------
    N. Meinshausen, Quantile Regression Forests, JMLR 7 (2006). The trees are random ones (see
    `asa.estimators.forest`), the jobs in a leaf are weighted by how new they are, and include those that came after the
    tree was grown.

    Examples
    --------
    Small jobs start at once, large ones wait; the estimator tells them apart.

    >>> estimator = Contextual()
    >>> for number in range(100):
    ...     cores = 4 if number % 2 else 64
    ...     estimator.learn(0.0 if cores == 4 else 7200.0, context=Context(60.0 * number, cores))
    >>> estimator.predict(Context(9e5, cores=4)), estimator.predict(Context(9e5, cores=60))
    (0.0, 7200.0)
    """

    pooled = True

    def __init__(
        self,
        *,
        tau: float = 0.5,
        trees: int = 16,
        leaf: int = 5,
        memory: int = 2000,
        regrow: int = 300,
        halflife: float = 1000.0,
        seed: int = 0,
    ) -> None:
        self._tau = check_open_share(tau, "tau")
        self._leaf = check_count(leaf, "leaf", at_least=1)
        self._regrow = check_count(regrow, "regrow", at_least=1)
        self._seed = check_count(seed, "seed")
        memory = check_count(memory, "memory", at_least=20)
        self._recency = 0.5 ** (np.arange(memory) / check_positive(halflife, "halflife"))
        self._rows = np.zeros((memory, len(FEATURES)), np.float32)
        self._waits, self._started = np.zeros(memory), np.zeros(memory)
        self._count = self._grown = 0
        self._leaves = np.zeros((check_count(trees, "trees", at_least=1), memory), np.int32)
        self._trees: forest.Trees = []
        self._stale = True
        self._newness: Vector | None = None
        self._newest_s = -math.inf

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """Return a quantile of the wait [s], its own by default; 0 before anything is known."""
        known = self._known(context)
        if not known.any():
            return 0.0
        waits = self._waits[: len(known)]
        share = self._tau if quantile is None else check_open_share(quantile, "quantile")
        alike = self._likeness(self._row(context, known), known) if self._grown else known
        chosen = np.flatnonzero(alike)
        chosen = chosen[waits[chosen].argsort()]
        cumulative = alike[chosen].cumsum()
        return float(waits[chosen[cumulative.searchsorted(share * cumulative[-1])]])

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        wait = check_wait(wait_s)
        row = self._row(context, self._known(context))
        slot = self._count % len(self._waits)
        self._waits[slot], self._rows[slot] = wait, row
        self._started[slot] = -math.inf if context is None else context.at + wait
        self._count += 1
        self._newness = None
        if self._count >= self._due():
            self._grown, self._stale = self._count, True
        elif not self._stale:
            self._leaves[:, slot] = forest.leaf_in_each(row.tolist(), self._trees)

    def state(self) -> dict[str, Any]:
        """Return the remembered jobs, JSON-able; the trees follow from them."""
        size = min(self._count, len(self._waits))
        return {
            "features": list(FEATURES),
            "seed": self._seed,
            "count": self._count,
            "grown": self._grown,
            "memory": len(self._waits),
            "waits": pack(self._waits[:size], "<f8"),
            "started": pack(self._started[:size], "<f8"),
            "rows": pack(self._rows[:size], "<f2"),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The other one must have the same memory; its seed is taken over, too."""
        for name, own in (("features", list(FEATURES)), ("memory", len(self._waits))):
            if read(state, name) != own:
                raise InvalidInput(f"the state has {name} {read(state, name)!r}: expected {own!r}; start without it")
        seed, count, grown = (check_count(read(state, name), name) for name in ("seed", "count", "grown"))
        size = min(count, len(self._waits))
        waits, started = (read_packed(state, name, "<f8", (size,)) for name in ("waits", "started"))
        rows = read_packed(state, "rows", "<f2", (size, len(FEATURES)))
        if not (np.isfinite(waits).all() and (waits >= 0).all() and np.isfinite(rows).all()):
            raise InvalidInput("the state holds a wait or a feature that is none: start without it")
        self._seed, self._count, self._grown, self._stale = seed, count, grown, True
        self._waits[:size], self._started[:size], self._rows[:size] = waits, started, rows
        self._newness = None

    def _due(self) -> int:
        """How many jobs must be known when trees are grown next."""
        return max(_FIRST_GROWN, self._grown + max(1, min(self._regrow, len(self._waits) // 2, self._grown // 5)))

    def _known(self, context: Context | None) -> Vector:
        """How much each remembered job counts, shape (n,): 0 if it had not started when this one was submitted."""
        if self._newness is None:
            size = min(self._count, len(self._waits))
            last = (self._count - 1) % len(self._waits) if size else -1
            parts = self._recency[: last + 1][::-1], self._recency[last + 1 : size][::-1]
            self._newness, self._newest_s = np.concatenate(parts), self._started[:size].max(initial=-math.inf)
        if context is None or context.at >= self._newest_s:
            return self._newness
        return self._newness * (self._started[: len(self._newness)] <= context.at)

    def _row(self, context: Context | None, known: Vector) -> Vector:
        """The features of a job, with the last wait of its like among the known ones."""
        row = features(context)
        alike = (self._rows[: len(known), CORES] == row[CORES]).nonzero()[0]
        if len(alike) and known[place := alike[known[alike].argmax()]] > 0:
            row[LAST] = np.float16(encoded(float(self._waits[place])))
        return row

    def _likeness(self, row: Vector, known: Vector) -> Vector:
        if self._stale:
            self._grow()
        own = np.array(forest.leaf_in_each(row.tolist(), self._trees), np.int32)
        alike = forest.likeness(self._leaves[:, : len(known)], own, known)
        return alike if alike.any() else known

    def _grow(self) -> None:
        """Grow the trees of the last growth: from those jobs of then that are remembered until the next one."""
        memory = len(self._waits)
        chosen = np.arange(max(0, self._due() - memory), self._grown) % memory
        columns, target = np.ascontiguousarray(self._rows[chosen].T), np.log(self._waits[chosen] + OFFSET_S)
        seeds = np.random.SeedSequence([self._seed, self._grown]).generate_state(len(self._leaves))
        shape = len(self._leaves), 2 * len(chosen) // self._leaf + 1
        trees = np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32)
        forest.grow(columns, target, self._leaf, seeds.tolist(), *trees)
        self._stale = False
        self._trees = forest.as_lists(*trees)
        slots = slice(min(self._count, memory))
        self._leaves[:, slots] = forest.leaves(self._rows[slots], *trees)


MISSING = -1.0
"""Stands for what is not known; less than any value that is, so that one split of a tree sets it apart."""

TIMES = ("walltime_s", "pending_s", "backlog_s", "planned_s", "oldest_s", "left_s", "own_backlog_s")
COUNTS = ("cores", "free_cores", "queued", "alike_queued", "own_queued", "own_cores")
FEATURES = ("cosine", "sine", "last_s", *TIMES, *COUNTS)
"""Names of the columns: time of day as a point of a circle, the last wait of a job of as many cores, and fields of
`Context`."""

_times, _counts = operator.attrgetter(*TIMES), operator.attrgetter(*COUNTS)
LAST, CORES = FEATURES.index("last_s"), FEATURES.index("cores")


def features(context: Context | None) -> Vector:
    """The row of a job, shape (f,): logarithms of times and counts, `MISSING` where nothing is known.

    The column `LAST` is left to who knows waits. Rounded to half precision, as it is kept.

    Examples
    --------
    >>> row = features(Context(at=43200.0, cores=7, queued=0))
    >>> dict(zip(FEATURES, row.round(2).tolist())) | {"walltime_s": ...}  # doctest: +ELLIPSIS
    {'cosine': -1.0, 'sine': 0.0, 'last_s': -1.0, 'walltime_s': Ellipsis, 'pending_s': -1.0, ...}
    """
    if context is None:
        return np.full(len(FEATURES), MISSING)
    angle = context.at % DAY * (2 * math.pi / DAY)
    row = [math.cos(angle), math.sin(angle), MISSING]
    row += [encoded(time_s) for time_s in _times(context)]
    row += [MISSING if count is None else math.log1p(count) for count in _counts(context)]
    return np.array(row, dtype=np.float16).astype(np.float64)


def encoded(time_s: float | None) -> float:
    """The logarithm of a time [s], after `OFFSET_S` is added; `MISSING` for None."""
    return MISSING if time_s is None else math.log(time_s + OFFSET_S)
