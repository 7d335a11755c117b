import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.traces.mixture import JobClass
from asa.lab.traces.site import Site

CLASSES = (
    JobClass(4.0, cores=(1, 2, 4), walltime_s=(1 * HOUR, 4 * HOUR), used=(0.0, 0.3, 1.0), session=(1, 5)),
    JobClass(1.0, cores=(16, 32), walltime_s=(12 * HOUR,), used=(0.5, 1.0)),
)
SITE = Site("test", nodes=16, cores_per_node=8, load=0.8, classes=CLASSES, users=12)


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
    assert Site.from_dict(json.loads(json.dumps(site.to_dict()))) == site
    site.write(tmp_path / "site.json")
    assert Site.read(tmp_path / "site.json") == site


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
            Site.from_dict(wrong)
    for text in ("{", "[1]", "3"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"bad\.json holds no site model"):
            Site.read(tmp_path / "bad.json")
    with pytest.raises(InvalidInput, match=r"nowhere\.json cannot be read: No such file or directory$"):
        Site.read(tmp_path / "nowhere.json")
