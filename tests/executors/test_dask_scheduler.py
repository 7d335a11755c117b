from __future__ import annotations

import pytest

from executors.dask.library import _PIECE, _pieces
from executors.dask.messages import AssignedOrder
from executors.wire import TaskOrder

pytestmark = pytest.mark.slow


def given(number: int, size: int) -> AssignedOrder:
    return AssignedOrder(number, TaskOrder(number, "s", number, "f", b"x" * size, (), 1, 0, 0, 1), "tls://w", ())


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([10, 10, 10], [[0, 1, 2]]),
        ([_PIECE // 2, _PIECE // 3, _PIECE // 2, 10], [[0, 1], [2, 3]]),
        ([10, 2 * _PIECE, 10], [[0], [1], [2]]),
        ([2 * _PIECE], [[0]]),
    ],
)
def test_dask_is_given_large_orders_in_parts(sizes: list[int], parts: list[list[int]]) -> None:
    """In order, and each one once; one that is too large for a part is a part of its own."""
    found = _pieces([given(number, size) for number, size in enumerate(sizes)])
    assert [[each.serial for each in part] for part in found] == parts
