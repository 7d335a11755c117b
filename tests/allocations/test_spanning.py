"""Tasks that span nodes fit an allocation by its nodes, not only by its cores."""

import pytest

from asa.allocations.pool import Held
from asa.core.job import JobRequest, Resources

SPANNING = Resources(8, nodes=2)


@pytest.mark.parametrize(
    ("nodes", "room"),
    [
        ({}, 0),
        ({"n1": 8}, 0),
        ({"n1": 4, "n2": 4}, 1),
        ({"n1": 7, "n2": 2}, 0),
        ({"n1": 8, "n2": 8}, 2),
        ({"n1": 2, "n2": 4, "n3": 4}, 1),
    ],
)
def test_room_for_a_spanning_task(nodes: dict[str, int], room: int) -> None:
    held = Held(JobRequest("k", Resources(16, nodes=2), 100.0, ("x",)), ("s",), (), 0.0, None, nodes=nodes)
    assert held.room(SPANNING, 0.0) == room


def test_a_task_that_spans_none_is_counted_in_cores() -> None:
    held = Held(JobRequest("k", Resources(8), 100.0, ("x",)), ("s",), (), 0.0, None, nodes={"n1": 8})
    assert held.room(Resources(8), 0.0) == 1
