"""The driver dies around every single event of a run; whoever takes over ends with the same result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import JobEnded, Learned, RunState, Submitting, TaskDone
from tests.workflows.test_runner import STRATEGIES, workflow
from tests.workflows.world import Crash, World

pytestmark = pytest.mark.slow


def world_in(directory: Path, strategy: str) -> World:
    directory.mkdir(mode=0o700)
    return World(directory, workflow(), strategy, wait=20.0, predicted_wait_s=5.0)


def check_nothing_lost_or_doubled(world: World) -> None:
    assert world.result() == sum(x * x for x in range(7))
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values()) == 1
    assert all(status.state.final for _, status in world.batch.jobs()), "no job is left behind"
    asked = [event.allocation for event in world.events(Submitting)]
    assert sorted(asked) == sorted(set(asked)), "no token is used twice"
    assert {event.allocation for event in world.events(JobEnded)} == set(asked)
    taught = {event.allocation: event.wait_s for event in world.events(Learned) if not event.censored}
    assert world.waits.learned == taught, "what the log calls learned was learned"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_crash_around_every_event_changes_nothing(tmp_path: Path, strategy: str) -> None:
    whole = world_in(tmp_path / "whole", strategy)
    whole.drive()
    check_nothing_lost_or_doubled(whole)
    for number in range(whole.logged):
        for after in (False, True):
            world = world_in(tmp_path / f"{number}-{after}", strategy)
            with pytest.raises(Crash):
                world.drive(number, after=after)
            assert world.drive() is RunState.SUCCEEDED
            check_nothing_lost_or_doubled(world)


def test_crash_after_crash(tmp_path: Path) -> None:
    world = world_in(tmp_path / "run", "asa:dependency=upfront")
    crashes = 0
    outcome: Any = None
    while outcome is None:
        try:
            outcome = world.drive(crash_at=6)  # every driver lives for seven events
        except Crash:
            crashes += 1
            assert crashes < 100, "a run whose drivers keep dying still gets on"
    assert outcome is RunState.SUCCEEDED
    check_nothing_lost_or_doubled(world)
    assert crashes > 5
