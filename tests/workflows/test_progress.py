from __future__ import annotations

from asa.core.job import Resources
from asa.core.stage import StageSpec, StageState
from asa.workflows.progress import Progress


def stage(width: int | None = 10, state: StageState = StageState.READY, *, run_time_s: float = 600.0) -> Progress:
    return Progress(StageSpec("s", Resources(4), Resources(), 600.0, run_time_s, width=width), width, state)


def test_fresh_tasks_come_in_order() -> None:
    progress = stage()
    assert progress.next_ranges(4) == ((0, 4),)
    assert progress.next_ranges(4, skip=4) == ((4, 8),)
    assert progress.next_ranges(4, skip=8) == ((8, 10),)
    assert progress.next_ranges(4, skip=10) == ()
    assert progress.unlaunched == 10


def test_lost_tasks_come_first() -> None:
    progress = stage()
    progress.launch(0, 6, 1.0)
    progress.lose(4)
    progress.lose(1)
    assert progress.unlaunched == 6
    assert progress.next_ranges(3) == ((4, 5), (1, 2), (6, 7))
    assert progress.next_ranges(3, skip=1) == ((1, 2), (6, 8))
    assert progress.next_ranges(3, skip=3) == ((7, 10),)
    progress.launch(4, 5, 2.0)
    assert progress.next_ranges(2) == ((1, 2), (6, 7))


def test_a_stage_is_done_with_its_last_task() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    assert (progress.state, progress.started, progress.unlaunched) == (StageState.RUNNING, 1.0, 0)
    progress.finish(1, 5.0, 6.0)
    assert not progress.is_finished(0) and progress.is_finished(1)
    progress.finish(0, 9.0, 10.0)
    assert (progress.state, progress.ended, progress.longest_s) == (StageState.DONE, 10.0, 9.0)


def test_a_task_that_is_done_is_neither_done_again_nor_lost() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    progress.finish(0, 5.0, 6.0)
    progress.finish(0, 7.0, 8.0)
    progress.lose(0)
    assert (progress.done, progress.longest_s, progress.unlaunched) == (1, 5.0, 0)


def test_what_was_launched_too_late_to_matter_does_not_bring_a_stage_back() -> None:
    progress = stage()
    progress.fail("one", 1.0)
    progress.fail("two", 2.0)
    progress.launch(0, 2, 3.0)
    assert (progress.state, progress.error, progress.ended, progress.unlaunched) == (StageState.FAILED, "one", 1.0, 0)


def test_a_new_driver_gives_a_failed_stage_another_go() -> None:
    progress = stage(2)
    progress.launch(0, 2, 1.0)
    progress.failures[0] = 1
    progress.barren = 2
    progress.fail("why", 3.0)
    progress.finish(1, 1.0, 4.0)
    progress.reopen()
    assert (progress.state, progress.error, progress.ended) == (StageState.WAITING, "", None)
    assert (progress.failures, progress.barren, progress.done) == ({}, 0, 1)


def test_nothing_may_be_launched_before_the_width_is_known_or_the_stage_is_ready() -> None:
    assert stage(None).unlaunched == 0
    assert stage(4, StageState.WAITING).unlaunched == 0
    assert stage(4, StageState.FAILED).unlaunched == 0


def test_only_short_tasks_queue_up_inside_allocations() -> None:
    progress = stage()
    assert progress.ahead == 0.0, "nothing is known yet"
    progress.mean_s = 0.05
    assert progress.ahead == 10.0, "half a second of work"
    progress.mean_s = 0.0
    assert progress.ahead == 256.0
    progress.mean_s = 0.5
    assert progress.ahead == 0.0


def test_the_end_is_expected_by_the_run_time_until_a_fifth_is_done() -> None:
    progress = stage(10, run_time_s=300.0)
    assert progress.expected_end(50.0) is None, "it has not started"
    progress.launch(0, 10, 100.0)
    assert progress.expected_end(150.0) == 400.0
    progress.finish(0, 20.0, 120.0)
    assert progress.expected_end(500.0) == 500.0, "never in the past"
    progress.finish(1, 20.0, 120.0)
    assert progress.expected_end(120.0) == 200.0, "a fifth in 20 s"
    assert progress.expected_end(150.0) == 350.0
