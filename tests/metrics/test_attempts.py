from __future__ import annotations

from dataclasses import replace

import numpy as np

from asa.core.event import Event, TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.run import FoldedRun, TaskOutcome
from asa.metrics.attempts import Attempt, attempts_of
from asa.testing.runlogs import run_begins, stage_spec


def collected(*events: Event) -> FoldedRun:
    run = FoldedRun()
    for event in (
        *run_begins(*(replace(stage_spec(name, 4, 3), task=Resources(cores)) for name, cores in (("a", 2), ("b", 4)))),
        *(
            events
            or (
                TaskDone(20.0, "a", 0, "j0", "n0", 10.0),
                TaskFailed(25.0, "b", 1, "j1", "n1", 15.0, "no"),
                TaskFailed(30.0, "a", 1, "j0", "n0", 10.0, "node lost", infrastructure=True),
            )
        ),
    ):
        run.on(event)
    return run


def test_rows_come_back_in_order() -> None:
    assert list(attempts_of(collected())) == [
        Attempt("a", 0, "j0", "n0", 2, 10.0, 20.0, TaskOutcome.DONE),
        Attempt("b", 1, "j1", "n1", 4, 15.0, 25.0, TaskOutcome.FAILED),
        Attempt("a", 1, "j0", "n0", 2, 10.0, 30.0, TaskOutcome.LOST),
    ]


def test_attempts_of_an_allocation() -> None:
    attempts = attempts_of(collected())
    assert attempts.rows_of("j0").tolist() == [0, 2]
    assert attempts.rows_of("j1").tolist() == [1]
    assert attempts.rows_of("j9").tolist() == []
    assert [attempt.stage for attempt in attempts.take(attempts.rows_of("j1"))] == ["b"]


def test_core_seconds_within_a_window() -> None:
    attempts = attempts_of(collected())
    assert attempts.core_seconds().tolist() == [20.0, 40.0, 40.0]
    assert attempts.core_seconds(12.0, 18.0).tolist() == [12.0, 12.0, 12.0]
    assert attempts.core_seconds(28.0, 99.0).tolist() == [0.0, 0.0, 4.0]


def test_attempt_never_ends_before_it_starts() -> None:
    early = collected(TaskDone(9.99, "a", 0, "j0", "n0", 10.0))
    assert attempts_of(early).core_seconds().tolist() == [0.0]


def test_frozen_columns_do_not_grow_with_the_log() -> None:
    run = collected()
    attempts = attempts_of(run)
    run.on(TaskDone(40.0, "a", 2, "j0", "n0", 30.0))
    assert len(attempts) == 3 and len(attempts_of(run)) == 4


def test_nothing_collected() -> None:
    attempts = attempts_of(FoldedRun())
    assert len(attempts) == 0 and np.sum(attempts.core_seconds()) == 0.0 and attempts.rows_of("j0").size == 0
