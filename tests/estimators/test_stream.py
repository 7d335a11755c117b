import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.stream import Stream


@given(st.integers(0, 2**64), st.lists(st.integers(0, 200), max_size=6), st.integers(0, 50))
def test_a_stream_resumes_from_two_integers(seed, draws, more):
    stream = Stream(seed=seed, key=3)
    for count in draws:
        stream.draw(count)
    resumed = Stream.resume(json.loads(json.dumps(stream.state())), key=3)
    assert resumed.draw(more) == stream.draw(more)
    assert resumed.state() == stream.state()


def test_drawing_singly_is_drawing_together():
    single, together = Stream(seed=1, key=0), Stream(seed=1, key=0)
    assert [single.draw(1)[0] for _ in range(100)] == together.draw(100)


def test_keys_and_seeds_give_other_numbers():
    assert Stream(seed=1, key=0).draw(4) != Stream(seed=1, key=1).draw(4)
    assert Stream(seed=1, key=0).draw(4) != Stream(seed=2, key=0).draw(4)


def test_numbers_are_uniform():
    numbers = np.array(Stream(seed=5, key=0).draw(20_000))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.histogram(numbers, bins=10, range=(0, 1))[0] == pytest.approx(2000, abs=200)


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"seed": 1, "draws": -1}])
def test_seed_and_draws_are_integers_of_0_or_more(options):
    with pytest.raises(InvalidInput, match="expected an integer of 0 or more"):
        Stream(key=0, **options)
