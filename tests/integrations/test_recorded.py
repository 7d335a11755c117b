from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.core.event import RunEnded, RunState, StageExpanded, TaskDone, TaskFailed
from asa.integrations.recorded import identifiers, recorded
from asa.testing.runlogs import run_begins, stage_spec

BEGUN = run_begins(stage_spec("a", 1, None))


def test_the_width_of_a_stage_is_what_became_known_of_it() -> None:
    assert list(recorded(BEGUN).tasks("a")) == []
    assert list(recorded([*BEGUN, StageExpanded(2.0, "a", 3)]).tasks("a")) == [0, 1, 2]


def test_a_task_that_returned_stands_whatever_is_told_later() -> None:
    run = recorded(
        [
            *BEGUN,
            TaskDone(6.0, "a", 0, "job", "n1", 5.0),
            TaskFailed(7.0, "a", 0, "job", "n2", 5.5, "the node was lost", infrastructure=True),
        ]
    )
    (attempt,) = run.attempts("a")
    assert (attempt.node, attempt.error) == ("n1", "")


def test_jobs_that_end_after_the_outcome_do_not_make_a_run_longer() -> None:
    run = recorded([*BEGUN, RunEnded(8.0, RunState.FAILED, "why"), TaskDone(9.0, "a", 0, "job", "n1", 5.0)])
    assert (run.last, run.state, run.message) == (8.0, RunState.FAILED, "why")


@pytest.mark.parametrize("events", [[], [StageExpanded(2.0, "a", 3), *BEGUN]])
def test_events_that_do_not_say_what_was_run_are_refused(events: list[StageExpanded]) -> None:
    with pytest.raises(InvalidInput, match="the first must be RunStarted"):
        recorded(events)


def test_names_that_are_written_alike_are_told_apart() -> None:
    assert identifiers([stage_spec("a*", 1, 1), stage_spec("a+", 1, 1)]) == {"a*": "a_", "a+": "a_.2"}
