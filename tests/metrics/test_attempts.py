from __future__ import annotations

import numpy as np

from asa.core.event import TaskDone, TaskFailed
from asa.metrics.attempts import Attempt, AttemptLog, Outcome


def collected() -> AttemptLog:
    log = AttemptLog()
    log.add(TaskDone(20.0, "a", 0, "j0", "n0", 10.0), 2)
    log.add(TaskFailed(25.0, "b", 1, "j1", "n1", 15.0, "no"), 4)
    log.add(TaskFailed(30.0, "a", 1, "j0", "n0", 10.0, "node lost", infrastructure=True), 2)
    return log


def test_rows_come_back_in_order() -> None:
    assert list(collected().freeze()) == [
        Attempt("a", 0, "j0", "n0", 2, 10.0, 20.0, Outcome.DONE),
        Attempt("b", 1, "j1", "n1", 4, 15.0, 25.0, Outcome.FAILED),
        Attempt("a", 1, "j0", "n0", 2, 10.0, 30.0, Outcome.LOST),
    ]


def test_attempts_of_an_allocation() -> None:
    attempts = collected().freeze()
    assert attempts.rows_of("j0").tolist() == [0, 2]
    assert attempts.rows_of("j1").tolist() == [1]
    assert attempts.rows_of("j9").tolist() == []
    assert [attempt.stage for attempt in attempts.take(attempts.rows_of("j1"))] == ["b"]


def test_core_seconds_within_a_window() -> None:
    attempts = collected().freeze()
    assert attempts.core_seconds().tolist() == [20.0, 40.0, 40.0]
    assert attempts.core_seconds(12.0, 18.0).tolist() == [12.0, 12.0, 12.0]
    assert attempts.core_seconds(28.0, 99.0).tolist() == [0.0, 0.0, 4.0]


def test_attempt_never_ends_before_it_starts() -> None:
    log = AttemptLog()
    log.add(TaskDone(9.99, "a", 0, "j0", "n0", 10.0), 1)
    assert log.freeze().core_seconds().tolist() == [0.0]


def test_frozen_columns_do_not_grow_with_the_log() -> None:
    log = collected()
    attempts = log.freeze()
    log.add(TaskDone(40.0, "a", 2, "j0", "n0", 30.0), 1)
    assert len(attempts) == 3 and len(log.freeze()) == 4


def test_nothing_collected() -> None:
    attempts = AttemptLog().freeze()
    assert len(attempts) == 0 and np.sum(attempts.core_seconds()) == 0.0 and attempts.rows_of("j0").size == 0
