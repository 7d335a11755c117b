from __future__ import annotations

import math
from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.core.registry import DISPATCHERS
from asa.lab.simulator.priority import Multifactor
from asa.lab.simulator.settings import Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"age": -1.0}, "weight 'age' must be at least 0, not -1.0"),
        ({"qos": math.nan}, "weight 'qos' must be at least 0, not nan"),
        ({"max_age_s": 0.0}, "max_age_s and half_life_s must be above 0 s, not 0.0 and 604800.0"),
        ({"half_life_s": -5.0}, "max_age_s and half_life_s must be above 0 s, not 604800.0 and -5.0"),
        ({"regime": "fifo"}, "regime 'fifo' has no ages: choose one of multifactor, limits, accrue-always"),
        ({"regime": "never"}, "regime 'never' has no ages"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Multifactor(**options)


def test_regimes_go_by_their_words() -> None:
    assert Multifactor(regime="accrue-always").regime is QueueRegime.ACCRUE_ALWAYS


def test_only_orders_that_the_engine_knows_will_do() -> None:
    with pytest.raises(InvalidInput, match=r"priority must be fifo or multifactor, not <asa\.dispatchers"):
        Settings(priority=DISPATCHERS.create("fcfs"))
