import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.baselines import Last, Mean, Median, PlannedWait, Zero

WAITS = st.lists(st.floats(0, 1e9, allow_nan=False), min_size=1, max_size=150)


def taught(estimator, waits):
    for wait in waits:
        estimator.learn(wait)
    return estimator


@pytest.mark.parametrize("kind", [Zero, Last, Median, Mean])
def test_nothing_known_means_0(kind):
    assert kind().predict() == 0.0


@given(WAITS)
def test_each_is_what_its_name_says(waits):
    assert taught(Zero(), waits).predict() == 0
    assert taught(Last(), waits).predict() == waits[-1]
    assert taught(Median(), waits).predict() == statistics.median(waits[-9:])
    assert taught(Mean(), waits).predict() == pytest.approx(statistics.fmean(waits[-100:]))


def test_windows_are_9_and_100_waits_long():
    assert taught(Median(), range(1000)).predict() == 995
    assert taught(Mean(), range(1000)).predict() == 949.5


@given(st.lists(st.floats(0, 1e9, allow_nan=False), max_size=9), st.randoms())
def test_order_within_the_window_does_not_matter(waits, source):
    shuffled = list(waits)
    source.shuffle(shuffled)
    for kind in (Zero, Median, Mean):
        assert taught(kind(), waits).predict() == taught(kind(), shuffled).predict()


@given(WAITS, WAITS)
def test_a_restored_estimator_goes_on_like_its_author(before, after):
    for kind in (Last, Median, Mean):
        author, reader = taught(kind(), before), taught(kind(), after)
        reader.restore(json.loads(json.dumps(author.state())))
        for wait in after:
            assert reader.predict() == author.predict()
            author.learn(wait)
            reader.learn(wait)


def test_a_smaller_window_takes_over_the_newest_waits():
    narrow = Median(window=3)
    narrow.restore(taught(Median(), [1.0, 2.0, 3.0, 4.0, 5.0]).state())
    assert narrow.predict() == 4.0


@pytest.mark.parametrize("kind", [Median, Mean])
@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_bounds_of_the_window(kind, window):
    with pytest.raises(InvalidInput, match="window is"):
        kind(window=window)


def test_planned_says_what_the_batch_system_says():
    estimator = PlannedWait()
    estimator.learn(50.0)
    assert estimator.predict(Context(at=0.0, planned_s=70.0)) == 70.0
    assert estimator.predict(Context(at=0.0)) == estimator.predict() == 0.0
