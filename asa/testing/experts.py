"""Conformance suite for experts: what `asa.core.ports.Expert` promises, beyond its signature.

Run it in a test of your own::

    import pytest
    from asa.testing.experts import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(MyExpert)

Each check takes a function that makes a fresh expert, and raises `AssertionError` saying which promise was broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from asa.core.ports import Expert
from asa.core.sharing import ACTIONS, JobStates

Make = Callable[[], Expert]


def job_states(jobs: int, seed: int = 0) -> JobStates:
    """States of so many jobs, drawn at random; among them jobs at every bound, and one with nothing left to do."""
    rng = np.random.default_rng(seed)
    edges = np.array([0.0, 1.0, 0.5, 0.75])
    columns = [np.concatenate([edges, rng.random(jobs)])[:jobs] for _ in range(2)]
    parallel = rng.random(jobs) < 0.5
    elapsed = np.concatenate([[0.0, 0.25, 1.0, 1.7], rng.random(jobs)])[:jobs]
    happiness = np.concatenate([[0.0, 1.0, np.inf, 1.1], rng.uniform(0, 3, jobs)])[:jobs]
    return JobStates(columns[0], columns[1], parallel, elapsed, happiness)


def check_distributions(make: Make) -> None:
    """A vote is a distribution over the actions, whatever the state, also for no job at all."""
    for jobs in (0, 1, 200):
        votes = make().vote(job_states(jobs))
        assert votes.shape == (jobs, len(ACTIONS)), (
            f"vote() of {jobs} jobs has shape {votes.shape}: expected {(jobs, len(ACTIONS))}"
        )
        assert np.isfinite(votes).all() and (votes >= 0).all(), "a vote is negative or not finite: expected shares"
        sums = votes.sum(axis=1)
        assert np.allclose(sums, 1, atol=1e-6), f"votes sum to {sums[np.abs(sums - 1).argmax()]}: expected 1"


def check_each_job_by_itself(make: Make) -> None:
    """The vote on a job does not depend on which others are asked about with it, nor on their order."""
    expert, states = make(), job_states(50)
    together = expert.vote(states)
    for rows in ([7], [49, 3, 20], list(range(49, -1, -1))):
        some = expert.vote(states.take(np.array(rows)))
        assert np.allclose(some, together[rows]), f"jobs {rows} have other votes by themselves than among all"


def check_vote_is_pure(make: Make) -> None:
    """Asking changes nothing, and the same question has the same answer."""
    expert, states = make(), job_states(50)
    first = expert.vote(states).copy()
    expert.vote(job_states(80, seed=1))
    assert np.array_equal(expert.vote(states), first), "the same states were voted on differently the second time"


def check_state_round_trip(make: Make) -> None:
    """An expert that learns (it has ``learn``, ``state`` and ``restore``) goes on, restored, like its author."""
    author: Any = make()
    if not hasattr(author, "learn"):
        return
    for seed in range(40):
        author.learn(job_states(3, seed), seed % len(ACTIONS), seed % 5 / 4)
    reader: Any = make()
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    for _ in range(2):
        votes = [expert.vote(job_states(100)) for expert in (author, reader)]
        assert np.array_equal(*votes), "votes differ after restore()"
        for expert in (author, reader):
            expert.learn(job_states(5, 99), 7, 1.0)


CHECKS = (check_distributions, check_each_job_by_itself, check_vote_is_pure, check_state_round_trip)


def check_expert(make: Make) -> None:
    """All checks, one after the other."""
    for check in CHECKS:
        check(make)
