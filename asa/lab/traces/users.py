"""Users and applications for jobs that have none, so that there is something to predict run times from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload

SKEW = 1.0
"""Exponent of Zipf's law: the k-th user submits in proportion to 1 / k ** SKEW, and so with a user's applications."""


def with_users(
    workload: Workload, users: int, seed: int | np.random.Generator, applications: int = 4, exact: float = 0.8
) -> Workload:
    """The same jobs, labelled with users and names. Nothing but these two columns changes.

    Jobs are put in order of size, and of run time among jobs of like size (within a factor of two). Each application
    gets a stretch of that order, as long as it is popular, so that its jobs are alike; users share out the applications
    at random. The most popular user has the most popular application, and so on: Zipf's law twice.

    Parameters
    ----------
    users
        How many; >= 1.
    seed
        A seed, or a generator to go on with.
    applications
        How many each of them has; >= 1. They are named by number, and no two users share one.
    exact
        Share of the jobs that are labelled so; the others are labelled at random among all applications, as work that
        is never the same twice. In [0, 1].

    Raises
    ------
    InvalidInput
        When a number is out of its bounds.

    Notes
    -----
    A reading of ours, and a simple one: sessions, in which a user submits the same job over and over, are not modelled
    (`asa.lab.traces.sites` does).
    """
    if users < 1 or applications < 1 or not 0 <= exact <= 1:
        raise InvalidInput(
            f"no such labels: {users} users of {applications} applications, a share of {exact} alike: "
            "at least 1, at least 1, and a share in [0, 1] expected"
        )
    rng = np.random.default_rng(seed)
    popular = np.outer(zipf(users), zipf(applications)).ravel()
    stretches = rng.permutation(users * applications)  # of the order, from its begin
    ends = np.cumsum(popular[stretches])
    order = np.lexsort((workload.run, np.floor(np.log2(workload.cores))))
    place = np.empty(len(workload))
    place[order] = (np.arange(len(workload)) + 0.5) / max(len(workload), 1)
    place = np.where(rng.random(len(workload)) < exact, place, rng.random(len(workload)))
    label: Ints = stretches[np.minimum(np.searchsorted(ends, place), len(ends) - 1)]
    return replace(workload, user=label // applications, name=label, labels=_without(workload))


def zipf(count: int) -> Floats:
    """Shares of the first, second ... of `count`; they sum to 1."""
    weights = np.arange(1.0, count + 1) ** -SKEW
    shares: Floats = weights / weights.sum()
    return shares


def _without(workload: Workload) -> dict[str, tuple[str, ...]]:
    return {column: texts for column, texts in workload.labels.items() if column not in ("user", "name")}
