from dataclasses import replace

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.fit import fit_site, sessions
from asa.lab.traces.lublin import lublin
from asa.lab.traces.mixture import JobClass
from asa.lab.traces.site import Site

CLASSES = (
    JobClass(4.0, cores=(1, 2, 4), walltime_s=(1 * HOUR, 4 * HOUR), used=(0.0, 0.3, 1.0), session=(1, 1, 8)),
    JobClass(1.0, cores=(16, 32), walltime_s=(12 * HOUR,), used=(0.5, 1.0)),
)
WORKDAYS = tuple(float(1 + 3 * (day < 5) * (8 <= hour < 18)) for day in range(7) for hour in range(24))
TRUE = Site(
    "true",
    64,
    8,
    load=0.7,
    classes=CLASSES,
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
