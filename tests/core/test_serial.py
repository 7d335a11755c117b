from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from asa.core.job import JobState
from asa.core.serial import from_json, to_json


@dataclass(frozen=True)
class Pair:
    left: Pair | None = None
    state: JobState = JobState.PENDING
    sizes: tuple[int, ...] = ()
    span: tuple[float, str] | None = None


WHOLE = Pair(Pair(sizes=(1, 2)), JobState.LOST, (), (1.5, "s"))


def test_what_is_written_is_read_again() -> None:
    text = json.dumps(to_json(WHOLE))
    assert text == '{"left": {"sizes": [1, 2]}, "state": "lost", "span": [1.5, "s"]}'
    assert from_json(Pair, json.loads(text)) == WHOLE


def test_fields_of_newer_versions_are_ignored() -> None:
    assert from_json(Pair, {"sizes": [3], "colour": "blue"}) == Pair(sizes=(3,))


def test_numbers_of_numpy_are_numbers() -> None:
    """Predictions are often such, and events are written with them."""
    assert json.dumps(to_json((np.float64(1.5), None))) == "[1.5, null]"
