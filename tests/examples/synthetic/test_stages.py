import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="session")
def stages(load_example):
    return load_example("synthetic", "stages").stages


@given(first=st.integers(0, 5000), count=st.integers(0, 5000), rounds=st.integers(0, 10**6))
def test_the_closed_form(stages, first, count, rounds):
    values = [place % 1024 / 1024 + rounds / 4 for place in range(first, first + count)]
    assert stages.expected_sum(first, count, rounds) == math.fsum(values)


@pytest.mark.parametrize("floats", [1, 1023, 1024, 5000])
def test_fill(stages, tmp_path, floats):
    path = stages.fill(floats, tmp_path / "new")
    assert np.fromfile(path).tolist() == [place % 1024 / 1024 for place in range(floats)]


@pytest.mark.parametrize("parts", [1, 3, 7, 5001])
def test_parts_make_up_the_whole(stages, tmp_path, parts):
    path = stages.fill(5000, tmp_path)
    made = [stages.compute(part, parts, 5000, path, rounds=6, seconds=None) for part in range(parts)]
    assert sum(part["count"] for part in made) == 5000
    assert stages.summary(made) == {
        "floats": 5000,
        "operations": 4 * 6 * 5000,
        "sum": stages.expected_sum(0, 5000, 6),
    }


def test_seconds_decide_how_many_rounds(stages, tmp_path):
    path = stages.fill(2000, tmp_path)
    assert stages.compute(0, 2, 2000, path, rounds=5, seconds=0.0)["rounds"] == 0
    made = stages.compute(0, 2, 2000, path, rounds=0, seconds=0.02)
    assert made["rounds"] > 0
    assert made["sum"] == stages.expected_sum(0, 1000, made["rounds"])


def test_wrong_numbers_are_noticed(stages, tmp_path):
    path = stages.fill(2000, tmp_path)
    values = np.fromfile(path)
    values[1500] += 1 / 1024
    values.tofile(path)
    assert stages.compute(0, 2, 2000, path, rounds=3, seconds=None)["rounds"] == 3
    with pytest.raises(ArithmeticError, match=r"numbers 1000 to 2000 of .*floats.bin sum to .* after 3 rounds"):
        stages.compute(1, 2, 2000, path, rounds=3, seconds=None)


def test_a_file_that_is_too_short_is_noticed(stages, tmp_path):
    path = stages.fill(1000, tmp_path)
    with pytest.raises(ArithmeticError, match="is this the file that the first stage wrote"):
        stages.compute(1, 2, 2000, path, rounds=3, seconds=None)
