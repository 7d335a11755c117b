import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload
from asa.lab.traces.lublin import lublin
from asa.lab.traces.users import with_users, zipf


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
