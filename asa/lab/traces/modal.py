"""Requested times as users choose them: few round values (Tsafrir, Etsion and Feitelson 2005)."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput

MINUTE, HOUR = 60, 3600
HEAD = 20
"""How many values are popular; the others are the tail."""
HEAD_SHARE = 0.89
"""Share of the jobs that request one of the popular values."""
COMMON = tuple(MINUTE * m for m in (5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 1080))
"""Values [s] that are popular in all logs of the paper."""
ROUND = (200 * HOUR, 100 * HOUR, 50 * HOUR, 10 * HOUR, 5 * HOUR, 2 * HOUR, HOUR, 20 * MINUTE, 10 * MINUTE, 5 * MINUTE)
"""The other popular values [s] are multiples of these, from the longest down."""
POPULARITY = (
    (1, 3, 4, 2, 12, 9, 8, 18, 6, 7, 11, 20, 16, 5, 14, 13, 10, 15, 17, 19),  # CTC
    (1, 4, 10, 14, 20, 2, 3, 7, 12, 6, 19, 5, 18, 16, 9, 17, 15, 13, 8, 11),  # KTH
    (1, 6, 5, 3, 7, 2, 18, 19, 4, 11, 20, 9, 10, 14, 13, 16, 15, 17, 8, 12),  # BLUE
)
"""By log: rank by popularity of the longest value, and then of the others from the shortest up."""
VALUES = ((0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565))
"""Number of jobs, and how many different values so many jobs request."""


def modal(run: Floats, rng: np.random.Generator, longest: float | None = None) -> Floats:
    """Requested times [s] for run times [s], shape (n,).

    The paper's model in its default form: how many different values there are depends on the number of jobs; 20 of them
    are round and have 89 % of the jobs, the longest being the most popular; the others lie on a fractional curve and
    fall off in popularity as a power of their rank. Requests go to jobs at random among those that are long enough.

    Parameters
    ----------
    longest
        Longest time that may be requested [s]; at least an hour. Default: the longest run, in whole hours.

    Raises
    ------
    InvalidInput
        When `longest` is shorter than an hour or than a job.

    Notes
    -----
    Deviations. (1) Which of the popular values is how popular is taken from one of three of the paper's logs, at
    random; the authors' program mixes four of them value by value, and then makes the longest the most popular, which
    it is not in the fourth. (2) Jobs for which no request is left that is long enough get the longest; the authors'
    program gives up. (3) Values of the tail that collide with others are dropped; theirs are moved by some seconds.

    References
    ----------
    D. Tsafrir, Y. Etsion, D. G. Feitelson: Modeling User Runtime Estimates. JSSPP 2005, LNCS 3834, and its program
    (Parallel Workloads Archive, m_tsafrir05), whose constants these are.
    """
    most = float(np.max(run, initial=0.0))
    longest = max(np.ceil(most / HOUR), 1.0) * HOUR if longest is None else longest
    if longest < max(HOUR, most):
        raise InvalidInput(
            f"no request may be longer than {longest:g} s: an hour and the longest run ({most:g} s) must fit"
        )
    values, shares = distribution(len(run), int(longest), rng)
    return _deal(run, values, rng.multinomial(len(run), shares), rng)


def distribution(jobs: int, longest: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Values [s] that are requested, in falling order, and the share of jobs that request each; shape (k,) both."""
    head = popular(longest)
    ranks = np.array(POPULARITY[rng.integers(len(POPULARITY))])
    ranks = np.argsort(np.argsort(ranks[: len(head)])) + 1
    size = 14.0491 * np.exp(-0.177531 * np.arange(1, len(head) + 1)) + 0.462513
    size[0] = max(100 * HEAD_SHARE - size[1:].sum(), size[0])
    kinds = round(float(np.interp(jobs, *VALUES)))
    curve = 1 + 12.1039 * max(kinds, 1) ** -0.6026
    place = np.arange(1, max(kinds - len(head), 0) + 1) / max(kinds - len(head), 1)
    tail = np.round((curve - 1) * place / (curve - place) * longest / MINUTE) * MINUTE
    tail = np.setdiff1d(tail[tail > 0], head)
    less = 795.6 * np.arange(HEAD + 1, HEAD + 1 + len(tail)) ** -2.267
    values = np.concatenate([head, rng.permutation(tail)]).astype(np.float64)
    shares = np.concatenate(
        [size[ranks - 1] / size.sum() * HEAD_SHARE, less / max(less.sum(), 1e-9) * (1 - HEAD_SHARE)]
    )
    order = np.argsort(-values)
    return values[order], shares[order] / shares.sum()


def popular(longest: int) -> list[int]:
    """The popular values [s]: the longest one first, and then from the shortest up; at most 20."""
    chosen = [value for value in COMMON if value < longest]
    for step in ROUND:
        for value in range(longest // step * step, 0, -step):
            if len(chosen) < HEAD - 1 and value < longest and value not in chosen:
                chosen.append(value)
    return [longest, *sorted(chosen)]


def _deal(
    run: Floats, values: Floats, left: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator
) -> Floats:
    """Deal requests to jobs, the longest jobs first, each at random among what is left and long enough.

    `values` fall; jobs between two of them have the same choice, so they are dealt to together.
    """
    found = np.full(len(run), values[0])
    order = np.argsort(-run, kind="stable")
    reach = np.searchsorted(-values, -run[order], side="right")  # so many values are long enough
    begins = np.flatnonzero(np.diff(reach, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], len(run)], strict=True):
        choice = left[: reach[begin]]
        number = min(end - begin, int(choice.sum()))
        dealt = rng.multivariate_hypergeometric(choice, number, method="marginals")
        choice -= dealt
        drawn = np.concatenate([np.repeat(values[: len(choice)], dealt), np.full(end - begin - number, values[0])])
        found[order[begin:end]] = rng.permutation(drawn)
    return found
