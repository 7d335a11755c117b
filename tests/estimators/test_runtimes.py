import math

import pytest

from asa.core.errors import InvalidInput
from asa.core.ports import RunTimePredictor
from asa.estimators.runtimes import LastTwo
from asa.log.database import LearnedStore


@pytest.fixture
def predictor(tmp_path):
    return LastTwo(LearnedStore(tmp_path / "learned.db"))


def test_the_wall_time_until_something_is_known(predictor):
    port: RunTimePredictor = predictor
    assert port.predict("montage/project", 3600.0) == 3600.0


def test_mean_of_the_last_two_of_that_key(predictor):
    predictor.learn("a", 100.0)
    assert predictor.predict("a", 3600.0) == 100.0
    predictor.learn("a", 200.0)
    predictor.learn("a", 400.0)
    predictor.learn("b", 1.0)
    assert predictor.predict("a", 3600.0) == 300.0


def test_never_above_the_wall_time(predictor):
    predictor.learn("a", 500.0)
    assert predictor.predict("a", 60.0) == 60.0


def test_shared_through_the_store(predictor, tmp_path):
    predictor.learn("a", 0.0)
    assert LastTwo(LearnedStore(tmp_path / "learned.db")).predict("a", 60.0) == 0.0


@pytest.mark.parametrize("run_time_s", [-1.0, math.inf, math.nan])
def test_run_times_that_are_none(predictor, run_time_s):
    with pytest.raises(InvalidInput, match="run_time_s"):
        predictor.learn("a", run_time_s)
    with pytest.raises(InvalidInput, match="walltime_s"):
        predictor.predict("a", 0.0)
