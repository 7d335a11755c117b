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

import json
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from asa.core.ports import Estimator

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


def check_predict_is_pure(make: Make) -> None:
    """Asking for predictions changes nothing that is learned, apart from the state's ``"random"``.

    A prediction may never be used. An estimator that draws one keeps that generator's state under this key,
    and uses it for nothing else.
    """
    asked, silent = make(0), make(0)
    for wait in _waits(50):
        for _ in range(3):
            asked.predict()
        asked.learn(wait)
        silent.learn(wait)
    assert _learned(asked) == _learned(silent), (
        f"predict() changed what is learned: {_learned(asked)} after predictions, {_learned(silent)} without"
    )


def check_state_round_trip(make: Make) -> None:
    """A state survives JSON, and whoever restores it goes on exactly like its author."""
    author = make(0)
    _teach(author, _waits(60))
    written = json.dumps(author.state(), allow_nan=False)
    fresh, used = make(1), make(2)
    _teach(used, [5.0, 50_000.0] * 20)
    for reader in (fresh, used):
        reader.restore(json.loads(written))
        again = json.dumps(reader.state(), allow_nan=False)
        assert again == written, f"state() after restore() is {again}: expected what was restored, {written}"
    expected = _teach(author, _waits(60, seed=1))
    for reader in (fresh, used):
        assert _teach(reader, _waits(60, seed=1)) == expected, "predictions differ after restore()"


def check_state_is_a_copy(make: Make) -> None:
    """Learning changes neither a state handed out before nor one restored from."""
    author, reader = make(0), make(0)
    _teach(author, _waits(30))
    state = author.state()
    written = json.dumps(state)
    reader.restore(state)
    _teach(author, _waits(30, seed=1))
    _teach(reader, _waits(30, seed=2))
    assert json.dumps(state) == written, "a state changed after state() had returned it: hand out copies"


def check_seed(make: Make) -> None:
    """Equal seeds and equal waits give equal predictions."""
    first, second = (_teach(make(7), _waits(100)) for _ in range(2))
    assert first == second, "two estimators with the same seed and the same waits predicted differently"


def check_state_is_bounded(make: Make) -> None:
    """The state does not grow with the number of waits: it is read and written for every job."""
    estimator, sizes = make(0), []
    for seed in range(2):
        _teach(estimator, _waits(2000, seed))
        sizes.append(len(json.dumps(estimator.state())))
    assert sizes[1] <= 1.1 * sizes[0] + 64, (
        f"the state has {sizes[0]} bytes after 2000 waits and {sizes[1]} after 4000: expected a bounded size"
    )


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
    _teach(estimator, _waits(10))
    before = estimator.state()
    for wait in (math.nan, math.inf, -1.0):
        said = _refusal(estimator, wait)
        assert repr(wait) in said, f"learn({wait!r}) raised ValueError({said!r}): expected the value in the message"
        assert estimator.state() == before, f"learn({wait!r}) raised, but changed the state: check first, then learn"


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_predictions,
    check_predict_is_pure,
    check_state_round_trip,
    check_state_is_a_copy,
    check_seed,
    check_state_is_bounded,
    check_late_feedback,
    check_rejects,
)
"""All checks, one promise each."""


def check_estimator(make: Make) -> None:
    """Run all checks.

    Raises
    ------
    AssertionError
        If the estimator breaks one of the promises.

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


def _teach(estimator: Estimator, waits: Iterable[float]) -> list[float]:
    """Plan and learn job by job; return the predictions [s]."""
    predictions = []
    for wait in waits:
        predictions.append(estimator.predict())
        estimator.learn(wait, predictions[-1])
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
