import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY, WEEK
from asa.lab.core.workload import Workload
from asa.lab.traces.lublin import lublin
from asa.lab.traces.patterns import Cycle, at_load, measure, offered_load, with_users, zipf

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


jobs = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 64)), min_size=2, max_size=30)


def make(rows):
    submit, run, cores = zip(*rows, strict=True)
    return Workload.of(submit=submit, run=run, cores=cores)


@given(jobs.filter(lambda rows: len({row[0] for row in rows}) > 1), st.floats(0.05, 3), st.booleans())
def test_the_load_is_as_asked_and_the_jobs_keep_their_order(rows, load, daily):
    before = make(rows)
    after = at_load(before, 64, load, Cycle((1.0, 3.0, 0.5), DAY) if daily else None)
    assert offered_load(after, 64) == pytest.approx(load, rel=1e-9)
    assert after.submit[0] == before.submit[0]
    assert (after.run == before.run).all()
    assert (after.cores == before.cores).all()


def test_without_a_cycle_all_pauses_are_stretched_alike():
    after = at_load(make([(0, 10, 4), (10, 10, 4), (40, 10, 4)]), 4, 0.375)
    assert after.submit.tolist() == [0, 20, 80]


def test_with_a_cycle_nights_stay_where_they_are():
    day = Cycle((0.0, 1.0), DAY)
    before = make([(DAY / 2 + k, 10, 1) for k in range(1000)])
    after = at_load(before, 1, 0.02, day)
    assert after.submit[-1] > 3 * DAY
    clock = after.submit[:-1] % DAY  # the last one is where the load puts it
    assert ((clock >= DAY / 2 - 1e-6) | (clock < 1e-6)).all()


def test_loads_that_cannot_be_had_are_refused():
    with pytest.raises(InvalidInput, match="load is 0"):
        at_load(make([(0, 1, 1), (5, 1, 1)]), 4, 0)
    for rows in ([(0, 1, 1)], [(0, 1, 1), (0, 1, 1)], [(0, 0, 1), (9, 0, 1)]):
        with pytest.raises(InvalidInput, match="no stretching"):
            at_load(make(rows), 4, 0.5)
    with pytest.raises(InvalidInput, match="at least 1 core"):
        offered_load(make([(0, 1, 1), (5, 1, 1)]), 0)


def test_jobs_of_one_instant_are_an_infinite_load():
    assert offered_load(make([(3, 1, 1), (3, 1, 1)]), 4) == np.inf


def test_nothing_but_the_labels_changes():
    before = lublin(jobs=2000, cores=64, seed=1, load=0.8)
    after = with_users(before, 20, seed=2)
    for column in ("submit", "run", "cores", "walltime", "number"):
        assert (getattr(before, column) == getattr(after, column)).all()
    assert set(after.user.tolist()) == set(range(20))
    assert (after.name // 4 == after.user).all(), "four applications each, shared with nobody"


def test_jobs_of_an_application_run_alike():
    made = with_users(lublin(jobs=20_000, cores=64, seed=1), 30, seed=2)
    spread = [np.log(made.run[made.name == name]) for name in np.unique(made.name)]
    inside = np.median([np.median(np.abs(one - np.median(one))) for one in spread])
    assert inside < 0.15 * np.log(made.run).std(), "of all jobs it is ten times as much"


def test_users_follow_zipfs_law():
    counts = np.bincount(with_users(lublin(jobs=50_000, cores=64, seed=1), 10, seed=3, exact=1.0).user)
    assert counts / 50_000 == pytest.approx(zipf(10), abs=0.001)
    assert zipf(3) == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def test_without_alike_jobs_labels_say_nothing_of_sizes():
    made = with_users(lublin(jobs=50_000, cores=64, seed=1), 2, seed=3, applications=1, exact=0.0)
    assert np.log2(made.cores[made.user == 0]).mean() == pytest.approx(
        np.log2(made.cores[made.user == 1]).mean(), abs=0.1
    )


def test_old_texts_go_with_the_old_codes():
    before = Workload.of(
        submit=[0, 1], run=[1, 1], cores=[1, 1], user=[0, 0], group=[0, 0], labels={"user": ("ann",), "group": ("g",)}
    )
    assert dict(with_users(before, 1, seed=1).labels) == {"group": ("g",)}


def test_a_seed_gives_the_same_labels():
    before = lublin(jobs=500, cores=64, seed=1)
    assert (with_users(before, 9, seed=1).name == with_users(before, 9, seed=1).name).all()
    assert (with_users(before, 9, seed=1).name != with_users(before, 9, seed=2).name).any()


@pytest.mark.parametrize("wrong", [{"users": 0}, {"users": 1, "applications": 0}, {"users": 1, "exact": 1.5}])
def test_impossible_labels_are_refused(wrong):
    with pytest.raises(InvalidInput, match="no such labels"):
        with_users(lublin(jobs=5, cores=4, seed=1), seed=1, **wrong)
