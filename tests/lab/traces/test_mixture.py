import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload
from asa.lab.traces.lublin import lublin
from asa.lab.traces.mixture import FEWEST, JobClass, draw, measure_classes

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
