from pathlib import Path

from coscheduler.ranks import Workers
from executors.wire import TaskOrder


def test_a_task_that_asks_for_more_than_a_rank_has_fails_at_once(tmp_path: Path) -> None:
    order = TaskOrder(1, "s", 0, "f", b"", (), 1, 0, 3, 1)
    with Workers(2, tmp_path) as workers:
        ((told, outcome),) = workers.run([order], lambda: None, retries=0)
    assert told is order
    assert outcome.value is None
    assert "the task can never run: it needs 3 GPUs" in outcome.error
