import pytest

from coscheduler.nouns import SharedRun
from coscheduler.profiles import ApplicationProfile, CoreUse, Profiles


def run(cores, run_time_s, parallel, cpu_s):
    return SharedRun("job", "app", cores, 1000.0, run_time_s, run_time_s, cpu_s, parallel, 0.1)


def test_what_one_size_tells_about_another():
    """A hundred seconds on one core, and two hundred core-seconds that may be shared out."""
    profiles = Profiles()
    profiles.learn(run(4, 150.0, 50 / 150, 300.0))
    assert profiles["app"].use(4) == (pytest.approx(1 / 3), pytest.approx(1.0))
    for cores in (2, 8, 16):
        assert profiles["app"].use(cores).parallel == pytest.approx(200 / cores / (100 + 200 / cores))
    profiles.learn(run(16, 112.5, 0.2, 300.0))
    assert profiles["app"].use(16).parallel == pytest.approx(0.2), "it was seen"
    assert profiles["app"].use(12).parallel == pytest.approx(0.2 * 16 / 12 / (0.2 * 16 / 12 + 0.8)), "the nearest"


def test_jobs_of_one_core_tell_nothing_about_larger_ones():
    profiles = Profiles()
    profiles.learn(run(1, 300.0, 1.0, 300.0))
    assert profiles["app"].use(8) == CoreUse()
    assert profiles["app"].use(1) == (1.0, 1.0)


def test_nobody_knows_it():
    assert Profiles()["new"].use(4) == CoreUse()
    assert Profiles()["new"].use(1) == (1.0, 1.0)


def test_memory_is_the_most_and_state_comes_back():
    profiles = Profiles()
    profiles.learn(run(4, 150.0, 0.5, 300.0))
    profiles.learn(SharedRun("job", "app", 4, 1000.0, 200.0, None, 300.0, 0.5, 0.7))
    other = Profiles()
    other.restore(profiles.state())
    assert other.state() == profiles.state()
    assert isinstance(other["app"], ApplicationProfile) and other.arrays([("app", 4)]).shape == (3, 1)
