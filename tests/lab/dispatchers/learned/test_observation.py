from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.dispatchers.learned.observation import Rows, job_rows, node_rows, observe, one_by_one
from asa.lab.dispatchers.learned.queue import Queue

QUEUE = Queue(
    now=1000.0,
    keys=["A", "B", "C"],
    size=np.array([4, 1, 2]),
    estimate=np.array([3600.0, 60.0, 86400.0]),
    wait=np.array([500.0, 10.0, 0.0]),
    priority=np.array([1.0, 0.0, 0.0]),
    free=2,
    total=6,
    ends=np.array([1300.0, 1100.0]),
    held=np.array([2, 1]),
)
NODES = [[1, 0], [1, 0], [0, 100], [0, 300], [0, 300], [0, 0]]
"""Two are free, one is back at 1100, two at 1300, and one is down."""


def test_a_hand_written_example() -> None:
    seen = observe(QUEUE, np.array([0, 1]), window=3)
    jobs = [[4, 3600], [1, 500], [1, 60], [0, 10], [0, 0], [0, 0]]
    assert seen.tolist() == jobs + NODES and seen.dtype == np.float32 and seen.shape == (2 * 3 + 6, 2)


def test_it_shows_the_jobs_at_these_places() -> None:
    assert observe(QUEUE, np.array([2]), window=1)[:2].tolist() == [[2, 86400], [0, 0]]


def test_shares_are_of_the_machine_and_of_a_day() -> None:
    seen = observe(QUEUE, np.array([0, 2]), window=2, scaling="shares")
    assert seen[:4] == pytest.approx(np.array([[4 / 6, 1 / 24], [1, 500 / 86400], [2 / 6, 1], [0, 0]]))
    assert seen[4:] == pytest.approx(np.array(NODES) / [1, 86400])


def test_each_job_on_its_own_with_all_nodes() -> None:
    seen = one_by_one(observe(QUEUE, np.arange(3), window=3), window=3)
    assert seen.shape == (3, 2 + 6, 2)
    assert seen[1].tolist() == [[1, 60], [0, 10], *NODES]


def test_nothing_waits_and_nothing_runs() -> None:
    none = np.zeros(0)
    assert not job_rows(none.astype(int), none, none, none, window=2).any()
    assert node_rows(5.0, 3, 3, none, none.astype(int)).tolist() == [[1, 0]] * 3


def test_the_paper_s_shapes() -> None:
    """Table III: [4460, 2] and [4362, 2] on Theta."""
    none = np.zeros(0)
    theta = Queue(0.0, [], none.astype(int), none, none, none, 4360, 4360, none, none.astype(int))
    seen = observe(theta, none.astype(int), window=50)
    assert seen.shape == (4460, 2) and one_by_one(seen, 50).shape == (50, 4362, 2)


def test_an_unknown_scaling() -> None:
    with pytest.raises(UnknownName, match="raw, shares"):
        observe(QUEUE, np.array([0]), window=1, scaling="share")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"window": 0}, InvalidInput, "the window must have room for at least 1 job, not 0"),
        ({"scaling": "rwa"}, UnknownName, "unknown scaling 'rwa'.*did you mean 'raw'"),
    ],
)
def test_sights_that_make_no_sense_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        Rows(**options)
