from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.event import RunState
from asa.core.job import QueueRegime
from tests.workflows.world import World

STRATEGIES = [
    "big-job",
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=predicted",
    "asa-naive",
    "cascade",
    "hold:technique=aged-afterok",
    "hold:technique=array",
    "hold:technique=parked",
    "stagger",
    "auto",
]


@asa.stage(cores=4, walltime="10m")
def square(x: int) -> int:
    return x * x


@asa.stage(walltime="5m")
def total(xs: list[int]) -> int:
    return sum(xs)


@asa.stage(cores=2, walltime="5m")
def spread(n: int) -> list[int]:
    return list(range(n))


def workflow() -> Any:
    return total(square.map(spread(7)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("regime", [QueueRegime.FIFO, QueueRegime.LIMITS])
def test_every_strategy_gets_the_result(tmp_path: Path, strategy: str, regime: QueueRegime) -> None:
    world = World(tmp_path, workflow(), strategy, regime=regime, wait=20.0, predicted_wait_s=5.0, on_disk=True)
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == sum(x * x for x in range(7))
    assert all(status.state.final for _, status in world.batch.jobs()), "every job has ended"
