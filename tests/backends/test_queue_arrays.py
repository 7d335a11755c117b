from __future__ import annotations

import pytest

from asa.backends.queue import Queue
from asa.core.errors import BackendError
from asa.core.job import JobChanges, JobHandle, Resources
from asa.lab.dispatchers.backfill import Easy
from tests.backends.queues import CAPACITY, array, put, request, started


def test_elements_have_places_of_their_own_and_names_hold_for_one_call() -> None:
    queue = Queue(CAPACITY, Easy())
    first = array(queue, request("a"), request("b", walltime_s=5.0))
    alone, *second = queue.submit([request("c"), *(request(name, array="a") for name in "de")], 0.0)
    assert [handle.array_index for handle in first] == [0, 1]
    assert [outcome.array_index for outcome in (alone, *second) if isinstance(outcome, JobHandle)] == [None, 0, 1]
    assert started(queue, 0.0) == ["a", "c", "d"], "one of each array"
    assert queue.status(first[1]).reason == "JobArrayTaskLimit"
    assert queue.status(first[1]).ages_since == 0.0


def test_a_throttle_counts_what_runs_and_what_goes_next() -> None:
    queue = Queue(CAPACITY, Easy())
    first, second, third = array(queue, request("a", cores=3), request("b", cores=2), request("c", walltime_s=99.0))
    assert started(queue, 0.0) == ["a"]
    queue.update(third, JobChanges(throttle=2))
    assert started(queue, 1.0) == [], "it is the turn of b, for which there is no room"
    assert [queue.status(handle).reason for handle in (second, third)] == ["Resources", "JobArrayTaskLimit"]
    queue.update(second, JobChanges(begin=50.0))
    assert started(queue, 2.0) == ["c"], "who waits for a time takes no room"
    queue.update(first, JobChanges(throttle=1))
    queue.ended(first.job_id, 3.0, 0)
    assert started(queue, 51.0) == [], "c runs"
    assert [entry.job_id for entry in queue.cancel(third, 52.0)] == [third.job_id]
    queue.ended(third.job_id, 53.0, None)
    assert started(queue, 53.0) == ["b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (JobChanges(throttle=0), "at least 1 element may run, not 0"),
        (JobChanges(throttle=2, resources=Resources(cores=5)), "5 cores"),
    ],
)
def test_a_throttle_that_cannot_be_is_refused_and_nothing_changes(changes: JobChanges, words: str) -> None:
    queue = Queue(CAPACITY, Easy())
    first, second = array(queue, request("a"), request("b"))
    with pytest.raises(BackendError, match=words):
        queue.update(second, changes)
    assert started(queue, 0.0) == ["a"]
    queue.ended(first.job_id, 1.0, 0)
    assert started(queue, 1.0) == ["b"]


def test_a_throttle_needs_an_array_that_lives() -> None:
    queue = Queue(CAPACITY, Easy())
    alone = put(queue, request("alone"))
    with pytest.raises(BackendError, match="'alone' cannot be changed: it is no element"):
        queue.update(alone, JobChanges(throttle=2))
    first, second = array(queue, request("a"), request("b"))
    queue.tick(0.0)
    queue.ended(first.job_id, 1.0, 0)
    queue.cancel(second, 1.0)
    with pytest.raises(BackendError, match="have all ended"):
        queue.update(first, JobChanges(throttle=2))
    with pytest.raises(BackendError, match="'a' is completed"):
        queue.update(first, JobChanges(throttle=2, begin=5.0))
