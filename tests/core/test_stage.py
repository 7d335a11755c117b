from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.stage import StageSpec


@pytest.mark.parametrize("task", [Resources(3), Resources(1, gpus=1), Resources(1, memory=2**31)])
def test_a_task_larger_than_its_stage_is_refused(task: Resources) -> None:
    room = Resources(2, memory=2**30)
    StageSpec("add", room, Resources(2), 60.0, 30.0)
    with pytest.raises(InvalidInput) as caught:
        StageSpec("add", room, task, 60.0, 30.0)
    assert f"stage 'add': one task needs {task}, more than the stage's 2 cores with 1 GiB: lower" in str(caught.value)
