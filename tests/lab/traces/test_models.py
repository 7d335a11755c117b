"""Workloads that are made: from models, from logs, and like a site's."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.energy import NodePower
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY, WEEK
from asa.lab.core.cluster import Association, Cluster, ClusterAccount, NodeWindow, Partition, Qos
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.dispatchers.predictors import DataDriven
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.traces.eurora import ALIKE, LONGEST_S, MEDIAN_S, RESOURCES, SHORT, SORTS, eurora, eurora_machine, run_time
from asa.lab.traces.lublin import ALL, BATCH, HOUR, INTERACTIVE, daily, distribution, lublin, popular, requested
from asa.lab.traces.patterns import Cycle, at_load, measure, offered_load, with_users, zipf
from asa.lab.traces.resample import pattern, sampled, synthetic, weeks
from asa.lab.traces.site import (
    FEWEST,
    SITES,
    JobClass,
    NodeKind,
    SiteModel,
    SiteWindow,
    draw,
    fit_site,
    measure_classes,
    sessions,
    site,
)
from asa.metrics.intensity import read_intensity
from tests.definitions import ROOT
from tests.lab.simulator.validate import violations
from tests.lab.traces.shared import swf_columns

# -- Lublin -----------------------------------------------------------------------------------------------------------

AUTHORS = {  # machine, kind: serial, powers of two among parallel, mean log2 size, mean ln(run + 1/2), quantiles of run
    (128, "all"): (0.2433, 0.8269, 2.3249, 5.4845, (7, 19, 108, 6992, 14613, 34028)),
    (256, "all"): (0.2443, 0.8139, 2.7553, 5.7206, (7, 21, 146, 8371, 15570, 34907)),
    (128, "interactive"): (0.1539, 0.8168, 2.2414, 2.9463, (3, 5, 13, 44, 181, 3617)),
    (128, "batch"): (0.2924, 0.9543, 2.4504, 6.9455, (27, 92, 824, 17891, 27699, 53525)),
}
AT = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@pytest.mark.parametrize(("cores", "kind"), AUTHORS)
def test_sizes_and_run_times_are_those_of_the_authors_program(cores, kind):
    serial, power, log_size, log_run, quantiles = AUTHORS[cores, kind]
    made = lublin(jobs=200_000, cores=cores, seed=7, kind=kind)
    size = made.cores
    assert (size == 1).mean() == pytest.approx(serial, abs=0.004)
    assert (size[size > 1] & (size[size > 1] - 1) == 0).mean() == pytest.approx(power, abs=0.004)
    assert np.log2(size).mean() == pytest.approx(log_size, abs=0.02)
    assert np.log(made.run + 0.5).mean() == pytest.approx(log_run, abs=0.03)
    assert np.quantile(made.run, AT) == pytest.approx(quantiles, rel=0.08)


def test_the_mean_run_time_grows_with_the_size_as_in_the_authors_program():
    made = lublin(jobs=300_000, cores=128, seed=1)
    for low, high, mean in ((1, 1, 3594.7), (2, 8, 3854.2), (9, 32, 4741.2), (33, 128, 9082.9)):
        assert made.run[(made.cores >= low) & (made.cores <= high)].mean() == pytest.approx(mean, rel=0.04)


def test_times_between_jobs_are_those_of_the_authors_program():
    made = lublin(jobs=300_000, cores=128, seed=2)
    pauses = np.diff(made.submit)
    assert np.quantile(pauses, AT) == pytest.approx((18, 41, 116, 377, 1238, 13443), rel=0.05)
    shape, scale = ALL.pause
    assert pauses.mean() == pytest.approx((1 - scale) ** -shape, rel=0.2), "less what is cut off at five days"


def test_both_kinds_come_mixed_as_in_the_authors_program():
    made = lublin(jobs=200_000, cores=128, seed=3, kind="both")
    assert (made.cores == 1).mean() == pytest.approx(0.1746, abs=0.006)
    assert np.quantile(made.run, AT[:4]) == pytest.approx((3, 6, 18, 88), rel=0.1)
    assert np.diff(made.submit).mean() == pytest.approx(527, rel=0.1)


@pytest.mark.parametrize("kind", [ALL, BATCH, INTERACTIVE])
def test_the_day_is_the_gamma_distribution_cut_into_half_hours(kind):
    """By brute force: a sum over a fine grid, wrapped around midnight."""
    shape, scale = kind.day
    x = np.arange(10.5, 58.5, 1e-3) + 5e-4
    density = x ** (shape - 1) * np.exp(-x / scale) / (math.gamma(shape) * scale**shape)
    bucket = (np.floor(x + 0.5).astype(int) - 1) % 48
    mass = np.bincount(bucket, density, minlength=48)
    assert daily(kind).weights == pytest.approx(tuple(mass / mass.mean()), rel=1e-4)


def test_most_jobs_come_after_noon_and_fewest_before_dawn():
    hours = np.bincount((lublin(jobs=100_000, cores=64, seed=4).submit % DAY // 3600).astype(int), minlength=24)
    assert 12 <= hours.argmax() <= 15
    assert 3 <= hours.argmin() <= 5
    assert hours.max() > 8 * hours.min()
    steady = lublin(jobs=100_000, cores=64, seed=4, daily_cycle=False)
    assert np.ptp(np.bincount((steady.submit % DAY // 3600).astype(int))) < 0.3 * 100_000 / 24


@settings(max_examples=40)
@given(
    st.integers(2, 2000),
    st.integers(2, 20_000),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["all", "batch", "interactive", "both"]),
    st.floats(0.1, 1.5),
)
def test_any_machine_and_load(jobs, cores, seed, kind, load):
    made = lublin(jobs=jobs, cores=cores, seed=seed, kind=kind, load=load)
    assert len(made) == jobs
    assert (np.diff(made.submit) >= 0).all()
    assert made.cores.min() >= 1
    assert made.cores.max() <= cores
    assert made.run.min() >= 1
    assert offered_load(made, cores) == pytest.approx(load, rel=1e-9)


def test_a_load_keeps_the_hours_of_the_day():
    made = lublin(jobs=50_000, cores=64, seed=5, load=0.5)
    hours = np.bincount((made.submit % DAY // 3600).astype(int), minlength=24)
    assert 12 <= hours.argmax() <= 15
    assert hours.max() > 6 * hours.min()


def test_a_seed_gives_the_same_jobs_and_another_seed_others():
    one, same, other = (lublin(jobs=500, cores=64, seed=s, estimates="modal", users=9) for s in (1, 1, 2))
    for column in ("submit", "run", "cores", "walltime", "user", "name"):
        assert (getattr(one, column) == getattr(same, column)).all()
        assert (getattr(one, column) != getattr(other, column)).any()


def test_requests_and_users_are_made_when_asked_for():
    made = lublin(jobs=500, cores=64, seed=1, estimates="uniform:5", users=10)
    assert (made.walltime >= made.run).all()
    assert (made.walltime % 60 == 0).all()
    assert set(made.user.tolist()) == set(range(10))


def test_bad_arguments_are_named():
    with pytest.raises(InvalidInput, match="two cores at least, not 0 and 8"):
        lublin(jobs=0, cores=8, seed=1)
    with pytest.raises(InvalidInput, match="two cores at least, not 5 and 1"):
        lublin(jobs=5, cores=1, seed=1)
    with pytest.raises(InvalidInput, match="did you mean 'batch'"):
        lublin(jobs=5, cores=8, seed=1, kind="batches")
    with pytest.raises(InvalidInput, match="load is -1"):
        lublin(jobs=5, cores=8, seed=1, load=-1)
    with pytest.raises(InvalidInput, match="no stretching"):
        lublin(jobs=1, cores=8, seed=1, load=0.5)


@pytest.mark.shared
def test_like_the_lublin_256_workload_that_others_use():
    log = swf_columns("lublin_256")
    made = lublin(jobs=10_000, cores=256, seed=1)
    for mine, theirs in ((made.run, log[:, 3]), (made.cores, log[:, 4]), (np.diff(made.submit), np.diff(log[:, 1]))):
        grid = np.unique(np.concatenate([mine, theirs]))
        steps = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (mine, theirs)]
        assert np.abs(steps[0] - steps[1]).max() < 1.95 * np.sqrt(2 / 10_000), "Kolmogorov-Smirnov, 0.1 %"


runs = st.lists(st.integers(0, 200_000), min_size=1, max_size=300).map(lambda run: np.array(run, dtype=float))


@settings(max_examples=60)
@given(runs, st.sampled_from(["exact", "uniform:1", "uniform:5", "modal", "modal:60"]), st.integers(0, 99))
def test_no_request_is_shorter_than_the_run(run, model, seed):
    asked = requested(model, run, np.random.default_rng(seed))
    assert (asked >= run).all()
    assert (asked > 0).all()
    assert (asked == requested(model, run, np.random.default_rng(seed))).all()


def test_exact_requests_are_the_run_times():
    assert requested("exact", np.array([0.0, 7.0]), np.random.default_rng(0)).tolist() == [1, 7]


def test_uniform_requests_are_spread_evenly_up_to_the_factor():
    factor = requested("uniform:3", np.full(50_000, 6e5), np.random.default_rng(1)) / 6e5
    assert np.quantile(factor, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([1, 1.5, 2, 2.5, 3], abs=0.02)


def test_modal_requests_are_few_and_round():
    run = np.exp(np.random.default_rng(2).normal(6, 2, 10_000)).clip(1, 60_000)
    asked = requested("modal:18", run, np.random.default_rng(3))
    values, counts = np.unique(asked, return_counts=True)
    assert len(values) <= 90, "as many as the paper says for 10,000 jobs"
    assert (values % 60 == 0).all()
    assert set(values[np.argsort(-counts)[:15]]) <= set(popular(18 * HOUR))
    assert values[counts.argmax()] == 18 * HOUR, "the longest is the most popular"
    assert np.sort(counts)[-20:].sum() == pytest.approx(8900, abs=150)


def test_the_popular_values_of_a_machine_with_a_limit_of_18_hours():
    head = popular(18 * HOUR)
    assert len(head) == 20
    assert head[0] == 18 * HOUR
    assert head[1:] == sorted(head[1:])
    assert {300, 900, 1800, 3600, 12 * HOUR, 15 * HOUR} <= set(head)


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_shares_sum_to_one_and_values_fall(jobs, hours):
    values, shares = distribution(jobs, hours * HOUR, np.random.default_rng(jobs))
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    assert (np.diff(values) < 0).all()
    assert values[0] == hours * HOUR


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("uniform", "after the colon"),
        ("uniform:x", "after the colon"),
        ("uniform:0.5", "after the colon"),
        ("modal:0", "after the colon"),
        ("modal:2", "longest run"),
        ("exactly", "did you mean 'exact'"),
        ("exact:3", "unknown model of requested times"),
    ],
)
def test_bad_models_are_named(model, words):
    with pytest.raises(InvalidInput, match=words):
        requested(model, np.array([10_000.0]), np.random.default_rng(0))


# -- Patterns ---------------------------------------------------------------------------------------------------------

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
    assert (after.name // 4 == after.user).all(), "four applications each, shared with no other user"


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


# -- Resample ---------------------------------------------------------------------------------------------------------

LOG = lublin(jobs=3000, cores=64, seed=1, load=0.7, estimates="uniform:5", users=20)
MAKERS = (sampled, synthetic)


def jobs_of(workload, *columns):
    return set(zip(*(getattr(workload, column).tolist() for column in columns), strict=True))


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_makes_the_same_jobs_of_a_log(make):
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


def test_bad_arguments_of_jobs_from_a_log_are_named():
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


# -- Eurora -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quarter() -> Workload:
    return eurora(seed=0)


def test_the_machine_is_that_of_the_paper() -> None:
    machine = eurora_machine()
    assert machine.resources == RESOURCES
    assert machine.capacity.sum(axis=0).tolist() == [1024, 64 * 16 * 2**30, 64, 64]
    assert ((machine.capacity[:, 2] > 0) ^ (machine.capacity[:, 3] > 0)).all(), "GPUs or MICs, never both"
    assert machine.capacity[0].tolist() == [16, 16 * 2**30, 2, 0]


def test_as_many_jobs_as_in_the_paper_and_as_short(quarter: Workload) -> None:
    assert len(quarter) == round(91 * 400_000 / 549)
    assert quarter.submit.min() >= 0 and quarter.submit.max() < 91 * DAY
    assert (quarter.run < 3600).mean() == pytest.approx(SHORT, abs=0.02)
    assert np.median(quarter.run) == pytest.approx(MEDIAN_S, rel=0.15)
    assert quarter.run.min() >= 1 and (quarter.run <= quarter.walltime).all() and quarter.walltime.max() <= DAY


def test_run_times_are_lognormal_and_cut() -> None:
    found = run_time(np.array([0.0, 0.5, SHORT, 1.0]))
    assert found[1:].tolist() == pytest.approx([MEDIAN_S, 3600.0, LONGEST_S])
    assert 0 < found[0] < 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_all_resources_are_in_demand_and_none_beyond_what_there_is(seed: int) -> None:
    made, machine = eurora(seed=seed), eurora_machine()
    work = ((made.run * made.units)[:, None] * made.demands[made.kind]).sum(axis=0)
    load = work / machine.capacity.sum(axis=0) / (91 * DAY)
    assert (load > 0.08).all() and (load < 0.5).all(), "peaks are what makes queues"
    most = 16 * 2**30
    assert (made.demands <= [16, most, 2, 2]).all()
    assert not (made.demands[:, 2] * made.demands[:, 3]).any()


def test_every_job_can_run_and_a_queue_forms() -> None:
    week = eurora(days=7, seed=2)
    schedule = simulate(week, eurora_machine(), "easy")
    assert schedule.ran.all()
    assert schedule.wait.max() > 3600


def test_there_is_something_to_learn(quarter: Workload) -> None:
    """Within an application run times differ far less than among all jobs."""
    codes, app = np.unique(quarter.kind, return_inverse=True)
    logs = np.log(quarter.run)
    means = np.bincount(app, logs) / np.bincount(app)
    within = np.median(np.abs(logs - means[app]))
    assert within < 0.4 * np.median(np.abs(logs - np.median(logs)))
    assert len(codes) > 200 and 0.5 < ALIKE < 1
    names = {quarter.label("name", row) for row in range(300)}
    assert any("-" in name for name in names) and any("-" not in name for name in names)
    assert quarter.label("user", 0).startswith("user")


def test_predictors_learn_from_it() -> None:
    """The data-driven heuristic is nearer to the run times than what users ask for."""
    week = eurora(days=7, seed=0)
    engine = Engine(week, eurora_machine(), MachineSettings(predictor=DataDriven()))
    DispatchLoop(engine, Easy()).run()
    expected = np.array(engine.state.jobs["estimate"][: len(week)])
    wrong = np.median(np.abs(np.log(expected / week.run)))
    assert wrong < 0.5 * np.median(np.abs(np.log(week.walltime / week.run)))


def test_seeds() -> None:
    one, again, other = eurora(days=3, seed=5), eurora(days=3, seed=5), eurora(days=3, seed=6)
    assert np.array_equal(one.run, again.run) and np.array_equal(one.submit, again.submit)
    assert not np.array_equal(one.run, other.run)
    assert sum(sort.share for sort in SORTS) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [{"days": 0.0}, {"jobs_a_day": -1.0}, {"jobs_a_day": 1e9}])
def test_numbers_out_of_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="from 1 to 10 million jobs"):
        eurora(seed=1, **wrong)


# -- Site -------------------------------------------------------------------------------------------------------------

SMALL = JobClass(3.0, cores=(1, 1, 2), walltime_s=(600.0, 3600.0), used=(0.1, 0.5), session=(1, 3))
LARGE = JobClass(1.0, cores=(64,), walltime_s=(7200.0,))


@given(st.integers(1, 500), st.integers(0, 10**6), st.floats(0, 1))
def test_drawn_jobs_are_within_their_class(sessions, seed, alike):
    drawn = draw((SMALL, LARGE), sessions, np.random.default_rng(seed), alike)
    assert set(drawn.session.tolist()) == set(range(sessions))
    small = drawn.kind == 0
    assert set(drawn.cores[small].tolist()) <= {1, 2}
    assert set(drawn.walltime[~small].tolist()) <= {7200.0}
    assert ((drawn.run >= 1) & (drawn.run <= drawn.walltime)).all()
    assert (drawn.run[small] <= 0.5 * drawn.walltime[small]).all()
    assert (drawn.run[small] >= np.floor(0.1 * drawn.walltime[small])).all()


def test_shares_are_of_sessions_and_means_as_computed():
    drawn = draw((SMALL, LARGE), 40_000, np.random.default_rng(1))
    kind = drawn.kind[np.flatnonzero(np.diff(drawn.session, prepend=-1))]
    assert (kind == 0).mean() == pytest.approx(0.75, abs=0.01)
    work = np.bincount(drawn.session, drawn.cores * drawn.run)
    for k, each in enumerate((SMALL, LARGE)):
        assert work[kind == k].mean() == pytest.approx(each.mean_work, rel=0.03)
    assert SMALL.mean_work == pytest.approx(4 / 3 * 2100 * 0.3 * 2)


def test_jobs_of_a_session_are_the_same_but_for_their_run_times():
    drawn = draw((SMALL,), 500, np.random.default_rng(2), alike=1.0)
    for column in (drawn.cores, drawn.walltime, drawn.run):
        spread = np.maximum.reduceat(column, np.searchsorted(drawn.session, np.arange(500)))
        assert (column == spread[drawn.session]).all()
    fresh = draw((SMALL,), 500, np.random.default_rng(2), alike=0.0)
    assert (np.diff(fresh.run)[np.diff(fresh.session) == 0] != 0).mean() > 0.8


def test_how_alike_a_session_is_changes_nothing_of_the_run_times_taken_together():
    quantiles = [
        np.quantile(draw((SMALL,), 60_000, np.random.default_rng(3), alike).run, [0.1, 0.5, 0.9])
        for alike in (0.0, 0.9)
    ]
    assert quantiles[0] == pytest.approx(quantiles[1], rel=0.03)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 10**6), st.sampled_from(["exact", "uniform:5"]))
def test_measured_classes_have_what_the_jobs_have(jobs, seed, estimates):
    log = lublin(jobs=jobs, cores=64, seed=seed, estimates=estimates)
    classes = measure_classes(log)
    assert sum(each.share for each in classes) == pytest.approx(1, abs=1e-4)
    assert {size for each in classes for size in each.cores} <= set(log.cores.tolist())
    assert {time for each in classes for time in each.walltime_s} <= set(log.walltime.tolist())
    if jobs >= FEWEST:
        assert min(each.share for each in classes) >= (FEWEST - 1) / jobs


def test_a_mixture_that_was_measured_draws_jobs_like_those_it_was_measured_on():
    log = lublin(jobs=20_000, cores=64, seed=1, estimates="modal")
    drawn = draw(measure_classes(log), 20_000, np.random.default_rng(5))
    for mine, theirs in ((drawn.run, log.run), (drawn.cores, log.cores), (drawn.walltime, log.walltime)):
        grid = np.unique(theirs)
        steps = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (mine, theirs)]
        assert np.abs(steps[0] - steps[1]).max() < 0.04
    assert (drawn.run * drawn.cores).mean() == pytest.approx(float((log.run * log.cores).mean()), rel=0.12)


def test_jobs_without_requests_or_beyond_them():
    log = Workload.of(submit=[0, 1, 2], run=[100, 0, 500], cores=[2, 2, 2], walltime=[np.nan, np.nan, 400])
    (each,) = measure_classes(log)
    assert each.walltime_s == (1.0, 100.0, 400.0)
    assert each.used == (0.0, 1.0, 1.0)


def test_a_session_speaks_once():
    log = Workload.of(submit=range(6), run=[60] * 6, cores=[1, 1, 1, 1, 8, 8], walltime=[60] * 6)
    (each,) = measure_classes(log, np.array([0, 0, 0, 0, 1, 2]))
    assert each.cores == (1, 8, 8)
    assert each.session == (1, 1, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 0},
        {"share": np.nan},
        {"cores": ()},
        {"cores": (0,)},
        {"walltime_s": (0.0,)},
        {"walltime_s": (np.inf,)},
        {"used": ()},
        {"used": (0.5, 0.4)},
        {"used": (-0.1, 1.0)},
        {"used": (0.0, 1.1)},
        {"session": (0,)},
    ],
)
def test_impossible_classes_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        JobClass(**({"share": 1.0, "cores": (1,), "walltime_s": (60.0,)} | wrong))


def test_no_jobs_no_mixture():
    with pytest.raises(InvalidInput, match="no jobs"):
        measure_classes(Workload.of(submit=[], run=[], cores=[]))


CLASSES = (
    JobClass(4.0, cores=(1, 2, 4), walltime_s=(1 * HOUR, 4 * HOUR), used=(0.0, 0.3, 1.0), session=(1, 5)),
    JobClass(1.0, cores=(16, 32), walltime_s=(12 * HOUR,), used=(0.5, 1.0)),
)
SITE = SiteModel("test", nodes=16, cores_per_node=8, load=0.8, classes=CLASSES, users=12)


def offered(workload, site, duration):
    return float(workload.run @ workload.cores) / (site.cores * duration)


@settings(max_examples=30, deadline=None)
@given(
    st.floats(HOUR, 40 * DAY),
    st.integers(0, 10**6),
    st.floats(0.1, 1.3),
    st.floats(0, 1),
    st.sampled_from([0.0, DAY, 3 * DAY]),
    st.sampled_from([(1.0,), (0.0, 1.0, 3.0)]),
)
def test_any_site_offers_its_load_within_the_time(duration, seed, load, swing, even, week):
    site = replace(SITE, load=load, swing=swing, even_s=even, week=week)
    made = site.workload(duration, seed)
    largest = 32 * 12 * HOUR / (site.cores * duration)
    assert load - 1e-9 <= offered(made, site, duration) <= load + largest
    assert (made.submit >= 0).all()
    assert (made.submit < duration).all()
    assert (np.diff(made.submit) >= 0).all()
    assert (made.run <= made.walltime).all()
    assert made.cores.max() <= site.cores


def test_a_seed_makes_the_same_jobs_of_a_site():
    one, same, other = (SITE.workload(5 * DAY, s) for s in (1, 1, 2))
    for column in ("submit", "run", "cores", "walltime", "user", "name"):
        assert (getattr(one, column) == getattr(same, column)).all()
    assert len(one) != len(other) or (one.run != other.run).any()


def test_sessions_follow_the_week_and_leave_out_what_it_leaves_out():
    site = replace(SITE, week=(1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0), gap_s=0.0)
    days = np.bincount((site.workload(8 * WEEK, 1).submit % WEEK // DAY).astype(int), minlength=7)
    assert not days[5:].any()
    assert days[:5] == pytest.approx(np.full(5, days.sum() / 5), rel=0.15)


def daily_work(site, seed=3):
    made = site.workload(140 * DAY, seed)
    return np.bincount((made.submit // DAY).astype(int), made.run * made.cores, minlength=140)


def test_swings_make_days_differ_and_resemble_their_neighbours():
    calm, wild = (daily_work(replace(SITE, swing=swing, swing_s=5 * DAY)) for swing in (0.0, 0.8))
    assert wild.std() > 2 * calm.std()
    assert np.corrcoef(wild[1:], wild[:-1])[0, 1] > 0.4
    assert abs(np.corrcoef(calm[1:], calm[:-1])[0, 1]) < 0.25


def test_budgets_make_days_alike():
    chance, even = (daily_work(replace(SITE, even_s=stretch, gap_s=0.0)) for stretch in (0.0, DAY))
    assert even.std() < 0.25 * chance.std()


def test_jobs_of_a_session_follow_each_other():
    site = replace(SITE, gap_s=30.0, classes=(replace(CLASSES[0], session=(50,)),), users=1000)
    made = site.workload(10 * DAY, 4)
    gaps = np.concatenate([np.diff(made.submit[made.user == user]) for user in np.unique(made.user)])
    assert np.median(gaps) == pytest.approx(30 * np.log(2), rel=0.1)


def test_users_have_applications_of_their_own():
    made = SITE.workload(10 * DAY, 5)
    assert set(made.user.tolist()) == set(range(12))
    assert (made.name % 12 == made.user).all()


def test_the_machine_and_its_limits():
    assert (SITE.cluster().nodes, SITE.cluster().cores) == (16, 128)
    assert SITE.longest_s == 12 * HOUR


def test_a_site_survives_being_written_and_read(tmp_path):
    site = replace(SITE, week=(1.0, 2.0), note="as it was")
    assert SiteModel.from_dict(json.loads(json.dumps(site.to_dict()))) == site
    site.write(tmp_path / "site.json")
    assert SiteModel.read(tmp_path / "site.json") == site


PARTS = {
    "short": Partition(tuple(range(16)), 4 * HOUR, HOUR, max_nodes=2, tier=3),
    "long": Partition((0, 1, 2, 3, 7, 9, 10)),
}
PARTED = replace(SITE, classes=(CLASSES[0], replace(CLASSES[1], partition="long")), partitions=PARTS)


def test_jobs_go_to_the_partitions_of_their_class(tmp_path):
    PARTED.write(tmp_path / "site.json")
    text = json.loads((tmp_path / "site.json").read_text())
    assert text["partitions"] == {
        "short": {
            "nodes": "n[0-15]", "max_time_s": 4 * HOUR, "default_time_s": HOUR, "max_nodes": 2, "tier": 3,
        },
        "long": {"nodes": "n[0-3,7,9-10]", "max_nodes": 0, "tier": 1},
    }  # fmt: skip
    assert SiteModel.read(tmp_path / "site.json") == PARTED
    jobs, cluster = PARTED.workload(DAY, seed=1), PARTED.cluster()
    assert list(cluster.partitions) == ["short", "long"]
    names = [jobs.label("partition", row) for row in range(len(jobs))]
    assert names == ["long" if cores >= 16 else "short" for cores in jobs.cores]
    plain = replace(PARTED, partitions={}, classes=CLASSES).workload(DAY, seed=1)
    assert np.array_equal(plain.submit, jobs.submit) and np.array_equal(plain.run, jobs.run)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"partitions": {"short": PARTS["short"]}}, "jobs for partition 'long': its own are short"),
        (
            {"classes": (replace(CLASSES[1]),)},
            "32 cores and 43200 s for partition 'short', which allows 16 cores and 14400",
        ),
        ({"partitions": {}}, "jobs for partition 'long': its own are none"),
        ({"partitions": {"long": Partition((16,))}}, "partition 'long' must name nodes between 0 and 15"),
    ],
)
def test_jobs_that_their_partition_would_refuse_are_no_model(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        replace(PARTED, **wrong)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nodes": [0, 1]}, "'a' has nodes \\[0, 1\\]: a list of hosts"),
        ({}, "'a' has nodes None: a list of hosts"),
        ({"nodes": "n[0-"}, "brackets do not match"),
        ({"nodes": "cn[0-3]"}, "'a' has node 'cn0': n0, n1"),
        ({"nodes": "n[0-3]", "max_time_s": "1h"}, "'a': max_time_s is"),
        ({"nodes": "n[0-3]", "max_time": 3600}, "'a': 'max_time' is none of"),
        ({"nodes": "n[0-3]", "tier": True}, "'a': tier is"),
        (3, "no site model"),
    ],
)
def test_a_partition_in_a_file_is_checked(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), "partitions": {"a": values}})


GIB = 2**30
KINDS = (
    NodeKind(tuple(range(12)), 8, 16 * GIB, features=("old",)),
    NodeKind((12, 13), 8, 64 * GIB, 2, ("new", "gpu")),
    NodeKind((14, 15), 32, 64 * GIB, features=("new",)),
)
OF_KINDS = replace(
    SITE,
    kinds=KINDS,
    classes=(
        replace(CLASSES[0], memory=4 * GIB),
        replace(CLASSES[1], unit=4, gpus=1, cores=(4, 8), constraint="gpu&new"),
        replace(CLASSES[1], constraint="new|old"),
    ),
)


def test_the_example_of_the_docs_is_a_site_of_two_kinds_of_nodes():
    page = (ROOT / "docs" / "howto" / "simulated-backend.md").read_text()
    example = json.loads("{" + re.search(r'```json\n("classes": [^`]*"kinds": [^`]*)```', page)[1] + "}")
    site = SiteModel.from_dict({**SITE.to_dict(), "nodes": 112, "cores_per_node": 28, **example})
    jobs, cluster = site.workload(DAY, seed=1), site.cluster()
    assert cluster.cores == 100 * 28 + 12 * 64
    made = simulate(jobs, cluster, "easy")
    assert made.ran.all() and len(jobs) > 10
    runs = [run for row in range(len(jobs)) for run in made.placements.of(row)]
    assert {int(cluster.name(node)[1:]) for run in runs for node in (run.first, run.last)} <= {*range(100, 112)}


def test_nodes_differ_and_jobs_ask_for_what_they_have(tmp_path):
    OF_KINDS.write(tmp_path / "site.json")
    text = json.loads((tmp_path / "site.json").read_text())
    assert text["kinds"] == [
        {"nodes": "n[0-11]", "cores": 8, "memory": "16384M", "features": ["old"]},
        {"nodes": "n[12-13]", "cores": 8, "memory": "65536M", "gpus": 2, "features": ["new", "gpu"]},
        {"nodes": "n[14-15]", "cores": 32, "memory": "65536M", "features": ["new"]},
    ]
    assert text["classes"][1] | {"unit": 4, "gpus": 1, "constraint": "gpu&new"} == text["classes"][1]
    assert text["classes"][0]["memory"] == "4096M" and "unit" not in text["classes"][0]
    assert SiteModel.read(tmp_path / "site.json") == OF_KINDS
    assert {"kinds", "unit", "memory"}.isdisjoint({*SITE.to_dict(), *SITE.to_dict()["classes"][0]})
    jobs, cluster = OF_KINDS.workload(DAY, seed=1), OF_KINDS.cluster()
    assert OF_KINDS.cores == cluster.cores == 176 and cluster.resources == ("cores", "memory", "gpus")
    assert cluster.features == {"old": tuple(range(12)), "new": (12, 13, 14, 15), "gpu": (12, 13)}
    needs = {(jobs.label("constraint", row), tuple(jobs.demands[jobs.kind[row]].tolist())) for row in range(len(jobs))}
    assert jobs.resources == cluster.resources
    assert needs == {("", (1, 4 * GIB, 0)), ("gpu&new", (4, 0, 1)), ("new|old", (1, 0, 0))}
    few = replace(OF_KINDS, kinds=(NodeKind((15,), 32),), classes=CLASSES)
    assert few.cluster().capacity.tolist() == [[8]] * 15 + [[32]], "nodes of no kind are as the site says"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kinds": (*KINDS, NodeKind((15,), 4, GIB))}, "nodes between 0 and 15, each of them once"),
        ({"kinds": (*KINDS[:2], NodeKind((15, 16), 4, GIB))}, "nodes between 0 and 15, each of them once"),
        ({"kinds": KINDS[:2]}, "memory of some nodes: of all of them, or of none"),
        ({"kinds": (), "classes": OF_KINDS.classes[1:]}, "jobs with 'gpus': its nodes have cores"),
        (
            {"classes": (replace(CLASSES[0], gres="gpu:h100:1"),)},
            "jobs with 'gpus:h100': its nodes have cores, memory, gpus",
        ),
        ({"classes": (replace(CLASSES[1], constraint="gpu"),)}, "jobs of 32 cores .* allows 16 cores"),
        ({"classes": (replace(CLASSES[0], memory=65 * GIB),)}, "jobs of 4 cores .* allows 0 cores"),
        ({"classes": (replace(CLASSES[0], constraint="a*b"),)}, "asks for constraint 'a\\*b'"),
    ],
)
def test_jobs_that_no_nodes_have_room_for_are_no_model(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        replace(OF_KINDS, **wrong)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kinds": [{"nodes": "n0", "cores": 4, "memory": 64}]}, "memory 64 has no unit"),
        ({"kinds": [{"nodes": "n0"}]}, r"kinds\[0\]: .*cores"),
        ({"kinds": [{"nodes": "n0", "cores": 0}]}, r"kinds\[0\]: 1 nodes of 0 cores"),
        ({"kinds": [{"nodes": "n0", "cores": 4, "features": "new"}]}, r"kinds\[0\]: features is 'new'"),
        (
            {"classes": [{"share": 1, "cores": [6], "unit": 4, "walltime_s": [60]}]},
            "cores \\(6,\\): multiples of its unit 4",
        ),
        ({"kinds": [{"nodes": "n0", "cores": 4, "memory": f"{2**30}T"}]}, "less than 2.62 of anything"),
        (
            {"kinds": [{"nodes": "n0", "cores": 4, "weight": -1}]},
            r"kinds\[0\]: 1 nodes .* weight -1: .*nothing below 0",
        ),
        ({"kinds": [{"nodes": "n0", "cores": 4, "gres": "gpu:a100:x:2"}]}, "gres 'gpu:a100:x:2': names and numbers"),
        ({"kinds": [{"nodes": "n0", "cores": 4, "gres": 2}]}, r"kinds\[0\]: gres is 2"),
        (
            {"classes": [{"share": 1, "cores": [4], "walltime_s": [60], "gres": "gpu:"}]},
            "gres 'gpu:': names and numbers",
        ),
    ],
)
def test_kinds_in_a_file_are_checked(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), **values})


def test_a_log_s_jobs_keep_what_they_ask_for():
    log = OF_KINDS.workload(60 * DAY, seed=2)
    made = fit_site(log, OF_KINDS.cluster(), "again")
    assert made.kinds == KINDS and made.cores_per_node == 8
    asked = {(each.unit, each.memory, each.gpus, each.constraint) for each in made.classes}
    assert asked == {(1, 4 * GIB, 0, ""), (4, 0, 1, "gpu&new"), (1, 0, 0, "new|old")}
    assert SiteModel.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    wide = replace(log, units=np.where(log.demands[log.kind, 1] > 0, 100, log.units))
    assert {each.memory for each in fit_site(wide, OF_KINDS.cluster(), "wide").classes if each.gpus == 0} == {0}, (
        "jobs of 100 cores have no room with 4 GiB for each"
    )
    unequal = fit_site(log.take(log.kind == log.kind[0]), Cluster(np.array([[64], [32]])), "x")
    assert [(kind.nodes, kind.cores) for kind in unequal.kinds] == [((0,), 64), ((1,), 32)]


def test_nodes_have_gpus_of_types_other_gres_and_weights(tmp_path):
    kinds = (
        NodeKind((0, 1), 8, gpus=1, gres="gpu:a100:2,gpu:t4:1,nvme:4", weight=9),
        NodeKind((2, 3), 8, gres="gpu:t4:2", weight=0),
        NodeKind((4,), 8, gres="nvme:1"),
    )
    asked = {"cores": (8, 16), "unit": 8}
    classes = (
        replace(CLASSES[0], gres="gpu:a100:1", **asked), replace(CLASSES[0], gpus=1, gres="gpu:t4:1", **asked),
        replace(CLASSES[0], gpus=1, **asked), replace(CLASSES[1], gres="nvme:1", cores=(2, 3)),
    )  # fmt: skip
    site = replace(SITE, kinds=kinds, classes=classes, partitions={"most": Partition((0, 1, 2, 3, 4, 5))})
    site.write(tmp_path / "site.json")
    assert SiteModel.read(tmp_path / "site.json") == site
    cluster = site.cluster()
    assert cluster.names == ("n2", "n3", *(f"n{node}" for node in range(4, 16)), "n0", "n1")
    assert cluster.partitions["most"].nodes == (0, 1, 2, 3, 14, 15)
    assert cluster.resources == ("cores", "gpus", "gpus:a100", "gpus:t4", "gres/nvme")
    assert cluster.capacity[[0, 2, 3, 14]].tolist() == [
        [8, 2, 0, 2, 0], [8, 0, 0, 0, 1], [8, 0, 0, 0, 0], [8, 4, 2, 1, 4],
    ]  # fmt: skip
    log = site.workload(60 * DAY, seed=2)
    columns = [log.resources.index(name) for name in cluster.resources]
    assert {tuple(need) for need in log.demands[:, columns].tolist()} == {
        (8, 1, 1, 0, 0), (8, 2, 0, 1, 0), (8, 1, 0, 0, 0), (1, 0, 0, 0, 1),
    }  # fmt: skip
    assert violations(simulate(log.between(0, DAY), cluster, "easy")) == []
    made = fit_site(log, cluster, "again")
    assert {(each.unit, each.gpus, each.gres) for each in made.classes} == {
        (8, 0, "gpu:a100:1"), (8, 1, "gpu:t4:1"), (8, 1, ""), (1, 0, "nvme:1"),
    }  # fmt: skip
    assert made.cluster().capacity.tolist() == cluster.capacity.tolist(), "numbers are in the order of weights"
    assert SiteModel.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_windows_have_seconds_or_dates(tmp_path):
    dated = SiteWindow("2026-11-27T08:00", "2026-11-27T10:00+01:00", (0, 1, 5), "pumps", ("ann",))
    site = replace(SITE, windows=(SiteWindow(60, 120.0), dated))
    site.write(tmp_path / "site.json")
    assert json.loads((tmp_path / "site.json").read_text())["windows"] == [
        {"start": 60, "end": 120.0},
        {"start": dated.start, "end": dated.end, "nodes": "n[0-1,5]", "name": "pumps", "users": ["ann"]},
    ]
    assert SiteModel.read(tmp_path / "site.json") == site
    eight = 1795766400.0  # 2026-11-27, 8 o'clock
    assert site.cluster(eight - 100).windows == (
        NodeWindow(60.0, 120.0), NodeWindow(100.0, 3700.0, (0, 1, 5), "pumps", ("ann",)),
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="window 'pumps' has the date 2026-11-27T08:00, and the jobs have none"):
        site.cluster()
    assert "windows" not in SITE.to_dict()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"start": 0, "end": 5, "nodes": "n[0-99]", "name": "w"}, "window 'w' must name nodes between 0 and 15"),
        ({"start": 0, "end": 5, "nodes": 3}, "windows\\[0\\] has nodes 3: a list of hosts"),
        ({"start": 0, "end": 5, "from": 3}, "windows\\[0\\]: 'from' is none of end, name, nodes, start, users"),
        ({"start": 5, "end": 5, "name": "w"}, "windows\\[0\\]: window 'w' has start 5 and end 5: two times in seconds"),
        ({"start": 0, "end": "2026-11-27T08:00"}, "two dates such as"),
        ({"start": "tomorrow", "end": "2026-11-27T08:00"}, "start 'tomorrow'"),
        ({"start": True, "end": 5}, "windows\\[0\\]: start is True"),
        ({"start": 0, "end": 5, "users": "ann"}, "windows\\[0\\]: users is 'ann'"),
        ({"start": 0}, "windows\\[0\\]"),
        (3, "windows\\[0\\] is 3: a JSON object"),
    ],
)
def test_a_window_in_a_file_is_checked(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), "windows": [values]})


SERVICES = {
    "normal": Qos(max_jobs_per_user=10, max_submit_jobs_per_user=100, max_cores_per_user=40, grp_cores=80, priority=1),
    "high": Qos(priority=5),
}


def test_jobs_have_the_qos_of_their_class(tmp_path):
    site = replace(SITE, classes=(CLASSES[0], replace(CLASSES[1], qos="high")), qos=SERVICES)
    site.write(tmp_path / "site.json")
    assert json.loads((tmp_path / "site.json").read_text())["qos"] == {
        "normal": {
            "max_jobs_per_user": 10, "max_submit_jobs_per_user": 100, "max_cores_per_user": 40, "grp_cores": 80,
            "priority": 1,
        },
        "high": {"priority": 5},
    }  # fmt: skip
    assert SiteModel.read(tmp_path / "site.json") == site
    assert site.cluster().qos == SERVICES
    jobs = site.workload(DAY, seed=1)
    names = [jobs.label("qos", row) for row in range(len(jobs))]
    assert names == ["high" if cores >= 16 else "normal" for cores in jobs.cores]
    assert "qos" not in SITE.to_dict()


def test_a_file_says_how_much_time_jobs_may_use(tmp_path):
    qos = {"a": Qos(grp_gpu_run_minutes=9, max_core_minutes=10**12, decays=False)}
    accounts = {"b": ClusterAccount(grp_core_minutes=5, user_limits={"ann": Association(grp_wall_minutes=60)})}
    model = replace(SITE, qos=qos, accounts=accounts, safe_limits=False)
    model.write(tmp_path / "site.json")
    assert SiteModel.read(tmp_path / "site.json") == model and not model.cluster().safe_limits
    assert "safe_limits" not in SITE.to_dict()
    for values, words in (
        ({"qos": {"a": {"decays": 1}}}, "QOS 'a': decays is 1: bool expected"),
        ({"qos": {"a": {"grp_cpu_minutes": 1}}}, "QOS 'a': 'grp_cpu_minutes' is none of decays, exempt_s, grp_core_m"),
        ({"accounts": {"a": {"grp_core_minutes": -1}}}, "account 'a': an account has grp_core_minutes -1: a whole num"),
    ):
        with pytest.raises(InvalidInput, match=words):
            SiteModel.from_dict(SITE.to_dict() | values)


def test_a_file_says_who_preempts_whom(tmp_path):
    qos = {"low": Qos(preempt_mode="requeue", exempt_s=60.0), "high": Qos(preempts=("low",))}
    off = replace(SITE, partitions={"a": Partition(tuple(range(16)), preempt_mode="cancel", exempt_s=9.0)})
    for model in (replace(SITE, qos=qos, requeue_delay_s=121.0), off):
        model.write(tmp_path / "site.json")
        assert SiteModel.read(tmp_path / "site.json") == model
        assert model.cluster().requeue_delay_s == model.requeue_delay_s
    assert off.to_dict()["partitions"]["a"]["preempt_mode"] == "cancel"
    assert "requeue_delay_s" not in SITE.to_dict()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"low": {"preempts": ["high"]}}, "QOS 'low' preempts 'high': a QOS that is there, with a preempt_mode"),
        ({"low": {"preempts": "high"}}, "QOS 'low': preempts is 'high'"),
        ({"low": {"preempt_mode": "suspend"}}, "QOS 'low': a QOS has preempt_mode 'suspend': requeue, cancel"),
        ({"low": {"max_jobs": 3}}, "QOS 'low': 'max_jobs' is none of decays, exempt_s, grp_core_minutes"),
        ({"low": {"grp_cores": "3"}}, "QOS 'low': grp_cores is '3': int expected"),
        ({"low": {"grp_cores": -3}}, "QOS 'low': a QOS has grp_cores -3: a whole number"),
        ({"low": 3}, "QOS 'low' is 3: a JSON object"),
        ({"low": {"grp_cores": 31}}, "jobs of 32 cores with QOS 'low', which allows 31"),
        ([3], "no site model"),
    ],
)
def test_a_qos_in_a_file_is_checked(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), "qos": values})


@pytest.mark.parametrize(("qos", "own"), [({"low": Qos()}, "low"), ({}, "none")])
def test_jobs_whose_qos_is_not_there_are_no_model(qos, own):
    with pytest.raises(InvalidInput, match=f"jobs with QOS 'high': its own are {own}"):
        replace(SITE, classes=(CLASSES[0], replace(CLASSES[1], qos="high")), qos=qos)


def test_users_are_in_the_accounts_of_their_site(tmp_path):
    accounts = {
        "root": ClusterAccount(users={"root": 1}),
        "a": ClusterAccount(3, users={"ann": 2}),
        "b": ClusterAccount(parent="a"),
    }
    site = replace(SITE, accounts=accounts)
    site.write(tmp_path / "site.json")
    assert json.loads((tmp_path / "site.json").read_text())["accounts"] == {
        "root": {"users": {"root": 1}}, "a": {"shares": 3, "users": {"ann": 2}}, "b": {"parent": "a"},
    }  # fmt: skip
    assert SiteModel.read(tmp_path / "site.json") == site
    assert site.cluster().accounts == accounts
    jobs = site.workload(DAY, seed=1)
    assert {jobs.label("group", row) for row in range(len(jobs))} == {"a", "b"}
    assert "accounts" not in SITE.to_dict() and (SITE.workload(DAY, seed=1).group == UNKNOWN).all()


def test_accounts_have_limits_and_take_the_jobs_that_they_allow(tmp_path):
    accounts = {
        "a": ClusterAccount(
            grp_jobs=9,
            max_cores=4,
            max_memory=2**32,
            max_gpus=0,
            user_limits={"ann": Association(max_jobs=2, grp_memory=1001)},
        ),
        "b": ClusterAccount(parent="a", max_cores=32),
    }
    site = replace(SITE, accounts=accounts)
    site.write(tmp_path / "site.json")
    assert json.loads((tmp_path / "site.json").read_text())["accounts"] == {
        "a": {
            "grp_jobs": 9,
            "max_cores": 4,
            "max_memory": "4096M",
            "max_gpus": 0,
            "user_limits": {"ann": {"max_jobs": 2, "grp_memory": "1001B"}},
        },
        "b": {"parent": "a", "max_cores": 32},
    }
    assert SiteModel.read(tmp_path / "site.json") == site
    jobs = site.workload(DAY, seed=1)
    assert jobs.cores[jobs.group == 0].max() <= 4 and {*jobs.group} == {0, 1}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"a": {"share": 3}}, "account 'a': 'share' is none of grp_core_minutes, grp_core_run_minutes, grp_cores"),
        ({"a": {"max_jobs": 1.5}}, "account 'a': max_jobs is 1.5: int expected"),
        ({"a": {"user_limits": 3}}, "account 'a': user_limits is 3"),
        ({"a": {"user_limits": {"ann": 3}}}, "account 'a', user 'ann' is 3: a JSON object"),
        (
            {"a": {"user_limits": {"ann": {"shares": 3}}}},
            "account 'a', user 'ann': 'shares' is none of grp_core_minutes",
        ),
        ({"a": {"user_limits": {"ann": {"max_jobs": -3}}}}, "user 'ann': an association has max_jobs -3: a whole"),
        ({"a": {"shares": -3}}, "account 'a': an account has shares -3: a whole number"),
        ({"a": {"users": ["ann"]}}, "account 'a': users is \\['ann'\\]"),
        ({"a": {"users": {"ann": 0.5}}}, "account 'a': user 'ann' of an account has shares 0.5: a whole number"),
        ({"a": {"parent": "b"}}, "account 'a' has parent 'b', which is not there"),
        ({"a": 3}, "account 'a' is 3: a JSON object"),
        ([3], "no site model"),
    ],
)
def test_an_account_in_a_file_is_checked(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), "accounts": values})


def test_windows_of_a_file_are_a_list():
    with pytest.raises(InvalidInput, match=r"windows is \{\}: a list expected"):
        SiteModel.from_dict({**SITE.to_dict(), "windows": {}})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"nodes": 0}, "0 nodes"),
        ({"users": 0}, "0 users"),
        ({"load": 0}, "load 0"),
        ({"load": np.nan}, "load nan"),
        ({"alike": 1.1}, "alike 1.1"),
        ({"gap_s": -1}, "gap_s -1"),
        ({"gap_s": np.inf}, "gap_s inf"),
        ({"swing": -1}, "swing -1"),
        ({"swing_s": 0}, "swing_s 0"),
        ({"even_s": -1}, "even_s -1"),
        ({"classes": ()}, "no job classes"),
        ({"nodes": 3}, "jobs of 32 cores, more than its machine's 24"),
        ({"week": (0.0,)}, "weights of at least 0"),
    ],
)
def test_impossible_sites_are_refused(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        replace(SITE, **wrong)


def test_a_site_has_power_and_a_grid(tmp_path):
    (tmp_path / "grid.csv").write_text("0,100\n3600,200\n")
    for power, grid in ((NodePower(90, 300, off_w=0.0), 0.0), (NodePower(0.0, 10.5), str(tmp_path / "grid.csv"))):
        site = replace(SITE, power=power, intensity=grid)
        site.write(tmp_path / "site.json")
        assert SiteModel.read(tmp_path / "site.json") == site
        assert site.cluster().power == power
    assert site.cluster().intensity.at([0, 3600, 7200]).tolist() == [100, 200, 100]
    (tmp_path / "site.json").write_text(json.dumps({**site.to_dict(), "intensity": "grid.csv"}))
    assert SiteModel.read(tmp_path / "site.json") == site
    assert SITE.cluster().power is None
    assert not {"power", "intensity"} & SITE.to_dict().keys()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"power": 3}, "power is 3: a JSON object expected"),
        ({"power": {"idle_w": 1}}, "power: .*busy_w"),
        ({"power": {"idle_w": 1, "busy_w": True}}, "power: busy_w is True: float expected"),
        ({"power": {"idle_w": 2, "busy_w": 1}}, "power: busy_w=1: a finite number of at least 2"),
        ({"power": {"idle_w": 2, "busy_w": 3, "max_w": 1}}, "power: 'max_w' is none of"),
        ({"intensity": -1}, "from 0 to 10000 g/kWh"),
        ({"intensity": [1]}, "intensity is"),
        ({"intensity": "no.csv"}, r"no\.csv cannot be read: No such file"),
    ],
)
def test_impossible_power_is_refused(values, words):
    with pytest.raises(InvalidInput, match=words):
        SiteModel.from_dict({**SITE.to_dict(), **values})


def test_a_trace_of_intensity_in_dates(tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text(
        "# of the grid\nDatetime (UTC),Carbon intensity\n\n2026-11-27T08:00,300\n2026-11-27T10:00+01:00, 310.5\n"
    )
    eight = 1795766400.0
    grid = read_intensity(path, eight - 60)
    assert (grid.times.tolist(), grid.g_per_kwh.tolist(), grid.repeats) == ([60, 3660, 7260], [300, 310.5], False)
    with pytest.raises(InvalidInput, match="has dates, and the jobs have none"):
        read_intensity(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 lines with an intensity: two or more"),
        ("time,g\n0,1\n", "1 lines with an intensity"),
        ("0,1\n0,2\n", "line 2: '0,2': a later time"),
        ("0,1\n5,2,3\n", "line 2: '5,2,3': 'TIME,G_PER_KWH' expected"),
        ("0,1\n\n5,-2\n", "line 3: '5,-2': .* of 0 to 10000 g/kWh"),
        ("0,1\n5,nan\n", "line 2"),
        ("0,1\ninf,3\n", "line 2"),
        ("0,1\nsoon,3\n", "line 2: 'soon,3'"),
        ("2026-11-27,x\n0,3\n", "line 1: '2026-11-27,x'"),
        ("0,1\n2026-11-27,3\n", "line 2: '2026-11-27,3': all times in seconds, or all of them dates"),
        ("time,g\ntime,g\n0,1\n", "line 2: 'time,g'"),
    ],
)
def test_what_is_no_trace_of_intensity_is_refused(tmp_path, text, words):
    (tmp_path / "grid.csv").write_text(text)
    with pytest.raises(InvalidInput, match=rf"grid\.csv.*{words}"):
        read_intensity(tmp_path / "grid.csv")


def test_a_trace_of_intensity_is_read_up_to_a_bound(tmp_path):
    with open(tmp_path / "grid.csv", "wb") as file:
        file.truncate(2**31)
    with pytest.raises(InvalidInput, match="more than 64 MiB"):
        read_intensity(tmp_path / "grid.csv")
    (tmp_path / "grid.csv").write_bytes(b"0,\xff\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_intensity(tmp_path / "grid.csv")


def test_impossible_workloads_are_refused():
    with pytest.raises(InvalidInput, match="workload over 0 s"):
        SITE.workload(0, 1)
    with pytest.raises(InvalidInput, match="10 million sessions"):
        replace(SITE, nodes=10**6).workload(1000 * DAY, 1)


def test_what_is_no_site_model_is_refused(tmp_path):
    good = SITE.to_dict()
    for wrong, words in (
        ({**good, "colour": 1}, "'colour' is none of"),
        ({**good, "classes": [{"size": 1}]}, "'size' is none of"),
        ({key: value for key, value in good.items() if key != "nodes"}, "nodes"),
        ({**good, "load": "high"}, "no site model"),
        ({**good, "classes": 3}, "no site model"),
    ):
        with pytest.raises(InvalidInput, match=words):
            SiteModel.from_dict(wrong)
    for text in ("{", "[1]", "3"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"bad\.json holds no site model"):
            SiteModel.read(tmp_path / "bad.json")
    no_load = {key: value for key, value in good.items() if key != "load"}
    for wrong, words in (
        ({**good, "power": {"idle_w": 90}}, "power: there is no busy_w: idle_w, busy_w expected"),
        (no_load, "there is no load: name, nodes, cores_per_node, load, classes expected"),
        ({**good, "classes": [{}]}, "there is no share, no cores, no walltime_s: share, cores, walltime_s expected"),
        ({**good, "kinds": [{"nodes": "n0"}]}, r"kinds\[0\]: there is no cores: nodes, cores expected"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(wrong))
        with pytest.raises(InvalidInput, match=rf"/bad\.json holds no site model: {words}$"):
            SiteModel.read(tmp_path / "bad.json")
    with pytest.raises(InvalidInput, match=r"nowhere\.json cannot be read: No such file or directory$"):
        SiteModel.read(tmp_path / "nowhere.json")


TABLE_1 = {  # cores: total waits [s] of Big Job for Montage, BLAST and Statistics
    "hpc2n": {28: (150, 70, 52), 56: (206, 133, 96), 112: (452, 165, 124)},
    "uppmax": {160: (1415, 7100, 2772), 320: (8135, 8133, 7935), 640: (10200, 10133, 10122)},
}


def waits(name, seed):
    """Mean waits of probes of an hour's wall time and a second's run time: of one core, and of Table 1's sizes."""
    model, sizes = SITES[name], (1, *TABLE_1[name])
    base = model.workload(18 * DAY, seed)
    times = np.arange(7 * DAY, 16 * DAY, HOUR)
    count = len(times) * len(sizes)
    jobs = Workload.of(
        submit=np.concatenate([base.submit, *(times + 900 * k for k in range(len(sizes)))]),
        run=np.concatenate([base.run, np.ones(count)]),
        cores=np.concatenate([base.cores, np.repeat(sizes, len(times))]),
        walltime=np.concatenate([base.walltime, np.full(count, HOUR)]),
        number=np.concatenate([np.zeros(len(base)), np.repeat(np.arange(1, len(sizes) + 1), len(times))]),
    )
    schedule = simulate(jobs, model.cluster(), model.dispatcher, priority=model.priority, keep_nodes=False)
    return [schedule.wait[jobs.number == k + 1].mean() for k in range(len(sizes))]


@pytest.mark.parametrize("name", SITES)
def test_jobs_wait_as_in_table_1(name):
    found = np.mean([waits(name, seed) for seed in range(5)], axis=0)
    for wait, (cores, published) in zip(found[1:], TABLE_1[name].items(), strict=True):
        assert wait == pytest.approx(np.mean(published), rel=0.6), cores
    assert (np.diff(found) > 0).all(), "larger jobs wait longer"
    assert found[0] < 60, "jobs of one core hardly wait"


@pytest.mark.parametrize(("name", "nodes", "cores", "load"), [("hpc2n", 602, 28, 0.775), ("uppmax", 486, 20, 0.963)])
def test_machines_and_loads_are_the_papers(name, nodes, cores, load):
    model = site(name)
    assert (model.nodes, model.cores_per_node, model.load) == (nodes, cores, load)
    jobs = model.workload(14 * DAY, 1)
    assert float(jobs.run @ jobs.cores) / (model.cores * 14 * DAY) == pytest.approx(load, rel=1e-3)
    assert type(model).from_dict(model.to_dict()) == model


def test_a_site_may_be_a_file(tmp_path):
    SITES["hpc2n"].write(tmp_path / "mine.json")
    assert site(str(tmp_path / "mine.json")) == SITES["hpc2n"]
    with pytest.raises(UnknownName, match="did you mean 'hpc2n'"):
        site("hpc2")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidInput, match="no site model"):
        site(str(tmp_path / "bad.json"))


CLASSES_of_fit = (
    JobClass(4.0, cores=(1, 2, 4), walltime_s=(1 * HOUR, 4 * HOUR), used=(0.0, 0.3, 1.0), session=(1, 1, 8)),
    JobClass(1.0, cores=(16, 32), walltime_s=(12 * HOUR,), used=(0.5, 1.0)),
)
WORKDAYS = tuple(float(1 + 3 * (day < 5) * (8 <= hour < 18)) for day in range(7) for hour in range(24))
TRUE = SiteModel(
    "true",
    64,
    8,
    load=0.7,
    classes=CLASSES_of_fit,
    week=WORKDAYS,
    gap_s=40.0,
    alike=0.8,
    swing=0.5,
    swing_s=4 * DAY,
    users=5000,
)


def test_a_site_is_found_again_in_its_own_workload():
    log = TRUE.workload(26 * WEEK, 1)
    found = fit_site(log, TRUE.cluster(), "found", dispatcher="fcfs", priority="multifactor")
    assert (found.nodes, found.cores_per_node, found.name) == (64, 8, "found")
    assert (found.dispatcher, found.priority) == ("fcfs", "multifactor")
    assert found.load == pytest.approx(0.7, rel=0.01)
    assert found.gap_s == pytest.approx(40, rel=0.1)
    assert found.alike == pytest.approx(0.8, abs=0.05)
    assert found.swing == pytest.approx(0.5, abs=0.12)
    assert found.swing_s == pytest.approx(4 * DAY, rel=0.5)
    assert np.corrcoef(found.week, WORKDAYS)[0, 1] > 0.9
    assert found.users == len(np.unique(log.user))


def test_what_was_measured_offers_the_same_kind_of_work():
    log = TRUE.workload(12 * WEEK, 2)
    again = fit_site(log, TRUE.cluster(), "again").workload(12 * WEEK, 3)
    assert len(again) == pytest.approx(len(log), rel=0.1)
    for column in ("cores", "run", "walltime"):
        mine, theirs = getattr(again, column), getattr(log, column)
        grid = np.unique(theirs)
        steps = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (mine, theirs)]
        assert np.abs(steps[0] - steps[1]).max() < 0.06
    large = [float((x.run * x.cores)[x.cores >= 16].sum() / (x.run * x.cores).sum()) for x in (log, again)]
    assert large[1] == pytest.approx(large[0], abs=0.05)


def test_steady_arrivals_have_no_swings():
    steady = replace(TRUE, swing=0.0, week=(1.0,)).workload(26 * WEEK, 1)
    assert fit_site(steady, TRUE.cluster(), "steady").swing < 0.1


def test_sessions_are_rows_of_one_users_same_jobs():
    log = Workload.of(
        submit=[0, 10, 20, 30, 40, 50, 2000, 2010],
        run=[1] * 8,
        cores=[1, 1, 1, 2, 1, 1, 1, 1],
        walltime=[60, 60, 60, 60, 60, 90, 90, np.nan],
        user=[1, 2, 1, 1, UNKNOWN, 2, 2, UNKNOWN],
    )
    label = sessions(log).tolist()
    assert label[0] == label[2], "another user's job in between does not matter"
    assert len({label[0], label[1], label[3], label[4], label[5], label[6], label[7]}) == 7
    twice = Workload.of(submit=[0, 5], run=[1, 1], cores=[1, 1], user=[3, 3])
    assert len(set(sessions(twice).tolist())) == 1, "requests that are both unknown are the same"


def test_short_logs_have_a_daily_cycle_at_most():
    log = lublin(jobs=400, cores=64, seed=1, load=0.6, estimates="uniform:3")
    made = fit_site(log.between(0, 3 * DAY), Cluster.of(64), "short")
    week = np.reshape(made.week, (7, 24))
    assert (week == week[0]).all()
    assert (made.swing, made.users) == (0.0, 1)


def test_logs_that_cannot_be_measured_are_refused():
    log = lublin(jobs=500, cores=64, seed=1, load=0.6)
    with pytest.raises(InvalidInput, match="too small for a model"):
        fit_site(log.take(range(99)), Cluster.of(64), "x")
    with pytest.raises(InvalidInput, match="too small for a model"):
        fit_site(log.between(0, HOUR * 3), Cluster.of(64), "x")
    with pytest.raises(InvalidInput, match=r"jobs of \d+ cores, more than the machine's 16"):
        fit_site(log, Cluster.of(16), "x")
