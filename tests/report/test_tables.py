from __future__ import annotations

from asa.core.event import JobEnded, StageFailed
from asa.core.job import JobState
from asa.metrics.workflow import summarise
from asa.report.tables import (
    FAILURES_MOST,
    core_hours_section,
    failures_section,
    jobs_section,
    stages_section,
)
from asa.testing.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


def test_waits_stand_side_by_side() -> None:
    text = stages_section(summarise(run_log([MadeStage("a", 1, wait_s=90, predicted_wait_s=120)])))
    assert text.count("1 min 30 s</td>") == 3, "started, in the queue, perceived"
    assert "2 min</td>" in text, "predicted"


def test_what_is_not_known_is_a_dash() -> None:
    text = stages_section(summarise(run_begins(stage_spec("a", 1, None))))
    assert ">0 of ?</td>" in text
    assert text.count("–</td>") == 6


def test_core_hours_add_up_to_the_whole_bar() -> None:
    run = summarise(run_log(montage()))
    text = core_hours_section(run)
    for words in ("used 18.6", "idle (came early) 3.9", "idle (otherwise) 3.6", "26.2", "Big Job", "Per-Stage"):
        assert words in text


def test_job_that_never_ran() -> None:
    events = [
        *run_begins(stage_spec("a", 1, 1)),
        *job_asked(0.0, "j0", 1, "a"),
        JobEnded(9.0, "j0", JobState.CANCELLED),
    ]
    text = jobs_section(summarise(events))
    assert ">J0</span>" in text and "cancelled" in text and text.count("–</td>") == 2, "neither waited nor held"


def test_no_failures_no_section() -> None:
    assert failures_section(summarise(run_log([MadeStage("a", 1)]))) == ""


def test_failures_are_counted_beyond_those_shown() -> None:
    text = failures_section(summarise(run_log([MadeStage("a", 4, 300, bad_tasks=FAILURES_MOST + 200)])))
    assert text.count("<details>") == FAILURES_MOST and "200 more failed attempts" in text


def test_stage_that_failed_without_a_task_is_named() -> None:
    events = [*run_begins(stage_spec("a", 1, 1)), StageFailed(5.0, "a", "no allocation")]
    assert "<b>Stage a</b> failed" in failures_section(summarise(events))
