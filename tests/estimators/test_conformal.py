import heapq

import numpy as np
import pytest

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.conformal import Conformal
from asa.testing import estimators as suite


@pytest.mark.slow
@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("base", ["fixed-share", "last", "context:memory=40,trees=3"])
def test_conformance(check, base):
    check(lambda seed: Conformal(base=base, window=64, seed=seed))


def covered(estimator, waits, between_s, quantiles, first):
    """Share of the waits, after the first ones, that each foretold quantile was not below."""
    waiting, below = [], []
    for number, wait in enumerate(waits):
        context = Context(at=between_s * number, cores=4)
        while waiting and waiting[0][0] <= context.at:
            _, known, then = heapq.heappop(waiting)
            estimator.learn(known, None, then)
        below.append([wait <= estimator.predict(context, quantile) for quantile in quantiles])
        heapq.heappush(waiting, (context.at + wait, wait, context))
    return np.mean(below[first:], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["fixed-share", "context"])
@pytest.mark.parametrize("seed", [1, 2])
def test_quantiles_hold_under_delay_what_those_of_the_base_do_not(base, seed):
    """Independent waits around two hours, a job every ten minutes: a dozen wait at any time."""
    waits = np.random.default_rng(seed).lognormal(np.log(7200.0), 0.7, 1500).tolist()
    quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
    share = covered(Conformal(base=base), waits, 600.0, quantiles, first=500)
    # The grid of fixed share has an alternative every 1000 s here, an eighth of the jobs or less.
    assert np.abs(share - quantiles).max() < 0.09


def test_fixed_share_alone_does_not_hold_them():
    from asa.estimators.bysize import BySize

    waits = np.random.default_rng(1).lognormal(np.log(7200.0), 0.7, 1500).tolist()
    share = covered(BySize("fixed-share"), waits, 600.0, (0.1, 0.9), first=500)
    assert share[0] > 0.25
    assert share[1] < 0.75


def test_it_recovers_from_a_change_and_never_leaves_the_waits_that_were():
    source = np.random.default_rng(3)
    waits = [*source.lognormal(5.0, 0.5, 600), *source.lognormal(10.0, 0.5, 1400)]
    estimator = Conformal()
    share = covered(estimator, waits, 3600.0, (0.25, 0.75), first=1200)
    assert np.abs(share - (0.25, 0.75)).max() < 0.08
    assert estimator.predict(Context(at=1e9, cores=4), 0.999) <= max(waits)


def test_the_bases_own_choice_is_passed_on():
    estimator = Conformal(base="zero")
    for _ in range(100):
        estimator.learn(500.0)
    assert estimator.predict() == 0.0


def test_a_state_of_another_base_is_refused():
    with pytest.raises(InvalidInput, match="base 'last'"):
        Conformal(base="zero").restore(Conformal(base="last").state())


@pytest.mark.parametrize(("options", "said"), [({"window": 63}, "window is 63"), ({"seed": -1}, "seed is -1")])
def test_options_out_of_bounds_are_refused(options, said):
    with pytest.raises(InvalidInput, match=said):
        Conformal(**options)
