import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.site import FEWEST, SITES, JobClass, SiteModel, draw, fit_site, measure_classes, sessions, site

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


def test_a_seed_gives_the_same_jobs_and_another_seed_others():
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
    with pytest.raises(InvalidInput, match="equal nodes"):
        fit_site(log, Cluster(np.array([[64], [32]])), "x")
