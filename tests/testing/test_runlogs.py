"""What no event log can say."""

from __future__ import annotations

from asa.core.event import Event, ResultsLost, TaskDone, TasksLaunched
from asa.testing.runlogs import contradictions


def launched(allocation: str) -> Event:
    return TasksLaunched(1.0, "s", ((0, 1),), allocation)


def done(allocation: str) -> Event:
    return TaskDone(2.0, "s", 0, allocation, "n1", 1.0)


def test_one_result_of_each_launch() -> None:
    """The first allocation was given up, and its result came in after all, before or after that of the second."""
    for order in ("a", "b"), ("b", "a"):
        assert not list(contradictions([launched("a"), launched("b"), *map(done, order)]))


def test_two_results_of_one_launch() -> None:
    assert list(contradictions([launched("a"), done("a"), done("a")])) == ["has two results of s-0"]
    assert list(contradictions([launched("a"), done("a"), done("b")])) == ["has two results of s-0"]


def test_a_task_runs_again_only_where_its_result_was_lost() -> None:
    again = [launched("a"), done("a"), launched("b")]
    assert list(contradictions(again)) == ["ran again what was done: [('s', 0)]"]
    again.insert(2, ResultsLost(3.0, (("s", 0),), "damaged"))
    assert not list(contradictions([*again, done("b")]))
