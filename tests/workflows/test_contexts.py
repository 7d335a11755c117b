from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from asa.core.job import Resources
from asa.core.run import Pool
from asa.core.view import QueueView, RunningJob
from asa.workflows.learned import Contexts


class Looks:
    """A watch that looks at the queue when told to."""

    def __init__(self) -> None:
        self.view = QueueView(0.0, Resources(4), (), (RunningJob("a", Resources(4), 300.0),))

    def seen(self) -> QueueView:
        return self.view


def test_what_the_batch_system_expects_is_worked_out_once_a_look_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def planned_s(_queue: QueueView, cores: int, walltime_s: float) -> float:
        asked.append((cores, walltime_s))
        return 300.0 if cores <= 4 else math.inf

    monkeypatch.setattr("asa.lab.forecast.futures.planned_s", planned_s)
    looks: Any = Looks()
    contexts = Contexts(Pool(), looks)
    for cores in (2, 4, 5, 2, 4, 5):
        assert contexts.of(Resources(cores), 60.0, 0.0).planned_s == (300.0 if cores <= 4 else None)
    assert asked == [(2, 60.0), (4, 60.0), (5, 60.0)]
    looks.view = replace(looks.view, now=30.0)
    contexts.of(Resources(2), 60.0, 30.0)
    assert asked[3:] == [(2, 60.0)]
