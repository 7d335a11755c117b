import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.traces.lublin import ALL, BATCH, HOUR, INTERACTIVE, daily, distribution, lublin, popular, requested
from asa.lab.traces.patterns import offered_load
from tests.lab.traces.shared import swf_columns

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
def test_nobody_requests_less_than_the_job_runs(run, model, seed):
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
