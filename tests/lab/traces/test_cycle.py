import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY, WEEK
from asa.lab.traces.cycle import Cycle, measure

weights = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), min_size=1, max_size=12).filter(any)
times = st.lists(st.floats(0, 5 * WEEK), min_size=1, max_size=20).map(sorted)


@given(weights, times)
def test_the_clock_undoes_operational_time_where_there_is_a_rate(shape, moments):
    cycle = Cycle(tuple(shape), DAY)
    done = cycle.operational(moments)
    assert (np.diff(done) >= -1e-9).all()
    assert cycle.operational(cycle.clock(done)) == pytest.approx(done, abs=1e-3)


@given(weights)
def test_both_clocks_agree_after_whole_periods(shape):
    cycle = Cycle(tuple(shape), DAY)
    assert cycle.operational([0, DAY, 3 * DAY]).tolist() == [0, DAY, 3 * DAY]


def test_arrivals_that_are_steady_in_operational_time_follow_the_weights():
    cycle = Cycle((0.0, 1.0, 3.0, 0.0), 4000.0)
    arrivals = cycle.clock(np.arange(0.5, 8000.0))
    assert np.bincount((arrivals % 4000 // 1000).astype(int), minlength=4).tolist() == [0, 2000, 6000, 0]


def test_a_cycle_is_measured_from_arrivals_over_whole_periods_only():
    mondays = np.concatenate([np.arange(0, DAY, 3600.0) + k * WEEK for k in range(3)])
    friday = np.array([WEEK + 4 * DAY + 60.0])
    submit = np.sort(np.concatenate([mondays, friday]))
    assert measure(submit, WEEK, 7).weights == (48, 0, 0, 0, 1, 0, 0), "the third Monday is of a week that is not whole"
    assert measure(np.array([5.0, 6.0]), WEEK, 7).weights == (2, 0, 0, 0, 0, 0, 0), "no whole week: all that there is"


def test_measured_cycles_begin_at_multiples_of_the_period():
    assert measure(np.array([DAY + 10.0, DAY + 20.0]), WEEK, 7).weights == (0, 2, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("bad", [(), (0.0,), (-1.0, 2.0), (np.nan,), (np.inf,)])
def test_no_rate_is_no_cycle(bad):
    with pytest.raises(InvalidInput, match="weights of at least 0"):
        Cycle(bad)


def test_bad_periods_and_empty_logs_are_refused():
    with pytest.raises(InvalidInput, match="period of 0 s"):
        Cycle((1.0,), 0)
    with pytest.raises(InvalidInput, match="no arrivals"):
        measure(np.array([]), WEEK, 7)
