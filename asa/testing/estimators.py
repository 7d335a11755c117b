"""Conformance suite for estimators: what `asa.core.ports.Estimator` promises, beyond its signatures.

Run it in a test of your own::

    import pytest
    from asa.testing.estimators import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(lambda seed: MyEstimator(seed=seed))

Each check takes a function that makes a fresh estimator from a seed, and raises `AssertionError` saying which
promise was broken.
"""

import copy
import json
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

from asa.core.context import Context
from asa.core.job import Resources
from asa.core.ports import Estimator
from asa.core.view import QueueView, RunningJob

Make = Callable[[int], Estimator]


def check_predictions(make: Make) -> None:
    """Predictions are finite and not negative, before the first wait and after any."""
    estimator = make(0)
    for wait in (None, *_waits(200), 0.0, 1e7):
        if wait is not None:
            estimator.learn(wait, estimator.predict())
        predicted = estimator.predict()
        assert 0 <= predicted < math.inf, (
            f"predict() returned {predicted!r} after a wait of {wait}: expected a finite time of 0 s or more"
        )


def check_contexts(make: Make) -> None:
    """A context may tell everything, next to nothing, or be left out, at the prediction as at the wait."""
    estimator = make(0)
    jobs = _jobs(60)
    for place, (wait, context) in enumerate(jobs):
        bare = Context(at=context.at)
        for asked in (context, bare, None):
            for quantile in (None, 0.01, 0.99):
                predicted = estimator.predict(asked, quantile)
                assert 0 <= predicted < math.inf, (
                    f"predict({asked!r}, {quantile}) returned {predicted!r}: expected a finite time of 0 s or more"
                )
        estimator.learn(wait, estimator.predict(context), (context, bare, None)[place % 3])


def check_predict_is_pure(make: Make) -> None:
    """Asking for predictions changes nothing that is learned, apart from the state's ``"random"``.

    A prediction may never be used. An estimator that draws one keeps that generator's state under this key,
    and uses it for nothing else.
    """
    asked, silent = make(0), make(0)
    for wait, context in _jobs(50):
        for _ in range(3):
            asked.predict()
            asked.predict(context)
            asked.predict(context, 0.9)
        asked.learn(wait, None, context)
        silent.learn(wait, None, context)
    assert _learned(asked) == _learned(silent), (
        f"predict() changed what is learned: {_learned(asked)} after predictions, {_learned(silent)} without"
    )


def check_state_round_trip(make: Make) -> None:
    """A state survives JSON: an estimator that restores it goes on exactly as the one that saved it."""
    for jobs in (_jobs, _blind):
        author = make(0)
        _teach(author, jobs(60))
        written = json.dumps(author.state(), allow_nan=False)
        fresh, used = make(1), make(2)
        _teach(used, [(wait, None) for wait in [5.0, 50_000.0] * 20])
        for reader in (fresh, used):
            reader.restore(json.loads(written))
            again = json.dumps(reader.state(), allow_nan=False)
            assert again == written, f"state() after restore() is {again}: expected what was restored, {written}"
        expected = _teach(author, jobs(60, seed=1))
        for reader in (fresh, used):
            assert _teach(reader, jobs(60, seed=1)) == expected, "predictions differ after restore()"


def check_copies(make: Make) -> None:
    """A copy, and what was pickled and unpickled, go on exactly like the original, and apart from it.

    A class that cannot be imported, such as one defined within a function, is copied only.
    """
    author = make(0)
    _teach(author, _jobs(60))
    copies = {"copy.deepcopy": copy.deepcopy(author)}
    if getattr(sys.modules.get(type(author).__module__), type(author).__qualname__, None) is type(author):
        copies["pickle"] = pickle.loads(pickle.dumps(author))
    expected = _teach(author, _jobs(60, seed=1))
    for name, other in copies.items():
        assert _teach(other, _jobs(60, seed=1)) == expected, f"predictions differ after {name}"


def check_state_is_a_copy(make: Make) -> None:
    """Learning changes neither a state handed out before nor one restored from."""
    author, reader = make(0), make(0)
    _teach(author, _jobs(30))
    state = author.state()
    written = json.dumps(state)
    reader.restore(state)
    _teach(author, _jobs(30, seed=1))
    _teach(reader, _jobs(30, seed=2))
    assert json.dumps(state) == written, "a state changed after state() had returned it: hand out copies"


def check_seed(make: Make) -> None:
    """Equal seeds and equal waits give equal predictions."""
    first, second = (_teach(make(7), _jobs(100)) for _ in range(2))
    assert first == second, "two estimators with the same seed and the same waits predicted differently"


def check_state_is_bounded(make: Make) -> None:
    """Neither the state nor the estimator grows with the number of waits: a state is read and written for every job.

    Contexts least of all: each may hold a whole queue.
    """
    for jobs in (_jobs, _blind):
        estimator, states, objects = make(0), [], []
        for seed in range(2):
            _teach(estimator, jobs(2000, seed))
            states.append(len(json.dumps(estimator.state())))
            objects.append(len(pickle.dumps(estimator.__reduce_ex__(4)[2:])))
        for what, sizes in (("state", states), ("estimator", objects)):
            assert sizes[1] <= 1.1 * sizes[0] + 64, (
                f"the {what} has {sizes[0]} bytes after 2000 waits and {sizes[1]} after 4000: expected a bounded size"
            )


def check_quantiles(make: Make) -> None:
    """A higher quantile is never a shorter wait, unless chance has a part in it (the state's ``"random"``)."""
    estimator = make(0)
    if "random" in estimator.state():
        return
    levels = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
    for wait, context in _jobs(150):
        for asked in (context, None):
            said = [estimator.predict(asked, level) for level in levels]
            assert said == sorted(said), f"predictions for the quantiles {levels} are {said}: expected no decrease"
        estimator.learn(wait, None, context)


def check_late_feedback(make: Make) -> None:
    """Waits may come late, out of order, unplanned, or with a prediction it would not make itself."""
    estimator = make(0)
    planned = [estimator.predict() for _ in range(10)]
    for wait, predicted in zip(_waits(10), reversed(planned), strict=True):
        estimator.learn(wait, predicted)
    for foreign in (None, 0.0, 123.456, 1e9):
        estimator.learn(60.0, foreign)
    answer = estimator.predict()
    assert 0 <= answer < math.inf, f"predict() returned {answer!r} after late feedback: expected a wait"


def check_rejects(make: Make) -> None:
    """A wait that is negative or not finite is a `ValueError` that names it, and teaches nothing."""
    estimator = make(0)
    _teach(estimator, _jobs(10))
    before = estimator.state()
    for wait in (math.nan, math.inf, -1.0):
        said = _refusal(estimator, wait)
        assert repr(wait) in said, f"learn({wait!r}) raised ValueError({said!r}): expected the value in the message"
        assert estimator.state() == before, f"learn({wait!r}) raised, but changed the state: check first, then learn"


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_predictions,
    check_contexts,
    check_quantiles,
    check_predict_is_pure,
    check_state_round_trip,
    check_copies,
    check_state_is_a_copy,
    check_seed,
    check_state_is_bounded,
    check_late_feedback,
    check_rejects,
)
"""All checks, one promise each."""


def check_estimator(make: Make) -> None:
    """Run all checks.

    Examples
    --------
    >>> from asa.estimators.baselines import Last
    >>> check_estimator(lambda seed: Last(seed=seed))
    """
    for check in CHECKS:
        check(make)


def _waits(count: int, seed: int = 0) -> list[float]:
    """Return waits that look like a queue's [s]: mostly log-normal, some 0."""
    source = random.Random(seed)
    return [0.0 if source.random() < 0.2 else source.lognormvariate(6.0, 2.0) for _ in range(count)]


def _jobs(count: int, seed: int = 0) -> list[tuple[float, Context]]:
    """Return jobs with waits, and what was known of each; some of it is missing here and there."""
    source = random.Random(seed)
    jobs, at = [], 1.7e9
    for wait in _waits(count, seed):
        at += source.expovariate(1 / 900.0)
        work = wait * source.lognormvariate(0.0, 0.5)
        told = {
            "pending_s": source.choice([0.0, work]),
            "backlog_s": 2.0 * work,
            "queued": int(work / 60.0),
            "free_cores": source.randrange(100),
            "planned_s": 1.5 * work,
        }
        known: dict[str, Any] = {name: value for name, value in told.items() if source.random() < 0.8}
        cores = source.choice((1, 16, 64))
        running = RunningJob(0, Resources(cores=cores), at + 60.0)
        queue = QueueView(at, Resources(cores=100), (), (running,)) if source.random() < 0.8 else None
        jobs.append((wait, Context(at=at, cores=cores, walltime_s=3600.0, queue=queue, **known)))
    return jobs


def _blind(count: int, seed: int = 0) -> list[tuple[float, None]]:
    """Return jobs of which nothing was known."""
    return [(wait, None) for wait in _waits(count, seed)]


def _teach(estimator: Estimator, jobs: Iterable[tuple[float, Context | None]]) -> list[float]:
    """Plan and learn job by job; return the predictions [s]."""
    predictions = []
    for wait, context in jobs:
        predictions.append(estimator.predict(context))
        estimator.learn(wait, predictions[-1], context)
    return predictions


def _refusal(estimator: Estimator, wait: float) -> str:
    """Return what the estimator says when it refuses a wait."""
    try:
        estimator.learn(wait)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"learn({wait!r}) raised nothing: expected a ValueError")


def _learned(estimator: Estimator) -> dict[str, Any]:
    return {key: value for key, value in estimator.state().items() if key != "random"}
