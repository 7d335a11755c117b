import gzip

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.traces.patterns import offered_load
from asa.lab.traces.tjap import uniform
from tests.lab.traces.shared import shared_file


def test_ranges_are_those_of_the_paper_and_all_values_equally_likely():
    made = uniform(seed=1)
    assert len(made) == 100_000
    for values, low, high in ((made.cores, 1, 40), (made.run, 10, 1800), (np.diff(made.submit), 5, 30)):
        counts = np.bincount(values.astype(int))
        assert not counts[:low].any()
        assert len(counts) == high + 1
        expected = len(values) / (high - low + 1)
        assert np.abs(counts[low:] - expected).max() < 5 * np.sqrt(expected)
    assert (made.walltime == made.run).all()


def test_a_thousand_nodes_are_offered_six_percent_too_much():
    assert offered_load(uniform(seed=2), 1000) == pytest.approx(1.06, abs=0.01)


def test_ranges_and_requests_can_be_chosen():
    made = uniform(200, seed=3, nodes=(2, 2), run=(60, 60), pause=(0, 0), estimates="uniform:2")
    assert set(made.cores.tolist()) == {2}
    assert set(made.submit.tolist()) == {0.0}
    assert set(made.walltime.tolist()) <= {60.0, 120.0}
    assert (uniform(50, seed=3).run == uniform(50, seed=3).run).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"nodes": (0, 4)}, "nodes from 0 to 4"),
        ({"run": (9, 3)}, "run from 9 to 3"),
        ({"pause": (-1, 3)}, "pause from -1"),
        ({"jobs": 0}, "0 jobs"),
    ],
)
def test_bad_ranges_are_named(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        uniform(**({"jobs": 5} | wrong), seed=1)


@pytest.mark.shared
def test_like_the_authors_own_file():
    with gzip.open(shared_file("tjap", "hpcschedule-workload-100k.txt.gz"), "rt") as file:
        log = np.loadtxt(file)
    made = uniform(seed=1)
    assert (log[:, 2].min(), log[:, 2].max(), log[:, 3].min(), log[:, 3].max()) == (10, 1800, 1, 40)
    assert made.submit[-1] == pytest.approx(log[-1, 1], rel=0.005)
    assert float(made.run @ made.cores) == pytest.approx(float(log[:, 2] @ log[:, 3]), rel=0.01)
