"""A workflow of two stages, and what must hold of its runs however they went."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asa
from asa.core.event import JobEnded, RunEnded, SubmitRefused, Submitting, TaskDone, TasksLaunched
from tests.workflows.world import World


@asa.stage(cores=2, walltime=60)
def square(x: int) -> int:
    return x * x


@asa.stage(walltime=60)
def total(xs: list[int]) -> int:
    return sum(xs)


def squares(count: int) -> Any:
    return square.map(range(count))


def message(world: World) -> str:
    return str(world.events(RunEnded)[-1].message)


def launches(world: World) -> Counter[tuple[str, int]]:
    return Counter(
        (event.stage, index)
        for event in world.events(TasksLaunched)
        for start, stop in event.ranges
        for index in range(start, stop)
    )


def check_clean(world: World) -> None:
    """Nothing done twice, nothing left behind, every allocation's story told to its end."""
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values(), default=1) == 1
    assert all(status.state.final for _, status in world.batch.jobs())
    asked = [event.allocation for event in world.events(Submitting)]
    assert len(asked) == len(set(asked))
    assert sorted(asked) == sorted(event.allocation for event in world.events(JobEnded, SubmitRefused))
