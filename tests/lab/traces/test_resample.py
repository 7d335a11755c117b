import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.lublin import lublin
from asa.lab.traces.resample import jobsets, pattern, sampled, synthetic, weeks

LOG = lublin(jobs=3000, cores=64, seed=1, load=0.7, estimates="uniform:5", users=20)
MAKERS = (sampled, synthetic)


def jobs_of(workload, *columns):
    return set(zip(*(getattr(workload, column).tolist() for column in columns), strict=True))


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_gives_the_same_jobs_and_another_seed_others(make):
    one, same, other = (make(LOG, 500, seed=s) for s in (1, 1, 2))
    for column in ("submit", "run", "cores", "walltime"):
        assert (getattr(one, column) == getattr(same, column)).all()
        assert (getattr(one, column) != getattr(other, column)).any()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MAKERS), st.integers(1, 800), st.floats(1, 1e5))
def test_any_number_of_jobs_at_any_rate(make, jobs, pause):
    made = make(LOG, jobs, seed=jobs, mean_pause_s=pause)
    assert len(made) == jobs
    assert (np.diff(made.submit) >= 0).all()
    assert set(made.cores.tolist()) <= set(LOG.cores.tolist())
    assert (made.run <= made.walltime).all()
    assert (made.after == UNKNOWN).all()
    assert np.isnan(made.wait).all()


@pytest.mark.parametrize("make", MAKERS)
def test_the_rate_is_the_logs_unless_another_is_asked_for(make):
    mean = np.diff(LOG.submit).mean()
    assert make(LOG, 40_000, seed=3).submit[-1] / 40_000 == pytest.approx(mean, rel=0.05)
    weeks_of_jobs = int(2 * WEEK / 30)
    assert make(LOG, weeks_of_jobs, seed=3, mean_pause_s=30).submit[-1] == pytest.approx(2 * WEEK, rel=0.02)


def test_sampled_jobs_are_jobs_of_the_log_arriving_by_chance():
    made = sampled(LOG, 5000, seed=4)
    assert jobs_of(made, "cores", "run", "walltime", "user") <= jobs_of(LOG, "cores", "run", "walltime", "user")
    pauses = np.diff(made.submit)
    assert pauses.std() / pauses.mean() == pytest.approx(1, abs=0.06), "exponential"
    hours = np.bincount((made.submit % DAY // HOUR).astype(int), minlength=24)
    assert np.ptp(hours) < 0.5 * hours.mean(), "no cycle"


def test_synthetic_jobs_keep_the_patterns_but_are_new():
    log = lublin(jobs=30_000, cores=64, seed=2, load=0.7, estimates="uniform:5")
    made = synthetic(log, 30_000, seed=5)
    hours = [np.bincount((x.submit % DAY // HOUR).astype(int), minlength=24) / 30_000 for x in (log, made)]
    assert hours[1] == pytest.approx(hours[0], abs=0.006)
    assert np.log(made.run).mean() == pytest.approx(np.log(log.run).mean(), abs=0.1)
    assert np.log2(made.cores).mean() == pytest.approx(np.log2(log.cores).mean(), abs=0.05)
    known = jobs_of(log, "cores", "run", "walltime")
    new = [
        job not in known for job in zip(*(getattr(made, c).tolist() for c in ("cores", "run", "walltime")), strict=True)
    ]
    assert np.mean(new) > 0.5


def test_the_pattern_is_hours_times_days():
    days = np.repeat([5, 5, 5, 5, 5, 1, 1], 2) * 2
    hour = np.tile([9, 14], 7) + np.repeat(np.arange(7), 2) * 24
    submit = np.concatenate(
        [week * WEEK + np.sort(np.repeat(hour * HOUR, days) + 7.0) for week in range(3)] + [[3 * WEEK + 10 * HOUR]]
    )
    cycle = pattern(Workload.of(submit=submit, run=np.ones(len(submit)), cores=np.ones(len(submit), int)))
    rate = np.reshape(cycle.weights, (7, 24))
    assert rate[:, [9, 14]] == pytest.approx(np.outer([5, 5, 5, 5, 5, 1, 1], [1, 1]) * rate[5, 9])
    assert rate.sum() == pytest.approx(rate[:, [9, 14]].sum())


def test_weeks_are_the_log_cut_up():
    cut = weeks(LOG)
    assert [row for week in cut for row in week.number.tolist()] == LOG.number.tolist()
    assert all(week.submit[0] >= 0 and week.submit[-1] < WEEK for week in cut)
    back = np.concatenate([week.submit + LOG.submit[0] + k * WEEK for k, week in enumerate(cut)])
    assert back == pytest.approx(LOG.submit)


def test_weeks_without_jobs_are_left_out_and_dependencies_end_with_the_week():
    log = Workload.of(submit=[5, 6, 3 * WEEK + 5], run=[1, 1, 1], cores=[1, 1, 1], after=[-1, 0, 1])
    cut = weeks(log)
    assert [week.submit.tolist() for week in cut] == [[0, 1], [0]]
    assert [week.after.tolist() for week in cut] == [[-1, 0], [-1]]


def test_dependencies_of_sampled_jobs_are_dropped():
    log = Workload.of(submit=[0, 10], run=[1, 1], cores=[1, 1], after=[-1, 0], think=[0, 9], wait=[3, 4])
    made = sampled(log, 20, seed=1)
    assert set(made.after.tolist()) == {UNKNOWN}
    assert set(made.think.tolist()) == {0.0}


def test_the_three_phases_come_in_the_papers_order():
    sets = list(jobsets(LOG, seed=1, jobs=100, easy=3, new=2))
    assert [len(each) for each in sets] == [100] * 3 + [len(week) for week in weeks(LOG)] + [100] * 2
    assert (sets[0].submit != sets[1].submit).any()


def test_bad_arguments_are_named():
    empty = Workload.of(submit=[], run=[], cores=[])
    once = Workload.of(submit=[4, 4], run=[1, 1], cores=[1, 1])
    for make in MAKERS:
        with pytest.raises(InvalidInput, match="no job in the log"):
            make(empty, 5, seed=1)
        with pytest.raises(InvalidInput, match="name mean_pause_s"):
            make(once, 5, seed=1)
        with pytest.raises(InvalidInput, match="0 jobs"):
            make(LOG, 0, seed=1)
        assert len(make(once, 5, seed=1, mean_pause_s=1.0)) == 5
    with pytest.raises(InvalidInput, match="no job in the log"):
        weeks(empty)
    with pytest.raises(InvalidInput, match="every 0 s"):
        weeks(LOG, 0)
